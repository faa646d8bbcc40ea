/* DataParallel under a trainer. The trainer's own graph, plan and exec are then device 0's part of a
 * batch; a variant for training is the whole batch on device 0, where inputs are written and the
 * loss is read; evaluation stays on device 0. */
#include "parallel/dp/dp.h"
#include "base/system/clock.h"
#include "train/step/strategy.h"

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
    ech__halves *halves = &trainer->halves;
    ECH_TRY(check(trainer, options->train));
    const ech_status status = ech__graphs_of_halves(trainer->model, loss, options, halves);
    ech_graph *graph = trainer->graph = trainer->graphs[0] = halves->body;
    trainer->nroles = 1;
    ECH_TRY(status);
    graph->loss =
        loss; /* which the head makes: what is asked for by the trainer's graph is found there */
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
    ECH_TRY(ech__rank_choose(trainer, ech__dp_first_part(options->batch, options->dp.devices),
                             choices));
    ECH_TRY(ech__plan_create(trainer->halves.head, trainer->device,
                             &(ech__plan_options){.batch = options->batch}, &trainer->whole));
    return ech__dp_check_memory(trainer->plan, trainer->whole);
}

/* Plan and exec of the whole batch are DataParallel's; evaluation stays on device 0. */
static ech_status make_variant(ech_trainer *trainer, ech__variant *variant)
{
    const ech__dp_whole *whole;
    if (!variant->training)
        return ech__rank_variant(trainer, variant);
    ECH_TRY(ech__dp_whole_of(trainer->dp, variant->batch, &whole));
    variant->plan = whole->plan;
    variant->exec = whole->exec;
    return ECH_OK;
}

static ech_status make_ready(ech_trainer *trainer, const ech_train_options *options)
{
    ech__dp_options o = {.devices = options->dp.devices,
                         .batch = options->batch,
                         .model = &trainer->halves,
                         .plan = trainer->plan,
                         .whole = trainer->whole,
                         .device = device_options(trainer, options),
                         .tuning = trainer->tuning};
    ECH_TRY(ech__rank_ready(trainer, options));
    o.exec = trainer->exec;
    ECH_TRY(ech__dp_create(trainer->ctx, &o, &trainer->dp));
    return make_variant(trainer, &trainer->variants[0]);
}

static void destroy(ech_trainer *trainer)
{
    ech__dp_destroy(trainer->dp);
    ech__plan_destroy(trainer->whole);
    ech_graph_destroy(trainer->halves.head); /* the body is the trainer's graph */
    trainer->dp = NULL;
    trainer->halves.head = NULL;
}

/* A whole step of all devices. What device 0 copies and adds for the others counts as exposed communication, the
 * loss and its gradient as forward. */
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
    ECH_TRY(ech__dp_step(trainer->dp, variant->batch, scalars));
    const ech__span *phases = ech__dp_phases(trainer->dp);
    for (int p = 0; p < ECH__DP_PHASES; p++)
        *(kinds[p] == ECH__PHASE_EXCHANGE ? &times->exposed_ns : &times->ns[kinds[p]]) +=
            phases[p].end_ns - phases[p].start_ns;
    return ECH_OK;
}

static int64_t updates(const ech_trainer *trainer)
{
    return ech__dp_updates(trainer->dp);
}

static ech__culprit culprit(const ech_trainer *trainer, const ech__variant *variant, int *device)
{
    (void)variant;
    return ech__dp_culprit(trainer->dp, device);
}

/* Device 0 has its part of the batch beside the loss. */
static double kernels(const ech_trainer *trainer, const ech__variant *variant, double *sums_s)
{
    const ech__plan *plan;
    const ech__exec *exec;
    double seconds = ech__rank_kernels(trainer, variant->plan, variant->exec, sums_s);
    if (ech__dp_last(trainer->dp, 0, &plan, &exec))
        seconds += ech__rank_kernels(trainer, plan, exec, sums_s);
    return seconds;
}

/* ---- devices ---- */

static int devices(const ech_trainer *trainer)
{
    return trainer->dp ? ech__dp_devices(trainer->dp) : 1;
}

/* Before there are devices, of the first. */
static void memory(const ech_trainer *trainer, int device, int64_t out[ECH__MEMORY_COUNT])
{
    if (trainer->dp)
        ech__dp_memory(trainer->dp, device, out);
    for (int k = 0; !trainer->dp && k < ECH__MEMORY_COUNT; k++)
        out[k] = trainer->plan->memory[k] + trainer->whole->memory[k];
}

static int64_t peak(const ech_trainer *trainer, int device)
{
    return ech__dp_device(trainer->dp, device)->memory_peak;
}

static void work(const ech_trainer *trainer, int device, ech_device_stats *out)
{
    const ech__dp_work *done = ech__dp_work_of(trainer->dp, device);
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
    .evaluate = ech__rank_evaluate,
    .refresh = ech__rank_refresh,
    .scalar = ech__rank_scalar,
    .updates = updates,
    .culprit = culprit,
    .kernels = kernels,
    .devices = devices,
    .plan_of = ech__rank_plan_of,
    .exec_of = ech__rank_exec_of,
    .home = ech__rank_home,
    .memory = memory,
    .peak = peak,
    .work = work,
};
