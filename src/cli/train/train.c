/* echelon train and echelon bench step: one run each, through train/run.h, alone or as several ranks. */
#include "cli/train/capacity.h"
#include "cli/train/options.h"
#include "cli/train/ranks.h"
#include "cli/train/show.h"
#include "comm/comm.h"
#include "comm/mpi/mpi.h"

#include <stdio.h>
#include <string.h>

static ech__run_config config_of(const ech__train_args *a)
{
    const ech__training_args *t = &a->training;
    ech__run_config c = ech__training_config(t);
    c.data_dir = a->data_dir;
    c.limit = a->limit;
    c.shuffle = !a->no_shuffle;
    c.augment = !a->no_augment;
    c.epochs = a->epochs;
    c.data = a->data && strcmp(a->data, "synthetic") ? a->data : NULL;
    c.steps = a->steps;
    c.warmup = a->warmup;
    c.train.batch = t->batch;
    c.global_batch = t->global_batch;
    if (t->parallel == ECH__STRATEGY_DP) { /* one process with all of the batch, which it cuts */
        c.train.dp.devices = a->device_count ? a->device_count : 1;
        c.train.batch = 0;
        const bool file = c.data && strcmp(c.data, "cifar10"); /* it says how many there are */
        const int64_t each = t->batch || file ? t->batch : 64;
        c.global_batch = t->global_batch ? t->global_batch : each * c.train.dp.devices;
    }
    c.train.pipeline.devices = (int)a->mp;
    c.train.pipeline.ranks = a->stage_ranks;
    c.train.ddp.sync_bn = a->sync_bn;
    c.train.ddp.broadcast_buffers = !a->no_broadcast;
    c.train.ddp.reproducible = a->reproducible;
    c.train.ddp.slots = (int)a->slots;
    c.straggler = a->straggler;
    c.clock = (ech__clock_kind)a->clock;
    c.emulation = a->emulation;
    c.straggle_ms = a->straggle_ms;
    c.train.device_memory = t->device_memory;
    c.train.seed = (uint64_t)a->seed;
    c.train.init = a->init;
    c.train.amp.loss_scale = a->loss_scale;
    c.train.optimizer.clip_norm = a->clip_norm;
    c.against = a->against;
    c.params_against = a->params_against;
    c.undivided = a->undivided;
    c.run_dir = a->run_dir;
    c.trace = a->trace;
    c.command = ech__cli_command_line();
    c.save_params = a->save_params;
    c.keep_going = a->keep_going;
    c.save = a->save;
    c.save_every = a->save_every;
    c.resume = a->resume;
    c.train.delay_ms = a->delay_ms;
    c.train.optimizer.lr = a->lr;
    c.train.optimizer.nesterov = a->nesterov;
    c.train.optimizer.beta1 = a->beta1;
    c.train.optimizer.beta2 = a->beta2;
    c.train.optimizer.epsilon = a->epsilon;
    c.schedule.kind = (ech__schedule_kind)a->schedule;
    c.schedule.interval = a->interval;
    c.schedule.gamma = a->gamma;
    c.lr_scale_base = a->lr_scale_base;
    c.lr_warmup_epochs = a->lr_warmup_epochs;
    c.lr_warmup_from = a->lr_warmup_from;
    return c;
}

/* ---- the commands ---- */

typedef void (*show_fn)(const ech__run *run);

static int fail(ech_ctx *ctx, const ech__command *command, const ech_group *group)
{
    return group ? ech__cli_fail_rank(group->comm, command, ECH__EXIT_FAILED)
                 : ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
}

static int train(ech_ctx *ctx, const ech__command *command, const ech__train_args *a,
                 ech_group *group, show_fn show)
{
    ech__run_config config = config_of(a);
    config.train.ddp.group = group;
    ech__run *run;
    if (ech__run_create(ctx, &config, &run) < 0)
        return fail(ctx, command, group);
    ech__progress progress = {0};
    if (!a->json && run->rank == 0)
        ech__show_head(run);
    ech_status status =
        ech__run_steps(run, &(ech__run_events){.on_step = ech__show_progress,
                                               .on_epoch = a->json ? NULL : ech__show_epoch,
                                               .user = &progress});
    ech__show_progress_end(&progress);
    if (run->is_complete && a->json && run->rank == 0) {
        ech_json *json = ech__run_json(run, ech__run_stops(run) ? "diverged" : "done");
        const ech_status printed =
            ech__json_print(status == ECH_OK ? ctx : NULL, json, ECH_JSON_INDENT, stdout);
        status = status == ECH_OK ? printed : status;
        ech__json_destroy(json);
    } else if (run->is_complete && run->rank == 0) {
        show(run);
    }
    int code = status < 0 ? fail(ctx, command, group) : ECH__EXIT_GOOD;
    if (status == ECH_OK && ech__run_stops(run) && run->rank == 0) { /* all know; one says it */
        ech__fail(ctx, ECH_E_INVALID, "the run has diverged: %s", run->diverged.text);
        code = ech__cli_fail(ctx, command, ech__cli_settled());
    }
    ech__run_destroy(run);
    return code;
}

/* What cannot be right with so many ranks. */
static ech_status check_world(ech_ctx *ctx, const ech__train_args *a, int world)
{
    if (a->ranks && a->ranks != world)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--devices %d among %d ranks that were started from outside: leave it out",
                         a->device_count, world);
    if (a->straggler >= world)
        return ech__fail(ctx, ECH_E_INVALID, "--straggle %s: there are ranks 0 to %d", a->straggle,
                         world - 1);
    if (a->reproducible && a->slots % (world * a->training.accum))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--devices %d with --accum %lld: --reproducible divides its %lld slots "
                         "evenly among them",
                         world, (long long)a->training.accum, (long long)a->slots);
    return ECH_OK;
}

/* As the rank that this process is. */
static int train_as_rank(ech_ctx *ctx, const ech__command *command, const ech__train_args *a,
                         show_fn show)
{
    const ech__comm_options options = {.backend = (ech__backend)a->backend};
    ech_group group = {NULL, false};
    ech__train_args all = *a;
    int code;
    if (ech__comm_open(ctx, &options, &group.comm) < 0)
        return ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
    if (a->stage_ranks && !a->mp) { /* as many devices as there are ranks */
        const int64_t batch = a->training.batch          ? a->training.batch
                              : a->training.global_batch ? a->training.global_batch
                                                         : 64;
        all.mp = group.comm->world;
        if (!a->training.micro_batches && a->training.parallel == ECH__STRATEGY_PIPELINE)
            all.training.micro_batches = ech__pipe_default_micros(batch, group.comm->world);
    }
    if (check_world(ctx, a, group.comm->world) < 0)
        code = ech__cli_fail_rank(group.comm, command, ECH__EXIT_USAGE);
    else
        code = train(ctx, command, &all, &group, show);
    ech__comm_close(group.comm);
    return code;
}

static int run_it(ech_ctx *ctx, const ech__command *command, const ech__train_args *a, char **argv,
                  show_fn show)
{
    if (a->training.parallel == ECH__STRATEGY_DP)
        return train(ctx, command, a, NULL, show);
    if (ech__cli_is_rank() || ech__mpi_wanted())
        return train_as_rank(ctx, command, a, show);
    if (a->ranks > 1 || a->max_restarts) {
        const int ranks = a->ranks ? a->ranks : 1;
        if (check_world(ctx, a, ranks) < 0)
            return ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
        const ech__run_config config = config_of(a);
        if (ech__run_check(ctx, &config) < 0 ||
            ech__run_check_places(ctx, &config) < 0) /* ranks would fail as well, later */
            return ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
        const int code = ech__cli_launch(ctx, command, ranks, (int)a->max_restarts, argv);
        if (code != ECH__EXIT_GOOD)
            ech__run_clean_up(ctx, &config);
        return code;
    }
    return train_as_rank(ctx, command, a, show); /* alone */
}

int ech__command_train(ech_ctx *ctx, const ech__command *command, char **argv)
{
    ech__train_args a;
    int code;
    if (!ech__train_parse(ctx, command, argv, &a, &code))
        return code;
    if (a.fit) {
        const ech__run_config config = config_of(&a);
        const bool one = a.training.parallel == ECH__STRATEGY_DP || a.stage_ranks || !a.ranks;
        const int ranks = one ? 1 : a.ranks;
        return ech__cli_fit(ctx, command, &config, ranks, a.json);
    }
    return run_it(ctx, command, &a, argv, ech__show_run);
}

int ech__command_bench_step(ech_ctx *ctx, const ech__command *command, char **argv)
{
    ech__train_args a;
    int code;
    if (!ech__train_parse(ctx, command, argv, &a, &code))
        return code;
    a.keep_going = true; /* times are what counts */
    return run_it(ctx, command, &a, argv, ech__show_kernels);
}
