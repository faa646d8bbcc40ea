/* Passes of a pipe: a batch size, cut into micro-batches that have an exec on every device. */
#include "base/size.h"
#include "parallel/pipe/internal.h"
#include "plan/transfer.h"

#include <math.h>
#include <string.h>

/* ---- making one ---- */

static int links_of(const ech__pipe *pipe, ech__pipe_role role)
{
    int64_t most = 0;
    for (int d = 0; d < pipe->options.devices; d++) {
        const ech_graph *graph = pipe->stages[d].graphs[role];
        for (size_t n = 0; graph && n < graph->nnodes; n++) {
            const ech__node *node = &graph->nodes[n];
            const bool end = node->op == ECH__OP_SEND || node->op == ECH__OP_RECV;
            if (end && node->attrs.link + 1 > most)
                most = node->attrs.link + 1;
        }
    }
    return (int)most;
}

static ech__pipe_role role_of(const ech__pass *pass, int micro)
{
    const bool adds = micro || pass->kind == ECH__PASS_ADDS;
    return !pass->training ? ECH__PIPE_EVALUATES : adds ? ECH__PIPE_ADDS : ECH__PIPE_WRITES;
}

/* Training: as many micro-batches as a full step has, or one for each sample. Evaluation: full ones
 * and the rest. */
static void cut_batch(const ech__pipe *pipe, ech__pass *pass)
{
    const int64_t most = pipe->options.batch / pipe->options.micros;
    for (int m = 0; m < pass->micros; m++) {
        if (pass->training) {
            const ech__part part = ech__part_of(pass->batch, m, pass->micros);
            pass->first[m] = part.first;
            pass->count[m] = part.count;
            continue;
        }
        pass->first[m] = m * most;
        pass->count[m] = pass->batch - pass->first[m] < most ? pass->batch - pass->first[m] : most;
    }
}

static void order_tasks(const ech__pipe *pipe, ech__pass *pass)
{
    const ech__pipe_options *o = &pipe->options;
    for (int d = 0; d < o->devices; d++) {
        ech__task *tasks = &pass->tasks[d * pass->ntasks];
        if (pass->training)
            ech__pipe_tasks(o->order, d, o->devices, pass->micros, tasks);
        for (int m = 0; !pass->training && m < pass->micros; m++)
            tasks[m] = (ech__task){ECH__TASK_FORWARD, m};
    }
}

/* Uses the memory of the micro-batch's slot and of its inputs where that is enough; of its inputs
 * only where both have the same layout, so that what was written for training is there for
 * evaluation too. */
static ech_status make_exec(ech__stage *stage, ech__pass *pass, int micro)
{
    const int at = stage->index * pass->micros + micro;
    ech__plan *plan;
    ECH_TRY(ech__stage_plan_for(stage, role_of(pass, micro), pass->count[micro], &plan));
    const bool inputs = ech__plan_block_bytes(plan, ECH__MEMORY_INPUTS) <= stage->input_bytes &&
                        ech__plan_shares_inputs(plan, stage->plan);
    const bool slot = ech__plan_block_bytes(plan, ECH__MEMORY_ACTIVATIONS) <= stage->slot_bytes;
    const ech__exec_memory memory = {.owner = stage->exec,
                                     .inputs = inputs ? stage->inputs[micro] : NULL,
                                     .activations =
                                         slot ? stage->activations[micro % stage->slots] : NULL};
    ECH_TRY(ech__exec_create_in(plan, &memory, &pass->execs[at]));
    pass->plans[at] = plan;
    if (!stage->exec)
        stage->exec = pass->execs[at];
    return ECH_OK;
}

static ech_status make_execs(ech__pipe *pipe, ech__pass *pass)
{
    ech_status status = ECH_OK;
    pipe->made = pass;
    for (int d = 0; d < pipe->options.devices && status == ECH_OK; d++) {
        for (int m = 0; ech__pipe_has(pipe, d) && m < pass->micros && status == ECH_OK; m++) {
            pipe->made_micro = m;
            status = ech__stage_result(&pipe->stages[d], make_exec(&pipe->stages[d], pass, m));
        }
    }
    pipe->made = NULL;
    return status;
}

static ech_status allocate(ech__pipe *pipe, ech__pass *pass)
{
    ech__arena *arena = &pass->arena;
    const size_t micros = (size_t)pass->micros, all = micros * (size_t)pipe->options.devices;
    pass->links = links_of(pipe, role_of(pass, 0));
    pass->ntasks = pass->micros * (pass->training ? 2 : 1);
    pass->first = ech__arena_array(arena, micros, sizeof *pass->first);
    pass->count = ech__arena_array(arena, micros, sizeof *pass->count);
    pass->plans = ech__arena_array(arena, all, sizeof(ech__plan *));
    pass->execs = ech__arena_array(arena, all, sizeof(ech__exec *));
    pass->messages = ech__arena_array(arena, (size_t)pass->links, micros * sizeof *pass->messages);
    pass->tasks = ech__arena_array(arena, all, 2 * sizeof *pass->tasks);
    return pass->first && pass->count && pass->plans && pass->execs && pass->messages && pass->tasks
               ? ECH_OK
               : ech__no_memory(pipe->ctx, "%d micro-batches", pass->micros);
}

void ech__pass_destroy(ech__pipe *pipe, ech__pass *pass)
{
    const size_t all = (size_t)pass->micros * (size_t)pipe->options.devices;
    for (size_t i = all; pass->execs && i-- > 0;)
        ech__exec_destroy(pass->execs[i]);
    ech__arena_fini(&pass->arena);
    ech__delete(pipe->ctx, pass, sizeof *pass);
}

static ech_status make_pass(ech__pipe *pipe, int64_t batch, int micros, ech__pass_kind kind,
                            ech__pass **out)
{
    const bool training = kind != ECH__PASS_EVALUATES;
    const ech__pipe_options *o = &pipe->options;
    const int64_t each = o->batch / o->micros;
    ech__pass *pass = *out = ech__new(pipe->ctx, sizeof *pass);
    if (!pass)
        return ech__no_memory(pipe->ctx, "a batch of %lld samples", (long long)batch);
    ech__arena_init(&pass->arena, pipe->ctx->alloc);
    pass->batch = batch;
    pass->kind = kind;
    pass->training = training;
    pass->micros = training ? micros : (int)((batch - 1) / each + 1);
    ECH_TRY(allocate(pipe, pass));
    cut_batch(pipe, pass);
    order_tasks(pipe, pass);
    ECH_TRY(ech__pass_order_meetings(pipe, pass));
    return make_execs(pipe, pass);
}

int ech__pipe_micros_of(const ech__pipe *pipe, int64_t batch, double share)
{
    const ech__pipe_options *o = &pipe->options;
    int64_t least = batch;
    if (o->sync_bn && o->ranks)
        least = share > 0 ? llround((double)batch / share) / o->ranks->comm->world : 0;
    return least < 1 ? 1 : least < o->micros ? (int)least : o->micros;
}

ech_status ech__pipe_pass_of(ech__pipe *pipe, int64_t batch, int micros, ech__pass_kind kind,
                             const ech__pass **out)
{
    const bool training = kind != ECH__PASS_EVALUATES;
    *out = NULL;
    if (!micros)
        micros = batch < pipe->options.micros ? (int)batch : pipe->options.micros;
    for (const ech__pass *pass = pipe->passes; pass; pass = pass->next) {
        if (pass->batch == batch && pass->kind == kind && (!training || pass->micros == micros)) {
            *out = pass;
            return ECH_OK;
        }
    }
    if (batch < 1 || batch > pipe->options.batch)
        return ech__fail(pipe->ctx, ECH_E_INVALID,
                         "a batch of %lld samples: the pipeline takes from 1 to %lld",
                         (long long)batch, (long long)pipe->options.batch);
    ech__pass *pass;
    const ech_status status = make_pass(pipe, batch, micros, kind, &pass);
    if (status < 0) {
        if (pass)
            ech__pass_destroy(pipe, pass);
        return status;
    }
    pass->next = pipe->passes;
    pipe->passes = pass;
    *out = pass;
    return ECH_OK;
}

/* ---- inputs ---- */

/* Where one micro-batch of an input is on a device. */
typedef struct place {
    ech__device *device;
    const ech__layout *layout;
    void *memory;
    int64_t each;         /* bytes of an element */
    int64_t first, count; /* elements of the whole input */
} place;

static bool place_of(const ech__pass *pass, int device, int micro, const char *name, place *out)
{
    const int at = device * pass->micros + micro;
    const ech__plan *plan = pass->plans[at];
    const ech_value v = plan ? ech__graph_find(plan->graph, name) : -1;
    if (v < 0 || plan->graph->values[v].kind != ECH__VALUE_INPUT || !plan->places[v].used)
        return false;
    const ech__type *type = &plan->graph->values[v].type;
    *out = (place){.device = plan->device,
                   .layout = &plan->places[v].layout,
                   .memory = ech__exec_address(pass->execs[at], v),
                   .each = ech__dtype_bytes(type->dtype)};
    ech__shape_elems(&out->layout->shape, &out->count);
    if (type->shape.ndims && type->shape.dims[0] == ECH_BATCH) /* else every one has all of it */
        out->first = out->count / pass->count[micro] * pass->first[micro];
    return true;
}

/* Bytes of the whole input, or 0 where no device has it. */
static int64_t whole_bytes(const ech__pipe *pipe, const ech__pass *pass, const char *name)
{
    int64_t most = 0;
    place p;
    for (int d = 0; d < pipe->options.devices; d++) {
        for (int m = 0; m < pass->micros; m++) {
            if (place_of(pass, d, m, name, &p) && (p.first + p.count) * p.each > most)
                most = (p.first + p.count) * p.each;
        }
    }
    return most;
}

static ech_status check_input(const ech__pipe *pipe, const ech__pass *pass, const char *name,
                              size_t bytes)
{
    const int64_t whole = whole_bytes(pipe, pass, name);
    if (!whole && pipe->options.comm) /* it is another rank's */
        return ECH_OK;
    if (!whole)
        return ech__fail(pipe->ctx, ECH_E_INVALID,
                         "'%s' is no input or parameter that the loss depends on", name);
    if ((size_t)whole != bytes)
        return ech__fail(pipe->ctx, ECH_E_INVALID,
                         "'%s' of a batch of %lld takes %lld bytes, not %zu", name,
                         (long long)pass->batch, (long long)whole, bytes);
    return ECH_OK;
}

ech_status ech__pipe_write(ech__pipe *pipe, const ech__pass *pass, const char *name,
                           const void *data, size_t bytes)
{
    ECH_TRY(check_input(pipe, pass, name, bytes));
    place p;
    for (int d = 0; d < pipe->options.devices; d++) {
        for (int m = 0; m < pass->micros; m++) {
            if (place_of(pass, d, m, name, &p))
                ECH_TRY(ech__device_scatter(p.device, p.layout, p.each, 0, p.count,
                                            (const char *)data + p.first * p.each, p.memory));
        }
    }
    return ECH_OK;
}

ech_status ech__pipe_read(ech__pipe *pipe, const ech__pass *pass, const char *name, void *data,
                          size_t bytes)
{
    ECH_TRY(check_input(pipe, pass, name, bytes));
    place p;
    for (int d = pipe->options.devices - 1; d >= 0; d--) {
        for (int m = 0; m < pass->micros; m++) {
            if (place_of(pass, d, m, name, &p))
                ECH_TRY(ech__device_gather(p.device, p.layout, p.each, 0, p.count, p.memory,
                                           (char *)data + p.first * p.each));
        }
    }
    return ECH_OK;
}

ech_status ech__pipe_take_inputs(ech__pipe *pipe, const ech__pass *from, const ech__pass *to)
{
    for (int d = 0; d < pipe->options.devices; d++) {
        if (!ech__pipe_has(pipe, d))
            continue;
        const ech_graph *graph = to->plans[d * to->micros]->graph;
        for (size_t v = 0; v < graph->nvalues; v++) {
            place src, dst;
            const char *name = graph->values[v].name;
            if (graph->values[v].kind != ECH__VALUE_INPUT || !place_of(to, d, 0, name, &dst) ||
                !place_of(from, d, 0, name, &src) || src.memory == dst.memory)
                continue;
            const int64_t bytes = whole_bytes(pipe, from, name);
            void *whole = ech__new(pipe->ctx, (size_t)bytes);
            if (!whole)
                return ech__no_memory(pipe->ctx, "a copy of '%s'", name);
            ech_status status = ech__pipe_read(pipe, from, name, whole, (size_t)bytes);
            if (status == ECH_OK)
                status = ech__pipe_write(pipe, to, name, whole, (size_t)bytes);
            ech__delete(pipe->ctx, whole, (size_t)bytes);
            ECH_TRY(status);
        }
    }
    return ECH_OK;
}

int64_t ech__pipe_input_bytes(const ech__pipe *pipe, int *moves)
{
    int64_t bytes = 0;
    *moves = 0;
    for (int d = 0; d < pipe->options.devices; d++) {
        bytes += pipe->stages[d].written_bytes;
        *moves += (int)pipe->stages[d].writes;
    }
    return bytes;
}
