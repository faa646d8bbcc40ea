/* Layers on several devices, plain and as a pipeline, as rows of strategies. */
#include "parallel/place.h"
#include "parallel/strategy.h"

/* clang-format off */
#define REFUSED                                                                                    \
    {ECH__FEATURE_REPRODUCIBLE, "gradients are added up over micro-batches, not over slots"},      \
    {ECH__FEATURE_STRAGGLE, "a rank has several devices, or no samples of its own"},               \
    {ECH__FEATURE_ADVISE, "the batch is that of all devices"}
/* clang-format on */

static const ech__refusal of_mp[] = {
    REFUSED,
    {ECH__FEATURE_MICRO_BATCHES, "it has one micro-batch; --parallel pipeline has more"},
    {0},
};

static const ech__refusal of_pipeline[] = {REFUSED, {0}};

static const ech__refusal in_ranks[] = {
    {ECH__FEATURE_VIRTUAL, "the clocks of the devices are in one process"},
    {ECH__FEATURE_CHECKPOINTS, "the layers are in several processes; leave --backend out"},
    {0},
};

static int mp_asked(const ech_train_options *o)
{
    return o->pipeline.micro_batches > 1 ? 0 : o->pipeline.devices;
}

static int pipeline_asked(const ech_train_options *o)
{
    return o->pipeline.micro_batches > 1 ? o->pipeline.devices : 0;
}

static void ask(ech_train_options *o, int devices)
{
    o->pipeline.devices = devices;
}

const ech__strategy_row ech__strategy_mp = {
    .title = "model parallelism",
    .about = "layers are spread over the devices, which work one after the other",
    .moves = "activations and gradients are copied",
    .most = ECH__MAX_STAGES,
    .cuts_model = true,
    .one_by_one = true,
    .asked = mp_asked,
    .ask = ask,
    .refused = of_mp,
    .refused_in_ranks = in_ranks,
};

const ech__strategy_row ech__strategy_pipeline = {
    .title = "a pipeline",
    .about = "layers are spread over the devices, which micro-batches keep busy",
    .moves = "activations and gradients are copied",
    .most = ECH__MAX_STAGES,
    .cuts_model = true,
    .asked = pipeline_asked,
    .ask = ask,
    .refused = of_pipeline,
    .refused_in_ranks = in_ranks,
};
