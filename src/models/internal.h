/* The bodies of the models. Private to this folder. */
#pragma once

#include "graph/graph.h"

/* Makes its own inputs "x" and "y" [N, dim]; returns the loss. Parameters layers.K.weight and layers.K.bias. */
ech_value ech__linear_stack(ech_graph *graph, int64_t dim, int64_t depth);

/* x[N,3,32,32] -> logits[N,10]. Parameters conv1 conv2 fc1 fc2 fc3. */
ech_value ech__lenet(ech_graph *graph, ech_value x);

/* A stage s has width * 2^s channels, and all but the first halve the image. */
typedef struct ech__resnet {
    int64_t width;
    int stages, blocks; /* blocks of a stage */
} ech__resnet;

/* x[N,3,32,32] -> logits[N,10]. Parameters conv1 bn1 layerL.B.{conv1,bn1,conv2,bn2,shortcut.0,shortcut.1} linear. */
ech_value ech__resnet_of(ech_graph *graph, ech_value x, const ech__resnet *shape);
