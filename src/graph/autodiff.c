/* Reverse-mode differentiation: walks the forward operators backwards and lets each add its own backward
 * operators. A gradient is only computed if a parameter needs it, so the input of the first layer
 * gets none. */
#include "graph/graph.h"

enum { NO_GRAD = -1, SEED = -2 };

struct ech__autodiff {
    ech_graph *graph;
    size_t nvalues;        /* of the forward graph */
    bool *needs;           /* [nvalues] leads back to a parameter */
    const ech__node *node; /* whose backward operators are being added */
    ech_value *grad;       /* [nvalues] gradient so far, NO_GRAD, or SEED for the loss itself */
};

ech_value ech__ad_of(struct ech__autodiff *ad, ech_value value)
{
    return ad->grad[value];
}

bool ech__ad_needs(const struct ech__autodiff *ad, ech_value value)
{
    return ad->needs[value];
}

const ech__type *ech__ad_type(const struct ech__autodiff *ad, ech_value value)
{
    return &ad->graph->values[value].type;
}

ech_value ech__ad_add(struct ech__autodiff *ad, const ech__node *node)
{
    ech__node placed = *node;
    placed.device = ad->node->device;
    placed.name = node->name ? node->name : ad->node->name;
    return ech__graph_add(ad->graph, &placed);
}

ech_status ech__ad_give(struct ech__autodiff *ad, ech_value value, ech_value grad)
{
    if (ad->graph->status < 0)
        return ad->graph->status;
    ech_value *slot = &ad->grad[value];
    if (*slot == NO_GRAD) {
        *slot = grad;
        return ECH_OK;
    }
    if (*slot == SEED || grad == SEED)
        return ech__fail(ad->graph->ctx, ECH_E_UNSUPPORTED, "the loss '%s' is used more than once",
                         ad->graph->values[value].name);
    *slot = ech__ad_add(ad, &(ech__node){.op = ECH__OP_ADD,
                                         .name = ad->graph->values[value].name,
                                         .nin = 2,
                                         .in = {*slot, grad}});
    return ad->graph->status;
}

static void mark_needs(struct ech__autodiff *ad)
{
    const ech_graph *graph = ad->graph;
    for (size_t v = 0; v < ad->nvalues; v++) {
        ad->needs[v] = graph->values[v].kind == ECH__VALUE_PARAM;
        ad->grad[v] = NO_GRAD;
    }
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        for (int i = 0; i < node->nin; i++) {
            for (int k = 0; k < node->nout; k++)
                ad->needs[node->out[k]] |= ad->needs[node->in[i]];
        }
    }
}

static ech_status backward_of(struct ech__autodiff *ad, const ech__node *node)
{
    ech_ctx *ctx = ad->graph->ctx;
    const ech__op_row *row = ech__op_info(node->op);
    if (!row->backward)
        return ech__fail(ctx, ECH_E_UNSUPPORTED, "%s '%s' cannot be differentiated",
                         ech__op_name(node->op), node->name);
    const bool seeded = ad->grad[node->out[0]] == SEED;
    if (seeded && !row->is_loss && node->op != ECH__OP_ADD)
        return ech__fail(ctx, ECH_E_UNSUPPORTED,
                         "the loss is made by %s '%s'; it must be made by mse or cross_entropy, or "
                         "be a sum of such",
                         ech__op_name(node->op), node->name);
    if (!seeded && row->is_loss)
        return ech__fail(ctx, ECH_E_UNSUPPORTED, "%s '%s' is followed by other operators than add",
                         ech__op_name(node->op), node->name);
    if (row->is_loss && ad->needs[node->in[1]])
        return ech__fail(ctx, ECH_E_UNSUPPORTED, "the target of %s '%s' depends on a parameter",
                         ech__op_name(node->op), node->name);
    ad->node = node;
    return row->backward(ad, node);
}

/* What is left in the slots of the parameters becomes their gradient, with a name. */
static ech_status name_gradients(struct ech__autodiff *ad)
{
    ech_graph *graph = ad->graph;
    for (size_t v = 0; v < ad->nvalues; v++) {
        if (graph->values[v].kind != ECH__VALUE_PARAM || ad->grad[v] < 0)
            continue;
        ech__value *grad = &graph->values[ad->grad[v]];
        if (grad->kind != ECH__VALUE_ACTIVATION)
            return ech__fail(graph->ctx, ECH_E_UNSUPPORTED,
                             "parameters '%s' and '%s' are added directly to each other",
                             graph->values[v].name, graph->values[grad->of].name);
        grad->kind = ECH__VALUE_GRADIENT;
        grad->of = (ech_value)v;
        grad->name = ech__arena_printf(&graph->arena, "%s.grad", graph->values[v].name);
        if (!grad->name)
            return ech__no_memory(graph->ctx, "the backward graph");
    }
    return ECH_OK;
}

/* Marks what leads back to a parameter; the nodes that are added from now on are the backward pass. */
static ech_status begin(struct ech__autodiff *ad, ech_graph *graph)
{
    *ad = (struct ech__autodiff){.graph = graph, .nvalues = graph->nvalues};
    ad->needs = ech__arena_array(&graph->arena, ad->nvalues, sizeof *ad->needs);
    ad->grad = ech__arena_array(&graph->arena, ad->nvalues, sizeof *ad->grad);
    if (!ad->needs || !ad->grad)
        return ech__no_memory(graph->ctx, "the backward graph");
    mark_needs(ad);
    graph->phase = ECH__PHASE_BACKWARD;
    return ECH_OK;
}

/* From the gradients that are there already to those of the parameters. */
static ech_status differentiate(struct ech__autodiff *ad)
{
    const ech_graph *graph = ad->graph;
    for (size_t n = graph->nnodes; n-- > 0;) {
        const ech__node node = graph->nodes[n]; /* adding nodes may move the array */
        if (node.nout && ad->needs[node.out[0]] && ad->grad[node.out[0]] != NO_GRAD)
            ECH_TRY(backward_of(ad, &node));
    }
    return name_gradients(ad);
}

ech_status ech__autodiff(ech_graph *graph, ech_value loss)
{
    ECH_TRY(graph->status);
    if (loss < 0 || (size_t)loss >= graph->nvalues)
        return ech__fail(graph->ctx, ECH_E_INVALID, "the loss is not a value of this graph");
    if (graph->loss >= 0)
        return ech__fail(graph->ctx, ECH_E_INVALID, "the graph has its backward operators already");
    if (graph->values[loss].type.shape.ndims != 0)
        return ech__fail(graph->ctx, ECH_E_INVALID, "the loss has shape %s; it must be a scalar",
                         ech__shape_format(&graph->values[loss].type.shape).s);
    struct ech__autodiff ad;
    ECH_TRY(begin(&ad, graph));
    if (!ad.needs[loss])
        return ech__fail(graph->ctx, ECH_E_INVALID, "the loss depends on no parameter");
    graph->loss = loss;
    ech__graph_keep(graph, loss);
    ad.grad[loss] = SEED;
    return differentiate(&ad);
}

ech_status ech__autodiff_from(ech_graph *graph, ech_value value, ech_value grad)
{
    ECH_TRY(graph->status);
    struct ech__autodiff ad;
    ECH_TRY(begin(&ad, graph));
    if (!ad.needs[value])
        return ech__fail(graph->ctx, ECH_E_INVALID, "'%s' depends on no parameter",
                         graph->values[value].name);
    ad.grad[value] = grad;
    return differentiate(&ad);
}

ech_status ech__insert_delay(ech_graph *graph, double seconds)
{
    ECH_TRY(graph->status);
    size_t at = 0;
    while (at < graph->nnodes && graph->nodes[at].phase == ECH__PHASE_FORWARD)
        at++;
    const ech__phase phase = graph->phase;
    graph->phase = ECH__PHASE_BACKWARD;
    const ech_value added = ech__graph_add(
        graph, &(ech__node){.op = ECH__OP_DELAY, .name = "delay", .attrs = {.seconds = seconds}});
    graph->phase = phase;
    if (added < 0)
        return (ech_status)added;
    ech__graph_move_last(graph, at);
    return ECH_OK;
}
