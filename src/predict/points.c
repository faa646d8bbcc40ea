#include "predict/points.h"

#include <math.h>

double ech__cost_at(const ech__cost_points *points, int64_t batch, bool grows, ech__cost_of of,
                    const void *arg)
{
    const ech__cost_point *at = points->at;
    int i = 1;
    if (points->count == 0)
        return 0;
    while (i < points->count - 1 && at[i].batch < batch)
        i++;
    if (points->count == 1) {
        const double only = of(&at[0], arg);
        return grows ? only * (double)batch / (double)at[0].batch : only;
    }
    const ech__cost_point *a = &at[i - 1], *b = &at[i];
    const double low = of(a, arg), high = of(b, arg);
    if (batch == a->batch)
        return low;
    if (batch == b->batch)
        return high;
    const double slope = (high - low) / (double)(b->batch - a->batch);
    if (batch > b->batch) /* noise must not make a large batch cost less than a smaller one */
        return high + fmax(slope, 0) * (double)(batch - b->batch);
    if (batch < a->batch)
        return fmax(low - fmax(slope, 0) * (double)(a->batch - batch), 0);
    return low + slope * (double)(batch - a->batch);
}

/* The middle half of the steps, as factors of the median. */
static void widen(const ech__step_cost *cost, double *low, double *high)
{
    if (cost->low_s > 0)
        *low = fmin(*low, cost->low_s / cost->step_s);
    *high = fmax(*high, cost->high_s / cost->step_s);
}

ech__cost_range ech__cost_range_at(const ech__cost_points *points, int64_t batch, double seconds)
{
    const ech__cost_point *below = NULL, *above = NULL;
    double low = 0, high = INFINITY, spread_low = 1, spread_high = 1;
    for (int i = 0; i < points->count; i++) {
        const ech__cost_point *point = &points->at[i];
        const double step = point->alone->step_s;
        const double in_proportion = step * (double)batch / (double)point->batch;
        const bool larger = point->batch > batch;
        low = fmax(low, larger ? in_proportion : step);
        high = fmin(high, larger ? step : in_proportion);
        if (!larger)
            below = point;
        else if (!above)
            above = point;
    }
    if (below && below->batch == batch)
        above = NULL;
    if (below)
        widen(below->alone, &spread_low, &spread_high);
    if (above)
        widen(above->alone, &spread_low, &spread_high);
    /* Times that were measured with noise may break the rules. */
    ech__cost_range r = {.low = fmin(fmin(low, high), seconds) * spread_low,
                         .high = fmax(fmax(low, high), seconds) * spread_high,
                         .extrapolated = 1};
    if (!below && above) {
        r.from = above->batch;
        r.extrapolated = (double)above->batch / (double)batch;
    } else if (below && !above && below->batch != batch) {
        r.from = below->batch;
        r.extrapolated = (double)batch / (double)below->batch;
    }
    return r;
}
