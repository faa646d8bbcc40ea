/* What --memory prints: the memory of batches by kind, and the largest batch that fits. */
#pragma once

#include "base/option/option.h"
#include "predict/capacity.h"

/* echelon train --memory: the batch of the configuration. Fails where it does not fit. */
ech_status ech__cli_memory(ech_ctx *ctx, const ech__run_config *config, int devices);

/* echelon plan --memory LIST: a row for each batch of a list such as "32,128,512". As the run of a command. */
int ech__cli_memory_list(ech_ctx *ctx, const ech__command *command, const ech__run_config *config,
                         const char *list, bool json);

/* Memory by kind, as members of an object. */
void ech__need_json(ech_json **json, const ech__need *need);
/* One line for each kind. */
void ech__show_need(const ech__need *need);
/* "the largest batch that fits 48.0 GB is 7557". */
void ech__show_largest(int64_t limit, int64_t largest);
