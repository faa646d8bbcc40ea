#include "report/study/records.h"
#include "base/file/dir.h"
#include "base/file/file.h"
#include "report/study/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- series ---- */

static ech_status add_point(ech__book *book, const char *what, ech__plot_series *s,
                            size_t *capacity, ech__plot_point point)
{
    if (s->count >= ECH__PLOT_MAX_POINTS)
        return ech__fail(book->ctx, ECH_E_LIMIT, "%s: more than %d points for one plot", what,
                         ECH__PLOT_MAX_POINTS);
    if (!ech__arena_grow(&book->arena, (void **)&s->points, s->count, capacity, sizeof *s->points))
        return ech__no_memory(book->ctx, "what %s holds", what);
    if (!(fabs(point.x) <= ECH__READER_LARGEST))
        return ech__fail(book->ctx, ECH_E_FORMAT, "%s: \"%s\" is no number to plot over", what,
                         s->from.x);
    if (!(fabs(point.y) <= ECH__READER_LARGEST))
        point.y = NAN; /* a loss that left all bounds is a gap */
    s->points[s->count++] = point;
    return ECH_OK;
}

static ech_status read_step(ech__book *book, const char *what, const char *line, size_t bytes,
                            ech__plot_series *s, size_t *capacity)
{
    ech_json *json;
    ech__plot_point p = {.low = NAN, .high = NAN, .basis = s->basis};
    ECH_TRY(ech__json_parse(book->ctx, what, line, bytes, &json));
    ech_status status = ech__json_get_real(book->ctx, json, s->from.x, &p.x);
    if (status == ECH_OK)
        status = ech__json_get_real(book->ctx, json, s->from.y, &p.y);
    ech__json_destroy(json);
    if (status < 0)
        return ech__fail_in(book->ctx, status, "%s", what);
    p.y *= s->from.scale;
    return add_point(book, what, s, capacity, p);
}

ech_status ech__steps_parse(ech__book *book, const char *what, const char *text, size_t bytes,
                            ech__plot_series *series)
{
    const char *end = text + bytes;
    size_t capacity = 0, number = 0;
    char place[ECH_DIR_MAX_PATH + 32];
    series->points = NULL;
    series->count = 0;
    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop)
            break;
        snprintf(place, sizeof place, "%s: line %zu", what, ++number);
        ECH_TRY(read_step(book, place, line, (size_t)(stop - line), series, &capacity));
        line = stop + 1;
    }
    return series->count ? ECH_OK
                         : ech__fail(book->ctx, ECH_E_FORMAT, "%s: there is no step in it", what);
}

static ech_status read_epochs(ech__book *book, const ech_json *json, ech__plot_series *s)
{
    const ech_json *summary, *epochs;
    ECH_TRY(ech__json_get_object(book->ctx, json, "summary", &summary));
    ECH_TRY(ech__json_get_array(book->ctx, summary, "epochs", &epochs));
    size_t capacity = 0;
    s->points = NULL;
    s->count = 0;
    for (size_t i = 0; i < ech__json_count(epochs); i++) {
        ech__plot_point p = {.x = (double)(i + 1), .low = NAN, .high = NAN, .basis = s->basis};
        ECH_TRY(ech__json_get_real(book->ctx, ech__json_at(epochs, i), s->from.y, &p.y));
        p.y *= s->from.scale;
        ECH_TRY(add_point(book, "epochs", s, &capacity, p));
    }
    return s->count ? ECH_OK : ech__fail(book->ctx, ECH_E_FORMAT, "there is no epoch in it");
}

ech_status ech__epochs_parse(ech__book *book, const char *what, const char *text, size_t bytes,
                             ech__plot_series *series)
{
    ech_json *json;
    ECH_TRY(ech__json_parse(book->ctx, what, text, bytes, &json));
    const ech_status status = read_epochs(book, json, series);
    ech__json_destroy(json);
    return status < 0 ? ech__fail_in(book->ctx, status, "%s", what) : ECH_OK;
}

/* ---- traces ---- */

/* Lanes under construction: the threads of all processes. */
typedef struct lane {
    int64_t pid, tid;
    const char *name, *process; /* NULL where the trace does not say */
} lane;

typedef struct tracer {
    ech__book *book;
    const ech_json *events;
    ech__plot_trace *trace;
    lane lanes[ECH__PLOT_MAX_LANES];
    size_t nlanes, capacity;
    double start_us, end_us; /* of the step */
} tracer;

static bool event_is(const ech_json *event, const char *key, const char *want)
{
    const char *text;
    return ech__json_string(ech__json_find(event, key), &text) && !strcmp(text, want);
}

static bool event_times(const ech_json *event, double *start, double *end)
{
    double ts, dur;
    if (!event_is(event, "ph", "X") || !ech__json_real(ech__json_find(event, "ts"), &ts) ||
        !ech__json_real(ech__json_find(event, "dur"), &dur))
        return false;
    *start = ts;
    *end = ts + dur;
    return fabs(ts) < 1e15 && dur >= 0 && dur < 1e15;
}

/* From when the first rank begins the step until the last has ended it. */
static ech_status find_step(tracer *t, const char *what)
{
    char name[32];
    bool found = false;
    snprintf(name, sizeof name, "step %lld", (long long)t->trace->step);
    for (size_t i = 0; i < ech__json_count(t->events); i++) {
        const ech_json *event = ech__json_at(t->events, i);
        double start, end;
        if (!event_is(event, "cat", "step") || !event_is(event, "name", name) ||
            !event_times(event, &start, &end))
            continue;
        t->start_us = found ? fmin(t->start_us, start) : start;
        t->end_us = found ? fmax(t->end_us, end) : end;
        found = true;
    }
    if (!found || t->end_us <= t->start_us)
        return ech__fail(t->book->ctx, ECH_E_FORMAT, "%s: there is no step %lld in it", what,
                         (long long)t->trace->step);
    t->trace->seconds = (t->end_us - t->start_us) * 1e-6;
    return ECH_OK;
}

/* The lane of an event, which is made where it is not there; -1 where there are too many. */
static int lane_of(tracer *t, const ech_json *event, bool make)
{
    int64_t pid, tid;
    if (!ech__json_int(ech__json_find(event, "pid"), &pid) ||
        !ech__json_int(ech__json_find(event, "tid"), &tid))
        return -1;
    size_t i = 0;
    while (i < t->nlanes && (t->lanes[i].pid != pid || t->lanes[i].tid != tid))
        i++;
    if (i == t->nlanes) {
        if (!make || i == ECH__PLOT_MAX_LANES)
            return -1;
        t->lanes[t->nlanes++] = (lane){.pid = pid, .tid = tid};
    }
    return (int)i;
}

static int by_place(const void *a, const void *b)
{
    const lane *x = a, *y = b;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    return (x->tid > y->tid) - (x->tid < y->tid);
}

static bool is_shown(const tracer *t, const ech_json *event, double *start, double *end)
{
    return event_times(event, start, end) && !event_is(event, "cat", "step") &&
           *end > t->start_us && *start<t->end_us && * end> * start;
}

static void find_lanes(tracer *t)
{
    double start, end;
    for (size_t i = 0; i < ech__json_count(t->events); i++) {
        const ech_json *event = ech__json_at(t->events, i);
        if (is_shown(t, event, &start, &end))
            lane_of(t, event, true);
    }
    qsort(t->lanes, t->nlanes, sizeof *t->lanes, by_place);
}

/* Metadata: {"name": "thread_name", "args": {"name": "device 0"}}. */
static void read_names(tracer *t)
{
    for (size_t i = 0; i < ech__json_count(t->events); i++) {
        const ech_json *event = ech__json_at(t->events, i);
        const char *name;
        int64_t pid;
        if (!event_is(event, "ph", "M") ||
            !ech__json_string(ech__json_find(ech__json_find(event, "args"), "name"), &name))
            continue;
        if (event_is(event, "name", "thread_name")) {
            const int at = lane_of(t, event, false);
            if (at >= 0)
                t->lanes[at].name = name;
        } else if (event_is(event, "name", "process_name") &&
                   ech__json_int(ech__json_find(event, "pid"), &pid)) {
            for (size_t k = 0; k < t->nlanes; k++)
                t->lanes[k].process = t->lanes[k].pid == pid ? name : t->lanes[k].process;
        }
    }
}

/* Whether another lane has the same name, so that the process must be said too. */
static bool is_shared_name(const tracer *t, size_t index)
{
    for (size_t i = 0; i < t->nlanes; i++) {
        if (i != index && t->lanes[i].name && !strcmp(t->lanes[i].name, t->lanes[index].name))
            return true;
    }
    return false;
}

/* Strings of traces are others' work: what must not be in a page becomes '?'. */
static char *clean_copy(ech__arena *arena, const char *text)
{
    char *copy = ech__arena_printf(arena, "%.200s", text);
    for (unsigned char *c = (unsigned char *)copy; c && *c; c++) {
        if (*c < 0x20 || *c >= 0x7f)
            *c = '?';
    }
    return copy;
}

static ech_status name_lanes(tracer *t, const char *what)
{
    ech__arena *arena = &t->book->arena;
    ech__plot_trace *trace = t->trace;
    trace->lanes = ech__arena_array(arena, t->nlanes, sizeof *trace->lanes);
    trace->levels = ech__arena_array(arena, t->nlanes, sizeof *trace->levels);
    if (!trace->lanes || !trace->levels)
        return ech__no_memory(t->book->ctx, "what %s holds", what);
    for (size_t i = 0; i < t->nlanes; i++) {
        const lane *l = &t->lanes[i];
        char name[160];
        if (!l->name)
            snprintf(name, sizeof name, "thread %lld.%lld", (long long)l->pid, (long long)l->tid);
        else if (is_shared_name(t, i) && l->process)
            snprintf(name, sizeof name, "%.60s, %.60s", l->process, l->name);
        else
            snprintf(name, sizeof name, "%.120s", l->name);
        trace->lanes[i] = clean_copy(arena, name);
        if (!trace->lanes[i])
            return ech__no_memory(t->book->ctx, "what %s holds", what);
    }
    trace->nlanes = t->nlanes;
    return ECH_OK;
}

static ech_status add_span(tracer *t, const char *what, const ech_json *event, double start,
                           double end)
{
    ech__plot_trace *trace = t->trace;
    const char *name = "", *category = "";
    const int at = lane_of(t, event, false);
    if (at < 0)
        return ECH_OK;
    (void)ech__json_string(ech__json_find(event, "name"), &name);
    (void)ech__json_string(ech__json_find(event, "cat"), &category);
    if (!ech__arena_grow(&t->book->arena, (void **)&trace->spans, trace->count, &t->capacity,
                         sizeof *trace->spans))
        return ech__no_memory(t->book->ctx, "what %s holds", what);
    const ech__plot_span span = {.start = (fmax(start, t->start_us) - t->start_us) * 1e-6,
                                 .end = (fmin(end, t->end_us) - t->start_us) * 1e-6,
                                 .name = clean_copy(&t->book->arena, name),
                                 .category = clean_copy(&t->book->arena, category),
                                 .lane = at};
    if (!span.name || !span.category)
        return ech__no_memory(t->book->ctx, "what %s holds", what);
    trace->spans[trace->count++] = span;
    return ECH_OK;
}

static int by_time(const void *a, const void *b)
{
    const ech__plot_span *x = a, *y = b;
    if (x->lane != y->lane)
        return x->lane < y->lane ? -1 : 1;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->end < y->end) - (x->end > y->end); /* what encloses comes first */
}

/* What overlaps in a lane goes below each other, in the first row that is free. */
static void find_levels(ech__plot_trace *trace)
{
    enum { MOST = 4 };
    double until[MOST] = {0};
    for (size_t i = 0; i < trace->count; i++) {
        ech__plot_span *s = &trace->spans[i];
        if (i == 0 || trace->spans[i - 1].lane != s->lane)
            memset(until, 0, sizeof until);
        while (s->level < MOST - 1 && until[s->level] > s->start + 1e-9)
            s->level++;
        until[s->level] = fmax(until[s->level], s->end);
        if (trace->levels[s->lane] < s->level + 1)
            trace->levels[s->lane] = s->level + 1;
    }
}

static ech_status read_trace(tracer *t, const char *what)
{
    double start, end;
    ECH_TRY(find_step(t, what));
    find_lanes(t);
    if (!t->nlanes)
        return ech__fail(t->book->ctx, ECH_E_FORMAT, "%s: step %lld has no spans", what,
                         (long long)t->trace->step);
    read_names(t);
    ECH_TRY(name_lanes(t, what));
    for (size_t i = 0; i < ech__json_count(t->events); i++) {
        const ech_json *event = ech__json_at(t->events, i);
        if (is_shown(t, event, &start, &end))
            ECH_TRY(add_span(t, what, event, start, end));
    }
    qsort(t->trace->spans, t->trace->count, sizeof *t->trace->spans, by_time);
    find_levels(t->trace);
    return ECH_OK;
}

ech_status ech__trace_parse(ech__book *book, const char *what, const char *text, size_t bytes,
                            ech__plot_trace *trace)
{
    ech_json *json;
    ECH_TRY(ech__json_parse(book->ctx, what, text, bytes, &json));
    tracer t = {.book = book, .events = json, .trace = trace};
    trace->spans = NULL;
    trace->count = 0;
    if (ech__json_kind_of(json) == ECH_JSON_OBJECT) /* the other form that viewers take */
        t.events = ech__json_find(json, "traceEvents");
    const ech_status status =
        t.events ? read_trace(&t, what)
                 : ech__fail(book->ctx, ECH_E_FORMAT, "%s: \"traceEvents\" is missing", what);
    ech__json_destroy(json);
    return status;
}

/* ---- files ---- */

typedef struct record_file {
    char path[ECH_DIR_MAX_PATH];
    char *text; /* owned by whoever loads it */
    size_t bytes;
} record_file;

/* Where the records of a study's runs lie. */
typedef struct place {
    ech__book *book;
    const char *dir;
    const ech__study *study;
} place;

static ech_status load(const place *p, const char *id, const char *name, record_file *out)
{
    const ech__study_run *run = ech__study_find_run(p->study, id);
    if (!run->record)
        return ech__fail(p->book->ctx, ECH_E_FORMAT, "study %s: run %s has no record to plot from",
                         p->study->id, id);
    const int length = snprintf(out->path, sizeof out->path, "%s/%s/%s", p->dir, run->record, name);
    if (length >= (int)sizeof out->path)
        return ech__fail(p->book->ctx, ECH_E_INVALID, "study %s: the path of run %s is too long",
                         p->study->id, id);
    return ech__file_read(p->book->ctx, out->path, ECH_JSON_MAX_BYTES, &out->text, &out->bytes);
}

static ech_status fill_series(const place *p, ech__plot_series *s)
{
    record_file file;
    ECH_TRY(load(p, s->from.run, s->from.epochs ? "run.json" : "steps.jsonl", &file));
    if (s->basis == ECH__BASIS_UNSAID)
        s->basis = ech__study_find_run(p->study, s->from.run)->basis;
    const ech_status status = s->from.epochs
                                  ? ech__epochs_parse(p->book, file.path, file.text, file.bytes, s)
                                  : ech__steps_parse(p->book, file.path, file.text, file.bytes, s);
    free(file.text);
    return status;
}

static ech_status fill_trace(const place *p, ech__plot_trace *trace)
{
    record_file file;
    ECH_TRY(load(p, trace->run, "trace.json", &file));
    const ech_status status = ech__trace_parse(p->book, file.path, file.text, file.bytes, trace);
    free(file.text);
    return status;
}

static ech_status fill_plot(const place *p, ech__plot *plot)
{
    for (size_t s = 0; s < plot->nseries; s++) {
        if (plot->series[s].from.run)
            ECH_TRY(fill_series(p, &plot->series[s]));
    }
    for (size_t t = 0; t < plot->ntraces; t++)
        ECH_TRY(fill_trace(p, &plot->traces[t]));
    return ECH_OK;
}

/* A plot whose records cannot be read is left out, and the study says why. */
ech_status ech__records_fill(ech__book *book, const char *dir, ech__study *study)
{
    const place p = {book, dir, study};
    size_t kept = 0;
    for (size_t i = 0; i < study->nplots; i++) {
        ech__plot *plot = &study->plots[i];
        const ech_status status = fill_plot(&p, plot);
        if (status == ECH_E_NOMEM)
            return status;
        if (status < 0) {
            ech__fail_in(book->ctx, status, "the plot '%s' is left out", plot->title);
            ECH_TRY(ech__book_problem(book, study));
        } else {
            study->plots[kept++] = *plot;
        }
    }
    study->nplots = kept;
    return ECH_OK;
}
