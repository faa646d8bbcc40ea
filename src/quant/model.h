/* A trained network for evaluation: from its input to its prediction, with batch norms folded into
 * the convolutions before them, and its weights.
 *
 *     ech__qmodel m;
 *     ECH_TRY(ech__qmodel_init(&m, trainer, prediction));
 *     m.graph                 every operator by itself, so that what is before a ReLU can be seen
 *     m.fused                 the same as it runs: biases and ReLUs inside layers
 *     ech__qmodel_fini(&m);
 *
 * Values have the same numbers in the model of the trainer and in both graphs.
 */
#pragma once

#include "graph/graph.h"
#include "quant/tensors.h"

typedef struct ech__qmodel {
    ech_ctx *ctx;
    ech_graph *graph, *fused;
    ech_value input, output;
    ech__tensors weights; /* of the folded graph */
} ech__qmodel;

/* Fails if the prediction takes more than one input, if a batch norm has no convolution of its own
 * before it, and if a weight is not finite. */
ech_status ech__qmodel_init(ech__qmodel *model, ech_trainer *trainer, ech_value prediction);
/* From a graph and tensors under the names of its parameters, which are copied. */
ech_status ech__qmodel_from(ech__qmodel *model, const ech_graph *graph, ech_value prediction,
                            const ech__tensors *weights);
/* The graph alone, without weights: for a file that holds them in int8. */
ech_status ech__qmodel_bare(ech__qmodel *model, const ech_graph *graph, ech_value prediction);
void ech__qmodel_fini(ech__qmodel *model);

/* The value that the loss of a graph takes as its prediction; negative where there is no such loss. */
ech_value ech__prediction_of(const ech_graph *graph, ech_value loss);

/* The node that makes a value, or NULL. */
const ech__node *ech__maker_of(const ech_graph *graph, ech_value value);
/* Whether it is a linear layer or a convolution with parameters of its own: what is quantized. */
bool ech__is_layer(const ech_graph *graph, const ech__node *node);

/* ---- fold.c ---- */

/* Takes the batch norms out of an evaluation graph: their factors go into the weights of the convolutions before them,
 * which get a bias. Before ech__fuse. weights may be NULL: then only the graph is rewritten. */
ech_status ech__fold_norms(ech_graph *graph, ech__tensors *weights);
