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
int ech__train_run(ech_ctx *ctx, const ech__option_result *given);
int ech__bench_step_run(ech_ctx *ctx, const ech__option_result *given);

/* Checks options that were parsed, and adds what follows from them. The links of the virtual clock are those of
 * --cluster or --link, or of this machine as measured. */
ech_status ech__train_settle(ech_ctx *ctx, const ech__option_result *given);
