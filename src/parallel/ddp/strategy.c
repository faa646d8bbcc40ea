/* Data parallelism over ranks, as a row of strategies. */
#include "parallel/strategy.h"

static const char whole[] = "every device has all layers (--parallel mp, pipeline, or --mp above 1 "
                            "spread them)";

static const ech__refusal refused[] = {
    {ECH__FEATURE_PLACEMENT, whole},
    {ECH__FEATURE_MICRO_BATCHES, whole},
    {ECH__FEATURE_SCHEDULE, whole},
    {0},
};

const ech__strategy_row ech__strategy_ddp = {
    .title = "data parallelism",
    .about = "each device is a rank with samples of its own; gradients are added up",
    .most = 1000000,
    .has_ranks = true,
    .refused = refused,
};
