/* More samples in a step: does that make devices more efficient, and until when? */
#include "lab/shared.h"

#include <stdio.h>

static const ech__lab_param params[] = {
    {"dim", 1024, 2048, 1, 65536, "width of every layer"},
    {"depth", 4, 4, 1, 1000, "layers of the stack"},
    {"batch", 32, 32, 1, 65536,
     "smallest batch over all devices; 2, 4 and 8 times as much are run too"},
    {"steps", 35, 65, 6, 100000, "steps of a run, 5 of them warm-up"},
    {"gain", 10, 10, 0, 1000, "per cent more samples/s that doubling must bring to be worth it"},
    {0},
};

static const int64_t TIMES[] = {1, 2, 4, 8};
enum { BATCHES = sizeof TIMES / sizeof *TIMES };

static ech__lab_id prefix_of(int b)
{
    return ech__lab_name("b%d_", b);
}

static void runs(ech__lab_runs *lab)
{
    ech__lab_stack stack = ech__lab_stack_of(lab);
    const int64_t least = stack.batch;
    stack.batch = 2 * least;
    ech__lab_plan(lab, "plan", stack, NULL); /* measures the exchange that emulation prices */
    for (int b = 0; b < BATCHES; b++) {
        stack.batch = TIMES[b] * least;
        ech__lab_scaling(lab, prefix_of(b).s, stack, NULL);
    }
}

/* ---- figures ---- */

/* "batch0, b0_t2, batch1, b1_t2, ..." */
static ech__lab_phrase over_batches(const char *what, int64_t n)
{
    ech__lab_phrase pairs = {""};
    size_t used = 0;
    for (int b = 0; b < BATCHES && used < sizeof pairs.s; b++)
        used += (size_t)snprintf(pairs.s + used, sizeof pairs.s - used, "%sbatch%d, b%d_%s%" PRId64,
                                 b ? ", " : "", b, b, what, n);
    return pairs;
}

/* Of n devices: samples/s by batch, what each doubling brings, and the line of a fixed part and one for each sample. */
static void name_devices(ech__sheet *s, int64_t n)
{
    ech__tell_let(s, ech__lab_name("n%" PRId64, n).s, "integer", "%" PRId64, n);
    for (int b = 0; b < BATCHES; b++) {
        ech__tell_let(s, ech__lab_name("b%d_r%" PRId64, b, n).s, "fixed0 samples/s",
                      "batch%d / b%d_t%" PRId64, b, b, n);
        if (b)
            ech__tell_let(s, ech__lab_name("more%d_%" PRId64, b, n).s, "percent0",
                          "b%d_r%" PRId64 " / b%d_r%" PRId64 " - 1", b, n, b - 1, n);
    }
    ech__tell_let(s, ech__lab_name("fixed%" PRId64, n).s, "seconds", "intercept(%s)",
                  over_batches("t", n).s);
    ech__tell_let(s, ech__lab_name("sample%" PRId64, n).s, "seconds", "slope(%s)",
                  over_batches("t", n).s);
}

static void name_figures(ech__sheet *s)
{
    for (int b = 0; b < BATCHES; b++) {
        ech__tell_let(s, ech__lab_name("batch%d", b).s, "integer", "%" PRId64,
                      TIMES[b] * ech__tell_param(s, "batch"));
        ech__tell_scaling(s, prefix_of(b).s);
    }
    for (size_t i = 0; i < ech__tell_devices(s); i++)
        name_devices(s, ech__tell_device(s, i));
}

/* ---- tables and plots ---- */

static void tell_table(ech__sheet *s)
{
    ech__tell_table(s, "Batches", "Each against one device with the same batch.");
    ech__tell_column(s, "devices", "integer");
    ech__tell_column(s, "batch", "integer");
    ech__tell_column(s, "time/step", "seconds");
    ech__tell_column(s, "samples/s", "fixed0");
    ech__tell_column(s, "speedup", "fixed2");
    ech__tell_column(s, "efficiency", "percent0");
    for (size_t i = 0; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        for (int b = 0; b < BATCHES; b++) {
            ech__tell_row(s);
            ech__tell_plain(s, "%" PRId64, n);
            ech__tell_plain(s, "batch%d", b);
            ech__tell_cell(s, "b%d_t%" PRId64, b, n);
            ech__tell_cell(s, "b%d_r%" PRId64, b, n);
            if (n == 1) {
                ech__tell_plain(s, "1");
                ech__tell_plain(s, "1");
                continue;
            }
            ech__tell_cell(s, "b%d_s%" PRId64, b, n);
            ech__tell_cell(s, "b%d_e%" PRId64, b, n);
        }
    }
}

static void tell_lines(ech__sheet *s, const char *title, ech__tell_axis y, const char *what,
                       size_t first)
{
    ech__tell_plot(s, "lines", title, NULL);
    ech__tell_x(s, (ech__tell_axis){.label = "batch", .unit = "samples", .scale = "log2"});
    ech__tell_y(s, y);
    for (size_t i = first; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        ech__tell_series(s, "%" PRId64 " device%s", n, n == 1 ? "" : "s");
        for (int b = 0; b < BATCHES; b++)
            ech__tell_point(s, (double)(TIMES[b] * ech__tell_param(s, "batch")), "b%d_%s%" PRId64,
                            b, what, n);
    }
}

/* ---- answers ---- */

static void answer_helps(ech__sheet *s)
{
    const int last = BATCHES - 1;
    ech__tell_ask(s, "Does a larger batch help scaling?");
    if (ech__tell_alone(s))
        return;
    for (size_t i = 1; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        const ech__lab_id gain = ech__lab_name("gain%" PRId64, n);
        ech__tell_let(s, gain.s, "percent0", "b%d_e%" PRId64 " - b0_e%" PRId64, last, n, n);
        ech__tell_sayf(s,
                       "On {n%" PRId64 "} devices the efficiency is {b0_e%" PRId64
                       "} with {batch0} samples and {b%d_e%" PRId64 "} with {batch%d}.",
                       n, n, last, n, last);
        const int side = ech__tell_side(s, gain.s, 0);
        ech__tell_sayf(s,
                       side > 0 ? "So it helps: by {%s} ({%s.low} to {%s.high})."
                       : side < 0
                           ? "So it does harm, against the textbook: {%s} ({%s.low} to {%s.high})."
                           : "The difference of {%s} ({%s.low} to {%s.high}) may be none.",
                       gain.s, gain.s, gain.s);
    }
    for (size_t i = 0; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        ech__tell_sayf(s,
                       "A step of {n%" PRId64 "} device%s is fitted by {fixed%" PRId64
                       "} and {sample%" PRId64 "} for each sample.",
                       n, n == 1 ? "" : "s", n, n);
    }
    if (ech__tell_value(s, "fixed%" PRId64, ech__tell_most(s)).value > 0)
        ech__tell_say(s,
                      "The fixed part is paid on every device however few its samples are, so it "
                      "is what a larger batch is spread over.");
    ech__tell_say_emulated(s);
}

/* The first doubling that brings less than was asked for, or 0. */
static int saturated(ech__sheet *s, int64_t n)
{
    const double least = (double)ech__tell_param(s, "gain") / 100;
    for (int b = 1; b < BATCHES; b++) {
        if (ech__tell_value(s, "more%d_%" PRId64, b, n).value < least)
            return b;
    }
    return 0;
}

static void answer_saturates(ech__sheet *s)
{
    const int last = BATCHES - 1;
    ech__tell_ask(s, "Where does it saturate?");
    ech__tell_let(s, "least", "percent0", "%" PRId64 " / 100", ech__tell_param(s, "gain"));
    ech__tell_say(s, "Saturated is where twice the batch brings less than {least} more samples/s.");
    for (size_t i = 0; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        const int at = saturated(s, n);
        if (at)
            ech__tell_sayf(s,
                           "On {n%" PRId64
                           "} device%s that is at {batch%d} samples with {b%d_r%" PRId64
                           "}: {batch%d} change that by {more%d_%" PRId64 "} ({more%d_%" PRId64
                           ".low} to {more%d_%" PRId64 ".high}).",
                           n, n == 1 ? "" : "s", at - 1, at - 1, n, at, at, n, at, n, at, n);
        else
            ech__tell_sayf(s,
                           "On {n%" PRId64 "} device%s it is not reached: {batch%d} samples still "
                           "bring {more%d_%" PRId64 "} ({more%d_%" PRId64
                           ".low} to {more%d_%" PRId64 ".high}) more than {batch%d}.",
                           n, n == 1 ? "" : "s", last, last, n, last, n, last, n, last - 1);
    }
    for (size_t i = 0; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        const ech__lab_id ceiling = ech__lab_name("ceiling%" PRId64, n),
                          half = ech__lab_name("half%" PRId64, n);
        ech__tell_let(s, ceiling.s, "fixed0 samples/s", "1 / sample%" PRId64, n);
        ech__tell_let(s, half.s, "fixed0", "fixed%" PRId64 " / sample%" PRId64, n, n);
        if (ech__tell_value(s, "%s", half.s).value > 0)
            ech__tell_sayf(s,
                           "By the fit {n%" PRId64
                           "} device%s would do {%s} at most, and half of it at "
                           "a batch of {%s}.",
                           n, n == 1 ? "" : "s", ceiling.s, half.s);
    }
}

static void tell(ech__sheet *s)
{
    name_figures(s);
    tell_table(s);
    tell_lines(s, "Samples per second by batch", (ech__tell_axis){.label = "samples/s"}, "r", 0);
    if (ech__tell_most(s) > 1)
        tell_lines(s, "Efficiency by batch", (ech__tell_axis){.label = "efficiency"}, "e", 1);
    answer_helps(s);
    answer_saturates(s);
}

const ech__study_card ech__study_batch_scaling = {
    .id = "batch-scaling",
    .group = 'A',
    .place = 6,
    .title = "Batch and scaling",
    .about =
        "Larger and larger batches on one and more devices, each against one device with the same "
        "batch.",
    .params = params,
    .quick_seconds = 8,
    .full_seconds = 180,
    .runs = runs,
    .tell = tell,
};
