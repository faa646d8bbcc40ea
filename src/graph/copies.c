/* Second orders of weights. A direct convolution wants the blocks of its weight transposed for the backward
 * pass. The copy is a value of its own, so a plan can choose its layout apart and count its memory. */
#include "graph/graph.h"

static ech_status copy_one(ech_graph *graph, size_t user, ech_value weight)
{
    const ech__node node = {
        .op = ECH__OP_REORDER, .name = graph->values[weight].name, .nin = 1, .in = {weight}};
    const ech_value copy = ech__graph_add(graph, &node);
    if (copy < 0)
        return (ech_status)copy;
    ech__value *value = &graph->values[copy];
    value->kind = ECH__VALUE_COPY;
    value->of = weight;
    value->name = ech__arena_printf(&graph->arena, "%s.copy", graph->values[weight].name);
    if (!value->name)
        return ech__fail(graph->ctx, ECH_E_NOMEM, "no memory for the names of weight copies");
    graph->nodes[user].in[1] = copy;
    return ECH_OK;
}

ech_status ech__copy_weights(ech_graph *graph)
{
    ECH_TRY(graph->status);
    graph->phase = ECH__PHASE_REFRESH;
    const size_t nnodes = graph->nnodes;
    for (size_t n = 0; n < nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        if (node->op == ECH__OP_CONV2D_BWD_DATA &&
            graph->values[node->in[1]].kind == ECH__VALUE_PARAM)
            ECH_TRY(copy_one(graph, n, node->in[1]));
    }
    return ECH_OK;
}
