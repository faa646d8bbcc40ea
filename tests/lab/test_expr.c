/* Figures: the language, the records that it reads, and intervals that follow from drawing steps again. */
#include "lab/facts.h"

#include "base/rng.h"
#include "base/stats.h"
#include "support/lab_fixture.h"
#include "support/temp_dir.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ech_ctx *ctx;
static temp_dir temp;
static lab_fixture lab;

static int setup(void **state)
{
    (void)state;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    temp = temp_dir_create();
    lab_fixture_write(ctx, &lab, temp.path);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    lab_fixture_remove(ctx, &lab);
    ech_ctx_destroy(ctx);
    return 0;
}

static ech__lab_facts *new_facts(double noise)
{
    ech__lab_facts *facts;
    assert_int_equal(ech__lab_facts_create(ctx, lab.results, LAB_RUNS, noise, &facts), ECH_OK);
    return facts;
}

static ech__lab_figure eval(ech__lab_facts *facts, const char *expr)
{
    ech__lab_figure figure;
    if (ech__lab_eval(facts, expr, &figure) < 0)
        fail_msg("%s: %s", expr, ech_ctx_error(ctx));
    return figure;
}

static void assert_close(const char *what, double value, double want)
{
    if (!(fabs(value - want) <= 1e-12 * fmax(1, fabs(want))))
        fail_msg("%s is %.17g and not %.17g", what, value, want);
}

static void assert_exact(ech__lab_figure f)
{
    assert_true(f.known && f.low == f.value && f.high == f.value);
}

/* ---- numbers ---- */

static void numbers_are_computed_as_people_do(void **state)
{
    static const struct {
        const char *expr;
        double value;
    } cases[] = {
        {"1 + 2 * 3", 7},
        {"10 - 4 - 3", 3},
        {"2 / 4 / 2", 0.25},
        {"-(2 - 5) / 2", 1.5},
        {"3 - -2", 5},
        {" 2e-3*1e+3 ", 2},
        {".5 * (1 + 1)", 1},
        {"min(3, 1, 2) + max(3, 1, 2)", 4},
        {"abs(-2) + sqrt(9) + log(exp(2))", 7},
        {"amdahl(1, 10, 2, 6, 4, 4)", 0.2},
        {"amdahl(1, 10, 2, 4)", 0},
        {"amdahl(1, 10, 2, 11)", 1},
        {"slope(0, 1, 1, 3, 2, 5)", 2},
        {"intercept(1, 3, 2, 5)", 1},
        {"rsquared(0, 1, 1, 3, 2, 5)", 1},
        {"rsquared(0, 0, 1, 1, 2, 0)", 0},
        {"crossing(0.5, 1, 0.2, 2, 0.4, 4, 0.8)", 2.5},
        {"crossing(0.5, 4, 0.8, 1, 0.2, 2, 0.4)", 2.5},
        {"crossing(3, 1, 5, 2, 3, 3, 1)", 2},
        {"best(1, 5, 2, 7, 3, 6)", 2},
        {"worst(1, 5, 2, 7, 3, 6)", 1},
    };
    ech__lab_facts *facts = new_facts(0.1);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ech__lab_figure f = eval(facts, cases[i].expr);
        assert_close(cases[i].expr, f.value, cases[i].value);
        assert_exact(f);
        assert_null(f.run);
    }
    ech__lab_facts_destroy(facts);
}

static void what_is_no_number_is_not_known(void **state)
{
    static const char *const cases[][2] = {
        {"1 / 0", "division by zero"},
        {"crossing(9, 1, 5, 2, 3)", "not met"},
        {"sqrt(-1)", "root"},
        {"log(0)", "logarithm"},
        {"slope(1, 2, 1, 3)", "no line"},
        {"1e30 * 10", "too large"},
        {"[n8 summary.x] + 1", "run n8 failed: out of memory"},
        {"steps[n16 time_s]", "run n16 was skipped: too many devices"},
        {"[n1 summary.nothing]", "n1: its record has no number summary.nothing"},
        {"[n1 config.model]", "no number config.model"},
        {"steps[n1 nothing]", "no step behind its warm-up has nothing"},
        {"first[n1 time_s 99]", "no step 99"},
        {"steps[plan time_s]", "plan: it left no steps"},
        {"min(1, 1 / 0)", "division by zero"},
    };
    ech__lab_facts *facts = new_facts(0);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ech__lab_figure f = eval(facts, cases[i][0]);
        assert_true(!f.known && isnan(f.value) && isnan(f.low) && isnan(f.high));
        if (!strstr(f.reason, cases[i][1]))
            fail_msg("%s: '%s' does not say '%s'", cases[i][0], f.reason, cases[i][1]);
    }
    ech__lab_facts_destroy(facts);
}

static void slips_are_errors(void **state)
{
    static const char *const cases[][2] = {
        {"", "a number was expected, not its end"},
        {"1 +", "character 4: a number was expected"},
        {"1 2", "an operator was expected, not '2'"},
        {"(1", "a ')' was expected"},
        {"1.2.3", "'1.2.3' is no number"},
        {"9e99", "within 1e+30"},
        {"#", "not '#'"},
        {"speedup", "'speedup' is no figure"},
        {"[n9 summary.devices]", "there is no run n9"},
        {"steps[n9 time_s]", "there is no run n9"},
        {"[n1]", "must stand behind the run n1"},
        {"[n1 summary.devices", "a bracket is not closed"},
        {"median[n1 time_s]", "no statistic 'median'"},
        {"first[n1 time_s]", "first wants"},
        {"first[n1 time_s 0]", "'0' is no number of a step"},
        {"mean(1)", "no function 'mean'"},
        {"slope(1, 2, 3)", "slope of 3 numbers"},
        {"slope(1, 2, 3, 4, 5)", "pairs x, y"},
        {"crossing(1, 2, 3, 4)", "a level and then pairs"},
        {"abs(1, 2)", "takes from 1 to 1"},
        {"min(1, 2", "a ')' was expected"},
    };
    ech__lab_facts *facts;
    ech__lab_figure f;
    (void)state;
    assert_int_equal(ech__lab_facts_create(ctx, lab.results, LAB_GOOD_RUNS, 0, &facts), ECH_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(ech__lab_eval(facts, cases[i][0], &f), ECH_E_INVALID);
        assert_false(f.known);
        if (!strstr(ech_ctx_error(ctx), cases[i][1]))
            fail_msg("%s: '%s' does not say '%s'", cases[i][0], ech_ctx_error(ctx), cases[i][1]);
    }
    ech__lab_facts_destroy(facts);
}

/* What a study asks for may depend on results, so behind a run that failed others may be missing. */
static void behind_a_failed_run_others_may_be_missing(void **state)
{
    ech__lab_facts *facts = new_facts(0);
    (void)state;
    for (int again = 0; again < 2; again++) {
        const ech__lab_figure f = eval(facts, "steps[n9 time_s] / [n1 summary.devices]");
        assert_false(f.known);
        assert_string_equal(f.run, "n8"); /* because of which: a report knows this run */
        assert_non_null(strstr(f.reason, "run n8 failed: out of memory"));
    }
    assert_null(ech__lab_record(facts, "n9"));
    ech__lab_facts_destroy(facts);
}

static void depth_and_length_have_limits(void **state)
{
    ech__lab_facts *facts = new_facts(0);
    ech__lab_figure f;
    char text[ECH__LAB_EXPR_MAX + 2];
    (void)state;
    for (int sign = 0; sign < 2; sign++) {
        memset(text, sign ? '-' : '(', 500);
        strcpy(text + 500, "1");
        assert_int_equal(ech__lab_eval(facts, text, &f), ECH_E_INVALID);
        assert_non_null(strstr(ech_ctx_error(ctx), "levels deep"));
    }
    memset(text, '1', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_int_equal(ech__lab_eval(facts, text, &f), ECH_E_INVALID);
    assert_non_null(strstr(ech_ctx_error(ctx), "at most 2000"));
    ech__lab_facts_destroy(facts);
}

/* ---- records ---- */

static void paths_lead_into_records(void **state)
{
    static const struct {
        const char *expr;
        double value;
        ech__lab_basis basis;
    } cases[] = {
        {"[n1 summary.devices]", 1, ECH__LAB_MEASURED},
        {"[n4 summary.devices]", 4, ECH__LAB_EMULATED},
        {"[n4 config.delay_ms]", 5, ECH__LAB_EMULATED},
        {"[n1 summary.finished] + [n1 seed]", 1, ECH__LAB_MEASURED},
        {"[n1 summary.epochs.1.accuracy]", 0.5, ECH__LAB_MEASURED},
        {"[n1 kernels.name=layers.0.median_s]", 0.01, ECH__LAB_MEASURED},
        {"[n1 kernels.name=layers.0&phase=backward.median_s]", 0.02, ECH__LAB_MEASURED},
        {"[plan rows.devices=4.step_time_s]", 0.03, ECH__LAB_PREDICTED},
        {"[plan rows.devices=2&batch=64.step_time_s]", 0.11, ECH__LAB_PREDICTED},
        {"[plan rows.devices=1.step_time_s]", 0.1, ECH__LAB_MEASURED},
        {"[n1 summary.devices] + [plan rows.0.devices] + [n4 seed]", 2, ECH__LAB_EMULATED},
        {"[n4 seed] + [plan rows.3.devices]", 4, ECH__LAB_PREDICTED},
    };
    ech__lab_facts *facts = new_facts(0);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ech__lab_figure f = eval(facts, cases[i].expr);
        assert_close(cases[i].expr, f.value, cases[i].value);
        if (f.basis != cases[i].basis)
            fail_msg("%s is %s", cases[i].expr, ech__lab_basis_name(f.basis));
    }
    assert_string_equal(eval(facts, "2 * [n2 seed] + [n1 seed]").run, "n2");
    assert_int_equal(ech__lab_basis_of(facts, "plan"), ECH__LAB_PREDICTED);
    assert_null(ech__lab_record(facts, "n8"));
    assert_null(ech__lab_record(facts, "unheard"));
    assert_null(ech__lab_path(ech__lab_record(facts, "n1"), "summary.devices.more"));
    ech__lab_facts_destroy(facts);
}

/* Steps behind the warm-up, ascending in time. */
static size_t times(int devices, double *out)
{
    for (int step = LAB_WARMUP + 1; step <= LAB_STEPS; step++)
        out[step - LAB_WARMUP - 1] = lab_fixture_time(devices, step);
    return LAB_STEPS - LAB_WARMUP;
}

static void statistics_leave_the_warm_up_out(void **state)
{
    double sorted[LAB_STEPS], total = 0;
    const size_t n = times(2, sorted);
    const ech__stats s = ech__stats_of(sorted, n);
    for (size_t i = 0; i < n; i++)
        total += sorted[i];
    ech__lab_facts *facts = new_facts(0);
    (void)state;
    assert_close("median", eval(facts, "steps[n2 time_s]").value, s.median);
    assert_close("mean", eval(facts, "mean[n2 time_s]").value, s.mean);
    assert_close("std", eval(facts, "std[n2 time_s]").value, s.std);
    assert_close("p95", eval(facts, "p95[n2 time_s]").value, s.p95);
    assert_close("lowest", eval(facts, "lowest[n2 time_s]").value, s.min);
    assert_close("highest", eval(facts, "highest[n2 time_s]").value, s.max);
    assert_close("total", eval(facts, "total[n2 time_s]").value, total);
    assert_close("count", eval(facts, "count[n2 time_s]").value, (double)n);
    assert_close("count", eval(facts, "count[n2 scale]").value, 6);
    assert_close("last", eval(facts, "last[n2 loss]").value, 1.0 / LAB_STEPS);
    assert_close("inside", eval(facts, "steps[n2 wait_s.1]").value, s.median / 10);
    assert_close("first", eval(facts, "first[n2 time_s 2]").value, lab_fixture_time(2, 2));
    assert_close("bool", eval(facts, "total[n2 skipped]").value, 0);
    assert_exact(eval(facts, "count[n2 time_s]"));
    assert_exact(eval(facts, "last[n2 time_s]"));
    assert_exact(eval(facts, "steps[n2 scale]"));
    ech__lab_facts_destroy(facts);
}

/* ---- intervals ---- */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The percentile bootstrap, by the book: medians[0..ROUNDS) of samples drawn with replacement, sorted. */
enum { ROUNDS = 2000 };
static void bootstrap(const double *samples, size_t n, double medians[ROUNDS])
{
    for (uint64_t round = 0; round < ROUNDS; round++) {
        double drawn[LAB_STEPS];
        for (size_t i = 0; i < n; i++)
            drawn[i] = samples[(size_t)(ech__rng_uniform(3, 1, round * n + i) * (float)n)];
        medians[round] = ech__stats_of(drawn, n).median;
    }
    qsort(medians, ROUNDS, sizeof *medians, ascending);
}

static void the_interval_of_a_median_is_that_of_a_bootstrap(void **state)
{
    double samples[LAB_STEPS], medians[ROUNDS];
    const size_t n = times(1, samples), tail = ROUNDS / 40;
    ech__lab_facts *facts = new_facts(0);
    (void)state;
    bootstrap(samples, n, medians);
    const ech__lab_figure f = eval(facts, "steps[n1 time_s]");
    assert_true(f.low < f.value && f.value < f.high);
    assert_true(fabs(f.low - medians[tail]) <= 0.011 * f.value);
    assert_true(fabs(f.high - medians[ROUNDS - 1 - tail]) <= 0.011 * f.value);
    ech__lab_facts_destroy(facts);
}

static void a_run_is_drawn_alike_wherever_it_occurs(void **state)
{
    ech__lab_facts *facts = new_facts(0.05);
    (void)state;
    const ech__lab_figure same = eval(facts, "mean[n1 forward_s] / mean[n1 time_s]");
    assert_close("low", same.low, 0.25);
    assert_close("high", same.high, 0.25);
    assert_exact(eval(facts, "steps[n1 time_s] / steps[same time_s]"));
    const ech__lab_figure other = eval(facts, "steps[n1 time_s] / steps[n2 time_s]");
    assert_true(other.low < 0.99 * other.value && other.high > 1.01 * other.value);
    ech__lab_facts_destroy(facts);
}

static void same_records_give_the_same_bits(void **state)
{
    ech__lab_facts *one = new_facts(0.03), *two = new_facts(0.03);
    const char *expr = "amdahl(1, steps[n1 time_s], 2, mean[n2 time_s], 4, p95[n4 time_s])";
    (void)state;
    eval(two, "std[n4 time_s] + std[n2 loss]"); /* the order of asking does not matter */
    const ech__lab_figure a = eval(one, expr), b = eval(two, expr);
    assert_true(a.low < a.high);
    assert_memory_equal(&a.low, &b.low, sizeof a.low);
    assert_memory_equal(&a.high, &b.high, sizeof a.high);
    ech__lab_facts_destroy(one);
    ech__lab_facts_destroy(two);
}

static void only_times_that_ran_are_noisy(void **state)
{
    static const char *const exact[] = {
        "[n1 summary.comm_bytes_per_step]",  "[n1 config.delay_ms]",           "last[n1 loss]",
        "[plan rows.devices=4.step_time_s]", "[n1 summary.epochs.0.accuracy]",
    };
    ech__lab_facts *facts = new_facts(0.05);
    (void)state;
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        assert_exact(eval(facts, exact[i]));
    const ech__lab_figure time = eval(facts, "[n1 summary.step_time_s.median]");
    const double low = time.low / time.value, high = time.high / time.value;
    assert_true(low > exp(-0.05 * 2.3) && low < exp(-0.05 * 1.65));
    assert_true(high < exp(0.05 * 2.3) && high > exp(0.05 * 1.65));
    const ech__lab_figure rate = eval(facts, "[n1 summary.samples_per_s]");
    assert_true(fabs(rate.low * time.high - rate.value * time.value) < 1e-9 * rate.value);
    const ech__lab_figure both = eval(facts, "[n1 summary.samples_per_s] * first[n1 time_s 5]");
    assert_true(both.high - both.low < 1e-9);
    const ech__lab_figure emulated = eval(facts, "first[n4 time_s 1]");
    assert_true(emulated.low < emulated.value && emulated.value < emulated.high);
    ech__lab_facts_destroy(facts);
}

/* Half of the draws of a level at the end of what was tried lie beyond it. */
static void an_interval_needs_nearly_all_draws(void **state)
{
    ech__lab_facts *facts = new_facts(0.05);
    (void)state;
    const ech__lab_figure f =
        eval(facts, "crossing(first[n1 time_s 5] * 0.999, 1, 0, 2, [plan rows.0.devices] * 0.1)");
    assert_true(f.known && isnan(f.low) && isnan(f.high));
    assert_non_null(strstr(f.reason, "no interval"));
    ech__lab_facts_destroy(facts);
}

/* ---- names ---- */

static const char *explain(ech__lab_facts *facts, const char *name)
{
    const ech__lab_definition *d = ech__lab_definition_find(facts, name, strlen(name));
    assert_non_null(d);
    return ech__lab_explain(facts, d, &facts->arena);
}

static void figures_can_be_named(void **state)
{
    ech__lab_facts *facts = new_facts(0.02);
    ech__lab_figure f, g;
    (void)state;
    assert_int_equal(ech__lab_define(facts, "t1", "steps[n1 time_s]", &f), ECH_OK);
    assert_int_equal(ech__lab_define(facts, "unused", "1", &f), ECH_OK);
    assert_int_equal(ech__lab_define(facts, "s2", "t1 / steps[n2 time_s]", &f), ECH_OK);
    assert_int_equal(ech__lab_define(facts, "e2", "s2 / 2", &g), ECH_OK);
    assert_close("e2", g.value, f.value / 2);
    assert_close("low", g.low, f.low / 2);
    assert_exact(eval(facts, "steps[n1 time_s] / t1"));
    assert_string_equal(explain(facts, "t1"), "steps[n1 time_s]");
    assert_string_equal(explain(facts, "e2"),
                        "s2 / 2 where t1 = steps[n1 time_s]; s2 = t1 / steps[n2 time_s]");
    assert_int_equal(ech__lab_define(facts, "e2", "s2 / 2", &g), ECH_OK);
    assert_int_equal(ech__lab_define(facts, "e2", "s2 / 4", &g), ECH_E_INVALID);
    assert_non_null(strstr(ech_ctx_error(ctx), "e2 is 's2 / 2' already"));
    assert_int_equal(ech__lab_define(facts, "2e", "1", &g), ECH_E_INVALID);
    assert_int_equal(ech__lab_define(facts, "e 2", "1", &g), ECH_E_INVALID);
    assert_int_equal(ech__lab_define(facts, "later", "later + 1", &g), ECH_E_INVALID);
    assert_non_null(strstr(ech_ctx_error(ctx), "figure later: "));
    ech__lab_facts_destroy(facts);
}

static void noise_must_be_sensible(void **state)
{
    ech__lab_facts *facts;
    (void)state;
    assert_int_equal(ech__lab_facts_create(ctx, lab.results, LAB_RUNS, -1, &facts), ECH_E_INVALID);
    assert_int_equal(ech__lab_facts_create(ctx, lab.results, LAB_RUNS, NAN, &facts), ECH_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_computed_as_people_do),
        cmocka_unit_test(what_is_no_number_is_not_known),
        cmocka_unit_test(slips_are_errors),
        cmocka_unit_test(behind_a_failed_run_others_may_be_missing),
        cmocka_unit_test(depth_and_length_have_limits),
        cmocka_unit_test(paths_lead_into_records),
        cmocka_unit_test(statistics_leave_the_warm_up_out),
        cmocka_unit_test(the_interval_of_a_median_is_that_of_a_bootstrap),
        cmocka_unit_test(a_run_is_drawn_alike_wherever_it_occurs),
        cmocka_unit_test(same_records_give_the_same_bits),
        cmocka_unit_test(only_times_that_ran_are_noisy),
        cmocka_unit_test(an_interval_needs_nearly_all_draws),
        cmocka_unit_test(figures_can_be_named),
        cmocka_unit_test(noise_must_be_sensible),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
