#include "quant/rewrite.h"
#include "graph/op_quant.h"

#include <stdlib.h>
#include <string.h>

/* The graph under construction and the one it is made from. */
typedef struct rewriter {
    const ech__qmodel *model;
    const ech__scales *scales;
    const ech__tensors *whole_params;
    const bool *layers; /* NULL: all */
    ech__rewritten *out;
    ech_value *f32, *whole; /* [nvalues] a value of the new graph, or -1 */
    bool *wanted;           /* [nvalues] as integers, by a user */
} rewriter;

void ech__rewritten_fini(ech__rewritten *rewritten)
{
    ech_graph_destroy(rewritten->graph);
    ech__tensors_fini(&rewritten->weights);
    *rewritten = (ech__rewritten){.output = -1};
}

/* ---- what becomes integers ---- */

static bool is_chosen(const rewriter *r, const ech__node *node)
{
    const ech_graph *graph = r->model->fused;
    if (!ech__is_layer(graph, node))
        return false;
    if (!r->layers)
        return true;
    return r->layers[ech__scales_layer(r->scales, node->name) - r->scales->layers];
}

/* The ReLU that a sum can do itself, or NULL. */
static const ech__node *relu_behind(const rewriter *r, const ech__node *sum)
{
    const ech__node *user = ech__only_user(r->model->fused, sum->out[0]);
    return user && user->op == ECH__OP_RELU && sum->out[0] != r->model->output ? user : NULL;
}

static bool is_between(const rewriter *r, const ech__node *node)
{
    const bool all = !r->layers;
    switch (node->op) {
    case ECH__OP_MAXPOOL2D:
    case ECH__OP_FLATTEN:
        return true;
    case ECH__OP_AVGPOOL2D:
        return all;
    case ECH__OP_ADD:
        return all && ech__shape_equal(&r->model->fused->values[node->in[0]].type.shape,
                                       &r->model->fused->values[node->in[1]].type.shape);
    default:
        return false;
    }
}

/* From the last operator to the first: a layer needs integer inputs, and operators between layers
 * pass this on. */
static void find_wanted(rewriter *r)
{
    const ech_graph *graph = r->model->fused;
    for (size_t n = graph->nnodes; n-- > 0;) {
        const ech__node *node = &graph->nodes[n];
        const ech__node *relu = node->op == ECH__OP_ADD ? relu_behind(r, node) : NULL;
        const ech_value made = relu ? relu->out[0] : node->out[0];
        if (is_chosen(r, node))
            r->wanted[node->in[0]] = true;
        else if (is_between(r, node) && r->wanted[made])
            for (int i = 0; i < node->nin; i++)
                r->wanted[node->in[i]] = true;
    }
}

/* ---- values of both kinds ---- */

static double scale_of(const rewriter *r, ech_value v)
{
    return (double)r->scales->activation[ech__scale_owner(r->model->fused, v)];
}

static ech_dtype type_of(const rewriter *r, ech_value v)
{
    return ech__scale_type(r->model->fused, v);
}

static ech_value as_f32(rewriter *r, ech_value v)
{
    if (r->f32[v] < 0)
        r->f32[v] = ech__graph_add(r->out->graph, &(ech__node){.op = ECH__OP_DEQUANTIZE,
                                                               .attrs = {.scale = scale_of(r, v)},
                                                               .nin = 1,
                                                               .in = {r->whole[v]}});
    return r->f32[v];
}

static ech_value as_whole(rewriter *r, ech_value v)
{
    if (r->whole[v] < 0)
        r->whole[v] = ech__graph_add(
            r->out->graph, &(ech__node){.op = ECH__OP_QUANTIZE,
                                        .attrs = {.scale = scale_of(r, v), .dtype = type_of(r, v)},
                                        .nin = 1,
                                        .in = {r->f32[v]}});
    return r->whole[v];
}

/* A parameter of the new graph with its tensor. */
static ech_status add_param(rewriter *r, const char *name, ech__value_kind kind, ech__type type,
                            ech_value *value, ech__tensor **tensor)
{
    ech_graph *graph = r->out->graph;
    *value =
        ech__graph_value(graph, &(ech__value){.name = name, .kind = kind, .type = type, .of = -1});
    if (*value < 0)
        return (ech_status)*value;
    return ech__tensors_add(&r->out->weights, name, type.dtype, &type.shape, tensor);
}

/* ---- layers ---- */

/* [O, I, K, K] -> [O, K, K * I]: channels innermost. */
static void order_channels(const int8_t *from, const ech__shape *shape, int8_t *to)
{
    const int64_t O = shape->dims[0], I = shape->dims[1], K = shape->dims[2];
    for (int64_t o = 0; o < O; o++) {
        for (int64_t i = 0; i < I; i++) {
            for (int64_t k = 0; k < K * K; k++)
                to[(o * K * K + k) * I + i] = from[(o * I + i) * K * K + k];
        }
    }
}

/* The furthest from zero that a sum of products with `count` weights can come. With u8 all of one sign add up, and
 * the others may be away. */
static int64_t bound_of(const int8_t *weight, int64_t count, ech_dtype x)
{
    int64_t sizes = 0, sum = 0; /* of all, and with their signs */
    for (int64_t i = 0; i < count; i++) {
        sizes += abs(weight[i]);
        sum += weight[i];
    }
    const int64_t one_sign = (sizes + (sum < 0 ? -sum : sum)) / 2;
    return x == ECH_U8 ? 255 * one_sign : 128 * sizes;
}

/* weight[O, I, K, K]: the largest of such bounds, over every output and every ECH__BOUND_CHANNELS of its inputs. */
static int64_t largest_bound(const int8_t *weight, const ech__shape *shape, ech_dtype x)
{
    const int64_t pixels = shape->dims[2] * shape->dims[3], I = shape->dims[1];
    int64_t most = 0;
    for (int64_t o = 0; o < shape->dims[0]; o++) {
        for (int64_t i = 0; i < I; i += ECH__BOUND_CHANNELS) {
            const int64_t count = I - i < ECH__BOUND_CHANNELS ? I - i : ECH__BOUND_CHANNELS;
            const int64_t bound = bound_of(weight + (o * I + i) * pixels, count * pixels, x);
            most = bound > most ? bound : most;
        }
    }
    return most;
}

static ech_status add_weight(rewriter *r, const ech__node *node, const ech__layer_scales *layer,
                             ech__node *out)
{
    const ech__value *value = &r->model->fused->values[layer->weight];
    const ech__shape *shape = &value->type.shape;
    const ech__tensor *from = ech__tensors_find(r->whole_params, value->name);
    const bool image = node->op == ECH__OP_CONV2D;
    ech__type type = {ECH_S8, *shape};
    ech__tensor *t;
    if (!from || from->dtype != ECH_S8 || !ech__shape_equal(&from->shape, shape))
        return ech__fail(r->model->ctx, ECH_E_INVALID, "layer '%s' lacks its weight '%s' in s8",
                         layer->name, value->name);
    if (image)
        type.shape =
            (ech__shape){3, {shape->dims[0], shape->dims[2], shape->dims[3] * shape->dims[1]}};
    ECH_TRY(add_param(r, value->name, ECH__VALUE_PARAM, type, &out->in[1], &t));
    if (image) {
        out->attrs.bound = largest_bound(from->data, shape, type_of(r, node->in[0]));
        order_channels(from->data, shape, t->data);
    } else {
        memcpy(t->data, from->data, (size_t)t->elems);
    }
    return ECH_OK;
}

/* A layer without one gets zeros. */
static ech_status add_bias(rewriter *r, const ech__node *node, const ech__layer_scales *layer,
                           ech__node *out)
{
    const ech__type type = {ECH_S32, {1, {layer->outputs}}};
    const char *name = ech__arena_printf(&r->out->graph->arena, "%s.bias", layer->name);
    const char *given = node->nin == 3 ? r->model->fused->values[node->in[2]].name : NULL;
    const ech__tensor *from = given ? ech__tensors_find(r->whole_params, given) : NULL;
    ech__tensor *t;
    if (!name || (given && (!from || from->dtype != ECH_S32 || from->elems != layer->outputs)))
        return ech__fail(r->model->ctx, ECH_E_INVALID, "layer '%s' lacks its bias in s32",
                         layer->name);
    ECH_TRY(add_param(r, name, ECH__VALUE_BUFFER, type, &out->in[2], &t));
    if (from)
        memcpy(t->data, from->data, (size_t)layer->outputs * sizeof(int32_t));
    return ECH_OK;
}

static ech_status add_scale(rewriter *r, const ech__node *node, const ech__layer_scales *layer,
                            ech__node *out)
{
    const char *name = ech__arena_printf(&r->out->graph->arena, "%s.scale", layer->name);
    ech__tensor *t;
    if (!name)
        return ech__no_memory(r->model->ctx, "the scales of '%s'", layer->name);
    ECH_TRY(add_param(r, name, ECH__VALUE_BUFFER, (ech__type){ECH_F32, {1, {layer->outputs}}},
                      &out->in[3], &t));
    const double y = out->attrs.dtype == ECH_F32 ? 1 : scale_of(r, node->out[0]);
    for (int64_t o = 0; o < layer->outputs; o++)
        ((float *)t->data)[o] = (float)(scale_of(r, node->in[0]) * (double)layer->scale[o] / y);
    return ECH_OK;
}

static ech_status rewrite_layer(rewriter *r, const ech__node *node)
{
    const ech__layer_scales *layer = ech__scales_layer(r->scales, node->name);
    const ech_value made = node->out[0];
    ech__node out = {.op = node->op == ECH__OP_LINEAR ? ECH__OP_QLINEAR : ECH__OP_QCONV2D,
                     .name = node->name,
                     .attrs = node->attrs,
                     .nin = 4};
    out.attrs.dtype = r->wanted[made] ? type_of(r, made) : ECH_F32;
    out.in[0] = as_whole(r, node->in[0]);
    ECH_TRY(add_weight(r, node, layer, &out));
    ECH_TRY(add_bias(r, node, layer, &out));
    ECH_TRY(add_scale(r, node, layer, &out));
    (r->wanted[made] ? r->whole : r->f32)[made] = ech__graph_add(r->out->graph, &out);
    return r->out->graph->status;
}

/* ---- everything else ---- */

static ech_status rewrite_sum(rewriter *r, const ech__node *node)
{
    const ech__node *relu = relu_behind(r, node);
    const ech_value made = relu ? relu->out[0] : node->out[0];
    const double y = scale_of(r, made);
    r->whole[made] = ech__graph_add(
        r->out->graph, &(ech__node){.op = ECH__OP_QADD,
                                    .name = node->name,
                                    .attrs = {.relu = relu != NULL,
                                              .dtype = type_of(r, made),
                                              .scale = scale_of(r, node->in[0]) / y,
                                              .scale2 = scale_of(r, node->in[1]) / y},
                                    .nin = 2,
                                    .in = {as_whole(r, node->in[0]), as_whole(r, node->in[1])}});
    return r->out->graph->status;
}

static ech_status rewrite_between(rewriter *r, const ech__node *node)
{
    ech__node out = {.name = node->name, .attrs = node->attrs, .nin = 1};
    out.in[0] = as_whole(r, node->in[0]);
    if (node->op == ECH__OP_AVGPOOL2D) {
        const double window = (double)(node->attrs.kernel * node->attrs.kernel);
        out.op = ECH__OP_QAVGPOOL2D;
        out.attrs.dtype = type_of(r, node->out[0]);
        out.attrs.scale = scale_of(r, node->in[0]) / (window * scale_of(r, node->out[0]));
    } else {
        out.op = node->op == ECH__OP_MAXPOOL2D ? ECH__OP_QMAXPOOL2D : ECH__OP_QFLATTEN;
    }
    r->whole[node->out[0]] = ech__graph_add(r->out->graph, &out);
    return r->out->graph->status;
}

/* An operator that stays as it is, on f32. */
static ech_status keep(rewriter *r, const ech__node *node)
{
    const ech_graph *graph = r->model->fused;
    ech__node out = *node;
    for (int i = 0; i < node->nin; i++) {
        const ech_value v = node->in[i];
        const ech__value *value = &graph->values[v];
        const bool param = value->kind == ECH__VALUE_PARAM || value->kind == ECH__VALUE_BUFFER;
        if (param && r->f32[v] < 0) {
            const ech__tensor *t = ech__tensors_find(&r->model->weights, value->name);
            if (!t)
                return ech__fail(r->model->ctx, ECH_E_INVALID, "'%s' is missing", value->name);
            r->f32[v] = ech__graph_value(r->out->graph, value);
            ECH_TRY(ech__tensors_copy(&r->out->weights, t, NULL));
        }
        out.in[i] = as_f32(r, v);
    }
    const ech_value made = ech__graph_add(r->out->graph, &out);
    for (int i = 0; made >= 0 && i < node->nout; i++)
        r->f32[node->out[i]] = made + i;
    return r->out->graph->status;
}

static ech_status rewrite_node(rewriter *r, const ech__node *node)
{
    if (r->f32[node->out[0]] >= 0 || r->whole[node->out[0]] >= 0)
        return ECH_OK; /* a ReLU that the sum before it does */
    if (is_chosen(r, node))
        return rewrite_layer(r, node);
    if (node->op == ECH__OP_ADD && is_between(r, node)) {
        const ech__node *relu = relu_behind(r, node);
        if (r->wanted[relu ? relu->out[0] : node->out[0]])
            return rewrite_sum(r, node);
    } else if (is_between(r, node) && r->wanted[node->out[0]]) {
        return rewrite_between(r, node);
    }
    return keep(r, node);
}

static ech_status rewrite(rewriter *r)
{
    const ech__qmodel *model = r->model;
    const ech_graph *graph = model->fused;
    ech_graph *made = r->out->graph;
    r->f32 = ech__arena_array(&made->arena, graph->nvalues, sizeof *r->f32);
    r->whole = ech__arena_array(&made->arena, graph->nvalues, sizeof *r->whole);
    r->wanted = ech__arena_array(&made->arena, graph->nvalues, sizeof *r->wanted);
    if (!r->f32 || !r->whole || !r->wanted)
        return ech__no_memory(model->ctx, "%zu values", graph->nvalues);
    for (size_t v = 0; v < graph->nvalues; v++)
        r->f32[v] = r->whole[v] = -1;
    find_wanted(r);
    const ech__value *input = &graph->values[model->input];
    r->f32[model->input] = ech_input(made, input->name, input->type.dtype, input->type.shape.ndims,
                                     input->type.shape.dims);
    for (size_t n = 0; n < graph->nnodes; n++)
        ECH_TRY(rewrite_node(r, &graph->nodes[n]));
    r->out->output = as_f32(r, model->output);
    ech__graph_keep(made, r->out->output);
    return made->status;
}

ech_status ech__quantize(const ech__qmodel *model, const ech__scales *scales,
                         const ech__tensors *whole, const bool *layers, ech__rewritten *out)
{
    *out = (ech__rewritten){.output = -1};
    ech__tensors_init(model->ctx, &out->weights);
    rewriter r = {
        .model = model, .scales = scales, .whole_params = whole, .layers = layers, .out = out};
    ech_status status = ech_graph_create(model->ctx, &out->graph);
    if (status == ECH_OK)
        status = rewrite(&r);
    if (status < 0)
        ech__rewritten_fini(out);
    return status;
}
