/* Copies of weights in types and layouts that kernels need besides the parameter's own. A copy is a
 * separate value, so a plan can choose its layout separately and count its memory.
 *
 * An operator with 16-bit data takes a 16-bit weight: one copy for the forward and the backward
 * pass. A direct convolution needs the blocks of its weight transposed for backward data, and so do
 * linear layers on processors that multiply pairs of 16-bit numbers: a copy, or the copy of a
 * copy. */
#include "graph/graph.h"

/* A copy of from that an earlier operator reads, or -1. */
static ech_value find_copy(const ech_graph *graph, ech_value from)
{
    for (size_t v = 0; v < graph->nvalues; v++) {
        if (graph->values[v].kind == ECH__VALUE_COPY && graph->values[v].of == from)
            return (ech_value)v;
    }
    return -1;
}

/* The copy that this node makes of its input, with a name that begins with that of the input. */
static ech_value make_copy(ech_graph *graph, const ech__node *node, const char *what)
{
    const ech_value from = node->in[0], known = find_copy(graph, from);
    if (known >= 0)
        return known;
    const ech_value copy = ech__graph_add(graph, node);
    if (copy < 0)
        return copy;
    ech__value *value = &graph->values[copy];
    value->kind = ECH__VALUE_COPY;
    value->of = from;
    value->name = ech__arena_printf(&graph->arena, "%s.%s", graph->values[from].name, what);
    return value->name ? copy : (ech_value)ech__no_memory(graph->ctx, "the names of weight copies");
}

/* An f32 weight of an operator on 16-bit data. */
static ech_status narrow_weight(ech_graph *graph, size_t user, int weight)
{
    const ech__node *node = &graph->nodes[user];
    const ech_value w = node->in[weight];
    const ech_dtype dtype = graph->values[node->in[0]].type.dtype;
    if (!ech__dtype_is_low(dtype) || graph->values[w].type.dtype != ECH_F32 ||
        graph->values[w].kind != ECH__VALUE_PARAM)
        return ECH_OK;
    const ech__node cast = {.op = ECH__OP_CAST,
                            .name = graph->values[w].name,
                            .attrs = {.dtype = dtype},
                            .nin = 1,
                            .in = {w}};
    const ech_value copy = make_copy(graph, &cast, ech__dtype_name(dtype));
    if (copy < 0)
        return (ech_status)copy;
    graph->nodes[user].in[weight] = copy;
    return ECH_OK;
}

/* Whether kernels of the node want its weight in another order than the forward pass does. */
static bool wants_own_order(const ech_graph *graph, const ech__node *node)
{
    if (node->op == ECH__OP_CONV2D_BWD_DATA)
        return true;
    return node->op == ECH__OP_LINEAR_BWD_DATA &&
           ech__dtype_is_low(graph->values[node->in[1]].type.dtype);
}

/* A parameter, or the copy of one that is there for its type: no copy was made for an order yet. */
static bool is_first_order(const ech_graph *graph, ech_value w)
{
    const ech__value *value = &graph->values[w];
    return value->kind == ECH__VALUE_PARAM ||
           (value->kind == ECH__VALUE_COPY && ech__dtype_is_low(value->type.dtype) &&
            graph->values[value->of].kind == ECH__VALUE_PARAM);
}

static ech_status reorder_weight(ech_graph *graph, size_t user, int weight)
{
    const ech_value w = graph->nodes[user].in[weight];
    const ech__node reorder = {
        .op = ECH__OP_REORDER, .name = graph->values[w].name, .nin = 1, .in = {w}};
    const ech_value copy = make_copy(graph, &reorder, "copy");
    if (copy < 0)
        return (ech_status)copy;
    graph->nodes[user].in[weight] = copy;
    return ECH_OK;
}

ech_status ech__copy_weights(ech_graph *graph)
{
    ECH_TRY(graph->status);
    graph->phase = ECH__PHASE_REFRESH;
    const size_t nnodes = graph->nnodes;
    for (size_t n = 0; n < nnodes; n++) {
        const int weight = ech__op_info(graph->nodes[n].op)->weight;
        if (weight)
            ECH_TRY(narrow_weight(graph, n, weight));
    }
    for (size_t n = 0; n < nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        const int weight = ech__op_info(node->op)->weight;
        if (!weight || !wants_own_order(graph, node))
            continue;
        if (is_first_order(graph, node->in[weight]))
            ECH_TRY(reorder_weight(graph, n, weight));
    }
    return ECH_OK;
}
