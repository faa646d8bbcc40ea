#include "train/record/stability.h"
#include "base/file/file.h"
#include "train/record/step_lines.h"
#include "train/run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a line of steps.jsonl says. There are not more of them than its rule of thinning leaves. */
typedef struct known_loss {
    int64_t step;
    double loss;
} known_loss;

struct ech__baseline {
    known_loss *losses; /* [count], steps ascending */
    size_t count, capacity;
    size_t next; /* the first that was not asked for yet */
};

enum { MAX_RECORD = 64 << 20 };

/* ---- is it the same training? ---- */

/* The members of run.json's "config" that losses depend on; it must be without mixed precision. */
static const char *const compared[] = {"model",       "dim",          "depth",        "data",
                                       "limit",       "global_batch", "optimizer",    "lr",
                                       "lr_schedule", "momentum",     "weight_decay", "amp"};

static char *text_of(const ech_json *value)
{
    char *text = NULL;
    return value && ech__json_dump(NULL, value, ECH_JSON_LINE, &text, NULL) == ECH_OK ? text : NULL;
}

static ech_status same_member(ech_ctx *ctx, const char *key, const ech_json *theirs,
                              const ech_json *ours)
{
    char *a = text_of(theirs), *b = text_of(ours);
    const bool same = a && b && !strcmp(a, b);
    ech_status status = ECH_OK;
    if (!same && !strcmp(key, "amp"))
        status = ech__fail(ctx, ECH_E_INVALID, "it ran with amp %s; an f32 run is needed",
                           a ? a : "unknown");
    else if (!same)
        status = ech__fail(ctx, ECH_E_INVALID,
                           "it has %s %s and this run has %s: losses of another training say "
                           "nothing about this one",
                           key, a ? a : "unknown", b ? b : "unknown");
    free(a);
    free(b);
    return status;
}

static ech_status same_training(const ech__run *run, const ech_json *doc)
{
    ech_ctx *ctx = run->ctx;
    const ech_json *config;
    int64_t seed;
    ECH_TRY(ech__json_get_int(ctx, doc, "seed", &seed));
    ECH_TRY(ech__json_get_object(ctx, doc, "config", &config));
    if (seed != (int64_t)run->config.train.seed)
        return ech__fail(ctx, ECH_E_INVALID,
                         "it has seed %lld and this run has %lld: losses of another training say "
                         "nothing about this one",
                         (long long)seed, (long long)run->config.train.seed);
    ech_json *ours = ech__json_object();
    ech__run_config c = run->config;
    ech_status status = ECH_OK;
    c.global_batch = run->feed.global;
    c.train.amp.type = ECH_AMP_OFF;
    ech__options_record(&c, &ours);
    for (size_t i = 0; i < sizeof compared / sizeof *compared && status == ECH_OK; i++) {
        const ech_json *value = ech__json_find(ours, compared[i]);
        if (value)
            status = same_member(ctx, compared[i], ech__json_find(config, compared[i]), value);
    }
    ech__json_destroy(ours);
    return status;
}

/* ---- its losses ---- */

/* Where a step comes again, the later line counts, and the run went on from there. */
static bool keep_loss(ech__baseline *b, int64_t step, double loss)
{
    while (b->count && b->losses[b->count - 1].step >= step)
        b->count--;
    if (b->count == b->capacity) {
        const size_t capacity = b->capacity ? 2 * b->capacity : 1024;
        known_loss *larger = realloc(b->losses, capacity * sizeof *larger);
        if (!larger)
            return false;
        b->losses = larger;
        b->capacity = capacity;
    }
    b->losses[b->count++] = (known_loss){step, loss};
    return true;
}

/* Whether there was memory for it. */
static bool take_line(ech__baseline *b, int64_t steps, const char *line, size_t bytes)
{
    ech_json *json;
    int64_t step;
    double loss;
    bool kept = true;
    if (ech__json_parse(NULL, "a line", line, bytes, &json) < 0)
        return true; /* the last one of a run that was killed */
    if (ech__json_int(ech__json_find(json, "step"), &step) && step >= 1 && step <= steps &&
        (ech__step_has_line(step) || step == steps) &&
        ech__json_real(ech__json_find(json, "loss"), &loss))
        kept = keep_loss(b, step, loss);
    ech__json_destroy(json);
    return kept;
}

static ech_status read_losses(ech_ctx *ctx, const char *path, int64_t steps, ech__baseline *b)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t capacity = 0;
    bool kept = true;
    if (!file)
        return ech__fail(ctx, ECH_E_IO, "%s cannot be read: %s", path, strerror(errno));
    for (ssize_t bytes; kept && (bytes = getline(&line, &capacity, file)) > 0;)
        kept = take_line(b, steps, line, (size_t)bytes);
    const bool good = !ferror(file);
    free(line);
    fclose(file);
    if (!kept)
        return ech__no_memory(ctx, "the losses of %s", path);
    if (good && b->count)
        return ECH_OK;
    return ech__fail(ctx, ECH_E_FORMAT, "%s has no loss of a step of this run", path);
}

static ech_status read_all(const ech__run *run, const char *dir, ech__baseline *b)
{
    char path[4096];
    ech_json *doc;
    if (snprintf(path, sizeof path, "%s/run.json", dir) >= (int)sizeof path - 8)
        return ech__fail(run->ctx, ECH_E_INVALID, "the path of the f32 run is too long");
    ECH_TRY(ech__json_load(run->ctx, path, MAX_RECORD, &doc));
    ech_status status = same_training(run, doc);
    ech__json_destroy(doc);
    if (status < 0)
        return ech__fail_in(run->ctx, status, "%s", path);
    snprintf(path, sizeof path, "%s/steps.jsonl", dir);
    return read_losses(run->ctx, path, run->config.steps, b);
}

ech_status ech__baseline_open(const ech__run *run, const char *dir, ech__baseline **out)
{
    *out = NULL;
    ech__baseline *b = ech__new(run->ctx, sizeof *b);
    if (!b)
        return ech__no_memory(run->ctx, "the losses of %s", dir);
    const ech_status status = read_all(run, dir, b);
    if (status < 0) {
        ech__baseline_close(run->ctx, b);
        return status;
    }
    *out = b;
    return ECH_OK;
}

void ech__baseline_close(ech_ctx *ctx, ech__baseline *b)
{
    if (!b)
        return;
    free(b->losses);
    ech__delete(ctx, b, sizeof *b);
}

/* Of a step after those that were asked for before; NaN where it has none. */
static double loss_of(ech__baseline *b, int64_t step)
{
    while (b->next < b->count && b->losses[b->next].step < step)
        b->next++;
    return b->next < b->count && b->losses[b->next].step == step ? b->losses[b->next].loss
                                                                 : (double)NAN;
}

/* ---- figures ---- */

bool ech__run_is_watched(const ech__run *run)
{
    return run->config.train.amp.type != ECH_AMP_OFF || run->trainer->checks || run->config.against;
}

/* Whether its gradient or loss was not finite. */
static bool is_broken(const ech__run_step *step)
{
    const ech_step *r = &step->result;
    return r->skipped || !isfinite(r->loss) || !isfinite(r->grad_norm);
}

ech_status ech__stability_init(ech__stability *s, ech_ctx *ctx, ech__arena *arena)
{
    s->events = ech__arena_array(arena, ECH__STABILITY_EVENTS, sizeof *s->events);
    s->changes = ech__arena_array(arena, ECH__STABILITY_EVENTS, sizeof *s->changes);
    return s->events && s->changes ? ECH_OK
                                   : ech__no_memory(ctx, "%d events", ECH__STABILITY_EVENTS);
}

static void compare(ech__stability *s, ech__baseline *b, const ech__run_step *step)
{
    const double theirs = loss_of(b, step->step);
    const double apart = fabs(step->result.loss - theirs) / fabs(theirs);
    if (isnan(theirs))
        return;
    s->compared++;
    s->final = apart;
    if (!(apart <= s->worst)) { /* also where ours is not a number */
        s->worst = apart;
        s->worst_step = step->step;
    }
}

void ech__stability_add(ech__stability *s, ech__baseline *baseline, const ech__run_step *step)
{
    const double scale = step->result.scale;
    s->least = !s->steps || scale < s->least ? scale : s->least;
    s->most = scale > s->most ? scale : s->most;
    if (!s->steps || scale != s->scale) {
        if (s->nchanges < ECH__STABILITY_EVENTS)
            s->changes[s->nchanges] = (ech__scale_change){step->step, scale};
        s->nchanges++;
    }
    s->scale = scale;
    s->steps++;
    if (!is_broken(step)) {
        s->largest = fmax(s->largest, step->result.grad_max);
    } else {
        if (s->broken < ECH__STABILITY_EVENTS)
            s->events[s->broken] = step->step;
        s->broken++;
    }
    if (baseline)
        compare(s, baseline, step);
}

static int64_t listed(int64_t count)
{
    return count < ECH__STABILITY_EVENTS ? count : ECH__STABILITY_EVENTS;
}

/* [[step, scale], ...]: the first step, and each whose scale is another than that of the step
 * before. */
static ech_json *history_json(const ech__stability *s)
{
    ech_json *array = ech__json_array();
    for (int64_t i = 0; i < listed(s->nchanges); i++) {
        ech_json *entry = ech__json_array();
        ech__json_append_int(&entry, s->changes[i].step);
        ech__json_append_real(&entry, s->changes[i].scale);
        ech__json_append(&array, entry);
    }
    return array;
}

static ech_json *events_json(const ech__stability *s)
{
    ech_json *array = ech__json_array();
    for (int64_t i = 0; i < listed(s->broken); i++)
        ech__json_append_int(&array, s->events[i]);
    return array;
}

static ech_json *against_json(const ech__run *run, const ech__stability *s)
{
    return ECH__JSON(ech__string("run", run->config.against), ech__int("steps", s->compared),
                     ech__real("largest", s->worst), ech__int("largest_at_step", s->worst_step),
                     ech__real("final", s->final));
}

ech_json *ech__stability_json(const ech__run *run)
{
    const ech__stability *s = &run->stability;
    ech_json *json = ECH__JSON(ech__int("skipped_steps", run->trainer->scaler.skipped),
                               ech__member("scale_history", history_json(s)));
    if (s->nchanges > ECH__STABILITY_EVENTS)
        ech__json_set_int(&json, "scale_changes", s->nchanges);
    if (run->trainer->checks)
        ech__json_set_real(&json, "largest_gradient", s->largest);
    ECH__JSON_SET(&json, ech__int("nonfinite_steps", s->broken),
                  ech__member("nonfinite_events", events_json(s)));
    if (run->baseline)
        ech__json_set(&json, "loss_against_f32", against_json(run, s));
    return json;
}
