/* The options of echelon train and echelon bench step. */
#pragma once

#include "cli/cli.h"
#include "cli/train/training.h"
#include "predict/pricing.h"

typedef struct ech__train_args {
    ech__run_config run; /* first: the rows of options store there */
    int ranks;           /* of a launcher: devices, or groups of --mp; 0: not given */
} ech__train_args;

/* The commands. */
int ech__train_run(ech_ctx *ctx, const ech__command *command, const ech__option_result *given);
int ech__bench_step_run(ech_ctx *ctx, const ech__command *command, const ech__option_result *given);

/* Checks options that were parsed, and adds what follows from them. The links of the virtual clock are those of
 * --cluster or --link, or of this machine as measured. */
ech_status ech__train_settle(ech_ctx *ctx, const ech__command *command,
                             const ech__option_result *given);

/* ---- groups.c ---- */

/* How many devices have the layers of one model, how many such groups there are, and their micro-batches: fills in
 * run.train.pipeline and ranks. */
ech_status ech__train_find_groups(ech_ctx *ctx, ech__train_args *args);
/* Refuses options that the strategy does not support (parallel/strategy.h). */
ech_status ech__train_check_strategy(ech_ctx *ctx, const ech__command *command,
                                     const ech__option_result *result, const ech__train_args *args);

/* ---- precision.c ---- */

/* Refuses options of precision that do not go together. A loss scale of 0 becomes none. */
ech_status ech__precision_check(ech_ctx *ctx, const ech__command *command,
                                const ech__option_result *result, ech__run_config *config);
