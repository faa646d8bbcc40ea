/* Groups of devices that have the layers of one model, micro-batches, and what is not supported. */
#include "cli/train/options.h"
#include "comm/mpi/mpi.h"

typedef ech__train_args args;

static bool is_spread(const args *a)
{
    return ech__strategy_row_of(a->run.parallel)->cuts_model || a->run.train.pipeline.devices > 1;
}

/* Groups of devices that have the layers of one model, and their micro-batches. */
ech_status ech__train_find_groups(ech_ctx *ctx, args *a)
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

ech_status ech__train_check_strategy(ech_ctx *ctx, const ech__command *command,
                                     const ech__option_result *r, const args *a)
{
    const ech__run_config *c = &a->run;
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
    if (ech__option_given(command, r, "pipeline-schedule"))
        asked |= ECH__FEATURE_BIT(SCHEDULE);
    return ech__strategy_check_flags(ctx, by, asked);
}
