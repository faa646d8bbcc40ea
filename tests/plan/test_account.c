/* Every instant of a step counts once, whatever the schedule. */
#include "base/rng.h"
#include "plan/account.h"
#include "support/cmocka_first.h"

#include <stdbool.h>

enum { MOST = 12, LENGTH = 100, SCHEDULES = 20000 };

typedef struct list {
    ech__span spans[MOST];
    size_t count;
} list;

typedef struct dice {
    uint64_t seed, next;
} dice;

static int64_t roll(dice *d, int64_t sides)
{
    uint32_t block[4];
    ech__rng_block(d->seed, 1, d->next++, block);
    return (int64_t)(block[0] % (uint32_t)sides);
}

/* Some begin before the step or end after it, some are empty, some overlap. */
static list draw(dice *d)
{
    list l = {.count = (size_t)roll(d, MOST + 1)};
    int64_t start = roll(d, 40) - 20;
    for (size_t i = 0; i < l.count; i++) {
        l.spans[i] = (ech__span){start, start + roll(d, 30)};
        start += roll(d, 25);
    }
    return l;
}

static ech__spans all(const list *l)
{
    return (ech__spans){l->spans, l->count};
}

static bool is_in(const list *l, int64_t now)
{
    for (size_t i = 0; i < l->count; i++) {
        if (l->spans[i].start_ns <= now && now < l->spans[i].end_ns)
            return true;
    }
    return false;
}

static void every_instant_counts_once(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SCHEDULES; seed++) {
        dice d = {.seed = seed};
        const list computing = draw(&d), moving = draw(&d), blocked = draw(&d);
        ech__account expected = {0};
        for (int64_t now = 0; now < LENGTH; now++) {
            const bool computes = is_in(&computing, now), moves = is_in(&moving, now);
            expected.computing_ns += computes;
            expected.exposed_ns += !computes && moves;
            expected.wait_ns += !computes && !moves && is_in(&blocked, now);
            expected.other_ns += !computes && !moves && !is_in(&blocked, now);
            expected.hidden_ns += computes && moves;
        }
        const ech__account a =
            ech__account_for((ech__span){0, LENGTH}, all(&computing), all(&moving), all(&blocked));
        assert_int_equal(a.computing_ns, expected.computing_ns);
        assert_int_equal(a.exposed_ns, expected.exposed_ns);
        assert_int_equal(a.wait_ns, expected.wait_ns);
        assert_int_equal(a.other_ns, expected.other_ns);
        assert_int_equal(a.hidden_ns, expected.hidden_ns);
        assert_int_equal(a.computing_ns + a.exposed_ns + a.wait_ns + a.other_ns, LENGTH);
    }
}

static void a_late_rank_is_waited_for_until_the_bytes_move(void **state)
{
    (void)state;
    /* Computes until 40; the other rank is ready at 60, then bytes move until 75; the update ends at 90. */
    const ech__span computing[] = {{0, 40}, {75, 90}}, moving[] = {{60, 75}},
                    blocked[] = {{40, 75}};
    const ech__account a = ech__account_for((ech__span){0, 95}, (ech__spans){computing, 2},
                                            (ech__spans){moving, 1}, (ech__spans){blocked, 1});
    assert_int_equal(a.computing_ns, 55);
    assert_int_equal(a.wait_ns, 20);
    assert_int_equal(a.exposed_ns, 15);
    assert_int_equal(a.other_ns, 5);
    assert_int_equal(a.hidden_ns, 0);
}

static void an_empty_step_has_no_parts(void **state)
{
    (void)state;
    const ech__span moving[] = {{-5, 5}};
    const ech__account a = ech__account_for((ech__span){0, 0}, (ech__spans){.count = 0},
                                            (ech__spans){moving, 1}, (ech__spans){.count = 0});
    assert_int_equal(a.computing_ns + a.exposed_ns + a.wait_ns + a.other_ns + a.hidden_ns, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instant_counts_once),
        cmocka_unit_test(a_late_rank_is_waited_for_until_the_bytes_move),
        cmocka_unit_test(an_empty_step_has_no_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
