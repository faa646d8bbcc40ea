#include "support/cmocka_first.h"

#include "base/system/clock.h"

/* A gap between two looks that is longer than a waiter ever sleeps was a suspension, whatever its length. */
static void suspended_time_is_not_waited(void **state)
{
    (void)state;
    ech__waited waited = ech__waited_start();
    waited.looked_ns -= (int64_t)3600 * 1000000000;
    assert_true(ech__waited_look(&waited) == 2 * ECH__WAIT_SLICE_NS);
    const int64_t again = ech__waited_look(&waited);
    assert_true(again >= 2 * ECH__WAIT_SLICE_NS && again <= 4 * ECH__WAIT_SLICE_NS);
}

static void waiting_adds_up(void **state)
{
    (void)state;
    ech__waited waited = ech__waited_start();
    for (int i = 0; i < 5; i++) {
        waited.looked_ns -= 30 * 1000 * 1000;
        ech__waited_look(&waited);
    }
    assert_true(waited.total_ns >= 5 * 30 * 1000 * 1000);
}

static void slices_end_at_the_limit(void **state)
{
    (void)state;
    const ech__waited waited = {.total_ns = 1000};
    assert_true(ech__waited_slice(&waited, 1500) == 500);
    assert_true(ech__waited_slice(&waited, 500) == 1);
    assert_true(ech__waited_slice(&waited, (int64_t)10 * ECH__WAIT_SLICE_NS) == ECH__WAIT_SLICE_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(suspended_time_is_not_waited),
        cmocka_unit_test(waiting_adds_up),
        cmocka_unit_test(slices_end_at_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
