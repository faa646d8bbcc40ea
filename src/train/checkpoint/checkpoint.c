#include "train/checkpoint/checkpoint.h"
#include "base/file/file.h"
#include "base/system/clock.h"
#include "device/device.h"
#include "train/checkpoint/buffers.h"
#include "train/step/params.h"
#include "train/strategy/strategy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STATE = 64 << 20 };

/* ---- the options that must agree ---- */

static ech_json *config_json(const ech__run *run, ech__terms terms)
{
    ech__run_config c = run->config;
    ech_json *json = ech__json_object();
    char data[128];
    const bool named = !c.data || !strcmp(c.data, "cifar10");
    snprintf(data, sizeof data, "%s%s%.16s", named ? (c.data ? c.data : "synthetic") : "file",
             run->feed.sha256[0] ? " sha256:" : "", run->feed.sha256);
    c.data = data;
    c.train.batch = run->feed.batch;
    c.global_batch = run->feed.global;
    c.devices = run->world;
    c.train.threads = c.train.threads ? c.train.threads : ech__device_cores();
    if (run->world == 1)
        c.train.ddp.broadcast_buffers = true; /* one rank has none of its own */
    ech__options_terms(&c, run->world, terms, &json);
    if (run->feed.pixels_sha256[0])
        ech__json_set_string(&json, ECH__CHECKPOINT_PIXELS, run->feed.pixels_sha256);
    return json;
}

ech_status ech__run_terms(const ech__run *run, char **out)
{
    ech_json *json = config_json(run, ECH__TERMS_RANKS);
    size_t bytes;
    *out = NULL;
    FILE *text = open_memstream(out, &bytes);
    if (text)
        ech__options_print(run->ctx, json, "--", text);
    ech__json_destroy(json);
    if (text && fclose(text) == 0)
        return ECH_OK;
    free(*out);
    *out = NULL;
    return ech__no_memory(run->ctx, "the comparison of ranks");
}

/* ---- going on ---- */

static ech_status read_state(ech__checkpoint *c)
{
    char path[ECH_DIR_MAX_PATH], *text;
    size_t bytes;
    ECH_TRY(ech__checkpoint_file_path(c->ctx, c->path, ECH__CHECKPOINT_STATE, path));
    ECH_TRY(ech__file_read(c->ctx, path, MAX_STATE, &text, &bytes));
    const ech_status status = ech__checkpoint_state_parse(c->ctx, path, text, bytes, &c->state);
    free(text);
    return status;
}

static ech_status open_all(ech__checkpoint *c, const char *dir)
{
    ECH_TRY(ech__checkpoint_find(c->ctx, dir, c->path));
    ECH_TRY(ech__checkpoint_verify(c->ctx, c->path));
    ECH_TRY(ech__checkpoint_file_path(c->ctx, c->path, ECH__CHECKPOINT_MODEL, c->model));
    return read_state(c);
}

ech_status ech__checkpoint_open(ech_ctx *ctx, const char *dir, ech__checkpoint **out)
{
    *out = NULL;
    ech__checkpoint *c = ech__new(ctx, sizeof *c);
    if (!c)
        return ech__no_memory(ctx, "a checkpoint");
    c->ctx = ctx;
    ech__arena_init(&c->state.arena, ctx->alloc);
    const ech_status status = open_all(c, dir);
    if (status < 0) {
        ech__checkpoint_close(c);
        return status;
    }
    *out = c;
    return ECH_OK;
}

void ech__checkpoint_close(ech__checkpoint *c)
{
    if (!c)
        return;
    ech__checkpoint_state_fini(&c->state);
    ech__delete(c->ctx, c, sizeof *c);
}

static ech_status check_position(const ech__checkpoint *c, const ech__run *run)
{
    const ech__checkpoint_state *s = &c->state;
    const int64_t per_epoch = run->feed.per_epoch;
    if (s->epoch != s->step / per_epoch || s->epoch_step != s->step % per_epoch)
        return ech__fail(
            c->ctx, ECH_E_FORMAT,
            "it is at step %lld of epoch %lld after %lld steps in all, and an epoch of "
            "this data has %lld",
            (long long)s->epoch_step, (long long)s->epoch + 1, (long long)s->step,
            (long long)per_epoch);
    if (s->step > run->config.steps)
        return ech__fail(c->ctx, ECH_E_INVALID, "it is at step %lld; this run ends at step %lld",
                         (long long)s->step, (long long)run->config.steps);
    return ECH_OK;
}

ech_status ech__checkpoint_agree(const ech__checkpoint *c, const ech__run *run)
{
    ech_json *config = config_json(run, ECH__TERMS_RESUME);
    ech_status status = ech__checkpoint_state_agree(c->ctx, &c->state, config);
    ech__json_destroy(config);
    if (status == ECH_OK)
        status = check_position(c, run);
    return status < 0 ? ech__fail_in(c->ctx, status, "%s", c->path) : ECH_OK;
}

/* Whether every rank has running statistics of its own. */
static bool has_own_buffers(const ech__run *run)
{
    return !run->config.train.ddp.broadcast_buffers && ech__buffers_on_ranks(run->trainer);
}

ech_status ech__checkpoint_restore(const ech__checkpoint *c, ech__run *run)
{
    const ech__checkpoint_state *s = &c->state;
    char path[ECH_DIR_MAX_PATH];
    if (has_own_buffers(run)) {
        ECH_TRY(ech__checkpoint_file_path(c->ctx, c->path, ECH__CHECKPOINT_BUFFERS, path));
        ECH_TRY(ech__buffers_load(run->trainer, path));
    }
    ECH_TRY(ech__checkpoint_file_path(c->ctx, c->path, ECH__CHECKPOINT_OPTIMIZER, path));
    ECH_TRY(ech__optimizer_load(run->trainer, path));
    run->trainer->scalars.step = s->updates + 1;
    if (run->trainer->scaler.on)
        run->trainer->scaler = s->scaler;
    run->first = run->done = s->step;
    run->first_loss = s->first_loss;
    run->last_loss = s->last_loss;
    run->now = s->now;
    for (size_t i = 0; i < s->nepochs && run->epochs_done < run->nepochs; i++)
        run->epochs[run->epochs_done++] = s->epochs[i];
    return ECH_OK;
}

/* ---- saving ---- */

static ech_status save_state(const ech__run *run, const char *path)
{
    ech_json *config = config_json(run, ECH__TERMS_RESUME);
    const ech__checkpoint_state state = {
        .config = config,
        .step = run->done,
        .epoch = run->done / run->feed.per_epoch,
        .epoch_step = run->done % run->feed.per_epoch,
        .updates = run->trainer->scalars.step - 1,
        .scaler = run->trainer->scaler,
        .first_loss = run->first_loss,
        .last_loss = run->last_loss,
        .now = run->now,
        .epochs = run->epochs,
        .nepochs = (size_t)run->epochs_done,
    };
    const ech_trainer *trainer = run->trainer;
    ech_json *choices =
        trainer->ops->choices ? trainer->ops->choices(trainer) : ech__choices_json(trainer->plan);
    ech_json *json = ech__checkpoint_state_json(&state, choices);
    const ech_status status = ech__json_save(run->ctx, path, json, ECH_JSON_INDENT);
    ech__json_destroy(json);
    ech__json_destroy(config);
    return status;
}

static ech_status save_parts(ech__run *run)
{
    ech__checkpoint_dir *dir = run->checkpoints;
    char path[ECH_DIR_MAX_PATH];
    ECH_TRY(ech__checkpoint_begin(dir, run->done));
    ECH_TRY(ech__checkpoint_new_path(dir, ECH__CHECKPOINT_MODEL, path));
    ECH_TRY(ech_trainer_save(run->trainer, path));
    ECH_TRY(ech__checkpoint_new_path(dir, ECH__CHECKPOINT_OPTIMIZER, path));
    ECH_TRY(ech__optimizer_save(run->trainer, path));
    ECH_TRY(ech__checkpoint_new_path(dir, ECH__CHECKPOINT_BUFFERS, path));
    if (has_own_buffers(run))
        ECH_TRY(ech__buffers_save(run->trainer, path));
    ECH_TRY(ech__checkpoint_new_path(dir, ECH__CHECKPOINT_STATE, path));
    ECH_TRY(save_state(run, path));
    return ech__checkpoint_commit(dir);
}

ech_status ech__checkpoint_save(ech__run *run)
{
    if (!run->checkpoints)
        return has_own_buffers(run) ? ech__buffers_save(run->trainer, NULL) : ECH_OK;
    const int64_t start = ech__clock_wall(), last = ech__checkpoint_last(run->checkpoints);
    const ech_status status = save_parts(run);
    if (status < 0) {
        ech__checkpoint_abort(run->checkpoints);
        if (last < 0)
            return ech__fail_in(run->ctx, status, "the checkpoint of step %lld is not saved",
                                (long long)run->done);
        return ech__fail_in(run->ctx, status,
                            "the checkpoint of step %lld is not saved, that of step %lld stays",
                            (long long)run->done, (long long)last);
    }
    run->saves++;
    run->save_s += ech__seconds(ech__clock_wall() - start);
    return ECH_OK;
}

ech_status ech__checkpoint_save_last(ech__run *run)
{
    int32_t missing = run->checkpoints && ech__checkpoint_last(run->checkpoints) != run->done;
    if (has_own_buffers(run)) /* all take part in saving, and only rank 0 knows what is there */
        ECH_TRY(ech__comm_broadcast(run->trainer->comm, &missing, sizeof missing, 0));
    return missing ? ech__checkpoint_save(run) : ECH_OK;
}
