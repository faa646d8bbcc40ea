/* The price of a training on N devices, from what a step costs on one (price/costs.h) and the links between them
 * (price/cluster.h). Nothing is run.
 *
 *     ech__pricing *p;
 *     ECH_TRY(ech__pricing_create(ctx, &(ech__pricing_options){.config = &config, .costs = costs, ...}, &p));
 *     ech__price price;
 *     ECH_TRY(ech__pricing_at(p, 64, 64 * 32, &price));     64 devices, 32 samples each
 *     ech__pricing_destroy(p);
 *
 * The graph is the one that would be trained: the same passes, the same buckets. Each operator takes its time at the device's
 * part of the batch (predict/points.h). With links that are given every device has memory of its own;
 * without, the devices share this machine's, and operators take longer: alone + (beside K others - alone) (N - 1)/(K - 1) up to
 * the K devices that were measured side by side, and no longer than that beyond them.
 *
 * A step of several micro-steps is that of its last, whose gradients are exchanged, and as many forward and backward passes
 * before it as there are others, each with the time of adding up gradients.
 *
 * A way of going parallel is a row in pricing.c: what it prepares, and how it puts a step on the timeline.
 */
#pragma once

#include "parallel/strategy.h"
#include "predict/device_spec.h"
#include "predict/measure.h"
#include "price/timeline.h"

/* Samples that an operator sees on one of so many devices: its part of the step's, or those of a micro-batch. */
int64_t ech__strategy_batch(ech__strategy strategy, const ech__run_config *config, int64_t devices,
                            int64_t global);

/* Micro-batches of a pipeline; else 1. */
int ech__strategy_micros(ech__strategy strategy, const ech__run_config *config, int64_t devices,
                         int64_t global);

typedef struct ech__pricing_options {
    const ech__run_config *config; /* the model and how it is trained; the batch is not looked at */
    ech__strategy strategy;
    const ech__costs *costs;
    bool sped_up;                   /* times of the costs are not those that were measured */
    const ech__device_spec *device; /* in place of costs, with a cluster; NULL: costs */
    const ech__cluster *cluster;    /* NULL: devices of this machine, with its links as measured */
    ech__algorithm algorithm;       /* with a cluster */
    int beside; /* without: copies that were measured side by side; 1: none were */
} ech__pricing_options;

typedef struct ech__price {
    int64_t devices, batch, global; /* batch: of the device with most samples */
    bool measured;                  /* it is the step that was measured */
    bool between;                   /* the batch was not measured itself */
    double extrapolated;            /* factor beyond the measured batches; 1: it is not */
    int64_t from;                   /* the measured batch nearest to it; 0: not extrapolated */
    ech__priced_step step;          /* step_s = compute_s + exposed_s + wait_s + other_s */
    double low_s, high_s;           /* where step_s may lie (docs/pricing.md) */
    double overhead_s;              /* launching and what else is no operator, and waiting */
    double wait_s;                  /* for the slowest device, or the others that have layers */
    double other_s;                 /* what is none of the parts above */
    double loading_s;               /* of samples, not in the step */
    double samples_per_s;
    double bubble;            /* of a pipeline: idle share of its devices until it is empty */
    int micros;               /* micro-batches; 1: no pipeline */
    ech__algorithm algorithm; /* of the largest bucket */
} ech__price;

typedef struct ech__pricing ech__pricing;

/* Fails where the costs of no batch are known. Options and what they point to are borrowed. */
ech_status ech__pricing_create(ech_ctx *ctx, const ech__pricing_options *options,
                               ech__pricing **out);
void ech__pricing_destroy(ech__pricing *pricing);
/* global: samples of a micro-step over all devices, at least as many as there are devices that share them; a step has
 * config.train.accum of them, which the price is of. */
ech_status ech__pricing_at(ech__pricing *pricing, int64_t devices, int64_t global, ech__price *out);

/* Bytes of the device that needs most, from the plan of that batch (predict/capacity.h). */
ech_status ech__pricing_memory(ech__pricing *pricing, int64_t devices, int64_t global,
                               int64_t *out);

/* The links that are counted with, and how an all-reduce goes over them. */
const ech__cluster *ech__pricing_cluster(const ech__pricing *pricing);
ech__algorithm ech__pricing_algorithm(const ech__pricing *pricing);
/* Copies whose costs side by side are counted with; 1: contention for memory is not. */
int ech__pricing_beside(const ech__pricing *pricing);
/* Most devices that can be priced, and the batches per device whose costs are known, from small to large. */
int64_t ech__pricing_most(const ech__pricing *pricing);
int ech__pricing_batches(const ech__pricing *pricing, int64_t *out, int max);
int64_t ech__pricing_params(const ech__pricing *pricing);
/* Bytes that are exchanged for a parameter update, on one device. */
int64_t ech__pricing_exchanged(const ech__pricing *pricing);

/* Whether the layers of the model can be spread over so many devices: what is wrong is said before anything is measured. */
ech_status ech__pricing_check_layers(ech_ctx *ctx, const ech__run_config *config, int64_t devices);

/* The configuration whose costs are to be measured for a strategy on one device. */
ech__run_config ech__pricing_single(const ech__run_config *config, ech__strategy strategy,
                                    int64_t batch);
