/* The layers of one stack over more and more devices, one at work at a time, and the same as a pipeline. */
#include "lab/spread.h"

#include <stdio.h>

static const ech__lab_param params[] = {
    {"dim", 512, 2048, 1, 65536, "width of a layer"},
    {"depth", 20, 20, 2, 1000, "layers"},
    {"batch", 64, 64, 1, 65536, "samples of a step"},
    {"micro-batches", 8, 8, 1, 1024, "micro-batches of a pipeline"},
    {"steps", 25, 35, 6, 100000, "steps of a run, 5 of them warm-up"},
    {0},
};

/* What is asked for, in runs and when it is told. */
typedef struct setup {
    int64_t dim, depth, batch, micros, steps;
    int64_t counts[ECH__LAB_SPREAD_COUNTS];
    size_t count;
} setup;

static ech__lab_id id_of(const char *kind, int64_t devices)
{
    return ech__lab_name("%s%" PRId64, kind, devices);
}

/* A depth that the devices do not divide, for the rule; its times are of no interest. */
static void odd_run(ech__lab_runs *lab, const setup *u)
{
    const ech__lab_spread odd = {.dim = 64,
                                 .depth = u->depth + 2,
                                 .batch = u->batch,
                                 .steps = ECH__LAB_WARMUP + 1,
                                 .devices = u->counts[u->count - 1],
                                 .more = "--tune off"};
    ech__lab_spread_layers(lab, "odd", &odd);
}

static void plan_runs(ech__lab_runs *lab, const setup *u)
{
    const ech__lab_phrase devices = ech__lab_each(u->counts, u->count, ",", "#");
    for (int pipe = 0; pipe < 2; pipe++) {
        char more[64] = "mp";
        if (pipe)
            snprintf(more, sizeof more, "pipeline --micro-batches %" PRId64, u->micros);
        ech__lab_run(lab, pipe ? "plan-pipeline" : "plan-mp",
                     "plan --model linear --dim %" PRId64 " --depth %" PRId64
                     " --batch-size %" PRId64 " --parallel %s --devices %s --measure-seconds %s",
                     u->dim, u->depth, pipe ? u->batch * u->micros : u->batch, more, devices.s,
                     ech__lab_quick(lab) ? "0.2" : "1.5");
    }
}

static void runs(ech__lab_runs *lab)
{
    setup u = {.dim = ech__lab_param_of(lab, "dim"),
               .depth = ech__lab_param_of(lab, "depth"),
               .batch = ech__lab_param_of(lab, "batch"),
               .micros = ech__lab_param_of(lab, "micro-batches"),
               .steps = ech__lab_param_of(lab, "steps")};
    u.count = ech__lab_spread_counts(ech__lab_cores(lab), u.depth, u.counts);
    ech__lab_spread stack = {.dim = u.dim, .depth = u.depth, .batch = u.batch, .steps = u.steps};
    plan_runs(lab, &u);
    for (size_t i = 0; i < u.count; i++) {
        stack.devices = u.counts[i];
        stack.micros = 0;
        stack.batch = u.batch;
        ech__lab_spread_layers(lab, id_of("mp", u.counts[i]).s, &stack);
        stack.micros = u.counts[i] > 1 ? u.micros : 0;
        if (u.counts[i] > 1)
            ech__lab_spread_layers(lab, id_of("pipe", u.counts[i]).s, &stack);
        stack.batch = u.batch * u.micros;
        ech__lab_spread_layers(lab, id_of("large", u.counts[i]).s, &stack);
    }
    stack.devices = u.counts[u.count - 1];
    stack.steps = ECH__LAB_WARMUP + 1;
    stack.more = "--trace";
    ech__lab_spread_layers(lab, "traced", &stack);
    odd_run(lab, &u);
}

/* ---- tables and plots ---- */

/* "4 4 4 4 4" */
static void tell_layer_counts(ech__sheet *s, const char *run, int64_t devices)
{
    char text[512] = "unknown";
    size_t used = 0;
    for (int64_t d = 0; ech__tell_has(s, run) && d < devices && used + 16 < sizeof text; d++)
        used += (size_t)snprintf(
            text + used, sizeof text - used, "%s%.0f", d ? " " : "",
            ech__tell_value(s, "[%s summary.stages.%" PRId64 ".layers]", run, d).value);
    ech__tell_words(s, "%s", text);
}

/* "[mp5 PATH.0], [mp5 PATH.1], ...": what an expression has for each device of a run. */
static ech__lab_phrase each_of(int64_t devices, const char *between, const char *path)
{
    char text[128];
    snprintf(text, sizeof text, "[mp%" PRId64 " %s]", devices, path);
    return ech__lab_each(NULL, (size_t)devices, between, text);
}

static void tell_devices(ech__sheet *s, const setup *u)
{
    ech__tell_table(s, "Layers over devices, one at work at a time",
                    "Busy: the shares of the step that the devices work, added up.");
    ech__tell_column(s, "devices", "integer");
    ech__tell_column(s, "layers of each", "text");
    ech__tell_column(s, "time/step", "seconds");
    ech__tell_column(s, "predicted", "seconds");
    ech__tell_column(s, "speedup", "fixed3");
    ech__tell_column(s, "busy", "percent1");
    ech__tell_column(s, "largest memory", "bytes");
    for (size_t i = 0; i < u->count; i++) {
        const int64_t n = u->counts[i];
        const ech__lab_id id = id_of("mp", n);
        ech__tell_let(s, id_of("speedup", n).s, "fixed3", "steps[mp1 time_s] / steps[%s time_s]",
                      id.s);
        ech__tell_let(s, id_of("busy", n).s, "percent1", "%s",
                      each_of(n, " + ", "summary.utilisation.#").s);
        ech__tell_let(s, id_of("memory", n).s, "bytes", "max(0, %s)",
                      each_of(n, ", ", "summary.peak_memory_bytes.#").s);
        ech__tell_row(s);
        ech__tell_cell(s, "%" PRId64, n);
        if (n > 1)
            tell_layer_counts(s, id.s, n);
        else
            ech__tell_words(s, "%" PRId64, u->depth);
        ech__tell_cell(s, "steps[%s time_s]", id.s);
        ech__tell_cell(s, "[plan-mp rows.devices=%" PRId64 ".step_time_s]", n);
        ech__tell_cell(s, "speedup%" PRId64, n);
        ech__tell_cell(s, "busy%" PRId64, n);
        ech__tell_cell(s, "memory%" PRId64, n);
    }
}

/* Devices of one run, for tables that have a row for each. */
static void tell_each(ech__sheet *s, const setup *u)
{
    ech__tell_table(s, "Each device", "Wait: for what another device computes.");
    ech__tell_column(s, "of devices", "integer");
    ech__tell_column(s, "device", "integer");
    ech__tell_column(s, "layers", "integer");
    ech__tell_column(s, "busy", "percent1");
    ech__tell_column(s, "wait", "seconds");
    ech__tell_column(s, "bytes in", "bytes");
    ech__tell_column(s, "bytes out", "bytes");
    ech__tell_column(s, "memory", "bytes");
    for (size_t i = 1; i < u->count; i++) {
        const ech__lab_id id = id_of("mp", u->counts[i]);
        for (int64_t d = 0; d < u->counts[i]; d++) {
            ech__tell_row(s);
            ech__tell_cell(s, "%" PRId64, u->counts[i]);
            ech__tell_cell(s, "%" PRId64, d);
            ech__tell_cell(s, "[%s summary.stages.%" PRId64 ".layers]", id.s, d);
            ech__tell_cell(s, "[%s summary.utilisation.%" PRId64 "]", id.s, d);
            ech__tell_cell(s, "[%s summary.stages.%" PRId64 ".wait_s]", id.s, d);
            ech__tell_cell(s, "[%s summary.stages.%" PRId64 ".bytes_in]", id.s, d);
            ech__tell_cell(s, "[%s summary.stages.%" PRId64 ".bytes_out]", id.s, d);
            ech__tell_cell(s, "[%s summary.peak_memory_bytes.%" PRId64 "]", id.s, d);
        }
    }
}

static void tell_memory(ech__sheet *s, const setup *u)
{
    enum { MOST = 12 }; /* bars that can be told apart */
    ech__tell_place places[MOST];
    size_t count = 0;
    for (size_t i = 0; i < u->count; i++) {
        for (int64_t d = 0; d < u->counts[i] && count < MOST; d++) {
            ech__tell_place *p = &places[count++];
            *p = (ech__tell_place){.run = id_of("mp", u->counts[i]), .device = d};
            snprintf(p->label, sizeof p->label, "%" PRId64 " of %" PRId64, d, u->counts[i]);
        }
    }
    ech__tell_memory_plot(s, "Memory of each device by kind",
                          "Each bar is a device: its number, of how many.", places, count);
}

static void tell_pipelines(ech__sheet *s, const setup *u)
{
    ech__tell_table(
        s, "The same stack as a pipeline",
        "Speedup against one device with the same batch. Bubble: the share of time in "
        "which devices have nothing to do until the pipeline is empty, and what it would "
        "be if all tasks took equally long.");
    ech__tell_column(s, "batch", "integer");
    ech__tell_column(s, "devices", "integer");
    ech__tell_column(s, "micro-batches", "integer");
    ech__tell_column(s, "time/step", "seconds");
    ech__tell_column(s, "speedup", "fixed3");
    ech__tell_column(s, "predicted", "fixed3");
    ech__tell_column(s, "bubble", "percent1");
    ech__tell_column(s, "ideal", "percent1");
    for (int large = 0; large < 2; large++) {
        for (size_t i = 1; i < u->count; i++) {
            const int64_t n = u->counts[i];
            const ech__lab_id id = id_of(large ? "large" : "pipe", n);
            ech__tell_let(s, id_of(large ? "large" : "small", n).s, "fixed3",
                          "steps[%s1 time_s] / steps[%s time_s]", large ? "large" : "mp", id.s);
            ech__tell_row(s);
            ech__tell_cell(s, "[%s config.global_batch]", id.s);
            ech__tell_cell(s, "%" PRId64, n);
            ech__tell_cell(s, "[%s config.micro_batches]", id.s);
            ech__tell_cell(s, "steps[%s time_s]", id.s);
            ech__tell_cell(s, "%s%" PRId64, large ? "large" : "small", n);
            if (large)
                ech__tell_cell(s, "[plan-pipeline rows.devices=%" PRId64 ".speedup]", n);
            else
                ech__tell_none(s);
            ech__tell_cell(s, "[%s summary.bubble.measured]", id.s);
            ech__tell_cell(s, "[%s summary.bubble.ideal]", id.s);
        }
    }
}

/* ---- answers ---- */

/* Whether every layer of a run is where the rule has it. */
static bool follows_rule(ech__sheet *s, const char *run, int64_t depth, int64_t devices)
{
    for (int64_t i = 0; i < depth; i++) {
        const ech__lab_figure f =
            ech__tell_value(s, "[%s summary.placement.%" PRId64 ".device]", run, i);
        const int64_t device = i * devices / depth;
        if (!f.known || f.value != (double)device)
            return false;
    }
    return true;
}

static void say_rule(ech__sheet *s, const setup *u)
{
    const int64_t devices = u->counts[u->count - 1];
    bool all = follows_rule(s, "odd", u->depth + 2, devices);
    for (size_t i = 1; i < u->count; i++)
        all = all && follows_rule(s, id_of("mp", u->counts[i]).s, u->depth, u->counts[i]);
    const ech__lab_phrase each =
        ech__lab_each(NULL, (size_t)devices, ", ", "[odd summary.stages.#.layers]");
    ech__tell_let(s, "odd_depth", "integer", "[odd config.depth]");
    ech__tell_let(s, "odd_devices", "integer", "[odd summary.devices]");
    ech__tell_let(s, "least", "integer", "min(%s)", each.s);
    ech__tell_let(s, "most", "integer", "max(%s)", each.s);
    ech__tell_let(s, "apart", "integer", "most - least");
    ech__tell_ask(s, "Which rule maps a layer to a device, also when the depth cannot be divided?");
    ech__tell_say(s, "Counted from zero, layer i of L goes to device i times devices by L, rounded "
                     "down.");
    ech__tell_say(s, all ? "Every layer of every run of this study is where that says."
                         : "Not every layer of this study is where that says, or a run is missing: "
                           "the records have each layer's device.");
    ech__tell_say(s,
                  "With {odd_depth} layers on {odd_devices} devices each gets {least} to {most}: "
                  "the largest share is {apart} more than the smallest.");
}

static void say_time(ech__sheet *s, const setup *u)
{
    ech__tell_ask(s, "What are step time and memory of each device?");
    ech__tell_let(s, "t1", "seconds", "steps[mp1 time_s]");
    ech__tell_say(s, "One device alone takes {t1} and holds {memory1}.");
    for (size_t i = 1; i < u->count; i++) {
        const int64_t n = u->counts[i];
        ech__tell_let(s, id_of("n", n).s, "integer", "%" PRId64, n);
        ech__tell_let(s, id_of("t", n).s, "seconds", "steps[mp%" PRId64 " time_s]", n);
        ech__tell_let(s, id_of("part", n).s, "percent0", "memory%" PRId64 " / memory1", n);
        ech__tell_say_for(s, n,
                          "On {n#} devices a step takes {t#} ({t#.low} to {t#.high}), and the "
                          "fullest device holds {memory#}, {part#} of what one needs.");
    }
}

static void say_busy(ech__sheet *s, const setup *u)
{
    const int64_t n = u->counts[u->count - 1];
    const ech__lab_phrase each = each_of(n, ", ", "summary.utilisation.#");
    ech__tell_let(s, "least_busy", "percent1", "min(%s)", each.s);
    ech__tell_let(s, "most_busy", "percent1", "max(%s)", each.s);
    ech__tell_let(s, "fair", "percent1", "1 / %" PRId64, n);
    ech__tell_ask(s, "Are all devices used?");
    ech__tell_say_for(s, n,
                      "Of {n#} devices the least used one works {least_busy} of a step and the "
                      "most used one {most_busy}, about {fair} each; all together {busy#}.");
    ech__tell_say_turns(s, id_of("busy", n).s);
}

static void say_faster(ech__sheet *s, const setup *u)
{
    ech__tell_ask(s, "Is it faster than one device?");
    for (size_t i = 1; i < u->count; i++) {
        const int64_t n = u->counts[i];
        ech__tell_let(s, id_of("plan", n).s, "fixed3", "[plan-mp rows.devices=%" PRId64 ".speedup]",
                      n);
        ech__tell_say_for(
            s, n,
            "On {n#} devices one after the other it is {speedup#} times as fast as on "
            "one ({speedup#.low} to {speedup#.high}; predicted {plan#}).");
        ech__tell_by_side(s, id_of("speedup", n).s, 1, "That is slower.",
                          "That is no difference which could be told.", "That is faster.");
    }
}

static void say_pipeline(ech__sheet *s, const setup *u)
{
    ech__tell_let(s, "micros", "integer", "%" PRId64, u->micros);
    ech__tell_let(s, "batch", "integer", "%" PRId64, u->batch);
    ech__tell_ask(s, "What would a pipeline of the same model give?");
    for (size_t i = 1; i < u->count; i++) {
        const int64_t n = u->counts[i];
        ech__tell_let(s, id_of("bubble", n).s, "percent1",
                      "[large%" PRId64 " summary.bubble.measured]", n);
        ech__tell_let(s, id_of("ideal", n).s, "percent1", "[large%" PRId64 " summary.bubble.ideal]",
                      n);
        ech__tell_say_for(s, n,
                          "On {n#} devices, with the batch of {batch} cut into {micros}: {small#} "
                          "times as fast as one device ({small#.low} to {small#.high}); with "
                          "{micros} micro-batches of {batch}: {large#} times ({large#.low} to "
                          "{large#.high}), and a bubble of {bubble#} against {ideal#} by the "
                          "formula.");
        ech__tell_by_side(s, id_of("large", n).s, 1, "Even that is slower than one device.",
                          "Even then no gain can be told.",
                          "So with enough samples in flight the devices do share the work.");
    }
}

static void tell(ech__sheet *s)
{
    setup u = {.depth = ech__tell_param(s, "depth"),
               .batch = ech__tell_param(s, "batch"),
               .micros = ech__tell_param(s, "micro-batches")};
    u.count = ech__lab_spread_counts(ech__tell_cores(s), u.depth, u.counts);
    tell_devices(s, &u);
    say_rule(s, &u);
    tell_each(s, &u);
    tell_memory(s, &u);
    say_time(s, &u);
    say_busy(s, &u);
    say_faster(s, &u);
    tell_pipelines(s, &u);
    ech__tell_plot(s, "timeline", "One step of the pipeline",
                   "Micro-batches follow each other through the devices, forward and backward in "
                   "turns.");
    ech__tell_trace(s, "traced", "pipeline", ECH__LAB_WARMUP + 1);
    say_pipeline(s, &u);
}

const ech__study_card ech__study_mp_devices = {
    .id = "mp-devices",
    .group = 'C',
    .place = 3,
    .title = "Layers over more devices",
    .about = "One stack with its layers spread evenly over more and more devices, one at work at a "
             "time; and the same as a pipeline of micro-batches.",
    .params = params,
    .quick_seconds = 45,
    .full_seconds = 450,
    .runs = runs,
    .tell = tell,
};
