/* Bootstrap intervals on known distributions, the decision that nothing differs, and outliers. */
#include "base/bootstrap.h"
#include "base/rng.h"

#include "support/cmocka_first.h"
#include <math.h>
#include <string.h>

static int setup(void **state)
{
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    *state = ctx;
    return 0;
}

static int teardown(void **state)
{
    ech_ctx_destroy(*state);
    return 0;
}

enum { MOST = 200 };

static void normal(double *out, int count, uint64_t seed, double mean, double spread)
{
    for (int i = 0; i < count; i++)
        out[i] = mean + spread * (double)ech__rng_normal(seed, 1, (uint64_t)i);
}

static void the_median_is_that_of_the_samples(void **state)
{
    const double odd[] = {5, 1, 3}, even[] = {4, 1, 3, 2};
    ech__interval m;
    assert_int_equal(ech__bootstrap_median(*state, odd, 3, 0, &m), ECH_OK);
    assert_true(m.value == 3);
    assert_true(m.low >= 1 && m.low <= 3 && m.high >= 3 && m.high <= 5);
    assert_int_equal(ech__bootstrap_median(*state, even, 4, 0, &m), ECH_OK);
    assert_true(m.value == 2.5);
    assert_true(odd[0] == 5 && even[0] == 4); /* samples stay as they are */
}

static void equal_samples_have_no_width(void **state)
{
    double same[MOST];
    ech__interval m;
    for (int i = 0; i < MOST; i++)
        same[i] = 0.125;
    assert_int_equal(ech__bootstrap_median(*state, same, MOST, 3, &m), ECH_OK);
    assert_true(m.value == 0.125 && m.low == 0.125 && m.high == 0.125);
    assert_int_equal(ech__bootstrap_median(*state, same, 1, 3, &m), ECH_OK);
    assert_true(m.low == 0.125 && m.high == 0.125);
}

static void the_same_seed_gives_the_same_bits(void **state)
{
    double samples[30];
    ech__interval a, b, other;
    normal(samples, 30, 7, 10, 1);
    assert_int_equal(ech__bootstrap_median(*state, samples, 30, 5, &a), ECH_OK);
    assert_int_equal(ech__bootstrap_median(*state, samples, 30, 5, &b), ECH_OK);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(ech__bootstrap_median(*state, samples, 30, 6, &other), ECH_OK);
    assert_true(fabs(other.low - a.low) < 0.2 && fabs(other.high - a.high) < 0.2);
}

/* 95 % of intervals should hold the true median; with 30 samples somewhat fewer or more do. */
static void intervals_cover_the_truth(void **state)
{
    int covered = 0;
    double width = 0;
    for (uint64_t trial = 0; trial < 300; trial++) {
        double samples[30];
        ech__interval m;
        normal(samples, 30, 1000 + trial, 10, 1);
        assert_int_equal(ech__bootstrap_median(*state, samples, 30, trial, &m), ECH_OK);
        covered += m.low <= 10 && m.high >= 10;
        width += (m.high - m.low) / 300;
    }
    assert_in_range(covered, 270, 299);
    /* The median's standard error is about 1.25 / sqrt(30); the interval is about four of them wide. */
    assert_true(width > 0.7 && width < 1.15);
}

static void more_samples_make_it_narrower(void **state)
{
    double samples[MOST];
    ech__interval few, many;
    normal(samples, MOST, 11, 10, 1);
    assert_int_equal(ech__bootstrap_median(*state, samples, 12, 0, &few), ECH_OK);
    assert_int_equal(ech__bootstrap_median(*state, samples, MOST, 0, &many), ECH_OK);
    assert_true(many.high - many.low < (few.high - few.low) / 2);
}

static ech__interval ratio(ech_ctx *ctx, double over_mean, double under_mean, uint64_t seed)
{
    double over[40], under[30];
    normal(over, 40, 2 * seed, over_mean, 0.05 * over_mean);
    normal(under, 30, 2 * seed + 1, under_mean, 0.05 * under_mean);
    ech__interval r;
    const ech__ratio_samples both = {over, under, 40, 30};
    assert_int_equal(ech__bootstrap_ratio(ctx, &both, seed, &r), ECH_OK);
    return r;
}

static void ratios_cover_the_truth(void **state)
{
    int covered = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        const ech__interval r = ratio(*state, 18, 10, seed);
        covered += r.low <= 1.8 && r.high >= 1.8;
        assert_true(r.low <= r.value && r.value <= r.high);
        assert_int_equal(ech__compare(r, 0.02), ECH__MORE);
    }
    assert_in_range(covered, 180, 199);
}

static void equal_sets_do_not_differ(void **state)
{
    int different = 0;
    for (uint64_t seed = 0; seed < 200; seed++)
        different += ech__compare(ratio(*state, 10, 10, seed), 0) != ECH__NO_DIFFERENCE;
    assert_in_range(different, 0, 20);
}

static void a_comparison_has_three_outcomes(void **state)
{
    (void)state;
    assert_int_equal(ech__compare((ech__interval){1.05, 0.99, 1.1}, 0), ECH__NO_DIFFERENCE);
    assert_int_equal(ech__compare((ech__interval){1.05, 1.01, 1.1}, 0), ECH__MORE);
    assert_int_equal(ech__compare((ech__interval){1.05, 1.01, 1.1}, 0.06), ECH__NO_DIFFERENCE);
    assert_int_equal(ech__compare((ech__interval){0.7, 0.6, 0.8}, 0.06), ECH__LESS);
}

static void fences_are_tukeys(void **state)
{
    /* Quartiles 3 and 7: the range is 4, the fences lie 6 outside. */
    const double samples[] = {9, 1, 2, 3, 4, 5, 6, 7, 8};
    ech__fences f;
    assert_int_equal(ech__tukey_fences(*state, samples, 9, &f), ECH_OK);
    assert_true(f.low == -3 && f.high == 13);
    assert_int_equal(ech__outliers(samples, 9, f), 0);
    const double spoilt[] = {9, 1, 2, 3, 4, 5, 6, 7, 80, -80};
    assert_int_equal(ech__tukey_fences(*state, spoilt, 10, &f), ECH_OK);
    assert_int_equal(ech__outliers(spoilt, 10, f), 2);
}

static void nonsense_is_refused(void **state)
{
    ech_ctx *ctx = *state;
    const double zero[] = {0, 1}, nan[] = {1, NAN}, one[] = {1};
    ech__interval m;
    ech__fences f;
    assert_int_equal(ech__bootstrap_median(ctx, zero, 0, 0, &m), ECH_E_INVALID);
    assert_string_equal(ech_ctx_error(ctx), "a median of no samples");
    assert_int_equal(ech__bootstrap_median(ctx, nan, 2, 0, &m), ECH_E_INVALID);
    assert_string_equal(ech_ctx_error(ctx), "sample 2 of 2 is no finite number");
    assert_int_equal(ech__tukey_fences(ctx, nan, 2, &f), ECH_E_INVALID);
    const ech__ratio_samples by_zero = {one, zero, 1, 2}, of_zero = {zero, one, 2, 1};
    assert_int_equal(ech__bootstrap_ratio(ctx, &by_zero, 0, &m), ECH_E_INVALID);
    assert_int_equal(ech__bootstrap_ratio(ctx, &of_zero, 0, &m), ECH_E_INVALID);
    assert_non_null(strstr(ech_ctx_error(ctx), "above 0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_median_is_that_of_the_samples, setup, teardown),
        cmocka_unit_test_setup_teardown(equal_samples_have_no_width, setup, teardown),
        cmocka_unit_test_setup_teardown(the_same_seed_gives_the_same_bits, setup, teardown),
        cmocka_unit_test_setup_teardown(intervals_cover_the_truth, setup, teardown),
        cmocka_unit_test_setup_teardown(more_samples_make_it_narrower, setup, teardown),
        cmocka_unit_test_setup_teardown(ratios_cover_the_truth, setup, teardown),
        cmocka_unit_test_setup_teardown(equal_sets_do_not_differ, setup, teardown),
        cmocka_unit_test(a_comparison_has_three_outcomes),
        cmocka_unit_test_setup_teardown(fences_are_tukeys, setup, teardown),
        cmocka_unit_test_setup_teardown(nonsense_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
