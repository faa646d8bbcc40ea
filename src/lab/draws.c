#include "lab/facts.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Draws are a function of the run and of their number alone. */
enum { SEED = 0 };

/* What a statistic sees: values in ascending order, and how often each was drawn. */
typedef struct sample {
    const double *sorted;  /* [count] */
    const uint32_t *drawn; /* [count] */
    size_t count;
    uint64_t total; /* sum of drawn; above 0 */
} sample;

/* ---- statistics ---- */

/* The k-th smallest of what was drawn. */
static double drawn_at(const sample *s, uint64_t k)
{
    uint64_t seen = 0;
    size_t i = 0;
    for (; i + 1 < s->count && seen + s->drawn[i] <= k; i++)
        seen += s->drawn[i];
    return s->sorted[i];
}

static double of_steps(const sample *s)
{
    const double upper = drawn_at(s, s->total / 2);
    return s->total % 2 ? upper : (drawn_at(s, s->total / 2 - 1) + upper) / 2;
}

static double of_total(const sample *s)
{
    double sum = 0;
    for (size_t i = 0; i < s->count; i++)
        sum += s->sorted[i] * s->drawn[i];
    return sum;
}

/* From the smallest value on, so that equal values have exactly theirs as the mean. */
static double of_mean(const sample *s)
{
    double sum = 0;
    for (size_t i = 0; i < s->count; i++)
        sum += (s->sorted[i] - s->sorted[0]) * s->drawn[i];
    return s->sorted[0] + sum / (double)s->total;
}

static double of_std(const sample *s)
{
    const double mean = of_mean(s);
    double squares = 0;
    for (size_t i = 0; i < s->count; i++)
        squares += (s->sorted[i] - mean) * (s->sorted[i] - mean) * s->drawn[i];
    return s->total > 1 ? sqrt(squares / (double)(s->total - 1)) : NAN;
}

static double of_p95(const sample *s)
{
    return drawn_at(s, (uint64_t)ceil(0.95 * (double)s->total) - 1);
}

static double of_lowest(const sample *s)
{
    return drawn_at(s, 0);
}

static double of_highest(const sample *s)
{
    return drawn_at(s, s->total - 1);
}

static double of_count(const sample *s)
{
    return (double)s->total;
}

/* It is not drawn, so the values stand in the order of the steps. */
static double of_last(const sample *s)
{
    return s->sorted[s->count - 1];
}

typedef struct statistic_row {
    const char *name;
    double (*of)(const sample *s);
} statistic_row;

static const statistic_row rows[] = {
#define ROW(statistic) [ECH__LAB_STATISTIC_##statistic] = {#statistic, of_##statistic},
    ECH__LAB_STATISTIC_LIST(ROW)
#undef ROW
};

/* The number of steps, and which is the last, do not depend on what is drawn. */
static bool is_drawn(ech__lab_statistic statistic)
{
    return statistic != ECH__LAB_STATISTIC_count && statistic != ECH__LAB_STATISTIC_last;
}

bool ech__lab_statistic_find(const char *name, size_t length, ech__lab_statistic *out)
{
    for (int i = 0; i < ECH__LAB_STATISTIC_COUNT; i++) {
        if (strlen(rows[i].name) == length && !strncmp(rows[i].name, name, length)) {
            *out = (ech__lab_statistic)i;
            return true;
        }
    }
    return false;
}

/* ---- noise ---- */

static bool ends_in(const char *text, size_t length, const char *end)
{
    const size_t own = strlen(end);
    return length >= own && !strncmp(text + length - own, end, own);
}

/* 1 for a time, -1 for a rate, 0 for what is neither. The last component of a path decides, or the
 * one before it: wait_s.1, step_time_s.median. */
static int power_of_time(const char *path)
{
    const char *end = path + strlen(path);
    for (int component = 0; component < 2; component++) {
        const char *begin = end;
        while (begin > path && begin[-1] != '.')
            begin--;
        const size_t length = (size_t)(end - begin);
        if (ends_in(begin, length, "_per_s") || ends_in(begin, length, "_gbs"))
            return -1;
        if (ends_in(begin, length, "_s"))
            return 1;
        if (begin == path)
            break;
        end = begin - 1;
    }
    return 0;
}

/* Two ids of one study may stand for the same run: the record says which it is. */
static uint64_t stream_of(const ech__lab_source *source, const char *purpose)
{
    const ech__lab_result *r = source->result;
    return ech__rng_stream(r->record ? r->record : r->id) ^ ech__rng_stream(purpose);
}

static const double *noise_of(ech__lab_facts *facts, ech__lab_source *source)
{
    if (source->noise)
        return source->noise;
    double *factors = ech__arena_array(&facts->arena, ECH__LAB_DRAWS, sizeof *factors);
    const uint64_t stream = stream_of(source, "noise");
    for (uint64_t d = 0; factors && d < ECH__LAB_DRAWS; d++)
        factors[d] = d ? exp(facts->noise * (double)ech__rng_normal(SEED, stream, d)) : 1;
    return source->noise = factors;
}

ech_status ech__lab_add_noise(ech__lab_facts *facts, ech__lab_source *source, const char *path,
                              ech__lab_value *value)
{
    const int power = power_of_time(path);
    if (!value->known || facts->noise == 0 || !power || value->basis == ECH__LAB_PREDICTED)
        return ECH_OK;
    const double *noise = noise_of(facts, source);
    double *draws = ech__arena_array(&facts->arena, ECH__LAB_DRAWS, sizeof *draws);
    if (!noise || !draws)
        return ech__no_memory(facts->ctx, "draws of %s", path);
    for (size_t d = 0; d < ECH__LAB_DRAWS; d++) {
        const double drawn = value->draws ? value->draws[d] : value->at;
        draws[d] = power > 0 ? drawn * noise[d] : drawn / noise[d];
    }
    value->draws = draws;
    return ECH_OK;
}

/* ---- resampling ---- */

/* A field of the steps behind the warm-up that have it. */
typedef struct column {
    double value;
    size_t step; /* among the steps behind the warm-up */
} column;

static int ascending(const void *a, const void *b)
{
    const column *x = a, *y = b;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    return (x->step > y->step) - (x->step < y->step);
}

/* Memory of one computation. */
typedef struct work {
    column *columns;
    double *sorted;
    uint32_t *drawn, *steps; /* how often: each of columns, each of all steps */
    size_t count, all;
} work;

static void work_fini(work *w)
{
    free(w->columns);
    free(w->sorted);
    free(w->drawn);
    free(w->steps);
}

static bool work_init(work *w, size_t all)
{
    *w = (work){.all = all,
                .columns = calloc(all + 1, sizeof *w->columns),
                .sorted = calloc(all + 1, sizeof *w->sorted),
                .drawn = calloc(all + 1, sizeof *w->drawn),
                .steps = calloc(all + 1, sizeof *w->steps)};
    return w->columns && w->sorted && w->drawn && w->steps;
}

/* What there is to draw from: the steps behind the warm-up, or an array of the record. */
typedef struct population {
    ech__lab_source *source;
    const ech_json *array; /* NULL: steps */
    size_t count;
} population;

static void read_column(work *w, const population *from, const char *field)
{
    const ech__lab_source *s = from->source;
    for (size_t i = 0; i < w->all; i++) {
        const ech_json *found = from->array ? ech__json_at(from->array, i)
                                            : ech__lab_path(s->steps[s->first + i], field);
        if (ech__lab_is_number(found, &w->columns[w->count].value))
            w->columns[w->count++].step = i;
    }
}

/* A step is drawn as a whole: which ones depends on the run and the draw, and not on the field. */
static void draw_steps(work *w, uint64_t stream, uint64_t draw)
{
    const uint64_t blocks = (w->all + 3) / 4;
    uint32_t words[4] = {0};
    memset(w->steps, 0, w->all * sizeof *w->steps);
    for (size_t i = 0; i < w->all; i++) {
        if (i % 4 == 0)
            ech__rng_block(SEED, stream, draw * blocks + i / 4, words);
        w->steps[((uint64_t)words[i % 4] * w->all) >> 32]++;
    }
}

static double statistic_now(work *w, const statistic_row *row)
{
    sample s = {w->sorted, w->drawn, w->count, 0};
    for (size_t i = 0; i < w->count; i++) {
        w->drawn[i] = w->steps[w->columns[i].step];
        s.total += w->drawn[i];
    }
    return s.total ? row->of(&s) : NAN;
}

static ech_status draw_all(ech__lab_facts *facts, const ech__lab_source *source, work *w,
                           ech__lab_statistic statistic, ech__lab_value *out)
{
    const statistic_row *row = &rows[statistic];
    if (is_drawn(statistic))
        qsort(w->columns, w->count, sizeof *w->columns, ascending);
    for (size_t i = 0; i < w->count; i++)
        w->sorted[i] = w->columns[i].value;
    for (size_t i = 0; i < w->all; i++)
        w->steps[i] = 1;
    out->at = statistic_now(w, row);
    if (!is_drawn(statistic))
        return ECH_OK;
    double *draws = ech__arena_array(&facts->arena, ECH__LAB_DRAWS, sizeof *draws);
    if (!draws)
        return ech__no_memory(facts->ctx, "draws");
    const uint64_t stream = stream_of(source, "steps");
    draws[0] = out->at;
    for (uint64_t d = 1; d < ECH__LAB_DRAWS; d++) {
        draw_steps(w, stream, d);
        draws[d] = statistic_now(w, row);
    }
    out->draws = draws;
    return ECH_OK;
}

static ech_status compute(ech__lab_facts *facts, const population *from,
                          ech__lab_statistic statistic, const char *field, ech__lab_value *out)
{
    work w;
    ech_status status = ECH_OK;
    if (!work_init(&w, from->count)) {
        work_fini(&w);
        return ech__no_memory(facts->ctx, "%zu steps", from->count);
    }
    read_column(&w, from, field);
    /* Losses up to the divergence are no sample of the run's. */
    if (w.count < w.all)
        out->reason = ech__lab_diverged(facts, from->source);
    if (out->reason)
        w.count = 0;
    else if (w.count)
        status = draw_all(facts, from->source, &w, statistic, out);
    else
        out->reason = ech__lab_reason(facts,
                                      from->array ? "%s: there is no number in its %s"
                                                  : "%s: no step behind its warm-up has %s",
                                      out->run, field);
    work_fini(&w);
    out->known = status == ECH_OK && isfinite(out->at);
    if (status == ECH_OK && !out->known && !out->reason)
        out->reason = ech__lab_reason(facts, "%s: too few steps have %s", out->run, field);
    return status;
}

static bool find_population(ech__lab_facts *facts, ech__lab_source *source, const char *field,
                            population *out)
{
    *out = (population){.source = source};
    if (ech__lab_source_steps(facts, source)) {
        out->count = source->nsteps - source->first;
        return true;
    }
    const ech_json *found = ech__lab_path(source->record, field);
    if (!found || ech__json_kind_of(found) != ECH_JSON_ARRAY)
        return false;
    out->array = found;
    out->count = ech__json_count(found);
    return true;
}

ech_status ech__lab_statistic_of(ech__lab_facts *facts, ech__lab_source *source,
                                 ech__lab_statistic statistic, const char *field,
                                 ech__lab_value *out)
{
    ech__lab_known_statistic *k = source->statistics;
    while (k && (k->statistic != statistic || strcmp(k->field, field) != 0))
        k = k->next;
    if (k) {
        *out = k->value;
        return ECH_OK;
    }
    *out = (ech__lab_value){.at = NAN, .run = source->result->id};
    population from;
    if (!find_population(facts, source, field, &from)) {
        out->reason = source->no_steps;
        return ECH_OK;
    }
    out->basis = ech__lab_source_basis(facts, source);
    ECH_TRY(compute(facts, &from, statistic, field, out));
    if (statistic != ECH__LAB_STATISTIC_count)
        ECH_TRY(ech__lab_add_noise(facts, source, field, out));
    k = ech__arena_alloc(&facts->arena, sizeof *k);
    char *name = ech__arena_printf(&facts->arena, "%s", field);
    if (!k || !name)
        return ech__no_memory(facts->ctx, "a statistic");
    *k = (ech__lab_known_statistic){statistic, name, *out, source->statistics};
    source->statistics = k;
    return ECH_OK;
}

ech_status ech__lab_step_of(ech__lab_facts *facts, ech__lab_source *source, const char *field,
                            int64_t step, ech__lab_value *out)
{
    double number;
    *out = (ech__lab_value){.at = NAN, .run = source->result->id};
    if (!ech__lab_source_steps(facts, source)) {
        out->reason = source->no_steps;
        return ECH_OK;
    }
    out->basis = ech__lab_source_basis(facts, source);
    for (size_t i = 0; i < source->nsteps && !out->known; i++) {
        if (!ech__lab_is_number(ech__json_find(source->steps[i], "step"), &number))
            number = (double)(i + 1);
        if (number == (double)step)
            out->known = ech__lab_is_number(ech__lab_path(source->steps[i], field), &out->at);
    }
    if (!out->known) {
        out->at = NAN;
        out->reason = ech__lab_diverged(facts, source);
    }
    if (!out->known && !out->reason) {
        out->reason = ech__lab_reason(facts, "%s: it has no step %lld with %s", out->run,
                                      (long long)step, field);
    }
    return ech__lab_add_noise(facts, source, field, out);
}
