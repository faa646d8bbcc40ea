/* Options of model parallelism: groups of devices, micro-batches, and what is not supported. */
#include "cli/train/options.h"
#include "comm/mpi/mpi.h"

typedef ech__train_args args;

static bool is_spread(const args *a)
{
    return ech__strategy_cuts_model(a->run.parallel) || a->run.train.pipeline.devices > 1;
}

/* Groups of devices that have the layers of one model, and their micro-batches. */
ech_status ech__train_find_groups(ech_ctx *ctx, const ech__command *command,
                                  const ech__option_result *r, args *a)
{
    ech__run_config *c = &a->run;
    ech_pipeline_options *p = &c->train.pipeline;
    a->ranks = (int)c->devices;
    if (!is_spread(a)) {
        if (p->placement || p->micro_batches || ech__option_given(command, r, "pipeline-schedule"))
            return ech__fail(
                ctx, ECH_E_INVALID,
                "--placement, --micro-batches and --pipeline-schedule require --parallel mp or "
                "pipeline, or --mp above 1");
        p->devices = 0;
        return ECH_OK;
    }
    if (c->parallel == ECH__STRATEGY_DP)
        return ech__fail(ctx, ECH_E_INVALID, "--mp %d: --parallel dp has the model on every device",
                         p->devices);
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
    if (c->parallel == ECH__STRATEGY_MP && p->micro_batches > 1)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--micro-batches %d: --parallel mp has one; --parallel pipeline has more",
                         p->micro_batches);
    const int groups = devices / p->devices;
    const int64_t batch = c->train.batch    ? c->train.batch
                          : c->global_batch ? c->global_batch / groups
                                            : 64;
    a->ranks = p->ranks ? (int)c->devices : c->devices ? groups : 0;
    if (p->ranks && !c->devices) { /* the ranks know how many they are */
        p->devices = 0;
        return ECH_OK;
    }
    if (!p->micro_batches)
        p->micro_batches =
            c->parallel == ECH__STRATEGY_PIPELINE ? ech__pipe_default_micros(batch, p->devices) : 1;
    if (c->train.batch % p->micro_batches)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--micro-batches %d: must divide the batch of %lld samples",
                         p->micro_batches, (long long)c->train.batch);
    return ECH_OK;
}

ech_status ech__train_check_groups(ech_ctx *ctx, const args *a)
{
    const ech__run_config *c = &a->run;
    const ech_train_options *o = &c->train;
    const char *other = o->accum > 1                   ? "--accum"
                        : c->straggle                  ? "--straggle"
                        : o->ddp.sync_bn               ? "--sync-bn"
                        : o->ddp.reproducible          ? "--reproducible"
                        : o->amp.type != ECH_AMP_OFF   ? "--amp"
                        : o->amp.loss_scale != 0       ? "--loss-scale"
                        : o->optimizer.clip_norm > 0   ? "--clip-norm"
                        : o->ddp.grad_dtype != ECH_F32 ? "--grad-dtype"
                                                       : NULL;
    return !is_spread(a) || !other
               ? ECH_OK
               : ech__fail(ctx, ECH_E_INVALID, "%s is not supported with model parallelism", other);
}
