#include "lab/sheet_internal.h"
#include "base/file/dir.h"
#include "base/file/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_TRACE = 128 << 20 };

typedef struct kind_row {
    const char *name;
    ech__sheet_plot_class class;
} kind_row;

static const kind_row kinds[] = {
    {"lines", ECH__SHEET_XY},         {"steps", ECH__SHEET_XY},        {"speedup", ECH__SHEET_XY},
    {"bars", ECH__SHEET_BARS},        {"stacked", ECH__SHEET_BARS},    {"ladder", ECH__SHEET_BARS},
    {"histogram", ECH__SHEET_PANELS}, {"timeline", ECH__SHEET_TRACES},
};

void ech__tell_plot(ech__sheet *sheet, const char *kind, const char *title, const char *caption)
{
    ech__sheet_plot plot = {0};
    ech__sheet_end_plot(sheet);
    if (sheet->status < 0)
        return;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!strcmp(kinds[i].name, kind)) {
            plot.kind = kinds[i].name;
            plot.class = kinds[i].class;
        }
    }
    if (!plot.kind) {
        ech__sheet_wrong(sheet, "'%.40s' is no kind of plot", kind);
        return;
    }
    plot.stacked = !strcmp(kind, "stacked");
    plot.title = ech__sheet_line(sheet, title, ECH__SHEET_LINE);
    plot.caption = caption ? ech__sheet_line(sheet, caption, ECH__SHEET_TEXT) : NULL;
    plot.bands = ech__json_array();
    plot.marks = ech__json_array();
    plot.traces = ech__json_array();
    plot.panels = ech__json_array();
    sheet->plot = plot;
}

/* Whether the plot that was begun is of this class; what names the word that asks. */
static bool in_plot(ech__sheet *sheet, ech__sheet_plot_class class, const char *what)
{
    if (sheet->status < 0)
        return false;
    if (!sheet->plot.title)
        return ech__sheet_wrong(sheet, "a plot must be begun before %s", what);
    return sheet->plot.class == class ||
           ech__sheet_wrong(sheet, "plot '%.80s' is of kind %s, which has no %s", sheet->plot.title,
                            sheet->plot.kind, what);
}

static bool in_any_plot(ech__sheet *sheet, const char *what)
{
    return in_plot(sheet, sheet->plot.class, what);
}

static ech__tell_axis axis_of(ech__sheet *sheet, ech__tell_axis axis)
{
    axis.label = ech__sheet_line(sheet, axis.label ? axis.label : "", ECH__SHEET_LINE);
    axis.unit = axis.unit ? ech__sheet_line(sheet, axis.unit, ECH__SHEET_LINE) : NULL;
    axis.scale = axis.scale ? ech__sheet_line(sheet, axis.scale, ECH__SHEET_LINE) : NULL;
    if (!*axis.label)
        ech__sheet_wrong(sheet, "an axis of the plot '%.80s' has no label", sheet->plot.title);
    if (axis.scale && strcmp(axis.scale, "linear") != 0 && strcmp(axis.scale, "log2") != 0 &&
        strcmp(axis.scale, "log10") != 0)
        ech__sheet_wrong(sheet, "'%.40s' is no scale: there are linear, log2 and log10",
                         axis.scale);
    return axis;
}

void ech__tell_x(ech__sheet *sheet, ech__tell_axis axis)
{
    if (in_any_plot(sheet, "an axis"))
        sheet->plot.x = axis_of(sheet, axis);
}

void ech__tell_y(ech__sheet *sheet, ech__tell_axis axis)
{
    if (in_any_plot(sheet, "an axis"))
        sheet->plot.y = axis_of(sheet, axis);
}

void ech__tell_bar_format(ech__sheet *sheet, const char *format)
{
    ech__sheet_format split;
    if (in_plot(sheet, ECH__SHEET_BARS, "a format") && ech__sheet_split(sheet, format, &split))
        sheet->plot.format = split.format;
}

void ech__tell_category(ech__sheet *sheet, const char *name, ...)
{
    ech__sheet_plot *p = &sheet->plot;
    if (!in_plot(sheet, ECH__SHEET_BARS, "a category"))
        return;
    va_list args;
    va_start(args, name);
    const char *text = ech__sheet_line(sheet, ech__sheet_print(sheet, name, args), ECH__SHEET_LINE);
    va_end(args);
    if (p->nseries)
        ech__sheet_wrong(sheet, "plot '%.80s': category %.80s comes after its first series",
                         p->title, text);
    else if (ech__sheet_grow(sheet, &p->categories, p->ncategories, &p->categories_capacity,
                             sizeof *p->categories))
        p->categories[p->ncategories++] = text;
}

/* ---- series ---- */

void ech__tell_series(ech__sheet *sheet, const char *name, ...)
{
    ech__sheet_plot *p = &sheet->plot;
    if (!in_any_plot(sheet, "a series"))
        return;
    if (p->class != ECH__SHEET_BARS && !in_plot(sheet, ECH__SHEET_XY, "a series"))
        return;
    va_list args;
    va_start(args, name);
    const char *text = ech__sheet_line(sheet, ech__sheet_print(sheet, name, args), ECH__SHEET_LINE);
    va_end(args);
    if (ech__sheet_grow(sheet, &p->series, p->nseries, &p->series_capacity, sizeof *p->series))
        p->series[p->nseries++] = (ech__sheet_series){.name = text};
}

/* The series that was begun last; NULL where there is none, and the sheet has failed. */
static ech__sheet_series *last_series(ech__sheet *sheet, const char *what)
{
    if (!in_any_plot(sheet, what))
        return NULL;
    if (!sheet->plot.nseries) {
        ech__sheet_wrong(sheet, "plot '%.80s': a series must be begun before %s", sheet->plot.title,
                         what);
        return NULL;
    }
    return &sheet->plot.series[sheet->plot.nseries - 1];
}

void ech__tell_no_line(ech__sheet *sheet)
{
    ech__sheet_series *s = last_series(sheet, "dots");
    if (s && in_plot(sheet, ECH__SHEET_XY, "lines"))
        s->no_line = true;
}

/* The page links to the records of runs that a plot is made of. */
static void link_run(ech__sheet *sheet, const char *run)
{
    ech__sheet_plot *p = &sheet->plot;
    for (size_t i = 0; i < p->nruns; i++) {
        if (!strcmp(p->runs[i], run))
            return;
    }
    if (ech__sheet_grow(sheet, &p->runs, p->nruns, &p->runs_capacity, sizeof *p->runs))
        p->runs[p->nruns++] = run;
}

/* The caption names the runs without a result that something of the plot is left out for. */
static void note_missing(ech__sheet *sheet, const char *run)
{
    ech__sheet_plot *p = &sheet->plot;
    const ech__lab_source *source = run ? ech__lab_source_find(sheet->facts, run) : NULL;
    if (!source || !source->no_record)
        return;
    for (size_t i = 0; i < p->nmissing; i++) {
        if (!strcmp(p->missing[i], source->no_record))
            return;
    }
    if (ech__sheet_grow(sheet, &p->missing, p->nmissing, &p->missing_capacity, sizeof *p->missing))
        p->missing[p->nmissing++] = source->no_record;
}

static void add_point(ech__sheet *sheet, ech__sheet_point point)
{
    ech__sheet_series *s = last_series(sheet, "a point");
    if (!s || !ech__sheet_grow(sheet, &s->points, s->npoints, &s->capacity, sizeof *s->points))
        return;
    s->points[s->npoints++] = point;
    if (point.figure.known && point.figure.run)
        link_run(sheet, point.figure.run);
    if (!point.figure.known)
        note_missing(sheet, point.figure.run);
}

void ech__tell_point(ech__sheet *sheet, double x, const char *expr, ...)
{
    ech__sheet_point point = {.x = x};
    va_list args;
    va_start(args, expr);
    const bool good = ech__sheet_eval(sheet, expr, args, &point.figure);
    va_end(args);
    if (good && !isfinite(x))
        point.figure.known = false; /* a place that is a figure without a value */
    if (good)
        add_point(sheet, point);
}

void ech__tell_bar(ech__sheet *sheet, const char *expr, ...)
{
    ech__sheet_point point = {0};
    if (!in_plot(sheet, ECH__SHEET_BARS, "bars"))
        return;
    va_list args;
    va_start(args, expr);
    const bool good = ech__sheet_eval(sheet, expr, args, &point.figure);
    va_end(args);
    if (good)
        add_point(sheet, point);
}

/* What a run did not leave cannot be plotted: such a series is left out. */
void ech__tell_from(ech__sheet *sheet, ech__tell_source source)
{
    ech__sheet_series *s = last_series(sheet, "a record");
    if (!s || !in_plot(sheet, ECH__SHEET_XY, "series of records"))
        return;
    const ech__lab_source *run = ech__lab_source_find(sheet->facts, source.run);
    if (!run) {
        ech__sheet_wrong(sheet, "there is no run %.64s in this study", source.run);
        return;
    }
    const bool epochs = source.file && !strcmp(source.file, "epochs");
    s->has_from = true;
    s->from = (ech__tell_source){.run = run->result->id,
                                 .file = epochs ? "epochs" : NULL,
                                 .x = source.x ? ech__sheet_line(sheet, source.x, 64) : NULL,
                                 .y = ech__sheet_line(sheet, source.y, 64),
                                 .scale = source.scale};
    s->from_basis = ech__lab_basis_of(sheet->facts, source.run);
    s->from_missing = !run->result->record ||
                      !(epochs ? ech__lab_has_epochs(sheet->facts, source.run, s->from.y)
                               : ech__lab_has_steps(sheet->facts, source.run,
                                                    source.x ? source.x : "step", s->from.y));
    if (!s->from_missing)
        link_run(sheet, s->from.run);
    else
        note_missing(sheet, source.run);
}

/* ---- bands, marks, traces, panels ---- */

void ech__tell_band(ech__sheet *sheet, double from, double to, const char *label)
{
    if (!in_plot(sheet, ECH__SHEET_XY, "bands") || !(from < to))
        return;
    ech_json *band = ech__json_object();
    ech__json_set_real(&band, "from", from);
    ech__json_set_real(&band, "to", to);
    ech__json_set_string(&band, "label", ech__sheet_line(sheet, label, ECH__SHEET_LINE));
    ech__json_append(&sheet->plot.bands, band);
}

void ech__tell_mark(ech__sheet *sheet, char axis, double at, const char *label)
{
    if (!in_any_plot(sheet, "a mark") || !isfinite(at))
        return;
    if (sheet->plot.class != ECH__SHEET_BARS && !in_plot(sheet, ECH__SHEET_XY, "marks"))
        return;
    ech_json *mark = ech__json_object();
    ech__json_set_string(&mark, "axis", axis == 'y' ? "y" : "x");
    ech__json_set_real(&mark, "at", at);
    if (label)
        ech__json_set_string(&mark, "label", ech__sheet_line(sheet, label, ECH__SHEET_LINE));
    ech__json_append(&sheet->plot.marks, mark);
}

/* A step is an event that is called "step N". */
static bool has_trace(ech__sheet *sheet, const ech__lab_result *run, int64_t step)
{
    char path[ECH_DIR_MAX_PATH + 16], event[48], *text;
    size_t bytes;
    if (!run->dir || !run->record)
        return false;
    snprintf(path, sizeof path, "%s/trace.json", run->dir);
    snprintf(event, sizeof event, "\"step %" PRId64 "\"", step);
    if (access(path, F_OK) != 0 || ech__file_read(sheet->ctx, path, MAX_TRACE, &text, &bytes) < 0)
        return false;
    const bool found = strstr(text, event) != NULL;
    free(text);
    return found;
}

void ech__tell_trace(ech__sheet *sheet, const char *run, const char *label, int64_t step)
{
    if (!in_plot(sheet, ECH__SHEET_TRACES, "traces"))
        return;
    const ech__lab_source *source = ech__lab_source_find(sheet->facts, run);
    if (!source)
        ech__sheet_wrong(sheet, "there is no run %.64s in this study", run);
    if (source && !ech__tell_has(sheet, run))
        note_missing(sheet, run);
    if (!source || source->no_record || !has_trace(sheet, source->result, step))
        return;
    ech_json *trace = ech__json_object();
    ech__json_set_string(&trace, "run", source->result->id);
    ech__json_set_string(&trace, "label", ech__sheet_line(sheet, label, ECH__SHEET_LINE));
    ech__json_set_int(&trace, "step", step);
    ech__json_append(&sheet->plot.traces, trace);
    link_run(sheet, source->result->id);
}

void ech__tell_histogram(ech__sheet *sheet, ech__tell_panel panel)
{
    if (!in_plot(sheet, ECH__SHEET_PANELS, "panels") || !panel.counts || !(panel.from < panel.to))
        return;
    const size_t bins = ech__json_count(panel.counts);
    ech_json *counts = ech__json_array(), *json = ech__json_object();
    for (size_t i = 0; i < bins; i++) {
        double count;
        if (!ech__lab_is_number(ech__json_at(panel.counts, i), &count) || count < 0)
            ech__sheet_wrong(sheet, "panel %.80s: count %zu is no number from 0 on", panel.name, i);
        else
            ech__json_append_real(&counts, count);
    }
    ech__json_set_string(&json, "name", ech__sheet_line(sheet, panel.name, ECH__SHEET_LINE));
    if (panel.note)
        ech__json_set_string(&json, "note", ech__sheet_line(sheet, panel.note, ECH__SHEET_LINE));
    ech__json_set_real(&json, "from", panel.from);
    ech__json_set_real(&json, "to", panel.to);
    ech__json_set(&json, "counts", counts);
    if (bins)
        ech__json_append(&sheet->plot.panels, json);
    else
        ech__json_destroy(json);
}
