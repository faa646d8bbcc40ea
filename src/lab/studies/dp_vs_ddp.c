/* DataParallel, where all goes through device 0, against DDP, where devices are equal. */
#include "lab/shared.h"

#include <math.h>

static const ech__lab_param params[] = {
    ECH__LAB_STACK_PARAMS,
    {"slack", 10, 10, 0, 1000, "per cent that DataParallel may be slower and still be acceptable"},
    {0},
};

/* Batches of the comparison on two devices, as multiples of half the batch: those of the study of batches. */
static const int64_t BATCHES[] = {1, 2, 4, 8};
enum {
    BATCH_COUNT = sizeof BATCHES / sizeof *BATCHES,
    TRACED = 8 /* steps of runs with a trace */
};

/* ---- runs ---- */

static void ask_batches(ech__lab_runs *lab, ech__lab_stack stack)
{
    const int64_t half = stack.batch / 2;
    for (int b = 0; b < BATCH_COUNT; b++) {
        stack.batch = half * BATCHES[b] > 2 ? half * BATCHES[b] : 2;
        ech__lab_train(lab, ech__lab_name("batch%d_one", b).s, stack, 1, NULL);
        ech__lab_train(lab, ech__lab_name("batch%d_ddp", b).s, stack, 2, NULL);
        ech__lab_train(lab, ech__lab_name("batch%d_dp", b).s, stack, 2, "--parallel dp");
    }
}

static void runs(ech__lab_runs *lab)
{
    ech__lab_stack stack = ech__lab_stack_of(lab);
    if (ech__lab_devices(lab) < 2) {
        ech__lab_skip(lab, "dp", "DataParallel on one device is no different from it");
        return;
    }
    ech__lab_plan(lab, "plan", stack, "--parallel dp");
    ech__lab_scaling(lab, "ddp_", stack, NULL);
    for (size_t i = 1; i < ech__lab_devices(lab); i++) {
        const int64_t n = ech__lab_device(lab, i);
        ech__lab_train(lab, ech__lab_name("dp_n%" PRId64, n).s, stack, n, "--parallel dp");
    }
    ask_batches(lab, stack);
    stack.steps = TRACED;
    ech__lab_train(lab, "dp_trace", stack, 2, "--parallel dp --trace");
    ech__lab_train(lab, "ddp_trace", stack, 2, "--trace");
}

/* ---- figures ---- */

/* DataParallel runs by the real clock only: where devices have no core each, its time is the predicted one. */
static bool is_real(const ech__sheet *s, int64_t n)
{
    return n <= ech__tell_cores(s);
}

static void name_devices(ech__sheet *s, int64_t n)
{
    ech__tell_let(s, ech__lab_name("n%" PRId64, n).s, "integer", "%" PRId64, n);
    if (is_real(s, n))
        ech__tell_let(s, ech__lab_name("dp_t%" PRId64, n).s, "seconds",
                      "steps[dp_n%" PRId64 " time_s]", n);
    else
        ech__tell_let(s, ech__lab_name("dp_t%" PRId64, n).s, "seconds",
                      "[plan rows.devices=%" PRId64 ".step_time_s]", n);
    ech__tell_let(s, ech__lab_name("dp_s%" PRId64, n).s, "fixed2", "ddp_t1 / dp_t%" PRId64, n);
    ech__tell_let(s, ech__lab_name("slower%" PRId64, n).s, "fixed2",
                  "dp_t%" PRId64 " / ddp_t%" PRId64, n, n);
    /* Through the busiest device, both ways together. */
    ech__tell_let(s, ech__lab_name("dp_bytes%" PRId64, n).s, "bytes",
                  "[dp_n%" PRId64 " summary.data_parallel.devices.0.bytes_in] + [dp_n%" PRId64
                  " summary.data_parallel.devices.0.bytes_out]",
                  n, n);
    ech__tell_let(s, ech__lab_name("ddp_bytes%" PRId64, n).s, "bytes",
                  "4 * (%" PRId64 " - 1) / %" PRId64 " * [ddp_n%" PRId64
                  " summary.comm_bytes_per_step]",
                  n, n, n);
}

static void name_figures(ech__sheet *s)
{
    ech__tell_scaling(s, "ddp_");
    for (size_t i = 1; i < ech__tell_devices(s); i++)
        name_devices(s, ech__tell_device(s, i));
    for (int b = 0; b < BATCH_COUNT; b++) {
        ech__tell_let(s, ech__lab_name("batch%d", b).s, "integer",
                      "[batch%d_dp config.global_batch]", b);
        ech__tell_let(s, ech__lab_name("ratio%d", b).s, "fixed2",
                      "steps[batch%d_dp time_s] / steps[batch%d_ddp time_s]", b, b);
        ech__tell_let(s, ech__lab_name("gain%d", b).s, "fixed2",
                      "steps[batch%d_one time_s] / steps[batch%d_dp time_s]", b, b);
    }
}

/* ---- tables ---- */

static void tell_dp_row(ech__sheet *s, int64_t n, int64_t d)
{
    ech__tell_row(s);
    ech__tell_words(s, "DP");
    ech__tell_plain(s, "%" PRId64, n);
    ech__tell_plain(s, "%" PRId64, d);
    if (is_real(s, n)) {
        ech__tell_cell(s, "[dp_n%" PRId64 " summary.utilisation.%" PRId64 "]", n, d);
        ech__tell_cell(s, "dp_t%" PRId64, n);
        ech__tell_plain(s, "1e6 * std[dp_n%" PRId64 " time_s] * std[dp_n%" PRId64 " time_s]", n, n);
    } else {
        ech__tell_none(s);
        ech__tell_note(s, "DataParallel is one process and runs by the real clock, and there are "
                          "fewer cores than devices: its step time is predicted, and there is no "
                          "busy time or variance.");
        ech__tell_plain(s, "dp_t%" PRId64, n);
        ech__tell_none(s);
    }
    ech__tell_plain(s, "[dp_n%" PRId64 " summary.peak_memory_bytes.%" PRId64 "]", n, d);
    ech__tell_plain(s, "[dp_n%" PRId64 " summary.data_parallel.devices.%" PRId64 ".bytes_in]", n,
                    d);
    ech__tell_plain(s, "[dp_n%" PRId64 " summary.data_parallel.devices.%" PRId64 ".bytes_out]", n,
                    d);
}

static void tell_ddp_row(ech__sheet *s, int64_t n, int64_t d)
{
    ech__tell_row(s);
    ech__tell_words(s, "DDP");
    ech__tell_plain(s, "%" PRId64, n);
    ech__tell_plain(s, "%" PRId64, d);
    ech__tell_cell(s, "[ddp_n%" PRId64 " summary.utilisation.%" PRId64 "]", n, d);
    ech__tell_cell(s, "ddp_t%" PRId64, n);
    ech__tell_plain(s, "1e6 * std[ddp_n%" PRId64 " time_s] * std[ddp_n%" PRId64 " time_s]", n, n);
    ech__tell_plain(s, "[ddp_n%" PRId64 " summary.peak_memory_bytes.%" PRId64 "]", n, d);
    ech__tell_plain(s, "ddp_bytes%" PRId64 " / 2", n);
    ech__tell_plain(s, "ddp_bytes%" PRId64 " / 2", n);
}

static void tell_devices(ech__sheet *s)
{
    ech__tell_table(
        s, "Each device in a step",
        "Bytes of DDP are those of an all-reduce: two N-1 N-ths of the gradients each way.");
    ech__tell_column(s, "strategy", "text");
    ech__tell_column(s, "devices", "integer");
    ech__tell_column(s, "device", "integer");
    ech__tell_column(s, "busy", "percent0");
    ech__tell_column(s, "time/step", "seconds");
    ech__tell_column(s, "variance", "general ms²");
    ech__tell_column(s, "peak memory", "bytes");
    ech__tell_column(s, "bytes in", "bytes");
    ech__tell_column(s, "bytes out", "bytes");
    for (size_t i = 1; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        for (int64_t d = 0; d < n; d++)
            tell_dp_row(s, n, d);
        for (int64_t d = 0; d < n; d++)
            tell_ddp_row(s, n, d);
    }
}

static void tell_batches(ech__sheet *s)
{
    ech__tell_table(s, "Two devices by batch", NULL);
    ech__tell_column(s, "batch", "integer");
    ech__tell_column(s, "one device", "seconds");
    ech__tell_column(s, "DP", "seconds");
    ech__tell_column(s, "DDP", "seconds");
    ech__tell_column(s, "DP by DDP", "fixed2");
    ech__tell_column(s, "DP's speedup", "fixed2");
    for (int b = 0; b < BATCH_COUNT; b++) {
        ech__tell_row(s);
        ech__tell_plain(s, "batch%d", b);
        ech__tell_cell(s, "steps[batch%d_one time_s]", b);
        ech__tell_cell(s, "steps[batch%d_dp time_s]", b);
        ech__tell_cell(s, "steps[batch%d_ddp time_s]", b);
        ech__tell_cell(s, "ratio%d", b);
        ech__tell_cell(s, "gain%d", b);
    }
}

/* ---- plots ---- */

static void tell_memory(ech__sheet *s)
{
    static const char *const kinds[] = {"weights", "gradients", "inputs", "activations",
                                        "workspace"};
    ech__tell_plot(s, "stacked", "Memory of each device by kind, two devices", NULL);
    ech__tell_y(s, (ech__tell_axis){.label = "memory", .unit = "bytes"});
    ech__tell_bar_format(s, "bytes");
    ech__tell_category(s, "DP, device 0");
    ech__tell_category(s, "DP, device 1");
    ech__tell_category(s, "DDP, device 0");
    ech__tell_category(s, "DDP, device 1");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        ech__tell_series(s, "%s", kinds[k]);
        for (int d = 0; d < 2; d++)
            ech__tell_bar(s, "[dp_trace summary.memory_by_kind.%d.%s]", d, kinds[k]);
        for (int d = 0; d < 2; d++)
            ech__tell_bar(s, "[ddp_trace summary.memory_by_kind.%d.%s]", d, kinds[k]);
    }
}

static void tell_plots(ech__sheet *s)
{
    ech__tell_plot(s, "bars", "Bytes through the busiest device in a step", "In and out.");
    ech__tell_y(s, (ech__tell_axis){.label = "moved", .unit = "bytes"});
    ech__tell_bar_format(s, "bytes");
    for (size_t i = 1; i < ech__tell_devices(s); i++)
        ech__tell_category(s, "%" PRId64 " devices", ech__tell_device(s, i));
    ech__tell_series(s, "DP");
    for (size_t i = 1; i < ech__tell_devices(s); i++)
        ech__tell_bar(s, "dp_bytes%" PRId64, ech__tell_device(s, i));
    ech__tell_series(s, "DDP");
    for (size_t i = 1; i < ech__tell_devices(s); i++)
        ech__tell_bar(s, "ddp_bytes%" PRId64, ech__tell_device(s, i));

    tell_memory(s);

    ech__tell_plot(s, "timeline", "A step under DP and under DDP, two devices", NULL);
    ech__tell_trace(s, "dp_trace", "DP", TRACED);
    ech__tell_trace(s, "ddp_trace", "DDP", TRACED);

    ech__tell_plot(s, "lines", "Step time of DP by DDP's, two devices", NULL);
    ech__tell_x(s, (ech__tell_axis){.label = "batch", .unit = "samples", .scale = "log2"});
    ech__tell_y(s, (ech__tell_axis){.label = "DP by DDP"});
    ech__tell_mark(s, 'y', 1, "equal");
    ech__tell_series(s, "DP by DDP");
    for (int b = 0; b < BATCH_COUNT; b++)
        ech__tell_point(s, ech__tell_value(s, "batch%d", b).value, "ratio%d", b);
}

/* ---- answers ---- */

static void answer_bottleneck(ech__sheet *s)
{
    const int64_t n = ech__tell_most(s), real = ech__tell_most_real(s);
    ech__tell_let(s, "bytes_ratio", "fixed1",
                  "dp_bytes%" PRId64 " / ([dp_n%" PRId64
                  " summary.data_parallel.devices.1.bytes_in] + [dp_n%" PRId64
                  " summary.data_parallel.devices.1.bytes_out])",
                  n, n, n);
    ech__tell_let(s, "memory0", "bytes", "[dp_n%" PRId64 " summary.peak_memory_bytes.0]", n);
    ech__tell_let(s, "memory1", "bytes", "[dp_n%" PRId64 " summary.peak_memory_bytes.1]", n);

    ech__tell_ask(s, "Why is device 0 the bottleneck of DataParallel?");
    ech__tell_sayf(
        s,
        "In a step of {n%" PRId64 "} devices {dp_bytes%" PRId64
        "} pass through device 0, in and out: {bytes_ratio} times as much as through one of "
        "the others. It holds {memory0}, another {memory1}.",
        n, n);
    if (real < 2)
        return;
    ech__tell_let(s, "busy0", "percent0", "[dp_n%" PRId64 " summary.utilisation.0]", real);
    ech__tell_let(s, "busy1", "percent0", "[dp_n%" PRId64 " summary.utilisation.1]", real);
    ech__tell_let(s, "alone", "percent0",
                  "([dp_n%" PRId64 " summary.data_parallel.parts_s.scatter] + [dp_n%" PRId64
                  " summary.data_parallel.parts_s.replicate] + [dp_n%" PRId64
                  " summary.data_parallel.parts_s.gather] + [dp_n%" PRId64
                  " summary.data_parallel.parts_s.loss] + [dp_n%" PRId64
                  " summary.data_parallel.parts_s.scatter_gradient] + [dp_n%" PRId64
                  " summary.data_parallel.parts_s.reduce] + [dp_n%" PRId64
                  " summary.data_parallel.parts_s.optimizer]) / dp_t%" PRId64,
                  real, real, real, real, real, real, real, real);
    ech__tell_sayf(
        s,
        ech__tell_value(s, "busy0 - busy1").value > 0.01
            ? "Of {n%" PRId64 "} devices it is busy for {busy0} of the step, another for "
              "{busy1}, which waits for the rest."
            : "Of {n%" PRId64 "} devices it is busy for {busy0} of the step and another for "
              "{busy1}: here it is not the busier one.",
        real);
    ech__tell_say(
        s, "For {alone} of the step only device 0 does something: handing out rows and "
           "parameters, taking in predictions, the loss, adding up gradients and the update.");
}

static void answer_scales(ech__sheet *s)
{
    const int64_t first = ech__tell_device(s, 1), last = ech__tell_most(s);
    ech__tell_ask(s, "Why does DDP scale better?");
    for (size_t i = 1; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        ech__tell_sayf(s,
                       "On {n%" PRId64 "} devices the busiest one moves {dp_bytes%" PRId64
                       "} under DP and {ddp_bytes%" PRId64
                       "} under DDP, and the speedup is {dp_s%" PRId64 "} against {ddp_s%" PRId64
                       "}.",
                       n, n, n, n, n);
    }
    ech__tell_let(s, "most_bytes", "bytes", "4 * [ddp_n%" PRId64 " summary.comm_bytes_per_step]",
                  last);
    if (first != last) {
        ech__tell_let(s, "each", "bytes",
                      "(dp_bytes%" PRId64 " - dp_bytes%" PRId64 ") / (%" PRId64 " - %" PRId64 ")",
                      last, first, last, first);
        ech__tell_say(s, "Every further device adds {each} to what device 0 has to move.");
    }
    ech__tell_say(s, "Under DDP it stays below {most_bytes}, whatever the number of devices.");
    const ech__lab_id slower = ech__lab_name("slower%" PRId64, last);
    const int side = ech__tell_side(s, slower.s, 1);
    ech__tell_sayf(s,
                   side > 0   ? "On {n%" PRId64 "} devices a step of DP takes {%s} times DDP's."
                   : side < 0 ? "Even so on {n%" PRId64 "} devices a step of DP takes {%s} times "
                                "DDP's: DP is faster here, against the textbook."
                              : "On {n%" PRId64
                                "} devices a step of DP takes {%s} times DDP's, which "
                                "may be the same.",
                   last, slower.s);
    if (last > ech__tell_cores(s)) {
        ech__tell_let(s, "cores", "integer", "%" PRId64, ech__tell_cores(s));
        ech__tell_say(s,
                      "With more devices than the {cores} cores of this machine, times of DDP are "
                      "emulated and times of DP are predicted.");
    }
}

/* Where all figures NAME0, NAME1, ... lie: -1 below the bound, 1 above it, 0 neither, by their intervals. */
static int side_of_all(ech__sheet *s, const char *name, double bound)
{
    int below = 0, above = 0;
    for (int b = 0; b < BATCH_COUNT; b++) {
        const int side = ech__tell_side(s, ech__lab_name("%s%d", name, b).s, bound);
        below += side < 0;
        above += side > 0;
    }
    return (above == BATCH_COUNT) - (below == BATCH_COUNT);
}

/* Names the batch at which figures NAME0, NAME1, ... meet a figure; false where they do not. */
static bool let_crossing(ech__sheet *s, const char *crossing, const char *level, const char *name)
{
    return ech__tell_let(s, crossing, "fixed0",
                         "crossing(%s, batch0, %s0, batch1, %s1, batch2, %s2, batch3, %s3)", level,
                         name, name, name, name)
        .known;
}

static void answer_acceptable(ech__sheet *s)
{
    const int last = BATCH_COUNT - 1;
    ech__tell_let(s, "slack", "percent0", "%" PRId64 " / 100", ech__tell_param(s, "slack"));
    const int slower = side_of_all(s, "ratio", 1 + (double)ech__tell_param(s, "slack") / 100),
              faster = side_of_all(s, "gain", 1);
    ech__tell_ask(s, "When is DataParallel still acceptable?");
    ech__tell_sayf(s,
                   "On two devices a step of DP takes {ratio0} times DDP's ({ratio0.low} to "
                   "{ratio0.high}) with {batch0} samples and {ratio%d} times ({ratio%d.low} to "
                   "{ratio%d.high}) with {batch%d}.",
                   last, last, last, last);
    if (slower > 0)
        ech__tell_say(s, "It is more than {slack} slower at every batch that was tried.");
    else if (slower < 0)
        ech__tell_say(s, "It is less than {slack} slower at every batch that was tried.");
    else if (let_crossing(s, "cross", "1 + slack", "ratio"))
        ech__tell_say(
            s, "It comes within {slack} of DDP at about {cross} samples; the intervals do not "
               "put all batches on one side.");
    else
        ech__tell_say(
            s, "On which side of {slack} slower it is cannot be told at all of the batches.");
    ech__tell_sayf(s, "Against one device its speedup is {gain0} and {gain%d}.", last);
    if (faster < 0)
        ech__tell_say(s, "One device alone is faster at all of them.");
    else if (faster > 0)
        ech__tell_say(s, "It is faster than one device at all of them.");
    else if (let_crossing(s, "pays", "1", "gain"))
        ech__tell_say(s, "It is as fast as one device alone at about {pays} samples.");
    else
        ech__tell_say(s, "Whether it is faster than one device cannot be told at all of them.");
}

static void tell(ech__sheet *s)
{
    if (ech__tell_most(s) < 2) {
        ech__tell_ask(s, "Why does DDP scale better?");
        ech__tell_alone(s);
        return;
    }
    name_figures(s);
    tell_devices(s);
    tell_batches(s);
    tell_plots(s);
    answer_bottleneck(s);
    answer_scales(s);
    answer_acceptable(s);
}

const ech__study_card ech__study_dp_vs_ddp = {
    .id = "dp-vs-ddp",
    .group = 'A',
    .place = 4,
    .title = "DataParallel against DDP",
    .about =
        "One process in which device 0 hands out parameters and adds up gradients, against one "
        "process for each device.",
    .params = params,
    .quick_seconds = 30,
    .full_seconds = 150,
    .runs = runs,
    .tell = tell,
};
