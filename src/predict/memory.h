/* The memory of a device at any batch, from the plan that would be run. Inside this folder, for pricing.c. */
#pragma once

#include "predict/pricing.h"

enum { ECH__MOST_PLANNED = 64 };

/* Plans are cheap, but not free: the last answers are kept. */
typedef struct ech__planned_memory {
    const ech__run_config *config;
    ech__strategy strategy;
    struct {
        int64_t devices, samples, bytes; /* devices 0: none yet */
    } kept[ECH__MOST_PLANNED];
    size_t count; /* that were ever planned */
} ech__planned_memory;

/* Of the device that needs most; global as in ech__pricing_at. */
ech_status ech__planned_memory_at(ech_ctx *ctx, ech__planned_memory *memory, int64_t devices,
                                  int64_t global, int64_t *out);
