#include "lab/curve.h"

#include <math.h>

void ech__curve_init(ech__curve *c)
{
    *c = (ech__curve){.width = 1};
}

/* What b holds goes into a, which lies before it. */
static void join(ech__curve_bin *a, const ech__curve_bin *b)
{
    a->last = b->last;
    a->steps += b->steps;
    a->losses += b->losses;
    a->times += b->times;
    a->loss_sum += b->loss_sum;
    a->time_sum += b->time_sum;
    a->time_low = fmin(a->time_low, b->time_low); /* fmin and fmax pass NaN over */
    a->time_high = fmax(a->time_high, b->time_high);
    a->lr = b->lr;
}

static void halve(ech__curve *c)
{
    for (size_t i = 0; i < c->count / 2; i++) {
        c->bins[i] = c->bins[2 * i];
        join(&c->bins[i], &c->bins[2 * i + 1]);
    }
    c->count /= 2;
    c->width *= 2;
}

void ech__curve_add(ech__curve *c, const ech__curve_step *s)
{
    const ech__curve_bin bin = {.first = s->step,
                                .last = s->step,
                                .steps = 1,
                                .losses = isfinite(s->loss),
                                .times = isfinite(s->time_s),
                                .loss_sum = isfinite(s->loss) ? s->loss : 0,
                                .time_sum = isfinite(s->time_s) ? s->time_s : 0,
                                .time_low = isfinite(s->time_s) ? s->time_s : NAN,
                                .time_high = isfinite(s->time_s) ? s->time_s : NAN,
                                .lr = s->lr};
    c->total++;
    if (c->count && c->bins[c->count - 1].steps < c->width) {
        join(&c->bins[c->count - 1], &bin);
        return;
    }
    if (c->count == ECH__CURVE_BINS)
        halve(c);
    c->bins[c->count++] = bin;
}

double ech__curve_loss(const ech__curve_bin *bin)
{
    return bin->losses ? bin->loss_sum / (double)bin->losses : NAN;
}

double ech__curve_time(const ech__curve_bin *bin)
{
    return bin->times ? bin->time_sum / (double)bin->times : NAN;
}
