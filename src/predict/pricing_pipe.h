/* Prices of a model whose layers are on several devices, from the times of its operators. Private to pricing.c. */
#ifndef ECH_PREDICT_PRICING_PIPE_H
#define ECH_PREDICT_PRICING_PIPE_H

#include "parallel/pipe/order.h"
#include "predict/pricing.h"

typedef struct ech__spread {
    const ech__run_config *config;
    const ech_graph *model;    /* as it is written */
    const ech_graph *graph;    /* the training on one device */
    ech__layers *layers;       /* of it; their devices are filled in */
    const ech__priced_op *ops; /* times of a micro-batch, in the order of the graph's operators */
    const ech__cluster
        *links; /* NULL: devices of this machine, which fetch from each other's memory */
    const ech__machine_costs *machine;
} ech__spread;

/* Fills in the step, the bubble and the time of waiting; devices, batch and micros are set. Every
 * micro-batch but the first adds its gradients up, at the price per array that the update has. */
ech_status ech__price_spread(ech_ctx *ctx, const ech__spread *spread, ech__price *price);

#endif
