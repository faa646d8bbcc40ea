/* The order of a comparison on a simulated machine, whose truth is known: speed that drifts by 10 %, spikes, stolen time, other
 * programs, and start effects of 3 %. Over 1,000 comparisons the intervals must cover the truth and the verdicts must be right. */
#include "compare/rounds.h"
#include "base/rng.h"

#include "support/cmocka_first.h"
#include <math.h>
#include <stdio.h>

typedef struct machine {
    /* What is simulated. */
    uint64_t seed, drawn;
    int arms;
    double step_s[ECH__COMPARE_ARMS]; /* the truth */
    double start_effect; /* of each arm in each start: standard deviation of the logarithm */
    double drift;        /* of the speed, the same for all arms */
    double scatter;      /* of each block */
    double spikes;       /* share of blocks that take up to 3 times as long, seen by no probe */
    double thefts;       /* share of rounds with stolen time, which probes see */
    double foreign;      /* cores that another program uses all the time; arm 1 suffers from it */
    double
        crowding; /* chance in a block that the cores begin to share a physical one (in machines with an even seed, are far apart), for a second or so */
    double start_s; /* that starting takes */
    int stop_after; /* blocks; 0: never */
    int fail_at;    /* the block that fails; 0: none */
    /* Where it stands. */
    double now_s, speed, effects[ECH__COMPARE_ARMS];
    int blocks, starts, ends;
    double theft;
    int theft_left, crowded_left;
    int order[64 * ECH__COMPARE_ARMS];
} machine;

static double uniform(machine *m)
{
    uint32_t words[4];
    ech__rng_block(m->seed, 77, m->drawn++, words);
    return ((double)words[0] + 0.5) / 4294967296.0;
}

static double normal(machine *m)
{
    const double u = uniform(m), v = uniform(m);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static ech_status start(void *self)
{
    machine *m = self;
    for (int i = 0; i < m->arms; i++)
        m->effects[i] = m->start_effect * normal(m);
    m->now_s += m->start_s;
    m->starts++;
    return ECH_OK;
}

static ech_status block(void *self, int arm, double seconds, ech__block *out)
{
    machine *m = self;
    if (m->blocks < (int)(sizeof m->order / sizeof *m->order))
        m->order[m->blocks] = arm;
    m->blocks++;
    if (m->fail_at && m->blocks >= m->fail_at)
        return ECH_E_IO;
    /* The speed wanders, and comes back. */
    m->speed = 0.98 * m->speed + m->drift * sqrt(1 - 0.98 * 0.98) * normal(m);
    if (m->theft_left > 0 && --m->theft_left == 0)
        m->theft = 0;
    if (uniform(m) < m->thefts) {
        m->theft = 0.1 + 0.4 * uniform(m);
        m->theft_left = 1 + (int)(5 * uniform(m));
    }
    double time = m->step_s[arm] * exp(m->effects[arm] + m->speed + m->scatter * normal(m));
    if (uniform(m) < m->spikes)
        time *= 1.2 + 1.8 * uniform(m);
    time *= 1 + m->theft;
    if (arm == 1)
        time *= 1 + m->foreign;
    if (m->crowded_left == 0 && uniform(m) < m->crowding)
        m->crowded_left = 1 + (int)(40 * uniform(m));
    if (m->crowded_left > 0 && m->crowded_left-- && arm == 1)
        time *= 1.6;
    const double took = fmax(seconds, 2 * time);
    m->now_s += took;
    *out = (ech__block){.step_s = time,
                        .steps = 3,
                        .seconds = took,
                        .seen = {.seconds = took,
                                 .foreign = m->foreign,
                                 .stolen = m->theft,
                                 .slow = 1,
                                 .crowded = m->crowded_left > 0 && m->seed % 2 ? 1.8 : 1,
                                 .far = m->crowded_left > 0 && m->seed % 2 == 0 ? 6 : 1}};
    return ECH_OK;
}

static void end(void *self)
{
    machine *m = self;
    m->ends++;
}

static double now(void *self)
{
    return ((machine *)self)->now_s;
}

static bool is_over(void *self)
{
    const machine *m = self;
    return m->stop_after && m->blocks >= m->stop_after;
}

static const ech__rounds_ops ops = {
    .start = start, .block = block, .end = end, .now = now, .is_over = is_over};

static ech__rounds_options options_of(const machine *m)
{
    return (ech__rounds_options){.arms = m->arms,
                                 .budget_s = 600,
                                 .block_s = 0.15,
                                 .thresholds = {1, 1, 1},
                                 .half_width = 0.05,
                                 .seed = m->seed};
}

static machine noisy(uint64_t seed, double ratio)
{
    return (machine){.seed = seed,
                     .arms = 3,
                     .step_s = {0.01, 0.01 / ratio, 0.01},
                     .start_effect = 0.03,
                     .drift = 0.1,
                     .scatter = 0.02,
                     .spikes = 0.05,
                     .thefts = 0.02,
                     .start_s = 1};
}

/* ---- 1,000 comparisons ---- */

static bool is_wrong(ech__decision decision, double truth, double threshold)
{
    return (decision == ECH__DECISION_ABOVE && truth <= threshold) ||
           (decision == ECH__DECISION_BELOW && truth >= threshold) ||
           (decision == ECH__DECISION_EQUAL &&
            fabs(log(truth / threshold)) > log(1 + ECH__COMPARE_BAND));
}

typedef struct tally {
    int covered, wrong, decided, copies_covered, starts;
} tally;

/* Ratios around the threshold, where a verdict is hardest, and far from it. */
static double truth_of(int i)
{
    static const double truths[] = {1, 1, 1.01, 0.98, 1.03, 0.95, 1.1, 1.45, 0.6, 1.9};
    return truths[i % 10];
}

static tally run_many(int count, double start_effect)
{
    tally t = {0};
    for (int i = 0; i < count; i++) {
        const double truth = truth_of(i);
        machine m = noisy(1000 + (uint64_t)i, truth);
        m.start_effect = start_effect;
        const ech__rounds_options o = options_of(&m);
        ech__rounds r;
        assert_int_equal(ech__rounds_run(&o, &ops, &m, &r), ECH_OK);
        const ech__ratio ratio = ech__rounds_ratio(&r, 1), copy = ech__rounds_ratio(&r, 2);
        const ech__decision decision = ech__rounds_decide(&r, 1, 1);
        t.covered += ratio.low <= truth && truth <= ratio.high;
        t.copies_covered += copy.low <= 1 && 1 <= copy.high;
        t.wrong += is_wrong(decision, truth, 1);
        t.decided += decision != ECH__DECISION_UNDECIDED;
        t.starts += r.starts;
        assert_int_equal(m.starts, m.ends);
    }
    return t;
}

static void intervals_cover_the_truth(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    const tally t = run_many(COUNT, 0.03);
    printf("of %d comparisons: %.1f %% of the intervals cover the truth (copies %.1f %%), %.1f %% "
           "of the verdicts are wrong, "
           "%.1f %% are decided after %.1f starts\n",
           COUNT, 100.0 * t.covered / COUNT, 100.0 * t.copies_covered / COUNT,
           100.0 * t.wrong / COUNT, 100.0 * t.decided / COUNT, (double)t.starts / COUNT);
    assert_true(t.covered >= 93 * COUNT / 100);
    assert_true(t.copies_covered >= 93 * COUNT / 100);
    assert_true(t.wrong <= 5 * COUNT / 100);
    assert_true(t.decided >= 55 * COUNT / 100); /* an engine that never decides is right too */
}

/* On a machine without start effects, equal arms are found to be equal. */
static void equal_arms_are_found_equal(void **state)
{
    (void)state;
    int equal = 0;
    for (int i = 0; i < 100; i++) {
        machine m = noisy(5000 + (uint64_t)i, 1);
        m.start_effect = 0.003;
        const ech__rounds_options o = options_of(&m);
        ech__rounds r;
        assert_int_equal(ech__rounds_run(&o, &ops, &m, &r), ECH_OK);
        equal += ech__rounds_decide(&r, 1, 1) == ECH__DECISION_EQUAL;
    }
    printf("%d of 100 equal pairs were found to be equal\n", equal);
    assert_true(equal >= 75);
}

/* ---- the order ---- */

static void every_arm_runs_once_a_round_in_any_order(void **state)
{
    (void)state;
    machine m = noisy(1, 1.5);
    m.thefts = 0;
    const ech__rounds_options o = options_of(&m);
    ech__rounds r;
    int first[3] = {0};
    assert_int_equal(ech__rounds_run(&o, &ops, &m, &r), ECH_OK);
    for (int round = 0; round < 48; round++) {
        int seen = 0;
        for (int i = 0; i < 3; i++)
            seen |= 1 << m.order[3 * round + i];
        assert_int_equal(seen, 7);
        first[m.order[3 * round]]++;
    }
    for (int arm = 0; arm < 3; arm++)
        assert_true(first[arm] >= 6);
    assert_int_equal(r.kept, 7 * r.starts); /* and one more round of each start warmed up */
    assert_int_equal(r.blocks, 3 * 8 * r.starts);
    assert_true(r.is_decided && r.starts >= ECH__COMPARE_FEWEST_STARTS);
}

static void disturbed_rounds_are_dropped_and_made_up_for(void **state)
{
    (void)state;
    machine m = noisy(2, 1.5);
    m.thefts = 0.05;
    const ech__rounds_options o = options_of(&m);
    ech__rounds r;
    assert_int_equal(ech__rounds_run(&o, &ops, &m, &r), ECH_OK);
    assert_true(r.dropped > 0);
    assert_true(r.average.stolen <= ECH__DISTURBED_STOLEN);
    assert_int_equal(r.disturbed, 0);
    assert_int_equal(ech__rounds_decide(&r, 1, 1), ECH__DECISION_ABOVE);
}

/* A hypervisor that runs both cores on one physical core for some seconds now and then, or moves one to another L3 cache: two
 * devices are then slower. Rounds and whole starts with that do not count, and the result is that of the other ones. */
static void crowded_cores_do_not_count(void **state)
{
    (void)state;
    int covered = 0, decided = 0, dropped = 0;
    for (int i = 0; i < 100; i++) {
        machine m = noisy(7000 + (uint64_t)i, 1.45);
        m.crowding = 0.01;
        const ech__rounds_options o = options_of(&m);
        ech__rounds r;
        assert_int_equal(ech__rounds_run(&o, &ops, &m, &r), ECH_OK);
        const ech__ratio ratio = ech__rounds_ratio(&r, 1);
        covered += ratio.low <= 1.45 && 1.45 <= ratio.high;
        decided += ech__rounds_decide(&r, 1, 1) == ECH__DECISION_ABOVE;
        dropped += r.dropped > 0;
    }
    printf("crowded cores: %d of 100 cover the truth, %d decided, %d dropped rounds\n", covered,
           decided, dropped);
    assert_true(covered >= 93 && decided >= 95 && dropped >= 90);
}

/* Another program on one core makes the second arm, which needs both, slower. The copy does not show it: no verdict. */
static void load_that_stays_leaves_it_undecided(void **state)
{
    (void)state;
    machine m = noisy(3, 1.45);
    m.foreign = 1;
    const ech__rounds_options o = options_of(&m);
    ech__rounds r;
    assert_int_equal(ech__rounds_run(&o, &ops, &m, &r), ECH_OK);
    assert_true(r.starts >= ECH__COMPARE_FEWEST_STARTS);
    assert_int_equal(r.disturbed, r.starts);
    assert_true(r.counts_disturbed && r.average.foreign > 0.9);
    assert_true(ech__rounds_ratio(&r, 1).ratio < 0.9);
    assert_int_equal(ech__rounds_decide(&r, 1, 1), ECH__DECISION_UNDECIDED);
}

/* ---- the budget ---- */

static void the_budget_holds(void **state)
{
    (void)state;
    for (double budget = 5; budget < 80; budget += 5) {
        machine m = noisy(4, 1.02);
        ech__rounds_options o = options_of(&m);
        ech__rounds r;
        o.budget_s = budget;
        assert_int_equal(ech__rounds_run(&o, &ops, &m, &r), ECH_OK);
        assert_true(m.now_s <= 1.1 * budget || r.starts <= 1);
        assert_true(r.starts < ECH__COMPARE_FEWEST_STARTS || budget > 14);
        assert_true(r.starts >= ECH__COMPARE_FEWEST_STARTS || budget < 25);
    }
}

/* Long steps: fewer rounds, so that six starts fit. */
static void rounds_are_fewer_where_steps_are_long(void **state)
{
    (void)state;
    machine m = noisy(6, 1.5);
    m.step_s[0] = m.step_s[2] = 0.6;
    m.step_s[1] = 0.4;
    m.thefts = 0;
    ech__rounds_options o = options_of(&m);
    ech__rounds r;
    o.budget_s = 100;
    assert_int_equal(ech__rounds_run(&o, &ops, &m, &r), ECH_OK);
    assert_true(r.starts >= ECH__COMPARE_FEWEST_STARTS);
    assert_true(r.kept < 7 * r.starts && r.kept >= 3 * r.starts);
    assert_true(m.now_s < 105);
}

static void stopped_it_keeps_what_is_known(void **state)
{
    (void)state;
    machine m = noisy(7, 1.5);
    m.stop_after = 3 * 8 * 2 + 10; /* in the third start, before it has enough rounds */
    const ech__rounds_options o = options_of(&m);
    ech__rounds r;
    assert_int_equal(ech__rounds_run(&o, &ops, &m, &r), ECH_OK);
    assert_true(r.was_stopped);
    assert_in_range(r.starts, 2, 3);
    assert_int_equal(m.starts, m.ends);
    assert_int_equal(ech__rounds_decide(&r, 1, 1), ECH__DECISION_UNDECIDED);
}

static void an_arm_that_fails_ends_it(void **state)
{
    (void)state;
    machine m = noisy(8, 1.5);
    m.thefts = 0;
    m.fail_at = 3 * 8 + 5;
    const ech__rounds_options o = options_of(&m);
    ech__rounds r;
    assert_int_equal(ech__rounds_run(&o, &ops, &m, &r), ECH_E_IO);
    assert_int_equal(r.starts, 1);
    assert_int_equal(m.starts, m.ends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intervals_cover_the_truth),
        cmocka_unit_test(equal_arms_are_found_equal),
        cmocka_unit_test(every_arm_runs_once_a_round_in_any_order),
        cmocka_unit_test(disturbed_rounds_are_dropped_and_made_up_for),
        cmocka_unit_test(crowded_cores_do_not_count),
        cmocka_unit_test(load_that_stays_leaves_it_undecided),
        cmocka_unit_test(the_budget_holds),
        cmocka_unit_test(rounds_are_fewer_where_steps_are_long),
        cmocka_unit_test(stopped_it_keeps_what_is_known),
        cmocka_unit_test(an_arm_that_fails_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
