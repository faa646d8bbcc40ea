#include "train/strategy/dp.h"
#include "base/system/clock.h"
#include "train/strategy/strategy.h"

typedef struct state {
    ech__dp *dp;            /* NULL until it is ready */
    ech__split_model model; /* the body is the trainer's graph */
    ech__plan *head;        /* of the whole batch, on device 0 */
} state;

static state *state_of(const ech_trainer *trainer)
{
    return trainer->state;
}

static ech__dp *dp_of(const ech_trainer *trainer)
{
    return state_of(trainer)->dp;
}

ech__dp *ech__trainer_dp(const ech_trainer *trainer)
{
    return trainer->ops == &ech__ops_dp && trainer->state ? dp_of(trainer) : NULL;
}

/* ---- creation ---- */

static ech_status check(const ech_trainer *trainer, const ech_train_options *o)
{
    if (o->dp.devices < 0 || o->dp.devices > ECH__DP_MAX_DEVICES)
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "%d data parallel devices: from 1 to %d are possible, or 0 for none",
                         o->dp.devices, ECH__DP_MAX_DEVICES);
    return ECH_OK;
}

static ech_status make_graphs(ech_trainer *trainer, ech_value loss,
                              const ech__graphs_options *options)
{
    ECH_TRY(check(trainer, options->train));
    state *own = ech__new(trainer->ctx, sizeof *own);
    if (!own)
        return ech__no_memory(trainer->ctx, "%d data parallel devices", options->train->dp.devices);
    trainer->state = own;
    const ech_status status = ech__graphs_of_split(trainer->model, loss, options, &own->model);
    ech_graph *graph = trainer->graph = trainer->graphs[0] = own->model.body;
    trainer->nroles = 1;
    ECH_TRY(status);
    /* The head makes the loss; the trainer's graph keeps its number, by which it is asked for. */
    graph->loss = loss;
    ech__graph_keep(graph, loss);
    return ECH_OK;
}

static ech__device_options device_options(const ech_trainer *trainer,
                                          const ech_train_options *options)
{
    return (ech__device_options){.kind = trainer->device_kind,
                                 .threads = options->threads,
                                 .memory_limit = options->device_memory};
}

static ech_status open_device(ech_trainer *trainer, ech_value loss,
                              const ech_train_options *options)
{
    (void)loss;
    const ech__device_options device = device_options(trainer, options);
    return ech__dp_open_device(trainer->ctx, 0, options->dp.devices, &device, &trainer->device);
}

/* Device 0 has the plan of its part, and that of the head for the whole batch. */
static ech_status make_plans(ech_trainer *trainer, ech_value loss, const ech_train_options *options,
                             const ech__choices *choices)
{
    (void)loss;
    state *own = state_of(trainer);
    ECH_TRY(ech__rank_choose(trainer, ech__dp_first_part(options->batch, options->dp.devices),
                             choices));
    ECH_TRY(ech__plan_create(own->model.head, trainer->device,
                             &(ech__plan_options){.batch = options->batch}, &own->head));
    return ech__dp_check_memory(trainer->plan, own->head);
}

/* Plan and exec of the whole batch are DataParallel's; evaluation stays on device 0. */
static ech_status make_variant(ech_trainer *trainer, ech__variant *variant)
{
    const ech__dp_whole *whole;
    if (!variant->training)
        return ech__rank_variant(trainer, variant);
    ECH_TRY(ech__dp_whole_of(dp_of(trainer), variant->batch, &whole));
    variant->plan = whole->plan;
    variant->exec = whole->exec;
    return ECH_OK;
}

static ech_status make_ready(ech_trainer *trainer, const ech_train_options *options)
{
    state *own = state_of(trainer);
    ech__dp_options o = {.devices = options->dp.devices,
                         .batch = options->batch,
                         .model = &own->model,
                         .plan = trainer->plan,
                         .whole = own->head,
                         .device = device_options(trainer, options),
                         .tuning = trainer->tuning};
    ECH_TRY(ech__rank_ready(trainer, options));
    o.exec = trainer->exec;
    ECH_TRY(ech__dp_create(trainer->ctx, &o, &own->dp));
    return make_variant(trainer, &trainer->variants[0]);
}

static void destroy(ech_trainer *trainer)
{
    state *own = state_of(trainer);
    if (!own)
        return;
    ech__dp_destroy(own->dp);
    ech__plan_destroy(own->head);
    ech_graph_destroy(own->model.head);
    ech__delete(trainer->ctx, own, sizeof *own);
}

/* A whole step of all devices. What device 0 copies and adds for the others counts as exposed
 * communication, the loss and its gradient as forward. */
static ech_status run(ech_trainer *trainer, const ech__variant *variant, unsigned phases_asked,
                      const ech__scalars *scalars, ech__phase_times *times)
{
    (void)phases_asked;
    static const ech__phase kinds[ECH__DP_PHASES] = {
        [ECH__DP_SCATTER] = ECH__PHASE_EXCHANGE,
        [ECH__DP_REPLICATE] = ECH__PHASE_EXCHANGE,
        [ECH__DP_FORWARD] = ECH__PHASE_FORWARD,
        [ECH__DP_GATHER] = ECH__PHASE_EXCHANGE,
        [ECH__DP_LOSS] = ECH__PHASE_FORWARD,
        [ECH__DP_SCATTER_GRADIENT] = ECH__PHASE_EXCHANGE,
        [ECH__DP_BACKWARD] = ECH__PHASE_BACKWARD,
        [ECH__DP_REDUCE] = ECH__PHASE_EXCHANGE,
        [ECH__DP_OPTIMIZER] = ECH__PHASE_OPTIMIZER,
    };
    ECH_TRY(ech__dp_step(dp_of(trainer), variant->batch, scalars));
    const ech__span *phases = ech__dp_phases(dp_of(trainer));
    for (int p = 0; p < ECH__DP_PHASES; p++)
        *(kinds[p] == ECH__PHASE_EXCHANGE ? &times->exposed_ns : &times->ns[kinds[p]]) +=
            phases[p].end_ns - phases[p].start_ns;
    return ECH_OK;
}

static int64_t updates(const ech_trainer *trainer)
{
    return ech__dp_updates(dp_of(trainer));
}

static ech__nonfinite nonfinite(const ech_trainer *trainer, const ech__variant *variant,
                                int *device)
{
    (void)variant;
    return ech__dp_nonfinite(dp_of(trainer), device);
}

/* Device 0 has its part of the batch beside the loss. */
static double kernels(const ech_trainer *trainer, const ech__variant *variant, double *sums_s)
{
    const ech__plan *plan;
    const ech__exec *exec;
    double seconds = ech__rank_kernels(trainer, variant->plan, variant->exec, sums_s);
    if (ech__dp_last(dp_of(trainer), 0, &plan, &exec))
        seconds += ech__rank_kernels(trainer, plan, exec, sums_s);
    return seconds;
}

/* ---- devices ---- */

static int devices(const ech_trainer *trainer)
{
    return dp_of(trainer) ? ech__dp_devices(dp_of(trainer)) : 1;
}

/* Before there are devices, of the first. */
static void memory(const ech_trainer *trainer, int device, int64_t out[ECH__MEMORY_COUNT])
{
    const state *own = state_of(trainer);
    if (own->dp)
        ech__dp_memory(own->dp, device, out);
    for (int k = 0; !own->dp && k < ECH__MEMORY_COUNT; k++)
        out[k] = trainer->plan->memory[k] + own->head->memory[k];
}

static int64_t peak(const ech_trainer *trainer, int device)
{
    return ech__dp_device(dp_of(trainer), device)->memory_peak;
}

static void work(const ech_trainer *trainer, int device, ech_device_stats *out)
{
    const ech__dp_work *done = ech__dp_work_of(dp_of(trainer), device);
    out->samples = done->samples;
    out->bytes_in = done->bytes_in;
    out->bytes_out = done->bytes_out;
    out->busy_s = ech__seconds(done->busy_ns);
}

const ech__strategy_ops ech__ops_dp = {
    .graphs = make_graphs,
    .open = open_device,
    .plan = make_plans,
    .ready = make_ready,
    .destroy = destroy,
    .variant = make_variant,
    .whole_steps = true,
    .run = run,
    .updates = updates,
    .nonfinite = nonfinite,
    .kernels = kernels,
    .devices = devices,
    .memory = memory,
    .peak = peak,
    .work = work,
};
