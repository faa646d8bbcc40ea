/* A delay in every step that no device can share with another: Amdahl's law made by hand. */
#include "lab/shared.h"

#include <stdio.h>

static const ech__lab_param params[] = {
    ECH__LAB_STACK_PARAMS,
    {"delay", 5, 5, 1, 60000, "shortest delay in ms; twice and four times as much are run too"},
    {0},
};

static const int64_t TIMES[] = {0, 1, 2, 4};
enum { DELAYS = sizeof TIMES / sizeof *TIMES };

static ech__lab_id prefix_of(int d)
{
    return ech__lab_name("d%d_", d);
}

static void runs(ech__lab_runs *lab)
{
    const ech__lab_stack stack = ech__lab_stack_of(lab);
    const int64_t unit = ech__lab_param_of(lab, "delay");
    ech__lab_plan(lab, "plan", stack, NULL); /* measures the exchange that emulation prices */
    for (int d = 0; d < DELAYS; d++) {
        const ech__lab_phrase more = ech__lab_print("--delay-ms %" PRId64, TIMES[d] * unit);
        ech__lab_scaling(lab, prefix_of(d).s, stack, TIMES[d] ? more.s : NULL);
    }
}

/* ---- figures ---- */

/* "delay0, d0_t2, delay1, d1_t2, ..." */
static ech__lab_phrase over_delays(const char *what, int64_t n)
{
    ech__lab_phrase pairs = {""};
    size_t used = 0;
    for (int d = 0; d < DELAYS && used < sizeof pairs.s; d++)
        used += (size_t)snprintf(pairs.s + used, sizeof pairs.s - used, "%sdelay%d, d%d_%s%" PRId64,
                                 d ? ", " : "", d, d, what, n);
    return pairs;
}

static void name_figures(ech__sheet *s)
{
    for (int d = 0; d < DELAYS; d++) {
        ech__tell_let(s, ech__lab_name("delay%d", d).s, "seconds", "%" PRId64 " / 1000",
                      TIMES[d] * ech__tell_param(s, "delay"));
        ech__tell_scaling(s, prefix_of(d).s);
    }
    for (size_t i = 0; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        ech__tell_let(s, ech__lab_name("n%" PRId64, n).s, "integer", "%" PRId64, n);
        ech__tell_let(s, ech__lab_name("slope%" PRId64, n).s, "fixed2", "slope(%s)",
                      over_delays("t", n).s);
        ech__tell_let(s, ech__lab_name("line%" PRId64, n).s, "fixed3", "rsquared(%s)",
                      over_delays("t", n).s);
    }
    if (ech__tell_most(s) < 2)
        return;
    for (int d = 0; d < DELAYS; d++) {
        ech__tell_let(s, ech__lab_name("fitted%d", d).s, "percent1", "amdahl(%s)",
                      ech__tell_pairs(s, prefix_of(d).s, "t").s);
        /* What was serial without a delay, and the delay, which nobody shares. */
        ech__tell_let(s, ech__lab_name("expected%d", d).s, "percent1",
                      "(fitted0 * d0_t1 + delay%d) / (d0_t1 + delay%d)", d, d);
    }
}

/* ---- tables and plots ---- */

static void tell_tables(ech__sheet *s)
{
    ech__tell_table(s, "A delay before the backward pass on every device", NULL);
    ech__tell_column(s, "delay", "seconds");
    ech__tell_scaling_columns(s);
    for (int d = 0; d < DELAYS; d++) {
        for (size_t i = 0; i < ech__tell_devices(s); i++) {
            ech__tell_row(s);
            ech__tell_plain(s, "delay%d", d);
            ech__tell_scaling_cells(s, prefix_of(d).s, ech__tell_device(s, i));
        }
    }
    if (ech__tell_most(s) < 2)
        return;
    ech__tell_table(
        s, "Serial fraction",
        "Expected: the serial part of a step without a delay and the delay, by the time of "
        "that step on one device with it. Fitted: Amdahl's law over the devices.");
    ech__tell_column(s, "delay", "seconds");
    ech__tell_column(s, "expected", "percent1");
    ech__tell_column(s, "fitted", "percent1");
    ech__tell_column(s, "fitted less expected", "percent1");
    for (int d = 0; d < DELAYS; d++) {
        ech__tell_row(s);
        ech__tell_plain(s, "delay%d", d);
        ech__tell_cell(s, "expected%d", d);
        ech__tell_cell(s, "fitted%d", d);
        ech__tell_cell(s, "fitted%d - expected%d", d, d);
    }
}

static void tell_plots(ech__sheet *s)
{
    ech__tell_plot(s, "speedup", "Speedup with a delay in every step", NULL);
    ech__tell_scaling_axes(s);
    for (int d = 0; d < DELAYS; d++)
        ech__tell_scaling_series(
            s, prefix_of(d).s,
            ech__lab_print("%" PRId64 " ms", TIMES[d] * ech__tell_param(s, "delay")).s);

    ech__tell_plot(s, "lines", "Time per step by delay", NULL);
    ech__tell_x(s, (ech__tell_axis){.label = "delay", .unit = "ms"});
    ech__tell_y(s, (ech__tell_axis){.label = "time per step", .unit = "ms"});
    for (size_t i = 0; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        ech__tell_series(s, "%" PRId64 " device%s", n, n == 1 ? "" : "s");
        for (int d = 0; d < DELAYS; d++)
            ech__tell_point(s, (double)(TIMES[d] * ech__tell_param(s, "delay")),
                            "1000 * d%d_t%" PRId64, d, n);
    }
}

/* ---- answers ---- */

static void answer_effect(ech__sheet *s)
{
    const int last = DELAYS - 1;
    ech__tell_ask(s, "What does a delay do to scaling?");
    if (ech__tell_alone(s))
        return;
    for (size_t i = 1; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        const ech__lab_id change = ech__lab_name("change%" PRId64, n);
        ech__tell_let(s, change.s, "fixed2", "d%d_s%" PRId64 " - d0_s%" PRId64, last, n, n);
        const int side = ech__tell_side(s, change.s, 0);
        ech__tell_sayf(s,
                       "A delay of {delay%d} takes the speedup on {n%" PRId64
                       "} devices from {d0_s%" PRId64 "} to {d%d_s%" PRId64 "}, %s ({%s.low} to "
                       "{%s.high}).",
                       last, n, n, last, n,
                       side < 0   ? "clearly less"
                       : side > 0 ? "clearly more, which a delay should not do"
                                  : "which may be no change",
                       change.s, change.s);
    }
    ech__tell_say(s, "The delay is as long on every device, however few samples it has.");
    ech__tell_say_emulated(s);
}

static void answer_linear(ech__sheet *s)
{
    const int64_t n = ech__tell_most(s);
    ech__tell_ask(s, "Is the effect linear?");
    for (size_t i = 0; i < ech__tell_devices(s); i++) {
        const int64_t devices = ech__tell_device(s, i);
        ech__tell_sayf(s,
                       "On {n%" PRId64 "} device%s a millisecond of delay adds {slope%" PRId64
                       "} ms ({slope%" PRId64 ".low} to {slope%" PRId64
                       ".high}) to the step; a line explains {line%" PRId64 "} of the variance.",
                       devices, devices == 1 ? "" : "s", devices, devices, devices, devices);
    }
    double least = 1;
    bool all = true;
    for (size_t i = 0; i < ech__tell_devices(s); i++) {
        const ech__lab_figure line = ech__tell_value(s, "line%" PRId64, ech__tell_device(s, i));
        all = all && line.known;
        least = line.value < least ? line.value : least;
    }
    if (all)
        ech__tell_say(s, least > 0.98 ? "So the time is linear in the delay."
                                      : "So a line does not say all of it here.");
    if (n == 1)
        return;
    ech__tell_let(s, "speedup_line", "fixed3", "rsquared(%s)", over_delays("s", n).s);
    ech__tell_let(s, "first_ms", "fixed3", "(d0_s%" PRId64 " - d1_s%" PRId64 ") / (1000 * delay1)",
                  n, n);
    ech__tell_let(s, "last_ms", "fixed3",
                  "(d2_s%" PRId64 " - d3_s%" PRId64 ") / (1000 * (delay3 - delay2))", n, n);
    ech__tell_sayf(
        s,
        ech__tell_value(s, "first_ms - last_ms").low > 0
            ? "The speedup is not: on {n%" PRId64
              "} devices the first delay costs {first_ms} of it for each millisecond, the "
              "last {last_ms}; it falls towards one, as (one device + delay) / (N devices "
              "+ delay) does."
            : "On {n%" PRId64 "} devices the first delay costs {first_ms} of the speedup for each "
              "millisecond and the last {last_ms}; that the curve bends cannot be told here "
              "(a line explains {speedup_line}).",
        n);
}

static void answer_amdahl(ech__sheet *s)
{
    ech__tell_ask(s, "Which serial fraction does the delay predict, and which is fitted?");
    if (ech__tell_alone(s))
        return;
    ech__tell_say(s, "Without a delay {fitted0} ({fitted0.low} to {fitted0.high}) are serial.");
    for (int d = 1; d < DELAYS; d++) {
        ech__tell_let(s, ech__lab_name("miss%d", d).s, "percent1", "fitted%d - expected%d", d, d);
        const int side = ech__tell_side(s, ech__lab_name("miss%d", d).s, 0);
        ech__tell_sayf(
            s,
            "{delay%d} of delay predict {expected%d}; fitted is {fitted%d} ({fitted%d.low} "
            "to {fitted%d.high}), %s",
            d, d, d, d, d,
            side == 0  ? "which agrees within its interval."
            : side > 0 ? "more than the delay alone explains."
                       : "less than the delay explains.");
    }
}

static void tell(ech__sheet *s)
{
    name_figures(s);
    tell_tables(s);
    tell_plots(s);
    answer_effect(s);
    answer_linear(s);
    answer_amdahl(s);
}

const ech__study_card ech__study_delay = {
    .id = "delay",
    .group = 'A',
    .place = 5,
    .title = "A delay in every step",
    .about = "Every device idles for a while before its backward pass, on one and more devices.",
    .params = params,
    .quick_seconds = 15,
    .full_seconds = 120,
    .runs = runs,
    .tell = tell,
};
