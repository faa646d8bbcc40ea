/* A series of steps of any length in a fixed number of bins: what a screen can show of it.
 *
 *     ech__curve curve;
 *     ech__curve_init(&curve);
 *     ech__curve_add(&curve, &(ech__curve_step){.step = 1, .loss = 2.3, .time_s = 0.01, .lr = 0.1});
 *     for (size_t i = 0; i < curve.count; i++) draw(&curve.bins[i]);
 *
 * At first a bin is a step. When the bins are full, each two neighbours become one and later bins hold twice as many
 * steps. A bin keeps the lowest and the highest time of its steps, so that a single slow step is never lost.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { ECH__CURVE_BINS = 512 }; /* even */

/* NaN where a line does not have it. */
typedef struct ech__curve_step {
    int64_t step;
    double loss, time_s, lr;
} ech__curve_step;

typedef struct ech__curve_bin {
    int64_t first, last; /* steps */
    int64_t steps;
    int64_t losses, times;      /* that are numbers */
    double loss_sum;            /* of them */
    double time_sum;            /* of them; seconds */
    double time_low, time_high; /* NaN where there is none */
    double lr;                  /* of the last step */
} ech__curve_bin;

typedef struct ech__curve {
    ech__curve_bin bins[ECH__CURVE_BINS];
    size_t count;
    int64_t width; /* steps of a full bin */
    int64_t total; /* steps added */
} ech__curve;

void ech__curve_init(ech__curve *curve);
void ech__curve_add(ech__curve *curve, const ech__curve_step *step);

/* NaN where no step of the bin has one. */
double ech__curve_loss(const ech__curve_bin *bin);
double ech__curve_time(const ech__curve_bin *bin);
