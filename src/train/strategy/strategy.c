#include "train/strategy/strategy.h"

static const ech__strategy_ops *const rows[] = {
    [ECH__STRATEGY_DDP] = &ech__ops_rank,
    [ECH__STRATEGY_DP] = &ech__ops_dp,
    [ECH__STRATEGY_MP] = &ech__ops_pipe,
    [ECH__STRATEGY_PIPELINE] = &ech__ops_pipe,
};
_Static_assert(sizeof rows / sizeof rows[0] == ECH__STRATEGY_COUNT, "every strategy has a row");

const ech__strategy_ops *ech__strategy_ops_of(ech__strategy strategy)
{
    return rows[strategy];
}
