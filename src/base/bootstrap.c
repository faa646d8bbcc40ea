#include "base/bootstrap.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A sorted copy that the caller frees. */
static ech_status sorted_copy(ech_ctx *ctx, const double *samples, size_t count, double **out)
{
    *out = NULL;
    if (!count)
        return ech__fail(ctx, ECH_E_INVALID, "a median of no samples");
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(samples[i]))
            return ech__fail(ctx, ECH_E_INVALID, "sample %zu of %zu is no finite number", i + 1,
                             count);
    }
    double *copy = calloc(count, sizeof *copy);
    if (!copy)
        return ech__fail(ctx, ECH_E_NOMEM, "no memory for %zu samples", count);
    memcpy(copy, samples, count * sizeof *copy);
    qsort(copy, count, sizeof *copy, ascending);
    *out = copy;
    return ECH_OK;
}

static double median_of(const double *sorted, size_t count)
{
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/* ---- resampling ---- */

/* Sorted samples, and how often each is drawn in the round under way. */
typedef struct resampler {
    double *sorted;
    uint32_t *drawn;
    size_t count;
    uint64_t seed, stream;
} resampler;

static void resampler_fini(resampler *r)
{
    free(r->sorted);
    free(r->drawn);
}

static ech_status resampler_init(ech_ctx *ctx, resampler *r, const double *samples, size_t count,
                                 uint64_t seed, const char *stream)
{
    *r = (resampler){.count = count, .seed = seed, .stream = ech__rng_stream(stream)};
    ECH_TRY(sorted_copy(ctx, samples, count, &r->sorted));
    r->drawn = calloc(count, sizeof *r->drawn);
    if (r->drawn)
        return ECH_OK;
    resampler_fini(r);
    return ech__fail(ctx, ECH_E_NOMEM, "no memory for %zu draws", count);
}

static void draw(resampler *r, uint64_t round)
{
    memset(r->drawn, 0, r->count * sizeof *r->drawn);
    const uint64_t blocks = (r->count + 1) / 2; /* a block has two 64-bit words */
    uint32_t words[4] = {0};
    for (size_t i = 0; i < r->count; i++) {
        if (i % 2 == 0)
            ech__rng_block(r->seed, r->stream, round * blocks + i / 2, words);
        const uint64_t word = (uint64_t)words[2 * (i % 2)] << 32 | words[2 * (i % 2) + 1];
        r->drawn[(size_t)(((unsigned __int128)word * r->count) >> 64)]++;
    }
}

/* The k-th smallest of what was drawn. */
static double drawn_at(const resampler *r, size_t k)
{
    size_t seen = 0, i = 0;
    for (; i + 1 < r->count && seen + r->drawn[i] <= k; i++)
        seen += r->drawn[i];
    return r->sorted[i];
}

static double drawn_median(resampler *r, uint64_t round)
{
    draw(r, round);
    const double upper = drawn_at(r, r->count / 2);
    return r->count % 2 ? upper : (drawn_at(r, r->count / 2 - 1) + upper) / 2;
}

/* The middle 95 % of what the rounds gave. */
static void middle(double *rounds, ech__interval *out)
{
    qsort(rounds, ECH__BOOTSTRAP_ROUNDS, sizeof *rounds, ascending);
    const size_t tail = ECH__BOOTSTRAP_ROUNDS / 40;
    out->low = rounds[tail];
    out->high = rounds[ECH__BOOTSTRAP_ROUNDS - 1 - tail];
}

/* ---- intervals ---- */

ech_status ech__bootstrap_median(ech_ctx *ctx, const double *samples, size_t count, uint64_t seed,
                                 ech__interval *out)
{
    resampler r;
    ECH_TRY(resampler_init(ctx, &r, samples, count, seed, "bootstrap"));
    double *rounds = calloc(ECH__BOOTSTRAP_ROUNDS, sizeof *rounds);
    if (rounds) {
        for (int i = 0; i < ECH__BOOTSTRAP_ROUNDS; i++)
            rounds[i] = drawn_median(&r, (uint64_t)i);
        out->value = median_of(r.sorted, count);
        middle(rounds, out);
    }
    resampler_fini(&r);
    free(rounds);
    return rounds ? ECH_OK : ech__fail(ctx, ECH_E_NOMEM, "no memory for a bootstrap");
}

static ech_status ratio_of(ech_ctx *ctx, resampler *over, resampler *under, ech__interval *out)
{
    if (over->sorted[0] <= 0 || under->sorted[0] <= 0)
        return ech__fail(ctx, ECH_E_INVALID, "a ratio of samples that are not all above 0");
    double *rounds = calloc(ECH__BOOTSTRAP_ROUNDS, sizeof *rounds);
    if (!rounds)
        return ech__fail(ctx, ECH_E_NOMEM, "no memory for a bootstrap");
    for (int i = 0; i < ECH__BOOTSTRAP_ROUNDS; i++)
        rounds[i] = drawn_median(over, (uint64_t)i) / drawn_median(under, (uint64_t)i);
    out->value = median_of(over->sorted, over->count) / median_of(under->sorted, under->count);
    middle(rounds, out);
    free(rounds);
    return ECH_OK;
}

ech_status ech__bootstrap_ratio(ech_ctx *ctx, const ech__ratio_samples *samples, uint64_t seed,
                                ech__interval *out)
{
    resampler over, under;
    ECH_TRY(resampler_init(ctx, &over, samples->over, samples->over_count, seed, "over"));
    ech_status status =
        resampler_init(ctx, &under, samples->under, samples->under_count, seed, "under");
    if (status == ECH_OK) {
        status = ratio_of(ctx, &over, &under, out);
        resampler_fini(&under);
    }
    resampler_fini(&over);
    return status;
}

ech__comparison ech__compare(ech__interval ratio, double noise)
{
    if ((ratio.low <= 1 && ratio.high >= 1) || fabs(ratio.value - 1) <= noise)
        return ECH__NO_DIFFERENCE;
    return ratio.value < 1 ? ECH__LESS : ECH__MORE;
}

/* ---- outliers ---- */

static double quantile(const double *sorted, size_t count, double q)
{
    const double place = q * (double)(count - 1);
    const size_t below = (size_t)place;
    if (below + 1 >= count)
        return sorted[count - 1];
    return sorted[below] + (place - (double)below) * (sorted[below + 1] - sorted[below]);
}

ech_status ech__tukey_fences(ech_ctx *ctx, const double *samples, size_t count, ech__fences *out)
{
    double *sorted;
    ECH_TRY(sorted_copy(ctx, samples, count, &sorted));
    const double q1 = quantile(sorted, count, 0.25), q3 = quantile(sorted, count, 0.75);
    *out = (ech__fences){q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)};
    free(sorted);
    return ECH_OK;
}

size_t ech__outliers(const double *samples, size_t count, ech__fences fences)
{
    size_t outside = 0;
    for (size_t i = 0; i < count; i++)
        outside += samples[i] < fences.low || samples[i] > fences.high;
    return outside;
}
