/* Recomputation: what is cheap to compute again need not be kept for the backward pass. A batch norm's output is
 * a function of its input, which the backward pass keeps anyway, and costs one pass over memory. With a residual it
 * is one of that too; of residual blocks in a row every other one's output can go, since the one before it stays. */
#include "graph/graph.h"

static bool uses(const ech__node *node, ech_value value)
{
    for (int i = 0; i < node->nin; i++) {
        if (node->in[i] == value)
            return true;
    }
    return false;
}

/* The first backward node that uses value, or nnodes. */
static size_t first_backward_user(const ech_graph *graph, ech_value value)
{
    size_t n = 0;
    while (n < graph->nnodes &&
           !(graph->nodes[n].phase == ECH__PHASE_BACKWARD && uses(&graph->nodes[n], value)))
        n++;
    return n;
}

/* Whether the residual of a batch norm is there at node `at` in any case, because it is used there
 * or later. Else it would have to be kept in place of the output, and nothing would be won. */
static bool keeps_residual(const ech_graph *graph, const ech__node *node, size_t at)
{
    if (node->nin < 6)
        return true;
    for (size_t n = at; n < graph->nnodes; n++) {
        if (uses(&graph->nodes[n], node->in[5]))
            return true;
    }
    return false;
}

static ech_status recompute(ech_graph *graph, size_t index)
{
    const ech__node node = graph->nodes[index];
    const ech_value kept = node.out[0];
    const size_t at = first_backward_user(graph, kept);
    if (at == graph->nnodes || graph->values[kept].kept || !keeps_residual(graph, &node, at))
        return ECH_OK;
    const ech_value again = ech__graph_add(graph, &node); /* gets an output of its own */
    if (again < 0)
        return (ech_status)again;
    ech__graph_move_last(graph, at);
    for (size_t n = at + 1; n < graph->nnodes; n++) {
        for (int i = 0; i < graph->nodes[n].nin; i++) {
            if (graph->nodes[n].in[i] == kept)
                graph->nodes[n].in[i] = again;
        }
    }
    return ECH_OK;
}

ech_status ech__recompute(ech_graph *graph)
{
    ECH_TRY(graph->status);
    graph->phase = ECH__PHASE_BACKWARD;
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        if (node->phase == ECH__PHASE_FORWARD && node->op == ECH__OP_BN_APPLY)
            ECH_TRY(recompute(graph, n));
    }
    return ECH_OK;
}
