#include "cli/train/options.h"

static ech_status check_loss_scale(ech_ctx *ctx, const ech__command *command,
                                   const ech__option_result *r, ech__run_config *c)
{
    double *scale = &c->train.amp.loss_scale;
    if (*scale == 0 && ech__option_given(command, r, "loss-scale"))
        *scale = -1; /* 0 in the options is the default */
    if (*scale > 0 && *scale < ECH__SCALER_LEAST)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--loss-scale %g: must be at least %g, or 0 or off for none", *scale,
                         ECH__SCALER_LEAST);
    return ECH_OK;
}

ech_status ech__precision_check(ech_ctx *ctx, const ech__command *command,
                                const ech__option_result *r, ech__run_config *c)
{
    const ech_train_options *o = &c->train;
    ECH_TRY(check_loss_scale(ctx, command, r, c));
    const bool bf16 = o->ddp.grad_dtype == ECH_BF16;
    if (bf16 && o->ddp.reproducible)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--grad-dtype bf16: --reproducible gives the same bits on one device, "
                         "which exchanges nothing; it requires f32");
    if ((c->against || c->params_against) && c->memory)
        return ech__fail(ctx, ECH_E_INVALID, "--memory runs nothing; --%s has nothing to compare",
                         c->against ? "against" : "params-against");
    if (c->undivided && (o->accum < 2 || o->ddp.reproducible))
        return ech__fail(ctx, ECH_E_INVALID, "--undivided requires --accum 2 or more%s",
                         o->ddp.reproducible ? ", without --reproducible" : "");
    return ECH_OK;
}
