/* Runs a plan: allocates its blocks, prepares its kernels, and from then on only executes. */
#include "base/size.h"
#include "base/system/clock.h"
#include "plan/plan.h"
#include "plan/transfer.h"

#include <assert.h>

struct ech__exec {
    ech__plan *plan;
    char *blocks[ECH__MEMORY_COUNT];
    bool borrowed[ECH__MEMORY_COUNT]; /* from the owner */
    char *staging; /* like the block of gradients, where ranks cannot add up in that; NULL: none */
    ech__kernel **kernels; /* [ninstrs]; NULL where there is nothing to do */
    ech__span *spans;      /* [ninstrs] */
    ech__span *computing;  /* [ninstrs] of the run under way, and operators of the exchange */
    ech__span *blocked;    /* [ninstrs] */
    bool prepared;         /* since the weights were written, as far as anybody said */
    bool *written;  /* [ninstrs] casts that an optimizer's kernel does on its way, where it runs */
    size_t loss_at; /* the instruction that makes the graph's loss; ninstrs: none does */
    ech__nonfinite nonfinite;
    int64_t updates; /* runs that began to change parameters */
    /* The call in progress. */
    unsigned phases;
    const ech__scalars *scalars;
    ech__phase_times *times; /* may be NULL */
};

void *ech__exec_address(const ech__exec *exec, ech_value value)
{
    const ech__place *place = &exec->plan->places[value];
    return place->used ? exec->blocks[place->kind] + place->offset : NULL;
}

void *ech__exec_block(const ech__exec *exec, ech__memory_kind kind, int64_t *bytes)
{
    *bytes = ech__plan_block_bytes(exec->plan, kind);
    return exec->blocks[kind];
}

ech_status ech__exec_write(const ech__exec *exec, ech_value value, int64_t first, int64_t count,
                           const void *canonical)
{
    const ech__plan *plan = exec->plan;
    return ech__device_scatter(plan->device, &plan->places[value].layout,
                               ech__dtype_bytes(plan->graph->values[value].type.dtype), first,
                               count, canonical, ech__exec_address(exec, value));
}

ech_status ech__exec_read(const ech__exec *exec, ech_value value, int64_t first, int64_t count,
                          void *canonical)
{
    const ech__plan *plan = exec->plan;
    return ech__device_gather(plan->device, &plan->places[value].layout,
                              ech__dtype_bytes(plan->graph->values[value].type.dtype), first, count,
                              ech__exec_address(exec, value), canonical);
}

ech_status ech__exec_scalar(const ech__exec *exec, ech_value value, double *out)
{
    float narrow;
    if (exec->plan->graph->values[value].type.dtype == ECH_F64)
        return ech__exec_read(exec, value, 0, 1, out);
    ECH_TRY(ech__exec_read(exec, value, 0, 1, &narrow));
    *out = (double)narrow;
    return ECH_OK;
}

const ech__span *ech__exec_spans(const ech__exec *exec)
{
    return exec->spans;
}

/* The copy in another type with the layout of the optimizer's parameter: the optimizer's kernel
 * writes both. -1: none. */
static ech_value written_copy(const ech__plan *plan, const ech__node *node)
{
    if (node->op != ECH__OP_SGD && node->op != ECH__OP_ADAM)
        return -1;
    for (size_t v = 0; v < plan->graph->nvalues; v++) {
        const ech__value *value = &plan->graph->values[v];
        if (value->kind == ECH__VALUE_COPY && value->of == node->in[0] && plan->places[v].used &&
            ech__dtype_is_low(value->type.dtype) &&
            ech__layout_equal(&plan->places[v].layout, &plan->places[node->in[0]].layout))
            return (ech_value)v;
    }
    return -1;
}

static void find_written(ech__exec *exec)
{
    const ech__plan *plan = exec->plan;
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const ech_value copy = written_copy(plan, plan->instrs[n].node);
        for (size_t m = n + 1; copy >= 0 && m < plan->ninstrs; m++) {
            const ech__node *node = plan->instrs[m].node;
            exec->written[m] |= node->op == ECH__OP_CAST && node->out[0] == copy;
        }
    }
}

/* An all-reduce that ends in the parameters needs the optimizer's kernel, on the same memory:
 * parameters, gradients and states in this order. */
static ech_status prepare_update(ech__exec *exec, const ech__instr *instr,
                                 const ech__binding *binding, ech__kernel **out)
{
    ech__device *device = exec->plan->device;
    ech__kernel_desc desc = instr->desc;
    ech__binding swapped = *binding;
    desc.op = (ech__op)desc.attrs.update;
    desc.operands[0] = instr->desc.operands[1];
    desc.operands[1] = instr->desc.operands[0];
    swapped.operands[0] = binding->operands[1];
    swapped.operands[1] = binding->operands[0];
    ech__candidate candidates[ECH__MAX_CANDIDATES];
    int count;
    ECH_TRY(device->ops->candidates(device, &desc, candidates, &count));
    if (!count)
        return ech__fail(exec->plan->ctx, ECH_E_UNSUPPORTED, "the %s device has no kernel for %s",
                         device->kind, ech__op_name(desc.op));
    return device->ops->create(&(ech__kernel_args){device, &desc, &candidates[0], &swapped}, out);
}

static ech_status prepare_exchange(ech__exec *exec, const ech__instr *instr,
                                   const ech__binding *binding, ech__kernel **out)
{
    ech__exchange *exchange = exec->plan->exchange;
    ech__kernel *update = NULL;
    if (instr->node->op == ECH__OP_ALLREDUCE && instr->node->nin > 1)
        ECH_TRY(prepare_update(exec, instr, binding, &update));
    return exchange->ops->create(exchange, exec->plan->device, &instr->desc, binding, update, out);
}

static ech_status prepare(ech__exec *exec, const ech__instr *instr, ech__kernel **out)
{
    const ech__node *node = instr->node;
    ech__binding binding = {.scratch =
                                exec->blocks[ECH__MEMORY_ACTIVATIONS] + instr->scratch_offset};
    if (instr->choice.kept_bytes)
        binding.kept = exec->blocks[ECH__MEMORY_COPIES] + instr->kept_offset;
    for (int i = 0; i < node->nin + node->nout; i++)
        binding.operands[i] = ech__exec_address(exec, ech__node_operand(node, i));
    const ech_value copy = written_copy(exec->plan, node);
    if (copy >= 0) {
        binding.copy = ech__exec_address(exec, copy);
        binding.copy_type = exec->plan->graph->values[copy].type.dtype;
    }
    if (exec->staging && node->op == ECH__OP_ALLREDUCE)
        binding.staging = exec->staging + exec->plan->places[node->in[0]].offset;
    ech__device *device = exec->plan->device;
    assert(exec->plan->exchange || !ech__op_info(node->op)->exchange);
    const ech_status status =
        ech__op_info(node->op)->exchange
            ? prepare_exchange(exec, instr, &binding, out)
            : device->ops->create(
                  &(ech__kernel_args){device, &instr->desc, &instr->choice, &binding}, out);
    return status < 0 ? ech__fail_in(exec->plan->ctx, status, "%s '%s'", ech__op_name(node->op),
                                     node->name)
                      : ECH_OK;
}

static ech_status prepare_all(void *arg)
{
    ech__exec *exec = arg;
    for (size_t n = 0; n < exec->plan->ninstrs; n++) {
        if (!ech__plan_is_idle(exec->plan, &exec->plan->instrs[n]))
            ECH_TRY(prepare(exec, &exec->plan->instrs[n], &exec->kernels[n]));
    }
    return ECH_OK;
}

/* Blocks that a model has once, whatever the batch. */
static bool is_lasting(ech__memory_kind kind)
{
    return kind == ECH__MEMORY_WEIGHTS || kind == ECH__MEMORY_COPIES ||
           kind == ECH__MEMORY_GRADIENTS || kind == ECH__MEMORY_SUMS ||
           kind == ECH__MEMORY_OPTIMIZER;
}

static void borrow_lasting(ech__exec *exec, const ech__exec *owner)
{
    for (int k = 0; k < ECH__MEMORY_COUNT; k++) {
        if (!is_lasting((ech__memory_kind)k))
            continue;
        assert(ech__plan_block_bytes(exec->plan, (ech__memory_kind)k) <=
               ech__plan_block_bytes(owner->plan, (ech__memory_kind)k));
        exec->borrowed[k] = true;
        exec->blocks[k] = owner->blocks[k];
    }
    exec->staging = owner->staging;
}

/* Activations are in the owner's block. Inputs are where the owner has them, or else before the
 * activations. */
static void share_blocks(ech__exec *exec, const ech__exec *owner)
{
    const ech__plan *plan = exec->plan;
    const bool shares = ech__plan_shares_inputs(plan, owner->plan);
    const bool enough = ech__plan_variant_bytes(plan, owner->plan) <=
                        ech__plan_block_bytes(owner->plan, ECH__MEMORY_ACTIVATIONS);
    borrow_lasting(exec, owner);
    if (!enough)
        return;
    exec->borrowed[ECH__MEMORY_INPUTS] = exec->borrowed[ECH__MEMORY_ACTIVATIONS] = true;
    char *activations = owner->blocks[ECH__MEMORY_ACTIVATIONS];
    exec->blocks[ECH__MEMORY_INPUTS] = shares ? owner->blocks[ECH__MEMORY_INPUTS] : activations;
    exec->blocks[ECH__MEMORY_ACTIVATIONS] =
        shares ? activations
               : activations +
                     ech__round_up(ech__plan_block_bytes(plan, ECH__MEMORY_INPUTS), ECH__ALIGN);
}

/* Gradients that are exchanged are in memory that the ranks share; so do parameters and states
 * where one rank changes them for all. Where the host cannot touch the device's memory, only copies
 * of the gradients do. */
static bool is_exchanged(const ech__exec *exec, ech__memory_kind kind)
{
    if (kind != ECH__MEMORY_GRADIENTS && kind != ECH__MEMORY_WEIGHTS &&
        kind != ECH__MEMORY_OPTIMIZER)
        return false;
    for (size_t n = 0; n < exec->plan->ninstrs; n++) {
        const ech__node *node = exec->plan->instrs[n].node;
        if (node->op == ECH__OP_ALLREDUCE && (node->nin > 1 || kind == ECH__MEMORY_GRADIENTS))
            return true;
    }
    return false;
}

static bool is_shared(const ech__exec *exec, ech__memory_kind kind)
{
    return exec->plan->device->memory->host_visible && is_exchanged(exec, kind);
}

static ech_status alloc_block(ech__exec *exec, ech__memory_kind kind)
{
    ech__device *device = exec->plan->device;
    ech__exchange *exchange = exec->plan->exchange;
    void **at = (void **)&exec->blocks[kind];
    const int64_t bytes = ech__plan_block_bytes(exec->plan, kind);
    if (!bytes || exec->borrowed[kind])
        return ECH_OK;
    if (!is_shared(exec, kind)) {
        if (kind == ECH__MEMORY_GRADIENTS && is_exchanged(exec, kind))
            ECH_TRY(exchange->ops->alloc(exchange, bytes, (void **)&exec->staging));
        return device->ops->alloc(device, bytes, at);
    }
    ECH_TRY(device->ops->charge(device, bytes));
    const ech_status status = exchange->ops->alloc(exchange, bytes, at);
    if (status < 0)
        device->ops->charge(device, -bytes);
    return status;
}

static void free_block(ech__exec *exec, ech__memory_kind kind)
{
    ech__device *device = exec->plan->device;
    const int64_t bytes = ech__plan_block_bytes(exec->plan, kind);
    if (kind == ECH__MEMORY_GRADIENTS && exec->staging && !exec->borrowed[kind])
        exec->plan->exchange->ops->free(exec->plan->exchange, exec->staging);
    if (!exec->blocks[kind] || exec->borrowed[kind])
        return;
    if (is_shared(exec, kind)) {
        exec->plan->exchange->ops->free(exec->plan->exchange, exec->blocks[kind]);
        device->ops->charge(device, -bytes);
    } else {
        device->ops->free(device, exec->blocks[kind], bytes);
    }
}

/* Blocks that are not borrowed are its own; then the kernels. */
static ech_status make_ready(ech__exec *exec)
{
    ech__device *device = exec->plan->device;
    ech_status status = ECH_OK;
    for (int k = 0; k < ECH__MEMORY_COUNT && status == ECH_OK; k++)
        status = alloc_block(exec, (ech__memory_kind)k);
    if (status == ECH_OK)
        status = device->ops->call(device, prepare_all, exec);
    if (status < 0)
        ech__exec_destroy(exec);
    return status;
}

static ech_status new_exec(ech__plan *plan, ech__exec **out)
{
    ech__exec *exec = ech__arena_alloc(&plan->arena, sizeof *exec);
    if (exec) {
        exec->plan = plan;
        exec->kernels = ech__arena_array(&plan->arena, plan->ninstrs, sizeof(ech__kernel *));
        exec->spans = ech__arena_array(&plan->arena, plan->ninstrs, sizeof *exec->spans);
        exec->computing = ech__arena_array(&plan->arena, plan->ninstrs, sizeof *exec->computing);
        exec->blocked = ech__arena_array(&plan->arena, plan->ninstrs, sizeof *exec->blocked);
        exec->written = ech__arena_array(&plan->arena, plan->ninstrs, sizeof *exec->written);
    }
    *out = exec;
    if (!exec || !exec->kernels || !exec->spans || !exec->computing || !exec->blocked ||
        !exec->written)
        return ech__no_memory(plan->ctx, "%zu kernels", plan->ninstrs);
    find_written(exec);
    const ech__node *maker = ech__graph_maker(plan->graph, plan->graph->loss);
    exec->loss_at = maker ? (size_t)(maker - plan->graph->nodes) : plan->ninstrs;
    return ECH_OK;
}

ech_status ech__exec_create(ech__plan *plan, ech__exec *owner, ech__exec **out)
{
    ech__exec *exec;
    *out = NULL;
    ECH_TRY(new_exec(plan, &exec));
    if (owner)
        share_blocks(exec, owner);
    ECH_TRY(make_ready(exec));
    *out = exec;
    return ECH_OK;
}

ech_status ech__exec_create_in(ech__plan *plan, const ech__exec_memory *memory, ech__exec **out)
{
    ech__exec *exec;
    *out = NULL;
    ECH_TRY(new_exec(plan, &exec));
    if (memory->owner)
        borrow_lasting(exec, memory->owner);
    exec->blocks[ECH__MEMORY_INPUTS] = memory->inputs;
    exec->borrowed[ECH__MEMORY_INPUTS] = memory->inputs != NULL;
    exec->blocks[ECH__MEMORY_ACTIVATIONS] = memory->activations;
    exec->borrowed[ECH__MEMORY_ACTIVATIONS] = memory->activations != NULL;
    ECH_TRY(make_ready(exec));
    *out = exec;
    return ECH_OK;
}

static ech_status destroy_kernels(void *arg)
{
    ech__exec *exec = arg;
    for (size_t n = 0; n < exec->plan->ninstrs; n++) {
        if (exec->kernels[n])
            exec->kernels[n]->destroy(exec->kernels[n]);
    }
    return ECH_OK;
}

void ech__exec_destroy(ech__exec *exec)
{
    if (!exec)
        return;
    ech__device *device = exec->plan->device;
    device->ops->call(device, destroy_kernels, exec);
    for (int k = 0; k < ECH__MEMORY_COUNT; k++)
        free_block(exec, (ech__memory_kind)k);
}

/* Whether the call under way runs an instruction. A copy that the optimizer's kernel writes is not
 * run as well. */
static bool is_run(const ech__exec *exec, size_t n)
{
    return exec->phases & 1u << exec->plan->instrs[n].node->phase && exec->kernels[n] &&
           !(exec->written[n] && exec->phases & ECH__PHASE_BIT(OPTIMIZER));
}

static void count_times(ech__exec *exec, ech__span run)
{
    ech__exchange *exchange = exec->plan->exchange;
    ech__spans computing = {.at = exec->computing}, blocked = {.at = exec->blocked}, moving = {0};
    for (size_t n = 0; n < exec->plan->ninstrs; n++) {
        const ech__node *node = exec->plan->instrs[n].node;
        const ech__span span = exec->spans[n];
        if (!is_run(exec, n))
            continue;
        if (ech__op_info(node->op)->exchange) {
            exec->blocked[blocked.count++] = span;
            continue;
        }
        exec->computing[computing.count++] = span;
        exec->times->ns[node->phase] += span.end_ns - span.start_ns;
    }
    if (exchange && exchange->ops->transfers)
        moving = exchange->ops->transfers(exchange);
    const ech__account account = ech__account_for(run, computing, moving, blocked);
    exec->times->exposed_ns += account.exposed_ns;
    exec->times->wait_ns += account.wait_ns;
    exec->times->hidden_ns += account.hidden_ns;
}

/* The time is there when the device has been waited for. */
static void stamp(const ech__plan *plan, int64_t *ns)
{
    if (plan->clock)
        *ns = plan->clock->now_ns;
    else
        plan->device->memory->stamp(plan->device, ns);
}

/* Only what the device computes takes time; the exchange moves the clock itself. */
static ech_status run_virtually(const ech__plan *plan, const ech__node *node, ech__kernel *kernel,
                                const ech__scalars *scalars)
{
    ech__virtual_clock *clock = plan->clock;
    ech__device *device = plan->device;
    if (node->op == ECH__OP_DELAY) {
        clock->now_ns += (int64_t)(node->attrs.seconds * 1e9);
        return ECH_OK;
    }
    if (ech__op_info(node->op)->exchange)
        return kernel->run(kernel, scalars);
    int64_t start = 0, end = 0;
    device->memory->worked(device, &start);
    const ech_status status = kernel->run(kernel, scalars);
    device->memory->worked(device, &end);
    const ech_status synced = device->memory->sync(device);
    clock->now_ns += end - start;
    return status < 0 ? status : synced;
}

/* ---- what is not finite ---- */

ech_status ech__exec_is_finite(const ech__exec *exec, ech_value v, bool *out)
{
    const ech__place *place = &exec->plan->places[v];
    int64_t elems = 0;
    *out = true;
    if (!place->used || !ech__layout_extent(&place->layout, &elems))
        return ECH_OK;
    return ech__device_all_finite(exec->plan->device, exec->plan->graph->values[v].type.dtype,
                                  elems, ech__exec_address(exec, v), out);
}

static bool overlap(const ech__place *a, const ech__place *b)
{
    return a->kind == b->kind && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

/* Whether what instruction n made is still there after instruction `last`. */
static bool is_kept_until(const ech__plan *plan, size_t n, size_t last)
{
    const ech__place *place = &plan->places[plan->instrs[n].node->out[0]];
    for (size_t m = n + 1; m <= last; m++) {
        const ech__instr *instr = &plan->instrs[m];
        const ech__place scratch = {.kind = ECH__MEMORY_ACTIVATIONS,
                                    .offset = instr->scratch_offset,
                                    .bytes = instr->choice.scratch_bytes};
        bool taken = overlap(place, &scratch);
        for (int i = 0; i < instr->node->nout; i++)
            taken |= plan->places[instr->node->out[i]].used &&
                     overlap(place, &plan->places[instr->node->out[i]]);
        if (taken && instr->node->phase == ECH__PHASE_FORWARD)
            return false;
    }
    return true;
}

static bool is_forward(const ech__exec *exec, size_t n)
{
    return exec->kernels[n] && exec->plan->instrs[n].node->phase == ECH__PHASE_FORWARD;
}

/* Whether the forward pass can be run once more without other ranks or devices. */
static bool can_run_again(const ech__exec *exec, size_t last)
{
    const ech__plan *plan = exec->plan;
    for (size_t n = 0; n <= last && n < plan->ninstrs; n++) {
        const ech__op op = plan->instrs[n].node->op;
        if (is_forward(exec, n) && ech__op_info(op)->exchange && op != ECH__OP_SEND &&
            (op != ECH__OP_RECV || !is_kept_until(plan, n, last)))
            return false;
    }
    return true;
}

static ech_status note_nonfinite(ech__exec *exec, const ech__node *node, const ech_value *values,
                                 int count, bool read)
{
    for (int i = 0; i < count && !exec->nonfinite.node; i++) {
        bool finite;
        ECH_TRY(ech__exec_is_finite(exec, values[i], &finite));
        if (!finite)
            exec->nonfinite = (ech__nonfinite){exec->plan->graph, node, values[i], read};
    }
    return ECH_OK;
}

/* What no operator before it in the pass has made. */
static ech_status find_source(ech__exec *exec, const ech__node *node)
{
    for (int i = 0; i < node->nin; i++) {
        const ech__value_kind kind = exec->plan->graph->values[node->in[i]].kind;
        if (kind != ECH__VALUE_ACTIVATION)
            ECH_TRY(note_nonfinite(exec, node, &node->in[i], 1, true));
    }
    return ECH_OK;
}

ech_status ech__exec_find_nonfinite(ech__exec *exec)
{
    const ech__plan *plan = exec->plan;
    const size_t last = exec->loss_at < plan->ninstrs ? exec->loss_at : plan->ninstrs - 1;
    const bool again = can_run_again(exec, last);
    exec->nonfinite = (ech__nonfinite){.node = NULL};
    for (size_t n = 0; n <= last; n++) {
        const ech__node *node = plan->instrs[n].node;
        if (!is_forward(exec, n))
            continue;
        ECH_TRY(find_source(exec, node));
        if (!again)
            continue;
        /* Running statistics have had their share of this batch, and a delay changes nothing. */
        const bool skipped = ech__op_info(node->op)->exchange || ech__op_info(node->op)->changes ||
                             node->op == ECH__OP_DELAY;
        if (!skipped)
            ECH_TRY(exec->kernels[n]->run(exec->kernels[n], exec->scalars));
        ECH_TRY(note_nonfinite(exec, node, node->out, node->nout, node->op == ECH__OP_RECV));
    }
    return ECH_OK;
}

ech__nonfinite ech__exec_nonfinite(const ech__exec *exec)
{
    return exec->nonfinite;
}

int64_t ech__exec_updates(const ech__exec *exec)
{
    return exec->updates;
}

/* ---- running ---- */

/* Before an operator: an exchange with several operands ends in the parameters. */
static void note_update(ech__exec *exec, const ech__node *node, bool *noted)
{
    const bool updates =
        node->phase == ECH__PHASE_OPTIMIZER || (node->op == ECH__OP_ALLREDUCE && node->nin > 1);
    if (updates && !*noted) {
        exec->updates++;
        *noted = true;
    }
}

/* Before anything is updated: since which operator the loss is not finite. */
static ech_status check_loss(ech__exec *exec)
{
    bool finite;
    ECH_TRY(ech__exec_is_finite(exec, exec->plan->graph->loss, &finite));
    return finite ? ECH_OK : ech__exec_find_nonfinite(exec);
}

static ech_status run_instrs(ech__exec *exec)
{
    const ech__plan *plan = exec->plan;
    ech__exchange *exchange = plan->exchange;
    bool noted = false;
    if (exec->phases & ECH__PHASE_BIT(FORWARD))
        exec->nonfinite.node = NULL;
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const ech__node *node = plan->instrs[n].node;
        ech__kernel *kernel = exec->kernels[n];
        ech__span *span = &exec->spans[n];
        if (!is_run(exec, n)) {
            if (exec->written[n] && exec->phases & 1u << node->phase)
                span->start_ns = span->end_ns; /* another operator did its work */
            continue;
        }
        assert(exec->prepared || !kernel->prepare);
        note_update(exec, node, &noted);
        stamp(plan, &span->start_ns);
        ech_status status = plan->clock ? run_virtually(plan, node, kernel, exec->scalars)
                                        : kernel->run(kernel, exec->scalars);
        stamp(plan, &span->end_ns);
        if (status == ECH_OK && exchange)
            status = exchange->ops->progress(exchange);
        if (status == ECH_OK && n == exec->loss_at)
            status = check_loss(exec);
        if (status < 0)
            return ech__fail_in(plan->ctx, status, "%s '%s'", ech__op_name(node->op), node->name);
    }
    return ECH_OK;
}

static ech_status run_phases(void *arg)
{
    ech__exec *exec = arg;
    ech__device *device = exec->plan->device;
    ech__span run;
    stamp(exec->plan, &run.start_ns);
    const ech_status status = run_instrs(exec);
    stamp(exec->plan, &run.end_ns);
    const ech_status synced = device->memory->sync(device);
    ECH_TRY(status < 0 ? status : synced);
    if (exec->times)
        count_times(exec, run);
    return ECH_OK;
}

static ech_status prepare_weights(void *arg)
{
    ech__exec *exec = arg;
    for (size_t n = 0; n < exec->plan->ninstrs; n++) {
        ech__kernel *kernel = exec->kernels[n];
        if (kernel && kernel->prepare)
            ECH_TRY(kernel->prepare(kernel));
    }
    exec->prepared = true;
    return exec->plan->device->memory->sync(exec->plan->device);
}

ech_status ech__exec_prepare(ech__exec *exec)
{
    return exec->plan->device->ops->call(exec->plan->device, prepare_weights, exec);
}

ech_status ech__exec_run(ech__exec *exec, unsigned phases, const ech__scalars *scalars,
                         ech__phase_times *times)
{
    exec->phases = phases;
    exec->scalars = scalars;
    exec->times = times;
    return exec->plan->device->ops->call(exec->plan->device, run_phases, exec);
}
