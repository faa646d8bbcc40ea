#include "train/step/optimizer.h"
#include "base/names.h"

const ech__optimizer *ech__optimizer_of(ech_optimizer kind)
{
    static const ech__optimizer rows[] = {
        [ECH_OPTIMIZER_SGD] = {.op = ECH__OP_SGD, .states = {"momentum"}, .has_momentum = true},
        [ECH_OPTIMIZER_ADAM] = {.op = ECH__OP_ADAM,
                                .states = {"mean", "variance"},
                                .has_betas = true},
        [ECH_OPTIMIZER_ADAMW] = {.op = ECH__OP_ADAM,
                                 .states = {"mean", "variance"},
                                 .has_betas = true,
                                 .decoupled = true},
    };
    return &rows[kind];
}

ECH__NAMES(ech__optimizer_name, ech_optimizer, ECH_OPTIMIZER_LIST)

int ech__optimizer_states(const ech_train_options *o)
{
    const ech__optimizer *row = ech__optimizer_of(o->optimizer.kind);
    int count = 0;
    if (row->has_momentum && o->optimizer.momentum == 0)
        return 0;
    while (count < ECH__OPTIMIZER_STATES && row->states[count])
        count++;
    return count;
}

static ech_value state_of(ech_graph *graph, ech_value param, const char *what)
{
    const ech__value *value = &graph->values[param];
    const char *name = ech__arena_printf(&graph->arena, "%s.%s", value->name, what);
    if (!name)
        return (ech_value)ech__no_memory(graph->ctx, "the optimizer's graph");
    return ech__graph_value(
        graph,
        &(ech__value){.name = name, .kind = ECH__VALUE_STATE, .type = value->type, .of = param});
}

/* The same for each member of a group of parameters, as a group. */
static ech_value states_of(ech_graph *graph, ech_value group, const char *what)
{
    ech_value *members = ech__arena_array(&graph->arena, graph->nvalues, sizeof *members);
    size_t count = 0;
    const size_t nvalues = graph->nvalues;
    for (size_t v = 0; members && v < nvalues; v++) {
        if (!graph->values[v].grouped || graph->values[v].group != group)
            continue;
        const int place = graph->values[v].place;
        const ech_value state = state_of(graph, (ech_value)v, what);
        if (state < 0)
            return state;
        members[place] = state;
        count++;
    }
    const char *name = ech__arena_printf(&graph->arena, "%s.%s", graph->values[group].name, what);
    if (!members || !name)
        return (ech_value)ech__no_memory(graph->ctx, "the optimizer's graph");
    return ech__graph_group(graph, name, members, count);
}

/* param and grad are values, or groups of them. */
static ech_value update(ech_graph *graph, const ech_train_options *o, ech_value param,
                        ech_value grad)
{
    ech_value (*state)(ech_graph *, ech_value, const char *) =
        graph->values[param].kind == ECH__VALUE_GROUP ? states_of : state_of;
    const ech__optimizer *row = ech__optimizer_of(o->optimizer.kind);
    ech__node node = {
        .op = row->op,
        .name = graph->values[param].name,
        .attrs = {.weight_decay = o->optimizer.weight_decay, .decoupled = row->decoupled},
        .nin = 2,
        .in = {param, grad}};
    if (row->has_momentum) {
        node.attrs.momentum = o->optimizer.momentum;
        node.attrs.nesterov = o->optimizer.nesterov;
    }
    if (row->has_betas) {
        node.attrs.beta1 = o->optimizer.beta1;
        node.attrs.beta2 = o->optimizer.beta2;
        node.attrs.epsilon = o->optimizer.epsilon;
    }
    for (int i = 0; i < ech__optimizer_states(o); i++)
        node.in[node.nin++] = state(graph, param, row->states[i]);
    return ech__graph_add(graph, &node);
}

static ech_status check(ech_ctx *ctx, const ech_train_options *o)
{
    const struct {
        const char *name;
        double value, low, high; /* low <= value < high */
    } ranges[] = {
        {"momentum", o->optimizer.momentum, 0, 1},
        {"weight decay", o->optimizer.weight_decay, 0, 1e30},
        {"beta1", o->optimizer.beta1, 0, 1},
        {"beta2", o->optimizer.beta2, 0, 1},
        {"epsilon", o->optimizer.epsilon, 0, 1e30},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if (!(ranges[i].value >= ranges[i].low && ranges[i].value < ranges[i].high))
            return ech__fail(ctx, ECH_E_INVALID, "%s %g: must be at least %g and below %g",
                             ranges[i].name, ranges[i].value, ranges[i].low, ranges[i].high);
    }
    if (o->optimizer.nesterov &&
        (!ech__optimizer_of(o->optimizer.kind)->has_momentum || o->optimizer.momentum == 0))
        return ech__fail(ctx, ECH_E_INVALID,
                         "nesterov requires the sgd optimizer with a momentum above 0");
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
        if (grad < 0)
            continue;
        if (!graph->values[v].grouped)
            update(graph, options, (ech_value)v, grad);
        else if (graph->values[v].place == 0) /* once for all of its group */
            update(graph, options, graph->values[v].group, graph->values[grad].group);
    }
    return graph->status;
}
