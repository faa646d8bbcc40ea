#include "train/checkpoint/state.h"
#include "train/checkpoint/dir.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_STEPS = 1000000000 };

/* ---- out ---- */

static ech_json *position_json(const ech__checkpoint_state *s)
{
    return ECH__JSON(ech__int("step", s->step), ech__int("epoch", s->epoch),
                     ech__int("epoch_step", s->epoch_step), ech__int("updates", s->updates));
}

static ech_json *scaler_json(const ech__scaler *s)
{
    return ECH__JSON(ech__real("scale", s->scale), ech__int("good", s->good),
                     ech__int("skipped", s->skipped), ech__int("stuck", s->stuck));
}

static ech_json *losses_json(const ech__checkpoint_state *s)
{
    return ECH__JSON(ech__real("first", s->first_loss), ech__real("last", s->last_loss));
}

static ech_json *sums_json(const ech__epoch_sums *sums)
{
    return ECH__JSON(ech__int("samples", sums->samples), ech__real("loss", sums->loss),
                     ech__real("correct", sums->correct), ech__real("time_s", sums->time_s),
                     ech__real("compute_s", sums->compute_s), ech__real("data_s", sums->data_s));
}

static ech_json *drift_json(const ech__drift *d)
{
    return ECH__JSON(ech__int("ranks", d->ranks), ech__real("mean_largest", d->mean_largest),
                     ech__real("mean_rms", d->mean_rms),
                     ech__real("variance_largest", d->variance_largest),
                     ech__real("variance_rms", d->variance_rms));
}

static ech_json *epoch_json(const ech__run_epoch *e)
{
    ech_json *json = ECH__JSON(
        ech__real("time_s", e->time_s), ech__real("compute_s", e->compute_s),
        ech__real("data_s", e->data_s), ech__real("evaluation_s", e->evaluation_s),
        ech__int("samples", e->samples), ech__real("loss", e->loss),
        ech__real("train_accuracy", e->train_accuracy), ech__int("test_samples", e->test.samples),
        ech__real("test_loss", e->test.loss), ech__real("test_accuracy", e->test.accuracy));
    if (e->drift.ranks)
        ech__json_set(&json, "drift", drift_json(&e->drift));
    return json;
}

static ech_json *epochs_json(const ech__checkpoint_state *s)
{
    ech_json *array = ech__json_array();
    for (size_t i = 0; i < s->nepochs; i++)
        ech__json_append(&array, epoch_json(&s->epochs[i]));
    return array;
}

/* A second object with the same members; they are numbers, texts, true or false. */
static ech_json *copy_config(const ech_json *config)
{
    ech_json *json = ech__json_object();
    for (ech__json_iter it = ech__json_begin(config); it.key; ech__json_next(&it)) {
        int64_t whole;
        double real;
        bool truth;
        const char *text;
        if (ech__json_int(it.value, &whole))
            ech__json_set_int(&json, it.key, whole);
        else if (ech__json_bool(it.value, &truth))
            ech__json_set_bool(&json, it.key, truth);
        else if (ech__json_string(it.value, &text))
            ech__json_set_string(&json, it.key, text);
        else if (ech__json_real(it.value, &real))
            ech__json_set_real(&json, it.key, real);
    }
    return json;
}

ech_json *ech__checkpoint_state_json(const ech__checkpoint_state *s, ech_json *choices)
{
    ech_json *json = ECH__JSON(
        ech__int("format", ECH__CHECKPOINT_FORMAT), ech__string("version", ech_version()),
        ech__member("config", copy_config(s->config)), ech__member("position", position_json(s)));
    if (s->scaler.on)
        ech__json_set(&json, "scaler", scaler_json(&s->scaler));
    return ECH__JSON_SET(&json, ech__member("losses", losses_json(s)),
                         ech__member("now", sums_json(&s->now)),
                         ech__member("epochs", epochs_json(s)), ech__member("choices", choices));
}

/* ---- in ---- */

static ech_status get_count(ech_ctx *ctx, const ech_json *object, const char *key, int64_t *out)
{
    ECH_TRY(ech__json_get_int(ctx, object, key, out));
    if (*out < 0 || *out > MAX_STEPS)
        return ech__fail(ctx, ECH_E_FORMAT, "\"%s\" is %lld: must be from 0 to %d", key,
                         (long long)*out, MAX_STEPS);
    return ECH_OK;
}

static ech_status parse_position(ech_ctx *ctx, const ech_json *json, ech__checkpoint_state *out)
{
    ECH_TRY(get_count(ctx, json, "step", &out->step));
    ECH_TRY(get_count(ctx, json, "epoch", &out->epoch));
    ECH_TRY(get_count(ctx, json, "epoch_step", &out->epoch_step));
    out->updates = out->step; /* as before there was scaling */
    if (ech__json_find(json, "updates"))
        ECH_TRY(get_count(ctx, json, "updates", &out->updates));
    if (out->step < 1 || out->epoch_step > out->step || out->epoch > out->step)
        return ech__fail(
            ctx, ECH_E_FORMAT,
            "%lld steps, %lld epochs and %lld steps of the next epoch are inconsistent",
            (long long)out->step, (long long)out->epoch, (long long)out->epoch_step);
    if (out->updates > out->step)
        return ech__fail(ctx, ECH_E_FORMAT,
                         "%lld updates in %lld steps: there can be at most one per step",
                         (long long)out->updates, (long long)out->step);
    return ECH_OK;
}

/* Missing if the loss is not scaled. */
static ech_status parse_scaler(ech_ctx *ctx, const ech_json *doc, ech__scaler *out)
{
    const ech_json *json;
    *out = ech__scaler_start(0);
    if (!ech__json_find(doc, "scaler"))
        return ECH_OK;
    ECH_TRY(ech__json_get_object(ctx, doc, "scaler", &json));
    ECH_TRY(ech__json_get_real(ctx, json, "scale", &out->scale));
    ECH_TRY(get_count(ctx, json, "good", &out->good));
    ECH_TRY(get_count(ctx, json, "skipped", &out->skipped));
    ECH_TRY(get_count(ctx, json, "stuck", &out->stuck));
    out->on = true;
    return ech__scaler_is_sound(out)
               ? ECH_OK
               : ech__fail(ctx, ECH_E_FORMAT,
                           "a loss scale of %g after %lld good steps and %lld that were skipped "
                           "with the least scale: no scaler comes to that",
                           out->scale, (long long)out->good, (long long)out->stuck);
}

static ech_status parse_sums(ech_ctx *ctx, const ech_json *json, ech__epoch_sums *out)
{
    ECH_TRY(ech__json_get_int(ctx, json, "samples", &out->samples));
    ECH_TRY(ech__json_get_real(ctx, json, "loss", &out->loss));
    ECH_TRY(ech__json_get_real(ctx, json, "correct", &out->correct));
    ECH_TRY(ech__json_get_real(ctx, json, "time_s", &out->time_s));
    ECH_TRY(ech__json_get_real(ctx, json, "compute_s", &out->compute_s));
    if (ech__json_find(json, "data_s"))
        ECH_TRY(ech__json_get_real(ctx, json, "data_s", &out->data_s));
    return out->samples >= 0
               ? ECH_OK
               : ech__fail(ctx, ECH_E_FORMAT, "an epoch cannot have %lld samples so far",
                           (long long)out->samples);
}

static ech_status parse_drift(ech_ctx *ctx, const ech_json *json, ech__drift *out)
{
    int64_t ranks;
    ECH_TRY(get_count(ctx, json, "ranks", &ranks));
    out->ranks = (int)ranks;
    ECH_TRY(ech__json_get_real(ctx, json, "mean_largest", &out->mean_largest));
    ECH_TRY(ech__json_get_real(ctx, json, "mean_rms", &out->mean_rms));
    ECH_TRY(ech__json_get_real(ctx, json, "variance_largest", &out->variance_largest));
    return ech__json_get_real(ctx, json, "variance_rms", &out->variance_rms);
}

static ech_status parse_epoch(ech_ctx *ctx, const ech_json *json, ech__run_epoch *out)
{
    const ech_json *drift = ech__json_find(json, "drift");
    ECH_TRY(ech__json_get_real(ctx, json, "time_s", &out->time_s));
    ECH_TRY(ech__json_get_real(ctx, json, "compute_s", &out->compute_s));
    if (ech__json_find(json, "data_s")) { /* older checkpoints have none of these */
        ECH_TRY(ech__json_get_real(ctx, json, "data_s", &out->data_s));
        ECH_TRY(ech__json_get_real(ctx, json, "evaluation_s", &out->evaluation_s));
        ECH_TRY(get_count(ctx, json, "samples", &out->samples));
    }
    if (drift)
        ECH_TRY(parse_drift(ctx, drift, &out->drift));
    ECH_TRY(ech__json_get_real(ctx, json, "loss", &out->loss));
    ECH_TRY(ech__json_get_real(ctx, json, "train_accuracy", &out->train_accuracy));
    ECH_TRY(get_count(ctx, json, "test_samples", &out->test.samples));
    ECH_TRY(ech__json_get_real(ctx, json, "test_loss", &out->test.loss));
    return ech__json_get_real(ctx, json, "test_accuracy", &out->test.accuracy);
}

static ech_status parse_epochs(ech_ctx *ctx, const ech_json *array, ech__checkpoint_state *out)
{
    const size_t count = ech__json_count(array);
    if (count > (size_t)out->epoch)
        return ech__fail(ctx, ECH_E_FORMAT, "\"epochs\" has %zu records; %lld epochs are done",
                         count, (long long)out->epoch);
    ech__run_epoch *epochs = ech__arena_array(&out->arena, count + 1, sizeof *epochs);
    if (!epochs)
        return ech__no_memory(ctx, "the records of %zu epochs", count);
    for (size_t i = 0; i < count; i++) {
        ECH_TRY(parse_epoch(ctx, ech__json_at(array, i), &epochs[i]));
        epochs[i].epoch = (int64_t)i + 1;
    }
    out->epochs = epochs;
    out->nepochs = count;
    return ECH_OK;
}

static ech_status check_format(ech_ctx *ctx, const ech_json *doc)
{
    int64_t format;
    const char *version;
    ECH_TRY(ech__json_get_int(ctx, doc, "format", &format));
    ECH_TRY(ech__json_get_string(ctx, doc, "version", &version));
    if (format != ECH__CHECKPOINT_FORMAT)
        return ech__fail(ctx, ECH_E_FORMAT,
                         "the format is %lld, written by Echelon %.20s; this program reads %d",
                         (long long)format, version, ECH__CHECKPOINT_FORMAT);
    return ECH_OK;
}

static ech_status parse(ech_ctx *ctx, const ech_json *doc, ech__checkpoint_state *out)
{
    const ech_json *position, *losses, *now, *epochs, *choices, *config;
    ECH_TRY(check_format(ctx, doc));
    ECH_TRY(ech__json_get_object(ctx, doc, "config", &config));
    ECH_TRY(ech__json_get_object(ctx, doc, "position", &position));
    ECH_TRY(ech__json_get_object(ctx, doc, "losses", &losses));
    ECH_TRY(ech__json_get_object(ctx, doc, "now", &now));
    ECH_TRY(ech__json_get_array(ctx, doc, "epochs", &epochs));
    ECH_TRY(ech__json_get_object(ctx, doc, "choices", &choices));
    ECH_TRY(parse_position(ctx, position, out));
    ECH_TRY(parse_scaler(ctx, doc, &out->scaler));
    ECH_TRY(ech__json_get_real(ctx, losses, "first", &out->first_loss));
    ECH_TRY(ech__json_get_real(ctx, losses, "last", &out->last_loss));
    ECH_TRY(parse_sums(ctx, now, &out->now));
    ECH_TRY(parse_epochs(ctx, epochs, out));
    out->config = copy_config(config);
    return ech__choices_parse(ctx, choices, &out->arena, &out->choices);
}

ech_status ech__checkpoint_state_parse(ech_ctx *ctx, const char *what, const char *text,
                                       size_t bytes, ech__checkpoint_state *out)
{
    ech_json *doc;
    *out = (ech__checkpoint_state){.step = 0};
    ech__arena_init(&out->arena, ctx->alloc);
    ECH_TRY(ech__json_parse(ctx, what, text, bytes, &doc));
    const ech_status status = parse(ctx, doc, out);
    ech__json_destroy(doc);
    return status < 0 ? ech__fail_in(ctx, status, "%s", what) : ECH_OK;
}

void ech__checkpoint_state_fini(ech__checkpoint_state *state)
{
    ech__json_destroy(state->config);
    ech__arena_fini(&state->arena);
    *state = (ech__checkpoint_state){.step = 0};
}

/* ---- agreement ---- */

typedef struct value_text {
    char s[128];
} value_text;

/* As JSON has it, but texts without their quotes. */
static value_text text_of(const ech_json *value)
{
    value_text out = {"?"};
    const char *string;
    char *text;
    if (ech__json_string(value, &string)) {
        snprintf(out.s, sizeof out.s, "%s", string);
    } else if (ech__json_dump(NULL, value, ECH_JSON_LINE, &text, NULL) == ECH_OK) {
        snprintf(out.s, sizeof out.s, "%s", text);
        free(text);
    }
    return out;
}

/* Options that older checkpoints do not have: what they were made with. */
static const char *default_before(const char *option)
{
    static const struct {
        const char *option, *value;
    } later[] = {{"amp", "off"},
                 {"grad-dtype", "f32"},
                 {"clip-norm", "off"},
                 {"loss-scale", "off"},
                 {"no-broadcast-buffers", "false"},
                 {"lr-scale-base", "0"},
                 {"lr-warmup-epochs", "0.0"}};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        if (!strcmp(option, later[i].option))
            return later[i].value;
    }
    return "nothing";
}

ech_status ech__checkpoint_state_agree(ech_ctx *ctx, const ech__checkpoint_state *state,
                                       const ech_json *config)
{
    for (ech__json_iter it = ech__json_begin(config); it.key; ech__json_next(&it)) {
        const ech_json *saved = ech__json_find(state->config, it.key);
        const bool pixels = !strcmp(it.key, ECH__CHECKPOINT_PIXELS);
        const value_text ours = text_of(it.value);
        value_text theirs;
        if (saved)
            theirs = text_of(saved);
        else
            snprintf(theirs.s, sizeof theirs.s, "%s", default_before(it.key));
        if (!strcmp(theirs.s, ours.s) || (pixels && !saved))
            continue;
        if (pixels)
            return ech__fail(
                ctx, ECH_E_INVALID,
                "its images have the SHA-256 %.12s...; those of this run have %.12s...", theirs.s,
                ours.s);
        if (!strcmp(it.key, "model"))
            return ech__fail(ctx, ECH_E_INVALID, "it is a checkpoint of %s; this run trains %s",
                             theirs.s, ours.s);
        return ech__fail(ctx, ECH_E_INVALID, "it was made with --%s %s; this run has %s", it.key,
                         theirs.s, ours.s);
    }
    return ECH_OK;
}
