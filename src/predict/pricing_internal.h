/* What the files of pricing share: pricing.c, and one for each strategy that needs more than
 * ranks do. Inside this folder. */
#pragma once

#include "predict/memory.h"
#include "predict/operators.h"
#include "predict/pricing.h"

struct ech__pricing {
    ech_ctx *ctx;
    ech__pricing_options options;
    ech__run_config config;
    ech_graph *model; /* as it is written */
    ech_value loss;
    ech__operators alone;   /* of a device alone, or of a part of DataParallel */
    ech__operators several; /* of the number of devices that was last asked for */
    struct {
        int64_t batch;
        int micros;
    } planned; /* that they were planned for, with layers on several devices */
    ech__cluster cluster;
    ech__algorithm algorithm;
    ech__cost_points points;      /* all that were measured alone */
    ech__cost_points crowded;     /* those of them that were measured beside others, too */
    ech__machine_costs described; /* of a device that is known by description */
    ech__planned_memory memory;
    int64_t params, buckets, exchanged, largest_bucket;
};

/* How many devices share this machine's memory, as a share of those that were measured side by
 * side. */
double ech__pricing_crowding(const ech__pricing *pricing, int64_t devices);
const ech__machine_costs *ech__pricing_machine(const ech__pricing *pricing);
/* What operators are priced by. */
ech__operator_times ech__pricing_times(const ech__pricing *pricing, int64_t devices, int64_t batch,
                                       double crowding);
/* Finds the operators among those that were measured, if any were. */
ech_status ech__pricing_match(const ech__pricing *pricing, ech__operators *operators);
int64_t ech__pricing_samples(const ech__pricing *pricing, const ech__price *price);

/* Fill in the step; devices, batch, micros, and what is no operator, are set. */
ech_status ech__price_ranks(ech__pricing *pricing, ech__price *price);
ech_status ech__price_dp(ech__pricing *pricing, ech__price *price);
ech_status ech__price_layers(ech__pricing *pricing, ech__price *price);

ech_status ech__prepare_dp(ech__pricing *pricing);
