/* Plots as records have them. What nothing is known of is left out: a series without a point, a
 * plot without a series. */
#include "lab/sheet_internal.h"

#include <math.h>
#include <string.h>

enum { NO_CLOCK = -1 };

static void set_axis(ech_json **plot, const char *key, const ech__tell_axis *axis)
{
    const bool is_log = axis->scale && strcmp(axis->scale, "linear") != 0;
    const bool bounded = axis->min < axis->max;
    ech_json *json = ech__json_object();
    ech__json_set_string(&json, "label", axis->label);
    if (axis->unit)
        ech__json_set_string(&json, "unit", axis->unit);
    if (is_log)
        ech__json_set_string(&json, "scale", axis->scale);
    if (bounded && !(is_log && axis->min <= 0))
        ech__json_set_real(&json, "min", axis->min);
    if (bounded && !(is_log && axis->max <= 0))
        ech__json_set_real(&json, "max", axis->max);
    ech__json_set(plot, key, json);
}

/* The clock of most figures of a series, the more real one where they are as many. */
static int clock_of(const ech__sheet_series *s)
{
    size_t votes[ECH__LAB_PREDICTED + 1] = {0};
    int most = NO_CLOCK;
    if (s->has_from)
        return (int)s->from_basis;
    for (size_t i = 0; i < s->npoints; i++) {
        if (s->points[i].figure.known && s->points[i].figure.run)
            votes[s->points[i].figure.basis]++;
    }
    for (int b = ECH__LAB_PREDICTED; b >= ECH__LAB_MEASURED; b--) {
        if (votes[b] && (most == NO_CLOCK || votes[b] >= votes[most]))
            most = b;
    }
    return most;
}

static void set_interval(ech_json **json, const ech__lab_figure *f)
{
    if (ech__sheet_has_interval(f)) {
        ech__json_set_real(json, "low", f->low);
        ech__json_set_real(json, "high", f->high);
    }
}

/* [x, y], [x, y, low, high], or an object where it has a clock of its own. */
static ech_json *point_of(const ech__sheet_point *p, int clock)
{
    const ech__lab_figure *f = &p->figure;
    if (f->run && (int)f->basis != clock) {
        ech_json *json = ech__json_object();
        ech__json_set_real(&json, "x", p->x);
        ech__json_set_real(&json, "y", f->value);
        set_interval(&json, f);
        ech__json_set_string(&json, "clock", ech__lab_basis_name(f->basis));
        return json;
    }
    ech_json *json = ech__json_array();
    ech__json_append_real(&json, p->x);
    ech__json_append_real(&json, f->value);
    if (ech__sheet_has_interval(f)) {
        ech__json_append_real(&json, f->low);
        ech__json_append_real(&json, f->high);
    }
    return json;
}

static ech_json *points_of(const ech__sheet_series *s, int clock)
{
    ech_json *list = ech__json_array();
    for (size_t i = 0; i < s->npoints; i++) {
        if (s->points[i].figure.known)
            ech__json_append(&list, point_of(&s->points[i], clock));
    }
    return list;
}

/* Parts of a whole that come out below 0, as differences of noisy times may, are drawn as nothing. */
static ech_json *values_of(const ech__sheet_plot *p, const ech__sheet_series *s, int clock)
{
    ech_json *list = ech__json_array();
    for (size_t i = 0; i < s->npoints; i++) {
        const ech__lab_figure *f = &s->points[i].figure;
        ech_json *json = ech__json_object();
        ech__json_set_real(&json, "value", p->stacked && f->value < 0 ? 0 : f->value);
        if (!p->stacked)
            set_interval(&json, f);
        if (f->known && f->run && (int)f->basis != clock)
            ech__json_set_string(&json, "clock", ech__lab_basis_name(f->basis));
        if (f->run)
            ech__json_set_string(&json, "run", f->run);
        ech__json_append(&list, json);
    }
    return list;
}

static ech_json *from_of(const ech__tell_source *from)
{
    ech_json *json = ech__json_object();
    ech__json_set_string(&json, "run", from->run);
    if (from->file)
        ech__json_set_string(&json, "file", from->file);
    if (from->x)
        ech__json_set_string(&json, "x", from->x);
    ech__json_set_string(&json, "y", from->y);
    if (from->scale != 0 && from->scale != 1)
        ech__json_set_real(&json, "scale", from->scale);
    return json;
}

static bool has_something(const ech__sheet_series *s)
{
    bool known = s->has_from && !s->from_missing;
    for (size_t i = 0; i < s->npoints; i++)
        known |= s->points[i].figure.known;
    return known;
}

static ech_json *series_of(const ech__sheet_plot *p, const ech__sheet_series *s)
{
    const int clock = clock_of(s);
    ech_json *json = ech__json_object();
    ech__json_set_string(&json, "name", s->name);
    if (clock != NO_CLOCK)
        ech__json_set_string(&json, "clock", ech__lab_basis_name((ech__lab_basis)clock));
    if (p->class == ECH__SHEET_BARS) {
        ech__json_set(&json, "values", values_of(p, s, clock));
        return json;
    }
    if (s->no_line)
        ech__json_set_string(&json, "line", "no");
    if (s->has_from)
        ech__json_set(&json, "from", from_of(&s->from));
    else
        ech__json_set(&json, "points", points_of(s, clock));
    return json;
}

/* ---- a plot ---- */

static bool check_series(ech__sheet *sheet, const ech__sheet_series *s)
{
    const ech__sheet_plot *p = &sheet->plot;
    if (p->class == ECH__SHEET_BARS && s->npoints != p->ncategories)
        return ech__sheet_wrong(sheet, "plot '%.80s': series %.80s has %zu bars for %zu categories",
                                p->title, s->name, s->npoints, p->ncategories);
    return !(s->has_from && s->npoints) ||
           ech__sheet_wrong(sheet, "plot '%.80s': series %.80s has points and a record", p->title,
                            s->name);
}

static bool check_plot(ech__sheet *sheet)
{
    const ech__sheet_plot *p = &sheet->plot;
    const bool xy = p->class == ECH__SHEET_XY || p->class == ECH__SHEET_PANELS;
    if (p->class != ECH__SHEET_TRACES && (!p->y.label || (xy && !p->x.label)))
        return ech__sheet_wrong(sheet, "plot '%.80s' lacks an axis", p->title);
    for (size_t i = 0; i < p->nseries; i++) {
        if (!check_series(sheet, &p->series[i]))
            return false;
    }
    return true;
}

/* Moves an array into the plot, where there is something in it. False where there is nothing. */
static bool move(ech_json **plot, const char *key, ech_json **array)
{
    const bool any = *array && ech__json_count(*array) > 0;
    if (any)
        ech__json_set(plot, key, *array);
    else
        ech__json_destroy(*array);
    *array = NULL;
    return any;
}

static bool set_strings(ech_json **plot, const char *key, const char *const *texts, size_t count)
{
    ech_json *list = ech__json_array();
    for (size_t i = 0; i < count; i++)
        ech__json_append_string(&list, texts[i]);
    return move(plot, key, &list);
}

static bool set_all_series(ech_json **json, const ech__sheet_plot *p)
{
    ech_json *list = ech__json_array();
    for (size_t i = 0; i < p->nseries; i++) {
        if (has_something(&p->series[i]))
            ech__json_append(&list, series_of(p, &p->series[i]));
    }
    return move(json, "series", &list);
}

/* What its kind has. False where there is nothing to show. */
static bool set_body(ech_json **json, ech__sheet_plot *p)
{
    if (p->class == ECH__SHEET_TRACES)
        return move(json, "traces", &p->traces);
    if (p->class != ECH__SHEET_BARS)
        set_axis(json, "x", &p->x);
    set_axis(json, "y", &p->y);
    if (p->class == ECH__SHEET_PANELS)
        return move(json, "panels", &p->panels);
    move(json, "marks", &p->marks);
    if (p->class == ECH__SHEET_XY)
        move(json, "bands", &p->bands);
    if (p->format)
        ech__json_set_string(json, "format", p->format);
    if (p->class == ECH__SHEET_BARS &&
        !set_strings(json, "categories", p->categories, p->ncategories))
        return false;
    return set_all_series(json, p);
}

static const char *caption_of(ech__sheet *sheet)
{
    const ech__sheet_plot *p = &sheet->plot;
    const char *caption = p->caption;
    for (size_t i = 0; i < p->nmissing; i++)
        caption = ech__arena_printf(&sheet->arena, "%s%sNo result: %s.", caption ? caption : "",
                                    caption ? " " : "", p->missing[i]);
    return caption ? ech__sheet_line(sheet, caption, ECH__SHEET_TEXT) : NULL;
}

/* A plot with nothing to show, because of runs without a result. */
static void leave_out(ech__sheet *sheet)
{
    const ech__sheet_plot *p = &sheet->plot;
    const char *text = NULL;
    for (size_t i = 0; i < p->nmissing; i++)
        text = ech__arena_printf(&sheet->arena, "%s%s%s", text ? text : "", text ? "; " : "",
                                 p->missing[i]);
    if (text)
        text = ech__arena_printf(&sheet->arena, "The plot '%s' has no result: %s.", p->title, text);
    if (text)
        ech__json_append_string(&sheet->missing, ech__sheet_line(sheet, text, ECH__SHEET_TEXT));
}

void ech__sheet_end_plot(ech__sheet *sheet)
{
    ech__sheet_plot *p = &sheet->plot;
    if (sheet->status < 0 || !p->title || !check_plot(sheet))
        return;
    ech_json *json = ech__json_object();
    ech__json_set_string(&json, "kind", p->kind);
    ech__json_set_string(&json, "title", p->title);
    const char *caption = caption_of(sheet);
    if (caption)
        ech__json_set_string(&json, "caption", caption);
    set_strings(&json, "runs", p->runs, p->nruns);
    if (set_body(&json, p)) {
        ech__json_append(&sheet->plots, json);
    } else {
        ech__json_destroy(json);
        leave_out(sheet);
    }
    ech__json_destroy(p->bands);
    ech__json_destroy(p->marks);
    ech__json_destroy(p->traces);
    ech__json_destroy(p->panels);
    *p = (ech__sheet_plot){0};
}
