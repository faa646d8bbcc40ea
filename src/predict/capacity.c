#include "predict/capacity.h"
#include "base/size.h"
#include "plan/largest.h"

static bool cuts_model(const ech_train_options *train)
{
    return ech__strategy_row_of(ech__strategy_of(train).strategy)->cuts_model;
}

ech_status ech__capacity_init(ech_ctx *ctx, const ech__run_config *config, int devices,
                              ech__capacity *out)
{
    ech__machine machine;
    *out = (ech__capacity){
        .ctx = ctx, .config = *config, .devices = devices, .limit = config->train.device_memory};
    ech_train_options *train = &out->config.train;
    ECH_TRY(ech__run_batch(ctx, config, devices, &out->batch));
    train->pipeline.ranks = false;
    if (!out->limit) {
        ECH_TRY(ech__machine_read(ctx, &machine));
        out->limit =
            machine.memory_bytes / devices / (cuts_model(train) ? ech__strategy_devices(train) : 1);
    }
    train->ddp.group = NULL; /* a device of several needs what one alone needs, and what travels */
    if (train->ddp.reproducible && train->ddp.slots >= devices)
        train->ddp.slots /= devices;
    train->device_memory = INT64_MAX / 4; /* the plan says what it needs, not that it is too much */
    return ECH_OK;
}

/* Micro-batches of a pipeline divide its batch. */
static int64_t micros_of(const ech__capacity *c)
{
    const ech_train_options *o = &c->config.train;
    return cuts_model(o) ? ech__micro_batches(o) : 1;
}

ech_status ech__capacity_plan(const ech__capacity *c, int64_t batch, ech_trainer **out)
{
    ech_train_options train = c->config.train;
    ech_graph *graph;
    ech__model model;
    *out = NULL;
    train.batch = (batch - 1) / micros_of(c) * micros_of(c) + micros_of(c);
    ECH_TRY(ech_graph_create(c->ctx, &graph));
    ech_status status = ech__model_build(graph, &c->config.model, &model);
    if (status == ECH_OK)
        status = ech__trainer_plan(c->ctx, graph, model.loss, &train, out);
    ech_graph_destroy(graph);
    return status;
}

/* Gradients in the type that they travel in, beside those that are computed. */
static int64_t sent_bytes(const ech__capacity *c, const ech__plan *plan)
{
    const ech_dtype type = c->config.train.ddp.grad_dtype;
    int64_t sum = 0;
    for (size_t v = 0; c->devices > 1 && type != ECH_F32 && v < plan->graph->nvalues; v++) {
        int64_t elements = 0;
        if (plan->graph->values[v].kind == ECH__VALUE_GRADIENT &&
            ech__layout_extent(&plan->places[v].layout, &elements))
            sum += ech__round_up(elements * ech__dtype_bytes(type), ECH__ALIGN);
    }
    return sum;
}

static ech_status need_of(const ech__capacity *c, int64_t batch, ech__need *out)
{
    ech_trainer *trainer;
    *out = (ech__need){.batch = batch};
    const ech_status status = ech__capacity_plan(c, batch, &trainer);
    if (!trainer && status == ECH_E_LIMIT) { /* no limit was given: its sizes cannot be counted */
        c->ctx->error[0] = 0;
        return ECH_OK;
    }
    if (!trainer)
        return status;
    ech__trainer_memory(trainer, ech__trainer_fullest(trainer), out->memory);
    const bool travel = ech__strategy_row_of(trainer->by.strategy)->has_ranks;
    const int64_t sent = travel ? sent_bytes(c, trainer->plan) : 0;
    out->memory[ECH__MEMORY_GRADIENTS] += sent;
    out->total = ech_trainer_planned_memory(trainer) + sent;
    out->countable = true;
    out->fits = out->total <= c->limit;
    ech_trainer_destroy(trainer);
    return ECH_OK;
}

/* A training whose fast kernels do not fit takes the preferred ones, which need less (plan/plan.c). */
ech_status ech__capacity_need(const ech__capacity *c, int64_t batch, ech__need *out)
{
    ECH_TRY(need_of(c, batch, out));
    if (!c->config.train.tune || !out->countable || out->fits)
        return ECH_OK;
    ech__capacity preferred = *c;
    preferred.config.train.tune = false;
    return need_of(&preferred, batch, out);
}

static ech_status bytes_of(void *user, int64_t batch, int64_t *bytes)
{
    ech__need need;
    ECH_TRY(need_of(user, batch, &need));
    *bytes = need.countable ? need.total : INT64_MAX;
    return ECH_OK;
}

ech_status ech__capacity_largest(const ech__capacity *c, int64_t *out)
{
    ech__capacity copy = *c;
    copy.config.train.tune = false;
    ECH_TRY(ech__largest_batch(bytes_of, &copy, c->limit, out));
    *out -= *out % micros_of(c);
    return ECH_OK;
}
