/* From the words behind echelon train and echelon bench step to arguments that go together. */
#include "cli/train/options.h"
#include "device/device.h"
#include "price/costs.h"

#include <stdlib.h>
#include <string.h>

typedef ech__train_args args;

static ech_status find_devices(ech_ctx *ctx, args *a)
{
    char *end;
    if (!a->devices)
        return ECH_OK;
    if (!strcmp(a->devices, "all")) {
        a->device_count = ech__device_cores();
        return ECH_OK;
    }
    const long count = strtol(a->devices, &end, 10);
    if (end == a->devices || *end)
        return ech__fail(ctx, ECH_E_INVALID, "--devices '%s': is neither a whole number nor all",
                         a->devices);
    if (count < 1 || count > 256)
        return ech__fail(ctx, ECH_E_INVALID, "--devices %s: must be from 1 to 256", a->devices);
    a->device_count = (int)count;
    return ECH_OK;
}

/* The exchange through this machine's memory. */
static ech__emulation own_links(ech_ctx *ctx, const ech__training_args *t)
{
    const ech__model_options options = {t->model, t->dim, t->depth};
    ech_graph *graph = NULL;
    ech__model model;
    const bool built = ech_graph_create(ctx, &graph) == ECH_OK &&
                       ech__model_build(graph, &options, &model) == ECH_OK;
    const ech__emulation links =
        ech__emulation_here(ctx, built ? graph : NULL, (int64_t)(t->bucket_mb * (1 << 20)));
    ech_graph_destroy(graph);
    return links;
}

/* The links of the virtual clock. */
static ech_status find_links(ech_ctx *ctx, args *a)
{
    const ech__training_args *t = &a->training;
    ECH_TRY(ech__training_check_links(ctx, t));
    if ((t->link || t->cluster) && a->clock == ECH__CLOCK_REAL)
        return ech__fail(ctx, ECH_E_INVALID, "--link and --cluster are of --clock virtual");
    a->emulation.cluster = ech__cluster_defaults();
    a->emulation.algorithm = t->algorithm;
    if (t->cluster)
        return ech__cluster_load(ctx, t->cluster, &a->emulation.cluster);
    if (t->link)
        return ech__link_parse(ctx, t->link, &a->emulation.cluster.inside);
    if (a->clock != ECH__CLOCK_REAL)
        a->emulation.cluster = own_links(ctx, t).cluster;
    if (a->emulation.algorithm == ECH__ALGORITHM_BEST)
        a->emulation.algorithm = ECH__ALGORITHM_DIRECT;
    return ECH_OK;
}

static ech_status find_straggler(ech_ctx *ctx, args *a)
{
    char *end = NULL;
    a->straggler = -1;
    if (!a->straggle)
        return ECH_OK;
    const long rank = strtol(a->straggle, &end, 10);
    const bool named = end != a->straggle && *end == ':' && rank >= 0 && rank < 100000;
    const char *ms = named ? end + 1 : "";
    a->straggle_ms = strtod(ms, &end);
    if (!named || end == ms || *end || !(a->straggle_ms >= 0 && a->straggle_ms <= 60000))
        return ech__fail(
            ctx, ECH_E_INVALID,
            "--straggle '%s': must be a rank and 0 to 60000 milliseconds, such as 1:10",
            a->straggle);
    a->straggler = (int)rank;
    return ECH_OK;
}

/* Of options that bench step has not. */
static ech_status check_train(ech_ctx *ctx, const ech__command *command,
                              const ech__option_result *r, const args *a)
{
    const ech__training_args *t = &a->training;
    if (t->parallel == ECH__STRATEGY_DP && (a->sync_bn || a->reproducible || a->max_restarts))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--parallel dp has one process: --sync-bn, --reproducible and "
                         "--max-restarts are of ddp");
    if (a->reproducible && ech__option_given(command, r, "threads") && t->threads != 1)
        return ech__fail(ctx, ECH_E_INVALID, "--threads %lld: --reproducible needs 1",
                         (long long)t->threads);
    if (a->reproducible && a->slots & (a->slots - 1))
        return ech__fail(ctx, ECH_E_INVALID, "--slots %lld: must be a power of two",
                         (long long)a->slots);
    if (a->reproducible && a->sync_bn)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--sync-bn: --reproducible has the batch statistics of a slot");
    if (!a->reproducible && ech__option_given(command, r, "slots"))
        return ech__fail(ctx, ECH_E_INVALID, "--slots is of --reproducible");
    if (a->nesterov && (!ech__optimizer_of(t->optimizer)->has_momentum || t->momentum == 0))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--nesterov needs --optimizer sgd and --momentum above 0");
    ECH_TRY(ech__training_check_optimizer(ctx, t));
    if (a->save_every && !a->save)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--save-every needs --save: where to write checkpoints");
    if (a->fit && (a->save || a->resume))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--fit runs nothing; --save and --resume have nothing to do");
    if (a->fit && (a->run_dir || a->save_params))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--fit runs nothing; --run-dir and --save-params have nothing to write");
    if (a->interval && a->schedule != ECH__SCHEDULE_STEP)
        return ech__fail(ctx, ECH_E_INVALID, "--lr-step needs --lr-schedule step");
    if (a->lr_warmup_from >= 0 && !(a->lr_warmup_epochs > 0))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--lr-warmup-from needs --lr-warmup-epochs: how long to warm up");
    if (ech__option_given(command, r, "lr-gamma") && a->schedule != ECH__SCHEDULE_STEP)
        return ech__fail(ctx, ECH_E_INVALID, "--lr-gamma needs --lr-schedule step");
    return ECH_OK;
}

static ech_status check_combinations(ech_ctx *ctx, const ech__command *command,
                                     const ech__option_result *r, const args *a)
{
    const ech__training_args *t = &a->training;
    ECH_TRY(ech__training_check_batch(ctx, t));
    if (a->trace && !a->run_dir)
        return ech__fail(ctx, ECH_E_INVALID, "--trace needs --run-dir: the trace is written there");
    if (a->epochs && ech__option_given(command, r, "steps"))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--steps and --epochs are both given; give one of them");
    if (a->data_dir && strcmp(a->data, "cifar10"))
        return ech__fail(ctx, ECH_E_INVALID, "--data-dir needs --data cifar10");
    if (!a->epochs && a->warmup >= a->steps)
        return ech__fail(
            ctx, ECH_E_INVALID,
            "--warmup %lld with --steps %lld: at least one step must be left to be timed",
            (long long)a->warmup, (long long)a->steps);
    if (t->parallel == ECH__STRATEGY_DP && (t->accum > 1 || a->straggle || a->backend))
        return ech__fail(
            ctx, ECH_E_INVALID,
            "--parallel dp has one process: --accum, --straggle and --backend are of ddp");
    ECH_TRY(ech__train_check_groups(ctx, a));
    return strcmp(command->name, "train") ? ECH_OK : check_train(ctx, command, r, a);
}

/* What bench step does not ask about. */
static args initial_args(void)
{
    const ech_train_options o = ech_train_defaults();
    return (args){.lr = o.optimizer.lr,
                  .beta1 = o.optimizer.beta1,
                  .beta2 = o.optimizer.beta2,
                  .epsilon = o.optimizer.epsilon,
                  .gamma = 0.1,
                  .lr_warmup_from = -1,
                  .slots = o.ddp.slots};
}

bool ech__train_parse(ech_ctx *ctx, const ech__command *command, char **argv, args *a, int *code)
{
    ech__option_result result;
    *a = initial_args();
    if (!ech__cli_parse(ctx, command, argv, a, &result, code))
        return false;
    if (!ech__option_given(command, &result, "warmup"))
        a->warmup = a->steps > 5 ? 5 : a->steps - 1;
    if (find_devices(ctx, a) < 0 || ech__train_find_groups(ctx, command, &result, a) < 0 ||
        find_straggler(ctx, a) < 0 || find_links(ctx, a) < 0 || ech__precision_find(ctx, a) < 0 ||
        check_combinations(ctx, command, &result, a) < 0) {
        *code = ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
        return false;
    }
    if (a->reproducible) {
        a->training.threads = 1;
        if (!ech__option_given(command, &result, "tune"))
            a->training.tune = 1;
    }
    return true;
}
