#include "quant/calibrate.h"

#include <string.h>

/* Values that are made by an operator, but for what only moves others. */
static bool is_watched(const ech__qmodel *model, ech_value v)
{
    const ech__node *maker = ech__maker_of(model->graph, v);
    if (v == model->input)
        return true;
    if (!maker || maker->out[0] != v)
        return false;
    /* A linear layer's product is of no interest before its bias is added. */
    const ech__node *user = ech__only_user(model->graph, v);
    const bool product = maker->op == ECH__OP_LINEAR && user && user->op == ECH__OP_ADD &&
                         model->graph->values[user->in[1]].kind == ECH__VALUE_PARAM;
    return maker->op != ECH__OP_MAXPOOL2D && maker->op != ECH__OP_FLATTEN && !product;
}

static ech_status watch(ech__calibration *c)
{
    const ech__qmodel *model = c->model;
    c->seen = ech__arena_array(&c->graph->arena, c->graph->nvalues, sizeof(ech__histogram *));
    if (!c->seen)
        return ech__no_memory(c->ctx, "%zu histograms", c->graph->nvalues);
    for (size_t v = 0; v < c->graph->nvalues; v++) {
        if (!is_watched(model, (ech_value)v))
            continue;
        ech__graph_keep(c->graph, (ech_value)v);
        c->seen[v] = ech__arena_alloc(&c->graph->arena, sizeof **c->seen);
        if (!c->seen[v])
            return ech__no_memory(c->ctx, "a histogram");
    }
    return ECH_OK;
}

static ech_status prepare(ech__calibration *c, ech__device *device, int64_t batch)
{
    const ech__qmodel *model = c->model;
    ECH_TRY(ech__graph_clone(model->graph, &c->graph));
    ECH_TRY(watch(c));
    const ech__network_options o = {.device = device, .batch = batch};
    ECH_TRY(ech__network_create(c->graph, model->output, &model->weights, &o, &c->network));
    for (size_t v = 0; v < c->graph->nvalues; v++) {
        if (c->seen[v] && (ech_value)v != model->input) {
            const int64_t elems = batch * ech__network_elems(c->network, (ech_value)v);
            c->capacity = elems > c->capacity ? elems : c->capacity;
        }
    }
    c->values = ech__new(c->ctx, (size_t)c->capacity * sizeof *c->values);
    return c->values ? ECH_OK : ech__no_memory(c->ctx, "%lld values", (long long)c->capacity);
}

ech_status ech__calibration_init(ech__calibration *c, const ech__qmodel *model, ech__device *device,
                                 int64_t batch)
{
    *c = (ech__calibration){.ctx = model->ctx, .model = model};
    const ech_status status = prepare(c, device, batch);
    if (status < 0)
        ech__calibration_fini(c);
    return status;
}

ech_status ech__calibration_add(ech__calibration *c, const float *x, int64_t count)
{
    ECH_TRY(ech__network_run(c->network, x, count, NULL));
    for (size_t v = 0; v < c->graph->nvalues; v++) {
        if (!c->seen[v])
            continue;
        const int64_t elems = count * ech__network_elems(c->network, (ech_value)v);
        if ((ech_value)v == c->model->input) {
            ech__histogram_add(c->seen[v], x, elems);
            continue;
        }
        ECH_TRY(ech__network_read(c->network, (ech_value)v, count, c->values));
        ech__histogram_add(c->seen[v], c->values, elems);
    }
    c->samples += count;
    return ECH_OK;
}

void ech__calibration_fini(ech__calibration *c)
{
    if (!c->ctx)
        return;
    ech__network_destroy(c->network);
    ech_graph_destroy(c->graph);
    if (c->values)
        ech__delete(c->ctx, c->values, (size_t)c->capacity * sizeof *c->values);
    *c = (ech__calibration){.ctx = NULL};
}

/* The value that leaves a layer, its bias added, before any ReLU. */
static ech_value leaving(const ech_graph *graph, const ech__node *layer)
{
    const ech__node *user = ech__only_user(graph, layer->out[0]);
    const bool bias = layer->op == ECH__OP_LINEAR && user && user->op == ECH__OP_ADD &&
                      graph->values[user->in[1]].kind == ECH__VALUE_PARAM;
    return bias ? user->out[0] : layer->out[0];
}

ech__around_relu ech__around_relu_of(const ech__qmodel *model, const char *layer)
{
    const ech_graph *graph = model->graph;
    ech__around_relu around = {-1, -1};
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        if (!ech__is_layer(graph, node) || strcmp(node->name, layer) != 0)
            continue;
        around.before = leaving(graph, node);
        const ech__node *user = ech__only_user(graph, around.before);
        if (user && user->op == ECH__OP_RELU)
            around.after = user->out[0];
    }
    return around;
}
