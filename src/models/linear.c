#include "models/internal.h"

#include <stdio.h>

ech_value ech__linear_stack(ech_graph *graph, int64_t dim, int64_t depth)
{
    const int64_t dims[] = {ECH_BATCH, dim}; /* [N, D] */
    ech_value h = ech_input(graph, "x", ECH_F32, 2, dims);
    const ech_value target = ech_input(graph, "y", ECH_F32, 2, dims);
    for (int64_t k = 0; k < depth; k++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%lld", (long long)k);
        h = ech_relu(graph, ech_linear(graph, name, h, dim, true));
    }
    return ech_mse(graph, h, target);
}
