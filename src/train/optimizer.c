#include "train/optimizer.h"

static ech_value state_of(ech_graph *graph, ech_value param, const char *what)
{
    const ech__value *value = &graph->values[param];
    const char *name = ech__arena_printf(&graph->arena, "%s.%s", value->name, what);
    if (!name)
        return (ech_value)ech__fail(graph->ctx, ECH_E_NOMEM, "no memory for the optimizer's graph");
    return ech__graph_value(
        graph,
        &(ech__value){.name = name, .kind = ECH__VALUE_STATE, .type = value->type, .of = param});
}

static ech_value update(ech_graph *graph, const ech_train_options *o, ech_value param,
                        ech_value grad)
{
    ech__node node = {.op = ECH__OP_SGD,
                      .name = graph->values[param].name,
                      .attrs = {.weight_decay = o->weight_decay},
                      .nin = 2,
                      .in = {param, grad}};
    if (o->optimizer == ECH_SGD) {
        node.attrs.momentum = o->momentum;
        node.attrs.nesterov = o->nesterov;
        if (o->momentum != 0)
            node.in[node.nin++] = state_of(graph, param, "momentum");
    } else {
        node.op = ECH__OP_ADAM;
        node.attrs.beta1 = o->beta1;
        node.attrs.beta2 = o->beta2;
        node.attrs.epsilon = o->epsilon;
        node.attrs.decoupled = o->optimizer == ECH_ADAMW;
        node.in[node.nin++] = state_of(graph, param, "mean");
        node.in[node.nin++] = state_of(graph, param, "variance");
    }
    return ech__graph_add(graph, &node);
}

static ech_status check(ech_ctx *ctx, const ech_train_options *o)
{
    const struct {
        const char *name;
        double value, low, high; /* low <= value < high */
    } ranges[] = {
        {"momentum", o->momentum, 0, 1},  {"weight decay", o->weight_decay, 0, 1e30},
        {"beta1", o->beta1, 0, 1},        {"beta2", o->beta2, 0, 1},
        {"epsilon", o->epsilon, 0, 1e30},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if (!(ranges[i].value >= ranges[i].low && ranges[i].value < ranges[i].high))
            return ech__fail(ctx, ECH_E_INVALID, "%s %g: must be at least %g and below %g",
                             ranges[i].name, ranges[i].value, ranges[i].low, ranges[i].high);
    }
    if (o->nesterov && (o->optimizer != ECH_SGD || o->momentum == 0))
        return ech__fail(ctx, ECH_E_INVALID,
                         "nesterov needs the sgd optimizer with a momentum above 0");
    return ECH_OK;
}

ech_status ech__optimize(ech_graph *graph, const ech_train_options *options)
{
    ECH_TRY(graph->status);
    ECH_TRY(check(graph->ctx, options));
    graph->phase = ECH__PHASE_OPTIMIZER;
    const size_t nvalues = graph->nvalues;
    for (size_t v = 0; v < nvalues; v++) {
        if (graph->values[v].kind != ECH__VALUE_PARAM)
            continue;
        const ech_value grad = ech__graph_gradient(graph, (ech_value)v);
        if (grad >= 0)
            update(graph, options, (ech_value)v, grad);
    }
    return graph->status;
}
