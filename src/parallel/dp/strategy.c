/* DataParallel, as a row of strategies. */
#include "parallel/dp/dp.h"
#include "parallel/strategy.h"

static const char process[] = "it is one process";
static const char once[] = "device 0 adds gradients up in f32 and uses them at once";
static const char whole[] = "every device has all layers";

static const ech__refusal refused[] = {
    {ECH__FEATURE_ACCUM, "a step is one micro-step"},
    {ECH__FEATURE_LOSS_SCALE, once},
    {ECH__FEATURE_CLIP_NORM, once},
    {ECH__FEATURE_GRAD_DTYPE, once},
    {ECH__FEATURE_SYNC_BN, "a batch norm has the statistics of its device's part"},
    {ECH__FEATURE_REPRODUCIBLE, "gradients are added up over devices, not over slots"},
    {ECH__FEATURE_RANKS, process},
    {ECH__FEATURE_STRAGGLE, process},
    {ECH__FEATURE_RESTARTS, process},
    {ECH__FEATURE_VIRTUAL, "its devices have no clocks of their own"},
    {ECH__FEATURE_MP, whole},
    {ECH__FEATURE_PLACEMENT, whole},
    {ECH__FEATURE_MICRO_BATCHES, whole},
    {ECH__FEATURE_SCHEDULE, whole},
    {0},
};

static int asked(const ech_train_options *o)
{
    return o->dp.devices;
}

static void ask(ech_train_options *o, int devices)
{
    o->dp.devices = devices;
}

const ech__strategy_row ech__strategy_dp = {
    .title = "DataParallel",
    .about = "one process; device 0 has the model, hands out parts of the batch and updates",
    .moves = "device 0 copies and sums",
    .most = ECH__DP_MAX_DEVICES,
    .one_process = true,
    .first_has_loss = true,
    .asked = asked,
    .ask = ask,
    .refused = refused,
};
