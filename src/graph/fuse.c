/* Fusion: what one kernel can do becomes one operator. */
#include "graph/graph.h"

#include <string.h>

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

static void absorb_relu(ech_graph *graph, ech__node *node)
{
    ech__node *user = ech__only_user(graph, node->out[0]);
    if (!user || user->op != ECH__OP_RELU)
        return;
    node->attrs.relu = true;
    absorb(graph, node, user);
}

static void absorb_bias(ech_graph *graph, ech__node *linear)
{
    ech__node *user = ech__only_user(graph, linear->out[0]);
    if (!user || user->op != ECH__OP_ADD || linear->nin != 2 || user->in[0] != linear->out[0])
        return;
    const ech__value *b = &graph->values[user->in[1]];
    if (b->kind != ECH__VALUE_PARAM || b->type.shape.ndims != 1)
        return;
    linear->in[linear->nin++] = user->in[1];
    absorb(graph, linear, user);
}

/* Turns "a normalised image plus another" into the normalisation of the first with the other as residual. It
 * takes the place of the sum, where both are there. */
static bool absorb_residual(ech_graph *graph, ech__node *sum, int which)
{
    ech__node *norm = ech__graph_maker(graph, sum->in[which]);
    if (!norm || norm->op != ECH__OP_BN_APPLY || norm->nin != 5 || norm->attrs.relu ||
        sum->in[0] == sum->in[1] || ech__only_user(graph, norm->out[0]) != sum ||
        !ech__shape_equal(&graph->values[sum->in[0]].type.shape,
                          &graph->values[sum->in[1]].type.shape))
        return false;
    ech__node fused = *norm;
    fused.in[fused.nin++] = sum->in[1 - which];
    fused.out[0] = sum->out[0];
    *sum = fused;
    remove_node(graph, norm);
    return true;
}

ech_status ech__fuse(ech_graph *graph)
{
    ECH_TRY(graph->status);
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        if (node->op == ECH__OP_ADD && node->nout == 1 &&
            (absorb_residual(graph, &graph->nodes[n], 0) ||
             absorb_residual(graph, &graph->nodes[n], 1)))
            n--; /* a node before this one has gone */
    }
    for (size_t n = 0; n < graph->nnodes; n++) {
        ech__node *node = &graph->nodes[n];
        if (node->op == ECH__OP_LINEAR)
            absorb_bias(graph, node);
        if (node->op == ECH__OP_LINEAR || node->op == ECH__OP_CONV2D ||
            node->op == ECH__OP_BN_APPLY)
            absorb_relu(graph, node);
    }
    return ECH_OK;
}

ech_status ech__infer_only(ech_graph *graph)
{
    ECH_TRY(graph->status);
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node running = graph->nodes[n];
        if (running.op != ECH__OP_BN_RUNNING)
            continue;
        ech__node *stats = ech__graph_maker(graph, running.in[2]);
        for (size_t k = 0; k < graph->nnodes; k++) {
            ech__node *apply = &graph->nodes[k];
            if (apply->op == ECH__OP_BN_APPLY && apply->in[1] == running.in[2]) {
                apply->in[1] = running.in[0];
                apply->in[2] = running.in[1];
            }
        }
        remove_node(graph, &graph->nodes[n]);
        remove_node(graph, stats);
        n = n > 1 ? n - 2 : (size_t)-1; /* both stood at or before n */
    }
    return ECH_OK;
}
