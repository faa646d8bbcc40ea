/* The options of echelon plan, and what follows from them. */
#ifndef ECH_CLI_PLAN_OPTIONS_H
#define ECH_CLI_PLAN_OPTIONS_H

#include "cli/cli.h"
#include "cli/plan.h"

typedef struct ech__plan_args {
    int model, optimizer, parallel, algorithm, tune, recompute, separate_update, amp, grad_dtype;
    int64_t dim, depth, batch, global, accum, threads, measure_batch, device_memory;
    double momentum, weight_decay, bucket_mb, efficiency, seconds;
    bool measure, advise, json, measure_link, measure_copies;
    const char *devices, *link, *cluster, *costs_file, *tuning_file, *plot, *fit, *placement;
    int64_t micro_batches;
    int pipeline;
} ech__plan_args;

enum { ECH__PLAN_MOST_ROWS = 8192, ECH__PLAN_MOST_DEVICES = 1000000 };

typedef struct ech__plan_counts {
    int64_t n[ECH__PLAN_MOST_ROWS];
    size_t count;
} ech__plan_counts;

/* The training that is priced. */
ech__run_config ech__plan_config(const ech__plan_args *args);

/* Numbers and ranges, "1,2,8-16", in rising order and each once. */
ech_status ech__plan_devices(ech_ctx *ctx, const char *text, ech__plan_counts *out);

/* Sorts numbers and leaves each once; returns how many are left. */
size_t ech__plan_distinct(int64_t *numbers, size_t count);

/* Refuses what does not go together. */
ech_status ech__plan_check(ech_ctx *ctx, const ech__plan_args *args, const ech__load *load,
                           const ech__plan_counts *devices);

/* The cluster of --link or --cluster; this machine's memory has none. */
ech_status ech__plan_links(ech_ctx *ctx, const ech__plan_args *args,
                           const ech__plan_counts *devices, ech__cluster *out);

#endif
