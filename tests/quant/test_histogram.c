/* Histograms, the ranges they suggest, scales of weights, and shares with their intervals. */
#include "support/cmocka_first.h"
#include "base/rng.h"
#include "quant/ladder.h"
#include "quant/scales.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 20000 };

static void normals(float *out, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = ech__rng_normal(1, 2, (uint64_t)i);
}

static void counts_and_moments(void **state)
{
    (void)state;
    static ech__histogram h;
    const float first[] = {-1, 0, 0.5f, 0.25f}, second[] = {9, NAN, INFINITY, 0};
    ech__histogram_add(&h, first, 4);
    ech__histogram_add(&h, second, 4); /* the bins must become wider */
    const ech__histogram_stats s = ech__histogram_stats_of(&h);
    assert_int_equal(h.count, 6);
    assert_int_equal(h.not_finite, 2);
    assert_int_equal(h.zeros, 2);
    assert_true(s.min == -1 && s.max == 9);
    assert_true(fabs(s.mean - 8.75 / 6) < 1e-12);
    assert_true(fabs(s.zeros - 2.0 / 6) < 1e-12);
    int64_t all = h.zeros;
    for (int i = 0; i < ECH__HISTOGRAM_BINS; i++)
        all += h.above[i] + h.below[i];
    assert_int_equal(all, 6);
}

static void all_above_zero(void **state)
{
    (void)state;
    static ech__histogram h;
    ech__histogram_add(&h, (float[]){3, 2}, 2);
    assert_true(h.min == 2 && h.max == 3); /* a zero that was never seen is no end */
}

static void percentiles(void **state)
{
    (void)state;
    static ech__histogram h;
    float values[1000];
    for (int i = 0; i < 1000; i++)
        values[i] = (float)(i + 1) * (i % 2 ? 1 : -1);
    ech__histogram_add(&h, values, 1000);
    const double width = h.range / ECH__HISTOGRAM_BINS;
    assert_true(fabs(ech__histogram_percentile(&h, 90) - 900) <= 2 * width);
    assert_true(ech__histogram_percentile(&h, 100) == 1000);
    assert_true(ech__histogram_threshold(&h, ECH_OBSERVE_MAX, 0, 127) == 1000);
}

/* One outlier far away: max wastes the steps, the others do not. */
static void outliers(void **state)
{
    (void)state;
    static ech__histogram h;
    float *values = malloc(N * sizeof *values);
    assert_non_null(values);
    normals(values, N);
    values[0] = 60;
    ech__histogram_add(&h, values, N);
    assert_true(ech__histogram_threshold(&h, ECH_OBSERVE_MAX, 0, 127) == 60);
    const double percentile = ech__histogram_threshold(&h, ECH_OBSERVE_PERCENTILE, 99.9, 127);
    const double entropy = ech__histogram_threshold(&h, ECH_OBSERVE_ENTROPY, 0, 127);
    assert_true(percentile > 2.5 && percentile < 5);
    assert_true(entropy > 2 && entropy < 12);
    free(values);
}

static double error_of(const float *w, const ech__scale_options *o)
{
    const float scale = ech__clip_scale(w, N, o);
    double sum = 0;
    for (int i = 0; i < N; i++) {
        const double whole = fmin(fmax(rint((double)(w[i] / scale)), -127), 127);
        sum += pow((double)w[i] - whole * (double)scale, 2);
    }
    return sum;
}

static void clipping(void **state)
{
    (void)state;
    float *w = malloc(N * sizeof *w);
    assert_non_null(w);
    normals(w, N);
    w[3] = -8;
    ech__scale_options o = ech__scale_defaults();
    o.weights = ECH_CLIP_MAX;
    assert_true(ech__clip_scale(w, N, &o) == 8.0f / 127);
    const double plain = error_of(w, &o);
    o.weights = ECH_CLIP_SIGMA;
    assert_true(fabs((double)ech__clip_scale(w, N, &o) * 127 - 3) < 0.1);
    o.weights = ECH_CLIP_MSE;
    assert_true(error_of(w, &o) < 0.9 * plain);
    o.weights = ECH_CLIP_PERCENTILE;
    o.weight_percentile = 99;
    assert_true(fabs((double)ech__clip_scale(w, N, &o) * 127 - 2.576) < 0.1);
    memset(w, 0, N * sizeof *w);
    assert_true(ech__clip_scale(w, N, &o) == 0);
    free(w);
}

static void rounding_of_weights(void **state)
{
    (void)state;
    const float w[] = {0.5f, 1.5f, -2.5f, 300, -300, 0}, scale[] = {1, 2};
    int8_t out[6];
    ech__round_weight(w, 2, 3, scale, out);
    const int8_t wanted[] = {0, 2, -2, 127, -127, 0}; /* half to even, and -128 is not used */
    assert_memory_equal(out, wanted, sizeof out);
}

/* Figures of statsmodels' proportion_confint(method="wilson"). */
static void intervals(void **state)
{
    (void)state;
    const ech__share half = ech__share_of(50, 100), all = ech__share_of(10, 10),
                     many = ech__share_of(6123, 10000);
    assert_true(fabs(half.low - 0.40383) < 1e-5 && fabs(half.high - 0.59617) < 1e-5);
    assert_true(fabs(all.low - 0.72247) < 1e-5 && all.high == 1);
    assert_true(fabs(many.low - 0.60271) < 1e-5 && fabs(many.high - 0.62180) < 1e-5);
    assert_true(many.share == 0.6123);
}

static void bars_hold_everything(void **state)
{
    (void)state;
    static ech__histogram h;
    const float values[] = {-0.5f, 0, 0.1f, 0.9f, 0.95f};
    ech__histogram_add(&h, values, 5);
    const ech__bars bars = ech__histogram_bars(&h);
    int64_t all = 0;
    for (int i = 0; i < bars.count; i++)
        all += bars.height[i];
    assert_int_equal(all, 5);
    assert_true(bars.low <= -0.5 && bars.low > -0.6);
    assert_true(bars.low + bars.count * bars.width >= 0.95);
    assert_true(bars.height[0] == 1 && bars.height[bars.count - 1] >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_and_moments), cmocka_unit_test(all_above_zero),
        cmocka_unit_test(percentiles),        cmocka_unit_test(outliers),
        cmocka_unit_test(clipping),           cmocka_unit_test(rounding_of_weights),
        cmocka_unit_test(intervals),          cmocka_unit_test(bars_hold_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
