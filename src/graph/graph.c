#include "graph/graph.h"
#include "base/names.h"

#include <math.h>
#include <string.h>

ECH__NAMES(ech__value_kind_name, ech__value_kind, ECH__VALUE_LIST)

ech_status ech_graph_create(ech_ctx *ctx, ech_graph **out)
{
    *out = NULL;
    ech_graph *graph = ech__new(ctx, sizeof *graph);
    if (!graph)
        return ech__no_memory(ctx, "a graph");
    graph->ctx = ctx;
    graph->loss = -1;
    ech__arena_init(&graph->arena, ctx->alloc);
    *out = graph;
    return ECH_OK;
}

void ech_graph_destroy(ech_graph *graph)
{
    if (!graph)
        return;
    ech__arena_fini(&graph->arena);
    ech__delete(graph->ctx, graph, sizeof *graph);
}

ech_status ech_graph_status(const ech_graph *graph)
{
    return graph->status;
}

static ech_value broken(ech_graph *graph, ech_status status)
{
    if (graph->status == ECH_OK)
        graph->status = status;
    return (ech_value)status;
}

static ech_value out_of_memory(ech_graph *graph)
{
    return broken(graph, ech__no_memory(graph->ctx, "a graph of %zu nodes", graph->nnodes + 1));
}

ech_value ech__graph_value(ech_graph *graph, const ech__value *value)
{
    if (value->kind != ECH__VALUE_ACTIVATION && ech__graph_find(graph, value->name) >= 0)
        return broken(graph, ech__fail(graph->ctx, ECH_E_INVALID,
                                       "the graph has a value named '%s' already", value->name));
    if (!ech__arena_grow(&graph->arena, (void **)&graph->values, graph->nvalues, &graph->cap_values,
                         sizeof *graph->values))
        return out_of_memory(graph);
    char *name = ech__arena_printf(&graph->arena, "%s", value->name);
    if (!name)
        return out_of_memory(graph);
    ech__value *place = &graph->values[graph->nvalues];
    *place = *value;
    place->name = name;
    return (ech_value)graph->nvalues++;
}

static ech_status check_arity(ech_graph *graph, const ech__node *node)
{
    const ech__op_row *row = ech__op_info(node->op);
    if (node->nin < row->min_in || node->nin > row->max_in)
        return ech__fail(graph->ctx, ECH_E_INVALID, "%s takes %d to %d inputs, not %d",
                         ech__op_name(node->op), row->min_in, row->max_in, node->nin);
    for (int i = 0; i < node->nin; i++) {
        if (node->in[i] < 0) /* an earlier call failed; its error message stays */
            return graph->status < 0 ? graph->status
                                     : ech__fail(graph->ctx, ECH_E_INVALID,
                                                 "input %d of %s is not a value of this graph", i,
                                                 ech__op_name(node->op));
        if ((size_t)node->in[i] >= graph->nvalues)
            return ech__fail(graph->ctx, ECH_E_INVALID,
                             "input %d of %s is not a value of this graph", i,
                             ech__op_name(node->op));
    }
    return ECH_OK;
}

ech_value ech__graph_add(ech_graph *graph, const ech__node *given)
{
    ech__node node = *given;
    node.phase = graph->phase;
    node.nout = 1; /* of most operators */
    ech_status status = check_arity(graph, &node);
    if (status < 0)
        return broken(graph, status);
    ech__type in[ECH__MAX_IN], out[ECH__MAX_OUT];
    for (int i = 0; i < node.nin; i++)
        in[i] = graph->values[node.in[i]].type;
    if (node.name)
        node.name = ech__arena_printf(&graph->arena, "%s", node.name);
    else
        node.name =
            ech__arena_printf(&graph->arena, "%s_%zu", ech__op_name(node.op), graph->nnodes);
    if (!node.name || !ech__arena_grow(&graph->arena, (void **)&graph->nodes, graph->nnodes,
                                       &graph->cap_nodes, sizeof *graph->nodes))
        return out_of_memory(graph);
    status = ech__op_infer(graph->ctx, &node, in, out);
    if (status < 0)
        return broken(graph, status);
    for (int i = 0; i < node.nout; i++) {
        node.out[i] = ech__graph_value(
            graph, &(ech__value){
                       .name = node.name, .kind = ECH__VALUE_ACTIVATION, .type = out[i], .of = -1});
        if (node.out[i] < 0)
            return node.out[i];
    }
    graph->nodes[graph->nnodes++] = node;
    return node.nout ? node.out[0] : 0;
}

void ech__graph_keep(ech_graph *graph, ech_value value)
{
    if (value >= 0)
        graph->values[value].kept = true;
}

ech_value ech__graph_find(const ech_graph *graph, const char *name)
{
    for (size_t i = 0; i < graph->nvalues; i++) {
        if (graph->values[i].kind != ECH__VALUE_ACTIVATION && !strcmp(graph->values[i].name, name))
            return (ech_value)i;
    }
    return -1;
}

ech__node *ech__only_user(const ech_graph *graph, ech_value value)
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

ech__node *ech__graph_maker(const ech_graph *graph, ech_value value)
{
    for (size_t n = 0; n < graph->nnodes; n++) {
        for (int i = 0; i < graph->nodes[n].nout; i++) {
            if (graph->nodes[n].out[i] == value)
                return &graph->nodes[n];
        }
    }
    return NULL;
}

ech_value ech__graph_gradient(const ech_graph *graph, ech_value param)
{
    for (size_t i = 0; i < graph->nvalues; i++) {
        if (graph->values[i].kind == ECH__VALUE_GRADIENT && graph->values[i].of == param)
            return (ech_value)i;
    }
    return -1;
}

void ech__graph_move_last(ech_graph *graph, size_t to)
{
    const ech__node last = graph->nodes[graph->nnodes - 1];
    for (size_t n = graph->nnodes - 1; n > to; n--)
        graph->nodes[n] = graph->nodes[n - 1];
    graph->nodes[to] = last;
}

ech_value ech__graph_group(ech_graph *graph, const char *name, const ech_value *members,
                           size_t count)
{
    const ech_value group = ech__graph_value(
        graph, &(ech__value){.name = name,
                             .kind = ECH__VALUE_GROUP,
                             .type = {graph->values[members[0]].type.dtype, {1, {1}}},
                             .of = members[0]});
    for (size_t i = 0; group >= 0 && i < count; i++) {
        graph->values[members[i]].grouped = true;
        graph->values[members[i]].group = group;
        graph->values[members[i]].place = (int)i;
    }
    return group;
}

ech_status ech__graph_clone(const ech_graph *graph, ech_graph **out)
{
    ECH_TRY(ech_graph_create(graph->ctx, out));
    ech_graph *copy = *out;
    ech__arena *arena = &copy->arena;
    copy->values = ech__arena_array(arena, graph->nvalues + 1, sizeof *copy->values);
    copy->nodes = ech__arena_array(arena, graph->nnodes + 1, sizeof *copy->nodes);
    bool ok = copy->values && copy->nodes;
    for (size_t i = 0; ok && i < graph->nvalues; i++) {
        copy->values[i] = graph->values[i];
        ok = (copy->values[i].name = ech__arena_printf(arena, "%s", graph->values[i].name)) != NULL;
    }
    for (size_t i = 0; ok && i < graph->nnodes; i++) {
        copy->nodes[i] = graph->nodes[i];
        ok = (copy->nodes[i].name = ech__arena_printf(arena, "%s", graph->nodes[i].name)) != NULL;
    }
    if (!ok) {
        ech_graph_destroy(copy);
        *out = NULL;
        return ech__no_memory(graph->ctx, "a copy of the graph");
    }
    copy->nvalues = graph->nvalues;
    copy->cap_values = graph->nvalues + 1;
    copy->nnodes = graph->nnodes;
    copy->cap_nodes = graph->nnodes + 1;
    copy->phase = graph->phase;
    copy->status = graph->status;
    copy->loss = graph->loss;
    copy->on_pass = graph->on_pass;
    copy->on_pass_user = graph->on_pass_user;
    return ECH_OK;
}

ech_status ech__graph_check(const ech_graph *graph)
{
    for (size_t v = 0; v < graph->nvalues; v++) {
        int made = 0, at = -1;
        for (size_t n = 0; n < graph->nnodes; n++) {
            const ech__node *node = &graph->nodes[n];
            for (int i = 0; i < node->nout; i++) {
                if (node->out[i] == (ech_value)v) {
                    made++;
                    at = (int)n;
                }
            }
        }
        const ech__value *value = &graph->values[v];
        const bool own = value->kind != ECH__VALUE_ACTIVATION &&
                         value->kind != ECH__VALUE_GRADIENT && value->kind != ECH__VALUE_COPY &&
                         value->kind != ECH__VALUE_PART;
        for (size_t n = 0; n < graph->nnodes; n++) {
            for (int i = 0; i < graph->nodes[n].nin; i++) {
                /* A copy made after the optimizer is there for the next step. */
                /* A gradient that no operator makes is accumulated. */
                if (graph->nodes[n].in[i] == (ech_value)v && !own &&
                    value->kind != ECH__VALUE_COPY &&
                    (at < 0 ? value->kind != ECH__VALUE_GRADIENT : at >= (int)n))
                    return ech__fail(graph->ctx, ECH_E_INTERNAL, "'%s' is used before it is made",
                                     value->name);
            }
        }
        if (made > 1 || (own && made))
            return ech__fail(graph->ctx, ECH_E_INTERNAL, "'%s' is made %d times", value->name,
                             made);
    }
    return ECH_OK;
}

/* ---- the public building calls ---- */

ech_value ech_input(ech_graph *graph, const char *name, ech_dtype dtype, int ndims,
                    const int64_t *dims)
{
    if (ndims < 0 || ndims > ECH_MAX_DIMS)
        return broken(graph, ech__fail(graph->ctx, ECH_E_INVALID,
                                       "input '%s' has %d dimensions; at most %d are possible",
                                       name, ndims, ECH_MAX_DIMS));
    ech__value value = {.name = name, .kind = ECH__VALUE_INPUT, .type = {.dtype = dtype}, .of = -1};
    value.type.shape.ndims = ndims;
    for (int k = 0; k < ndims; k++) {
        if (dims[k] < 1 && !(k == 0 && dims[k] == ECH_BATCH))
            return broken(graph,
                          ech__fail(graph->ctx, ECH_E_INVALID,
                                    "dimension %d of input '%s' is %lld; it must be at least 1", k,
                                    name, (long long)dims[k]));
        value.type.shape.dims[k] = dims[k];
    }
    return ech__graph_value(graph, &value);
}

/* A parameter or buffer of a layer: NAME.PART. */
static ech_value layer_value(ech_graph *graph, const char *layer, const char *part,
                             const ech__value *like)
{
    if (graph->status < 0) /* the first failure keeps its error message */
        return (ech_value)graph->status;
    ech__value value = *like;
    value.name = ech__arena_printf(&graph->arena, "%s.%s", layer, part);
    value.of = -1;
    return value.name ? ech__graph_value(graph, &value) : out_of_memory(graph);
}

static ech__value uniform_param(ech_dtype dtype, ech__shape shape, double fan_in)
{
    const double bound = 1.0 / sqrt(fan_in);
    return (ech__value){.kind = ECH__VALUE_PARAM, .type = {dtype, shape}, .init = {-bound, bound}};
}

/* The type of x, or NULL when it is not a value of this graph or lacks the dimensions. */
static const ech__type *layer_input(ech_graph *graph, const char *layer, const char *name,
                                    ech_value x, int ndims)
{
    if (x < 0 && graph->status < 0)
        return NULL; /* an earlier call failed; its error message stays */
    if (x < 0 || (size_t)x >= graph->nvalues) {
        broken(graph, ech__fail(graph->ctx, ECH_E_INVALID,
                                "%s '%s': x is not a value of this graph", layer, name));
        return NULL;
    }
    const ech__type *type = &graph->values[x].type;
    if (type->shape.ndims == ndims)
        return type;
    broken(graph, ech__fail(graph->ctx, ECH_E_INVALID, "%s '%s' on %s: x must have %d dimensions",
                            layer, name, ech__shape_format(&type->shape).s, ndims));
    return NULL;
}

ech_value ech_linear(ech_graph *graph, const char *name, ech_value x, int64_t out_features,
                     bool bias)
{
    const ech__type *in = layer_input(graph, "linear", name, x, 2);
    if (!in)
        return (ech_value)graph->status;
    const ech_dtype dtype = ech__op_wide(in->dtype);
    const int64_t in_features = in->shape.dims[1];
    if (out_features < 1)
        return broken(graph,
                      ech__fail(graph->ctx, ECH_E_INVALID,
                                "linear '%s' from %s to %lld features: at least 1 is needed", name,
                                ech__shape_format(&in->shape).s, (long long)out_features));
    ech__value param =
        uniform_param(dtype, (ech__shape){2, {out_features, in_features}}, (double)in_features);
    const ech_value w = layer_value(graph, name, "weight", &param);
    const ech_value y = ech__graph_add(
        graph, &(ech__node){.op = ECH__OP_LINEAR, .name = name, .nin = 2, .in = {x, w}});
    if (!bias)
        return y;
    param.type.shape = (ech__shape){1, {out_features}};
    const ech_value b = layer_value(graph, name, "bias", &param);
    return ech__graph_add(graph,
                          &(ech__node){.op = ECH__OP_ADD, .name = name, .nin = 2, .in = {y, b}});
}

ech_value ech_conv2d(ech_graph *graph, const char *name, ech_value x, const ech_conv *conv)
{
    const ech__type *in = layer_input(graph, "conv2d", name, x, 4);
    if (!in)
        return (ech_value)graph->status;
    if (conv->out_channels < 1 || conv->kernel < 1 || conv->kernel > 1024)
        return broken(graph,
                      ech__fail(graph->ctx, ECH_E_INVALID,
                                "conv2d '%s' to %lld channels with a kernel of %lld: at "
                                "least 1 channel and a kernel from 1 to 1024 are needed",
                                name, (long long)conv->out_channels, (long long)conv->kernel));
    const ech_dtype dtype = ech__op_wide(in->dtype);
    const int64_t channels = in->shape.dims[1], k = conv->kernel;
    ech__value param = uniform_param(dtype, (ech__shape){4, {conv->out_channels, channels, k, k}},
                                     (double)(channels * k * k));
    ech__node node = {
        .op = ECH__OP_CONV2D,
        .name = name,
        .attrs = {.kernel = k, .stride = conv->stride ? conv->stride : 1, .pad = conv->pad},
        .nin = 2,
        .in = {x, layer_value(graph, name, "weight", &param)}};
    if (conv->bias) {
        param.type.shape = (ech__shape){1, {conv->out_channels}};
        node.in[node.nin++] = layer_value(graph, name, "bias", &param);
    }
    return ech__graph_add(graph, &node);
}

ech_value ech_batchnorm2d(ech_graph *graph, const char *name, ech_value x)
{
    const ech__type *in = layer_input(graph, "batchnorm2d", name, x, 4);
    if (!in)
        return (ech_value)graph->status;
    const ech__shape per_channel = {1, {in->shape.dims[1]}};
    ech__value v = {.kind = ECH__VALUE_PARAM, .type = {ech__op_wide(in->dtype), per_channel}};
    v.init = (ech__init){1, 1};
    const ech_value gamma = layer_value(graph, name, "weight", &v);
    v.init = (ech__init){0, 0};
    const ech_value beta = layer_value(graph, name, "bias", &v);
    v.kind = ECH__VALUE_BUFFER;
    const ech_value running_mean = layer_value(graph, name, "running_mean", &v);
    v.init = (ech__init){1, 1};
    const ech_value running_var = layer_value(graph, name, "running_var", &v);
    const ech_value mean = ech__graph_add(
        graph, &(ech__node){.op = ECH__OP_BN_STATS, .name = name, .nin = 1, .in = {x}});
    const ech_value var = mean < 0 ? mean : mean + 1;
    ech__graph_add(graph, &(ech__node){.op = ECH__OP_BN_RUNNING,
                                       .name = name,
                                       .attrs = {.momentum = 0.1},
                                       .nin = 5,
                                       .in = {running_mean, running_var, mean, var, x}});
    return ech__graph_add(graph, &(ech__node){.op = ECH__OP_BN_APPLY,
                                              .name = name,
                                              .attrs = {.epsilon = 1e-5},
                                              .nin = 5,
                                              .in = {x, mean, var, gamma, beta}});
}

static ech_value pool(ech_graph *graph, ech__op op, ech_value x, int64_t kernel, int64_t stride)
{
    return ech__graph_add(
        graph,
        &(ech__node){.op = op, .attrs = {.kernel = kernel, .stride = stride}, .nin = 1, .in = {x}});
}

ech_value ech_maxpool2d(ech_graph *graph, ech_value x, int64_t kernel, int64_t stride)
{
    return pool(graph, ECH__OP_MAXPOOL2D, x, kernel, stride);
}

ech_value ech_avgpool2d(ech_graph *graph, ech_value x, int64_t kernel, int64_t stride)
{
    return pool(graph, ECH__OP_AVGPOOL2D, x, kernel, stride);
}

ech_value ech_flatten(ech_graph *graph, ech_value x)
{
    return ech__graph_add(graph, &(ech__node){.op = ECH__OP_FLATTEN, .nin = 1, .in = {x}});
}

ech_value ech_relu(ech_graph *graph, ech_value x)
{
    return ech__graph_add(graph, &(ech__node){.op = ECH__OP_RELU, .nin = 1, .in = {x}});
}

ech_value ech_add(ech_graph *graph, ech_value a, ech_value b)
{
    return ech__graph_add(graph, &(ech__node){.op = ECH__OP_ADD, .nin = 2, .in = {a, b}});
}

ech_value ech_mse(ech_graph *graph, ech_value pred, ech_value target)
{
    return ech__graph_add(graph, &(ech__node){.op = ECH__OP_MSE, .nin = 2, .in = {pred, target}});
}

ech_value ech_count_correct(ech_graph *graph, ech_value logits, ech_value labels)
{
    const ech_value count = ech__graph_add(
        graph, &(ech__node){.op = ECH__OP_COUNT_CORRECT, .nin = 2, .in = {logits, labels}});
    ech__graph_keep(graph, count);
    return count;
}

ech_value ech_cross_entropy(ech_graph *graph, ech_value logits, ech_value labels)
{
    return ech__graph_add(
        graph, &(ech__node){.op = ECH__OP_CROSS_ENTROPY, .nin = 2, .in = {logits, labels}});
}
