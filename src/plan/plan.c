#include "plan/plan.h"
#include "base/format.h"
#include "base/names.h"
#include "base/size.h"
#include "plan/largest.h"

#include <stdio.h>
#include <string.h>

ECH__NAMES(ech__memory_name, ech__memory_kind, ECH__MEMORY_LIST)

int64_t ech__plan_block_bytes(const ech__plan *plan, ech__memory_kind kind)
{
    if (kind == ECH__MEMORY_ACTIVATIONS)
        return plan->memory[ECH__MEMORY_ACTIVATIONS] + plan->memory[ECH__MEMORY_WORKSPACE];
    return kind == ECH__MEMORY_WORKSPACE ? 0 : plan->memory[kind];
}

void ech__plan_destroy(ech__plan *plan)
{
    if (!plan)
        return;
    ech__arena_fini(&plan->arena);
    ech__delete(plan->ctx, plan, sizeof *plan);
}

const ech__place *ech__plan_like(const ech__plan *plan, ech_value v)
{
    if (!plan->like)
        return NULL;
    const ech_value same = ech__graph_find(plan->like->graph, plan->graph->values[v].name);
    return same >= 0 ? &plan->like->places[same] : NULL;
}

const ech__instr *ech__plan_like_instr(const ech__plan *plan, const ech__instr *instr)
{
    const ech__node *node = instr->node;
    for (size_t n = 0; plan->like && n < plan->like->ninstrs; n++) {
        const ech__node *theirs = plan->like->instrs[n].node;
        if (theirs->op == node->op && theirs->phase == node->phase &&
            !strcmp(theirs->name ? theirs->name : "", node->name ? node->name : ""))
            return &plan->like->instrs[n];
    }
    return NULL;
}

bool ech__plan_shares_inputs(const ech__plan *plan, const ech__plan *owner)
{
    if (plan->batch != owner->batch)
        return plan->memory[ECH__MEMORY_INPUTS] <= owner->memory[ECH__MEMORY_INPUTS];
    for (size_t v = 0; v < plan->graph->nvalues; v++) {
        const ech__value *value = &plan->graph->values[v];
        const ech__place *place = &plan->places[v];
        if (value->kind != ECH__VALUE_INPUT || !place->used)
            continue;
        const ech_value same = ech__graph_find(owner->graph, value->name);
        const ech__place *theirs = same >= 0 ? &owner->places[same] : NULL;
        if (!theirs || !theirs->used || theirs->offset != place->offset ||
            !ech__layout_equal(&theirs->layout, &place->layout))
            return false;
    }
    return true;
}

int64_t ech__plan_variant_bytes(const ech__plan *plan, const ech__plan *owner)
{
    const int64_t inputs =
        ech__round_up(ech__plan_block_bytes(plan, ECH__MEMORY_INPUTS), ECH__ALIGN);
    return ech__plan_block_bytes(plan, ECH__MEMORY_ACTIVATIONS) +
           (ech__plan_shares_inputs(plan, owner) ? 0 : inputs);
}

static ech_status plan_preferred(const ech_graph *graph, ech__device *device,
                                 const ech__plan_options *options, ech__plan **out);

/* Makes the block of activations large enough for the variants. */
static ech_status reserve_activations(ech__plan *plan, const ech__plan_options *options)
{
    for (int i = 0; i < options->nvariants; i++) {
        const ech__plan_options o = {
            .batch = options->batch, .like = plan, .exchange = options->exchange};
        ech__plan *variant;
        ECH_TRY(plan_preferred(options->variants[i], plan->device, &o, &variant));
        const int64_t more = ech__plan_variant_bytes(variant, plan) -
                             ech__plan_block_bytes(plan, ECH__MEMORY_ACTIVATIONS);
        ech__plan_destroy(variant);
        if (more > 0) {
            plan->memory[ECH__MEMORY_WORKSPACE] += more;
            plan->total_bytes += more;
        }
    }
    return ECH_OK;
}

static ech_status place(ech__plan *plan, const ech__plan_options *options)
{
    ECH_TRY(ech__plan_memory(plan));
    return reserve_activations(plan, options);
}

/* A plan with the device's preferred kernels. Costs no memory on the device. */
static ech_status plan_preferred(const ech_graph *graph, ech__device *device,
                                 const ech__plan_options *options, ech__plan **out)
{
    ech_ctx *ctx = graph->ctx;
    const int64_t batch = options->batch;
    *out = NULL;
    if (batch < 1)
        return ech__fail(ctx, ECH_E_INVALID, "a batch of %lld samples: at least 1 is needed",
                         (long long)batch);
    ech__plan *plan = ech__new(ctx, sizeof *plan);
    if (!plan)
        return ech__no_memory(ctx, "a plan");
    plan->ctx = ctx;
    plan->graph = graph;
    plan->device = device;
    plan->batch = batch;
    plan->like = options->like;
    plan->exchange = options->exchange;
    plan->clock = options->clock;
    plan->ninstrs = graph->nnodes;
    ech__arena_init(&plan->arena, ctx->alloc);
    plan->places = ech__arena_array(&plan->arena, graph->nvalues, sizeof *plan->places);
    plan->instrs = ech__arena_array(&plan->arena, graph->nnodes, sizeof *plan->instrs);
    ech_status status = plan->places && plan->instrs
                            ? ECH_OK
                            : ech__no_memory(ctx, "a plan of %zu operators", graph->nnodes);
    for (size_t n = 0; status == ECH_OK && n < graph->nnodes; n++)
        plan->instrs[n].node = &graph->nodes[n];
    if (status == ECH_OK)
        status = ech__plan_choose(plan, NULL, INT64_MAX);
    if (status == ECH_OK)
        status = place(plan, options);
    if (status < 0) {
        ech__plan_destroy(plan);
        return status;
    }
    *out = plan;
    return ECH_OK;
}

typedef struct sketched {
    const ech_graph *graph;
    ech__device *device;
    ech__plan_options options;
} sketched;

/* Sizes that overflow fit nowhere. */
static ech_status preferred_bytes(void *user, int64_t batch, int64_t *bytes)
{
    const sketched *s = user;
    ech__plan_options options = s->options;
    ech__plan *plan;
    options.batch = batch;
    const ech_status status = plan_preferred(s->graph, s->device, &options, &plan);
    *bytes = INT64_MAX;
    if (status == ECH_E_LIMIT)
        return ECH_OK;
    ECH_TRY(status);
    *bytes = plan->total_bytes;
    ech__plan_destroy(plan);
    return ECH_OK;
}

static ech_status largest_batch(const ech_graph *graph, ech__device *device,
                                const ech__plan_options *options, int64_t limit, int64_t *out)
{
    sketched s = {graph, device, {.variants = options->variants, .nvariants = options->nvariants}};
    return ech__largest_batch(preferred_bytes, &s, limit, out);
}

ech_status ech__plan_largest_batch(const ech_graph *graph, ech__device *device, int64_t limit,
                                   int64_t *out)
{
    return largest_batch(graph, device, &(ech__plan_options){.nvariants = 0}, limit, out);
}

static ech_status does_not_fit(const ech__plan *plan, const ech__plan_options *options)
{
    const int64_t limit = plan->device->memory_limit;
    int64_t largest;
    ECH_TRY(largest_batch(plan->graph, plan->device, options, limit, &largest));
    char kinds[256];
    size_t used = 0;
    for (int k = 0; k < ECH__MEMORY_COUNT && used < sizeof kinds; k++)
        used += (size_t)snprintf(kinds + used, sizeof kinds - used, "%s%s %s", k ? ", " : "",
                                 ech__memory_name((ech__memory_kind)k),
                                 ech__format_bytes(plan->memory[k]).s);
    char advice[96];
    if (largest)
        snprintf(advice, sizeof advice, "the largest batch that fits is %lld", (long long)largest);
    else
        snprintf(advice, sizeof advice, "not even a batch of 1 fits");
    return ech__fail(
        plan->ctx, ECH_E_LIMIT,
        "a batch of %lld needs %lld bytes (%s: %s) and the device's limit is %lld bytes "
        "(%s); %s",
        (long long)plan->batch, (long long)plan->total_bytes,
        ech__format_bytes(plan->total_bytes).s, kinds, (long long)limit, ech__format_bytes(limit).s,
        advice);
}

/* Bytes that timing a kernel may take, operands and scratch: about what the plan takes, within the
 * limit and what can be had. */
static int64_t timing_allowance(const ech__plan *plan)
{
    const int64_t limit = plan->device->memory_limit;
    const int64_t available = plan->device->ops->available(plan->device);
    int64_t most = plan->total_bytes + (64 << 20);
    if (limit && limit < most)
        most = limit;
    return available < most ? available : most;
}

ech_status ech__plan_create(const ech_graph *graph, ech__device *device,
                            const ech__plan_options *options, ech__plan **out)
{
    *out = NULL;
    ECH_TRY(graph->status);
    ech__plan *plan;
    ECH_TRY(plan_preferred(graph, device, options, &plan));
    ech_status status = ECH_OK;
    if (device->memory_limit && plan->total_bytes > device->memory_limit)
        status = does_not_fit(plan, options);
    if (status == ECH_OK && options->choices) {
        status = ech__plan_choose_again(plan, options->choices);
        if (status == ECH_OK)
            status = place(plan, options);
        if (status == ECH_OK && device->memory_limit && plan->total_bytes > device->memory_limit)
            status = does_not_fit(plan, options);
    } else if (status == ECH_OK && options->tuning) {
        status = ech__plan_choose(plan, options->tuning, timing_allowance(plan));
        /* What timing allocated is gone again; the peak is about what the plan takes. */
        device->memory_peak = device->memory_used;
        if (status == ECH_OK)
            status = place(plan, options);
        if (status == ECH_OK && device->memory_limit && plan->total_bytes > device->memory_limit) {
            /* The fast kernels' workspace does not fit: the preferred ones did. */
            status = ech__plan_choose(plan, NULL, INT64_MAX);
            if (status == ECH_OK)
                status = place(plan, options);
        }
    }
    if (status < 0) {
        ech__plan_destroy(plan);
        return status;
    }
    *out = plan;
    return ECH_OK;
}
