/* Optimizers: a table, and a pass that adds for every parameter with a gradient its states and an
 * update operator. The rules are PyTorch's; the numbers that change from step to step come to the
 * operators as scalars.
 *
 * A new optimizer is a member of ECH_OPTIMIZER_LIST, a row in optimizer.c and, unless it shares
 * one, an update operator. */
#pragma once

#include "graph/graph.h"

enum { ECH__OPTIMIZER_STATES = 2 };

typedef struct ech__optimizer {
    ech__op op; /* of the update */
    const char *states
        [ECH__OPTIMIZER_STATES]; /* names of what it keeps for each parameter; NULL: no more */
    bool has_momentum; /* and nesterov; its states are kept only where the momentum is above 0 */
    bool has_betas;    /* and epsilon */
    bool decoupled;    /* weight decay acts on the parameter, not on the gradient */
} ech__optimizer;

const ech__optimizer *ech__optimizer_of(ech_optimizer kind);
const char *ech__optimizer_name(ech_optimizer kind);
/* Arrays of a parameter's size that the update keeps from step to step. */
int ech__optimizer_states(const ech_train_options *options);

/* After ech__autodiff. */
ech_status ech__optimize(ech_graph *graph, const ech_train_options *options);
