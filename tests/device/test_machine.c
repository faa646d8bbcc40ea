/* Which cores a rank gets, on machines that are made up and on this one. */
#include "device/machine.h"
#include "support/cmocka_first.h"
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* A machine with `threads` hardware threads a core, numbered as Linux often does: first ones of all cores first. */
static ech__cores machine(int cores, int threads)
{
    ech__cores c = {.cores = cores};
    for (int core = 0; core < cores; core++) {
        for (int t = 0; t < threads; t++) {
            c.thread[c.count].id = t * cores + core;
            c.thread[c.count++].core = core;
        }
    }
    return c;
}

/* The shares of all ranks as text: "0 1|2 3". */
static const char *shares(const ech__cores *c, int ranks)
{
    static char text[512];
    int used = 0, ids[64];
    for (int r = 0; r < ranks; r++) {
        const int n = ech__share_cores(c, r, ranks, ids, 64);
        assert_true(n > 0);
        for (int i = 0; i < n; i++)
            used += snprintf(text + used, sizeof text - (size_t)used, "%s%d",
                             i ? " " : (r ? "|" : ""), ids[i]);
    }
    return text;
}

static void cores_are_shared_evenly(void **state)
{
    (void)state;
    const ech__cores c = machine(8, 1);
    assert_string_equal(shares(&c, 1), "0 1 2 3 4 5 6 7");
    assert_string_equal(shares(&c, 2), "0 1 2 3|4 5 6 7");
    assert_string_equal(shares(&c, 3), "0 1|2 3 4|5 6 7");
    assert_string_equal(shares(&c, 8), "0|1|2|3|4|5|6|7");
}

static void whole_cores_come_before_their_second_threads(void **state)
{
    (void)state;
    const ech__cores c = machine(4, 2);
    assert_string_equal(shares(&c, 1), "0 1 2 3 4 5 6 7");
    assert_string_equal(shares(&c, 2), "0 1 4 5|2 3 6 7");
    assert_string_equal(shares(&c, 4), "0 4|1 5|2 6|3 7");
    assert_string_equal(shares(&c, 8), "0|1|2|3|4|5|6|7");
    assert_string_equal(shares(&c, 5), "0|1|2|3|4");
}

static void cores_may_have_different_numbers_of_threads(void **state)
{
    (void)state;
    /* Three threads of the first core, one of the second, two of the third may be used. */
    const ech__cores c = {
        .count = 6, .cores = 3, .thread = {{1, 0}, {2, 0}, {3, 0}, {8, 1}, {10, 2}, {11, 2}}};
    assert_string_equal(shares(&c, 1), "1 8 10 2 11 3");
    assert_string_equal(shares(&c, 3), "1 2 3|8|10 11");
    assert_string_equal(shares(&c, 7), "1|8|10|2|11|3|1");
}

static void more_ranks_than_threads_share_them(void **state)
{
    (void)state;
    const ech__cores c = machine(2, 1);
    assert_string_equal(shares(&c, 5), "0|1|0|1|0");
    const ech__cores one = machine(1, 1);
    assert_string_equal(shares(&one, 3), "0|0|0");
}

static void no_more_are_written_than_there_is_room_for(void **state)
{
    (void)state;
    const ech__cores c = machine(8, 2);
    int ids[4] = {-1, -1, -1, -1};
    assert_int_equal(ech__share_cores(&c, 0, 1, ids, 3), 3);
    assert_int_equal(ids[2], 2);
    assert_int_equal(ids[3], -1);
}

/* 2048 cores of two threads each, for 3 ranks and for more ranks than there are cores. */
static void thousands_of_cores_are_shared(void **state)
{
    (void)state;
    enum { CORES = 2048, ALL = 2 * CORES };
    static ech__cores c;
    static int ids[ALL];
    static bool given[ALL];
    c = machine(CORES, 2);
    assert_int_equal(c.count, ALL);
    int total = 0;
    for (int r = 0; r < 3; r++) {
        const int n = ech__share_cores(&c, r, 3, ids, ALL);
        for (int i = 0; i < n; i++) {
            assert_in_range(ids[i], 0, ALL - 1);
            assert_false(given[ids[i]]);
            given[ids[i]] = true;
        }
        total += n;
    }
    assert_int_equal(total, ALL);
    assert_int_equal(ech__share_cores(&c, CORES + 1, ALL, ids, ALL), 1);
    assert_int_equal(ids[0], CORES + 1);
}

static void only_cores_that_may_be_used_are_given(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    ech__cores all;
    assert_int_equal(ech__machine_cores(ctx, &all), ECH_OK);
    assert_int_equal(all.count, CPU_COUNT(&before));
    assert_in_range(all.cores, 1, all.count);
    const int last = all.thread[all.count - 1].id;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    int ids[8], count;
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(ech__machine_share_cores(ctx, rank, 2, ids, 8, &count), ECH_OK);
        assert_int_equal(count, 1);
        assert_int_equal(ids[0], last);
    }
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    ech_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_are_shared_evenly),
        cmocka_unit_test(whole_cores_come_before_their_second_threads),
        cmocka_unit_test(cores_may_have_different_numbers_of_threads),
        cmocka_unit_test(more_ranks_than_threads_share_them),
        cmocka_unit_test(no_more_are_written_than_there_is_room_for),
        cmocka_unit_test(thousands_of_cores_are_shared),
        cmocka_unit_test(only_cores_that_may_be_used_are_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
