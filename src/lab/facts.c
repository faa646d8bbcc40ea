#include "lab/facts.h"
#include "base/file/dir.h"
#include "base/file/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RECORD = 64 << 20, MAX_STEPS_BYTES = 128 << 20 };

const char *ech__lab_basis_name(ech__lab_basis basis)
{
    static const char *const names[] = {"measured", "emulated", "predicted"};
    return names[basis];
}

ech_status ech__lab_facts_create(ech_ctx *ctx, const ech__lab_result *results, size_t count,
                                 double noise, ech__lab_facts **out)
{
    *out = NULL;
    if (!(noise >= 0 && noise < 10))
        return ech__fail(ctx, ECH_E_INVALID, "a noise of %g: must be from 0 to 10", noise);
    ech__lab_facts *facts = ech__new(ctx, sizeof *facts);
    if (!facts)
        return ech__no_memory(ctx, "the facts of a study");
    facts->ctx = ctx;
    facts->noise = noise;
    ech__arena_init(&facts->arena, ctx->alloc);
    facts->sources = ech__arena_array(&facts->arena, count ? count : 1, sizeof *facts->sources);
    if (!facts->sources) {
        ech__lab_facts_destroy(facts);
        return ech__no_memory(ctx, "%zu runs", count);
    }
    facts->nsources = count;
    for (size_t i = 0; i < count; i++)
        facts->sources[i].result = &results[i];
    *out = facts;
    return ECH_OK;
}

void ech__lab_facts_destroy(ech__lab_facts *facts)
{
    if (!facts)
        return;
    for (size_t i = 0; i < facts->nsources; i++) {
        ech__lab_source *s = &facts->sources[i];
        ech__json_destroy(s->record);
        for (size_t k = 0; k < s->nsteps; k++)
            ech__json_destroy(s->steps[k]);
    }
    ech__arena_fini(&facts->arena);
    ech__delete(facts->ctx, facts, sizeof *facts);
}

const char *ech__lab_reason(ech__lab_facts *facts, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const char *kept = ech__arena_printf(&facts->arena, "%s", text);
    return kept ? kept : "no memory is left to say why";
}

static bool is_finished(const ech__lab_result *result)
{
    return result->state == ECH__LAB_DONE || result->state == ECH__LAB_REUSED;
}

/* "run n4 failed: out of memory" */
static const char *why_missing(ech__lab_facts *facts, const ech__lab_result *r)
{
    const bool said = r->reason && *r->reason;
    return ech__lab_reason(facts, "run %s %s%s%s", r->id,
                           r->state == ECH__LAB_FAILED ? "failed" : "was skipped", said ? ": " : "",
                           said ? r->reason : "");
}

/* A run of that name that was never asked for, because the run `cause` has no result; NULL where memory is out. */
static ech__lab_source *add_absent(ech__lab_facts *facts, const char *run,
                                   const ech__lab_result *cause)
{
    ech__lab_source *source = ech__arena_alloc(&facts->arena, sizeof *source);
    const char *id = ech__arena_printf(&facts->arena, "%s", run);
    if (!source || !id)
        return NULL;
    *source = (ech__lab_source){.result = cause,
                                .absent = id,
                                .looked = true,
                                .no_record = why_missing(facts, cause),
                                .next = facts->absent};
    facts->absent = source;
    return source;
}

ech__lab_source *ech__lab_source_find(ech__lab_facts *facts, const char *run)
{
    const ech__lab_result *cause = NULL;
    for (size_t i = 0; i < facts->nsources; i++) {
        const ech__lab_result *r = facts->sources[i].result;
        if (!strcmp(r->id, run))
            return &facts->sources[i];
        if (!cause && !is_finished(r))
            cause = r;
    }
    for (ech__lab_source *s = facts->absent; s; s = s->next) {
        if (!strcmp(s->absent, run))
            return s;
    }
    return cause ? add_absent(facts, run, cause) : NULL;
}

/* ---- records ---- */

static void look_for_record(ech__lab_facts *facts, ech__lab_source *s)
{
    const ech__lab_result *r = s->result;
    char path[ECH_DIR_MAX_PATH + 16];
    s->looked = true;
    if (!is_finished(r)) {
        s->no_record = why_missing(facts, r);
        return;
    }
    if (!r->dir) {
        s->no_record = ech__lab_reason(facts, "%s: it left no record", r->id);
        return;
    }
    snprintf(path, sizeof path, "%s/run.json", r->dir);
    if (access(path, F_OK) != 0)
        snprintf(path, sizeof path, "%s/result.json", r->dir);
    if (access(path, F_OK) != 0)
        s->no_record = ech__lab_reason(facts, "%s: it left no record", r->id);
    else if (ech__json_load(facts->ctx, path, MAX_RECORD, &s->record) < 0)
        s->no_record = ech__lab_reason(facts, "%s: its record cannot be read: %s", r->id,
                                       ech_ctx_error(facts->ctx));
}

const ech_json *ech__lab_source_record(ech__lab_facts *facts, ech__lab_source *source)
{
    if (!source->looked)
        look_for_record(facts, source);
    return source->record;
}

const ech_json *ech__lab_record(ech__lab_facts *facts, const char *run)
{
    ech__lab_source *source = ech__lab_source_find(facts, run);
    return source ? ech__lab_source_record(facts, source) : NULL;
}

/* ---- paths ---- */

bool ech__lab_is_number(const ech_json *json, double *out)
{
    bool yes;
    if (json && ech__json_bool(json, &yes)) {
        *out = yes;
        return true;
    }
    return json && ech__json_kind_of(json) != ECH_JSON_NULL && ech__json_real(json, out) &&
           isfinite(*out);
}

static bool equals(const ech_json *value, const char *text, size_t length)
{
    const char *own;
    char *end, copy[64];
    double number;
    bool yes;
    if (!value)
        return false;
    if (ech__json_string(value, &own))
        return strlen(own) == length && !strncmp(own, text, length);
    if (ech__json_bool(value, &yes))
        return length == strlen(yes ? "true" : "false") &&
               !strncmp(text, yes ? "true" : "false", length);
    if (!length || length >= sizeof copy || !ech__lab_is_number(value, &number))
        return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return strtod(copy, &end) == number && !*end;
}

/* Whether an element has KEY=VALUE, or several of them joined by '&'. */
static bool fits(const ech_json *element, const char *text, size_t length)
{
    char key[64];
    for (const char *end = text + length; text < end;) {
        const char *stop = memchr(text, '&', (size_t)(end - text));
        const char *equal = memchr(text, '=', (size_t)(end - text));
        stop = stop ? stop : end;
        if (!equal || equal >= stop || (size_t)(equal - text) >= sizeof key)
            return false;
        snprintf(key, sizeof key, "%.*s", (int)(equal - text), text);
        if (!equals(ech__json_find(element, key), equal + 1, (size_t)(stop - equal - 1)))
            return false;
        text = stop + 1;
    }
    return true;
}

/* The member or element that one component of a path names. */
static const ech_json *component(const ech_json *json, const char *text, size_t length)
{
    char key[128], *end;
    if (!length || length >= sizeof key)
        return NULL;
    snprintf(key, sizeof key, "%.*s", (int)length, text);
    if (ech__json_kind_of(json) == ECH_JSON_OBJECT)
        return ech__json_find(json, key);
    if (ech__json_kind_of(json) != ECH_JSON_ARRAY)
        return NULL;
    if (strspn(key, "0123456789") == length) {
        const unsigned long long index = strtoull(key, &end, 10);
        return index < ech__json_count(json) ? ech__json_at(json, (size_t)index) : NULL;
    }
    for (size_t i = 0; strchr(key, '=') && i < ech__json_count(json); i++) {
        if (fits(ech__json_at(json, i), key, length))
            return ech__json_at(json, i);
    }
    return NULL;
}

/* Names may have dots in them ("name=layers.0"): a component ends at the first dot from which the rest leads on. clock
 * becomes what the innermost object on the way says of how it came about. */
static const ech_json *walk(const ech_json *json, const char *path, const char **clock)
{
    for (const char *end = path; json; end++) {
        end += strcspn(end, ".");
        const ech_json *next = component(json, path, (size_t)(end - path));
        const ech_json *found = next && *end ? walk(next, end + 1, clock) : next;
        if (found) {
            if (clock && !*clock)
                ech__json_string(ech__json_find(json, "clock"), clock);
            return found;
        }
        if (!*end)
            return NULL;
    }
    return NULL;
}

const ech_json *ech__lab_path(const ech_json *record, const char *path)
{
    return record ? walk(record, path, NULL) : NULL;
}

/* ---- how a run came about ---- */

static ech__lab_basis basis_named(const char *clock, ech__lab_basis fallback)
{
    for (int b = ECH__LAB_MEASURED; clock && b <= ECH__LAB_PREDICTED; b++) {
        if (!strcmp(clock, ech__lab_basis_name((ech__lab_basis)b)))
            return (ech__lab_basis)b;
    }
    return fallback;
}

static bool has_word(const char *text, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = text; at && (at = strstr(at, word)) != NULL; at++) {
        if ((at == text || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    }
    return false;
}

ech__lab_basis ech__lab_source_basis(ech__lab_facts *facts, ech__lab_source *source)
{
    const ech_json *record = ech__lab_source_record(facts, source);
    const char *clock = NULL;
    const bool plan = has_word(source->result->command, "plan");
    if (!ech__json_string(ech__lab_path(record, "summary.clock"), &clock))
        ech__json_string(ech__json_find(record, "clock"), &clock);
    return basis_named(clock, plan ? ECH__LAB_PREDICTED : ECH__LAB_MEASURED);
}

ech__lab_basis ech__lab_basis_of(ech__lab_facts *facts, const char *run)
{
    ech__lab_source *source = ech__lab_source_find(facts, run);
    return source ? ech__lab_source_basis(facts, source) : ECH__LAB_MEASURED;
}

const char *ech__lab_diverged(ech__lab_facts *facts, ech__lab_source *source)
{
    const ech_json *record = ech__lab_source_record(facts, source);
    double step;
    return ech__lab_is_number(ech__lab_path(record, "summary.diverged.step"), &step)
               ? ech__lab_reason(facts, "%s: it diverged at step %.0f", source->result->id, step)
               : NULL;
}

ech_status ech__lab_number(ech__lab_facts *facts, ech__lab_source *source, const char *path,
                           ech__lab_value *out)
{
    const ech_json *record = ech__lab_source_record(facts, source);
    *out = (ech__lab_value){.at = NAN, .run = source->result->id, .reason = source->no_record};
    if (!record)
        return ECH_OK;
    const char *clock = NULL;
    const ech_json *found = walk(record, path, &clock);
    out->basis = basis_named(clock, ech__lab_source_basis(facts, source));
    out->known = ech__lab_is_number(found, &out->at);
    if (!out->known) {
        out->at = NAN;
        out->reason = ech__lab_diverged(facts, source);
        if (!out->reason)
            out->reason = ech__lab_reason(facts, "%s: its record has no number %s", out->run, path);
        return ECH_OK;
    }
    return ech__lab_add_noise(facts, source, path, out);
}

/* ---- steps ---- */

static ech_status add_step(ech__lab_facts *facts, ech__lab_source *s, const char *what,
                           const char *line, size_t bytes)
{
    if (!ech__arena_grow(&facts->arena, (void **)&s->steps, s->nsteps, &s->capacity,
                         sizeof(void *)))
        return ech__no_memory(facts->ctx, "%zu steps", s->nsteps);
    ECH_TRY(ech__json_parse(facts->ctx, what, line, bytes, &s->steps[s->nsteps]));
    s->nsteps++;
    return ECH_OK;
}

/* A last line without its end is one that the run did not finish writing. */
static ech_status read_steps(ech__lab_facts *facts, ech__lab_source *s, const char *path)
{
    char *text, what[32];
    size_t bytes;
    ECH_TRY(ech__file_read(facts->ctx, path, MAX_STEPS_BYTES, &text, &bytes));
    ech_status status = ECH_OK;
    for (const char *line = text; status == ECH_OK && line < text + bytes;) {
        const char *stop = memchr(line, '\n', (size_t)(text + bytes - line));
        if (!stop)
            break;
        snprintf(what, sizeof what, "line %zu", s->nsteps + 1);
        status = add_step(facts, s, what, line, (size_t)(stop - line));
        line = stop + 1;
    }
    free(text);
    return status;
}

/* Steps are numbered from 1, and from where it was resumed in a run that was. */
static void find_first(ech__lab_source *s)
{
    double warmup = 0, number;
    if (!ech__lab_is_number(ech__lab_path(s->record, "config.warmup"), &warmup))
        warmup = 0;
    while (s->first < s->nsteps) {
        if (!ech__lab_is_number(ech__json_find(s->steps[s->first], "step"), &number))
            number = (double)(s->first + 1);
        if (number > warmup)
            return;
        s->first++;
    }
}

bool ech__lab_source_steps(ech__lab_facts *facts, ech__lab_source *source)
{
    char path[ECH_DIR_MAX_PATH + 16];
    if (source->stepped)
        return !source->no_steps;
    source->stepped = true;
    if (!ech__lab_source_record(facts, source)) {
        source->no_steps = source->no_record;
        return false;
    }
    const char *id = source->result->id;
    snprintf(path, sizeof path, "%s/steps.jsonl", source->result->dir);
    if (access(path, F_OK) != 0)
        source->no_steps = ech__lab_reason(facts, "%s: it left no steps", id);
    else if (read_steps(facts, source, path) < 0)
        source->no_steps = ech__lab_reason(facts, "%s: its steps cannot be read: %s", id,
                                           ech_ctx_error(facts->ctx));
    find_first(source);
    return !source->no_steps;
}

bool ech__lab_has_steps(ech__lab_facts *facts, const char *run, const char *x, const char *y)
{
    ech__lab_source *s = ech__lab_source_find(facts, run);
    double number;
    if (!s || !ech__lab_source_steps(facts, s) || !s->nsteps)
        return false;
    for (size_t i = 0; i < s->nsteps; i++) {
        if (!ech__lab_is_number(ech__json_find(s->steps[i], x), &number) ||
            !ech__json_real(ech__json_find(s->steps[i], y), &number))
            return false;
    }
    return true;
}

bool ech__lab_has_epochs(ech__lab_facts *facts, const char *run, const char *y)
{
    const ech_json *epochs = ech__lab_path(ech__lab_record(facts, run), "summary.epochs");
    const size_t count = epochs ? ech__json_count(epochs) : 0;
    double number;
    for (size_t i = 0; i < count; i++) {
        if (!ech__json_real(ech__json_find(ech__json_at(epochs, i), y), &number))
            return false;
    }
    return count > 0;
}
