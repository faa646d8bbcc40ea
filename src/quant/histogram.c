#include "quant/histogram.h"
#include "base/names.h"

#include <math.h>
#include <string.h>

enum {
    BINS = ECH__HISTOGRAM_BINS,
    STEP = 8, /* bins between the thresholds that are tried */
};

ECH__NAMES(ech__observe_name, ech_observe, ECH_OBSERVE_LIST)

/* ---- counting ---- */

static void merge_pairs(int64_t *bins)
{
    for (int i = 0; i < BINS / 2; i++)
        bins[i] = bins[2 * i] + bins[2 * i + 1];
    memset(bins + BINS / 2, 0, BINS / 2 * sizeof *bins);
}

/* A power of two, so that widths do not depend on the order in which values come. */
static void make_room(ech__histogram *h, double magnitude)
{
    if (h->range == 0)
        h->range = exp2(ceil(log2(magnitude)));
    while (magnitude > h->range) {
        merge_pairs(h->above);
        merge_pairs(h->below);
        h->range *= 2;
    }
}

static float largest_of(const float *values, int64_t count)
{
    float most = 0;
    for (int64_t i = 0; i < count; i++) {
        const float magnitude = fabsf(values[i]);
        most = magnitude > most && magnitude < INFINITY ? magnitude : most;
    }
    return most;
}

void ech__histogram_add(ech__histogram *h, const float *values, int64_t count)
{
    const double most = (double)largest_of(values, count);
    if (most > 0)
        make_room(h, most);
    const float per_width = h->range > 0 ? (float)(BINS / h->range) : 0;
    double sum = 0, squares = 0;
    float low = INFINITY, high = -INFINITY;
    int64_t zeros = 0, bad = 0;
    for (int64_t i = 0; i < count; i++) {
        const float value = values[i];
        if (value == 0) {
            zeros++;
            low = low < 0 ? low : 0;
            high = high > 0 ? high : 0;
            continue;
        }
        if (!isfinite(value)) {
            bad++;
            continue;
        }
        const int bin = (int)(fabsf(value) * per_width);
        (value > 0 ? h->above : h->below)[bin < BINS ? bin : BINS - 1]++;
        sum += (double)value;
        squares += (double)value * (double)value;
        low = value < low ? value : low;
        high = value > high ? value : high;
    }
    if (count > bad) {
        h->min = h->count ? fmin(h->min, (double)low) : (double)low;
        h->max = h->count ? fmax(h->max, (double)high) : (double)high;
    }
    h->zeros += zeros;
    h->not_finite += bad;
    h->count += count - bad;
    h->sum += sum;
    h->squares += squares;
}

/* ---- ranges ---- */

static double magnitude_of(const ech__histogram *h)
{
    return fmax(h->max, -h->min);
}

double ech__histogram_percentile(const ech__histogram *h, double percentile)
{
    const double wanted = percentile / 100 * (double)h->count;
    double seen = (double)h->zeros;
    for (int i = 0; i < BINS; i++) {
        seen += (double)(h->above[i] + h->below[i]);
        if (seen >= wanted)
            return fmin((i + 1) * h->range / BINS, magnitude_of(h));
    }
    return magnitude_of(h);
}

/* The Kullback-Leibler divergence between the first `kept` bins and the same bins quantized to
 * `levels` integers. Values beyond them are clamped into the last bin. */
static double divergence(const double *bins, int kept, double beyond, int levels)
{
    double told[BINS] = {0}, total = beyond, all_told = 0, sum = 0;
    for (int i = 0; i < kept; i++)
        total += bins[i];
    for (int level = 0; level < levels; level++) {
        const int first = (int)((int64_t)kept * level / levels);
        const int end = (int)((int64_t)kept * (level + 1) / levels);
        double mass = 0;
        int filled = 0;
        for (int i = first; i < end; i++) {
            mass += bins[i];
            filled += bins[i] > 0;
        }
        for (int i = first; i < end; i++)
            told[i] = bins[i] > 0 ? mass / filled : 0;
        all_told += mass;
    }
    if (all_told <= 0)
        return INFINITY;
    for (int i = 0; i < kept; i++) {
        const double p = (bins[i] + (i == kept - 1 ? beyond : 0)) / total;
        const double q = told[i] / all_told;
        /* A bin that only holds clamped values has probability 0: a small error stands for an infinite one. */
        if (p > 0)
            sum += p * log(p / fmax(q, 1e-9));
    }
    return sum;
}

static double least_divergence(const ech__histogram *h, int levels)
{
    double bins[BINS], beyond = 0, least = INFINITY;
    int best = BINS, last = 0;
    for (int i = 0; i < BINS; i++) {
        bins[i] = (double)(h->above[i] + h->below[i]); /* zeros are exact at every scale */
        last = bins[i] > 0 ? i + 1 : last;
    }
    for (int kept = last; kept >= levels; kept -= STEP) {
        const double d = divergence(bins, kept, beyond, levels);
        if (d < least) {
            least = d;
            best = kept;
        }
        for (int i = 1; i <= STEP; i++)
            beyond += bins[kept - i];
    }
    return best == BINS || best == last ? magnitude_of(h) : best * h->range / BINS;
}

double ech__histogram_threshold(const ech__histogram *h, ech_observe how, double percentile,
                                int levels)
{
    switch (how) {
    case ECH_OBSERVE_PERCENTILE:
        return ech__histogram_percentile(h, percentile);
    case ECH_OBSERVE_ENTROPY:
        return least_divergence(h, levels);
    case ECH_OBSERVE_MAX:
        break;
    }
    return magnitude_of(h);
}

/* ---- what people see ---- */

ech__histogram_stats ech__histogram_stats_of(const ech__histogram *h)
{
    const double count = h->count ? (double)h->count : 1;
    ech__histogram_stats s = {.min = h->min, .max = h->max, .mean = h->sum / count};
    const double variance = h->squares / count - s.mean * s.mean;
    s.sigma = variance > 0 ? sqrt(variance) : 0;
    s.zeros = (double)h->zeros / count;
    double outside = fabs(s.mean) > 3 * s.sigma ? (double)h->zeros : 0;
    for (int i = 0; i < BINS; i++) {
        const double middle = (i + 0.5) * h->range / BINS;
        if (fabs(middle - s.mean) > 3 * s.sigma)
            outside += (double)h->above[i];
        if (fabs(-middle - s.mean) > 3 * s.sigma)
            outside += (double)h->below[i];
    }
    s.outliers = outside / count;
    return s;
}

/* Bars are counted over [-range, range] and the empty ones at the ends are cut off. */
ech__bars ech__histogram_bars(const ech__histogram *h)
{
    enum { SIDE = 64, MERGED = BINS / SIDE };
    int64_t all[2 * SIDE] = {0};
    for (int i = 0; i < BINS; i++) {
        all[SIDE + i / MERGED] += h->above[i];
        all[SIDE - 1 - i / MERGED] += h->below[i];
    }
    /* Zeros are between the sides; they count for the one that has more values. */
    const int zero = h->max >= -h->min ? SIDE : SIDE - 1;
    all[zero] += h->zeros;
    int first = 0, end = 2 * SIDE;
    while (first < end - 1 && !all[first])
        first++;
    while (end > first + 1 && !all[end - 1])
        end--;
    const double range = h->range > 0 ? h->range : 1;
    ech__bars bars = {.low = (first - SIDE) * range / SIDE, .width = range / SIDE};
    bars.count = end - first;
    bars.zero = zero < first ? 0 : zero < end ? zero - first : bars.count - 1;
    memcpy(bars.height, all + first, (size_t)bars.count * sizeof *all);
    return bars;
}
