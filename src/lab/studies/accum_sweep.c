/* More and more micro-steps of one size before each update, in f32 and in mixed precision; and why the loss is
 * divided by their number, shown on gradients. */
#include "lab/spread.h"

#include <stdio.h>

static const ech__lab_param params[] = {
    {"dim", 512, 2048, 1, 65536, "width of a layer"},
    {"depth", 4, 4, 1, 1000, "layers"},
    {"micro-batch", 32, 32, 1, 65536, "samples of a micro-step on each device"},
    {"ranks", 2, 2, 1, 64, "devices"},
    {"steps", 35, 35, 6, 100000, "steps of a run, 5 of them warm-up"},
    {"gradient-dim", 256, 512, 1, 65536, "width of a layer in the runs that compare gradients"},
    {0},
};

static const int64_t counts[] = {4, 8, 16, 32};
enum { COUNTS = sizeof counts / sizeof *counts };

/* A single step of plain sgd with this rate leaves nothing in the parameters but the gradient, to the last digits. */
#define GRADIENT_RATE "1e6"

static ech__lab_id id_of(bool low, int64_t accum)
{
    return low ? ech__lab_name("both%" PRId64 "-bf16", accum)
               : ech__lab_name("accum%" PRId64, accum);
}

/* One step each: the whole batch on one device, and the same samples in micro-steps, with the division and without. */
static void gradient_runs(ech__lab_runs *lab, int64_t accum)
{
    const int64_t ranks = ech__lab_param_of(lab, "ranks"),
                  batch = ech__lab_param_of(lab, "micro-batch");
    char words[256];
    snprintf(words, sizeof words,
             "train --model linear --dim %" PRId64 " --depth %" PRId64
             " --steps 1 --tune off --clip-norm 1e30 --lr " GRADIENT_RATE,
             ech__lab_param_of(lab, "gradient-dim"), ech__lab_param_of(lab, "depth"));
    ech__lab_run(lab, ech__lab_name("whole%" PRId64, accum).s,
                 "%s --batch-size %" PRId64 " --save-params @out/end.safetensors", words,
                 batch * ranks * accum);
    for (int undivided = 0; undivided < 2; undivided++)
        ech__lab_run(lab, ech__lab_name("%s%" PRId64, undivided ? "sum" : "mean", accum).s,
                     "%s --batch-size %" PRId64 " --devices %" PRId64 " --accum %" PRId64
                     "%s --params-against @of:whole%" PRId64 "/end.safetensors",
                     words, batch, ranks, accum, undivided ? " --undivided" : "", accum);
}

static void runs(ech__lab_runs *lab)
{
    ech__lab_spread stack = {.dim = ech__lab_param_of(lab, "dim"),
                             .depth = ech__lab_param_of(lab, "depth"),
                             .batch = ech__lab_param_of(lab, "micro-batch"),
                             .devices = ech__lab_param_of(lab, "ranks"),
                             .steps = ech__lab_param_of(lab, "steps")};
    for (size_t i = 0; i < COUNTS; i++) {
        char more[128];
        stack.accum = counts[i];
        stack.more = NULL;
        ech__lab_spread_ranks(lab, id_of(false, counts[i]).s, &stack);
        snprintf(more, sizeof more, "--amp bf16 --against @of:%s", id_of(false, counts[i]).s);
        stack.more = more;
        ech__lab_spread_ranks(lab, id_of(true, counts[i]).s, &stack);
    }
    for (size_t i = 0; i < COUNTS; i++)
        gradient_runs(lab, counts[i]);
}

/* ---- tables and plots ---- */

/* What the row shows beside the first one of its program. */
static void tell_observation(ech__sheet *s, bool low, int64_t accum)
{
    const char *by = low ? "low" : "f32";
    const ech__lab_id time = ech__lab_name("micro_%s_%" PRId64, by, accum),
                      memory = ech__lab_name("memory_%s_%" PRId64, by, accum);
    const int side = ech__tell_side(s, time.s, 1);
    const ech__lab_figure m = ech__tell_value(s, "%s", memory.s);
    if (accum == counts[0])
        ech__tell_words(s, "held against");
    else
        ech__tell_words(s, "%smemory %s",
                        side < 0   ? "faster, "
                        : side > 0 ? "slower, "
                                   : "",
                        !m.known         ? "unknown"
                        : m.value > 1.01 ? "more"
                        : m.value < 0.99 ? "less"
                                         : "equal");
}

static void tell_sweep(ech__sheet *s)
{
    ech__tell_table(
        s, "ACCUM_STEPS at a fixed micro-batch",
        "By the first, and observation: a micro-step and the memory beside those of the "
        "program's first row. Faster and slower only where the interval says so.");
    ech__tell_column(s, "program", "text");
    ech__tell_column(s, "ACCUM", "integer");
    ech__tell_column(s, "batch", "integer");
    ech__tell_column(s, "time/step", "seconds");
    ech__tell_column(s, "time/micro-step", "seconds");
    ech__tell_column(s, "by the first", "fixed2");
    ech__tell_column(s, "exchange and update", "percent1");
    ech__tell_column(s, "memory", "bytes");
    ech__tell_column(s, "observation", "text");
    for (int low = 0; low < 2; low++) {
        for (size_t i = 0; i < COUNTS; i++) {
            const ech__lab_id id = id_of(low, counts[i]), first = id_of(low, counts[0]);
            const char *by = low ? "low" : "f32";
            ech__tell_let(s, ech__lab_name("micro_%s_%" PRId64, by, counts[i]).s, "fixed3",
                          "steps[%s time_s] / %" PRId64 " / (steps[%s time_s] / %" PRId64 ")", id.s,
                          counts[i], first.s, counts[0]);
            ech__tell_let(s, ech__lab_name("memory_%s_%" PRId64, by, counts[i]).s, "fixed4",
                          "[%s summary.peak_memory_bytes.0] / [%s summary.peak_memory_bytes.0]",
                          id.s, first.s);
            ech__tell_row(s);
            ech__tell_words(s, "%s", low ? "3, bf16" : "1, f32");
            ech__tell_cell(s, "%" PRId64, counts[i]);
            ech__tell_cell(s, "[%s config.global_batch]", id.s);
            ech__tell_plain(s, "steps[%s time_s]", id.s);
            ech__tell_cell(s, "steps[%s time_s] / %" PRId64, id.s, counts[i]);
            ech__tell_cell(s, "micro_%s_%" PRId64, by, counts[i]);
            ech__tell_plain(s,
                            "(steps[%s comm_exposed_s] + steps[%s wait_s] + steps[%s optimizer_s]) "
                            "/ steps[%s time_s]",
                            id.s, id.s, id.s, id.s);
            ech__tell_cell(s, "[%s summary.peak_memory_bytes.0]", id.s);
            tell_observation(s, low, counts[i]);
        }
    }
}

static void tell_plot(ech__sheet *s)
{
    ech__tell_plot(s, "lines", "Time of a micro-step",
                   "A step's time by its micro-steps; the first point has most exchanges.");
    ech__tell_x(s, (ech__tell_axis){.label = "ACCUM_STEPS", .scale = "log2"});
    ech__tell_y(s, (ech__tell_axis){.label = "time of a micro-step", .unit = "ms"});
    for (int low = 0; low < 2; low++) {
        ech__tell_series(s, "%s", low ? "accumulation + AMP (bf16)" : "accumulation (f32)");
        for (size_t i = 0; i < COUNTS; i++)
            ech__tell_point(s, (double)counts[i], "1000 * steps[%s time_s] / %" PRId64,
                            id_of(low, counts[i]).s, counts[i]);
    }
}

/* The step that left the gradient in the parameters: how far it is from that of the whole batch, by its length. */
static void let_gradients(ech__sheet *s, int64_t accum)
{
    for (int undivided = 0; undivided < 2; undivided++) {
        const char *run = undivided ? "sum" : "mean";
        ech__tell_let(s, ech__lab_name("length_%s_%" PRId64, run, accum).s, "fixed6",
                      "first[%s%" PRId64 " grad_norm 1] / first[whole%" PRId64 " grad_norm 1]", run,
                      accum, accum);
        ech__tell_let(s, ech__lab_name("gap_%s_%" PRId64, run, accum).s, "general",
                      "[%s%" PRId64 " summary.params_against.distance] / (" GRADIENT_RATE
                      " * first[whole%" PRId64 " grad_norm 1])",
                      run, accum, accum);
    }
}

static void tell_gradients(ech__sheet *s)
{
    ech__tell_table(s, "Gradients of a step in micro-steps against that of the whole batch",
                    "Distance: norm of the difference of both gradients, by the norm of the whole "
                    "batch's. All three begin with the same parameters and have the same samples.");
    ech__tell_column(s, "ACCUM_STEPS", "integer");
    ech__tell_column(s, "samples", "integer");
    ech__tell_column(s, "norm, whole batch", "general");
    ech__tell_column(s, "length by it, divided", "fixed6");
    ech__tell_column(s, "distance, divided", "general");
    ech__tell_column(s, "length by it, undivided", "fixed6");
    ech__tell_column(s, "distance, undivided", "general");
    for (size_t i = 0; i < COUNTS; i++) {
        let_gradients(s, counts[i]);
        ech__tell_row(s);
        ech__tell_cell(s, "%" PRId64, counts[i]);
        ech__tell_cell(s, "[whole%" PRId64 " config.global_batch]", counts[i]);
        ech__tell_cell(s, "first[whole%" PRId64 " grad_norm 1]", counts[i]);
        ech__tell_cell(s, "length_mean_%" PRId64, counts[i]);
        ech__tell_cell(s, "gap_mean_%" PRId64, counts[i]);
        ech__tell_cell(s, "length_sum_%" PRId64, counts[i]);
        ech__tell_cell(s, "gap_sum_%" PRId64, counts[i]);
    }
}

/* ---- answers ---- */

static void say_batch(ech__sheet *s)
{
    const int64_t first = counts[0], last = counts[COUNTS - 1];
    ech__tell_let(s, "batch", "integer", "[accum%" PRId64 " config.batch_size]", first);
    ech__tell_let(s, "devices", "integer", "[accum%" PRId64 " summary.devices]", first);
    ech__tell_let(s, "k1", "integer", "%" PRId64, first);
    ech__tell_let(s, "k2", "integer", "%" PRId64, last);
    ech__tell_let(s, "global1", "integer", "[accum%" PRId64 " config.global_batch]", first);
    ech__tell_let(s, "global2", "integer", "[accum%" PRId64 " config.global_batch]", last);
    ech__tell_let(s, "product", "integer", "batch * devices * k2");
    ech__tell_let(s, "memory", "fixed3", "memory_f32_%" PRId64, last);
    ech__tell_let(s, "memory_low", "fixed3", "memory_low_%" PRId64, last);
    ech__tell_ask(s, "What is the effective batch size, and what does it cost in memory?");
    ech__tell_say(s,
                  "It is micro-batch times devices times ACCUM_STEPS: {batch} x {devices} x {k2} "
                  "= {product}, and the record of that run says {global2}; with ACCUM_STEPS "
                  "{k1} it is {global1}.");
    ech__tell_say(s,
                  "A device keeps the activations of one micro-step at a time: from {k1} to {k2} "
                  "micro-steps its memory becomes {memory} times as much in f32 and {memory_low} "
                  "times with AMP.");
}

static void say_time(ech__sheet *s)
{
    const int64_t last = counts[COUNTS - 1];
    const ech__lab_phrase points = ech__lab_each(counts, COUNTS, ", ", "#, steps[accum# time_s]");
    ech__tell_let(s, "each", "seconds", "slope(%s)", points.s);
    ech__tell_let(s, "rest", "seconds", "intercept(%s)", points.s);
    ech__tell_let(s, "change", "percent1", "micro_f32_%" PRId64 " - 1", last);
    for (int i = 0; i < 2; i++) {
        const ech__lab_id id = id_of(false, i ? last : counts[0]);
        ech__tell_let(s, i ? "sync2" : "sync1", "percent1",
                      "(steps[%s comm_exposed_s] + steps[%s wait_s] + steps[%s optimizer_s]) / "
                      "steps[%s time_s]",
                      id.s, id.s, id.s, id.s);
    }
    ech__tell_let(s, "precision", "fixed2", "steps[%s time_s] / steps[%s time_s]",
                  id_of(true, last).s, id_of(false, last).s);
    ech__tell_ask(s, "What do more micro-steps do to the time?");
    ech__tell_say(s, "A line through the steps in f32 has {each} for each micro-step and {rest} "
                     "({rest.low} to {rest.high}) for what a step has once: exchange and update.");
    ech__tell_say(s, "Exchange and update are {sync1} of a step with ACCUM_STEPS {k1} and {sync2} "
                     "with {k2}; a micro-step's time changes by {change} ({change.low} to "
                     "{change.high}) between the two.");
    ech__tell_by_side(s, "change", 0, "So more micro-steps do save time, ever less of it.",
                      "So beyond the first row there is nothing left to save that could be told "
                      "from noise.",
                      "So micro-steps become slower rather than faster, against what the saved "
                      "exchanges promise.");
    ech__tell_say(s, "With AMP the longest step takes {precision} times as long as in f32 "
                     "({precision.low} to {precision.high}).");
}

static void say_division(ech__sheet *s)
{
    const int64_t last = counts[COUNTS - 1];
    ech__tell_let(s, "with", "fixed6", "length_mean_%" PRId64, last);
    ech__tell_let(s, "without", "fixed4", "length_sum_%" PRId64, last);
    ech__tell_let(s, "gap_with", "general", "max(%s)",
                  ech__lab_each(counts, COUNTS, ", ", "gap_mean_#").s);
    ech__tell_let(s, "gap_without", "fixed4", "gap_sum_%" PRId64, last);
    ech__tell_let(s, "gap_first", "fixed4", "gap_sum_%" PRId64, counts[0]);
    ech__tell_let(s, "ratio", "fixed6", "without / k2");
    ech__tell_ask(s, "Why is the loss divided by ACCUM_STEPS?");
    ech__tell_say(s, "The loss is a mean over samples, so gradients of micro-steps that are added "
                     "up are ACCUM_STEPS times that of the mean over all of them.");
    ech__tell_say(s,
                  "Measured: with {k2} micro-steps and the division the gradient is {with} times "
                  "as long as that of the whole batch of {global2} samples; without it "
                  "{without} times.");
    ech__tell_say(s, "The difference to the whole batch's gradient, by its length, is at most "
                     "{gap_with} with the division over all rows; without it is {gap_first} for "
                     "{k1} micro-steps and {gap_without} for {k2}.");
    const ech__lab_figure ratio = ech__tell_value(s, "abs(ratio - 1)"),
                          gap = ech__tell_value(s, "gap_with");
    if (!ratio.known || !gap.known)
        return;
    if (ratio.value < 1e-3 && gap.value < 1e-3)
        ech__tell_say(s, "So the division makes accumulation the training of one large batch, to "
                         "rounding; without it every update is made with a learning rate that is "
                         "ACCUM_STEPS times as large.");
    else
        ech__tell_say(s, "That is not what was to be expected, equal to rounding with the division "
                         "and ACCUM_STEPS times as long without.");
}

static void tell(ech__sheet *s)
{
    tell_sweep(s);
    tell_plot(s);
    say_batch(s);
    say_time(s);
    tell_gradients(s);
    say_division(s);
}

const ech__study_card ech__study_accum_sweep = {
    .id = "accum-sweep",
    .group = 'B',
    .place = 2,
    .title = "ACCUM_STEPS from few to many",
    .about = "Accumulation in f32 and in mixed precision with more and more micro-steps of one "
             "size; and single steps whose gradients are held against that of the whole batch.",
    .params = params,
    .quick_seconds = 25,
    .full_seconds = 230,
    .runs = runs,
    .tell = tell,
};
