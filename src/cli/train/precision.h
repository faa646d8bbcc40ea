/* Mixed precision and gradients on the command line: what follows from --amp, --loss-scale, --clip-norm and --grad-dtype. */
#ifndef ECH_CLI_TRAIN_PRECISION_H
#define ECH_CLI_TRAIN_PRECISION_H

#include "cli/train/options.h"

/* Fills in the loss scale, and refuses what does not go together. */
ech_status ech__precision_find(ech_ctx *ctx, ech__train_args *args);

#endif
