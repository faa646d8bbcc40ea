#include "support/cmocka_first.h"

#include "comm/launch/binding.h"

/* A mask of the cores from first to last. */
static ech__cpus cores(int first, int last)
{
    ech__cpus set = {0};
    for (int c = first; c <= last; c++)
        ech__cpus_add(&set, c);
    return set;
}

static void unbound_ranks_share(void **state)
{
    (void)state;
    const ech__cpus masks[] = {cores(0, 7), cores(0, 7), cores(0, 7)};
    bool sharing[3];
    ech__cpus mask;
    assert_int_equal(ech__binding_judge(masks, 3, 8, sharing, &mask), ECH__BINDING_SHARE);
    assert_int_equal(ech__binding_judge(masks, 1, 8, sharing, &mask), ECH__BINDING_KEEP);
}

/* Ranks whose cores are beyond the first 1024 are told apart. */
static void high_cores_count(void **state)
{
    (void)state;
    const ech__cpus masks[] = {cores(2000, 2001), cores(2002, 2003), cores(4000, 4000)};
    bool sharing[3];
    ech__cpus mask;
    assert_int_equal(ech__binding_judge(masks, 3, 4096, sharing, &mask), ECH__BINDING_KEEP);
    const ech__cpus same[] = {cores(3000, 3000), cores(3000, 3000)};
    assert_int_equal(ech__binding_judge(same, 2, 4096, sharing, &mask), ECH__BINDING_SHARED);
    assert_true(ech__cpus_has(&mask, 3000));
}

static void bound_ranks_are_left_alone(void **state)
{
    (void)state;
    const ech__cpus masks[] = {cores(0, 0), cores(1, 1), cores(2, 3)};
    bool sharing[3];
    ech__cpus mask;
    assert_int_equal(ech__binding_judge(masks, 3, 8, sharing, &mask), ECH__BINDING_KEEP);
}

static void ranks_on_one_core_are_found(void **state)
{
    (void)state;
    const ech__cpus masks[] = {cores(0, 1), cores(2, 2), cores(3, 3), cores(2, 2)};
    bool sharing[4];
    ech__cpus mask;
    assert_int_equal(ech__binding_judge(masks, 4, 4, sharing, &mask), ECH__BINDING_SHARED);
    assert_false(sharing[0]);
    assert_true(sharing[1]);
    assert_false(sharing[2]);
    assert_true(sharing[3]);
    assert_true(ech__cpus_count(&mask) == 1 && ech__cpus_has(&mask, 2));
}

static void too_many_ranks_are_no_mistake(void **state)
{
    (void)state;
    const ech__cpus masks[] = {cores(0, 1), cores(0, 1), cores(0, 1), cores(0, 1)};
    bool sharing[4];
    ech__cpus mask;
    assert_int_equal(ech__binding_judge(masks, 4, 2, sharing, &mask), ECH__BINDING_KEEP);
    assert_int_equal(ech__binding_judge(masks, 4, 4, sharing, &mask), ECH__BINDING_SHARED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unbound_ranks_share),
        cmocka_unit_test(high_cores_count),
        cmocka_unit_test(bound_ranks_are_left_alone),
        cmocka_unit_test(ranks_on_one_core_are_found),
        cmocka_unit_test(too_many_ranks_are_no_mistake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
