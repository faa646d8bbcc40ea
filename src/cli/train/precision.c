#include "cli/train/options.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

static ech_status find_loss_scale(ech_ctx *ctx, ech__train_args *a)
{
    const char *text = a->loss_scale_text;
    char *end;
    a->loss_scale = text ? -1 : 0;
    if (!text || !strcmp(text, "off"))
        return ECH_OK;
    a->loss_scale = strtod(text, &end);
    if (end == text || *end)
        return ech__fail(ctx, ECH_E_INVALID, "--loss-scale '%s': is neither a number nor off",
                         text);
    if (a->loss_scale == 0)
        a->loss_scale = -1;
    else if (!(a->loss_scale >= ECH__SCALER_LEAST && a->loss_scale <= (double)FLT_MAX))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--loss-scale %s: must be from %g to %g, or 0 or off for none", text,
                         ECH__SCALER_LEAST, (double)FLT_MAX);
    return ECH_OK;
}

static ech_status check(ech_ctx *ctx, const ech__train_args *a)
{
    const ech__training_args *t = &a->training;
    const bool scaled = a->loss_scale > 0 || (a->loss_scale == 0 && t->amp == ECH_AMP_FP16);
    if (t->parallel == ECH__STRATEGY_DP && (scaled || a->clip_norm > 0 || t->grad_dtype))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--parallel dp adds gradients up in f32 and uses them at once: %s is of "
                         "ddp",
                         t->grad_dtype       ? "--grad-dtype bf16"
                         : a->clip_norm > 0  ? "--clip-norm"
                         : a->loss_scale > 0 ? "--loss-scale"
                                             : "--amp fp16, whose loss is scaled,");
    if (t->grad_dtype && a->reproducible)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--grad-dtype bf16: --reproducible has the same bits on one device, which "
                         "exchanges nothing; it needs f32");
    if ((a->against || a->params_against) && a->fit)
        return ech__fail(ctx, ECH_E_INVALID, "--fit runs nothing; --%s has nothing to compare",
                         a->against ? "against" : "params-against");
    if (a->undivided && (t->accum < 2 || a->reproducible))
        return ech__fail(ctx, ECH_E_INVALID, "--undivided: is of --accum 2 or more, %s",
                         a->reproducible ? "without --reproducible"
                                         : "and there is one micro-step");
    return ECH_OK;
}

ech_status ech__precision_find(ech_ctx *ctx, ech__train_args *a)
{
    ECH_TRY(find_loss_scale(ctx, a));
    return check(ctx, a);
}
