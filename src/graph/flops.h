/* Multiplications and additions of linear layers and convolutions, in all directions. */
#pragma once

#include "graph/graph.h"

/* The weight of such an operator, or the gradient of one that it makes; -1: it is another operator. */
ech_value ech__node_weight(const ech__node *node);
/* For so many samples; 0 for other operators. */
double ech__node_flops(const ech_graph *graph, const ech__node *node, int64_t batch);
/* Elements of a value, as a real number: a batch may be larger than any memory. */
double ech__value_elements(const ech_graph *graph, ech_value v, int64_t batch);
