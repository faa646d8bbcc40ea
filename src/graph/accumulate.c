/* Accumulation over micro-steps. The kernels of the backward pass overwrite their outputs, so each
 * gradient is first written as a part, with the lifetime of an activation, and the next operator
 * adds it to its sum.
 *
 * Plain accumulation adds the parts to the gradient one after the other, or the operators of the
 * backward pass add in place if they can. A fixed tree of sums over 2^levels micro-steps is a
 * binary counter: micro-step i, whose number ends in c ones, adds the sums of level 0 to c-1 to its
 * part and leaves the result in level c; the last one leaves it in the gradient. So the sum over
 * all is ((0+1)+(2+3))+..., no matter which rank computes which branch. */
#include "graph/graph.h"

static ech_value value_of(ech_graph *graph, ech_value param, ech__value_kind kind, const char *what,
                          int number)
{
    const ech__value *p = &graph->values[param];
    const char *name = ech__arena_printf(&graph->arena, "%s.%s%d", p->name, what, number);
    if (!name)
        return (ech_value)ech__no_memory(graph->ctx, "an accumulating graph");
    return ech__graph_value(
        graph, &(ech__value){.name = name, .kind = kind, .type = p->type, .of = param});
}

/* Replaces the gradient by the part in all backward nodes. Returns the index after the node that
 * writes it, or 0. */
static size_t redirect(ech_graph *graph, ech_value gradient, ech_value part)
{
    size_t behind = 0;
    for (size_t n = 0; n < graph->nnodes; n++) {
        ech__node *node = &graph->nodes[n];
        for (int i = 0; i < node->nin; i++) {
            if (node->in[i] == gradient)
                node->in[i] = part;
        }
        for (int i = 0; i < node->nout; i++) {
            if (node->out[i] == gradient) {
                node->out[i] = part;
                behind = n + 1;
            }
        }
    }
    return behind;
}

static ech_status accumulate_one(ech_graph *graph, const ech__accumulation *how, ech_value param,
                                 ech_value first_sum)
{
    const ech_value gradient = ech__graph_gradient(graph, param);
    const ech_value part = value_of(graph, param, ECH__VALUE_PART, "part", 0);
    if (part < 0)
        return (ech_status)part;
    const size_t behind = redirect(graph, gradient, part);
    ech__node node = {.op = ECH__OP_ACCUMULATE,
                      .name = graph->values[param].name,
                      .attrs = {.fresh = !how->onto},
                      .nin = 2,
                      .in = {how->into < how->levels ? first_sum + how->into : gradient, part}};
    for (int level = 0; level < how->adds; level++)
        node.in[node.nin++] = first_sum + level;
    if (ech__graph_add(graph, &node) < 0)
        return graph->status;
    ech__graph_move_last(graph, behind);
    return ECH_OK;
}

/* Lets operators add to gradients themselves, where they make nothing else. */
static void add_inside(ech_graph *graph)
{
    for (size_t n = 0; n < graph->nnodes; n++) {
        ech__node *node = &graph->nodes[n];
        bool gradients = node->op == ECH__OP_LINEAR_BWD_WEIGHTS;
        for (int i = 0; i < node->nout; i++)
            gradients &= graph->values[node->out[i]].kind == ECH__VALUE_GRADIENT;
        if (!gradients)
            continue;
        node->op = ECH__OP_LINEAR_ADD_WEIGHTS;
        for (int i = 0; i < node->nout; i++)
            node->in[node->nin++] = node->out[i];
        node->nout = 0;
    }
}

ech_status ech__accumulate(ech_graph *graph, const ech__accumulation *how)
{
    ECH_TRY(graph->status);
    if (how->adds + 2 > ECH__MAX_IN)
        return ech__fail(graph->ctx, ECH_E_LIMIT, "a tree of sums of %d levels: at most %d",
                         how->adds, ECH__MAX_IN - 2);
    graph->phase = ECH__PHASE_BACKWARD;
    const size_t nvalues = graph->nvalues;
    if (how->onto && how->inside)
        add_inside(graph);
    for (size_t v = 0; v < nvalues; v++) {
        const ech_value gradient = graph->values[v].kind == ECH__VALUE_PARAM
                                       ? ech__graph_gradient(graph, (ech_value)v)
                                       : -1;
        if (gradient < 0 || !ech__graph_maker(graph, gradient))
            continue;
        ech_value first_sum = -1;
        for (int level = 0; level < how->levels; level++) {
            const ech_value sum = value_of(graph, (ech_value)v, ECH__VALUE_SUM, "sum", level);
            if (sum < 0)
                return (ech_status)sum;
            first_sum = level ? first_sum : sum;
        }
        ECH_TRY(accumulate_one(graph, how, (ech_value)v, first_sum));
    }
    return ECH_OK;
}
