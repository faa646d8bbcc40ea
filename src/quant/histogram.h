/* How values are spread, and the range that an integer type should cover.
 *
 *     ech__histogram h = {0};
 *     ech__histogram_add(&h, values, count);               as often as needed
 *     ech__histogram_threshold(&h, ECH_OBSERVE_ENTROPY, 0, levels)
 *
 * Counts are kept by magnitude, below and above zero apart, in bins that become twice as wide when
 * a value does not fit. Zeros are counted apart: every scale has them exactly.
 */
#pragma once

#include "base/status.h"

enum { ECH__HISTOGRAM_BINS = 2048 }; /* on each side of zero */

typedef struct ech__histogram {
    double range; /* of the bins, on each side; 0: nothing but zeros yet */
    int64_t above[ECH__HISTOGRAM_BINS], below[ECH__HISTOGRAM_BINS];
    int64_t count, zeros; /* count: all finite values */
    int64_t not_finite;
    double min, max, sum, squares;
} ech__histogram;

const char *ech__observe_name(ech_observe observe);

void ech__histogram_add(ech__histogram *h, const float *values, int64_t count);

/* The largest magnitude to represent. levels: positive integers that there are, 127 or 255.
 * percentile: share of the values in percent. 0 where all values are 0. */
double ech__histogram_threshold(const ech__histogram *h, ech_observe how, double percentile,
                                int levels);

/* The magnitude that this share of the values, in percent, does not exceed. */
double ech__histogram_percentile(const ech__histogram *h, double percentile);

/* What a table shows. */
typedef struct ech__histogram_stats {
    double min, max, mean, sigma;
    double outliers; /* share of the values beyond 3 sigma of the mean */
    double zeros;    /* share */
} ech__histogram_stats;
ech__histogram_stats ech__histogram_stats_of(const ech__histogram *h);

/* Bins of equal width over [-range, range], fewer and without the empty ends: for plots and files. */
typedef struct ech__bars {
    double low, width;
    int count;
    int zero; /* the bar that holds the zeros */
    int64_t height[2 * 64];
} ech__bars;
ech__bars ech__histogram_bars(const ech__histogram *h);
