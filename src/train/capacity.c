#include "train/capacity.h"
#include "plan/largest.h"

ech_status ech__capacity_init(ech_ctx *ctx, const ech__run_config *config, int devices,
                              ech__capacity *out)
{
    ech__machine machine;
    *out = (ech__capacity){.ctx = ctx, .config = *config, .limit = config->train.device_memory};
    ech_train_options *train = &out->config.train;
    ECH_TRY(ech__run_batch(ctx, config, devices, &out->batch));
    if (!out->limit) {
        ECH_TRY(ech__machine_read(ctx, &machine));
        out->limit = machine.memory_bytes / (train->dp_devices ? 1 : devices);
    }
    train->group = NULL; /* devices of one training need as much each as one alone */
    if (train->reproducible && train->slots >= devices)
        train->slots /= devices;
    train->tune = false;                  /* a question about memory should not take seconds */
    train->device_memory = INT64_MAX / 4; /* the plan says what it needs, not that it is too much */
    return ECH_OK;
}

/* A trainer without memory: what a plan says. */
static ech_status make_plan(const ech__capacity *c, int64_t batch, ech_trainer **out)
{
    ech_train_options train = c->config.train;
    ech_graph *graph;
    ech__model model;
    *out = NULL;
    train.batch = batch;
    ECH_TRY(ech_graph_create(c->ctx, &graph));
    ech_status status = ech__model_build(graph, &c->config.model, &model);
    if (status == ECH_OK)
        status = ech__trainer_plan(c->ctx, graph, model.loss, &train, out);
    ech_graph_destroy(graph);
    return status;
}

ech_status ech__capacity_need(const ech__capacity *c, int64_t batch, ech__need *out)
{
    ech_trainer *trainer;
    *out = (ech__need){.batch = batch};
    const ech_status status = make_plan(c, batch, &trainer);
    if (!trainer && status == ECH_E_LIMIT) { /* no limit was given: its sizes cannot be counted */
        c->ctx->error[0] = 0;
        return ECH_OK;
    }
    if (!trainer)
        return status;
    for (int k = 0; k < ECH__MEMORY_COUNT; k++)
        out->memory[k] =
            trainer->plan->memory[k] + (trainer->whole ? trainer->whole->memory[k] : 0);
    out->total = ech_trainer_planned_memory(trainer);
    out->countable = true;
    out->fits = out->total <= c->limit;
    ech_trainer_destroy(trainer);
    return ECH_OK;
}

static ech_status bytes_of(void *user, int64_t batch, int64_t *bytes)
{
    ech__need need;
    ECH_TRY(ech__capacity_need(user, batch, &need));
    *bytes = need.countable ? need.total : INT64_MAX;
    return ECH_OK;
}

ech_status ech__capacity_largest(const ech__capacity *c, int64_t *out)
{
    ech__capacity copy = *c;
    return ech__largest_batch(bytes_of, &copy, c->limit, out);
}
