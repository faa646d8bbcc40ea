/* Plots of a study record. Which fields a plot has depends on its kind. */
#include "report/study/internal.h"
#include "base/names.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

ECH__NAMES(ech__plot_kind_name, ech__plot_kind, ECH__PLOT_LIST)

#define WORD(id, text) " " text

/* ---- axes, bands and marks ---- */

static ech_status read_axis(const ech__reader *r, const ech_json *plot, const char *key,
                            ech__plot_axis *out)
{
    const ech_json *json;
    int scale;
    ECH_TRY(ech__json_get_object(r->ctx, plot, key, &json));
    ECH_TRY(ech__reader_fields(r, json, "label unit scale min max"));
    ECH_TRY(ech__reader_text(r, json, "label", ECH__READER_LINE, &out->label));
    ECH_TRY(ech__reader_text_or(r, json, "unit", ECH__READER_LINE, "", &out->unit));
    ECH_TRY(ech__reader_choice(r, json, "scale", &ECH__SCALE_LIST(WORD)[1], 0, &scale));
    ECH_TRY(ech__reader_real_or(r, json, "min", NAN, &out->min));
    ECH_TRY(ech__reader_real_or(r, json, "max", NAN, &out->max));
    out->scale = (ech__scale_kind)scale;
    if (out->min >= out->max)
        return ech__fail(r->ctx, ECH_E_FORMAT, "\"min\" %g must be below \"max\" %g", out->min,
                         out->max);
    if (out->scale != ECH__SCALE_LINEAR && (out->min <= 0 || out->max <= 0))
        return ech__fail(r->ctx, ECH_E_FORMAT, "a logarithmic axis cannot begin or end at %g",
                         out->min <= 0 ? out->min : out->max);
    return ECH_OK;
}

static ech_status read_axis_in(const ech__reader *r, const ech_json *plot, const char *key,
                               ech__plot_axis *out)
{
    const ech_status status = read_axis(r, plot, key, out);
    return status < 0 ? ech__fail_in(r->ctx, status, "%s", key) : ECH_OK;
}

static ech_status read_bands(const ech__reader *r, const ech_json *plot, ech__plot *out)
{
    const ech_json *list;
    ECH_TRY(ech__reader_list(r, plot, "bands", ECH__PLOT_MAX_MARKS, &list, &out->nbands));
    ECH_TRY(ech__reader_array(r, out->nbands, sizeof *out->bands, &out->bands));
    for (size_t i = 0; i < out->nbands; i++) {
        const ech_json *json = ech__json_at(list, i);
        ech__plot_band *band = &out->bands[i];
        ech_status status = ech__reader_fields(r, json, "from to label");
        if (status == ECH_OK)
            status = ech__reader_real(r, json, "from", &band->from);
        if (status == ECH_OK)
            status = ech__reader_real(r, json, "to", &band->to);
        if (status == ECH_OK)
            status = ech__reader_text(r, json, "label", ECH__READER_LINE, &band->label);
        if (status == ECH_OK && !(band->from < band->to))
            status = ech__fail(r->ctx, ECH_E_FORMAT, "\"from\" must be below \"to\"");
        if (status < 0)
            return ech__fail_in(r->ctx, status, "bands[%zu]", i);
    }
    return ECH_OK;
}

static ech_status read_mark(const ech__reader *r, const ech_json *json, ech__plot_mark *out)
{
    int axis;
    ECH_TRY(ech__reader_fields(r, json, "axis at label"));
    ECH_TRY(ech__reader_choice(r, json, "axis", "x y", 0, &axis));
    ECH_TRY(ech__reader_real(r, json, "at", &out->at));
    ECH_TRY(ech__reader_text_or(r, json, "label", ECH__READER_LINE, "", &out->label));
    out->along_y = axis == 1;
    return isnan(out->at) ? ech__fail(r->ctx, ECH_E_FORMAT, "\"at\" must be a number, not null")
                          : ECH_OK;
}

static ech_status read_marks(const ech__reader *r, const ech_json *json, ech__plot_mark **out,
                             size_t *count)
{
    const ech_json *list;
    ECH_TRY(ech__reader_list(r, json, "marks", ECH__PLOT_MAX_MARKS, &list, count));
    ECH_TRY(ech__reader_array(r, *count, sizeof **out, out));
    for (size_t i = 0; i < *count; i++) {
        const ech_status status = read_mark(r, ech__json_at(list, i), &(*out)[i]);
        if (status < 0)
            return ech__fail_in(r->ctx, status, "marks[%zu]", i);
    }
    return ECH_OK;
}

/* ---- lines, steps, speedup ---- */

/* [x, y], [x, y, low, high], or an object with these and "clock". */
static ech_status read_point(const ech__reader *r, const ech_json *json, ech__basis basis,
                             ech__plot_point *out)
{
    *out = (ech__plot_point){.low = NAN, .high = NAN, .basis = basis};
    if (ech__json_kind_of(json) == ECH_JSON_OBJECT) {
        ECH_TRY(ech__reader_fields(r, json, "x y low high clock"));
        ECH_TRY(ech__reader_real(r, json, "x", &out->x));
        ECH_TRY(ech__reader_real(r, json, "y", &out->y));
        ECH_TRY(ech__reader_real_or(r, json, "low", NAN, &out->low));
        ECH_TRY(ech__reader_real_or(r, json, "high", NAN, &out->high));
        if (ech__json_find(json, "clock"))
            ECH_TRY(ech__read_basis(r, json, &out->basis));
    } else {
        const size_t count = ech__json_count(json);
        if (ech__json_kind_of(json) != ECH_JSON_ARRAY || (count != 2 && count != 4))
            return ech__fail(r->ctx, ECH_E_FORMAT,
                             "a point must be [x, y], [x, y, low, high] or "
                             "an object");
        double *const parts[] = {&out->x, &out->y, &out->low, &out->high};
        for (size_t i = 0; i < count; i++)
            ECH_TRY(ech__reader_number(r, ech__json_at(json, i), "a coordinate", parts[i]));
    }
    if (isnan(out->x) || isnan(out->low) != isnan(out->high) || out->low > out->high)
        return ech__fail(r->ctx, ECH_E_FORMAT,
                         "a point needs x, and low and high in this order or neither");
    return ECH_OK;
}

static ech_status read_points(const ech__reader *r, const ech_json *json, ech__plot_series *out)
{
    const ech_json *list;
    ECH_TRY(ech__reader_list(r, json, "points", ECH__PLOT_MAX_POINTS, &list, &out->count));
    ECH_TRY(ech__reader_array(r, out->count, sizeof *out->points, &out->points));
    for (size_t i = 0; i < out->count; i++) {
        const ech_status status = read_point(r, ech__json_at(list, i), out->basis, &out->points[i]);
        if (status < 0)
            return ech__fail_in(r->ctx, status, "points[%zu]", i);
    }
    return ECH_OK;
}

static ech_status read_from(const ech__reader *r, const ech_json *json, ech__plot_from *out)
{
    int file;
    ECH_TRY(ech__reader_fields(r, json, "run file x y scale"));
    ECH_TRY(ech__reader_id(r, json, "run", &out->run));
    ECH_TRY(ech__reader_choice(r, json, "file", "steps epochs", 0, &file));
    out->epochs = file == 1;
    ECH_TRY(ech__reader_text_or(r, json, "x", ECH__READER_LINE, out->epochs ? "epoch" : "step",
                                &out->x));
    ECH_TRY(ech__reader_text(r, json, "y", ECH__READER_LINE, &out->y));
    return ech__reader_real_or(r, json, "scale", 1, &out->scale);
}

static ech_status read_line(const ech__reader *r, const ech_json *json, ech__plot_series *out)
{
    int line;
    ECH_TRY(ech__reader_fields(r, json, "name clock line points from"));
    ECH_TRY(ech__reader_text(r, json, "name", ECH__READER_LINE, &out->name));
    ECH_TRY(ech__read_basis(r, json, &out->basis));
    ECH_TRY(ech__reader_choice(r, json, "line", "yes no", 0, &line));
    out->has_line = line == 0;
    const ech_json *from = ech__json_find(json, "from");
    if ((from != NULL) == (ech__json_find(json, "points") != NULL))
        return ech__fail(r->ctx, ECH_E_FORMAT, "either \"points\" or \"from\" must be there");
    if (!from)
        return read_points(r, json, out);
    const ech_status status = read_from(r, from, &out->from);
    return status < 0 ? ech__fail_in(r->ctx, status, "from") : ECH_OK;
}

/* ---- bars, stacked, ladder ---- */

static ech_status read_values(const ech__reader *r, const ech_json *json, size_t ncategories,
                              ech__plot_series *out)
{
    const ech_json *list;
    size_t count;
    ECH_TRY(ech__reader_fields(r, json, "name clock values"));
    ECH_TRY(ech__reader_text(r, json, "name", ECH__READER_LINE, &out->name));
    ECH_TRY(ech__read_basis(r, json, &out->basis));
    ECH_TRY(ech__reader_list(r, json, "values", ECH__PLOT_MAX_CATEGORIES, &list, &count));
    if (count != ncategories)
        return ech__fail(r->ctx, ECH_E_FORMAT,
                         "\"values\" has %zu elements: must have %zu, one a "
                         "category",
                         count, ncategories);
    ECH_TRY(ech__reader_array(r, count, sizeof *out->values, &out->values));
    for (size_t i = 0; i < count; i++) {
        ech_status status = ech__read_cell(r, ech__json_at(list, i), &out->values[i]);
        if (status == ECH_OK && out->values[i].kind == ECH__CELL_TEXT)
            status = ech__fail(r->ctx, ECH_E_FORMAT, "must be a number or null");
        if (status < 0)
            return ech__fail_in(r->ctx, status, "values[%zu]", i);
        if (out->values[i].basis == ECH__BASIS_UNSAID)
            out->values[i].basis = out->basis;
    }
    return ECH_OK;
}

static ech_status read_categories(const ech__reader *r, const ech_json *json, ech__plot *out)
{
    const ech_json *list;
    char what[48];
    ECH_TRY(ech__reader_list(r, json, "categories", ECH__PLOT_MAX_CATEGORIES, &list,
                             &out->ncategories));
    if (!out->ncategories)
        return ech__fail(r->ctx, ECH_E_FORMAT, "\"categories\" is missing or empty");
    ECH_TRY(ech__reader_array(r, out->ncategories, sizeof *out->categories, &out->categories));
    for (size_t i = 0; i < out->ncategories; i++) {
        snprintf(what, sizeof what, "categories[%zu]", i);
        ECH_TRY(ech__reader_string(r, ech__json_at(list, i), what, ECH__READER_LINE,
                                   &out->categories[i]));
    }
    return ECH_OK;
}

/* Parts of a whole cannot be negative. */
static ech_status check_stack(const ech__reader *r, const ech__plot *plot)
{
    for (size_t s = 0; s < plot->nseries; s++) {
        for (size_t c = 0; c < plot->ncategories; c++) {
            const ech__cell *v = &plot->series[s].values[c];
            if (v->kind == ECH__CELL_NUMBER && v->value < 0)
                return ech__fail(r->ctx, ECH_E_FORMAT,
                                 "series[%zu]: values[%zu] %g: a part cannot be below 0", s, c,
                                 v->value);
        }
    }
    return ECH_OK;
}

/* ---- histogram ---- */

static ech_status read_panel(const ech__reader *r, const ech_json *json, ech__plot_panel *out)
{
    const ech_json *list;
    ECH_TRY(ech__reader_fields(r, json, "name note from to counts marks"));
    ECH_TRY(ech__reader_text(r, json, "name", ECH__READER_LINE, &out->name));
    ECH_TRY(ech__reader_text_or(r, json, "note", ECH__READER_LINE, NULL, &out->note));
    ECH_TRY(ech__reader_real(r, json, "from", &out->from));
    ECH_TRY(ech__reader_real(r, json, "to", &out->to));
    if (!(out->from < out->to))
        return ech__fail(r->ctx, ECH_E_FORMAT, "\"from\" must be below \"to\"");
    ECH_TRY(ech__reader_list(r, json, "counts", ECH__PLOT_MAX_BINS, &list, &out->bins));
    if (!out->bins)
        return ech__fail(r->ctx, ECH_E_FORMAT, "\"counts\" is missing or empty");
    ECH_TRY(ech__reader_array(r, out->bins, sizeof *out->counts, &out->counts));
    for (size_t i = 0; i < out->bins; i++) {
        ECH_TRY(ech__reader_number(r, ech__json_at(list, i), "a count", &out->counts[i]));
        if (!(out->counts[i] >= 0))
            return ech__fail(r->ctx, ECH_E_FORMAT, "counts[%zu] %g: must be 0 or more", i,
                             out->counts[i]);
    }
    return read_marks(r, json, &out->marks, &out->nmarks);
}

static ech_status read_panels(const ech__reader *r, const ech_json *json, ech__plot *out)
{
    const ech_json *list;
    ECH_TRY(ech__reader_list(r, json, "panels", ECH__PLOT_MAX_PANELS, &list, &out->npanels));
    if (!out->npanels)
        return ech__fail(r->ctx, ECH_E_FORMAT, "\"panels\" is missing or empty");
    ECH_TRY(ech__reader_array(r, out->npanels, sizeof *out->panels, &out->panels));
    for (size_t i = 0; i < out->npanels; i++) {
        const ech_status status = read_panel(r, ech__json_at(list, i), &out->panels[i]);
        if (status < 0)
            return ech__fail_in(r->ctx, status, "panels[%zu]", i);
    }
    return ECH_OK;
}

/* ---- timeline ---- */

static ech_status read_traces(const ech__reader *r, const ech_json *json, ech__plot *out)
{
    const ech_json *list;
    ECH_TRY(ech__reader_list(r, json, "traces", ECH__PLOT_MAX_TRACES, &list, &out->ntraces));
    if (!out->ntraces)
        return ech__fail(r->ctx, ECH_E_FORMAT, "\"traces\" is missing or empty");
    ECH_TRY(ech__reader_array(r, out->ntraces, sizeof *out->traces, &out->traces));
    for (size_t i = 0; i < out->ntraces; i++) {
        const ech_json *trace = ech__json_at(list, i);
        ech__plot_trace *t = &out->traces[i];
        ech_status status = ech__reader_fields(r, trace, "run label step");
        if (status == ECH_OK)
            status = ech__reader_id(r, trace, "run", &t->run);
        if (status == ECH_OK)
            status = ech__reader_text(r, trace, "label", ECH__READER_LINE, &t->label);
        if (status == ECH_OK)
            status = ech__json_get_int(r->ctx, trace, "step", &t->step);
        if (status < 0)
            return ech__fail_in(r->ctx, status, "traces[%zu]", i);
    }
    return ECH_OK;
}

/* ---- a plot ---- */

static bool is_xy(ech__plot_kind kind)
{
    return kind == ECH__PLOT_LINES || kind == ECH__PLOT_STEPS || kind == ECH__PLOT_SPEEDUP;
}

static const char *fields_of(ech__plot_kind kind)
{
    switch (kind) {
    case ECH__PLOT_HISTOGRAM:
        return "kind title caption runs x y panels";
    case ECH__PLOT_TIMELINE:
        return "kind title caption runs traces";
    case ECH__PLOT_BARS:
    case ECH__PLOT_STACKED:
    case ECH__PLOT_LADDER:
        return "kind title caption runs y format categories series marks";
    default:
        return "kind title caption runs x y bands marks series";
    }
}

static ech_status read_series(const ech__reader *r, const ech_json *json, ech__plot *out)
{
    const ech_json *list;
    const size_t most = out->kind == ECH__PLOT_LADDER ? 1 : ECH__PLOT_MAX_SERIES;
    ECH_TRY(ech__reader_list(r, json, "series", most, &list, &out->nseries));
    if (!out->nseries)
        return ech__fail(r->ctx, ECH_E_FORMAT, "\"series\" is missing or empty");
    ECH_TRY(ech__reader_array(r, out->nseries, sizeof *out->series, &out->series));
    for (size_t i = 0; i < out->nseries; i++) {
        const ech_json *one = ech__json_at(list, i);
        ech__plot_series *s = &out->series[i];
        const ech_status status =
            is_xy(out->kind) ? read_line(r, one, s) : read_values(r, one, out->ncategories, s);
        if (status < 0)
            return ech__fail_in(r->ctx, status, "series[%zu]", i);
    }
    return ECH_OK;
}

static ech_status read_body(const ech__reader *r, const ech_json *json, ech__plot *out)
{
    if (out->kind == ECH__PLOT_TIMELINE)
        return read_traces(r, json, out);
    ECH_TRY(read_axis_in(r, json, "y", &out->y));
    if (out->kind == ECH__PLOT_HISTOGRAM) {
        ECH_TRY(read_axis_in(r, json, "x", &out->x));
        return read_panels(r, json, out);
    }
    ECH_TRY(read_marks(r, json, &out->marks, &out->nmarks));
    if (is_xy(out->kind)) {
        ECH_TRY(read_axis_in(r, json, "x", &out->x));
        ECH_TRY(read_bands(r, json, out));
        return read_series(r, json, out);
    }
    if (out->y.scale != ECH__SCALE_LINEAR)
        return ech__fail(r->ctx, ECH_E_FORMAT, "y: \"scale\" must be linear under bars and dots");
    ECH_TRY(ech__read_format(r, json, &out->format));
    ECH_TRY(read_categories(r, json, out));
    ECH_TRY(read_series(r, json, out));
    return out->kind == ECH__PLOT_STACKED ? check_stack(r, out) : ECH_OK;
}

static ech_status read_run_ids(const ech__reader *r, const ech_json *json, ech__plot *out)
{
    const ech_json *list;
    char what[48];
    ECH_TRY(ech__reader_list(r, json, "runs", ECH__STUDY_MAX_RUNS, &list, &out->nruns));
    ECH_TRY(ech__reader_array(r, out->nruns, sizeof *out->runs, &out->runs));
    for (size_t i = 0; i < out->nruns; i++) {
        snprintf(what, sizeof what, "runs[%zu]", i);
        ECH_TRY(ech__reader_id_string(r, ech__json_at(list, i), what, &out->runs[i]));
    }
    return ECH_OK;
}

/* Every run that a plot names must be one of the study's. */
static ech_status check_runs(const ech__reader *r, const ech__plot *plot, const ech__study *study)
{
    const char *unknown = NULL;
    for (size_t i = 0; i < plot->nruns; i++)
        unknown = ech__study_find_run(study, plot->runs[i]) ? unknown : plot->runs[i];
    for (size_t i = 0; i < plot->nseries; i++) {
        const char *run = plot->series[i].from.run;
        unknown = !run || ech__study_find_run(study, run) ? unknown : run;
    }
    for (size_t i = 0; i < plot->ntraces; i++)
        unknown = ech__study_find_run(study, plot->traces[i].run) ? unknown : plot->traces[i].run;
    return unknown ? ech__fail(r->ctx, ECH_E_FORMAT, "there is no run %s", unknown) : ECH_OK;
}

static ech_status read_plot(const ech__reader *r, const ech_json *json, const ech__study *study,
                            ech__plot *out)
{
    int kind;
    if (ech__json_kind_of(json) != ECH_JSON_OBJECT)
        return ech__fail(r->ctx, ECH_E_FORMAT, "must be an object");
    ECH_TRY(ech__reader_choice(r, json, "kind", &ECH__PLOT_LIST(WORD)[1], -1, &kind));
    out->kind = (ech__plot_kind)kind;
    ECH_TRY(ech__reader_fields(r, json, fields_of(out->kind)));
    ECH_TRY(ech__reader_text(r, json, "title", ECH__READER_LINE, &out->title));
    ECH_TRY(ech__reader_text_or(r, json, "caption", ECH__READER_TEXT, NULL, &out->caption));
    ECH_TRY(read_run_ids(r, json, out));
    ECH_TRY(read_body(r, json, out));
    return check_runs(r, out, study);
}

ech_status ech__read_plots(const ech__reader *r, const ech_json *study, ech__study *out)
{
    const ech_json *list;
    size_t count;
    ECH_TRY(ech__reader_list(r, study, "plots", ECH__STUDY_MAX_PLOTS, &list, &count));
    ECH_TRY(ech__reader_array(r, count, sizeof *out->plots, &out->plots));
    for (size_t i = 0; i < count; i++) {
        const ech_status status = read_plot(r, ech__json_at(list, i), out, &out->plots[i]);
        if (status < 0)
            return ech__fail_in(r->ctx, status, "plots[%zu]", i);
    }
    out->nplots = count;
    return ECH_OK;
}
