/* One device, alone or as one of several ranks, under a trainer. */
#include "base/format.h"
#include "base/system/clock.h"
#include "train/step/passes.h"
#include "train/strategy/strategy.h"

/* ---- creation ---- */

ech_status ech__rank_join(ech_trainer *trainer, const ech_train_options *options)
{
    if (!options->ddp.group || options->ddp.group->comm->world == 1)
        return ECH_OK;
    trainer->comm = options->ddp.group->comm;
    ECH_TRY(ech__ranks_create(trainer->comm, &trainer->ranks));
    if (trainer->emulated) {
        trainer->ranks->clock = &trainer->clock;
        trainer->ranks->cluster = &trainer->emulation.cluster;
        trainer->ranks->algorithm = trainer->emulation.algorithm;
    }
    return ECH_OK;
}

static ech_status make_graphs(ech_trainer *trainer, ech_value loss, const ech__graphs_options *o)
{
    ECH_TRY(ech__graphs_of_rank(trainer->model, loss, o, trainer->graphs));
    trainer->graph = trainer->graphs[0];
    return ECH_OK;
}

static ech_status open_device(ech_trainer *trainer, ech_value loss,
                              const ech_train_options *options)
{
    (void)loss;
    const ech__device_options device = {.kind = trainer->device_kind,
                                        .threads = options->threads,
                                        .memory_limit = options->device_memory,
                                        .sharers = trainer->comm ? trainer->comm->local_world : 1};
    return ech__device_create(trainer->ctx, &device, &trainer->device);
}

bool ech__rank_must_choose(ech_trainer *trainer, ech_status status)
{
    ech_ctx *ctx = trainer->ctx;
    if (status != ECH_E_UNSUPPORTED && status != ECH_E_LIMIT)
        return false;
    ech__log(ctx, "kernels are chosen anew, so results will agree in rounding only: %s",
             ctx->error);
    ctx->error[0] = 0;
    trainer->chosen_anew = true;
    return true;
}

ech_status ech__rank_choose(ech_trainer *trainer, int64_t batch, const ech__choices *choices)
{
    ech__plan_options options = {.batch = batch,
                                 .choices = choices,
                                 .exchange = ech__ranks_exchange(trainer->ranks),
                                 .clock = ech__trainer_clock(trainer),
                                 .variants = trainer->graphs + 1,
                                 .nvariants = trainer->nroles - 1};
    if (choices) {
        const ech_status status =
            ech__plan_create(trainer->graph, trainer->device, &options, &trainer->plan);
        if (!ech__rank_must_choose(trainer, status))
            return status;
    }
    options.choices = NULL;
    options.tuning = trainer->tuning;
    return ech__plan_create(trainer->graph, trainer->device, &options, &trainer->plan);
}

static ech_status make_plan(ech_trainer *trainer, ech_value loss, const ech_train_options *options,
                            const ech__choices *choices)
{
    (void)loss;
    return ech__rank_choose(trainer, options->batch, choices);
}

ech_status ech__rank_ready(ech_trainer *trainer, const ech_train_options *options)
{
    ECH_TRY(ech__exec_create(trainer->plan, NULL, &trainer->exec));
    trainer->variants[trainer->nvariants++] = (ech__variant){
        .batch = options->batch, .training = true, .plan = trainer->plan, .exec = trainer->exec};
    return ECH_OK;
}

static ech_status share_weights(ech_trainer *trainer)
{
    int64_t bytes;
    if (!trainer->comm)
        return ECH_OK;
    void *weights = ech__exec_block(trainer->exec, ECH__MEMORY_WEIGHTS, &bytes);
    return ech__ranks_broadcast(trainer->comm, trainer->device, weights, bytes);
}

/* ---- steps ---- */

static ech_status evaluated_graph(ech_trainer *trainer)
{
    if (trainer->evaluated)
        return ECH_OK;
    ECH_TRY(ech__graph_clone(trainer->model, &trainer->evaluated));
    ech__graph_keep(trainer->evaluated, trainer->graph->loss);
    ECH_TRY(ech__passes_infer(trainer->evaluated));
    ECH_TRY(ech__passes_infer_cast(trainer->evaluated, trainer->amp));
    /* Copies of weights are refreshed by the training's own plan. */
    return ech__passes_infer_end(trainer->evaluated);
}

ech_status ech__rank_variant(ech_trainer *trainer, ech__variant *v)
{
    if (!v->training)
        ECH_TRY(evaluated_graph(trainer));
    const ech__plan_options options = {.batch = v->batch,
                                       .like = trainer->plan,
                                       .exchange =
                                           v->training ? ech__ranks_exchange(trainer->ranks) : NULL,
                                       .clock = v->training ? ech__trainer_clock(trainer) : NULL};
    ECH_TRY(ech__plan_create(v->training ? trainer->graphs[v->role] : trainer->evaluated,
                             trainer->device, &options, &v->plan));
    const ech_status status = ech__exec_create(v->plan, trainer->exec, &v->exec);
    if (status < 0) {
        ech__plan_destroy(v->plan);
        v->plan = NULL;
    }
    v->owned = status == ECH_OK;
    return status;
}

static int64_t updates(const ech_trainer *trainer)
{
    int64_t sum = 0;
    for (int i = 0; i < trainer->nvariants; i++)
        sum += ech__exec_updates(trainer->variants[i].exec);
    return sum;
}

static ech__nonfinite nonfinite(const ech_trainer *trainer, const ech__variant *variant,
                                int *device)
{
    (void)trainer;
    *device = -1;
    return ech__exec_nonfinite(variant->exec);
}

double ech__rank_kernels(const ech_trainer *trainer, const ech__plan *plan, const ech__exec *exec,
                         double *sums_s)
{
    const ech__span *spans = ech__exec_spans(exec);
    int64_t all = 0, sums = 0;
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const int64_t ns = spans[n].end_ns - spans[n].start_ns;
        if (spans[n].start_ns < trainer->report.start_ns) /* of an earlier step: left to the last */
            continue;
        all += ns;
        if (plan->instrs[n].node->op == ECH__OP_ACCUMULATE)
            sums += ns;
    }
    *sums_s += ech__seconds(sums);
    return ech__seconds(all);
}

static double kernels(const ech_trainer *trainer, const ech__variant *variant, double *sums_s)
{
    return ech__rank_kernels(trainer, variant->plan, variant->exec, sums_s);
}

static void work(const ech_trainer *trainer, int device, ech_device_stats *out)
{
    const ech__span *spans = ech__exec_spans(trainer->exec);
    int64_t busy = 0;
    (void)device;
    for (size_t n = 0; n < trainer->plan->ninstrs; n++)
        busy += spans[n].end_ns - spans[n].start_ns;
    out->samples = trainer->plan->batch;
    out->busy_s = ech__seconds(busy);
}

const ech__strategy_ops ech__ops_rank = {
    .join = ech__rank_join,
    .graphs = make_graphs,
    .open = open_device,
    .plan = make_plan,
    .ready = ech__rank_ready,
    .share_weights = share_weights,
    .variant = ech__rank_variant,
    .updates = updates,
    .nonfinite = nonfinite,
    .kernels = kernels,
    .work = work,
};
