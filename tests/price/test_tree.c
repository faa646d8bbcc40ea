#include "support/cmocka_first.h"

#include "price/tree.h"

/* Shards are in order, without gaps, of nearly the same size, and begin at multiples of the grain. */
static void shards_cover(void **state)
{
    (void)state;
    for (int owners = 1; owners <= 9; owners++)
        for (int64_t count = 0; count < 400; count++)
            for (int64_t grain = 1; grain <= 32; grain *= 2) {
                int64_t at = 0, least = INT64_MAX, most = 0;
                for (int i = 0; i < owners; i++) {
                    const ech__range r = ech__shard(count, i, owners, grain);
                    assert_int_equal(r.first, at);
                    assert_true(r.count >= 0);
                    assert_true(r.first % grain == 0 || r.count == 0);
                    at += r.count;
                    least = r.count < least ? r.count : least;
                    most = r.count > most ? r.count : most;
                }
                assert_int_equal(at, count);
                assert_true(most - least <= 2 * grain - 1);
            }
}

static void few_elements_leave_some_empty(void **state)
{
    (void)state;
    assert_int_equal(ech__shard(5, 0, 4, 16).count, 5);
    assert_int_equal(ech__shard(5, 1, 4, 16).count, 0);
    assert_int_equal(ech__shard(5, 3, 4, 16).count, 0);
    assert_int_equal(ech__shard(100, 7, 4, 16).count, 0); /* no owner at all */
}

static void splits_at_powers_of_two(void **state)
{
    (void)state;
    const int first[] = {0, 0, 1, 2, 2, 4, 4, 4, 4, 8};
    for (int n = 2; n < 10; n++)
        assert_int_equal(ech__tree_split(n), first[n]);
    assert_int_equal(ech__tree_split(256), 128);
    assert_int_equal(ech__tree_split(255), 128);
    assert_int_equal(ech__tree_split(257), 256);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_cover),
        cmocka_unit_test(few_elements_leave_some_empty),
        cmocka_unit_test(splits_at_powers_of_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
