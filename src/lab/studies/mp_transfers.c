/* How often a model over several devices asks for data to be moved, and how often it really is. */
#include "lab/spread.h"

#include <stdio.h>

static const ech__lab_param params[] = {
    {"dim", 512, 2048, 1, 65536, "width of a layer"},
    {"depth", 20, 20, 1, 1000, "layers"},
    {"batch", 64, 64, 1, 65536, "samples of a step"},
    {"steps", 25, 35, 6, 100000, "steps of a run, 5 of them warm-up"},
    {0},
};

/* For the relation of devices and bytes: two and five as in the other studies, and one between and one beyond. */
static const int64_t counts[] = {2, 3, 5, 10};
enum { COUNTS = sizeof counts / sizeof *counts };

static ech__lab_id id_of(const char *kind, int64_t devices)
{
    return ech__lab_name("%s%" PRId64, kind, devices);
}

/* Whether its time is of interest too; of the others a step is enough. */
static bool is_timed(int64_t devices)
{
    return devices == 2 || devices == 5;
}

static void runs(ech__lab_runs *lab)
{
    ech__lab_spread stack = {.dim = ech__lab_param_of(lab, "dim"),
                             .depth = ech__lab_param_of(lab, "depth"),
                             .batch = ech__lab_param_of(lab, "batch")};
    for (size_t i = 0; i < COUNTS; i++) {
        const ech__lab_id id = id_of("mp", counts[i]);
        stack.devices = counts[i];
        stack.steps = is_timed(counts[i]) ? ech__lab_param_of(lab, "steps") : ECH__LAB_WARMUP + 1;
        if (counts[i] <= stack.depth)
            ech__lab_spread_layers(lab, id.s, &stack);
        else
            ech__lab_skip(lab, id.s, "%" PRId64 " layers are too few for %" PRId64 " devices",
                          stack.depth, counts[i]);
    }
}

/* The sum over the moves of a step, there and back. */
static ech__lab_phrase copies_of(int64_t devices)
{
    char text[64];
    snprintf(text, sizeof text, "[mp%" PRId64 " summary.transfers.moves.#.time_s]", devices);
    return ech__lab_each(NULL, 2 * (size_t)(devices - 1), " + ", text);
}

static void tell_table(ech__sheet *s)
{
    ech__tell_table(s, "Moves of a step",
                    "Asked for: before each layer, to where its weights are. Inputs: samples and "
                    "targets that are brought to a device from outside.");
    ech__tell_column(s, "devices", "integer");
    ech__tell_column(s, "asked for", "integer");
    ech__tell_column(s, "inputs", "integer");
    ech__tell_column(s, "moves forward", "integer");
    ech__tell_column(s, "moves backward", "integer");
    ech__tell_column(s, "bytes forward", "bytes");
    ech__tell_column(s, "bytes both ways", "bytes");
    ech__tell_column(s, "bytes of inputs", "bytes");
    ech__tell_column(s, "time of the copies", "seconds");
    ech__tell_column(s, "of the step", "percent2");
    for (size_t i = 0; i < COUNTS; i++) {
        const int64_t n = counts[i];
        const ech__lab_id id = id_of("mp", n);
        const ech__lab_phrase copies = copies_of(n);
        ech__tell_row(s);
        ech__tell_cell(s, "%" PRId64, n);
        ech__tell_cell(s, "[%s summary.transfers.asked]", id.s);
        ech__tell_cell(s, "[%s summary.transfers.inputs]", id.s);
        ech__tell_cell(s, "[%s summary.transfers.forward]", id.s);
        ech__tell_cell(s, "[%s summary.transfers.backward]", id.s);
        ech__tell_cell(s, "[%s summary.transfers.moves.0.bytes] * [%s summary.transfers.forward]",
                       id.s, id.s);
        ech__tell_cell(s, "[%s summary.transfers.bytes]", id.s);
        ech__tell_cell(s, "[%s summary.transfers.input_bytes]", id.s);
        if (is_timed(n)) {
            ech__tell_cell(s, "%s", copies.s);
            ech__tell_cell(s, "(%s) / steps[%s time_s]", copies.s, id.s);
        } else {
            ech__tell_none(s);
            ech__tell_none(s);
        }
    }
}

static void tell_plot(ech__sheet *s)
{
    ech__tell_plot(s, "lines", "Bytes that a step moves between devices", NULL);
    ech__tell_x(s, (ech__tell_axis){.label = "devices", .min = 1, .max = 10});
    ech__tell_y(s, (ech__tell_axis){.label = "bytes of a step", .unit = "MB"});
    ech__tell_series(s, "forward and backward");
    for (size_t i = 0; i < COUNTS; i++)
        ech__tell_point(s, (double)counts[i], "[mp%" PRId64 " summary.transfers.bytes] / 1e6",
                        counts[i]);
}

static void say_often(ech__sheet *s)
{
    bool less = true;
    size_t known = 0;
    ech__tell_let(s, "asked", "integer", "[mp2 summary.transfers.asked]");
    ech__tell_let(s, "inputs", "integer", "[mp2 summary.transfers.inputs]");
    ech__tell_ask(s, "How often is a move asked for, and how often does data really move?");
    ech__tell_say(s,
                  "The code asks before every layer, {asked} times in a forward pass; a value that "
                  "is already there stays where it is.");
    for (size_t i = 0; i < COUNTS; i++) {
        const int64_t n = counts[i];
        ech__tell_let(s, id_of("n", n).s, "integer", "%" PRId64, n);
        ech__tell_let(s, id_of("moves", n).s, "integer",
                      "[mp%" PRId64 " summary.transfers.forward]", n);
        ech__tell_let(s, id_of("back", n).s, "integer",
                      "[mp%" PRId64 " summary.transfers.backward]", n);
        const ech__lab_figure f = ech__tell_value(
            s,
            "abs(moves%" PRId64 " - (n%" PRId64 " - 1)) + abs(back%" PRId64 " - moves%" PRId64 ")",
            n, n, n, n);
        less = less && (!f.known || f.value == 0);
        known += f.known;
        if (is_timed(n))
            ech__tell_say_for(s, n,
                              "Moves on {n#} devices: {moves#} forward and {back#} backward.");
    }
    if (known > 1)
        ech__tell_say(
            s, less ? "So in every run of this study data moves once less than there are devices, "
                      "each way."
                    : "That is not in every run once less than there are devices, each way; the "
                      "table has the counts.");
    ech__tell_say(s,
                  "Besides, {inputs} inputs are brought in: the samples to the first device, and "
                  "the targets to the last, which has the loss.");
}

static void say_bytes(ech__sheet *s)
{
    ech__tell_let(s, "one", "bytes", "[mp2 summary.transfers.moves.0.bytes]");
    ech__tell_let(s, "back", "bytes", "[mp2 summary.transfers.moves.1.bytes]");
    ech__tell_let(s, "product", "bytes", "4 * [mp2 config.batch_size] * [mp2 config.dim]");
    ech__tell_let(s, "batch", "integer", "[mp2 config.batch_size]");
    ech__tell_let(s, "dim", "integer", "[mp2 config.dim]");
    ech__tell_let(s, "width", "integer", "4");
    ech__tell_ask(s, "How many bytes is that, and what of the backward pass?");
    ech__tell_say(s, "A move forward has {one}: {batch} samples of {dim} numbers of {width} bytes, "
                     "{product}. Backward the gradient of the same values comes back, {back}.");
    for (size_t i = 0; i < COUNTS; i++) {
        const int64_t n = counts[i];
        if (!is_timed(n))
            continue;
        ech__tell_let(s, id_of("bytes", n).s, "bytes", "[mp%" PRId64 " summary.transfers.bytes]",
                      n);
        ech__tell_let(s, id_of("copy", n).s, "seconds", "%s", copies_of(n).s);
        ech__tell_let(s, id_of("share", n).s, "percent2",
                      "copy%" PRId64 " / steps[mp%" PRId64 " time_s]", n, n);
        ech__tell_say_for(s, n,
                          "A step on {n#} devices moves {bytes#} both ways; the copies take "
                          "{copy#}, {share#} of it.");
    }
}

static void say_relation(ech__sheet *s)
{
    const ech__lab_phrase points =
        ech__lab_each(counts, COUNTS, ", ", "#, [mp# summary.transfers.bytes]");
    ech__tell_let(s, "each", "bytes", "slope(%s)", points.s);
    ech__tell_let(s, "fit", "percent1", "rsquared(%s)", points.s);
    ech__tell_let(s, "from", "fixed2", "-intercept(%s) / slope(%s)", points.s, points.s);
    ech__tell_let(s, "gradients", "bytes", "4 * [mp2 summary.parameters]");
    ech__tell_let(s, "most", "bytes", "[mp5 summary.transfers.bytes]");
    ech__tell_let(s, "part", "fixed3", "most / gradients");
    const ech__lab_figure fit = ech__tell_value(s, "fit"), part = ech__tell_value(s, "part");
    ech__tell_ask(s, "How does communication depend on the number of devices?");
    ech__tell_say(s,
                  "A line through all counts explains {fit} of the variance: each further device "
                  "adds {each}, and the line meets zero at {from} devices.");
    if (fit.known)
        ech__tell_say(s, fit.value > 0.9999 ? "So it grows in proportion to the cuts, whatever the "
                                              "number of layers between them."
                                            : "So a line does not describe it exactly.");
    ech__tell_let(s, "even", "fixed0", "[mp2 config.batch_size] / part");
    if (part.known)
        ech__tell_say(s, part.value < 1
                             ? "Data-parallel training would exchange gradients of {gradients} in "
                               "each step instead; here five devices move {part} of that."
                             : "Data-parallel training would exchange gradients of {gradients} in "
                               "each step instead; five devices move {part} times as much here.");
    ech__tell_say(s,
                  "What is moved is in proportion to the batch and gradients are not: both would "
                  "be equal at {even} samples.");
}

static void tell(ech__sheet *s)
{
    tell_table(s);
    tell_plot(s);
    say_often(s);
    say_bytes(s);
    say_relation(s);
}

const ech__study_card ech__study_mp_transfers = {
    .id = "mp-transfers",
    .group = 'C',
    .place = 4,
    .title = "What moves between devices",
    .about = "The moves of a step of a stack whose layers are spread over two, five and other "
             "numbers of devices.",
    .params = params,
    .quick_seconds = 3,
    .full_seconds = 10,
    .runs = runs,
    .tell = tell,
};
