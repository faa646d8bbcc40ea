#include "graph/flops.h"

/* The weight, and what has an element for each use of a row of it. */
typedef struct product {
    ech_value weight, uses;
} product;

static product product_of(const ech__node *node)
{
    switch (node->op) {
    case ECH__OP_LINEAR:
    case ECH__OP_CONV2D:
    case ECH__OP_QLINEAR:
    case ECH__OP_QCONV2D:
        return (product){node->in[1], node->out[0]};
    case ECH__OP_LINEAR_BWD_DATA:
    case ECH__OP_CONV2D_BWD_DATA:
        return (product){node->in[1], node->in[0]};
    case ECH__OP_LINEAR_BWD_WEIGHTS:
    case ECH__OP_CONV2D_BWD_WEIGHTS:
        return (product){node->out[0], node->in[1]};
    case ECH__OP_LINEAR_ADD_WEIGHTS:
        return (product){node->in[2], node->in[1]};
    default:
        return (product){-1, -1};
    }
}

ech_value ech__node_weight(const ech__node *node)
{
    return product_of(node).weight;
}

double ech__value_elements(const ech_graph *graph, ech_value v, int64_t batch)
{
    const ech__shape *shape = &graph->values[v].type.shape;
    double elements = 1;
    for (int d = 0; d < shape->ndims; d++)
        elements *= shape->dims[d] == ECH_BATCH ? (double)batch : (double)shape->dims[d];
    return elements;
}

double ech__node_flops(const ech_graph *graph, const ech__node *node, int64_t batch)
{
    const product p = product_of(node);
    if (p.weight < 0)
        return 0;
    const double rows = (double)graph->values[p.weight].type.shape.dims[0];
    return 2 * ech__value_elements(graph, p.uses, batch) *
           ech__value_elements(graph, p.weight, batch) / rows;
}
