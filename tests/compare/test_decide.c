/* Ratios, intervals and verdicts from logarithms that are known. */
#include "compare/decide.h"

#include "support/cmocka_first.h"
#include <math.h>

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-3;
}

static void a_start_is_the_median_of_its_rounds(void **state)
{
    (void)state;
    const double one[] = {2, 4, 6, 1000, (double)NAN}, two[] = {1, 2, 3, 1, 1};
    assert_true(near(ech__compare_start(one, two, 3), log(2)));
    assert_true(near(ech__compare_start(one, two, 5),
                     log(2))); /* a round of which nothing is known is left out */
    assert_true(isnan(ech__compare_start(one + 4, two, 1)));
}

/* Student's quantile for 98.75 % and 5 degrees of freedom is 3.810. */
static void the_interval_is_students(void **state)
{
    (void)state;
    const double logs[] = {0.1, 0.2, 0.3, 0.1, 0.2, 0.3};
    const ech__ratio r = ech__compare_ratio(logs, 6, ECH__COMPARE_SHARE);
    const double half = 3.810 * r.spread / sqrt(6);
    assert_true(near(r.spread, 0.08944));
    assert_true(near(r.ratio, exp(0.2)));
    assert_true(near(r.low, exp(0.2 - half)) && near(r.high, exp(0.2 + half)));
    assert_true(near(ech__ratio_half_width(&r), sinh(half)));
    const ech__ratio one = ech__compare_ratio(logs, 1, ECH__COMPARE_SHARE);
    assert_true(one.low == 0 && isinf(one.high));
    assert_int_equal(ech__compare_ratio((double[]){(double)NAN, 1}, 2, 0.99).starts, 1);
}

static ech__decision judge(double low, double high, double threshold)
{
    const ech__ratio r = {.ratio = sqrt(low * high), .low = low, .high = high, .starts = 6};
    return ech__compare_judge(&r, threshold);
}

static void verdicts_follow_from_the_interval(void **state)
{
    (void)state;
    assert_int_equal(judge(1.1, 1.2, 1), ECH__DECISION_ABOVE);
    assert_int_equal(judge(1.1, 1.2, 1.15), ECH__DECISION_UNDECIDED);
    assert_int_equal(judge(1.1, 1.2, 1.3), ECH__DECISION_BELOW);
    assert_int_equal(judge(0.99, 1.01, 1), ECH__DECISION_EQUAL);
    assert_int_equal(judge(1.005, 1.015, 1),
                     ECH__DECISION_EQUAL); /* above, but by nothing that matters */
    assert_int_equal(judge(1.005, 1.03, 1), ECH__DECISION_ABOVE);
    assert_int_equal(judge(0.97, 1.01, 1), ECH__DECISION_UNDECIDED);
    assert_int_equal(judge(1.87, 1.93, 1.9), ECH__DECISION_EQUAL);
    const ech__ratio few = {.ratio = 2, .low = 1.9, .high = 2.1, .starts = 5};
    assert_int_equal(ech__compare_judge(&few, 1), ECH__DECISION_UNDECIDED);
}

static void there_are_four_looks(void **state)
{
    (void)state;
    int looks = 0;
    for (int i = 0; i <= ECH__COMPARE_STARTS; i++)
        looks += ech__compare_is_look(i);
    assert_int_equal(looks, 4);
    assert_true(ech__compare_is_look(ECH__COMPARE_FEWEST_STARTS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_start_is_the_median_of_its_rounds),
        cmocka_unit_test(the_interval_is_students),
        cmocka_unit_test(verdicts_follow_from_the_interval),
        cmocka_unit_test(there_are_four_looks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
