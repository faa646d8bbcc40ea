/* What echelon plan found out, for those that show it. */
#pragma once

#include "predict/advise.h"
#include "predict/capacity.h"

typedef struct ech__plan_result {
    const ech__run_config *config;
    ech__strategy strategy;
    ech__pricing *pricing;
    ech__load load;
    bool given_links;               /* else: this machine's memory */
    const char *costs;              /* file that the costs are kept in */
    const char *machine;            /* that the costs were measured on */
    bool exported;                  /* which is another one */
    double device_speed;            /* by which they were scaled */
    const ech__device_spec *device; /* NULL: costs were measured */
    const char *device_file;
    int beside;        /* copies that were measured side by side; 1: none */
    ech__scaled *rows; /* [count] */
    size_t count;
    ech__need need;         /* of the batch on one device; batch 0: it was not asked for */
    int64_t limit, largest; /* bytes of a device, and the largest batch that fits */
    ech__break_even half;
    ech__crossing crossings[ECH__MOST_CROSSINGS];
    int ncrossings;
    bool advised;
    double efficiency; /* that was asked for */
    ech__advice advice;
} ech__plan_result;

void ech__plan_show(const ech__plan_result *result);
ech_json *ech__plan_json(const ech__plan_result *result);
/* "resnet18", "linear 1024x2". */
const char *ech__plan_model(const ech__run_config *config, char *out, size_t bytes);

/* Efficiency over devices, with the crossings, as SVG or PNG by the end of the name (plan_plot.c). */
ech_status ech__plan_plot(ech_ctx *ctx, const ech__plan_result *result, const char *path);
