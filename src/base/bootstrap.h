/* How sure a median is: bootstrap intervals, outliers, and whether two sets of samples differ at all.
 *
 *     ech__interval step, speedup;
 *     ECH_TRY(ech__bootstrap_median(ctx, times, 30, seed, &step));
 *     const ech__ratio_samples both = {.over = one, .under = two, .over_count = 30, .under_count = 30};
 *     ECH_TRY(ech__bootstrap_ratio(ctx, &both, seed, &speedup));                median(one) / median(two)
 *     if (ech__compare(speedup, noise) == ECH__NO_DIFFERENCE) ...               say so
 *
 * An interval holds 95 % of the medians of ECH__BOOTSTRAP_ROUNDS sets that are drawn from the samples with
 * replacement (percentile bootstrap). Draws are counter-based: the same samples and seed give the same bits.
 * Samples are taken as independent; where slow steps come in bursts the truth is wider.
 */
#ifndef ECH_BASE_BOOTSTRAP_H
#define ECH_BASE_BOOTSTRAP_H

#include "base/status.h"

enum { ECH__BOOTSTRAP_ROUNDS = 2000 };

typedef struct ech__interval {
    double value, low, high;
} ech__interval;

/* Samples stay as they are. None at all, or one that is no finite number, is refused. */
ech_status ech__bootstrap_median(ech_ctx *ctx, const double *samples, size_t count, uint64_t seed,
                                 ech__interval *out);

/* median(over) / median(under), with samples of both above 0. */
typedef struct ech__ratio_samples {
    const double *over, *under;
    size_t over_count, under_count;
} ech__ratio_samples;
ech_status ech__bootstrap_ratio(ech_ctx *ctx, const ech__ratio_samples *samples, uint64_t seed,
                                ech__interval *out);

typedef enum ech__comparison {
    ECH__NO_DIFFERENCE, /* the interval holds 1, or the ratio is within the noise of the machine */
    ECH__LESS,
    ECH__MORE,
} ech__comparison;

/* What a ratio says. noise is how far ratios of equal runs lie from 1 on this machine: 0.02 for 2 %. */
ech__comparison ech__compare(ech__interval ratio, double noise);

/* Tukey's fences: what lies more than 1.5 interquartile ranges outside of the quartiles. Quartiles are
 * interpolated between samples. */
typedef struct ech__fences {
    double low, high;
} ech__fences;
ech_status ech__tukey_fences(ech_ctx *ctx, const double *samples, size_t count, ech__fences *out);
/* Samples outside of the fences. */
size_t ech__outliers(const double *samples, size_t count, ech__fences fences);

#endif
