/* Options of layers that are spread over devices: groups of them, micro-batches, and what they go without. */
#include "cli/train/options.h"
#include "comm/mpi/mpi.h"

typedef ech__train_args args;

static bool is_spread(const args *a)
{
    return ech__strategy_cuts_model(a->training.parallel) || a->mp > 1;
}

/* Groups of devices that have the layers of one model, and their micro-batches. */
ech_status ech__train_find_groups(ech_ctx *ctx, const ech__command *command,
                                  const ech__option_result *r, args *a)
{
    ech__training_args *t = &a->training;
    a->ranks = a->device_count;
    if (!is_spread(a)) {
        if (t->placement || t->micro_batches || ech__option_given(command, r, "pipeline-schedule"))
            return ech__fail(
                ctx, ECH_E_INVALID,
                "--placement, --micro-batches and --pipeline-schedule are of --parallel "
                "mp and pipeline, and of --mp above 1");
        a->mp = 0;
        return ECH_OK;
    }
    if (t->parallel == ECH__STRATEGY_DP)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--mp %lld: --parallel dp has the model on every device",
                         (long long)a->mp);
    const int devices = a->device_count ? a->device_count : a->mp ? (int)a->mp : 1;
    a->stage_ranks = !a->mp && (a->backend || ech__mpi_wanted());
    if (!a->mp)
        a->mp = devices;
    if (a->mp > ECH__MAX_STAGES)
        return ech__fail(ctx, ECH_E_INVALID, "--devices %d: layers are spread over at most %d",
                         devices, ECH__MAX_STAGES);
    if (devices % a->mp)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--devices %d with --mp %lld: groups of %lld devices must divide them",
                         devices, (long long)a->mp, (long long)a->mp);
    if (t->parallel == ECH__STRATEGY_MP && t->micro_batches > 1)
        return ech__fail(
            ctx, ECH_E_INVALID,
            "--micro-batches %lld: --parallel mp has one; --parallel pipeline has more",
            (long long)t->micro_batches);
    const int groups = devices / (int)a->mp;
    const int64_t batch = t->batch ? t->batch : t->global_batch ? t->global_batch / groups : 64;
    a->ranks = a->stage_ranks ? a->device_count : a->device_count ? groups : 0;
    if (a->stage_ranks && !a->device_count) { /* the ranks know how many they are */
        a->mp = 0;
        return ECH_OK;
    }
    if (!t->micro_batches)
        t->micro_batches =
            t->parallel == ECH__STRATEGY_PIPELINE ? ech__pipe_default_micros(batch, (int)a->mp) : 1;
    if (t->batch % t->micro_batches)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--micro-batches %lld: must divide the batch of %lld samples",
                         (long long)t->micro_batches, (long long)t->batch);
    return ECH_OK;
}

ech_status ech__train_check_groups(ech_ctx *ctx, const args *a)
{
    const ech__training_args *t = &a->training;
    const char *other = t->accum > 1         ? "--accum"
                        : a->straggle        ? "--straggle"
                        : a->sync_bn         ? "--sync-bn"
                        : a->reproducible    ? "--reproducible"
                        : t->amp             ? "--amp"
                        : a->loss_scale_text ? "--loss-scale"
                        : a->clip_norm > 0   ? "--clip-norm"
                        : t->grad_dtype      ? "--grad-dtype"
                                             : NULL;
    return !is_spread(a) || !other
               ? ECH_OK
               : ech__fail(ctx, ECH_E_INVALID,
                           "%s: a model that is spread over devices goes without it", other);
}
