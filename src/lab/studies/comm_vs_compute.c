/* A small and a large model on the same devices: what moves for each operation that is computed, and when moving
 * takes half of the step. */
#include "lab/shared.h"

static const ech__lab_param params[] = {
    {"small-dim", 1024, 1024, 1, 65536, "width of the small model"},
    {"small-depth", 2, 2, 1, 1000, "layers of the small model"},
    {"large-dim", 2048, 8192, 1, 65536, "width of the large model"},
    {"large-depth", 4, 8, 1, 1000, "layers of the large model"},
    {"batch", 64, 64, 1, 65536, "samples of a step over all devices"},
    {"steps", 35, 35, 6, 100000, "steps of a run, 5 of them warm-up"},
    {0},
};

static const struct {
    const char *name, *prefix, *plan, *check, *dim, *depth;
} CASES[] = {
    {"small", "small_", "small_plan", "small_check", "small-dim", "small-depth"},
    {"large", "large_", "large_plan", "large_check", "large-dim", "large-depth"},
};
enum { SMALL, LARGE, CASE_COUNT, TRACED = 8 /* steps of the run with a trace */ };

static ech__lab_stack stack_of(ech__lab_runs *lab, int c)
{
    return (ech__lab_stack){.dim = ech__lab_param_of(lab, CASES[c].dim),
                            .depth = ech__lab_param_of(lab, CASES[c].depth),
                            .batch = ech__lab_param_of(lab, "batch"),
                            .steps = ech__lab_param_of(lab, "steps")};
}

/* A run with as many samples on two devices as the plan says make communication half of the step; at least one each. */
static void ask_check(ech__lab_runs *lab, int c)
{
    ech__lab_stack stack = stack_of(lab, c);
    double samples;
    if (!ech__lab_known(lab, &samples, "[%s communication_is_half.batch_on_2_devices]",
                        CASES[c].plan))
        return;
    stack.batch = 2 * (samples < 1 ? 1 : (int64_t)samples);
    ech__lab_train(lab, CASES[c].check, stack, 2, NULL);
}

static void runs(ech__lab_runs *lab)
{
    for (int c = 0; c < CASE_COUNT; c++) {
        ech__lab_plan(lab, CASES[c].plan, stack_of(lab, c), NULL);
        ech__lab_scaling(lab, CASES[c].prefix, stack_of(lab, c), NULL);
        if (ech__lab_devices(lab) > 1)
            ask_check(lab, c);
    }
    if (ech__lab_devices(lab) > 1) {
        ech__lab_stack stack = stack_of(lab, LARGE);
        stack.steps = TRACED;
        ech__lab_train(lab, "trace", stack, ech__lab_device(lab, 1), "--trace");
    }
}

/* ---- figures ---- */

/* Names the time that all buckets of a run were on their way, and gives its name. */
static ech__lab_id name_transfer(ech__sheet *s, const char *run)
{
    const ech_json *buckets =
        ech__lab_path(ech__tell_record(s, run), "summary.communication.buckets");
    const size_t count = buckets ? ech__json_count(buckets) : 1; /* one that is not known */
    ech__lab_id sum = {"0"};
    for (size_t b = 0; b < count; b++) {
        const ech__lab_id before = sum;
        sum = ech__lab_name("%s_transfer%zu", run, b);
        ech__tell_let(s, sum.s, "seconds", "%s + [%s summary.communication.buckets.%zu.transfer_s]",
                      before.s, run, b);
    }
    return sum;
}

/* Of a case on n devices: what a device computes and moves in a step, and how fast. */
static void name_rates(ech__sheet *s, int c, int64_t n)
{
    const char *p = CASES[c].prefix;
    const ech__lab_id run = ech__lab_name("%sn%" PRId64, p, n);
    /* Forward, data gradient (not of the first layer) and weight gradient: two operations for each weight and
     * sample. */
    ech__tell_let(s, ech__lab_name("%sflops", p).s, "fixed2 Gflop",
                  "1e-9 * (6 * %" PRId64 " - 2) * %" PRId64 " * %" PRId64 " * %" PRId64
                  " / %" PRId64,
                  ech__tell_param(s, CASES[c].depth), ech__tell_param(s, CASES[c].dim),
                  ech__tell_param(s, CASES[c].dim), ech__tell_param(s, "batch"), n);
    ech__tell_let(s, ech__lab_name("%sbytes", p).s, "bytes",
                  "2 * (%" PRId64 " - 1) / %" PRId64 " * [%sn%" PRId64
                  " summary.communication.gradient_bytes]",
                  n, n, p, n);
    ech__tell_let(s, ech__lab_name("%sintensity", p).s, "fixed3 bytes/kflop",
                  "1e-6 * %sbytes / %sflops", p, p);
    ech__tell_let(s, ech__lab_name("%srate", p).s, "fixed1 Gflop/s", "%sflops / %sc%" PRId64, p, p,
                  n);
    ech__tell_let(s, ech__lab_name("%sbandwidth", p).s, "fixed1 GB/s", "%sbytes / %s * 1e-9", p,
                  name_transfer(s, run.s).s);
    ech__tell_let(s, ech__lab_name("%sshare", p).s, "percent0",
                  "(%sx%" PRId64 " + %sw%" PRId64 ") / %st%" PRId64, p, n, p, n, p, n);
}

static void name_break_even(ech__sheet *s, int c)
{
    const char *p = CASES[c].prefix, *check = CASES[c].check;
    ech__tell_let(s, ech__lab_name("%shalf", p).s, "integer",
                  "[%s communication_is_half.batch_on_2_devices]", CASES[c].plan);
    if (!ech__tell_asked(s, check)) /* the plan may have no such batch */
        return;
    ech__tell_let(s, ech__lab_name("%schecked", p).s, "integer", "[%s config.batch_size]", check);
    ech__tell_let(s, ech__lab_name("%schecked_share", p).s, "percent0",
                  "steps[%s comm_exposed_s] / steps[%s time_s]", check, check);
}

static void name_figures(ech__sheet *s)
{
    ech__tell_let(s, "batch", "integer", "%" PRId64, ech__tell_param(s, "batch"));
    for (int c = 0; c < CASE_COUNT; c++) {
        ech__tell_scaling(s, CASES[c].prefix);
        for (size_t i = 0; i < ech__tell_devices(s); i++)
            ech__tell_parts(s, CASES[c].prefix, ech__tell_device(s, i));
        if (ech__tell_most(s) > 1) {
            name_rates(s, c, ech__tell_device(s, 1));
            name_break_even(s, c);
        }
    }
    if (ech__tell_most(s) > 1)
        ech__tell_let(s, "devices", "integer", "%" PRId64, ech__tell_device(s, 1));
}

/* ---- tables and plots ---- */

static void tell_tables(ech__sheet *s)
{
    ech__tell_table(s, "Two sizes of a model", NULL);
    ech__tell_column(s, "case", "text");
    ech__tell_scaling_columns(s);
    ech__tell_column(s, "predicted", "seconds");
    for (int c = 0; c < CASE_COUNT; c++) {
        for (size_t i = 0; i < ech__tell_devices(s); i++) {
            const int64_t n = ech__tell_device(s, i);
            ech__tell_row(s);
            ech__tell_words(s, "%s, %" PRId64 "x%" PRId64, CASES[c].name,
                            ech__tell_param(s, CASES[c].dim), ech__tell_param(s, CASES[c].depth));
            ech__tell_scaling_cells(s, CASES[c].prefix, n);
            ech__tell_plain(s, "[%s rows.devices=%" PRId64 ".step_time_s]", CASES[c].plan, n);
        }
    }
}

static void tell_rates(ech__sheet *s)
{
    ech__tell_table(
        s, "Bytes for each operation",
        "Of one device in a step. An all-reduce moves two N-1 N-ths of the gradients in and "
        "as much out; exchanges are timed from when all had a bucket until all had its sum.");
    ech__tell_column(s, "case", "text");
    ech__tell_column(s, "parameters", "integer");
    ech__tell_column(s, "devices", "integer");
    ech__tell_column(s, "Gflop", "fixed2");
    ech__tell_column(s, "bytes each way", "bytes");
    ech__tell_column(s, "bytes/kflop", "fixed3");
    ech__tell_column(s, "computes at", "fixed1 Gflop/s");
    ech__tell_column(s, "exchanges at", "fixed1 GB/s");
    ech__tell_column(s, "half is communication at", "integer samples/device");
    ech__tell_column(s, "share of communication there", "percent0");
    for (int c = 0; c < CASE_COUNT; c++) {
        const char *p = CASES[c].prefix;
        ech__tell_row(s);
        ech__tell_words(s, "%s", CASES[c].name);
        ech__tell_plain(s, "[%sn1 summary.parameters]", p);
        ech__tell_plain(s, "devices");
        ech__tell_plain(s, "%sflops", p);
        ech__tell_plain(s, "%sbytes", p);
        ech__tell_plain(s, "%sintensity", p);
        ech__tell_cell(s, "%srate", p);
        ech__tell_cell(s, "%sbandwidth", p);
        ech__tell_plain(s, "%shalf", p);
        if (ech__tell_asked(s, CASES[c].check))
            ech__tell_cell(s, "%schecked_share", p);
        else
            ech__tell_none(s);
    }
}

static void tell_plots(ech__sheet *s)
{
    ech__tell_plot(s, "speedup", "Speedup of a small and a large model", NULL);
    ech__tell_scaling_axes(s);
    for (int c = 0; c < CASE_COUNT; c++)
        ech__tell_scaling_series(s, CASES[c].prefix, CASES[c].name);

    for (int c = 0; c < CASE_COUNT; c++) {
        const char *prefixes[ECH__LAB_SHARED_MOST];
        int64_t devices[ECH__LAB_SHARED_MOST];
        size_t count = 0;
        ech__tell_plot(s, "stacked",
                       c == SMALL ? "A step of the small model" : "A step of the large model",
                       "On rank 0, medians.");
        ech__tell_y(s, (ech__tell_axis){.label = "time", .unit = "s"});
        ech__tell_bar_format(s, "seconds");
        for (; count < ech__tell_devices(s) && count < ECH__LAB_SHARED_MOST; count++) {
            prefixes[count] = CASES[c].prefix;
            devices[count] = ech__tell_device(s, count);
            ech__tell_category(s, "%" PRId64 " device%s", devices[count],
                               devices[count] == 1 ? "" : "s");
        }
        ech__tell_parts_series(s, prefixes, devices, count);
    }
    if (ech__tell_asked(s, "trace")) {
        ech__tell_plot(s, "timeline", "A step of the large model under DDP",
                       "Gradients travel in buckets, each as soon as the backward pass has it.");
        ech__tell_trace(s, "trace", "DDP", TRACED);
    }
}

/* ---- answers ---- */

static void answer_efficient(ech__sheet *s)
{
    ech__tell_ask(s, "In which case is DDP more efficient?");
    if (ech__tell_alone(s))
        return;
    for (size_t i = 1; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        const ech__lab_id count = ech__lab_name("n%" PRId64, n),
                          gap = ech__lab_name("gap%" PRId64, n);
        ech__tell_let(s, count.s, "integer", "%" PRId64, n);
        ech__tell_let(s, gap.s, "percent0", "large_e%" PRId64 " - small_e%" PRId64, n, n);
        ech__tell_sayf(s,
                       "On {%s} devices the small model has an efficiency of {small_e%" PRId64
                       "}, the large one of {large_e%" PRId64 "}.",
                       count.s, n, n);
        const int side = ech__tell_side(s, gap.s, 0);
        ech__tell_sayf(
            s,
            side > 0   ? "The large one is more efficient, by {%s} ({%s.low} to {%s.high})."
            : side < 0 ? "The small one is more efficient: the difference is {%s} ({%s.low} "
                         "to {%s.high}), against the textbook."
                       : "The difference, {%s} ({%s.low} to {%s.high}), may be none.",
            gap.s, gap.s, gap.s);
    }
    ech__tell_say_emulated(s);
}

static void answer_why(ech__sheet *s)
{
    ech__tell_ask(s, "Why: how many bytes move for each operation that is computed?");
    if (ech__tell_alone(s))
        return;
    ech__tell_say(s,
                  "On {devices} devices, each computes {small_flops} of the small model "
                  "in a step and moves {small_bytes} each way; of the large one {large_flops} and "
                  "{large_bytes}.");
    ech__tell_let(s, "same", "fixed3", "large_intensity / small_intensity");
    const double same = ech__tell_value(s, "same").value;
    ech__tell_say(
        s, same > 0.8 && same < 1.25
               ? "That is {small_intensity} and {large_intensity}, nearly the same: a linear "
                 "layer computes and sends in proportion to its weights, so it is the samples "
                 "per device that count and not the size of the model."
           : same < 1
               ? "That is {small_intensity} and {large_intensity}: the large model moves less."
               : "That is {small_intensity} and {large_intensity}: the large model moves more.");
    ech__tell_let(s, "rates", "fixed2", "large_rate / small_rate");
    ech__tell_let(s, "bandwidths", "fixed2", "large_bandwidth / small_bandwidth");
    ech__tell_say(s, "As to how fast both go, the small model computes at {small_rate} and "
                     "exchanges at {small_bandwidth} a device, the large one at {large_rate} and "
                     "{large_bandwidth}, {rates} and {bandwidths} times as fast.");
    ech__tell_let(s, "shares", "percent0", "large_share - small_share");
    const int side = ech__tell_side(s, "shares", 0);
    ech__tell_say(
        s, side > 0   ? "So communication takes more of the large model's step: {large_share} "
                        "against {small_share}."
           : side < 0 ? "So communication takes less of the large model's step: {large_share} "
                        "against {small_share}."
                      : "Communication takes {small_share} of the small model's step and "
                        "{large_share} of the large one's, which may be the same.");
}

static void say_half(ech__sheet *s, int c)
{
    const char *p = CASES[c].prefix;
    const bool none = ech__tell_value(s, "%shalf", p).value < 1;
    if (none)
        ech__tell_sayf(s,
                       "Of the %s model on two devices it should be less than half even with one "
                       "sample on each.",
                       CASES[c].name);
    else
        ech__tell_sayf(
            s,
            "Of the %s model on two devices communication should take half of the step with "
            "{%shalf} samples on each; with the whole batch it takes {%sshare}.",
            CASES[c].name, p, p);
    if (!ech__tell_asked(s, CASES[c].check)) {
        ech__tell_say(s, "There is no run that checks it.");
        return;
    }
    const int side = ech__tell_side(s, ech__lab_name("%schecked_share", p).s, 0.5);
    ech__tell_sayf(
        s,
        "A run with {%schecked} has a share of {%schecked_share} ({%schecked_share.low} to "
        "{%schecked_share.high}), %s",
        p, p, p, p,
        side == 0  ? "which agrees with half within its interval."
        : side > 0 ? "so half is reached only with more samples."
        : none     ? "which is less than half as computed."
                   : "so half is reached only with fewer samples.");
}

static void answer_half(ech__sheet *s)
{
    ech__tell_ask(s, "At which batch does communication take half of the step?");
    if (ech__tell_alone(s))
        return;
    for (int c = 0; c < CASE_COUNT; c++)
        say_half(s, c);
    for (int c = 0; c < CASE_COUNT; c++) {
        const ech__lab_id name = ech__lab_name("%shalf_devices", CASES[c].prefix);
        const ech__lab_figure devices =
            ech__tell_value(s, "[%s communication_is_half.devices]", CASES[c].plan);
        if (!devices.known)
            continue;
        ech__tell_let(s, name.s, "integer", "[%s communication_is_half.devices]", CASES[c].plan);
        ech__tell_sayf(
            s,
            "With the batch of {batch} kept, it is predicted to be half of the %s model's "
            "step from {%s} devices on.",
            CASES[c].name, name.s);
    }
}

static void tell(ech__sheet *s)
{
    name_figures(s);
    tell_tables(s);
    if (ech__tell_most(s) > 1)
        tell_rates(s);
    tell_plots(s);
    answer_efficient(s);
    answer_why(s);
    answer_half(s);
}

const ech__study_card ech__study_comm_vs_compute = {
    .id = "comm-vs-compute",
    .group = 'A',
    .place = 3,
    .title = "Communication against computation",
    .about =
        "A small and a large linear stack on one and more devices, and runs at the batch at which "
        "communication should take half of the step.",
    .params = params,
    .quick_seconds = 35,
    .full_seconds = 900,
    .runs = runs,
    .tell = tell,
};
