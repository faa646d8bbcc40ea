#include "base/system/cpus.h"

#include "support/cmocka_first.h"

static void sets_have_room_for_every_processor(void **state)
{
    (void)state;
    static const int some[] = {0, 63, 64, 1023, 1024, 4095, ECH__MAX_CPUS - 1};
    enum { SOME = sizeof some / sizeof *some };
    ech__cpus set = {0}, other = {0};
    for (int i = 0; i < SOME; i++) {
        assert_false(ech__cpus_has(&set, some[i]));
        ech__cpus_add(&set, some[i]);
        assert_true(ech__cpus_has(&set, some[i]));
        assert_int_equal(ech__cpus_count(&set), i + 1);
    }
    assert_false(ech__cpus_has(&set, 1025));
    assert_false(ech__cpus_equal(&set, &other));
    ech__cpus_add(&other, 5000);
    ech__cpus_add_all(&other, &set);
    assert_int_equal(ech__cpus_count(&other), SOME + 1);
    assert_true(ech__cpus_has(&other, 1024));
}

static void what_is_no_processor_is_in_none(void **state)
{
    (void)state;
    ech__cpus set = {0};
    ech__cpus_add(&set, -1);
    ech__cpus_add(&set, ECH__MAX_CPUS);
    assert_int_equal(ech__cpus_count(&set), 0);
    assert_false(ech__cpus_has(&set, -1));
    assert_false(ech__cpus_has(&set, ECH__MAX_CPUS));
}

/* A set that this thread is bound to is the one that it reads. */
static void binding_and_reading_agree(void **state)
{
    (void)state;
    ech__cpus before, one = {0}, seen;
    int last = ECH__MAX_CPUS - 1;
    assert_true(ech__cpus_read(&before));
    while (!ech__cpus_has(&before, last))
        last--;
    ech__cpus_add(&one, last);
    assert_true(ech__cpus_bind(&one));
    assert_true(ech__cpus_read(&seen));
    assert_true(ech__cpus_equal(&seen, &one));
    assert_true(ech__cpus_bind(&before));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_have_room_for_every_processor),
        cmocka_unit_test(what_is_no_processor_is_in_none),
        cmocka_unit_test(binding_and_reading_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
