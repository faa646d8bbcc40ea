/* Checks of options that echelon train, bench step, plan and graph share. */
#pragma once

#include "train/options.h"

/* The .defaults of these commands, whose args begin with an ech__run_config. */
void ech__training_defaults(void *args);
/* What the options ask of a strategy, as far as all of these commands have them. */
unsigned ech__training_asked(const ech__run_config *config, ech__strategy strategy);
/* Refuses --batch-size with --global-batch, --link with --cluster, and --momentum with an optimizer that has none. */
ech_status ech__training_check(ech_ctx *ctx, const ech__run_config *config);
/* Devices of a node, where links are given without nodes. */
int64_t ech__training_node_size(const ech__run_config *config);
