#include "lab/spread.h"

#include <stdio.h>
#include <string.h>

/* ---- runs ---- */

/* What both kinds of runs have in common. */
static ech__lab_phrase common_words(const ech__lab_spread *stack)
{
    return ech__lab_print("train --model linear --dim %" PRId64 " --depth %" PRId64
                          " --batch-size %" PRId64 " --steps %" PRId64 " --warmup %d",
                          stack->dim, stack->depth, stack->batch, stack->steps, ECH__LAB_WARMUP);
}

/* " --name value", or nothing where the value is what is taken anyway. */
static ech__lab_phrase option(const char *name, int64_t value)
{
    return value > 1 ? ech__lab_print(" --%s %" PRId64, name, value) : (ech__lab_phrase){""};
}

void ech__lab_spread_ranks(ech__lab_runs *lab, const char *id, const ech__lab_spread *stack)
{
    ech__lab_run(lab, id, "%s --momentum 0.9%s%s%s%s", common_words(stack).s,
                 option("devices", stack->devices).s, option("accum", stack->accum).s,
                 stack->more ? " " : "", stack->more ? stack->more : "");
}

void ech__lab_spread_layers(ech__lab_runs *lab, const char *id, const ech__lab_spread *stack)
{
    const char *parallel = stack->devices < 2  ? ""
                           : stack->micros > 1 ? " --parallel pipeline"
                                               : " --parallel mp";
    ech__lab_run(lab, id, "%s%s%s%s%s%s", common_words(stack).s, parallel,
                 option("devices", stack->devices).s, option("micro-batches", stack->micros).s,
                 stack->more ? " " : "", stack->more ? stack->more : "");
}

/* Puts a number into an ascending list that does not have it yet. */
static size_t insert(int64_t *list, size_t count, int64_t number)
{
    size_t at = count;
    while (at && list[at - 1] > number)
        at--;
    if (at && list[at - 1] == number)
        return count;
    memmove(list + at + 1, list + at, (count - at) * sizeof *list);
    list[at] = number;
    return count + 1;
}

size_t ech__lab_spread_counts(int64_t cores, int64_t depth, int64_t out[ECH__LAB_SPREAD_COUNTS])
{
    enum { MOST = 32 }; /* a row for each device can still be read */
    const int64_t wanted[ECH__LAB_SPREAD_COUNTS] = {1, 2, 5, cores < MOST ? cores : MOST};
    size_t count = 0;
    for (size_t i = 0; i < ECH__LAB_SPREAD_COUNTS; i++)
        count = insert(out, count, wanted[i] < depth ? wanted[i] : depth);
    return count;
}

/* ---- lists ---- */

/* Appends text with n for '#', and nothing where there is no room. */
static size_t append(ech__lab_phrase *out, size_t used, const char *text, int64_t n)
{
    for (; *text && used + 24 < sizeof out->s; text++) {
        if (*text == '#')
            used += (size_t)snprintf(out->s + used, sizeof out->s - used, "%" PRId64, n);
        else
            out->s[used++] = *text;
    }
    out->s[used] = 0;
    return used;
}

ech__lab_phrase ech__lab_each(const int64_t *numbers, size_t count, const char *between,
                              const char *text)
{
    ech__lab_phrase out = {""};
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        const int64_t n = numbers ? numbers[i] : (int64_t)i;
        used = append(&out, used, i ? between : "", n);
        used = append(&out, used, text, n);
    }
    return out;
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
    if (ech__tell_knows(sheet, figure))
        ech__tell_say(sheet, side < 0 ? below : side > 0 ? above : neither);
}

void ech__tell_say_for(ech__sheet *sheet, int64_t n, const char *sentence)
{
    ech__tell_say(sheet, ech__lab_each(&n, 1, "", sentence).s);
}

void ech__tell_say_turns(ech__sheet *sheet, const char *figure)
{
    const ech__lab_figure busy = ech__tell_value(sheet, "%s", figure);
    if (!busy.known)
        return;
    if (busy.value >= 1.5) {
        ech__tell_say(sheet, "So devices do work at the same time.");
        return;
    }
    ech__tell_say(sheet,
                  "So they hand the batch over like a baton: at any time about one device is "
                  "at work, and who is not waits for it.");
    if (busy.value > 1.02)
        ech__tell_say(sheet,
                      "What goes beyond one device's time overlaps: a data gradient is sent on "
                      "before the weight gradient beside it is computed.");
}
