#include "train/step/schedule.h"
#include "base/names.h"

#include <math.h>

ECH__NAMES(ech__lr_schedule_name, ech__lr_schedule_kind, ECH__SCHEDULE_LIST)

double ech__lr_schedule_scale(double lr, int64_t batch, int64_t base)
{
    return lr * (double)batch / (double)base;
}

int64_t ech__lr_schedule_warmup(double epochs, int64_t steps_per_epoch)
{
    const double steps = round(epochs * (double)steps_per_epoch);
    if (!(epochs > 0))
        return 0;
    return steps < 1 ? 1 : steps < 1e15 ? (int64_t)steps : (int64_t)1e15;
}

double ech__lr_schedule_warmup_from(double unscaled, double lr, int64_t warmup)
{
    return lr > unscaled ? unscaled : lr / (double)(warmup + 1);
}

/* How much of the steps after the warm-up is done, from 0 to 1. */
static double done(const ech__lr_schedule *s, int64_t step)
{
    return (double)(step - s->warmup) / (double)(s->steps - s->warmup);
}

double ech__lr_schedule_lr(const ech__lr_schedule *s, int64_t step)
{
    if (step < s->warmup)
        return s->warmup_from + (s->lr - s->warmup_from) * ((double)step / (double)s->warmup);
    switch (s->kind) {
    case ECH__SCHEDULE_STEP: {
        const int64_t drops = step / s->interval;
        return s->lr * pow(s->gamma, (double)drops);
    }
    case ECH__SCHEDULE_COSINE:
        return s->lr * (1 + cos(M_PI * done(s, step))) / 2;
    case ECH__SCHEDULE_LINEAR:
        return s->lr * (1 - done(s, step));
    case ECH__SCHEDULE_CONSTANT:
        break;
    }
    return s->lr;
}
