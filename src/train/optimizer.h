/* Optimizers as a pass: for every parameter with a gradient, its state and an update operator. The rules are
 * PyTorch's; the numbers that change from step to step come to the operators as scalars. */
#ifndef ECH_TRAIN_OPTIMIZER_H
#define ECH_TRAIN_OPTIMIZER_H

#include "graph/graph.h"

/* After ech__autodiff. */
ech_status ech__optimize(ech_graph *graph, const ech_train_options *options);

#endif
