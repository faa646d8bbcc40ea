#include "parallel/pipe/pipe.h"
#include "base/format.h"
#include "parallel/dp/dp.h"
#include "parallel/pipe/internal.h"

#include <stdio.h>
#include <string.h>

int ech__pipe_devices(const ech__pipe *pipe)
{
    return pipe->options.devices;
}

int ech__pipe_micros(const ech__pipe *pipe)
{
    return pipe->options.micros;
}

ech__stage *ech__pipe_stage(const ech__pipe *pipe, int device)
{
    return &pipe->stages[device];
}

bool ech__pipe_has(const ech__pipe *pipe, int device)
{
    return !pipe->options.comm || pipe->options.comm->rank == device;
}

int ech__pipe_first(const ech__pipe *pipe)
{
    return pipe->options.comm ? pipe->options.comm->rank : 0;
}

ech_status ech__stage_result(const ech__stage *stage, ech_status status)
{
    if (status < 0)
        return ech__fail(stage->pipe->ctx, status, "device %d: %s", stage->index,
                         stage->ctx->error);
    return status;
}

/* ---- plans ---- */

static ech_status add_plan(ech__stage *stage, ech__pipe_role role, const ech__plan_options *options,
                           ech__plan **out)
{
    ech__stage_plan *entry = ech__new(stage->ctx, sizeof *entry);
    if (!entry)
        return ech__no_memory(stage->ctx, "a plan");
    const ech_status status =
        ech__plan_create(stage->graphs[role], stage->device, options, &entry->plan);
    if (status < 0) {
        ech__delete(stage->ctx, entry, sizeof *entry);
        return status;
    }
    entry->role = role;
    entry->next = stage->plans;
    stage->plans = entry;
    *out = entry->plan;
    return ECH_OK;
}

ech_status ech__stage_plan_for(ech__stage *stage, ech__pipe_role role, int64_t count,
                               ech__plan **out)
{
    for (const ech__stage_plan *p = stage->plans; p; p = p->next) {
        if (p->role == role && p->plan->batch == count) {
            *out = p->plan;
            return ECH_OK;
        }
    }
    const ech__plan_options options = {.batch = count,
                                       .like = stage->plan,
                                       .exchange = &stage->exchange,
                                       .clock = stage->pipe->options.links ? &stage->clock : NULL};
    return add_plan(stage, role, &options, out);
}

/* The part of the choices that is this stage's: the operators of the stages are contiguous, in the
 * order of the stages. */
static ech__choices choices_of(const ech__stage *stage, const ech__choices *all, size_t *taken)
{
    const ech_graph *graph = stage->graphs[ECH__PIPE_WRITES];
    size_t count = 0;
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__op op = graph->nodes[n].op;
        count += op != ECH__OP_DELAY && !ech__op_info(op)->exchange;
    }
    const size_t left = all->nkernels > *taken ? all->nkernels - *taken : 0;
    ech__choices own = *all;
    own.kernels = all->kernels + (left ? *taken : 0);
    own.nkernels = count < left ? count : left;
    *taken += count;
    return own;
}

/* Gradients are added up by operators of their own. */
static bool use_separate_sums(ech__stage *stage)
{
    ech_graph **other = &stage->graphs[ECH__PIPE_ADDS_APART];
    if (!*other)
        return false;
    ech_graph_destroy(stage->graphs[ECH__PIPE_ADDS]);
    stage->graphs[ECH__PIPE_ADDS] = *other;
    *other = NULL;
    return true;
}

/* What a micro-batch needs, whichever role it has. */
static ech_status size_slots(ech__stage *stage)
{
    const ech__pipe_options *o = &stage->pipe->options;
    const int64_t each = o->batch / o->micros;
    stage->slots = ech__pipe_slots(o->order, stage->index, o->devices, o->micros);
    for (int role = 0; role <= ECH__PIPE_ADDS; role++) {
        ech__plan *plan;
        if (!stage->graphs[role])
            continue;
        ech_status status = ech__stage_plan_for(stage, (ech__pipe_role)role, each, &plan);
        if (status == ECH_E_UNSUPPORTED && role == ECH__PIPE_ADDS && use_separate_sums(stage))
            status = ech__stage_plan_for(stage, (ech__pipe_role)role, each, &plan);
        ECH_TRY(status);
        const int64_t inputs = ech__plan_block_bytes(plan, ECH__MEMORY_INPUTS);
        const int64_t slot = ech__plan_block_bytes(plan, ECH__MEMORY_ACTIVATIONS);
        const int64_t activations = plan->memory[ECH__MEMORY_ACTIVATIONS];
        stage->input_bytes = inputs > stage->input_bytes ? inputs : stage->input_bytes;
        stage->slot_bytes = slot > stage->slot_bytes ? slot : stage->slot_bytes;
        if (activations > stage->activation_bytes)
            stage->activation_bytes = activations;
    }
    return ECH_OK;
}

/* What there is of it once, and what there is for each slot or micro-batch. */
static void sum_up_memory(ech__stage *s)
{
    const ech__pipe *pipe = s->pipe;
    memcpy(s->memory, s->plan->memory, sizeof s->memory);
    s->memory[ECH__MEMORY_INPUTS] = s->input_bytes * pipe->options.micros;
    s->memory[ECH__MEMORY_ACTIVATIONS] = s->activation_bytes * s->slots;
    s->memory[ECH__MEMORY_WORKSPACE] = (s->slot_bytes - s->activation_bytes) * s->slots;
    s->written_bytes = s->writes = 0;
    for (size_t v = 0; v < s->plan->graph->nvalues; v++) {
        int64_t elems = 0;
        const ech__value *value = &s->plan->graph->values[v];
        if (value->kind != ECH__VALUE_INPUT || !s->plan->places[v].used)
            continue;
        ech__shape_elems(&s->plan->places[v].layout.shape, &elems);
        s->written_bytes += elems * ech__dtype_bytes(value->type.dtype) * pipe->options.micros;
        s->writes++;
    }
}

void ech__pipe_memory(const ech__pipe *pipe, int device, int64_t out[ECH__MEMORY_COUNT])
{
    memcpy(out, pipe->stages[device].memory, sizeof pipe->stages[device].memory);
}

int64_t ech__pipe_planned(const ech__pipe *pipe, int device)
{
    int64_t memory[ECH__MEMORY_COUNT], sum = 0;
    ech__pipe_memory(pipe, device, memory);
    for (int k = 0; k < ECH__MEMORY_COUNT; k++)
        sum += memory[k];
    return sum;
}

static ech_status check_memory(const ech__pipe *pipe, const ech__stage *stage)
{
    const int64_t limit = stage->device->memory_limit;
    const int64_t need = ech__pipe_planned(pipe, stage->index);
    int64_t memory[ECH__MEMORY_COUNT];
    char kinds[256];
    size_t used = 0;
    if (!limit || need <= limit)
        return ECH_OK;
    ech__pipe_memory(pipe, stage->index, memory);
    for (int k = 0; k < ECH__MEMORY_COUNT && used < sizeof kinds; k++)
        used +=
            (size_t)snprintf(kinds + used, sizeof kinds - used, "%s%s %s", k ? ", " : "",
                             ech__memory_name((ech__memory_kind)k), ech__format_bytes(memory[k]).s);
    return ech__fail(
        stage->ctx, ECH_E_LIMIT,
        "needs %lld bytes (%s: %s) to hold %d of %d micro-batches of %lld samples, and "
        "its limit is %lld bytes (%s)",
        (long long)need, ech__format_bytes(need).s, kinds, stage->slots, pipe->options.micros,
        (long long)(pipe->options.batch / pipe->options.micros), (long long)limit,
        ech__format_bytes(limit).s);
}

static ech_status plan_stage(ech__stage *stage, ech__tuning *tuning, const ech__choices *choices,
                             size_t *taken)
{
    const ech__pipe *pipe = stage->pipe;
    ech__choices own;
    ech__plan_options options = {.batch = pipe->options.batch / pipe->options.micros,
                                 .tuning = tuning,
                                 .exchange = &stage->exchange,
                                 .clock = pipe->options.links ? &stage->clock : NULL};
    if (choices) {
        own = choices_of(stage, choices, taken);
        options.choices = &own;
    }
    ECH_TRY(add_plan(stage, ECH__PIPE_WRITES, &options, &stage->plan));
    ECH_TRY(size_slots(stage));
    sum_up_memory(stage);
    return check_memory(pipe, stage);
}

ech_status ech__pipe_plan(ech__pipe *pipe, ech__tuning *tuning, const ech__choices *choices)
{
    size_t taken = 0;
    for (int d = 0; d < pipe->options.devices; d++) {
        ech__stage *stage = &pipe->stages[d];
        if (ech__pipe_has(pipe, d))
            ECH_TRY(ech__stage_result(stage, plan_stage(stage, tuning, choices, &taken)));
    }
    return ECH_OK;
}

static void destroy_plans(ech__stage *stage)
{
    for (ech__stage_plan *p = stage->plans, *next; p; p = next) {
        next = p->next;
        ech__plan_destroy(p->plan);
        ech__delete(stage->ctx, p, sizeof *p);
    }
    stage->plans = NULL;
    stage->plan = NULL;
    stage->input_bytes = stage->slot_bytes = stage->activation_bytes = 0;
}

void ech__pipe_unplan(ech__pipe *pipe)
{
    for (int d = 0; d < pipe->options.devices; d++)
        destroy_plans(&pipe->stages[d]);
}

/* ---- memory ---- */

static ech_status alloc_blocks(ech__stage *stage, int count, int64_t bytes, void ***out)
{
    ech__device *device = stage->device;
    void **blocks = *out = ech__new(stage->ctx, (size_t)count * sizeof *blocks);
    if (!blocks)
        return ech__no_memory(stage->ctx, "%d micro-batches", count);
    for (int i = 0; bytes && i < count; i++)
        ECH_TRY(device->ops->alloc(device, bytes, &blocks[i]));
    return ECH_OK;
}

static void free_blocks(ech__stage *stage, int count, int64_t bytes, void **blocks)
{
    ech__device *device = stage->device;
    for (int i = 0; blocks && i < count; i++)
        device->ops->free(device, blocks[i], bytes);
    ech__delete(stage->ctx, blocks, (size_t)count * sizeof *blocks);
}

/* Ranks tell each other what their devices need. */
static ech_status share_figures(ech__pipe *pipe)
{
    typedef struct figures {
        int64_t memory[ECH__MEMORY_COUNT], written_bytes, writes;
    } figures;
    ech__comm *comm = pipe->options.comm;
    if (!comm)
        return ECH_OK;
    const ech__stage *own = &pipe->stages[comm->rank];
    figures mine = {.written_bytes = own->written_bytes, .writes = own->writes}, *all;
    memcpy(mine.memory, own->memory, sizeof mine.memory);
    all = ech__new(pipe->ctx, (size_t)comm->world * sizeof *all);
    if (!all)
        return ech__no_memory(pipe->ctx, "the figures of %d ranks", comm->world);
    const ech_status status = ech__comm_allgather(comm, &mine, all, (int64_t)sizeof mine);
    for (int d = 0; status == ECH_OK && d < comm->world; d++) {
        memcpy(pipe->stages[d].memory, all[d].memory, sizeof all[d].memory);
        pipe->stages[d].written_bytes = all[d].written_bytes;
        pipe->stages[d].writes = all[d].writes;
    }
    ech__delete(pipe->ctx, all, (size_t)comm->world * sizeof *all);
    return status;
}

ech_status ech__pipe_ready(ech__pipe *pipe)
{
    const ech__pass *full;
    ECH_TRY(share_figures(pipe));
    for (int d = 0; d < pipe->options.devices; d++) {
        ech__stage *s = &pipe->stages[d];
        if (!ech__pipe_has(pipe, d))
            continue;
        ECH_TRY(ech__stage_result(
            s, alloc_blocks(s, pipe->options.micros, s->input_bytes, &s->inputs)));
        ECH_TRY(ech__stage_result(s, alloc_blocks(s, s->slots, s->slot_bytes, &s->activations)));
    }
    return ech__pipe_pass_of(pipe, pipe->options.batch, 0, ECH__PASS_WRITES, &full);
}

const ech__stage *ech__pipe_find(const ech__pipe *pipe, const char *name, ech_value *there)
{
    for (int d = 0; d < pipe->options.devices; d++) {
        const ech__stage *stage = &pipe->stages[d];
        if (!ech__pipe_has(pipe, d))
            continue;
        *there = ech__graph_find(stage->graphs[ECH__PIPE_WRITES], name);
        if (*there >= 0)
            return stage;
    }
    return NULL;
}

/* ---- life ---- */

static ech_status open_stage(ech__stage *stage)
{
    const ech__pipe *pipe = stage->pipe;
    const ech_ctx *ctx = pipe->ctx;
    ECH_TRY(ech_ctx_create(
        &(ech_ctx_options){.alloc = ctx->alloc, .log = ctx->log, .log_user = ctx->log_user},
        &stage->ctx));
    ECH_TRY(ech__condition_init(pipe->ctx, &stage->condition));
    /* A rank has its share of the cores already. */
    const int sharers = pipe->options.comm ? 1 : pipe->options.devices;
    return ech__stage_result(stage,
                             ech__dp_open_device(stage->ctx, pipe->options.comm ? 0 : stage->index,
                                                 sharers, &pipe->options.device, &stage->device));
}

enum { SPIN_NS = 20000 };

static ech_status open_all(ech__pipe *pipe)
{
    const int devices = pipe->options.devices;
    int threads = 0;
    for (int d = 0; d < devices; d++) {
        ech__stage *stage = &pipe->stages[d];
        stage->pipe = pipe;
        stage->index = d;
        stage->exchange = (ech__exchange){&ech__stage_exchange_ops, d, devices};
        if (!ech__pipe_has(pipe, d))
            continue;
        ECH_TRY(open_stage(stage));
        threads += stage->device->threads;
    }
    pipe->spin_ns = threads <= ech__device_cores() ? SPIN_NS : 0;
    return ECH_OK;
}

static ech_status allocate(ech__pipe *pipe, const ech__pipe_options *o)
{
    const size_t count = (size_t)o->nparams, ranks = o->comm ? (size_t)o->comm->world : 0;
    pipe->stages = ech__arena_array(&pipe->arena, (size_t)o->devices, sizeof *pipe->stages);
    pipe->params = ech__arena_array(&pipe->arena, count, sizeof *pipe->params);
    pipe->stats =
        ech__arena_array(&pipe->arena, (1 + ranks) * count, ECH__GRAD_STATS * sizeof *pipe->stats);
    if (!pipe->stages || !pipe->params || !pipe->stats)
        return ech__no_memory(pipe->ctx, "%d devices of %zu parameters", o->devices, count);
    if (count)
        memcpy(pipe->params, o->params, count * sizeof *pipe->params);
    memcpy(pipe->watched, o->watched, (size_t)o->nwatched * sizeof *o->watched);
    pipe->options.params = pipe->params;
    pipe->options.watched = pipe->watched;
    return open_all(pipe);
}

ech_status ech__pipe_create(ech_ctx *ctx, const ech__pipe_options *o, ech__pipe **out)
{
    *out = NULL;
    if (o->devices < 1 || o->devices > ECH__MAX_STAGES)
        return ech__fail(ctx, ECH_E_INVALID, "%d model-parallel devices: from 1 to %d are possible",
                         o->devices, ECH__MAX_STAGES);
    ech__pipe *pipe = ech__new(ctx, sizeof *pipe);
    if (!pipe)
        return ech__no_memory(ctx, "%d devices", o->devices);
    pipe->ctx = ctx;
    pipe->options = *o;
    ech__arena_init(&pipe->arena, ctx->alloc);
    const ech_status status = allocate(pipe, o);
    if (status < 0) {
        ech__pipe_destroy(pipe);
        return status;
    }
    *out = pipe;
    return ECH_OK;
}

static void destroy_stage(ech__stage *s)
{
    if (!s->ctx)
        return;
    if (s->device) {
        free_blocks(s, s->slots, s->slot_bytes, s->activations);
        free_blocks(s, s->pipe->options.micros, s->input_bytes, s->inputs);
    }
    destroy_plans(s);
    for (int role = 0; role < ECH__PIPE_ROLES; role++)
        ech_graph_destroy(s->graphs[role]);
    ech__device_destroy(s->device);
    ech__condition_fini(&s->condition);
    ech_ctx_destroy(s->ctx);
}

void ech__pipe_destroy(ech__pipe *pipe)
{
    if (!pipe)
        return;
    for (ech__pass *pass = pipe->passes, *next; pass; pass = next) { /* the newest first */
        next = pass->next;
        ech__pass_destroy(pipe, pass);
    }
    for (int d = pipe->options.devices - 1; pipe->stages && d >= 0; d--)
        destroy_stage(&pipe->stages[d]);
    ech__arena_fini(&pipe->arena);
    ech__delete(pipe->ctx, pipe, sizeof *pipe);
}
