/* A bounded sample of a sequence: whole while it fits, then evenly thinned, the same for the same
 * sequence; and sums over numbers that are not kept. */
#include "base/stats.h"
#include "base/thin.h"

#include "support/cmocka_first.h"
#include <math.h>

enum { CAPACITY = 64 };

static int set_up(void **state)
{
    ech_ctx *ctx;
    if (ech_ctx_create(NULL, &ctx) < 0)
        return -1;
    *state = ctx;
    return 0;
}

static int tear_down(void **state)
{
    ech_ctx_destroy(*state);
    return 0;
}

static ech__thin sample_of(ech_ctx *ctx, int64_t most, int64_t items)
{
    ech__thin thin;
    assert_int_equal(ech__thin_init(ctx, &thin, sizeof(int64_t), most), ECH_OK);
    for (int64_t i = 0; i < items; i++)
        ech__thin_add(&thin, &i);
    return thin;
}

static int64_t item(const ech__thin *thin, int64_t index)
{
    return *(const int64_t *)ech__thin_at(thin, index);
}

static void all_are_kept_while_there_is_room(void **state)
{
    ech__thin thin =
        sample_of(*state, CAPACITY - 1, CAPACITY); /* an odd number has room for one more */
    assert_int_equal(thin.count, CAPACITY);
    assert_int_equal(thin.seen, CAPACITY);
    for (int64_t i = 0; i < CAPACITY; i++)
        assert_int_equal(item(&thin, i), i);
    ech__thin_fini(&thin);
}

/* Each group of `stride` in a row has one item, or none yet where it is the last. */
static void then_one_of_each_group(void **state)
{
    for (int64_t items = CAPACITY + 1; items < 20 * CAPACITY; items++) {
        ech__thin thin = sample_of(*state, CAPACITY, items);
        assert_int_equal(thin.seen, items);
        assert_true(thin.count <= CAPACITY);
        assert_true(thin.count == items / thin.stride || thin.count == items / thin.stride + 1);
        assert_true(items > CAPACITY / 2 * thin.stride && items <= CAPACITY * thin.stride);
        for (int64_t i = 0; i < thin.count; i++)
            assert_int_equal(item(&thin, i) / thin.stride, i);
        ech__thin_fini(&thin);
    }
}

/* A sequence whose every 2^k-th item differs must not be mistaken for that item. */
static void no_rhythm_coincides(void **state)
{
    enum { MANY = 4096, ITEMS = 16 * MANY };
    ech__thin thin = sample_of(*state, MANY, ITEMS), again = sample_of(*state, MANY, ITEMS);
    int64_t hits = 0;
    assert_int_equal(thin.count, MANY);
    for (int64_t i = 0; i < thin.count; i++) {
        hits += item(&thin, i) % 16 == 0;
        assert_int_equal(item(&thin, i), item(&again, i));
    }
    assert_true(hits > MANY / 16 / 2 && hits < MANY / 16 * 2);
    ech__thin_fini(&again);
    ech__thin_fini(&thin);
}

static void moments_are_those_of_the_samples(void **state)
{
    (void)state;
    double samples[1000];
    ech__moments moments = {0};
    assert_true(ech__moments_std(&moments) == 0);
    for (int i = 0; i < 1000; i++) {
        samples[i] = 1e3 + sin(i) - (i == 500 ? 7 : 0);
        ech__moments_add(&moments, samples[i]);
        if (i == 0)
            assert_true(ech__moments_std(&moments) == 0 && moments.min == moments.max);
    }
    const ech__stats stats = ech__stats_of(samples, 1000);
    assert_true(fabs(moments.mean - stats.mean) < 1e-9);
    assert_true(fabs(ech__moments_std(&moments) - stats.std) < 1e-9);
    assert_true(moments.min == stats.min && moments.max == stats.max);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_kept_while_there_is_room),
        cmocka_unit_test(then_one_of_each_group),
        cmocka_unit_test(no_rhythm_coincides),
        cmocka_unit_test(moments_are_those_of_the_samples),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
