#include "cli/train/training.h"

ech__run_config ech__training_config(const ech__training_args *t)
{
    ech__run_config c = ech__run_defaults();
    const double bytes = t->bucket_mb * (1 << 20);
    c.model = (ech__model_options){t->model, t->dim, t->depth};
    c.train.accum = (int)t->accum;
    c.train.amp.type = t->amp;
    c.train.ddp.grad_dtype = t->grad_dtype ? ECH_BF16 : ECH_F32;
    c.train.optimizer.kind = t->optimizer;
    c.train.optimizer.momentum = t->momentum;
    c.train.optimizer.weight_decay = t->weight_decay;
    c.train.pipeline.placement = t->placement;
    c.train.pipeline.micro_batches = (int)t->micro_batches;
    c.train.pipeline.schedule = t->pipeline;
    c.train.ddp.bucket_bytes = bytes >= 1 ? (int64_t)bytes : 1;
    c.train.ddp.sharded_update = t->separate_update == 0;
    c.train.threads = (int)t->threads;
    c.train.recompute = t->recompute == 0;
    c.train.tune = t->tune == 0;
    c.train.tuning_file = t->tuning_file;
    return c;
}

ech_status ech__training_check_batch(ech_ctx *ctx, const ech__training_args *t)
{
    return t->batch && t->global_batch
               ? ech__fail(ctx, ECH_E_INVALID,
                           "--batch-size and --global-batch are both given; give one of them")
               : ECH_OK;
}

ech_status ech__training_check_links(ech_ctx *ctx, const ech__training_args *t)
{
    return t->link && t->cluster
               ? ech__fail(ctx, ECH_E_INVALID,
                           "--link and --cluster are both given; give one of them")
               : ECH_OK;
}

ech_status ech__training_check_optimizer(ech_ctx *ctx, const ech__training_args *t)
{
    return ech__optimizer_of(t->optimizer)->has_momentum || t->momentum == 0
               ? ECH_OK
               : ech__fail(ctx, ECH_E_INVALID,
                           "--momentum requires --optimizer sgd; %s has --beta1",
                           ech__optimizer_name(t->optimizer));
}
