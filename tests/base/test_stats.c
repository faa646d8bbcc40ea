/* The central steps: as many below the median as above it, and their parts add up to their times. */
#include "base/stats.h"
#include "support/cmocka_first.h"

#include <math.h>

enum { MOST = 64 };

static void as_many_below_the_median_as_above(void **state)
{
    (void)state;
    for (size_t count = 1; count <= MOST; count++) {
        ech__timed steps[MOST];
        for (size_t i = 0; i < count; i++)
            steps[i] = (ech__timed){(double)(i * 7919 % 101), i};
        size_t first;
        const size_t central = ech__central_steps(steps, count, &first);
        assert_true(central >= 1 && central >= count / 5 && central <= count / 5 + 2);
        assert_int_equal(first, count - first - central);
        for (size_t i = 1; i < count; i++)
            assert_true(steps[i - 1].time <= steps[i].time);
    }
}

static void no_steps_have_no_centre(void **state)
{
    (void)state;
    size_t first;
    assert_int_equal(ech__central_steps(NULL, 0, &first), 0);
}

/* Medians of parts do not: 3 + 1, 1 + 3 and 2 + 4 have the medians 2 and 3, of times with the median 4. */
static void parts_add_up(void **state)
{
    (void)state;
    const double parts[][2] = {{3, 1}, {1, 3}, {2, 4}};
    ech__timed steps[3];
    for (size_t i = 0; i < 3; i++)
        steps[i] = (ech__timed){parts[i][0] + parts[i][1], i};
    size_t first;
    const size_t count = ech__central_steps(steps, 3, &first);
    double sum = 0, time = 0;
    for (size_t i = first; i < first + count; i++) {
        sum += parts[steps[i].index][0] + parts[steps[i].index][1];
        time += steps[i].time;
    }
    assert_true(fabs(sum - time) < 1e-12 && fabs(time / (double)count - 4) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_below_the_median_as_above),
        cmocka_unit_test(no_steps_have_no_centre),
        cmocka_unit_test(parts_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
