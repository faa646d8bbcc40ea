#include "lab/stack.h"

#include <stdio.h>

/* ---- runs ---- */

typedef struct words {
    char s[512];
} words;

/* What both kinds of runs have in common. */
static words common_words(const ech__lab_stack *stack)
{
    words out;
    snprintf(out.s, sizeof out.s,
             "train --model linear --dim %" PRId64 " --depth %" PRId64 " --batch-size %" PRId64
             " --steps %" PRId64 " --warmup %d",
             stack->dim, stack->depth, stack->batch, stack->steps + ECH__LAB_STACK_WARMUP,
             ECH__LAB_STACK_WARMUP);
    return out;
}

/* " --name value", or nothing where the value is what is taken anyway. */
static words option(const char *name, int64_t value)
{
    words out = {""};
    if (value > 1)
        snprintf(out.s, sizeof out.s, " --%s %" PRId64, name, value);
    return out;
}

void ech__lab_stack_ranks(ech__lab_runs *lab, const char *id, const ech__lab_stack *stack)
{
    ech__lab_run(lab, id, "%s --momentum 0.9%s%s%s%s", common_words(stack).s,
                 option("devices", stack->devices).s, option("accum", stack->accum).s,
                 stack->more ? " " : "", stack->more ? stack->more : "");
}

void ech__lab_stack_layers(ech__lab_runs *lab, const char *id, const ech__lab_stack *stack)
{
    const char *parallel = stack->devices < 2  ? ""
                           : stack->micros > 1 ? " --parallel pipeline"
                                               : " --parallel mp";
    ech__lab_run(lab, id, "%s%s%s%s%s%s", common_words(stack).s, parallel,
                 option("devices", stack->devices).s, option("micro-batches", stack->micros).s,
                 stack->more ? " " : "", stack->more ? stack->more : "");
}

/* ---- memory ---- */

/* As run.json names them. */
static const char *const kinds[] = {"weights",   "copies", "gradients",   "sums",
                                    "optimizer", "inputs", "activations", "workspace"};
enum { KINDS = sizeof kinds / sizeof *kinds };

static bool is_anywhere(ech__sheet *sheet, const char *kind, const ech__tell_place *places,
                        size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const ech__lab_figure f =
            ech__tell_value(sheet, "[%s summary.memory_by_kind.%" PRId64 ".%s]", places[i].run.s,
                            places[i].device, kind);
        if (f.known && f.value > 0)
            return true;
    }
    return false;
}

void ech__tell_memory_table(ech__sheet *sheet, const char *title, const ech__tell_place *places,
                            size_t count)
{
    bool used[KINDS];
    ech__tell_table(sheet, title, NULL);
    ech__tell_column(sheet, "on a device", "text");
    for (size_t k = 0; k < KINDS; k++) {
        used[k] = is_anywhere(sheet, kinds[k], places, count);
        if (used[k])
            ech__tell_column(sheet, kinds[k], "bytes");
    }
    ech__tell_column(sheet, "in all", "bytes");
    for (size_t i = 0; i < count; i++) {
        const ech__tell_place *p = &places[i];
        ech__tell_row(sheet);
        ech__tell_words(sheet, "%s", p->label);
        for (size_t k = 0; k < KINDS; k++) {
            if (used[k])
                ech__tell_cell(sheet, "[%s summary.memory_by_kind.%" PRId64 ".%s]", p->run.s,
                               p->device, kinds[k]);
        }
        ech__tell_cell(sheet, "[%s summary.peak_memory_bytes.%" PRId64 "]", p->run.s, p->device);
    }
}

void ech__tell_memory_plot(ech__sheet *sheet, const char *title, const char *caption,
                           const ech__tell_place *places, size_t count)
{
    ech__tell_plot(sheet, "stacked", title, caption);
    ech__tell_y(sheet, (ech__tell_axis){.label = "memory", .unit = "MB"});
    ech__tell_bar_format(sheet, "fixed1");
    for (size_t i = 0; i < count; i++)
        ech__tell_category(sheet, "%s", places[i].label);
    for (size_t k = 0; k < KINDS; k++) {
        if (!is_anywhere(sheet, kinds[k], places, count))
            continue;
        ech__tell_series(sheet, "%s", kinds[k]);
        for (size_t i = 0; i < count; i++)
            ech__tell_bar(sheet, "[%s summary.memory_by_kind.%" PRId64 ".%s] / 1e6",
                          places[i].run.s, places[i].device, kinds[k]);
    }
}

/* ---- sentences ---- */

void ech__tell_by_side(ech__sheet *sheet, const char *figure, double bound, const char *below,
                       const char *neither, const char *above)
{
    const int side = ech__tell_side(sheet, figure, bound);
    ech__tell_say(sheet, side < 0 ? below : side > 0 ? above : neither);
}
