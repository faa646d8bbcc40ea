/* echelon train and echelon bench step: one run each, through train/run.h, alone or as several ranks. */
#include "cli/train/capacity.h"
#include "cli/train/options.h"
#include "cli/train/ranks.h"
#include "cli/train/show.h"
#include "comm/comm.h"
#include "comm/mpi/mpi.h"

#include <string.h>

typedef void (*show_fn)(const ech__run *run);

static int fail(ech_ctx *ctx, const ech__command *command, const ech_group *group)
{
    return group ? ech__cli_fail_rank(group->comm, command, ECH__EXIT_FAILED)
                 : ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
}

static int train(ech_ctx *ctx, const ech__command *command, const ech__train_args *a,
                 ech_group *group, show_fn show)
{
    ech__run_config config = a->run;
    config.train.ddp.group = group;
    ech__run *run;
    if (ech__run_create(ctx, &config, &run) < 0)
        return fail(ctx, command, group);
    ech__progress progress = {0};
    if (!config.json && run->rank == 0)
        ech__show_head(run);
    ech_status status =
        ech__run_steps(run, &(ech__run_events){.on_step = ech__show_progress,
                                               .on_epoch = config.json ? NULL : ech__show_epoch,
                                               .user = &progress});
    ech__show_progress_end(&progress);
    if (run->is_complete && config.json && run->rank == 0) {
        ech_json *json = ech__run_json(run, ech__run_stops(run) ? "diverged" : "done");
        const ech_status printed = ech__cli_json(status == ECH_OK ? ctx : NULL, json);
        status = status == ECH_OK ? printed : status;
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
    const ech__run_config *c = &a->run;
    const ech_train_options *o = &c->train;
    if (a->ranks && a->ranks != world)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--devices %d: %d ranks are already started; leave it out",
                         (int)c->devices, world);
    if (c->straggler >= world)
        return ech__fail(ctx, ECH_E_INVALID, "--straggle %s: there are ranks 0 to %d", c->straggle,
                         world - 1);
    if (o->ddp.reproducible && o->ddp.slots % (world * o->accum))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--devices %d with --accum %d: --reproducible divides its %d slots evenly "
                         "among them",
                         world, o->accum, o->ddp.slots);
    return ECH_OK;
}

/* --reproducible needs sums in the fixed tree. */
static ech_status check_order(const ech__train_args *a, const ech__comm *comm)
{
    if (!a->run.train.ddp.reproducible || ech__comm_keeps_tree(comm))
        return ECH_OK;
    return ech__fail(comm->ctx, ECH_E_INVALID,
                     "--algorithm %s: on these %d nodes it adds in another order than the fixed "
                     "tree of --reproducible; tree and halving-doubling keep it",
                     ech__algorithm_name(comm->algorithm), comm->nodes);
}

/* As the rank that this process is. */
static int train_as_rank(ech_ctx *ctx, const ech__command *command, const ech__train_args *a,
                         show_fn show)
{
    const ech__comm_options options = {.backend = a->run.backend, .algorithm = a->run.algorithm};
    ech_group group = {NULL, false};
    ech__train_args all = *a;
    ech_pipeline_options *pipeline = &all.run.train.pipeline;
    int code;
    ECH_TRY(ech__comm_open(ctx, &options, &group.comm));
    if (pipeline->ranks && !pipeline->devices) { /* as many devices as there are ranks */
        const int64_t batch = a->run.train.batch    ? a->run.train.batch
                              : a->run.global_batch ? a->run.global_batch
                                                    : 64;
        pipeline->devices = group.comm->world;
        if (!pipeline->micro_batches && a->run.parallel == ECH__STRATEGY_PIPELINE)
            pipeline->micro_batches = ech__pipe_default_micros(batch, group.comm->world);
    }
    if (check_world(ctx, a, group.comm->world) < 0 || check_order(a, group.comm) < 0 ||
        ech__helper_start_if(group.comm, a->run.comm_thread, a->run.train.threads) < 0)
        code = ech__cli_fail_rank(group.comm, command, ECH__EXIT_USAGE);
    else
        code = train(ctx, command, &all, &group, show);
    ech__comm_close(group.comm);
    return code;
}

static int run_it(ech_ctx *ctx, const ech__command *command, const ech__train_args *a, char **argv,
                  show_fn show)
{
    const ech__run_config *c = &a->run;
    if (ech__strategy_row_of(c->parallel)->one_process)
        return train(ctx, command, a, NULL, show);
    if (ech__cli_is_rank() || ech__mpi_wanted())
        return train_as_rank(ctx, command, a, show);
    if (a->ranks > 1 || c->max_restarts) {
        const int ranks = a->ranks ? a->ranks : 1;
        if (check_world(ctx, a, ranks) < 0)
            return ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
        ECH_TRY(ech__run_check(ctx, c)); /* ranks would fail as well, later */
        ECH_TRY(ech__run_check_places(ctx, c));
        const int code = ech__cli_launch(ctx, command, ranks, (int)c->max_restarts, argv, false);
        if (code != ECH__EXIT_GOOD)
            ech__run_clean_up(ctx, c);
        return code;
    }
    return train_as_rank(ctx, command, a, show); /* alone */
}

int ech__train_run(ech_ctx *ctx, const ech__option_result *given)
{
    const ech__train_args *a = given->args;
    if (a->run.memory) {
        const bool one = ech__strategy_row_of(a->run.parallel)->one_process ||
                         a->run.train.pipeline.ranks || !a->ranks;
        return ech__cli_memory(ctx, &a->run, one ? 1 : a->ranks);
    }
    return run_it(ctx, given->command, a, given->argv, ech__show_run);
}

int ech__bench_step_run(ech_ctx *ctx, const ech__option_result *given)
{
    ech__train_args *a = given->args;
    a->run.keep_going = true; /* times are what counts */
    return run_it(ctx, given->command, a, given->argv, ech__show_kernels);
}
