#include "cli/train/training.h"

void ech__training_defaults(void *args)
{
    *(ech__run_config *)args = ech__run_defaults();
}

unsigned ech__training_asked(const ech__run_config *c, ech__strategy strategy)
{
    const ech_pipeline_options *p = &c->train.pipeline;
    const int one = ech__strategy_row_of(strategy)->cuts_model ? 1 : 0;
    return ech__strategy_asked(&c->train) | (p->placement ? ECH__FEATURE_BIT(PLACEMENT) : 0) |
           (p->micro_batches > one ? ECH__FEATURE_BIT(MICRO_BATCHES) : 0);
}

int64_t ech__training_node_size(const ech__run_config *c)
{
    return c->node_size ? c->node_size : ECH__NODE_SIZE;
}

ech_status ech__training_check(ech_ctx *ctx, const ech__run_config *c)
{
    const ech_optimizer_options *o = &c->train.optimizer;
    if (c->train.batch && c->global_batch)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--batch-size and --global-batch are both given; give one of them");
    if (c->link && c->cluster)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--link and --cluster are both given; give one of them");
    if (c->node_size && c->cluster)
        return ech__fail(ctx, ECH_E_INVALID, "--node-size %d: the file of --cluster has its own",
                         c->node_size);
    if (!ech__optimizer_of(o->kind)->has_momentum && o->momentum != 0)
        return ech__fail(ctx, ECH_E_INVALID, "--momentum requires --optimizer sgd; %s has --beta1",
                         ech__optimizer_name(o->kind));
    return ECH_OK;
}
