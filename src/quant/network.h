/* A forward pass, ready to run: a graph, its weights and a plan on a device, for batches of a fixed size.
 *
 *     ech__network *net;
 *     ECH_TRY(ech__network_create(graph, output, &weights, &options, &net));
 *     ECH_TRY(ech__network_run(net, x, count, y));        at most a batch; y [count, outputs]
 *     ech__network_destroy(net);
 *
 * Graph and device are borrowed and must outlive it; the weights are copied.
 */
#pragma once

#include "device/device.h"
#include "plan/plan.h"
#include "quant/tensors.h"

typedef struct ech__network_options {
    ech__device *device;
    ech__tuning *tuning; /* NULL: the device's preferred kernels */
    int64_t batch;
} ech__network_options;

typedef struct ech__network {
    ech_ctx *ctx;
    const ech_graph *graph;
    ech_value input, output;
    int64_t batch, in_elems, out_elems; /* elements of one sample */
    ech__plan *plan;
    ech__exec *exec;
    float *padded;  /* [batch * in_elems] for a batch that is not full; NULL until then */
    int64_t run_ns; /* of the last run: the operators, without copying in and out */
} ech__network;

/* The graph has one input that the output depends on; weights hold a tensor for each of its parameters and buffers. */
ech_status ech__network_create(const ech_graph *graph, ech_value output,
                               const ech__tensors *weights, const ech__network_options *options,
                               ech__network **out);
void ech__network_destroy(ech__network *network);

/* x[count, ...] and y[count, ...], row-major f32. y may be NULL. */
ech_status ech__network_run(ech__network *network, const float *x, int64_t count, float *y);

/* The first count samples of a value that is kept, after a run: row-major, of the value's type. */
ech_status ech__network_read(const ech__network *network, ech_value value, int64_t count,
                             void *data);
/* Elements of one sample of a value. */
int64_t ech__network_elems(const ech__network *network, ech_value value);

/* Seconds of one batch; the input is what is there. */
ech_status ech__network_again(ech__network *network, double *seconds);
/* Of runs batches, after one that warms up. */
ech_status ech__network_time(ech__network *network, int runs, double *samples);
