/* The time of an operator on a device that is known by description (predict/device_spec.h):
 *
 *     max(flops / (peak x efficiency), bytes / (bandwidth x efficiency)) + launch
 *
 * with flops in whole tiles on whole multiprocessors, so that an operator too small to fill the
 * device takes longer per flop. Flops, bytes and kind come from the operator as the graph has it.
 */
#pragma once

#include "graph/graph.h"
#include "predict/device_spec.h"

typedef struct ech__work {
    ech__work_kind kind;
    ech_dtype dtype;     /* of what a product multiplies */
    double flops, bytes; /* flops: of products */
    bool launched;       /* false: nothing is done, such as for a view of the same memory */
} ech__work;

/* Of a node that one device executes, for so many samples. */
ech__work ech__node_work(const ech_graph *graph, const ech__node *node, int64_t batch);

/* Which end of the figures that are given as [low, high]: the geometric mean, or those that make it
 * fastest or slowest. */
typedef enum ech__roofline_end {
    ECH__ROOFLINE_MIDDLE,
    ECH__ROOFLINE_FAST,
    ECH__ROOFLINE_SLOW,
} ech__roofline_end;

double ech__roofline_seconds(const ech__device_spec *spec, const ech__work *work,
                             ech__roofline_end end);
/* What adding up so many bytes takes of the device itself, on each of so many. */
double ech__roofline_sum(const ech__device_spec *spec, int64_t bytes, int64_t devices,
                         ech__roofline_end end);
/* What the host takes for an operator: a step takes no less than that of all of its operators. */
double ech__roofline_host(const ech__device_spec *spec, ech__roofline_end end);
