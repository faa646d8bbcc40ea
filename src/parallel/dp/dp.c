#include "parallel/dp/dp.h"
#include "base/format.h"
#include "device/machine.h"
#include "parallel/dp/internal.h"

#include <assert.h>

int64_t ech__dp_first_part(int64_t batch, int devices)
{
    return (batch + devices - 1) / devices;
}

ech_status ech__dp_check_memory(const ech__plan *part, const ech__plan *whole)
{
    const int64_t limit = part->device->memory_limit;
    if (!limit || part->total_bytes <= limit - whole->total_bytes)
        return ECH_OK;
    return ech__fail(
        part->ctx, ECH_E_LIMIT,
        "device 0 needs %lld bytes for its part of %lld samples and %lld bytes for the "
        "whole batch of %lld, and its limit is %lld bytes (%s)",
        (long long)part->total_bytes, (long long)part->batch, (long long)whole->total_bytes,
        (long long)whole->batch, (long long)limit, ech__format_bytes(limit).s);
}

ech_status ech__dp_open_device(ech_ctx *ctx, int index, int devices,
                               const ech__device_options *options, ech__device **out)
{
    int cores[ECH__MAX_HWTHREADS];
    ech__device_options o = *options;
    *out = NULL;
    ECH_TRY(ech__machine_share_cores(ctx, index, devices, cores, ECH__MAX_HWTHREADS, &o.ncores));
    o.cores = cores;
    if (!o.threads)
        o.threads = o.ncores;
    if (o.threads >
        o.ncores) /* more than its share were asked for: they find their places themselves */
        o.ncores = 0;
    return ech__device_create(ctx, &o, out);
}

/* ---- parts and wholes ---- */

/* Hands a failure on another device up to the caller's context. */
static ech_status from_device(const ech__dp_replica *r, ech_status status)
{
    if (status < 0 && r->index)
        return ech__fail(r->dp->ctx, status, "device %d: %s", r->index, r->ctx->error);
    return status;
}

/* The kernels of a plan, for a graph without its optimizer. */
static ech_status kernels_of(const ech__plan *plan, ech__arena *arena, ech__choices *out)
{
    *out = (ech__choices){.kernels = ech__arena_array(arena, plan->ninstrs, sizeof *out->kernels)};
    if (!out->kernels)
        return ech__no_memory(plan->ctx, "the choices of %zu kernels", plan->ninstrs);
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const ech__instr *instr = &plan->instrs[n];
        if (instr->node->phase != ECH__PHASE_OPTIMIZER && instr->node->op != ECH__OP_DELAY)
            out->kernels[out->nkernels++] = (ech__kernel_choice){
                ech__op_name(instr->node->op), instr->node->name ? instr->node->name : "",
                instr->choice.name, instr->seconds};
    }
    return ECH_OK;
}

/* Parts of one size have the same kernels on all devices. */
static ech_status plan_part(ech__dp_replica *r, ech__dp_part *part, bool tuned)
{
    const ech__plan *first = r->dp->replicas[0].parts[0].plan;
    const ech_graph *graph = r->graph ? r->graph : first->graph;
    ech__plan_options options = {
        .batch = part->batch, .tuning = tuned ? r->dp->tuning : NULL, .like = first};
    if (part->batch != first->batch)
        return ech__plan_create(graph, r->device, &options, &part->plan);
    ech__choices choices;
    ech__arena arena;
    ech__arena_init(&arena, r->ctx->alloc);
    ech_status status = kernels_of(first, &arena, &choices);
    options.choices = &choices;
    if (status == ECH_OK)
        status = ech__plan_create(graph, r->device, &options, &part->plan);
    ech__arena_fini(&arena);
    return status;
}

static ech_status make_part(ech__dp_replica *r, int64_t batch, bool tuned)
{
    const ech__dp_part *first = &r->dp->replicas[0].parts[0];
    ech__dp_part *part = &r->parts[r->nparts];
    assert(r->nparts < ECH__DP_MAX_PARTS);
    *part = (ech__dp_part){.batch = batch};
    ECH_TRY(plan_part(r, part, tuned));
    const ech_status status =
        ech__exec_create(part->plan, r->nparts ? r->parts[0].exec : NULL, &part->exec);
    if (status < 0) {
        ech__plan_destroy(part->plan);
        return status;
    }
    /* Parameters and gradients are copied and added as whole blocks. */
    assert(part->plan->memory[ECH__MEMORY_WEIGHTS] == first->plan->memory[ECH__MEMORY_WEIGHTS] &&
           part->plan->memory[ECH__MEMORY_GRADIENTS] == first->plan->memory[ECH__MEMORY_GRADIENTS]);
    r->nparts++;
    return ECH_OK;
}

static ech_status part_of(ech__dp_replica *r, int64_t batch, bool tuned, ech__dp_part **out)
{
    for (int i = 0; i < r->nparts; i++) {
        *out = &r->parts[i];
        if ((*out)->batch == batch)
            return ECH_OK;
    }
    *out = &r->parts[r->nparts];
    return from_device(r, make_part(r, batch, tuned));
}

ech_status ech__dp_cut(ech__dp *dp, int64_t batch)
{
    const int64_t most = ech__dp_first_part(batch, dp->devices);
    int64_t first = 0;
    for (int d = 0; d < dp->devices; d++) {
        ech__dp_replica *r = &dp->replicas[d];
        const int64_t left = batch - first, count = left < most ? left : most;
        r->first = first;
        r->now = NULL;
        if (count > 0)
            ECH_TRY(part_of(r, count, batch == dp->batch, &r->now));
        first += count;
    }
    return ECH_OK;
}

/* The first one's plan was handed in. */
static ech_status make_whole(ech__dp *dp, ech__dp_whole *whole)
{
    if (!whole->plan)
        ECH_TRY(ech__plan_create(dp->model.head, dp->replicas[0].device,
                                 &(ech__plan_options){.batch = whole->batch}, &whole->plan));
    ech_status status =
        ech__exec_create(whole->plan, dp->nwholes ? dp->wholes[0].exec : NULL, &whole->exec);
    if (status == ECH_OK) {
        status = ech__dp_cut(dp, whole->batch);
        if (status < 0)
            ech__exec_destroy(whole->exec);
    }
    if (status < 0 && dp->nwholes)
        ech__plan_destroy(whole->plan);
    return status;
}

ech_status ech__dp_whole_of(ech__dp *dp, int64_t batch, const ech__dp_whole **out)
{
    for (int i = 0; i < dp->nwholes; i++) {
        if (dp->wholes[i].batch == batch) {
            *out = &dp->wholes[i];
            return ECH_OK;
        }
    }
    *out = NULL;
    if (dp->nwholes == ECH__DP_MAX_WHOLES)
        return ech__fail(dp->ctx, ECH_E_LIMIT, "data parallel devices take at most %d batch sizes",
                         ECH__DP_MAX_WHOLES);
    ech__dp_whole *whole = &dp->wholes[dp->nwholes];
    *whole = (ech__dp_whole){.batch = batch, .plan = dp->nwholes ? NULL : whole->plan};
    ECH_TRY(make_whole(dp, whole));
    dp->nwholes++;
    *out = whole;
    return ECH_OK;
}

/* ---- life ---- */

/* The graph of device 0 without what only device 0 does. */
static ech_status make_graph(ech__dp_replica *r, const ech_graph *of)
{
    ECH_TRY(ech__graph_clone(of, &r->graph));
    ech_graph *graph = r->graph;
    graph->ctx = r->ctx; /* it has the same allocator */
    graph->nnodes = 0;
    for (size_t n = 0; n < of->nnodes; n++) {
        if (of->nodes[n].phase != ECH__PHASE_OPTIMIZER)
            graph->nodes[graph->nnodes++] = graph->nodes[n];
    }
    return ECH_OK;
}

static ech_status make_replica(ech__dp_replica *r, const ech__dp_options *o)
{
    ech_ctx *ctx = r->dp->ctx;
    ECH_TRY(ech_ctx_create(
        &(ech_ctx_options){.alloc = ctx->alloc, .log = ctx->log, .log_user = ctx->log_user},
        &r->ctx));
    ECH_TRY(
        from_device(r, ech__dp_open_device(r->ctx, r->index, o->devices, &o->device, &r->device)));
    return make_graph(r, o->plan->graph);
}

/* Without the padding that layouts bring, so that figures of different layouts can be compared. */
static ech_status count_bytes(ech__dp *dp, const ech__plan *plan)
{
    for (size_t v = 0; v < plan->graph->nvalues; v++) {
        const ech__value *value = &plan->graph->values[v];
        int64_t elems;
        if (!plan->places[v].used || !ech__shape_elems(&plan->places[v].layout.shape, &elems))
            continue;
        const int64_t bytes = elems * ech__dtype_bytes(value->type.dtype);
        if (plan->places[v].kind == ECH__MEMORY_WEIGHTS)
            dp->weight_bytes += bytes;
        if (value->kind != ECH__VALUE_GRADIENT)
            continue;
        dp->gradient_bytes += bytes;
        if (value->type.dtype != ECH_F32)
            return ech__fail(dp->ctx, ECH_E_UNSUPPORTED,
                             "'%s' is of type %s; devices add up gradients of type f32",
                             value->name, ech__dtype_name(value->type.dtype));
    }
    return ECH_OK;
}

static ech_status set_up(ech__dp *dp, const ech__dp_options *o)
{
    ECH_TRY(count_bytes(dp, o->plan));
    for (int d = 0; d < dp->devices; d++) {
        ech__dp_replica *r = &dp->replicas[d];
        r->dp = dp;
        r->index = d;
        if (d) {
            ECH_TRY(make_replica(r, o));
            continue;
        }
        r->ctx = dp->ctx;
        r->device = o->plan->device;
        r->parts[r->nparts++] = (ech__dp_part){o->plan->batch, o->plan, o->exec};
    }
    const ech__dp_whole *whole;
    dp->wholes[0].plan = o->whole;
    ECH_TRY(ech__dp_whole_of(dp, dp->batch, &whole));
    enum { LAYOUTS = 4 };
    const ech__layout *layouts[LAYOUTS] = {
        &whole->plan->places[dp->model.prediction].layout,
        &whole->plan->places[dp->model.grad_out].layout,
        &o->plan->places[dp->model.prediction].layout,
        &o->plan->places[dp->model.grad_in].layout,
    };
    for (int i = 0; i < LAYOUTS; i++) {
        if (!ech__layout_is_plain(layouts[i]))
            return ech__fail(dp->ctx, ECH_E_UNSUPPORTED,
                             "a prediction of shape %s: devices gather vectors, not images",
                             ech__shape_format(&layouts[i]->shape).s);
    }
    return ECH_OK;
}

ech_status ech__dp_create(ech_ctx *ctx, const ech__dp_options *o, ech__dp **out)
{
    *out = NULL;
    if (o->devices < 1 || o->devices > ECH__DP_MAX_DEVICES)
        return ech__fail(ctx, ECH_E_INVALID, "%d data parallel devices: from 1 to %d are possible",
                         o->devices, ECH__DP_MAX_DEVICES);
    assert(o->plan->batch == ech__dp_first_part(o->batch, o->devices));
    ech__dp *dp = ech__new(ctx, sizeof *dp);
    const size_t bytes = (size_t)o->devices * sizeof *dp->replicas;
    if (dp) {
        *dp = (ech__dp){.ctx = ctx,
                        .model = *o->model,
                        .tuning = o->tuning,
                        .devices = o->devices,
                        .spins = o->devices * (o->device.threads ? o->device.threads : 1) <=
                                 ech__device_cores(),
                        .batch = o->batch,
                        .replicas = ech__new(ctx, bytes)};
    }
    if (!dp || !dp->replicas) {
        ech__delete(ctx, dp, sizeof *dp);
        return ech__no_memory(ctx, "%d devices", o->devices);
    }
    const ech_status status = set_up(dp, o);
    if (status < 0) {
        ech__dp_destroy(dp);
        return status;
    }
    *out = dp;
    return ECH_OK;
}

static void destroy_replica(ech__dp_replica *r)
{
    for (int i = r->nparts - 1; i >= (r->index ? 0 : 1); i--) {
        ech__exec_destroy(r->parts[i].exec);
        ech__plan_destroy(r->parts[i].plan);
    }
    if (!r->index)
        return;
    ech_graph_destroy(r->graph);
    ech__device_destroy(r->device);
    ech_ctx_destroy(r->ctx);
}

void ech__dp_destroy(ech__dp *dp)
{
    if (!dp)
        return;
    for (int i = dp->nwholes - 1; i >= 0; i--) {
        ech__exec_destroy(dp->wholes[i].exec);
        if (i) /* the first is borrowed */
            ech__plan_destroy(dp->wholes[i].plan);
    }
    for (int d = dp->devices - 1; d >= 0; d--)
        destroy_replica(&dp->replicas[d]);
    ech__delete(dp->ctx, dp->replicas, (size_t)dp->devices * sizeof *dp->replicas);
    ech__delete(dp->ctx, dp, sizeof *dp);
}

/* ---- what it costs ---- */

int ech__dp_devices(const ech__dp *dp)
{
    return dp->devices;
}

const ech__dp_work *ech__dp_work_of(const ech__dp *dp, int device)
{
    return &dp->replicas[device].work;
}

const ech__span *ech__dp_phases(const ech__dp *dp)
{
    return dp->phases;
}

bool ech__dp_last(const ech__dp *dp, int device, const ech__plan **plan, const ech__exec **exec)
{
    const ech__dp_part *part = dp->replicas[device].now;
    if (!part)
        return false;
    *plan = part->plan;
    *exec = part->exec;
    return true;
}

ech__nonfinite ech__dp_nonfinite(const ech__dp *dp, int *device)
{
    const ech__nonfinite loss = ech__exec_nonfinite(dp->now->exec);
    for (*device = 0; loss.node && *device < dp->devices; ++*device) {
        const ech__dp_part *part = dp->replicas[*device].now;
        const ech__nonfinite found =
            part ? ech__exec_nonfinite(part->exec) : (ech__nonfinite){.node = NULL};
        if (found.node)
            return found;
    }
    *device = 0;
    return loss;
}

int64_t ech__dp_updates(const ech__dp *dp)
{
    const ech__dp_replica *first = &dp->replicas[0];
    int64_t sum = 0;
    for (int i = 0; i < first->nparts; i++)
        sum += ech__exec_updates(first->parts[i].exec);
    return sum;
}

ech__device *ech__dp_device(const ech__dp *dp, int device)
{
    return dp->replicas[device].device;
}

void ech__dp_memory(const ech__dp *dp, int device, int64_t out[ECH__MEMORY_COUNT])
{
    const ech__dp_replica *r = &dp->replicas[device];
    for (int k = 0; k < ECH__MEMORY_COUNT; k++) {
        out[k] = r->nparts ? r->parts[0].plan->memory[k] : 0;
        if (device == 0)
            out[k] += dp->wholes[0].plan->memory[k];
    }
}

int64_t ech__dp_planned(const ech__dp *dp, int device)
{
    int64_t memory[ECH__MEMORY_COUNT], sum = 0;
    ech__dp_memory(dp, device, memory);
    for (int k = 0; k < ECH__MEMORY_COUNT; k++)
        sum += memory[k];
    return sum;
}
