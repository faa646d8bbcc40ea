/* echelon plan in parts: its options and what follows from them, what it measures, and what it found out. */
#pragma once

#include "cli/cli.h"
#include "cli/train/training.h"
#include "predict/advise.h"
#include "predict/capacity.h"

/* ---- options.c ---- */

enum { ECH__PLAN_MOST_ROWS = 8192 };

typedef struct ech__plan_counts {
    int64_t n[ECH__PLAN_MOST_ROWS];
    size_t count;
} ech__plan_counts;

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
    /* What follows from them. */
    ech__plan_counts counts; /* of devices, in rising order and each once */
    ech__load load;
    ech__device_spec device; /* of device_spec */
    ech__cluster cluster;    /* of --link or --cluster, or of the device's link */
} ech__plan_args;

/* The command. */
int ech__plan_run(ech_ctx *ctx, const ech__option_result *given);

/* Whether this is a rank that measures for the command that has started it. */
bool ech__plan_is_rank(const ech__plan_args *args);
/* Sorts numbers and leaves each once; returns how many are left. */
size_t ech__plan_distinct(int64_t *numbers, size_t count);
/* The run that is priced, without a batch and a limit of memory. */
ech__run_config ech__plan_config(const ech__plan_args *args);
/* The file of costs: --costs-file (NULL: not given), or the usual one. Empty: they are not kept. */
ech_status ech__plan_costs_file(ech_ctx *ctx, const char *given, char *out, size_t bytes);

/* ---- measure.c ---- */

/* What is to be measured for a command line. */
typedef struct ech__plan_measuring {
    ech_ctx *ctx;
    const ech__command *command;
    char **argv;
    const ech__plan_args *args;
    const char *key; /* of the costs */
    bool given_links;
    int beside; /* copies to measure side by side; 1: none */
} ech__plan_measuring;

/* Measures what costs does not have and keeps it, or says why it is not kept. Returns an exit code. */
int ech__plan_measure(const ech__plan_measuring *measuring, ech__costs *costs);
/* A rank that was started for it. */
int ech__plan_measure_as_rank(ech_ctx *ctx, const ech__command *command,
                              const ech__plan_args *args);

/* ---- show.c and plot.c: what was found out ---- */

typedef struct ech__plan_result {
    const ech__plan_args *args;
    const ech__run_config *config; /* that is priced, without a batch */
    ech__pricing *pricing;
    bool given_links;               /* else: this machine's memory */
    const char *costs;              /* file that the costs are kept in */
    const char *machine;            /* that the costs were measured on */
    bool exported;                  /* which is another one */
    const ech__device_spec *device; /* NULL: costs were measured */
    int beside;                     /* copies that were measured side by side; 1: none */
    ech__scaled *rows;              /* [count] */
    size_t count;
    ech__need need;         /* of the batch on one device; batch 0: it was not asked for */
    int64_t limit, largest; /* bytes of a device, and the largest batch that fits */
    ech__break_even half;
    ech__crossing crossings[ECH__MOST_CROSSINGS];
    int ncrossings;
    ech__advice advice; /* if it was asked for */
} ech__plan_result;

void ech__plan_show(const ech__plan_result *result);
ech_json *ech__plan_json(const ech__plan_result *result);
/* "resnet18", "linear 1024x2". */
const char *ech__plan_model(const ech__run_config *config, char *out, size_t bytes);

/* Efficiency over devices, with the crossings, as SVG or PNG by the end of the name. */
ech_status ech__plan_plot(ech_ctx *ctx, const ech__plan_result *result, const char *path);
