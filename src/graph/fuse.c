/* Fusion: what one kernel can do becomes one operator. */
#include "graph/graph.h"

#include <string.h>

/* The only node that uses value, or NULL when there is none or more than one. */
static ech__node *only_user(ech_graph *graph, ech_value value)
{
    ech__node *found = NULL;
    for (size_t n = 0; n < graph->nnodes; n++) {
        for (int i = 0; i < graph->nodes[n].nin; i++) {
            if (graph->nodes[n].in[i] != value)
                continue;
            if (found)
                return NULL;
            found = &graph->nodes[n];
        }
    }
    return found;
}

static void remove_node(ech_graph *graph, const ech__node *node)
{
    const size_t at = (size_t)(node - graph->nodes);
    memmove(graph->nodes + at, graph->nodes + at + 1,
            (graph->nnodes - at - 1) * sizeof *graph->nodes);
    graph->nnodes--;
}

/* Makes node give what its user gave, and drops the user. */
static void absorb(ech_graph *graph, ech__node *node, const ech__node *user)
{
    node->out[0] = user->out[0];
    remove_node(graph, user);
}

static void fuse_linear(ech_graph *graph, ech__node *linear)
{
    ech__node *user = only_user(graph, linear->out[0]);
    if (user && user->op == ECH__OP_ADD && linear->nin == 2 && user->in[0] == linear->out[0]) {
        const ech__value *b = &graph->values[user->in[1]];
        if (b->kind == ECH__VALUE_PARAM && b->type.shape.ndims == 1) {
            linear->in[linear->nin++] = user->in[1];
            absorb(graph, linear, user);
            user = only_user(graph, linear->out[0]);
        }
    }
    if (user && user->op == ECH__OP_RELU) {
        linear->attrs.relu = true;
        absorb(graph, linear, user);
    }
}

ech_status ech__fuse(ech_graph *graph)
{
    ECH_TRY(graph->status);
    for (size_t n = 0; n < graph->nnodes; n++) {
        if (graph->nodes[n].op == ECH__OP_LINEAR)
            fuse_linear(graph, &graph->nodes[n]);
    }
    return ECH_OK;
}
