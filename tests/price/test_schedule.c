/* Schedules of all-reduces, carried out on numbers that remember how they were added up. */
#include "support/cmocka_first.h"

#include "price/schedule.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 19, ELEMENTS = 45 };

/* A sum, whatever the order of the two terms of each addition. */
typedef struct term {
    uint8_t times[MOST]; /* how often each rank is in it */
    uint64_t order;      /* the same for the same tree of additions */
} term;

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

static term own_term(int64_t rank)
{
    term t = {.order = mix((uint64_t)rank + 1)};
    t.times[rank] = 1;
    return t;
}

static term sum_of(term a, term b)
{
    for (int r = 0; r < MOST; r++)
        a.times[r] += b.times[r];
    const uint64_t low = a.order < b.order ? a.order : b.order;
    const uint64_t high = a.order < b.order ? b.order : a.order;
    a.order = mix(3 * low + 5 * mix(high));
    return a;
}

static term tree_sum(const term *terms, int n)
{
    if (n == 1)
        return terms[0];
    const int half = ech__tree_split(n);
    return sum_of(tree_sum(terms, half), tree_sum(terms + half, n - half));
}

static term data[MOST][ELEMENTS], before[MOST][ELEMENTS];
static ech__move moves[MOST][4 * MOST];
static int64_t counts[MOST];

/* Takes the send that belongs to a receive off the list of its sender. */
static void take_send(int64_t from, int64_t to, ech__range range)
{
    for (int64_t i = 0; i < counts[from]; i++) {
        ech__move *m = &moves[from][i];
        if (m->kind != ECH__MOVE_SEND || m->peer != to || m->range.first != range.first)
            continue;
        assert_int_equal(m->range.count, range.count);
        m->peer = -1;
        return;
    }
    fail_msg("rank %d receives from %d what is not sent", (int)to, (int)from);
}

/* Elements that are sent, or copied, are not touched by another move of the rank in the step. */
static void check_alone(int64_t rank)
{
    for (int64_t i = 0; i < counts[rank]; i++)
        for (int64_t j = 0; j < counts[rank]; j++) {
            const ech__move *a = &moves[rank][i], *b = &moves[rank][j];
            if (i != j && a->kind != ECH__MOVE_SEND &&
                !(a->kind == ECH__MOVE_ADD && b->kind == ECH__MOVE_ADD))
                assert_true(a->range.first + a->range.count <= b->range.first ||
                            b->range.first + b->range.count <= a->range.first);
        }
}

static void receive(int64_t rank, int64_t n)
{
    for (int64_t e = 0; e < ELEMENTS; e++) {
        term terms[MOST];
        int count = 0;
        bool adds = false;
        for (int64_t peer = 0; peer < n; peer++) { /* in the order of the ranks */
            if (peer == rank)
                terms[count++] = before[rank][e];
            for (int64_t i = 0; i < counts[rank]; i++) {
                const ech__move *m = &moves[rank][i];
                if (m->kind == ECH__MOVE_SEND || m->peer != peer || e < m->range.first ||
                    e >= m->range.first + m->range.count)
                    continue;
                if (m->kind == ECH__MOVE_COPY)
                    data[rank][e] = before[peer][e];
                else
                    terms[count++] = before[peer][e], adds = true;
            }
        }
        if (adds)
            data[rank][e] = tree_sum(terms, count);
    }
}

static void run_step(const ech__schedule *s, int64_t step)
{
    memcpy(before, data, sizeof data);
    for (int64_t r = 0; r < s->devices; r++) {
        counts[r] = ech__schedule_moves(s, r, step, moves[r]);
        assert_true(counts[r] <= ech__schedule_most(s));
        for (int64_t i = 0; i < counts[r]; i++) {
            assert_true(moves[r][i].range.count > 0);
            assert_true(moves[r][i].range.first % s->grain == 0);
            assert_true(moves[r][i].peer != r);
        }
        check_alone(r);
    }
    for (int64_t r = 0; r < s->devices; r++)
        receive(r, s->devices);
    for (int64_t r = 0; r < s->devices; r++)
        for (int64_t i = 0; i < counts[r]; i++)
            if (moves[r][i].kind != ECH__MOVE_SEND)
                take_send(moves[r][i].peer, r, moves[r][i].range);
    for (int64_t r = 0; r < s->devices; r++)
        for (int64_t i = 0; i < counts[r]; i++)
            assert_false(moves[r][i].kind == ECH__MOVE_SEND && moves[r][i].peer >= 0);
}

/* Every rank has every rank's numbers once, added in one order; returns whether that is the tree's for all elements. */
static bool check_result(const ech__schedule *s)
{
    term terms[MOST];
    bool tree = true;
    for (int64_t r = 0; r < s->devices; r++)
        terms[r] = own_term(r);
    const term want = tree_sum(terms, (int)s->devices);
    for (int64_t r = 0; r < s->devices; r++)
        for (int64_t e = 0; e < s->count; e++) {
            assert_memory_equal(data[r][e].times, want.times, sizeof want.times);
            assert_true(data[r][e].order == data[0][e].order);
            tree &= data[r][e].order == want.order;
        }
    return tree;
}

static void run(const ech__schedule *s)
{
    for (int64_t r = 0; r < s->devices; r++)
        for (int64_t e = 0; e < ELEMENTS; e++)
            data[r][e] = own_term(r);
    for (int64_t step = 0; step < ech__schedule_steps(s); step++)
        run_step(s, step);
    const bool tree = check_result(s), promised = ech__schedule_keeps_tree(s);
    /* Few elements may keep the tree by chance. */
    if (promised || s->count >= s->devices * s->grain)
        assert_int_equal(tree, promised);
}

static void all_sizes(ech__algorithm algorithm)
{
    for (int64_t n = 1; n <= MOST; n++)
        for (int64_t per_node = 1; per_node <= n + 1; per_node++)
            for (int64_t grain = 1; grain <= 4; grain += 3)
                for (int64_t count = 0; count <= ELEMENTS; count += count < 3 ? 1 : 14)
                    run(&(ech__schedule){algorithm, n, per_node, count, grain});
}

static void ring(void **state)
{
    (void)state;
    all_sizes(ECH__ALGORITHM_RING);
}

static void tree(void **state)
{
    (void)state;
    all_sizes(ECH__ALGORITHM_TREE);
}

static void halving(void **state)
{
    (void)state;
    all_sizes(ECH__ALGORITHM_HALVING);
}

static void hierarchical(void **state)
{
    (void)state;
    all_sizes(ECH__ALGORITHM_HIERARCHICAL);
}

static void direct(void **state)
{
    (void)state;
    all_sizes(ECH__ALGORITHM_DIRECT);
}

/* Messages and bytes are what the algorithms are known for. */
static void costs_are_known(void **state)
{
    (void)state;
    ech__schedule s = {ECH__ALGORITHM_RING, 16, 4, 1600, 1};
    assert_int_equal(ech__schedule_steps(&s), 30);
    s.algorithm = ECH__ALGORITHM_TREE;
    assert_int_equal(ech__schedule_steps(&s), 8);
    s.algorithm = ECH__ALGORITHM_HALVING;
    assert_int_equal(ech__schedule_steps(&s), 8);
    s.algorithm = ECH__ALGORITHM_HIERARCHICAL;
    assert_int_equal(ech__schedule_steps(&s), 2 + 2 * 3);
    s.algorithm = ECH__ALGORITHM_DIRECT;
    assert_int_equal(ech__schedule_steps(&s), 4);
    /* A ring and halving send 2 (N-1)/N of the data from every rank. */
    for (s.algorithm = ECH__ALGORITHM_RING; s.algorithm <= ECH__ALGORITHM_HALVING;
         s.algorithm += ECH__ALGORITHM_HALVING - ECH__ALGORITHM_RING)
        for (int64_t r = 0; r < s.devices; r++) {
            int64_t sent = 0;
            for (int64_t step = 0; step < ech__schedule_steps(&s); step++) {
                const int64_t n = ech__schedule_moves(&s, r, step, moves[0]);
                for (int64_t i = 0; i < n; i++)
                    sent += moves[0][i].kind == ECH__MOVE_SEND ? moves[0][i].range.count : 0;
            }
            assert_int_equal(sent, 3000);
        }
    s = (ech__schedule){ECH__ALGORITHM_HALVING, 1000, 8, 1000, 1};
    assert_int_equal(ech__schedule_steps(&s), 20);
    assert_int_equal(ech__schedule_most(&s), 4); /* blocks 512 256 128 64 32 8 */
    s.devices = 1000000;
    assert_int_equal(ech__schedule_steps(&s), 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring),   cmocka_unit_test(tree),         cmocka_unit_test(halving),
        cmocka_unit_test(direct), cmocka_unit_test(hierarchical), cmocka_unit_test(costs_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
