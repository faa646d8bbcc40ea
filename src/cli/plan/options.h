/* The options of echelon plan, and what follows from them. */
#pragma once

#include "cli/cli.h"
#include "cli/plan/plan.h"
#include "cli/train/training.h"

typedef struct ech__plan_args {
    ech__run_config run; /* that is priced; first: the rows of options store there */
    const char *devices;
    bool measure, measure_link, measure_copies;
    int64_t measure_batch;
    double seconds, device_speed;
    const char *costs_file, *measure_file, *device_spec;
    bool advise;
    double efficiency;
    const char *memory, *plot;
} ech__plan_args;

enum { ECH__PLAN_MOST_ROWS = 8192, ECH__PLAN_MOST_DEVICES = 1000000 };

typedef struct ech__plan_counts {
    int64_t n[ECH__PLAN_MOST_ROWS];
    size_t count;
} ech__plan_counts;

/* The command. */
int ech__plan_run(ech_ctx *ctx, const ech__command *command, const ech__option_result *given);

/* Numbers and ranges, "1,2,8-16", in rising order and each once. */
ech_status ech__plan_devices(ech_ctx *ctx, const char *text, ech__plan_counts *out);

/* Sorts numbers and leaves each once; returns how many are left. */
size_t ech__plan_distinct(int64_t *numbers, size_t count);

/* The run that is priced, without a batch and a limit of memory. */
ech__run_config ech__plan_config(const ech__plan_args *args);

/* The file of costs: --costs-file (NULL: not given), or the usual one. Empty: they are not kept. */
ech_status ech__plan_costs_file(ech_ctx *ctx, const char *given, char *out, size_t bytes);

/* Refuses what does not go together. */
ech_status ech__plan_check(ech_ctx *ctx, const ech__plan_args *args, const ech__load *load,
                           const ech__plan_counts *devices);

/* The cluster of --link or --cluster, or of a device's link; this machine's memory has none. */
ech_status ech__plan_links(ech_ctx *ctx, const ech__plan_args *args,
                           const ech__plan_counts *devices, const ech__device_spec *device,
                           ech__cluster *out);

/* What is to be measured for a command line (plan_measure.c). */
typedef struct ech__plan_measuring {
    ech_ctx *ctx;
    const ech__command *command;
    char **argv;
    const ech__plan_args *args;
    const ech__load *load;
    const ech__plan_counts *devices;
    const char *key;                /* of the costs */
    const ech__device_spec *device; /* in place of costs; NULL: none is described */
    bool given_links;
    int beside; /* copies to measure side by side; 1: none */
} ech__plan_measuring;

/* Measures what costs does not have and keeps it, or says why it is not kept. Returns an exit code. */
int ech__plan_measure(const ech__plan_measuring *measuring, ech__costs *costs);
/* A rank that was started for it. */
int ech__plan_measure_as_rank(ech_ctx *ctx, const ech__command *command,
                              const ech__plan_args *args);
