#include "lab/shared.h"

#include <stdarg.h>
#include <stdio.h>

ech__lab_phrase ech__lab_print(const char *format, ...)
{
    ech__lab_phrase phrase;
    va_list args;
    va_start(args, format);
    vsnprintf(phrase.s, sizeof phrase.s, format, args);
    va_end(args);
    return phrase;
}

/* ---- running ---- */

ech__lab_stack ech__lab_stack_of(ech__lab_runs *lab)
{
    return (ech__lab_stack){.dim = ech__lab_param_of(lab, "dim"),
                            .depth = ech__lab_param_of(lab, "depth"),
                            .batch = ech__lab_param_of(lab, "batch"),
                            .steps = ech__lab_param_of(lab, "steps")};
}

void ech__lab_train(ech__lab_runs *lab, const char *id, ech__lab_stack stack, int64_t devices,
                    const char *more)
{
    ech__lab_run(lab, id,
                 "train --model linear --dim %" PRId64 " --depth %" PRId64
                 " --global-batch %" PRId64 " --devices %" PRId64 " --steps %" PRId64
                 " --warmup %d%s%s",
                 stack.dim, stack.depth, stack.batch, devices, stack.steps, ECH__LAB_WARMUP,
                 more ? " " : "", more ? more : "");
}

void ech__lab_scaling(ech__lab_runs *lab, const char *prefix, ech__lab_stack stack,
                      const char *more)
{
    for (size_t i = 0; i < ech__lab_devices(lab); i++) {
        const int64_t devices = ech__lab_device(lab, i);
        ech__lab_train(lab, ech__lab_name("%sn%" PRId64, prefix, devices).s, stack, devices, more);
    }
}

void ech__lab_list_devices(const ech__lab_runs *lab, char *out, size_t bytes)
{
    size_t used = 0;
    *out = 0;
    for (size_t i = 0; i < ech__lab_devices(lab) && used < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%" PRId64, i ? "," : "",
                                 ech__lab_device(lab, i));
}

void ech__lab_plan(ech__lab_runs *lab, const char *id, ech__lab_stack stack, const char *more)
{
    char devices[256];
    ech__lab_list_devices(lab, devices, sizeof devices);
    ech__lab_run(lab, id,
                 "plan --model linear --dim %" PRId64 " --depth %" PRId64 " --global-batch %" PRId64
                 " --devices %s --measure-seconds %s%s%s",
                 stack.dim, stack.depth, stack.batch, devices, ech__lab_quick(lab) ? "0.3" : "1.5",
                 more ? " " : "", more ? more : "");
}

/* ---- telling ---- */

bool ech__tell_knows(ech__sheet *sheet, const char *name)
{
    return ech__tell_value(sheet, "%s", name).known;
}

void ech__tell_sayf(ech__sheet *sheet, const char *sentence, ...)
{
    char text[2000];
    va_list args;
    va_start(args, sentence);
    vsnprintf(text, sizeof text, sentence, args);
    va_end(args);
    ech__tell_say(sheet, text);
}

void ech__tell_scaling(ech__sheet *sheet, const char *prefix)
{
    for (size_t i = 0; i < ech__tell_devices(sheet); i++) {
        const int64_t n = ech__tell_device(sheet, i);
        ech__tell_let(sheet, ech__lab_name("%st%" PRId64, prefix, n).s, "seconds",
                      "steps[%sn%" PRId64 " time_s]", prefix, n);
        ech__tell_let(sheet, ech__lab_name("%ss%" PRId64, prefix, n).s, "fixed2",
                      "%st1 / %st%" PRId64, prefix, prefix, n);
        ech__tell_let(sheet, ech__lab_name("%se%" PRId64, prefix, n).s, "percent0",
                      "%ss%" PRId64 " / %" PRId64, prefix, n, n);
    }
}

void ech__tell_parts(ech__sheet *sheet, const char *prefix, int64_t n)
{
    const ech__lab_id run = ech__lab_name("%sn%" PRId64, prefix, n);
    const ech__lab_id compute = ech__lab_name("%sc%" PRId64, prefix, n);
    const ech__lab_id wait = ech__lab_name("%sw%" PRId64, prefix, n);
    const ech__lab_id exchange = ech__lab_name("%sx%" PRId64, prefix, n);
    ech__tell_let(sheet, compute.s, "seconds",
                  "steps[%s forward_s] + steps[%s backward_s] + steps[%s optimizer_s]", run.s,
                  run.s, run.s);
    if (n == 1) {
        ech__tell_let(sheet, wait.s, "seconds", "0");
        ech__tell_let(sheet, exchange.s, "seconds", "0");
    } else {
        ech__tell_let(sheet, wait.s, "seconds", "steps[%s wait_s]", run.s);
        ech__tell_let(sheet, exchange.s, "seconds", "steps[%s comm_exposed_s]", run.s);
    }
    ech__tell_let(sheet, ech__lab_name("%so%" PRId64, prefix, n).s, "seconds",
                  "max(0, %st%" PRId64 " - %s - %s - %s)", prefix, n, compute.s, wait.s,
                  exchange.s);
}

void ech__tell_parts_series(ech__sheet *sheet, const char *const *prefixes, const int64_t *devices,
                            size_t count)
{
    static const struct {
        const char *name, *letter;
    } parts[] = {{"computing", "c"},
                 {"exchanging gradients", "x"},
                 {"waiting for the slowest", "w"},
                 {"everything else", "o"}};
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
        ech__tell_series(sheet, "%s", parts[p].name);
        for (size_t i = 0; i < count; i++)
            ech__tell_bar(sheet, "%s%s%" PRId64, prefixes[i], parts[p].letter, devices[i]);
    }
}

void ech__tell_scaling_columns(ech__sheet *sheet)
{
    ech__tell_column(sheet, "devices", "integer");
    ech__tell_column(sheet, "time/step", "seconds");
    ech__tell_column(sheet, "speedup", "fixed2");
    ech__tell_column(sheet, "efficiency", "percent0");
}

void ech__tell_scaling_cells(ech__sheet *sheet, const char *prefix, int64_t devices)
{
    ech__tell_plain(sheet, "%" PRId64, devices);
    ech__tell_cell(sheet, "%st%" PRId64, prefix, devices);
    if (devices == 1) { /* against itself there is nothing to be unsure of */
        ech__tell_plain(sheet, "1");
        ech__tell_plain(sheet, "1");
        return;
    }
    ech__tell_cell(sheet, "%ss%" PRId64, prefix, devices);
    ech__tell_cell(sheet, "%se%" PRId64, prefix, devices);
}

void ech__tell_scaling_axes(ech__sheet *sheet)
{
    ech__tell_x(sheet, (ech__tell_axis){.label = "devices"});
    ech__tell_y(sheet, (ech__tell_axis){.label = "speedup against one device"});
}

void ech__tell_scaling_series(ech__sheet *sheet, const char *prefix, const char *name)
{
    ech__tell_series(sheet, "%s", name);
    for (size_t i = 0; i < ech__tell_devices(sheet); i++) {
        const int64_t n = ech__tell_device(sheet, i);
        ech__tell_point(sheet, (double)n, "%ss%" PRId64, prefix, n);
    }
}

ech__lab_phrase ech__tell_pairs(ech__sheet *sheet, const char *prefix, const char *what)
{
    ech__lab_phrase pairs = {""};
    size_t used = 0;
    for (size_t i = 0; i < ech__tell_devices(sheet) && used < sizeof pairs.s; i++) {
        const int64_t n = ech__tell_device(sheet, i);
        used += (size_t)snprintf(pairs.s + used, sizeof pairs.s - used,
                                 "%s%" PRId64 ", %s%s%" PRId64, i ? ", " : "", n, prefix, what, n);
    }
    return pairs;
}

int64_t ech__tell_most(const ech__sheet *sheet)
{
    return ech__tell_device(sheet, ech__tell_devices(sheet) - 1);
}

int64_t ech__tell_most_real(const ech__sheet *sheet)
{
    int64_t most = 1;
    for (size_t i = 0; i < ech__tell_devices(sheet); i++) {
        const int64_t n = ech__tell_device(sheet, i);
        if (n <= ech__tell_cores(sheet) && n > most)
            most = n;
    }
    return most;
}

bool ech__tell_alone(ech__sheet *sheet)
{
    if (ech__tell_most(sheet) > 1)
        return false;
    ech__tell_say(sheet, "Only one device was asked for, so there is nothing to compare it with.");
    return true;
}

void ech__tell_say_emulated(ech__sheet *sheet)
{
    if (ech__tell_most(sheet) <= ech__tell_cores(sheet))
        return;
    ech__tell_let(sheet, "cores", "integer", "%" PRId64, ech__tell_cores(sheet));
    ech__tell_say(sheet, "Figures of more devices than the {cores} cores of this machine are "
                         "emulated: everything is computed, and each device counts the time that "
                         "it had a core and the price of the exchange.");
}
