/* The same step on more devices: how much faster, and where the rest of the time stays. */
#include "lab/shared.h"

static const ech__lab_param params[] = {ECH__LAB_STACK_PARAMS, {0}};

static void runs(ech__lab_runs *lab)
{
    const ech__lab_stack stack = ech__lab_stack_of(lab);
    ech__lab_plan(lab, "plan", stack, NULL);
    ech__lab_scaling(lab, "", stack, NULL);
}

/* ---- figures ---- */

/* What N devices take beyond an N-th of one device's time: lostN, and of it computing that does not divide
 * (divideN) and everything else (restN). The exchange and the wait are lost as they are. */
static void name_lost(ech__sheet *s, int64_t n)
{
    ech__tell_let(s, ech__lab_name("lost%" PRId64, n).s, "seconds", "t%" PRId64 " - t1 / %" PRId64,
                  n, n);
    ech__tell_let(s, ech__lab_name("divide%" PRId64, n).s, "seconds",
                  "c%" PRId64 " - c1 / %" PRId64, n, n);
    ech__tell_let(s, ech__lab_name("rest%" PRId64, n).s, "seconds",
                  "lost%" PRId64 " - divide%" PRId64 " - x%" PRId64 " - w%" PRId64, n, n, n, n);
    /* Karp and Flatt: the serial fraction with which Amdahl's law gives this one speedup. */
    ech__tell_let(s, ech__lab_name("serial%" PRId64, n).s, "percent1",
                  "(1 / s%" PRId64 " - 1 / %" PRId64 ") / (1 - 1 / %" PRId64 ")", n, n, n);
}

static void name_figures(ech__sheet *s)
{
    ech__tell_scaling(s, "");
    for (size_t i = 0; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        ech__tell_parts(s, "", n);
        ech__tell_let(s, ech__lab_name("n%" PRId64, n).s, "integer", "%" PRId64, n);
        ech__tell_let(s, ech__lab_name("plan%" PRId64, n).s, "seconds",
                      "[plan rows.devices=%" PRId64 ".step_time_s]", n);
        ech__tell_let(s, ech__lab_name("off%" PRId64, n).s, "percent1",
                      "plan%" PRId64 " / t%" PRId64 " - 1", n, n);
        if (n > 1)
            name_lost(s, n);
    }
    if (ech__tell_most(s) > 1)
        ech__tell_let(s, "serial", "percent1", "amdahl(%s)", ech__tell_pairs(s, "", "t").s);
}

/* ---- tables and plots ---- */

static void tell_tables(ech__sheet *s)
{
    ech__tell_table(s, "Strong scaling", NULL);
    ech__tell_scaling_columns(s);
    ech__tell_column(s, "predicted", "seconds");
    ech__tell_column(s, "prediction is off by", "percent1");
    for (size_t i = 0; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        ech__tell_row(s);
        ech__tell_scaling_cells(s, "", n);
        ech__tell_plain(s, "plan%" PRId64, n);
        ech__tell_cell(s, "off%" PRId64, n);
    }
    ech__tell_table(
        s, "What a step's time is spent on",
        "Medians on rank 0. Not divided: what computing takes beyond its share of one "
        "device's. Serial fraction: with which Amdahl's law gives the speedup of the row.");
    ech__tell_column(s, "devices", "integer");
    ech__tell_column(s, "computing", "seconds");
    ech__tell_column(s, "of it not divided", "seconds");
    ech__tell_column(s, "exchange", "seconds");
    ech__tell_column(s, "wait", "seconds");
    ech__tell_column(s, "else", "seconds");
    ech__tell_column(s, "serial fraction", "percent1");
    for (size_t i = 0; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        ech__tell_row(s);
        ech__tell_plain(s, "%" PRId64, n);
        ech__tell_plain(s, "c%" PRId64, n);
        if (n > 1)
            ech__tell_plain(s, "divide%" PRId64, n);
        else
            ech__tell_none(s);
        ech__tell_plain(s, "x%" PRId64, n);
        ech__tell_plain(s, "w%" PRId64, n);
        ech__tell_plain(s, "o%" PRId64, n);
        if (n > 1)
            ech__tell_cell(s, "serial%" PRId64, n);
        else
            ech__tell_none(s);
    }
}

static void tell_plots(ech__sheet *s)
{
    ech__tell_plot(s, "speedup", "Speedup", "Ideal, as it came out, and as it was predicted.");
    ech__tell_scaling_axes(s);
    ech__tell_scaling_series(s, "", "DDP");
    ech__tell_series(s, "predicted");
    for (size_t i = 0; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        ech__tell_point(s, (double)n, "[plan rows.devices=%" PRId64 ".speedup]", n);
    }

    const char *prefixes[ECH__LAB_SHARED_MOST];
    int64_t devices[ECH__LAB_SHARED_MOST];
    size_t count = 0;
    ech__tell_plot(s, "stacked", "Where a step's time stays", "On rank 0, medians.");
    ech__tell_y(s, (ech__tell_axis){.label = "time", .unit = "s"});
    ech__tell_bar_format(s, "seconds");
    for (; count < ech__tell_devices(s) && count < ECH__LAB_SHARED_MOST; count++) {
        prefixes[count] = "";
        devices[count] = ech__tell_device(s, count);
        ech__tell_category(s, "%" PRId64 " device%s", devices[count],
                           devices[count] == 1 ? "" : "s");
    }
    ech__tell_parts_series(s, prefixes, devices, count);
}

/* ---- answers ---- */

static void answer_linear(ech__sheet *s)
{
    ech__tell_ask(s, "Is the speedup linear?");
    if (ech__tell_alone(s))
        return;
    for (size_t i = 1; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        const int side = ech__tell_side(s, ech__lab_name("e%" PRId64, n).s, 1);
        ech__tell_sayf(s,
                       "{n%" PRId64 "} devices are {s%" PRId64 "} times as fast as one ({s%" PRId64
                       ".low} to {s%" PRId64 ".high}), an efficiency of {e%" PRId64 "}: %s",
                       n, n, n, n, n,
                       side < 0   ? "clearly less than linear."
                       : side > 0 ? "clearly more than linear, so a device with fewer samples does "
                                    "more than its share."
                                  : "that cannot be told from linear.");
    }
    ech__tell_say_emulated(s);
}

static void answer_drop(ech__sheet *s)
{
    ech__tell_ask(s, "Where does the efficiency drop?");
    if (ech__tell_alone(s))
        return;
    size_t worst = 1;
    for (size_t i = 2; i < ech__tell_devices(s); i++) {
        const double here = ech__tell_value(s, "e%" PRId64 " / e%" PRId64,
                                            ech__tell_device(s, i - 1), ech__tell_device(s, i))
                                .value;
        const double there =
            ech__tell_value(s, "e%" PRId64 " / e%" PRId64, ech__tell_device(s, worst - 1),
                            ech__tell_device(s, worst))
                .value;
        if (here > there)
            worst = i;
    }
    const int64_t from = ech__tell_device(s, worst - 1), to = ech__tell_device(s, worst);
    ech__tell_let(s, "drop", "percent0", "e%" PRId64 " - e%" PRId64, from, to);
    const int side = ech__tell_side(s, "drop", 0);
    ech__tell_sayf(s,
                   "Most between {n%" PRId64 "} and {n%" PRId64 "} devices: from {e%" PRId64
                   "} to {e%" PRId64 "}, by {drop} ({drop.low} to {drop.high}) of one device's%s",
                   from, to, from, to,
                   side > 0 ? "."
                   : side < 0
                       ? ": it rises even there, so it drops nowhere."
                       : ". The interval includes no drop at all, so the place is not certain.");
}

/* The part that the most of the lost time is in. */
static void say_largest(ech__sheet *s, int64_t n)
{
    static const struct {
        const char *letter, *name;
    } causes[] = {{"divide", "computing that does not become less with fewer samples"},
                  {"x", "the exchange of gradients"},
                  {"w", "waiting for the slowest device"},
                  {"rest", "what is neither computing nor exchange"}};
    size_t largest = 0;
    for (size_t i = 1; i < sizeof causes / sizeof *causes; i++) {
        if (ech__tell_value(s, "%s%" PRId64, causes[i].letter, n).value >
            ech__tell_value(s, "%s%" PRId64, causes[largest].letter, n).value)
            largest = i;
    }
    ech__tell_let(s, ech__lab_name("most%" PRId64, n).s, "percent0", "%s%" PRId64 " / lost%" PRId64,
                  causes[largest].letter, n, n);
    ech__tell_sayf(s, "The most of it, {most%" PRId64 "}, is %s.", n, causes[largest].name);
}

static void answer_reason(ech__sheet *s)
{
    ech__tell_ask(s, "What is the reason, in numbers?");
    if (ech__tell_alone(s))
        return;
    for (size_t i = 1; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        const ech__lab_id lost = ech__lab_name("lost%" PRId64, n);
        if (ech__tell_knows(s, lost.s) && ech__tell_side(s, lost.s, 0) <= 0) {
            ech__tell_sayf(s,
                           "What {n%" PRId64
                           "} devices lose, {%s} ({%s.low} to {%s.high}), cannot be "
                           "told from nothing.",
                           n, lost.s, lost.s, lost.s);
            continue;
        }
        ech__tell_sayf(s,
                       "{n%" PRId64 "} devices take {lost%" PRId64
                       "} more than their share of one device's {t1}: {divide%" PRId64
                       "} because computing does not divide, {x%" PRId64 "} of exchange, {w%" PRId64
                       "} of waiting and {rest%" PRId64 "} of everything else.",
                       n, n, n, n, n, n);
        say_largest(s, n);
    }
}

static void answer_amdahl(ech__sheet *s)
{
    ech__tell_ask(s,
                  "What serial fraction does Amdahl's law see, and what did the prediction say?");
    if (ech__tell_alone(s))
        return;
    ech__tell_say(s, "Fitted over all rows it is {serial} ({serial.low} to {serial.high}).");
    if (ech__tell_side(s, "serial", 0.001) > 0) {
        ech__tell_let(s, "limit", "fixed1", "1 / serial");
        ech__tell_say(s, "By it no number of devices would be more than {limit} times as fast.");
    } else if (ech__tell_knows(s, "serial")) {
        ech__tell_say(s, "It cannot be told from none at all.");
    }
    const int64_t first = ech__tell_device(s, 1), last = ech__tell_most(s);
    if (first != last) {
        ech__tell_let(s, "growth", "percent1", "serial%" PRId64 " - serial%" PRId64, last, first);
        const int side = ech__tell_side(s, "growth", 0);
        ech__tell_sayf(s,
                       "Row by row it is {serial%" PRId64 "} on {n%" PRId64 "} and {serial%" PRId64
                       "} on {n%" PRId64 "} devices: %s",
                       first, first, last, last,
                       side > 0 ? "it grows, so what is lost is not a fixed serial part but grows "
                                  "with the devices."
                       : side < 0 ? "it shrinks, so what is lost is less than a fixed serial part."
                                  : "within the intervals the same, as of a fixed serial part.");
    }
    for (size_t i = 1; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        ech__tell_sayf(s,
                       "Priced from one device the step on {n%" PRId64 "} was to take {plan%" PRId64
                       "}; it takes {t%" PRId64 "}, so the prediction is off by {off%" PRId64 "}.",
                       n, n, n, n);
    }
}

static void tell(ech__sheet *s)
{
    name_figures(s);
    tell_tables(s);
    tell_plots(s);
    answer_linear(s);
    answer_drop(s);
    answer_reason(s);
    answer_amdahl(s);
}

const ech__study_card ech__study_strong_scaling = {
    .id = "strong-scaling",
    .group = 'A',
    .place = 2,
    .title = "Strong scaling",
    .about = "The same step of a linear stack, with the same samples in all, on more and more "
             "devices under DDP.",
    .params = params,
    .quick_seconds = 12,
    .full_seconds = 90,
    .runs = runs,
    .tell = tell,
};
