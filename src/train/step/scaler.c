#include "train/step/scaler.h"

#include <float.h>
#include <math.h>

static const double GROWTH = 2, BACKOFF = 0.5;

ech__scaler ech__scaler_start(double initial)
{
    return (ech__scaler){.on = initial > 0, .scale = initial > 0 ? (double)(float)initial : 1};
}

static ech_status scale_collapsed(ech_ctx *ctx, const ech__scaler *s)
{
    return ech__fail(
        ctx, ECH_E_LIMIT,
        "gradients were not finite in %lld consecutive steps at the smallest loss scale, "
        "%g: a smaller scale does not help; the learning rate may be too large, or "
        "the samples or parameters are not finite",
        (long long)s->stuck, ECH__SCALER_LEAST);
}

static ech_status reduce_scale(ech_ctx *ctx, ech__scaler *s)
{
    s->good = 0;
    s->skipped++;
    s->stuck = s->scale <= ECH__SCALER_LEAST ? s->stuck + 1 : 0;
    s->scale = fmax(s->scale * BACKOFF, ECH__SCALER_LEAST);
    return s->stuck < ECH__SCALER_PATIENCE ? ECH_OK : scale_collapsed(ctx, s);
}

ech_status ech__scaler_update(ech_ctx *ctx, ech__scaler *s, bool broken)
{
    if (!s->on)
        return ECH_OK;
    if (broken)
        return reduce_scale(ctx, s);
    s->stuck = 0;
    if (++s->good < ECH__SCALER_INTERVAL)
        return ECH_OK;
    s->good = 0;
    if (s->scale * GROWTH <= (double)FLT_MAX)
        s->scale *= GROWTH;
    return ECH_OK;
}

bool ech__scaler_is_sound(const ech__scaler *s)
{
    const bool counts = s->good >= 0 && s->good < ECH__SCALER_INTERVAL && s->skipped >= 0 &&
                        s->stuck >= 0 && s->stuck < ECH__SCALER_PATIENCE;
    return counts && s->scale >= ECH__SCALER_LEAST && s->scale <= (double)FLT_MAX;
}
