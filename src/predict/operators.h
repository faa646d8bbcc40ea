/* The operators of a training step on N devices: those of the graphs that would be run
 * (train/step/graphs.h), each with what it takes and the bytes that it moves. Inside this folder,
 * for the files of pricing.
 *
 *     ECH_TRY(ech__operators_of_ranks(model, loss, &options, &operators));
 *     ECH_TRY(ech__operators_match(&operators, measured));   finds each among those measured
 *     ech__operators_time(&operators.at[0], &times);         fills in the prices of one graph
 *
 * An operator that a device alone has takes what was measured. The others have prices of their own:
 * a delay takes what it says; conversions and messages go by their bytes; sums of gradients by the
 * measured updates of their parameters, of which a bucket with a sharded update takes an N-th. On a
 * device that is known by description nothing was measured, and roofline.h prices every operator.
 */
#pragma once

#include "predict/points.h"
#include "predict/roofline.h"
#include "price/timeline.h"
#include "train/step/graphs.h"

/* A graph that is run on a device. */
typedef struct ech__operator_list {
    ech_graph *graph;
    int device, role;
    unsigned phases;     /* ECH__PHASE_BIT of those that are run in a step */
    ech__priced_op *ops; /* [graph->nnodes] */
    int64_t
        *bytes; /* [graph->nnodes] that an exchange or a message has; of one sample for messages */
    int *measured; /* [graph->nnodes] which of the measured operators it is; -1: none */
    int *updates;  /* [graph->nvalues] of a parameter: which of the measured operators updates it */
} ech__operator_list;

typedef struct ech__operators {
    ech__operator_list *at; /* by device, and then by role */
    int count;
    int roles;              /* of each device */
    int64_t devices;        /* that they were built for; 0: nothing is here */
    ech__split_model split; /* DataParallel */
    ech_trainer *planned;   /* mp and pipeline: has the graphs */
    ech_ctx *ctx;
    ech__arena arena;
} ech__operators;

void ech__operators_init(ech__operators *operators, ech_ctx *ctx);
/* Empty again. */
void ech__operators_fini(ech__operators *operators);

/* The same on every rank. */
ech_status ech__operators_of_ranks(const ech_graph *model, ech_value loss,
                                   const ech__graphs_options *options, ech__operators *out);
/* The body, on device 0 and on any of the others; the head, whose price is that of a phase,
 * stays in split. */
ech_status ech__operators_of_split(const ech_graph *model, ech_value loss,
                                   const ech__graphs_options *options, ech__operators *out);
/* Those of a trainer that is planned, which it takes over, also where it fails: with the kernels it is
 * decided whether an operator adds to a gradient by itself. */
ech_status ech__operators_of_layers(ech_trainer *planned, ech__operators *out);

/* Fails where one of them was not measured that should have been. */
ech_status ech__operators_match(ech__operators *operators, const ech__step_cost *measured);

typedef struct ech__operator_times {
    const ech__cost_points *alone, *crowded;
    double crowding; /* how much of the additional time in a crowd counts */
    int64_t devices, batch;
    const ech_train_options *train;
    const ech__machine_costs *machine;
    const ech__device_spec *device; /* prices all of them instead; NULL: they were measured */
    ech__roofline_end end;          /* of its figures */
} ech__operator_times;

/* Prices of one list, at a batch. */
void ech__operators_time(ech__operator_list *list, const ech__operator_times *times);

/* Seconds of all operators of a kind that are run in a step. */
double ech__operators_sum(const ech__operator_list *list, ech__priced_kind kind);
int64_t ech__value_bytes(const ech_graph *graph, ech_value v);
