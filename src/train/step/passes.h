/* The passes of a training run, in their one order. Training, evaluation, emulation and prediction
 * build their graphs here, so what is priced is what runs.
 *
 *     fuse                                        ech__passes_forward
 *     (layers are placed on devices here)         parallel/place.h
 *     autodiff, recompute, autocast               ech__passes_backward
 *     (the graph is cut into those of devices)    parallel/place.h
 *     accumulate, exchange, check, optimize,      ech__passes_step
 *     sharded update, delay, copies
 *
 *     ECH_TRY(ech__passes_forward(graph));
 *     ECH_TRY(ech__passes_backward(graph, (ech__backward_from){loss, -1}, options));
 *     ECH_TRY(ech__passes_step(graph, &(ech__step_passes){.train = options, .updates = true}));
 */
#pragma once

#include "graph/graph.h"
#include "parallel/ddp/ddp.h"

ech_status ech__passes_forward(ech_graph *graph);

/* Where the backward pass starts: at the loss, or at a value whose gradient is an input. */
typedef struct ech__backward_from {
    ech_value value;
    ech_value grad; /* -1: value is the loss */
} ech__backward_from;

ech_status ech__passes_backward(ech_graph *graph, ech__backward_from from,
                                const ech_train_options *options);

typedef struct ech__step_passes {
    const ech_train_options *train;
    const ech__accumulation *accumulation; /* NULL: gradients are written, not added */
    const ech__ddp_options *exchange;      /* NULL: there are no other ranks */
    bool checks;                           /* gradients are checked before they are used */
    bool updates;                          /* false: a micro-step that only adds */
    bool sharded_update;                   /* a rank updates its shard of the parameters for all */
    double delay_s;                        /* idle time before the backward pass */
} ech__step_passes;

ech_status ech__passes_step(ech_graph *graph, const ech__step_passes *passes);

/* The forward pass alone, by running statistics: up to where layers would be placed, up to where
 * the graph would be cut, and the rest. */
ech_status ech__passes_infer(ech_graph *graph);
ech_status ech__passes_infer_cast(ech_graph *graph, ech_amp amp);
ech_status ech__passes_infer_end(ech_graph *graph);
