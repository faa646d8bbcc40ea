/* The models that come with Echelon: functions that write themselves into a graph. */
#ifndef ECH_MODELS_MODELS_H
#define ECH_MODELS_MODELS_H

#include "graph/graph.h"

/* The linear stack: depth times Linear(dim, dim) and ReLU, on inputs "x" and "y" of shape [N, dim], with the
 * mean-squared error as its loss. Parameters layers.K.weight and layers.K.bias. Returns the loss. */
ech_value ech__model_linear(ech_graph *graph, int64_t dim, int64_t depth);

#endif
