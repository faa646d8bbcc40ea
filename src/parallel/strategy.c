#include "parallel/strategy.h"
#include "base/names.h"
#include "comm/comm.h"

static const ech__strategy_row *const rows[] = {
    [ECH__STRATEGY_DDP] = &ech__strategy_ddp,
    [ECH__STRATEGY_DP] = &ech__strategy_dp,
    [ECH__STRATEGY_MP] = &ech__strategy_mp,
    [ECH__STRATEGY_PIPELINE] = &ech__strategy_pipeline,
};
_Static_assert(sizeof rows / sizeof rows[0] == ECH__STRATEGY_COUNT, "every strategy has a row");

const ech__strategy_row *ech__strategy_row_of(ech__strategy strategy)
{
    return rows[strategy];
}

ECH__NAMES(ech__strategy_name, ech__strategy, ECH__STRATEGY_LIST)

const char *ech__feature_flag(ech__feature feature)
{
    static const char *const flags[] = {
#define FLAG(id, flag, text) flag,
        ECH__FEATURE_LIST(FLAG)
#undef FLAG
    };
    return flags[feature];
}

/* ---- what options ask for ---- */

ech__spread_by ech__strategy_of(const ech_train_options *o)
{
    ech__spread_by by = {.strategy = ECH__STRATEGY_DDP};
    for (int s = 0; s < ECH__STRATEGY_COUNT; s++) {
        if (!rows[s]->asked || !rows[s]->asked(o))
            continue;
        by.strategy = (ech__strategy)s;
        by.in_ranks = rows[s]->refused_in_ranks && o->pipeline.ranks;
        break;
    }
    return by;
}

void ech__strategy_set(ech_train_options *o, ech__strategy strategy, int devices)
{
    for (int s = 0; s < ECH__STRATEGY_COUNT; s++) {
        if (rows[s]->ask)
            rows[s]->ask(o, 0);
    }
    if (rows[strategy]->ask)
        rows[strategy]->ask(o, devices);
}

int ech__strategy_devices(const ech_train_options *o)
{
    const ech__spread_by by = ech__strategy_of(o);
    const int devices = rows[by.strategy]->asked && !by.in_ranks ? rows[by.strategy]->asked(o) : 1;
    return devices > 1 ? devices : 1;
}

unsigned ech__strategy_asked(const ech_train_options *o)
{
    const double scale = o->amp.loss_scale;
    const ech_group *group = o->ddp.group;
    unsigned asked = 0;
    if (o->accum > 1)
        asked |= ECH__FEATURE_BIT(ACCUM);
    if (o->amp.type != ECH_AMP_OFF)
        asked |= ECH__FEATURE_BIT(AMP);
    if (scale > 0 || (scale == 0 && o->amp.type == ECH_AMP_FP16))
        asked |= ECH__FEATURE_BIT(LOSS_SCALE);
    if (o->optimizer.clip_norm != 0)
        asked |= ECH__FEATURE_BIT(CLIP_NORM);
    if (o->ddp.grad_dtype != ECH_F32)
        asked |= ECH__FEATURE_BIT(GRAD_DTYPE);
    if (o->ddp.sync_bn)
        asked |= ECH__FEATURE_BIT(SYNC_BN);
    if (o->ddp.reproducible)
        asked |= ECH__FEATURE_BIT(REPRODUCIBLE);
    if (group && group->comm->world > 1)
        asked |= ECH__FEATURE_BIT(RANKS);
    if (o->pipeline.devices)
        asked |= ECH__FEATURE_BIT(MP);
    return asked;
}

/* ---- what is not supported ---- */

static const char *find(const ech__refusal *refused, ech__feature feature)
{
    for (; refused && refused->reason; refused++) {
        if (refused->feature == feature)
            return refused->reason;
    }
    return NULL;
}

const char *ech__strategy_refusal(ech__spread_by by, ech__feature feature)
{
    const ech__strategy_row *row = rows[by.strategy];
    const char *reason = find(row->refused, feature);
    return reason || !by.in_ranks ? reason : find(row->refused_in_ranks, feature);
}

/* COUNT: none. */
static ech__feature first_refused(ech__spread_by by, unsigned asked, const char **reason)
{
    ech__feature f = (ech__feature)0;
    for (; f < ECH__FEATURE_COUNT; f++) {
        *reason = asked & (1U << f) ? ech__strategy_refusal(by, f) : NULL;
        if (*reason)
            break;
    }
    return f;
}

ech_status ech__strategy_check(ech_ctx *ctx, ech__spread_by by, unsigned asked)
{
    static const char *const phrases[] = {
#define PHRASE(id, flag, text) text,
        ECH__FEATURE_LIST(PHRASE)
#undef PHRASE
    };
    const char *reason;
    const ech__feature f = first_refused(by, asked, &reason);
    return f == ECH__FEATURE_COUNT ? ECH_OK
                                   : ech__fail(ctx, ECH_E_UNSUPPORTED, "%s %s is not supported: %s",
                                               rows[by.strategy]->title, phrases[f], reason);
}

ech_status ech__strategy_check_flags(ech_ctx *ctx, ech__spread_by by, unsigned asked)
{
    const char *reason;
    const ech__feature f = first_refused(by, asked, &reason);
    return f == ECH__FEATURE_COUNT
               ? ECH_OK
               : ech__fail(ctx, ECH_E_INVALID, "%s is not supported with %s: %s",
                           ech__feature_flag(f), rows[by.strategy]->title, reason);
}
