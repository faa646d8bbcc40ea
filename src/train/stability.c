#include "train/stability.h"
#include "base/file.h"
#include "train/run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ech__baseline {
    int64_t steps;  /* room: those of the run that is compared with it */
    double *losses; /* [steps]; NaN where it has none */
};

enum { MAX_RECORD = 64 << 20 };

/* ---- is it the same training? ---- */

/* The members of run.json's "config" that losses depend on, but for the precision. */
static ech_json *terms_of(const ech__run *run)
{
    const ech__run_config *c = &run->config;
    const ech_train_options *o = &c->train;
    ech_json *json = ech__json_object();
    ech__json_set_string(&json, "model", ech__model_name(c->model.kind));
    if (c->model.kind == ECH__MODEL_LINEAR) {
        ech__json_set_int(&json, "dim", c->model.dim);
        ech__json_set_int(&json, "depth", c->model.depth);
    }
    ech__json_set_string(&json, "data", c->data ? c->data : "synthetic");
    ech__json_set_int(&json, "limit", c->limit);
    ech__json_set_int(&json, "global_batch", run->feed.global);
    ech__json_set_string(&json, "optimizer", ech__optimizer_name(o->optimizer));
    ech__json_set_real(&json, "lr", o->lr);
    ech__json_set_string(&json, "lr_schedule", ech__schedule_name(c->schedule.kind));
    ech__json_set_real(&json, "momentum", o->momentum);
    ech__json_set_real(&json, "weight_decay", o->weight_decay);
    ech__json_set_string(&json, "amp", "off");
    return json;
}

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
        status = ech__fail(ctx, ECH_E_INVALID, "it is a run with amp %s; an f32 run is needed",
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
    ech_json *ours = terms_of(run);
    ech_status status = ECH_OK;
    for (ech__json_iter it = ech__json_begin(ours); it.key && status == ECH_OK; ech__json_next(&it))
        status = same_member(ctx, it.key, ech__json_find(config, it.key), it.value);
    ech__json_destroy(ours);
    return status;
}

/* ---- its losses ---- */

static void take_line(ech__baseline *b, const char *line, size_t bytes)
{
    ech_json *json;
    int64_t step;
    double loss;
    if (ech__json_parse(NULL, "a line", line, bytes, &json) < 0)
        return; /* the last one of a run that was killed */
    if (ech__json_int(ech__json_find(json, "step"), &step) && step >= 1 && step <= b->steps &&
        ech__json_real(ech__json_find(json, "loss"), &loss))
        b->losses[step - 1] = loss;
    ech__json_destroy(json);
}

static ech_status read_losses(ech_ctx *ctx, const char *path, ech__baseline *b)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    if (!file)
        return ech__fail(ctx, ECH_E_IO, "%s cannot be read: %s", path, strerror(errno));
    for (ssize_t bytes; (bytes = getline(&line, &room, file)) > 0;)
        take_line(b, line, (size_t)bytes);
    const bool good = !ferror(file);
    free(line);
    fclose(file);
    for (int64_t i = 0; good && i < b->steps; i++) {
        if (!isnan(b->losses[i]))
            return ECH_OK;
    }
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
    return read_losses(run->ctx, path, b);
}

ech_status ech__baseline_open(const ech__run *run, const char *dir, ech__baseline **out)
{
    *out = NULL;
    const int64_t steps = run->config.steps;
    ech__baseline *b = ech__new(run->ctx, sizeof *b);
    if (b)
        b->losses = ech__new(run->ctx, (size_t)steps * sizeof *b->losses);
    if (!b || !b->losses) {
        ech__baseline_close(run->ctx, b);
        return ech__fail(run->ctx, ECH_E_NOMEM, "no memory for the losses of %lld steps",
                         (long long)steps);
    }
    b->steps = steps;
    for (int64_t i = 0; i < steps; i++)
        b->losses[i] = (double)NAN;
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
    ech__delete(ctx, b->losses, (size_t)b->steps * sizeof *b->losses);
    ech__delete(ctx, b, sizeof *b);
}

/* ---- figures ---- */

bool ech__run_is_watched(const ech__run *run)
{
    return run->config.train.amp != ECH_AMP_OFF || run->trainer->checks || run->config.against;
}

bool ech__step_is_broken(const ech__run_step *step)
{
    const ech_step *r = &step->result;
    return r->skipped || !isfinite(r->loss) || !isfinite(r->grad_norm);
}

static void compare(const ech__run *run, const ech__baseline *b, ech__stability *out)
{
    for (int64_t i = run->first; b && i < run->done; i++) {
        const double ours = run->steps[i].result.loss, theirs = b->losses[i];
        const double apart = fabs(ours - theirs) / fabs(theirs);
        if (isnan(theirs))
            continue;
        out->compared++;
        out->final = apart;
        if (!(apart <= out->worst)) { /* also where ours is not a number */
            out->worst = apart;
            out->worst_step = i + 1;
        }
    }
}

ech__stability ech__stability_of(const ech__run *run, const ech__baseline *baseline)
{
    ech__stability s = {.skipped = run->trainer->scaler.skipped};
    for (int64_t i = run->first; i < run->done; i++) {
        const ech__run_step *step = &run->steps[i];
        const double scale = step->result.scale;
        s.least = i == run->first || scale < s.least ? scale : s.least;
        s.most = scale > s.most ? scale : s.most;
        s.broken += ech__step_is_broken(step);
        if (!ech__step_is_broken(step))
            s.largest = fmax(s.largest, step->result.grad_max);
    }
    compare(run, baseline, &s);
    return s;
}

/* [[step, scale], ...]: the first step, and each whose scale is another than that of the step before. */
static ech_json *history_json(const ech__run *run)
{
    ech_json *array = ech__json_array();
    for (int64_t i = run->first; i < run->done; i++) {
        const double scale = run->steps[i].result.scale;
        if (i > run->first && scale == run->steps[i - 1].result.scale)
            continue;
        ech_json *entry = ech__json_array();
        ech__json_append_int(&entry, i + 1);
        ech__json_append_real(&entry, scale);
        ech__json_append(&array, entry);
    }
    return array;
}

static ech_json *events_json(const ech__run *run)
{
    ech_json *array = ech__json_array();
    for (int64_t i = run->first; i < run->done; i++) {
        if (ech__step_is_broken(&run->steps[i]))
            ech__json_append_int(&array, i + 1);
    }
    return array;
}

static ech_json *against_json(const ech__run *run, const ech__stability *s)
{
    ech_json *json = ech__json_object();
    ech__json_set_string(&json, "run", run->config.against);
    ech__json_set_int(&json, "steps", s->compared);
    ech__json_set_real(&json, "largest", s->worst);
    ech__json_set_int(&json, "largest_at_step", s->worst_step);
    ech__json_set_real(&json, "final", s->final);
    return json;
}

ech_json *ech__stability_json(const ech__run *run, const ech__baseline *baseline)
{
    const ech__stability s = ech__stability_of(run, baseline);
    ech_json *json = ech__json_object();
    ech__json_set_int(&json, "skipped_steps", s.skipped);
    ech__json_set(&json, "scale_history", history_json(run));
    if (run->trainer->checks)
        ech__json_set_real(&json, "largest_gradient", s.largest);
    ech__json_set_int(&json, "nonfinite_steps", s.broken);
    ech__json_set(&json, "nonfinite_events", events_json(run));
    if (baseline)
        ech__json_set(&json, "loss_against_f32", against_json(run, &s));
    return json;
}
