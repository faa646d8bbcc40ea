/* Three programs of the same training: with accumulation, in mixed precision, and both. */
#include "lab/spread.h"

#include <stdio.h>
#include <string.h>

static const ech__lab_param params[] = {
    {"dim", 512, 2048, 1, 65536, "width of a layer"},
    {"depth", 4, 4, 1, 1000, "layers"},
    {"micro-batch", 32, 32, 1, 65536, "samples of a micro-step on each device"},
    {"ranks", 2, 2, 1, 64, "devices"},
    {"accum", 4, 4, 1, 1024, "micro-steps of the programs that accumulate"},
    {"steps", 35, 35, 6, 100000, "steps of a run, 5 of them warm-up"},
    {0},
};

/* A row of the tables. */
typedef struct program {
    const char *name;
    const char *amp; /* NULL: f32 */
    bool accumulates;
} program;

static const program programs[] = {
    {"DDP alone", NULL, false},      {"1: DDP + accumulation", NULL, true},
    {"2: DDP + AMP", "bf16", false}, {"2: DDP + AMP", "fp16", false},
    {"3: both", "bf16", true},       {"3: both", "fp16", true},
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

static ech__lab_id id_of(const program *p, int64_t accum)
{
    if (!p->accumulates)
        return p->amp ? ech__lab_name("amp-%s", p->amp) : ech__lab_name("plain");
    return p->amp ? ech__lab_name("both%" PRId64 "-%s", accum, p->amp)
                  : ech__lab_name("accum%" PRId64, accum);
}

static void runs(ech__lab_runs *lab)
{
    const int64_t accum = ech__lab_param_of(lab, "accum");
    ech__lab_spread stack = {.dim = ech__lab_param_of(lab, "dim"),
                             .depth = ech__lab_param_of(lab, "depth"),
                             .batch = ech__lab_param_of(lab, "micro-batch"),
                             .devices = ech__lab_param_of(lab, "ranks"),
                             .steps = ech__lab_param_of(lab, "steps")};
    for (size_t i = 0; i < PROGRAMS; i++) {
        const program *p = &programs[i], f32 = {.accumulates = p->accumulates};
        char more[128];
        if (p->amp)
            snprintf(more, sizeof more, "--amp %s --against @of:%s", p->amp, id_of(&f32, accum).s);
        stack.accum = p->accumulates ? accum : 1;
        stack.more = p->amp ? more : NULL;
        ech__lab_spread_ranks(lab, id_of(p, accum).s, &stack);
    }
}

/* ---- tables and plots ---- */

static void tell_programs(ech__sheet *s, int64_t accum)
{
    ech__tell_table(s, "The three programs",
                    "Equal samples: as many as a step has that accumulates. Loss gap: the "
                    "largest difference to the loss of the same step in f32, by that loss.");
    ech__tell_column(s, "program", "text");
    ech__tell_column(s, "type", "text");
    ech__tell_column(s, "samples a step", "integer");
    ech__tell_column(s, "time/step", "seconds");
    ech__tell_column(s, "time for equal samples", "seconds");
    ech__tell_column(s, "memory of a device", "bytes");
    ech__tell_column(s, "steps skipped", "integer");
    ech__tell_column(s, "not finite", "integer");
    ech__tell_column(s, "loss gap to f32", "general");
    ech__tell_column(s, "last loss", "fixed6");
    for (size_t i = 0; i < PROGRAMS; i++) {
        const program *p = &programs[i];
        const ech__lab_id id = id_of(p, accum);
        ech__tell_row(s);
        ech__tell_words(s, "%s", p->name);
        ech__tell_words(s, "%s", p->amp ? p->amp : "f32");
        ech__tell_cell(s, "[%s config.global_batch]", id.s);
        ech__tell_cell(s, "steps[%s time_s]", id.s);
        ech__tell_cell(s, "%" PRId64 " * steps[%s time_s]", p->accumulates ? 1 : accum, id.s);
        ech__tell_cell(s, "[%s summary.peak_memory_bytes.0]", id.s);
        if (p->amp) {
            ech__tell_cell(s, "[%s summary.stability.skipped_steps]", id.s);
            ech__tell_cell(s, "[%s summary.stability.nonfinite_steps]", id.s);
            ech__tell_cell(s, "[%s summary.stability.loss_against_f32.largest]", id.s);
        } else { /* nothing is scaled, so nothing is looked at */
            ech__tell_none(s);
            ech__tell_none(s);
            ech__tell_none(s);
        }
        ech__tell_cell(s, "[%s summary.final_loss]", id.s);
    }
}

static void tell_parts(ech__sheet *s, int64_t accum)
{
    static const struct {
        const char *name, *field;
    } parts[] = {{"forward", "forward_s"},
                 {"backward", "backward_s"},
                 {"exposed communication", "comm_exposed_s"},
                 {"wait", "wait_s"},
                 {"optimizer", "optimizer_s"}};
    ech__tell_plot(s, "stacked", "What the time of a micro-step goes into",
                   "A step's time by its micro-steps: exchange and update are shared among them.");
    ech__tell_y(s, (ech__tell_axis){.label = "time of a micro-step", .unit = "ms"});
    ech__tell_bar_format(s, "fixed2");
    for (size_t i = 0; i < PROGRAMS; i++)
        ech__tell_category(s, "%s, %s", programs[i].name,
                           programs[i].amp ? programs[i].amp : "f32");
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        ech__tell_series(s, "%s", parts[k].name);
        for (size_t i = 0; i < PROGRAMS; i++)
            ech__tell_bar(s, "1000 * steps[%s %s] / %" PRId64, id_of(&programs[i], accum).s,
                          parts[k].field, programs[i].accumulates ? accum : 1);
    }
}

static void tell_memory(ech__sheet *s, int64_t accum)
{
    ech__tell_place places[PROGRAMS];
    for (size_t i = 0; i < PROGRAMS; i++) {
        places[i] = (ech__tell_place){.run = id_of(&programs[i], accum)};
        snprintf(places[i].label, sizeof places[i].label, "%s, %s", programs[i].name,
                 programs[i].amp ? programs[i].amp : "f32");
    }
    ech__tell_memory_table(s, "Memory by kind", places, PROGRAMS);
    ech__tell_memory_plot(s, "Memory of a device by kind", NULL, places, PROGRAMS);
}

/* ---- answers ---- */

static void say_synchronisations(ech__sheet *s, int64_t accum)
{
    ech__tell_let(s, "k", "integer", "%" PRId64, accum);
    ech__tell_let(s, "bytes", "bytes", "[plain summary.comm_bytes_per_step]");
    ech__tell_let(s, "plain_k", "seconds", "k * steps[plain time_s]");
    ech__tell_let(s, "one", "seconds", "steps[accum%" PRId64 " time_s]", accum);
    ech__tell_let(s, "saved", "seconds", "plain_k - one");
    ech__tell_let(s, "saved_share", "percent1", "saved / plain_k");
    ech__tell_let(s, "lost", "seconds", "one - plain_k");
    ech__tell_let(s, "sync", "seconds",
                  "steps[plain comm_exposed_s] + steps[plain wait_s] + steps[plain optimizer_s]");
    ech__tell_let(s, "synced", "seconds",
                  "steps[accum%" PRId64 " comm_exposed_s] + steps[accum%" PRId64
                  " wait_s] + steps[accum%" PRId64 " optimizer_s]",
                  accum, accum, accum);
    ech__tell_let(s, "less", "seconds", "k * sync - synced");
    ech__tell_let(s, "sums", "seconds", "[accum%" PRId64 " summary.sums_s]", accum);
    ech__tell_say(
        s, "Accumulation: {k} steps of DDP alone exchange {bytes} of gradients each and "
           "take {plain_k}; one step of the first program computes the same samples with one "
           "exchange in {one}.");
    ech__tell_by_side(s, "saved", 0,
                      "It is slower by {lost} ({lost.low} to {lost.high}): here the saved "
                      "exchanges are worth less "
                      "than what accumulating costs.",
                      "The difference, {saved}, has an interval that includes none ({saved.low} to "
                      "{saved.high}).",
                      "That saves {saved} ({saved.low} to {saved.high}), {saved_share}.");
    ech__tell_say(
        s, "Exchange that nothing hides and update take {sync} in a step of DDP alone, "
           "{k} times, against {synced} once in the first program: {less} less; adding up the "
           "gradients of the micro-steps takes {sums} back.");
}

static void say_precision(ech__sheet *s, int64_t accum)
{
    const bool has = strstr(ech__tell_text(s, "plain", "machine.vectors"), "bf16") != NULL;
    ech__tell_let(s, "bf16", "fixed2", "steps[amp-bf16 time_s] / steps[plain time_s]");
    ech__tell_let(s, "fp16", "fixed2", "steps[amp-fp16 time_s] / steps[plain time_s]");
    ech__tell_let(s, "both", "fixed2", "steps[both%" PRId64 "-bf16 time_s] / plain_k", accum);
    ech__tell_let(s, "product", "fixed2", "bf16 * one / plain_k");
    ech__tell_paragraph(s);
    ech__tell_say(
        s, "Precision: a step of the second program takes {bf16} times as long as one in f32 with "
           "bf16 ({bf16.low} to {bf16.high}) and {fp16} times with fp16 ({fp16.low} to "
           "{fp16.high}).");
    ech__tell_by_side(s, "bf16", 1, "So bf16 makes it faster.",
                      "For bf16 that is no difference which these runs could tell.",
                      "So bf16 makes it slower.");
    if (ech__tell_has(s, "plain"))
        ech__tell_say(
            s, has ? "This processor computes in bf16 itself."
                   : "This processor has no arithmetic in bf16: operands are kept in half the "
                     "bytes and widened before every product.");
    ech__tell_say(s,
                  "The third program with bf16 needs {both} of the time of {k} steps of DDP alone "
                  "({both.low} to {both.high}); if both effects only multiplied it would be "
                  "{product} ({product.low} to {product.high}).");
}

/* Whether a kind takes the same in all programs. */
static bool is_constant(ech__sheet *s, const char *kind, int64_t accum)
{
    for (size_t i = 1; i < PROGRAMS; i++) {
        const ech__lab_figure f = ech__tell_value(
            s, "[%s summary.memory_by_kind.0.%s] - [plain summary.memory_by_kind.0.%s]",
            id_of(&programs[i], accum).s, kind, kind);
        if (!f.known || f.value != 0)
            return false;
    }
    return true;
}

static void say_memory(ech__sheet *s, int64_t accum)
{
    ech__tell_let(s, "act", "bytes", "[plain summary.memory_by_kind.0.activations]");
    ech__tell_let(s, "act_low", "bytes", "[amp-bf16 summary.memory_by_kind.0.activations]");
    ech__tell_let(s, "act_share", "percent0", "act_low / act");
    ech__tell_let(s, "wei", "bytes", "[plain summary.memory_by_kind.0.weights]");
    ech__tell_let(s, "copies", "bytes", "[amp-bf16 summary.memory_by_kind.0.copies]");
    ech__tell_let(s, "grad", "bytes", "[plain summary.memory_by_kind.0.gradients]");
    ech__tell_let(s, "opt", "bytes", "[plain summary.memory_by_kind.0.optimizer]");
    ech__tell_let(s, "work", "bytes", "[plain summary.memory_by_kind.0.workspace]");
    ech__tell_let(s, "work_low", "bytes", "[amp-bf16 summary.memory_by_kind.0.workspace]");
    ech__tell_let(s, "all", "bytes", "[plain summary.peak_memory_bytes.0]");
    ech__tell_let(s, "all1", "bytes", "[accum%" PRId64 " summary.peak_memory_bytes.0]", accum);
    ech__tell_let(s, "all2", "bytes", "[amp-bf16 summary.peak_memory_bytes.0]");
    ech__tell_let(s, "all3", "bytes", "[both%" PRId64 "-bf16 summary.peak_memory_bytes.0]", accum);
    ech__tell_let(s, "more", "fixed3", "all2 / all");
    ech__tell_ask(s, "What does each program need memory for?");
    ech__tell_say(s, "Activations: {act} in f32 and {act_low} with bf16, {act_share}.");
    ech__tell_say(s,
                  is_constant(s, "weights", accum)
                      ? "Weights: {wei} in f32 in every program, and AMP adds copies of {copies} "
                        "in the low type."
                      : "Weights: {wei} in DDP alone, other in other programs (see the table), "
                        "and AMP adds copies of {copies} in the low type.");
    ech__tell_say(s, is_constant(s, "gradients", accum) ? "Gradients: {grad} in every program."
                                                        : "Gradients: {grad} in DDP alone; the "
                                                          "table has the programs that differ.");
    ech__tell_say(s, is_constant(s, "optimizer", accum)
                         ? "Optimizer: {opt} of momentum in every program, because the update is "
                           "in f32."
                         : "Optimizer: {opt} of momentum in DDP alone; the table has the programs "
                           "that differ.");
    ech__tell_say(s, "Workspace goes from {work} to {work_low} with bf16.");
    ech__tell_let(s, "added", "bytes", "all1 - all");
    ech__tell_by_side(s, "added", 0, "Accumulation takes less.", "Accumulation takes no more.",
                      "Accumulation takes {added} more, for gradients of one micro-step on their "
                      "way into the sum.");
    ech__tell_say(s, "In all a device needs {all} for DDP alone, {all1} for the first program, "
                     "{all2} for the second and {all3} for the third (bf16).");
    ech__tell_by_side(
        s, "more", 1,
        "So what sixteen bits save in activations is more than the copies of the weights "
        "cost.",
        "So sixteen bits save as much as the copies of the weights cost.",
        "So sixteen bits save less in activations than the copies of the weights and the "
        "workspace cost: at this batch weights dominate.");
}

static void say_stability(ech__sheet *s, int64_t accum)
{
    ech__tell_let(s, "skipped", "integer",
                  "[amp-bf16 summary.stability.skipped_steps] + [amp-fp16 "
                  "summary.stability.skipped_steps] + [both%" PRId64
                  "-bf16 summary.stability.skipped_steps] + [both%" PRId64
                  "-fp16 summary.stability.skipped_steps]",
                  accum, accum);
    ech__tell_let(s, "broken", "integer",
                  "[amp-bf16 summary.stability.nonfinite_steps] + [amp-fp16 "
                  "summary.stability.nonfinite_steps] + [both%" PRId64
                  "-bf16 summary.stability.nonfinite_steps] + [both%" PRId64
                  "-fp16 summary.stability.nonfinite_steps]",
                  accum, accum);
    ech__tell_let(s, "gap_bf16", "general",
                  "max([amp-bf16 summary.stability.loss_against_f32.largest], [both%" PRId64
                  "-bf16 summary.stability.loss_against_f32.largest])",
                  accum);
    ech__tell_let(s, "gap_fp16", "general",
                  "max([amp-fp16 summary.stability.loss_against_f32.largest], [both%" PRId64
                  "-fp16 summary.stability.loss_against_f32.largest])",
                  accum);
    ech__tell_let(s, "scale", "integer", "last[amp-fp16 scale]");
    ech__tell_let(s, "finer", "fixed2", "gap_bf16 / gap_fp16");
    ech__tell_ask(s, "Is training in sixteen bits as stable as in f32?");
    ech__tell_say(s,
                  ech__tell_side(s, "broken", 0) > 0
                      ? "Over the four runs in sixteen bits {broken} steps were not finite, and "
                        "{skipped} were skipped for it."
                      : "No step of the four runs in sixteen bits had a gradient or loss that was "
                        "not finite, and {skipped} were skipped.");
    ech__tell_say(
        s, "The loss of fp16 was scaled by {scale} at the end. The losses are off from "
           "those in f32 by no more than {gap_bf16} of them with bf16 and {gap_fp16} with fp16.");
    ech__tell_by_side(s, "finer", 1, "Here bf16 is the nearer one, although it has fewer digits.",
                      "Both are as near.",
                      "fp16 is nearer: it has more digits, and pays with its range, which is what "
                      "the scale is for.");
}

static void tell(ech__sheet *s)
{
    const int64_t accum = ech__tell_param(s, "accum");
    tell_programs(s, accum);
    tell_parts(s, accum);
    ech__tell_ask(s, "How long do the programs take, and how much of it is due to "
                     "synchronisations saved and to precision?");
    say_synchronisations(s, accum);
    say_precision(s, accum);
    tell_memory(s, accum);
    say_memory(s, accum);
    say_stability(s, accum);
}

const ech__study_card ech__study_accum_amp = {
    .id = "accum-amp",
    .group = 'B',
    .place = 1,
    .title = "Gradient accumulation and mixed precision",
    .about = "The same training of a linear stack as three programs: DDP with accumulation, DDP in "
             "mixed precision, and both; beside plain DDP.",
    .params = params,
    .quick_seconds = 8,
    .full_seconds = 45,
    .runs = runs,
    .tell = tell,
};
