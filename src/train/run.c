#include "train/run.h"
#include "base/file/dir.h"
#include "base/file/file.h"
#include "base/system/clock.h"
#include "comm/comm.h"
#include "device/device.h"
#include "train/checkpoint/checkpoint.h"
#include "train/record/record.h"
#include "train/record/totals.h"
#include "train/record/trace.h"
#include "train/strategy/strategy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- set-up ---- */

enum { MOST_STEPS = 100000000, MOST_EPOCHS = 100000 };

ech_status ech__run_check(ech_ctx *ctx, const ech__run_config *c)
{
    if (c->epochs < 0 || c->epochs > MOST_EPOCHS)
        return ech__fail(ctx, ECH_E_INVALID, "%lld epochs: must be from 1 to %d",
                         (long long)c->epochs, MOST_EPOCHS);
    if (c->epochs && !ech__model_takes_images(c->model.kind))
        return ech__fail(ctx, ECH_E_INVALID,
                         "the linear stack has one batch and no epochs; use --steps");
    if (!c->epochs && (c->steps < 1 || c->steps > MOST_STEPS))
        return ech__fail(ctx, ECH_E_INVALID, "%lld steps: must be from 1 to %d",
                         (long long)c->steps, MOST_STEPS);
    if (c->warmup < 0 || (!c->epochs && c->warmup >= c->steps))
        return ech__fail(ctx, ECH_E_INVALID,
                         "%lld warm-up steps of %lld: at least one step must remain to be timed",
                         (long long)c->warmup, (long long)c->steps);
    if (c->model.dim < 1 || c->model.depth < 1 || c->model.depth > 1000)
        return ech__fail(ctx, ECH_E_INVALID,
                         "a linear stack of dim %lld and depth %lld: dim must be at least 1 and "
                         "depth from 1 to 1000",
                         (long long)c->model.dim, (long long)c->model.depth);
    if (c->limit < 0)
        return ech__fail(ctx, ECH_E_INVALID, "a limit of %lld samples: must be 0 or more",
                         (long long)c->limit);
    if (c->lr_scale_base < 0)
        return ech__fail(ctx, ECH_E_INVALID,
                         "learning-rate scale base %lld: must be at least 1 sample, or 0 for no "
                         "scaling",
                         (long long)c->lr_scale_base);
    if (!(c->lr_warmup_epochs >= 0 && c->lr_warmup_epochs <= 100000))
        return ech__fail(ctx, ECH_E_INVALID,
                         "learning-rate warm-up over %g epochs: must be from 0 to 100000",
                         c->lr_warmup_epochs);
    if (c->save_every < 0 || (c->save_every && !c->save))
        return ech__fail(ctx, ECH_E_INVALID,
                         "a checkpoint every %lld steps: needs a directory and at least 1 step",
                         (long long)c->save_every);
    if (c->save || c->resume)
        ECH_TRY(
            ech__strategy_check(ctx, ech__strategy_of(&c->train), ECH__FEATURE_BIT(CHECKPOINTS)));
    if (c->trace && !c->run_dir)
        return ech__fail(ctx, ECH_E_INVALID, "a trace needs a run directory to be written to");
    return ECH_OK;
}

/* Micro-steps of a rank in a step. */
static int micros_of(const ech__run_config *c, int world)
{
    const ech_train_options *o = &c->train;
    return o->ddp.reproducible && o->ddp.slots / world > 0 ? o->ddp.slots / world : o->accum;
}

static ech__feed_options feed_options(const ech__run *run)
{
    const ech__run_config *c = &run->config;
    int64_t global = c->global_batch;
    /* A slot is no batch of the user's: what he gave as one says how large a step is. */
    if (c->train.ddp.reproducible && !global && c->train.batch)
        global = c->train.batch * run->world * c->train.accum;
    return (ech__feed_options){.model = c->model,
                               .data = c->data,
                               .data_dir = c->data_dir,
                               .limit = c->limit,
                               .batch = global ? 0 : c->train.batch,
                               .global = global,
                               .rank = run->world > 1 ? run->rank : 0,
                               .world = run->world,
                               .sharers =
                                   c->train.ddp.group ? c->train.ddp.group->comm->local_world : 1,
                               .micros = micros_of(c, run->world),
                               .undivided = c->undivided,
                               .drop_last = c->train.ddp.reproducible,
                               .shuffle = c->shuffle,
                               .augment = c->augment,
                               .checkpointed = c->save || c->resume,
                               .seed = c->train.seed};
}

/* How many of the steps are still to do. */
static int64_t remaining(const ech__run *run)
{
    return run->config.steps - (run->resumed ? run->resumed->state.step : 0);
}

/* Learning rates of the steps; c->steps is known. */
static ech_status fill_in_schedule(ech_ctx *ctx, ech__run_config *c, const ech__feed *feed)
{
    ech__lr_schedule *s = &c->schedule;
    const double lr = c->train.optimizer.lr;
    s->lr = c->lr_scale_base ? ech__lr_schedule_scale(lr, feed->global, c->lr_scale_base) : lr;
    s->steps = c->steps;
    if (!s->interval)
        s->interval = c->steps > 3 ? c->steps / 3 : 1;
    s->warmup = ech__lr_schedule_warmup(c->lr_warmup_epochs, feed->per_epoch);
    s->warmup_from = c->lr_warmup_from >= 0 ? c->lr_warmup_from
                                            : ech__lr_schedule_warmup_from(lr, s->lr, s->warmup);
    const bool decays = s->kind == ECH__SCHEDULE_COSINE || s->kind == ECH__SCHEDULE_LINEAR;
    if (decays && s->warmup >= c->steps)
        return ech__fail(ctx, ECH_E_INVALID,
                         "the learning rate warms up over %g epochs (%lld steps) of a run of %lld "
                         "steps: at least one must remain for the %s schedule",
                         c->lr_warmup_epochs, (long long)s->warmup, (long long)c->steps,
                         ech__lr_schedule_name(s->kind));
    return ECH_OK;
}

/* What follows from the data. */
static ech_status fill_in(ech_ctx *ctx, ech__run_config *c, const ech__feed *feed)
{
    c->train.batch = feed->batch;
    if (c->epochs)
        c->steps = c->epochs * feed->per_epoch;
    if (c->epochs && c->warmup >= c->steps)
        c->warmup = c->steps - 1;
    if (c->steps > MOST_STEPS)
        return ech__fail(ctx, ECH_E_LIMIT, "%lld steps: must be from 1 to %d", (long long)c->steps,
                         MOST_STEPS);
    return fill_in_schedule(ctx, c, feed);
}

static ech_status make_trainer(ech__run *run)
{
    ech_ctx *ctx = run->ctx;
    ech_train_options train = run->config.train;
    ech__trainer_options options = {.train = &train};
    if (run->config.clock == ECH__CLOCK_VIRTUAL)
        options.emulation = &run->config.emulation;
    if (run->rank == run->config.straggler)
        options.straggle_ms = run->config.straggle_ms;
    if (run->resumed) {
        train.init = run->resumed->model;
        options.choices = &run->resumed->state.choices;
    }
    ech_graph *graph;
    ECH_TRY(ech_graph_create(ctx, &graph));
    ech_status status = ech__model_build(graph, &run->config.model, &run->model);
    if (status == ECH_OK && run->config.params_against) /* before anything takes time */
        status = ech__params_check(graph, run->config.params_against);
    if (status == ECH_OK)
        status = ech__trainer_create(ctx, graph, run->model.loss, &options, &run->trainer);
    if (status == ECH_OK)
        run->trainer->counted = run->model.correct;
    ech_graph_destroy(graph);
    return status;
}

ech_status ech__run_batch(ech_ctx *ctx, const ech__run_config *c, int world, int64_t *out)
{
    const ech__run run = {.ctx = ctx, .config = *c, .world = world};
    ECH_TRY(ech__run_check(ctx, c));
    const ech__feed_options o = feed_options(&run);
    *out = o.batch ? o.batch : 64;
    if (c->data && !ech__model_takes_images(c->model.kind)) { /* the file says what a batch is */
        ech__feed feed;
        ECH_TRY(ech__feed_open(ctx, &o, &feed));
        *out = feed.batch;
        ech__feed_close(&feed);
    } else if (o.global) {
        *out = (o.global - 1) / ((int64_t)o.micros * world) + 1;
    }
    return ECH_OK;
}

static ech_status claim_records(ech_ctx *ctx, const ech__run_config *c, ech__claim *out)
{
    return ech__claim_take(ctx, out,
                           &(ech__claim_options){"run directory", c->run_dir, ".run.lock"});
}

/* Claims the places that a run writes to. What was there stays as it is; where nothing is written
 * afterwards, releasing them leaves nothing behind. resumed is the checkpoint that the run goes on
 * from, or NULL. */
static ech_status claim_places(ech_ctx *ctx, const ech__run_config *c, const char *resumed,
                               ech__checkpoint_dir **checkpoints, ech__claim *records)
{
    if (c->save)
        ECH_TRY(ech__checkpoint_dir_open(ctx, c->save, resumed, checkpoints));
    if (c->run_dir)
        ECH_TRY(claim_records(ctx, c, records));
    if (!c->save_params)
        return ECH_OK;
    ech__file_writer probe;
    const ech_status status = ech__file_writer_init(ctx, &probe, c->save_params);
    ech__file_writer_fini(&probe);
    return status;
}

ech_status ech__run_check_places(ech_ctx *ctx, const ech__run_config *c)
{
    char from[ECH_DIR_MAX_PATH];
    ech__checkpoint_dir *checkpoints = NULL;
    ech__claim records = {.held = false};
    if (c->resume)
        ECH_TRY(ech__checkpoint_find(ctx, c->resume, from));
    const ech_status status = claim_places(ctx, c, c->resume ? from : NULL, &checkpoints, &records);
    ech__claim_release(&records);
    ech__checkpoint_dir_close(checkpoints);
    return status;
}

void ech__run_clean_up(ech_ctx *ctx, const ech__run_config *c)
{
    char last[ECH_DIR_MAX_PATH];
    ech__checkpoint_dir *checkpoints;
    ech__claim records;
    if (c->run_dir && claim_records(ctx, c, &records) == ECH_OK)
        ech__claim_release(&records);
    if (!c->save)
        return;
    const bool saved = ech__checkpoint_find(ctx, c->save, last) == ECH_OK;
    if (ech__checkpoint_dir_open(ctx, c->save, saved ? last : NULL, &checkpoints) == ECH_OK)
        ech__checkpoint_dir_close(checkpoints);
}

enum { MOST_OP_STEPS = 2000 }; /* whose operators are kept apart: enough for medians */

static ech_status allocate(ech__run *run)
{
    const ech__run_config *c = &run->config;
    const int64_t timed = remaining(run) - c->warmup;
    for (int d = 0; d < ech__trainer_planned_devices(run->trainer); d++) {
        const ech__plan *plan = ech__trainer_plan_of(run->trainer, d);
        run->nops += plan ? plan->ninstrs : 0;
    }
    run->op_steps = timed < MOST_OP_STEPS ? timed : MOST_OP_STEPS;
    run->nepochs = run->feed.train ? c->steps / run->feed.per_epoch : 0;
    if (run->nepochs >
        MOST_EPOCHS) /* steps were asked for, of which each is an epoch or nearly so */
        run->nepochs = MOST_EPOCHS;
    run->epochs = ech__arena_array(&run->arena, (size_t)run->nepochs, sizeof *run->epochs);
    run->ops = ech__arena_array(&run->arena, run->nops, sizeof *run->ops);
    run->op_seconds =
        ech__arena_array(&run->arena, (size_t)run->op_steps, run->nops * sizeof *run->op_seconds);
    if (!run->epochs || !run->ops || !run->op_seconds)
        return ech__no_memory(run->ctx, "the records of %lld steps", (long long)c->steps);
    size_t n = 0;
    for (int d = 0; d < ech__trainer_planned_devices(run->trainer); d++) {
        const ech__plan *plan = ech__trainer_plan_of(run->trainer, d);
        for (size_t i = 0; plan && i < plan->ninstrs; i++)
            run->ops[n++] = (ech__run_op){.device = d, .instr = &plan->instrs[i]};
    }
    return ECH_OK;
}

static ech_status allocate_totals(ech__run *run)
{
    const int64_t steps = run->config.steps;
    ECH_TRY(ech__history_init(run->ctx, &run->history, steps - remaining(run), steps));
    ECH_TRY(ech__stability_init(&run->stability, run->ctx, &run->arena));
    ECH_TRY(ech__traffic_init(&run->traffic, run->trainer, run->op_steps, &run->arena));
    if (!run->config.train.ddp.broadcast_buffers)
        ECH_TRY(ech__drift_init(&run->drift, run->trainer, run->nepochs, &run->arena));
    const ech__totals_row *totals = ech__totals_of(run->trainer);
    return totals->init ? totals->init(run) : ECH_OK;
}

/* Finds and checks the checkpoint, and that this run is the one it belongs to. */
static ech_status resume(ech__run *run)
{
    ech__run_config *c = &run->config;
    ECH_TRY(ech__checkpoint_agree(run->resumed, run));
    /* The steps of this run warm up anew. */
    const int64_t left = remaining(run);
    if (c->warmup >= left)
        c->warmup = left ? left - 1 : 0;
    return ECH_OK;
}

/* Everything that can fail for the user's reasons comes before the first thing that is written. */
static ech_status open_outputs(ech__run *run)
{
    const ech__run_config *c = &run->config;
    char path[ECH_DIR_MAX_PATH];
    if (run->rank != 0)
        return c->trace ? ech__trace_open(run->ctx, NULL, &run->trace) : ECH_OK;
    if (!c->run_dir)
        return ECH_OK;
    ECH_TRY(ech__records_open(run->ctx, c->run_dir, run->first, &run->records));
    if (c->trace) {
        if (snprintf(path, sizeof path, "%s/trace.json", c->run_dir) >= (int)sizeof path)
            return ech__fail(run->ctx, ECH_E_INVALID, "the path of the trace is too long");
        ECH_TRY(ech__trace_open(run->ctx, path, &run->trace));
    }
    return ech__records_run(run->records, run, "running");
}

static ech_status choose_clock(ech__run *run)
{
    ech__run_config *c = &run->config;
    ech__core_share share;
    ECH_TRY(ech__core_share_find(run->ctx, &c->train, &share));
    return ech__clock_choose(run->ctx, &share, &c->train, &c->clock);
}

/* Ranks that were given different things to do would wait for each other in vain. */
static ech_status agree(const ech__run *run)
{
    char *text;
    if (!run->config.train.ddp.group || ech_group_size(run->config.train.ddp.group) == 1)
        return ECH_OK;
    ECH_TRY(ech__run_terms(run, &text));
    const ech_status status = ech__comm_agree(run->config.train.ddp.group->comm, text);
    free(text);
    return status;
}

/* Ranks that a launcher has started again go on from the last checkpoint of the run, if there is
 * one yet. */
static ech_status open_resumed(ech__run *run)
{
    ech__run_config *c = &run->config;
    const ech_group *group = c->train.ddp.group;
    char path[ECH_DIR_MAX_PATH];
    if (group && ech_group_restarts(group) > 0 && c->save) {
        if (ech__checkpoint_find(run->ctx, c->save, path) == ECH_OK)
            c->resume = c->save;
        else
            run->ctx->error[0] = 0;
    }
    return c->resume ? ech__checkpoint_open(run->ctx, c->resume, &run->resumed) : ECH_OK;
}

static ech_status set_up(ech__run *run)
{
    ech_ctx *ctx = run->ctx;
    ech__run_config *c = &run->config;
    ECH_TRY(ech__run_check(ctx, c));
    ECH_TRY(open_resumed(run));
    if (run->rank == 0) /* before anything takes time */
        ECH_TRY(claim_places(ctx, c, run->resumed ? run->resumed->path : NULL, &run->checkpoints,
                             &run->claim));
    ech__feed_options options = feed_options(run);
    ECH_TRY(ech__feed_open(ctx, &options, &run->feed));
    ECH_TRY(fill_in(ctx, c, &run->feed));
    if (c->against && run->rank == 0)
        ECH_TRY(ech__baseline_open(run, c->against, &run->baseline));
    ECH_TRY(choose_clock(run));
    ECH_TRY(agree(run));
    if (run->resumed)
        ECH_TRY(resume(run));
    ECH_TRY(ech__machine_read(ctx, &run->machine));
    ECH_TRY(make_trainer(run));
    ECH_TRY(allocate(run));
    ECH_TRY(allocate_totals(run));
    if (run->resumed) {
        ECH_TRY(ech__checkpoint_restore(run->resumed, run));
        options.epoch = run->resumed->state.epoch;
        options.step = run->resumed->state.epoch_step;
    }
    ECH_TRY(ech__feed_start(&run->feed, &options));
    return open_outputs(run);
}

ech_status ech__run_create(ech_ctx *ctx, const ech__run_config *config, ech__run **out)
{
    *out = NULL;
    ech__run *run = ech__new(ctx, sizeof *run);
    if (!run)
        return ech__no_memory(ctx, "a run");
    run->ctx = ctx;
    run->config = *config;
    ech__arena_init(&run->arena, ctx->alloc);
    run->rank = config->train.ddp.group ? ech_group_rank(config->train.ddp.group) : 0;
    /* Ranks that have the layers of one model have the same samples. */
    run->world = config->train.ddp.group && !config->train.pipeline.ranks
                     ? ech_group_size(config->train.ddp.group)
                     : 1;
    const ech_status status = set_up(run);
    if (status < 0) {
        ech__run_destroy(run);
        return status;
    }
    *out = run;
    return ECH_OK;
}

void ech__run_destroy(ech__run *run)
{
    if (!run)
        return;
    ech__baseline_close(run->ctx, run->baseline);
    ech__trace_close(run->trace);
    ech__records_close(run->records);
    ech__claim_release(&run->claim);
    ech__checkpoint_dir_close(
        run->checkpoints); /* which was opened before, and made what both are in */
    ech__checkpoint_close(run->resumed);
    ech__arena_fini(&run->arena);
    ech__history_fini(&run->history);
    ech__feed_close(&run->feed);
    ech_trainer_destroy(run->trainer);
    ech__delete(run->ctx, run, sizeof *run);
}

/* ---- steps ---- */

static void keep_op_times(ech__run *run)
{
    float *row = run->op_seconds + (size_t)run->op_done * run->nops;
    for (int d = 0; d < ech__trainer_planned_devices(run->trainer); d++) {
        const ech__plan *plan = ech__trainer_plan_of(run->trainer, d);
        if (!plan)
            continue;
        const ech__span *spans = ech__exec_spans(ech__trainer_exec_of(run->trainer, d));
        for (size_t n = 0; n < plan->ninstrs; n++)
            *row++ = (float)ech__seconds(spans[n].end_ns - spans[n].start_ns);
    }
    run->op_done++;
}

/* Over all ranks. */
static void count_samples(const ech__run *run, ech__run_step *step)
{
    const ech_trainer *t = run->trainer;
    double samples = t->ranks ? 0 : t->report.samples;
    step->correct = t->ranks ? 0 : t->report.correct;
    for (int rank = 0; t->ranks && rank < run->world; rank++) {
        samples += ech__reports_of(&t->reports, rank)->samples;
        step->correct += ech__reports_of(&t->reports, rank)->correct;
    }
    step->samples = (int64_t)samples;
}

static int64_t loader_cpu(const ech__run *run)
{
    return run->feed.loader ? ech__loader_cpu(run->feed.loader) : 0;
}

/* An emulated device has one core, which its loader shares: what this one did during a step makes
 * the next one longer. What it did between steps, while samples were handed over, is in no step by
 * the real clock either. */
static void count_loading(ech__run *run, ech__run_step *step, int64_t from)
{
    const int64_t now = loader_cpu(run);
    if (now < from) /* it has ended */
        return;
    step->loader_s += ech__seconds(now - run->loader_ns);
    run->loader_ns = now;
    if (run->trainer->emulated)
        run->trainer->loading_ns += now - from;
}

/* All micro-steps. data_s is waiting for samples and handing them over. */
static ech_status compute(ech__run *run, ech__run_step *step, const ech__variant **variant)
{
    int64_t start = ech__clock_wall(), data;
    ECH_TRY(ech__feed_next(&run->feed));
    data = ech__clock_wall() - start;
    start += data;
    for (int i = 0; i < run->feed.now.micros; i++) {
        ech__micro micro;
        const int known = run->trainer->nvariants;
        ECH_TRY(ech__feed_micro(&run->feed, run->trainer, i, &micro, variant));
        const int64_t loading = loader_cpu(run);
        step->loading_s += ech__seconds(run->trainer->loading_ns);
        if (run->trainer->nvariants == known) /* planning for a new batch size is no loading */
            data += ech__clock_wall() - start;
        ECH_TRY(ech__variant_step(run->trainer, *variant, &micro, &step->result));
        count_loading(run, step, loading);
        ech__trace_ops(run->trace, run->trainer, *variant);
        step->kernels_s += run->trainer->ops->kernels(run->trainer, *variant, &step->sums_s);
        start = ech__clock_wall();
    }
    step->data_s = ech__seconds(data);
    count_samples(run, step);
    return ECH_OK;
}

enum { MOST_TRACED_STEPS = 1000 }; /* a step may take a megabyte of the file */

/* The results do not depend on the trace: where the disk is full the run continues without it. */
static void close_trace(ech__run *run)
{
    ech__trace *trace = run->trace;
    run->trace = NULL;
    if (ech__trace_close(trace) == ECH_OK)
        return;
    ech__log(run->ctx, "the trace is incomplete: %s", run->ctx->error);
    ech__records_trace_failed(run->records, run->ctx->error);
}

/* Only steps after the warm-up with a full batch are timed; the shorter last one of an epoch would
 * blur them. */
static void sum_up_step(ech__run *run, const ech__run_step *step, const ech__variant *variant)
{
    const double time_s = step->result.time_s;
    const bool is_timed =
        run->done > run->first + run->config.warmup && step->samples == run->feed.global;
    ech__history_add(&run->history, step, is_timed);
    ech__stability_add(&run->stability, run->baseline, step);
    if (!is_timed)
        return;
    ech__traffic_add(&run->traffic, run->trainer, time_s);
    if (ech__totals_of(run->trainer)->add)
        ech__totals_of(run->trainer)->add(run, time_s);
    /* Devices with plans of their own have the checks and the update in that of the first
     * micro-step. */
    if (run->op_done < run->op_steps &&
        (variant == &run->trainer->variants[0] || run->trainer->ops->planned_devices))
        keep_op_times(run);
}

static ech_status one_step(ech__run *run, int64_t index, const ech__run_events *events)
{
    const ech__run_config *c = &run->config;
    ech__run_step step = {.step = index + 1,
                          .epoch = index / run->feed.per_epoch + 1,
                          .lr = ech__lr_schedule_lr(&c->schedule, index)};
    const ech__variant *variant = NULL;
    const int64_t start = ech__clock_wall();
    ech_trainer_set_lr(run->trainer, step.lr);
    ECH_TRY(compute(run, &step, &variant));
    if (index == run->first && c->train.ddp.group)
        ech__comm_begun(c->train.ddp.group->comm);
    run->done = index + 1;
    run->last_loss = step.result.loss;
    if (index == 0)
        run->first_loss = step.result.loss;
    sum_up_step(run, &step, variant);
    if (run->records)
        ech__records_step(run->records, run, &step);
    ECH_TRY(ech__run_check_loss(run, &step));
    ECH_TRY(ech__trace_step(run->trace, run->trainer, &step));
    if (run->done - run->first == MOST_TRACED_STEPS)
        close_trace(run);
    if (events && events->on_step && run->rank == 0)
        events->on_step(events->user, run, &step);
    ech__run_add_to_epoch(run, &step, ech__seconds(ech__clock_wall() - start));
    return ECH_OK;
}

/* ---- summary ---- */

#define PICK(name, figure)                                                                         \
    static double name(const ech__run_step *step)                                                  \
    {                                                                                              \
        return figure;                                                                             \
    }
PICK(sums_of, step->sums_s)
PICK(outside_kernels_of, 1 - step->kernels_s / step->result.time_s)
#undef PICK

/* steps[timed.count] */
static void sum_up_parts(ech__run *run, ech__timed *steps)
{
    const ech__history *h = &run->history;
    ech__run_summary *s = &run->summary;
    for (int64_t i = 0; i < h->timed.count; i++) {
        const ech__run_step *step = ech__thin_at(&h->timed, i);
        steps[i] = (ech__timed){step->result.time_s, (size_t)i};
    }
    size_t first;
    const size_t count = ech__central_steps(steps, (size_t)h->timed.count, &first);
    for (size_t i = first; i < first + count; i++) {
        const ech__run_step *row = ech__thin_at(&h->timed, (int64_t)steps[i].index);
        const ech_step *step = &row->result;
        s->forward_s += step->forward_s / (double)count;
        s->backward_s += step->backward_s / (double)count;
        s->optimizer_s += step->optimizer_s / (double)count;
        s->comm_exposed_s += step->comm_exposed_s / (double)count;
        s->wait_s += step->wait_s / (double)count;
        s->other_s += step->other_s / (double)count;
        s->comm_hidden_s += step->comm_hidden_s / (double)count;
    }
}

static void sum_up_steps(ech__run *run, double *samples)
{
    const ech__history *h = &run->history;
    ech__run_summary *s = &run->summary;
    s->timed = h->timed.seen;
    s->step_time = ech__history_times(h, samples);
    s->sums_s = ech__history_median(h, sums_of, samples);
    s->outside_kernels = ech__history_median(h, outside_kernels_of, samples);
    s->utilisation = h->time_s > 0 ? h->kernels_s / h->time_s : 0;
    s->samples_per_s = s->step_time.median > 0 ? (double)run->feed.global / s->step_time.median : 0;
    s->first_loss = run->first_loss;
    s->final_loss = run->last_loss;
}

static void sum_up_ops(ech__run *run, double *samples)
{
    const size_t count = (size_t)run->op_done;
    for (size_t n = 0; n < run->nops; n++) {
        for (size_t i = 0; i < count; i++)
            samples[i] = (double)run->op_seconds[i * run->nops + n];
        run->ops[n].median_s = ech__stats_of(samples, count).median;
    }
}

/* Two trainings went the same way to the last bit where these are equal. */
static void hash_losses(ech__run *run)
{
    const ech__sha256_text hex = ech__sha256_final(&run->history.losses);
    memcpy(run->summary.losses_sha256, hex.s, sizeof hex.s);
}

/* All ranks must end with the same parameters. */
static ech_status check_same_params(const ech__run *run)
{
    const char *mine = run->summary.params_sha256;
    char *first;
    if (run->world == 1)
        return ECH_OK;
    ECH_TRY(ech__comm_share_text(run->trainer->comm, mine, &first));
    const bool same = !strcmp(first, mine);
    free(first);
    return same ? ECH_OK
                : ech__fail(run->ctx, ECH_E_INTERNAL,
                            "rank %d ended with different parameters than rank 0", run->rank);
}

/* Of a run that diverged before its first timed step. */
static void clear_times(ech__run_summary *s)
{
    const double none = (double)NAN;
    s->step_time = (ech__stats){none, none, none, none, none, none};
    s->forward_s = s->backward_s = s->comm_exposed_s = s->optimizer_s = s->sums_s = none;
    s->wait_s = s->other_s = s->comm_hidden_s = none;
    s->samples_per_s = s->outside_kernels = s->utilisation = none;
}

static ech_status sum_up(ech__run *run)
{
    const size_t bytes = (size_t)(run->history.timed.count + 1) * sizeof(ech__timed);
    ech__timed *steps = ech__new(run->ctx, bytes);
    if (!steps)
        return ech__no_memory(run->ctx, "the totals of %lld steps", (long long)run->done);
    sum_up_parts(run, steps);
    double *samples = (double *)steps;
    sum_up_steps(run, samples);
    sum_up_ops(run, samples);
    if (!run->summary.timed)
        clear_times(&run->summary);
    ech__delete(run->ctx, steps, bytes);
    ECH_TRY(ech__traffic_sum_up(&run->traffic, run->trainer));
    if (ech__totals_of(run->trainer)->sum_up)
        ECH_TRY(ech__totals_of(run->trainer)->sum_up(run));
    hash_losses(run);
    ECH_TRY(ech__trainer_hash(run->trainer, run->summary.params_sha256));
    return check_same_params(run);
}

/* Whether all ranks have come to a step whose parameters are to be saved. */
static bool is_due(const ech__run *run)
{
    const ech__run_config *c = &run->config;
    return c->save && (run->done == c->steps || (c->save_every && run->done % c->save_every == 0) ||
                       (c->epochs && run->done % run->feed.per_epoch == 0));
}

/* The checkpoint comes after the epoch's end, so that a run which goes on from there does not
 * evaluate a second time. */
static ech_status after_step(ech__run *run, const ech__run_events *events)
{
    const bool ends_epoch = run->feed.train && run->done % run->feed.per_epoch == 0;
    const bool last = run->done == run->config.steps;
    if (is_due(run) || (ends_epoch && run->config.epochs) || last)
        ECH_TRY(ech__run_check_params(run));
    if (ech__run_stops(run))
        return ECH_OK;
    if (ends_epoch)
        ECH_TRY(ech__run_end_epoch(run, events));
    return is_due(run) && run->sound ? ech__checkpoint_save(run) : ECH_OK;
}

ech_status ech__run_steps(ech__run *run, const ech__run_events *events)
{
    for (int64_t i = run->first; i < run->config.steps && !ech__run_stops(run); i++) {
        ECH_TRY(one_step(run, i, events));
        ECH_TRY(after_step(run, events));
    }
    ech__history_end(&run->history);
    /* Nothing was left to do, but the checkpoint is to stand elsewhere too. */
    if (run->config.save && run->first == run->config.steps)
        ECH_TRY(ech__checkpoint_save_last(run));
    ECH_TRY(sum_up(run));
    const bool hands_in = run->rank == 0 || ech__trainer_model_group(run->trainer);
    if (run->config.params_against && hands_in)
        ECH_TRY(ech__params_distance(run->trainer, run->config.params_against, &run->summary.gap));
    if (run->config.save_params && hands_in && !ech__run_stops(run))
        ECH_TRY(ech_trainer_save(run->trainer, run->config.save_params));
    close_trace(run);
    run->is_complete = true;
    const char *state = ech__run_stops(run) ? "diverged" : "done";
    return run->records ? ech__records_run(run->records, run, state) : ECH_OK;
}
