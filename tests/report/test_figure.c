/* How numbers are printed, and scales with their ticks. */
#include "report/plot/figure.h"
#include "report/plot/scale.h"

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

static void assert_prints(ech_ctx *ctx, const char *format, double value, const char *want)
{
    ech__number_format f;
    assert_int_equal(ech__number_format_parse(ctx, format, &f), ECH_OK);
    assert_string_equal(ech__number_text(f, value).s, want);
}

static void numbers_have_formats(void **state)
{
    assert_prints(*state, "general", 8.71234, "8.712");
    assert_prints(*state, "general", 12345.6,
                  "12\xc2\xa0"
                  "346");
    assert_prints(*state, "general", 0, "0");
    assert_prints(*state, "general", 1.5e-7, "1.500e-07");
    assert_prints(*state, "integer", 11173962,
                  "11\xc2\xa0"
                  "173\xc2\xa0"
                  "962");
    assert_prints(*state, "integer", -4200,
                  "\xe2\x88\x92"
                  "4200");
    assert_prints(*state, "fixed2", 1.8251, "1.83");
    assert_prints(*state, "fixed2", -0.001, "0.00");
    assert_prints(*state, "fixed0", -2.4,
                  "\xe2\x88\x92"
                  "2");
    assert_prints(*state, "percent1", 0.9123, "91.2");
    assert_prints(*state, "bytes", 44695848, "44.7 MB");
    assert_prints(*state, "seconds", 0.00871, "8.71 ms");
    assert_prints(*state, "fixed3", NAN, "\xe2\x80\x93");
    assert_prints(*state, "bytes", 1e30, "1.000e+30");
}

static void other_formats_are_refused(void **state)
{
    static const char *const wrong[] = {"fixed", "fixed10", "fixedx", "general2", "%s", "percent"};
    ech__number_format f;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(ech__number_format_parse(*state, wrong[i], &f), ECH_E_FORMAT);
        assert_non_null(strstr(ech_ctx_error(*state), wrong[i]));
    }
}

/* Ticks as one text: "0 2 4". */
static const char *ticks_of(const ech__plot_scale *s, char out[400])
{
    out[0] = 0;
    for (size_t i = 0; i < s->nticks; i++) {
        strcat(out, i ? " " : "");
        strcat(out, ech__scale_tick(s, i).s);
    }
    return out;
}

static void linear_scales_are_round(void **state)
{
    (void)state;
    char text[400];
    ech__plot_scale s = ech__scale_over(ECH__SCALE_LINEAR, 0, 8.7, 6, false);
    assert_string_equal(ticks_of(&s, text), "0 2 4 6 8 10");
    assert_true(s.low == 0 && s.high == 10);
    s = ech__scale_over(ECH__SCALE_LINEAR, 0.412, 0.438, 5, false);
    assert_string_equal(ticks_of(&s, text), "0.41 0.42 0.43 0.44");
    s = ech__scale_over(ECH__SCALE_LINEAR, 1, 4, 9, true);
    assert_string_equal(ticks_of(&s, text), "1 2 3 4");
    s = ech__scale_over(ECH__SCALE_LINEAR, 0, 48000, 5, false);
    assert_string_equal(ticks_of(&s, text), "0 10k 20k 30k 40k 50k");
    s = ech__scale_between(ECH__SCALE_LINEAR, 1, 35, 7, true);
    assert_true(s.low == 1 && s.high == 35);
    assert_string_equal(ticks_of(&s, text), "5 10 15 20 25 30 35");
}

static void logarithmic_scales_have_powers(void **state)
{
    (void)state;
    char text[400];
    ech__plot_scale s = ech__scale_over(ECH__SCALE_LOG2, 1, 60, 9, false);
    assert_string_equal(ticks_of(&s, text), "1 2 4 8 16 32 64");
    s = ech__scale_over(ECH__SCALE_LOG10, 3, 800, 6, false);
    assert_true(s.low == 2 && s.high == 1000);
    assert_string_equal(ticks_of(&s, text), "10 100 1000");
    s = ech__scale_over(ECH__SCALE_LOG10, 3, 80, 6, false);
    assert_string_equal(ticks_of(&s, text), "2 5 10 20 50 100");
}

static void places_are_between_the_ends(void **state)
{
    (void)state;
    ech__plot_scale s = ech__scale_over(ECH__SCALE_LOG2, 1, 16, 9, false);
    ech__scale_place(&s, 100, 500);
    assert_true(fabs(ech__scale_at(&s, 4) - 300) < 1e-9);
    assert_true(isnan(ech__scale_at(&s, 0)) && isnan(ech__scale_at(&s, -1)));
    s = ech__scale_over(ECH__SCALE_LINEAR, 0, 10, 5, false);
    ech__scale_place(&s, 200, 0); /* upward */
    assert_true(fabs(ech__scale_at(&s, 2.5) - 150) < 1e-9);
}

/* Whatever comes in, ticks are few, rising and inside, and places are numbers. */
static void odd_ranges_have_scales_too(void **state)
{
    (void)state;
    static const double ends[][2] = {{0, 0},        {5, 5},         {-3, -3},    {1e30, 1e30},
                                     {-1e30, 1e30}, {1e-30, 2e-30}, {0, 1e-300}, {7, 7.0000000001}};
    for (int kind = 0; kind < ECH__SCALE_COUNT; kind++) {
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
            ech__plot_scale s =
                ech__scale_over((ech__scale_kind)kind, ends[i][0], ends[i][1], 6, false);
            ech__scale_place(&s, 0, 100);
            assert_true(s.high > s.low && s.nticks <= ECH__SCALE_MAX_TICKS);
            for (size_t t = 0; t < s.nticks; t++) {
                const double at = ech__scale_at(&s, s.ticks[t]);
                assert_true(at >= -0.01 && at <= 100.01);
                assert_true(t == 0 || s.ticks[t] > s.ticks[t - 1]);
                assert_true(strlen(ech__scale_tick(&s, t).s) < sizeof(ech__text));
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(numbers_have_formats, setup, teardown),
        cmocka_unit_test_setup_teardown(other_formats_are_refused, setup, teardown),
        cmocka_unit_test(linear_scales_are_round),
        cmocka_unit_test(logarithmic_scales_have_powers),
        cmocka_unit_test(places_are_between_the_ends),
        cmocka_unit_test(odd_ranges_have_scales_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
