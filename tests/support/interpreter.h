/* Runs a graph node by node on row-major memory: no plan, no reuse, nothing clever. For gradient checks and
 * for tests of passes.
 *
 *     interpreter it;
 *     interpreter_init(&it, graph, batch, device);
 *     interpreter_fill(&it, 1, 10);                      random inputs and parameters
 *     interpreter_run(&it, ECH__PHASE_FORWARD);          up to and with this phase
 *     double loss = interpreter_get(&it, graph->loss, 0);
 *     interpreter_fini(&it);
 */
#pragma once

#include "device/device.h"
#include "graph/graph.h"
#include "support/cmocka_first.h"

typedef struct interpreter {
    const ech_graph *graph; /* borrowed; must not change */
    ech__device *device;    /* borrowed */
    int64_t batch;
    void **memory;         /* [nvalues] */
    int64_t *elems;        /* [nvalues] */
    ech__kernel **kernels; /* [nnodes] */
    ech__scalars scalars;
} interpreter;

void interpreter_init(interpreter *it, const ech_graph *graph, int64_t batch, ech__device *device);
void interpreter_fini(interpreter *it);

/* Inputs and parameters uniform in [-1, 1); labels below classes. */
void interpreter_fill(interpreter *it, uint64_t seed, int classes);
void interpreter_run(interpreter *it, ech__phase last);

double interpreter_get(const interpreter *it, ech_value value, int64_t at);
void interpreter_set(interpreter *it, ech_value value, int64_t at, double to);

/* Fails the test unless the gradient of each parameter is the central difference of the loss. The graph
 * must be in f64 and have its backward operators. Returns how many entries were compared. */
int interpreter_check_gradients(interpreter *it);
