/* One device that is late in every step, and what the others do meanwhile. */
#include "lab/shared.h"

#include <math.h>
#include <stdio.h>

static const ech__lab_param params[] = {
    ECH__LAB_STACK_PARAMS,
    {"late", 5, 5, 1, 60000,
     "shortest delay of rank 0 in ms; twice and four times as much are run too"},
    {0},
};

static const int64_t TIMES[] = {0, 1, 2, 4};
enum { DELAYS = sizeof TIMES / sizeof *TIMES, RANK_COLUMNS = 8 };

static ech__lab_id run_of(int d, int64_t n)
{
    return ech__lab_name("late%d_n%" PRId64, d, n);
}

static void runs(ech__lab_runs *lab)
{
    const ech__lab_stack stack = ech__lab_stack_of(lab);
    const int64_t unit = ech__lab_param_of(lab, "late");
    if (ech__lab_devices(lab) < 2) {
        ech__lab_skip(lab, "late", "one device waits for nobody");
        return;
    }
    ech__lab_plan(lab, "plan", stack, NULL); /* measures the exchange that emulation prices */
    for (size_t i = 1; i < ech__lab_devices(lab); i++) {
        const int64_t n = ech__lab_device(lab, i);
        for (int d = 0; d < DELAYS; d++) {
            const ech__lab_phrase more = ech__lab_print("--straggle 0:%" PRId64, TIMES[d] * unit);
            ech__lab_train(lab, run_of(d, n).s, stack, n, TIMES[d] ? more.s : NULL);
        }
    }
}

/* ---- figures ---- */

static void name_figures(ech__sheet *s)
{
    for (int d = 0; d < DELAYS; d++)
        ech__tell_let(s, ech__lab_name("late%d", d).s, "seconds", "%" PRId64 " / 1000",
                      TIMES[d] * ech__tell_param(s, "late"));
    for (size_t i = 1; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        char pairs[400];
        size_t used = 0;
        ech__tell_let(s, ech__lab_name("n%" PRId64, n).s, "integer", "%" PRId64, n);
        for (int d = 0; d < DELAYS; d++) {
            const ech__lab_id time = ech__lab_name("t%d_%" PRId64, d, n);
            ech__tell_let(s, time.s, "seconds", "steps[%s time_s]", run_of(d, n).s);
            used += (size_t)snprintf(pairs + used, sizeof pairs - used, "%slate%d, %s",
                                     d ? ", " : "", d, time.s);
        }
        ech__tell_let(s, ech__lab_name("slope%" PRId64, n).s, "fixed2", "slope(%s)", pairs);
        ech__tell_let(s, ech__lab_name("line%" PRId64, n).s, "fixed3", "rsquared(%s)", pairs);
    }
}

/* ---- table and plots ---- */

static void tell_straggler(ech__sheet *s, const char *run)
{
    if (!ech__tell_value(s, "[%s summary.communication.straggler.rank]", run).known) {
        if (ech__tell_has(s, run))
            ech__tell_words(s, "none");
        else
            ech__tell_none(s);
        ech__tell_none(s);
        return;
    }
    ech__tell_plain(s, "[%s summary.communication.straggler.rank]", run);
    ech__tell_plain(s, "[%s summary.communication.straggler.ms]", run);
}

static void tell_total(ech__sheet *s)
{
    ech__tell_table(s, "One late device", NULL);
    ech__tell_column(s, "devices", "integer");
    ech__tell_column(s, "rank 0 is late by", "seconds");
    ech__tell_column(s, "time/step", "seconds");
    ech__tell_column(s, "more than without", "seconds");
    ech__tell_column(s, "straggler found", "integer");
    ech__tell_column(s, "its excess", "fixed2 ms");
    for (size_t i = 1; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        for (int d = 0; d < DELAYS; d++) {
            ech__tell_row(s);
            ech__tell_plain(s, "%" PRId64, n);
            ech__tell_plain(s, "late%d", d);
            ech__tell_cell(s, "t%d_%" PRId64, d, n);
            if (d)
                ech__tell_cell(s, "t%d_%" PRId64 " - t0_%" PRId64, d, n, n);
            else
                ech__tell_none(s);
            tell_straggler(s, run_of(d, n).s);
        }
    }
}

static void tell_waits(ech__sheet *s)
{
    const int64_t most = ech__tell_most(s);
    const int64_t ranks = most < RANK_COLUMNS ? most : RANK_COLUMNS;
    ech__tell_table(s, "Wait of every rank",
                    "Medians of the time in which a rank waited for another one.");
    ech__tell_column(s, "devices", "integer");
    ech__tell_column(s, "rank 0 is late by", "seconds");
    for (int64_t r = 0; r < ranks; r++)
        ech__tell_column(s, ech__lab_print("rank %" PRId64, r).s, "seconds");
    for (size_t i = 1; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        for (int d = 0; d < DELAYS; d++) {
            ech__tell_row(s);
            ech__tell_plain(s, "%" PRId64, n);
            ech__tell_plain(s, "late%d", d);
            for (int64_t r = 0; r < ranks; r++) {
                if (r < n)
                    ech__tell_plain(s, "steps[%s rank_wait_s.%" PRId64 "]", run_of(d, n).s, r);
                else
                    ech__tell_none(s);
            }
        }
    }
}

/* What each rank of the latest run does with a step. */
static void tell_ranks(ech__sheet *s, int64_t n)
{
    const int last = DELAYS - 1;
    const ech__lab_id run = run_of(last, n);
    const int64_t ranks = n < ECH__LAB_SHARED_MOST ? n : ECH__LAB_SHARED_MOST;
    ech__tell_plot(s, "stacked",
                   ech__lab_print("A step of %" PRId64 " devices, rank 0 late by %" PRId64 " ms", n,
                                  TIMES[last] * ech__tell_param(s, "late"))
                       .s,
                   NULL);
    ech__tell_y(s, (ech__tell_axis){.label = "time", .unit = "s"});
    ech__tell_bar_format(s, "seconds");
    for (int64_t r = 0; r < ranks; r++)
        ech__tell_category(s, "rank %" PRId64, r);
    ech__tell_series(s, "computing");
    for (int64_t r = 0; r < ranks; r++) {
        const ech__lab_phrase of = ech__lab_print("summary.communication.ranks.%" PRId64, r);
        ech__tell_bar(s, "[%s %s.forward_s] + [%s %s.backward_s] + [%s %s.optimizer_s]%s", run.s,
                      of.s, run.s, of.s, run.s, of.s, r ? "" : ech__lab_print(" - late%d", last).s);
    }
    ech__tell_series(s, "being late");
    for (int64_t r = 0; r < ranks; r++)
        ech__tell_bar(s, "%s", r ? "0" : ech__lab_name("late%d", last).s);
    ech__tell_series(s, "waiting for the slowest");
    for (int64_t r = 0; r < ranks; r++)
        ech__tell_bar(s, "[%s summary.communication.ranks.%" PRId64 ".wait_s]", run.s, r);
    ech__tell_series(s, "exchanging gradients");
    for (int64_t r = 0; r < ranks; r++) {
        const ech__lab_phrase of = ech__lab_print("summary.communication.ranks.%" PRId64, r);
        ech__tell_bar(s, "[%s %s.comm_exposed_s]", run.s, of.s);
    }
}

static void tell_lines(ech__sheet *s)
{
    ech__tell_plot(s, "lines", "Time per step with one late device", NULL);
    ech__tell_x(s, (ech__tell_axis){.label = "rank 0 is late by", .unit = "ms"});
    ech__tell_y(s, (ech__tell_axis){.label = "time per step", .unit = "ms"});
    for (size_t i = 1; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        ech__tell_series(s, "%" PRId64 " devices", n);
        for (int d = 0; d < DELAYS; d++)
            ech__tell_point(s, (double)(TIMES[d] * ech__tell_param(s, "late")),
                            "1000 * t%d_%" PRId64, d, n);
    }
}

/* ---- answers ---- */

static void answer_total(ech__sheet *s)
{
    const int last = DELAYS - 1;
    ech__tell_ask(s, "What happens to the total time?");
    for (size_t i = 1; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        const ech__lab_id slope = ech__lab_name("slope%" PRId64, n);
        ech__tell_sayf(
            s,
            "On {n%" PRId64 "} devices a step takes {t0_%" PRId64 "}, and {t%d_%" PRId64
            "} when one of them is late by {late%d}: each millisecond of it adds {%s} ms ({%s.low} "
            "to {%s.high}), and a line explains {line%" PRId64 "} of the variance.",
            n, n, last, n, last, slope.s, slope.s, slope.s, n);
        /* An N-th of the delay is what it would cost if the others took over its work. */
        ech__tell_let(s, ech__lab_name("shared%" PRId64, n).s, "fixed2", "1 / %" PRId64, n);
        const double low = ech__tell_value(s, "%s", slope.s).low;
        if (isnan(low))
            continue;
        if (low > 0.9)
            ech__tell_say(s, "So all of the delay is in the step of all devices.");
        else if (low > 1.0 / (double)n)
            ech__tell_sayf(s, "So more than the {shared%" PRId64 "} that sharing it would cost.",
                           n);
        else
            ech__tell_sayf(s,
                           "That this is more than the {shared%" PRId64
                           "} that sharing it would cost cannot be told.",
                           n);
    }
    ech__tell_say_emulated(s);
}

static void say_ranks(ech__sheet *s, int64_t n)
{
    const int last = DELAYS - 1;
    const int64_t ranks = n < RANK_COLUMNS ? n : RANK_COLUMNS;
    const ech__lab_id run = run_of(last, n);
    ech__lab_phrase sum = {"0"}, list = {""};
    for (int64_t r = 0; r < ranks; r++) {
        const ech__lab_id wait = ech__lab_name("wait%" PRId64, r),
                          rank = ech__lab_name("rank%" PRId64, r);
        ech__tell_let(s, wait.s, "seconds", "steps[%s rank_wait_s.%" PRId64 "]", run.s, r);
        ech__tell_let(s, rank.s, "integer", "%" PRId64, r);
        sum = ech__lab_print("%.400s + %s", sum.s, wait.s);
        list =
            ech__lab_print("%.800s%s rank {%s} waits {%s}", list.s, r ? "," : "", rank.s, wait.s);
    }
    ech__tell_let(s, "idle", "percent0", "(%s) / (%" PRId64 " * t%d_%" PRId64 ")", sum.s, ranks,
                  last, n);
    ech__tell_sayf(s,
                   "On {n%" PRId64
                   "} devices with one late by {late%d},%s in a step of {t%d_%" PRId64
                   "}: {idle} of the time of all of them.",
                   n, last, list.s, last, n);
}

static void answer_waits(ech__sheet *s)
{
    const int last = DELAYS - 1;
    const int64_t n = ech__tell_most_real(s) > 1 ? ech__tell_most_real(s) : ech__tell_device(s, 1);
    const ech__lab_id run = run_of(last, n);
    ech__tell_ask(s, "What does it say of synchronisation?");
    ech__tell_say(s,
                  "Gradients are added up over all devices, so nobody goes on before the last one "
                  "has them.");
    say_ranks(s, n);
    if (!ech__tell_has(s, run.s))
        return;
    if (!ech__tell_value(s, "[%s summary.communication.straggler.rank]", run.s).known) {
        ech__tell_say(s, "No straggler was found in the records, although there is one.");
        return;
    }
    ech__tell_let(s, "straggler", "integer", "[%s summary.communication.straggler.rank]", run.s);
    ech__tell_let(s, "excess", "fixed1 ms", "[%s summary.communication.straggler.ms]", run.s);
    ech__tell_let(s, "often", "percent0", "[%s summary.communication.straggler.share_of_steps]",
                  run.s);
    ech__tell_sayf(
        s,
        "The records name the straggler without being told: rank {straggler}, last in {often} "
        "of the steps, with {excess} more than the others in the %s pass.",
        ech__tell_text(s, run.s, "summary.communication.straggler.phase"));
    if (ech__tell_value(s, "straggler").value > 0)
        ech__tell_say(s, "That is not the one that was made late.");
}

static void tell(ech__sheet *s)
{
    if (ech__tell_most(s) < 2) {
        ech__tell_ask(s, "What happens to the total time?");
        ech__tell_alone(s);
        return;
    }
    name_figures(s);
    tell_total(s);
    tell_waits(s);
    tell_lines(s);
    for (size_t i = 1; i < ech__tell_devices(s); i++)
        tell_ranks(s, ech__tell_device(s, i));
    answer_total(s);
    answer_waits(s);
}

const ech__study_card ech__study_imbalance = {
    .id = "imbalance",
    .group = 'A',
    .place = 7,
    .title = "One late device",
    .about = "Rank 0 idles for a while in every step, and the others wait for it.",
    .params = params,
    .quick_seconds = 10,
    .full_seconds = 100,
    .runs = runs,
    .tell = tell,
};
