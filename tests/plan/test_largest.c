/* The search for the largest batch: right whatever the sizes do, and with few questions where they grow on a line. */
#include "plan/largest.h"
#include "support/cmocka_first.h"

typedef struct sizes {
    int64_t fixed, each; /* bytes of nothing, and of a sample */
    int64_t page, jump;  /* rounded up to pages; one more jump for each 100 samples */
    int64_t countable;   /* batches beyond have no size; 0: all have one */
    int asked;
} sizes;

static int64_t size_of(const sizes *s, int64_t batch)
{
    if (s->countable && batch > s->countable)
        return INT64_MAX;
    const int64_t bytes = s->fixed + s->each * batch + batch / 100 * s->jump;
    return (bytes + s->page - 1) / s->page * s->page;
}

static ech_status ask(void *user, int64_t batch, int64_t *bytes)
{
    sizes *s = user;
    assert_true(batch >= 1 && batch <= INT32_MAX);
    s->asked++;
    *bytes = size_of(s, batch);
    return ECH_OK;
}

static void expect(sizes s, int64_t limit, int most_asked)
{
    int64_t found;
    assert_int_equal(ech__largest_batch(ask, &s, limit, &found), ECH_OK);
    if (found)
        assert_true(size_of(&s, found) <= limit);
    if (found < INT32_MAX)
        assert_true(size_of(&s, found + 1) > limit);
    if (s.asked > most_asked)
        fail_msg("%d questions for a limit of %lld, not %d", s.asked, (long long)limit, most_asked);
}

static void test_on_a_line_few_questions_are_enough(void **state)
{
    (void)state;
    const sizes line = {.fixed = 1000000, .each = 5000, .page = 1};
    for (int64_t limit = 1000000; limit < 2000000000000; limit = limit * 3 / 2)
        expect(line, limit, 5);
}

static void test_steps_do_no_harm(void **state)
{
    (void)state;
    const sizes steps[] = {
        {.fixed = 12345, .each = 77, .page = 4096},
        {.fixed = 0, .each = 1, .page = 65536, .jump = 1000},
        {.fixed = 1 << 20, .each = 10, .page = 64, .jump = 100000},
        {.fixed = 100, .each = 10, .page = 1, .countable = 4000},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        for (int64_t limit = 1; limit < 100000000; limit = limit * 5 / 4 + 1)
            expect(steps[i], limit, 66);
}

static void test_the_ends(void **state)
{
    (void)state;
    int64_t found;
    sizes large = {.fixed = 1000, .each = 10, .page = 1};
    assert_int_equal(ech__largest_batch(ask, &large, 1009, &found), ECH_OK);
    assert_int_equal(found, 0);
    assert_int_equal(ech__largest_batch(ask, &large, 1010, &found), ECH_OK);
    assert_int_equal(found, 1);
    sizes nothing = {.fixed = 8, .page = 1}; /* the batch costs nothing */
    assert_int_equal(ech__largest_batch(ask, &nothing, 8, &found), ECH_OK);
    assert_int_equal(found, INT32_MAX);
    sizes none = {.fixed = 8, .each = 1, .page = 1, .countable = 1};
    assert_int_equal(ech__largest_batch(ask, &none, INT64_MAX - 1, &found), ECH_OK);
    assert_int_equal(found, 1);
}

static ech_status refuse(void *user, int64_t batch, int64_t *bytes)
{
    (void)user;
    *bytes = batch;
    return batch > 4 ? ECH_E_NOMEM : ECH_OK;
}

static void test_a_failure_is_handed_on(void **state)
{
    (void)state;
    int64_t found;
    assert_int_equal(ech__largest_batch(refuse, NULL, 100, &found), ECH_E_NOMEM);
    assert_int_equal(found, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_on_a_line_few_questions_are_enough),
        cmocka_unit_test(test_steps_do_no_harm),
        cmocka_unit_test(test_the_ends),
        cmocka_unit_test(test_a_failure_is_handed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
