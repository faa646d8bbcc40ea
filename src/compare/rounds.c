#include "compare/rounds.h"
#include "base/rng.h"
#include "base/stats.h"

#include <math.h>
#include <string.h>

enum { MOST_ROUNDS = 7, FEWEST_ROUNDS = 3 };

bool ech__is_disturbed(const ech__disturbance *d)
{
    return d->foreign > ECH__DISTURBED_FOREIGN || d->stolen > ECH__DISTURBED_STOLEN ||
           d->slow > ECH__DISTURBED_SLOW || d->crowded > ECH__DISTURBED_CROWDED ||
           d->far > ECH__DISTURBED_FAR;
}

/* Averages over time; of slow, crowded and far the worst. */
static void add_disturbance(ech__disturbance *sum, const ech__disturbance *more)
{
    const double seconds = sum->seconds + more->seconds;
    if (!(seconds > 0))
        return;
    sum->foreign = (sum->foreign * sum->seconds + more->foreign * more->seconds) / seconds;
    sum->stolen = (sum->stolen * sum->seconds + more->stolen * more->seconds) / seconds;
    sum->slow = fmax(sum->slow, more->slow);
    sum->crowded = fmax(sum->crowded, more->crowded);
    sum->far = fmax(sum->far, more->far);
    sum->seconds = seconds;
}

/* One start: times of the rounds so far. */
typedef struct start_times {
    double step_s[ECH__COMPARE_ARMS][ECH__COMPARE_ROUNDS];
    ech__disturbance seen[ECH__COMPARE_ROUNDS];
    int rounds, quiet;
} start_times;

typedef struct engine {
    const ech__rounds_options *o;
    const ech__rounds_ops *ops;
    void *self;
    ech__rounds *out;
    ech__rounds aside; /* logs, times, average, starts and kept of disturbed starts */
    uint64_t drawn;
} engine;

static double elapsed(const engine *e)
{
    return e->ops->now(e->self) - e->o->begin_s;
}

static bool is_over(const engine *e)
{
    return e->out->was_stopped |= e->ops->is_over(e->self);
}

static void shuffle(engine *e, int order[ECH__COMPARE_ARMS])
{
    for (int i = 0; i < e->o->arms; i++)
        order[i] = i;
    for (int i = e->o->arms - 1; i > 0; i--) {
        uint32_t words[4];
        ech__rng_block(e->o->seed, 1, e->drawn++, words);
        const int k = (int)(words[0] % (uint32_t)(i + 1)), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
}

static void say_progress(const engine *e)
{
    ech__rounds *out = e->out;
    const double used = elapsed(e);
    double left = e->o->budget_s - used;
    if (out->round_s > 0 && !out->lacks_time) { /* until the next look, which may be the last */
        int look = out->starts + 1;
        while (!ech__compare_is_look(look))
            look++;
        const double whole = out->start_s + (out->planned + 1) * out->round_s;
        left = fmin(left, (look - out->starts) * whole - out->round * out->round_s);
    }
    out->left_s = fmax(left, 0);
    if (e->ops->progress)
        e->ops->progress(e->self);
}

/* Every arm one block. times NULL: only warms up. */
static ech_status run_round(engine *e, start_times *times)
{
    int order[ECH__COMPARE_ARMS];
    const double begin = e->ops->now(e->self);
    ech__disturbance seen = {0};
    double step_s[ECH__COMPARE_ARMS] = {0};
    shuffle(e, order);
    for (int i = 0; i < e->o->arms; i++) {
        ech__block block = {0};
        if (is_over(e))
            return ECH_OK;
        ECH_TRY(e->ops->block(e->self, order[i], e->o->block_s, &block));
        step_s[order[i]] = block.step_s;
        add_disturbance(&seen, &block.seen);
        e->out->blocks++;
    }
    e->out->round_s = e->ops->now(e->self) - begin;
    if (!times)
        return ECH_OK;
    for (int arm = 0; arm < e->o->arms; arm++)
        times->step_s[arm][times->rounds] = step_s[arm];
    times->seen[times->rounds++] = seen;
    times->quiet += !ech__is_disturbed(&seen);
    return ECH_OK;
}

/* So many that the fewest starts fit into the budget. */
static void plan_rounds(engine *e)
{
    ech__rounds *out = e->out;
    const int missing = ECH__COMPARE_FEWEST_STARTS - out->starts;
    int rounds = MOST_ROUNDS;
    if (missing > 0 && out->round_s > 0) {
        const double start_left = out->start_s * (missing - 1);
        const double each = (e->o->budget_s - elapsed(e) - start_left) / missing;
        rounds = (int)(each / out->round_s) - (missing > 1); /* the warm-up is a round too */
        out->lacks_time = rounds < FEWEST_ROUNDS;
    }
    out->planned = rounds < FEWEST_ROUNDS ? FEWEST_ROUNDS
                   : rounds > MOST_ROUNDS ? MOST_ROUNDS
                                          : rounds;
}

/* kept: the times of count rounds. */
static void add_start(const engine *e, double kept[][ECH__COMPARE_ROUNDS], int count,
                      ech__rounds *to)
{
    for (int arm = 0; arm < e->o->arms; arm++)
        to->logs[arm][to->starts] = ech__compare_start(kept[0], kept[arm], count);
    for (int arm = 0; arm < e->o->arms; arm++) /* which sorts them */
        to->times[arm][to->starts] = ech__stats_of(kept[arm], (size_t)count).median;
    to->starts++;
    to->kept += count;
}

static void take_over(engine *e, const start_times *t)
{
    ech__rounds *out = e->out;
    const bool disturbed = 2 * t->quiet < out->planned;
    ech__rounds *to = disturbed ? &e->aside : out;
    double kept[ECH__COMPARE_ARMS][ECH__COMPARE_ROUNDS];
    int count = 0;
    for (int i = 0; i < t->rounds; i++) {
        if (!disturbed && ech__is_disturbed(&t->seen[i])) {
            out->dropped++;
            continue;
        }
        for (int arm = 0; arm < e->o->arms; arm++)
            kept[arm][count] = t->step_s[arm][i];
        add_disturbance(&to->average, &t->seen[i]);
        count++;
    }
    out->disturbed += disturbed;
    if (disturbed || count)
        add_start(e, kept, count, to);
}

/* Where most starts were disturbed the load is there to stay, and they are all there is. */
static void count_disturbed(engine *e)
{
    ech__rounds *out = e->out;
    const ech__rounds *aside = &e->aside;
    if (aside->starts <= out->starts) {
        out->dropped += aside->kept;
        return;
    }
    out->counts_disturbed = true;
    for (int i = 0; i < aside->starts && out->starts < ECH__COMPARE_STARTS; i++, out->starts++) {
        for (int arm = 0; arm < e->o->arms; arm++) {
            out->logs[arm][out->starts] = aside->logs[arm][i];
            out->times[arm][out->starts] = aside->times[arm][i];
        }
    }
    add_disturbance(&out->average, &aside->average);
    out->kept += aside->kept;
}

static ech_status run_rounds(engine *e, start_times *t)
{
    ech__rounds *out = e->out;
    out->round = 0;
    ECH_TRY(run_round(e, NULL));
    plan_rounds(e);
    while (t->quiet < out->planned && t->rounds < 2 * out->planned && !is_over(e)) {
        /* The first rounds may all be made; to make up for others there must be time. */
        if (t->rounds >= out->planned && elapsed(e) + out->round_s > e->o->budget_s)
            break;
        out->round = t->rounds + 1;
        say_progress(e);
        ECH_TRY(run_round(e, t));
    }
    return ECH_OK;
}

static ech_status run_start(engine *e)
{
    start_times times = {.rounds = 0};
    const double begin = e->ops->now(e->self);
    ech_status status = e->ops->start(e->self);
    e->out->start_s = e->ops->now(e->self) - begin;
    if (status == ECH_OK)
        status = run_rounds(e, &times);
    e->ops->end(e->self);
    /* A start that was cut short counts only where it has what others have at least. */
    if (status == ECH_OK && times.rounds >= (e->out->was_stopped ? FEWEST_ROUNDS : 1))
        take_over(e, &times);
    return status;
}

/* Whether nothing is left to find out about any arm; the copy is no question. */
static bool is_settled(const engine *e)
{
    for (int arm = 1; arm + 1 < e->o->arms; arm++) {
        const ech__ratio r = ech__rounds_ratio(e->out, arm);
        if (ech__compare_judge(&r, e->o->thresholds[arm]) == ECH__DECISION_UNDECIDED ||
            !(ech__ratio_half_width(&r) <= e->o->half_width))
            return false;
    }
    return true;
}

static ech_status run_starts(engine *e)
{
    ech__rounds *out = e->out;
    while (out->starts < ECH__COMPARE_STARTS && e->aside.starts < ECH__COMPARE_STARTS &&
           !is_over(e)) {
        const double whole = out->start_s + (FEWEST_ROUNDS + 1) * out->round_s;
        if (out->start && elapsed(e) + whole > e->o->budget_s)
            break;
        const int before = out->starts;
        out->start++;
        say_progress(e);
        ECH_TRY(run_start(e));
        if (out->starts > before && ech__compare_is_look(out->starts) && is_settled(e)) {
            out->is_decided = true;
            break;
        }
    }
    return ECH_OK;
}

ech_status ech__rounds_run(const ech__rounds_options *options, const ech__rounds_ops *ops,
                           void *self, ech__rounds *out)
{
    engine e = {.o = options, .ops = ops, .self = self, .out = out};
    *out = (ech__rounds){.planned = MOST_ROUNDS, .left_s = -1};
    out->status = run_starts(&e);
    count_disturbed(&e);
    out->left_s = 0;
    return out->status;
}

ech__ratio ech__rounds_ratio(const ech__rounds *rounds, int arm)
{
    return ech__compare_ratio(rounds->logs[arm], rounds->starts, ECH__COMPARE_SHARE);
}

ech__decision ech__rounds_decide(const ech__rounds *rounds, int arm, double threshold)
{
    const ech__ratio r = ech__rounds_ratio(rounds, arm);
    return rounds->counts_disturbed ? ECH__DECISION_UNDECIDED : ech__compare_judge(&r, threshold);
}
