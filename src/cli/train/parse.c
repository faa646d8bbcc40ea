/* From the words after echelon train and echelon bench step to a configuration whose options go together. */
#include "cli/train/options.h"
#include "comm/mpi/mpi.h"
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

typedef ech__train_args args;

/* ---- groups of devices, and the strategy ---- */

static bool is_spread(const args *a)
{
    return ech__strategy_row_of(a->run.parallel)->cuts_model || a->run.train.pipeline.devices > 1;
}

/* Groups of devices that have the layers of one model, and their micro-batches. */
static ech_status find_groups(ech_ctx *ctx, args *a)
{
    ech__run_config *c = &a->run;
    ech_pipeline_options *p = &c->train.pipeline;
    a->ranks = (int)c->devices;
    if (!is_spread(a)) {
        p->devices = 0;
        return ECH_OK;
    }
    const int devices = c->devices ? (int)c->devices : p->devices ? p->devices : 1;
    p->ranks = !p->devices && (c->backend || ech__mpi_wanted());
    if (!p->devices)
        p->devices = devices;
    if (p->devices > ECH__MAX_STAGES)
        return ech__fail(ctx, ECH_E_INVALID, "--devices %d: layers are spread over at most %d",
                         devices, ECH__MAX_STAGES);
    if (devices % p->devices)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--devices %d with --mp %d: groups of %d devices must divide them",
                         devices, p->devices, p->devices);
    const int groups = devices / p->devices;
    const int64_t batch = c->train.batch    ? c->train.batch
                          : c->global_batch ? c->global_batch / (groups * c->train.accum)
                                            : 64;
    a->ranks = p->ranks ? (int)c->devices : c->devices ? groups : 0;
    if (p->ranks && !c->devices) { /* the ranks know how many they are */
        p->devices = 0;
        return ECH_OK;
    }
    const ech__spread_by by = {.strategy = c->parallel};
    if (!p->micro_batches)
        p->micro_batches = ech__strategy_refusal(by, ECH__FEATURE_MICRO_BATCHES)
                               ? 1
                               : ech__pipe_default_micros(batch, p->devices);
    if (c->train.batch % p->micro_batches)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--micro-batches %d: must divide the batch of %lld samples",
                         p->micro_batches, (long long)c->train.batch);
    return ECH_OK;
}

/* With --mp, ranks are groups that have a model each. */
static ech__spread_by spread_by(const ech__run_config *c)
{
    const ech_pipeline_options *p = &c->train.pipeline;
    const bool groups = ech__strategy_row_of(c->parallel)->has_ranks && p->devices > 1;
    return (ech__spread_by){.strategy = !groups                ? c->parallel
                                        : p->micro_batches > 1 ? ECH__STRATEGY_PIPELINE
                                                               : ECH__STRATEGY_MP,
                            .in_ranks = p->ranks};
}

static ech_status check_strategy(ech_ctx *ctx, const ech__option_result *r)
{
    const ech__run_config *c = &((const args *)r->args)->run;
    const ech__spread_by by = spread_by(c);
    unsigned asked = ech__training_asked(c, by.strategy);
    if (c->backend)
        asked |= ECH__FEATURE_BIT(RANKS);
    if (c->straggle)
        asked |= ECH__FEATURE_BIT(STRAGGLE);
    if (c->max_restarts)
        asked |= ECH__FEATURE_BIT(RESTARTS);
    if (c->clock == ECH__CLOCK_VIRTUAL)
        asked |= ECH__FEATURE_BIT(VIRTUAL);
    if (c->save || c->resume)
        asked |= ECH__FEATURE_BIT(CHECKPOINTS);
    if (ech__option_given(r, "pipeline-schedule"))
        asked |= ECH__FEATURE_BIT(SCHEDULE);
    return ech__strategy_check_flags(ctx, by, asked);
}

/* ---- links ---- */

/* The exchange through this machine's memory. */
static ech__emulation own_links(ech_ctx *ctx, const ech__run_config *c)
{
    ech_graph *graph = NULL;
    ech__model model;
    const bool built = ech_graph_create(ctx, &graph) == ECH_OK &&
                       ech__model_build(graph, &c->model, &model) == ECH_OK;
    const ech__emulation links =
        ech__emulation_here(ctx, built ? graph : NULL, c->train.ddp.bucket_bytes);
    ech_graph_destroy(graph);
    return links;
}

static ech_status find_links(ech_ctx *ctx, ech__run_config *c)
{
    ech__emulation *e = &c->emulation;
    e->cluster = ech__cluster_defaults();
    e->algorithm = c->algorithm;
    if (c->cluster)
        return ech__cluster_load(ctx, c->cluster, &e->cluster);
    if (c->link)
        return ech__cluster_of_link(ctx, c->link, ech__training_node_size(c), &e->cluster);
    if (c->clock != ECH__CLOCK_REAL)
        e->cluster = own_links(ctx, c).cluster;
    if (e->algorithm == ECH__ALGORITHM_BEST)
        e->algorithm = ECH__ALGORITHM_DIRECT;
    return ECH_OK;
}

static ech_status check_links(ech_ctx *ctx, const ech__run_config *c)
{
    ECH_TRY(ech__training_check(ctx, c));
    return (c->link || c->cluster) && c->clock == ECH__CLOCK_REAL
               ? ech__fail(ctx, ECH_E_INVALID, "%s requires --clock virtual",
                           c->link ? "--link" : "--cluster")
               : ECH_OK;
}

static ech_status find_straggler(ech_ctx *ctx, ech__run_config *c)
{
    char *end = NULL;
    c->straggler = -1;
    if (!c->straggle)
        return ECH_OK;
    const long rank = strtol(c->straggle, &end, 10);
    const bool named = end != c->straggle && *end == ':' && rank >= 0 && rank < 100000;
    const char *ms = named ? end + 1 : "";
    c->straggle_ms = strtod(ms, &end);
    if (!named || end == ms || *end || !(c->straggle_ms >= 0 && c->straggle_ms <= 60000))
        return ech__fail(
            ctx, ECH_E_INVALID,
            "--straggle '%s': must be a rank and 0 to 60000 milliseconds, such as 1:10",
            c->straggle);
    c->straggler = (int)rank;
    return ECH_OK;
}

/* ---- options that do not go together ---- */

static ech_status check_loss_scale(ech_ctx *ctx, const ech__option_result *r, ech__run_config *c)
{
    double *scale = &c->train.amp.loss_scale;
    if (*scale == 0 && ech__option_given(r, "loss-scale"))
        *scale = -1; /* 0 in the options is the default */
    if (*scale > 0 && *scale < ECH__SCALER_LEAST)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--loss-scale %g: must be at least %g, or 0 or off for none", *scale,
                         ECH__SCALER_LEAST);
    return ECH_OK;
}

static ech_status check_precision(ech_ctx *ctx, const ech__option_result *r, ech__run_config *c)
{
    const ech_train_options *o = &c->train;
    ECH_TRY(check_loss_scale(ctx, r, c));
    const bool bf16 = o->ddp.grad_dtype == ECH_BF16;
    if (bf16 && o->ddp.reproducible)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--grad-dtype bf16: --reproducible gives the same bits on one device, "
                         "which exchanges nothing; it requires f32");
    if ((c->against || c->params_against) && c->memory)
        return ech__fail(ctx, ECH_E_INVALID, "--memory runs nothing; --%s has nothing to compare",
                         c->against ? "against" : "params-against");
    if (c->undivided && (o->accum < 2 || o->ddp.reproducible))
        return ech__fail(ctx, ECH_E_INVALID, "--undivided requires --accum 2 or more%s",
                         o->ddp.reproducible ? ", without --reproducible" : "");
    return ECH_OK;
}

/* Options that bench step does not have. */
static ech_status check_train(ech_ctx *ctx, const ech__option_result *r)
{
    const ech__run_config *c = &((const args *)r->args)->run;
    const ech_train_options *o = &c->train;
    if (o->ddp.reproducible && ech__option_given(r, "threads") && o->threads != 1)
        return ech__fail(ctx, ECH_E_INVALID, "--threads %d: --reproducible requires 1", o->threads);
    if (o->ddp.reproducible && o->ddp.slots & (o->ddp.slots - 1))
        return ech__fail(ctx, ECH_E_INVALID, "--slots %d: must be a power of two", o->ddp.slots);
    if (o->ddp.reproducible && o->ddp.sync_bn)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--sync-bn: --reproducible has the batch statistics of a slot");
    if (!o->ddp.reproducible && ech__option_given(r, "slots"))
        return ech__fail(ctx, ECH_E_INVALID, "--slots requires --reproducible");
    if (o->optimizer.nesterov &&
        (!ech__optimizer_of(o->optimizer.kind)->has_momentum || o->optimizer.momentum == 0))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--nesterov requires --optimizer sgd and --momentum above 0");
    if (c->save_every && !c->save)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--save-every requires --save: where to write checkpoints");
    if (c->memory && (c->save || c->resume))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--memory runs nothing; --save and --resume have nothing to do");
    if (c->memory && (c->run_dir || c->save_params))
        return ech__fail(
            ctx, ECH_E_INVALID,
            "--memory runs nothing; --run-dir and --save-params have nothing to write");
    if (c->schedule.interval && c->schedule.kind != ECH__SCHEDULE_STEP)
        return ech__fail(ctx, ECH_E_INVALID, "--lr-step requires --lr-schedule step");
    if (c->lr_warmup_from >= 0 && !(c->lr_warmup_epochs > 0))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--lr-warmup-from requires --lr-warmup-epochs: how long to warm up");
    if (ech__option_given(r, "lr-gamma") && c->schedule.kind != ECH__SCHEDULE_STEP)
        return ech__fail(ctx, ECH_E_INVALID, "--lr-gamma requires --lr-schedule step");
    return ECH_OK;
}

static ech_status check_combinations(ech_ctx *ctx, const ech__option_result *r)
{
    const ech__run_config *c = &((const args *)r->args)->run;
    if (c->trace && !c->run_dir)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--trace requires --run-dir: the trace is written there");
    if (c->epochs && ech__option_given(r, "steps"))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--steps and --epochs are both given; give one of them");
    if (c->data_dir && (!c->data || strcmp(c->data, "cifar10")))
        return ech__fail(ctx, ECH_E_INVALID, "--data-dir requires --data cifar10");
    if (!c->epochs && c->warmup >= c->steps)
        return ech__fail(
            ctx, ECH_E_INVALID,
            "--warmup %lld with --steps %lld: at least one step must be left to be timed",
            (long long)c->warmup, (long long)c->steps);
    ECH_TRY(check_strategy(ctx, r));
    return strcmp(r->command->name, "train") ? ECH_OK : check_train(ctx, r);
}

/* What follows from options that go together. */
static void settle(const ech__option_result *r, ech__run_config *c)
{
    ech_train_options *o = &c->train;
    if (o->ddp.reproducible) {
        o->threads = 1;
        if (!ech__option_given(r, "tune"))
            o->tune = false;
    }
    if (!ech__strategy_row_of(c->parallel)->one_process)
        return;
    /* One process has all of the batch and cuts it. A file says how many samples there are. */
    const bool file = c->data && strcmp(c->data, "cifar10");
    o->dp.devices = c->devices ? (int)c->devices : 1;
    if (!c->global_batch)
        c->global_batch = (o->batch || file ? o->batch : 64) * o->dp.devices;
    o->batch = 0;
}

ech_status ech__train_settle(ech_ctx *ctx, const ech__option_result *given)
{
    args *a = given->args;
    ech__run_config *c = &a->run;
    c->command = ech__cli_command_line();
    if (!ech__option_given(given, "warmup"))
        c->warmup = c->steps > 5 ? 5 : c->steps - 1;
    if (c->devices < 0) /* all */
        c->devices = ech__device_cores();
    if (c->data && !strcmp(c->data, "synthetic"))
        c->data = NULL;
    ECH_TRY(find_groups(ctx, a));
    ECH_TRY(find_straggler(ctx, c));
    ECH_TRY(check_links(ctx, c));
    ECH_TRY(check_precision(ctx, given, c));
    ECH_TRY(check_combinations(ctx, given));
    settle(given, c);
    return find_links(ctx, c);
}
