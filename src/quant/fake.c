/* Fake quantization: the integer network in float arithmetic on whole numbers. Weights are whole
 * numbers, and the results of every layer are rescaled for the next one, rounded and clamped. If
 * sums stay below 2^24, the results are those of the integer network. */
#include "quant/rewrite.h"

#include <math.h>

typedef struct faker {
    const ech__qmodel *model;
    const ech__scales *scales;
    const ech__fake_options *options;
    ech__rewritten *out;
    ech_value *made; /* [nvalues] the value of the new graph, or -1 */
    int rounds;      /* operators so far, for their names */
} faker;

static double scale_of(const faker *f, ech_value v)
{
    return (double)f->scales->activation[ech__scale_owner(f->model->fused, v)];
}

/* Limits of a value's whole numbers. */
static void limits_of(const faker *f, ech_value v, ech__attrs *attrs)
{
    const bool positive = ech__scale_type(f->model->fused, v) == ECH_U8;
    attrs->low = positive ? 0 : -128;
    attrs->high = positive && !f->options->clamp_at_127 ? 255 : 127;
}

/* x * scale[C] as whole numbers within the limits of value v. */
static ech_status add_round(faker *f, ech_value x, ech_value v, const double *scale, int64_t count,
                            ech_value *out)
{
    ech_graph *graph = f->out->graph;
    const char *name = ech__arena_printf(&graph->arena, "round_%d.scale", f->rounds++);
    const ech__shape shape = {1, {graph->values[x].type.shape.dims[1]}};
    ech__tensor *t;
    if (!name)
        return ech__no_memory(f->model->ctx, "a scale");
    const ech_value factor = ech__graph_value(
        graph,
        &(ech__value){.name = name, .kind = ECH__VALUE_BUFFER, .type = {ECH_F32, shape}, .of = -1});
    if (factor < 0)
        return (ech_status)factor;
    ECH_TRY(ech__tensors_add(&f->out->weights, name, ECH_F32, &shape, &t));
    for (int64_t c = 0; c < t->elems; c++)
        ((float *)t->data)[c] = (float)scale[count == 1 ? 0 : c];
    ech__node node = {.op = ECH__OP_ROUND, .nin = 2, .in = {x, factor}};
    limits_of(f, v, &node.attrs);
    *out = ech__graph_add(graph, &node);
    return graph->status;
}

/* A bias in the network's own numbers. unit: of input x weight. */
static double bias_in(const faker *f, double bias, double unit)
{
    const ech__fake_bias how = f->options->bias;
    return how == ECH__FAKE_UNSCALED ? bias
           : how == ECH__FAKE_WHOLE  ? rint(bias / unit)
                                     : bias / unit;
}

/* Whole weights and the bias. The last layer gives the prediction in its own unit: there is nothing to round for. */
static ech_status fake_weights(faker *f, const ech__node *node, const ech__layer_scales *layer,
                               bool last)
{
    const ech_graph *fused = f->model->fused;
    const ech__tensor *from =
        ech__tensors_find(&f->model->weights, fused->values[layer->weight].name);
    ech__tensor *w;
    ECH_TRY(ech__tensors_copy(&f->out->weights, from, &w));
    const int64_t each = w->elems / layer->outputs;
    float *weight = w->data;
    for (int64_t o = 0; o < layer->outputs; o++) {
        const double unit = scale_of(f, node->in[0]) * (double)layer->scale[o];
        for (int64_t i = 0; i < each; i++) {
            const float whole = ech__whole_weight(weight[o * each + i], layer->scale[o]);
            weight[o * each + i] = last ? (float)((double)whole * unit) : whole;
        }
    }
    if (node->nin < 3)
        return ECH_OK;
    ech__tensor *b;
    from = ech__tensors_find(&f->model->weights, fused->values[node->in[2]].name);
    ECH_TRY(ech__tensors_copy(&f->out->weights, from, &b));
    for (int64_t o = 0; o < layer->outputs; o++) {
        const double unit = scale_of(f, node->in[0]) * (double)layer->scale[o];
        const double bias = bias_in(f, (double)((float *)b->data)[o], unit);
        ((float *)b->data)[o] = (float)(last ? bias * unit : bias);
    }
    return ECH_OK;
}

/* A copy of an operator in the new graph; parameters come along. */
static ech_status copy_node(faker *f, const ech__node *node, ech_value *made)
{
    const ech_graph *fused = f->model->fused;
    ech__node out = *node;
    for (int i = 0; i < node->nin; i++) {
        const ech_value v = node->in[i];
        if (f->made[v] < 0)
            f->made[v] = ech__graph_value(f->out->graph, &fused->values[v]);
        out.in[i] = f->made[v];
    }
    *made = ech__graph_add(f->out->graph, &out);
    return f->out->graph->status;
}

static ech_status fake_layer(faker *f, const ech__node *node)
{
    const ech__layer_scales *layer = ech__scales_layer(f->scales, node->name);
    const ech_value y = node->out[0];
    const bool last = y == f->model->output;
    ech_value made;
    ECH_TRY(fake_weights(f, node, layer, last));
    ECH_TRY(copy_node(f, node, &made));
    f->made[y] = made;
    if (last)
        return ECH_OK;
    double *scale = ech__arena_array(&f->out->graph->arena, (size_t)layer->outputs, sizeof *scale);
    if (!scale)
        return ech__no_memory(f->model->ctx, "a scale");
    for (int64_t o = 0; o < layer->outputs; o++)
        scale[o] = scale_of(f, node->in[0]) * (double)layer->scale[o] / scale_of(f, y);
    return add_round(f, made, y, scale, layer->outputs, &f->made[y]);
}

static ech_status fake_sum(faker *f, const ech__node *node)
{
    const ech__node *user = ech__only_user(f->model->fused, node->out[0]);
    const bool relu = user && user->op == ECH__OP_RELU;
    const ech_value y = relu ? user->out[0] : node->out[0];
    const ech_value sum = ech__graph_add(
        f->out->graph, &(ech__node){.op = ECH__OP_QADD,
                                    .name = node->name,
                                    .attrs = {.relu = relu,
                                              .dtype = ECH_F32,
                                              .scale = scale_of(f, node->in[0]) / scale_of(f, y),
                                              .scale2 = scale_of(f, node->in[1]) / scale_of(f, y)},
                                    .nin = 2,
                                    .in = {f->made[node->in[0]], f->made[node->in[1]]}});
    ECH_TRY(f->out->graph->status);
    const double one = 1;
    return add_round(f, sum, y, &one, 1, &f->made[y]); /* only to clamp it */
}

static ech_status fake_node(faker *f, const ech__node *node)
{
    if (f->made[node->out[0]] >= 0)
        return ECH_OK; /* a ReLU that the sum before it did */
    ech_value made;
    switch (node->op) {
    case ECH__OP_LINEAR:
    case ECH__OP_CONV2D:
        return fake_layer(f, node);
    case ECH__OP_ADD:
        return fake_sum(f, node);
    case ECH__OP_MAXPOOL2D:
    case ECH__OP_FLATTEN:
        ECH_TRY(copy_node(f, node, &made));
        f->made[node->out[0]] = made;
        return ECH_OK;
    case ECH__OP_AVGPOOL2D: {
        const double ratio = scale_of(f, node->in[0]) / scale_of(f, node->out[0]);
        ECH_TRY(copy_node(f, node, &made));
        return add_round(f, made, node->out[0], &ratio, 1, &f->made[node->out[0]]);
    }
    default:
        return ech__fail(f->model->ctx, ECH_E_UNSUPPORTED,
                         "fake quantization does not support %s ('%s')", ech__op_name(node->op),
                         node->name);
    }
}

static ech_status fake(faker *f)
{
    const ech__qmodel *model = f->model;
    const ech_graph *fused = model->fused;
    ech_graph *graph = f->out->graph;
    f->made = ech__arena_array(&graph->arena, fused->nvalues, sizeof *f->made);
    if (!f->made)
        return ech__no_memory(model->ctx, "%zu values", fused->nvalues);
    for (size_t v = 0; v < fused->nvalues; v++)
        f->made[v] = -1;
    const ech__value *input = &fused->values[model->input];
    const ech_value x = ech_input(graph, input->name, input->type.dtype, input->type.shape.ndims,
                                  input->type.shape.dims);
    ECH_TRY(graph->status);
    const double inverse = 1 / scale_of(f, model->input);
    ECH_TRY(add_round(f, x, model->input, &inverse, 1, &f->made[model->input]));
    for (size_t n = 0; n < fused->nnodes; n++)
        ECH_TRY(fake_node(f, &fused->nodes[n]));
    f->out->output = f->made[model->output];
    ech__graph_keep(graph, f->out->output);
    return graph->status;
}

static void begin(const ech__qmodel *model, ech__rewritten *out)
{
    *out = (ech__rewritten){.output = -1};
    ech__tensors_init(model->ctx, &out->weights);
}

static ech_status finish(ech__rewritten *out, ech_status status)
{
    if (status < 0)
        ech__rewritten_fini(out);
    return status;
}

ech_status ech__fake_quantize(const ech__qmodel *model, const ech__scales *scales,
                              const ech__fake_options *options, ech__rewritten *out)
{
    faker f = {.model = model, .scales = scales, .options = options, .out = out};
    begin(model, out);
    const ech_status status = ech_graph_create(model->ctx, &out->graph);
    return finish(out, status < 0 ? status : fake(&f));
}

static ech_status round_all(const ech__qmodel *model, const ech__scales *scales,
                            ech__rewritten *out)
{
    ECH_TRY(ech__graph_clone(model->fused, &out->graph));
    ECH_TRY(ech__tensors_copy_all(&out->weights, &model->weights));
    for (size_t l = 0; l < scales->nlayers; l++) {
        const ech__layer_scales *layer = &scales->layers[l];
        ech__tensor *t = ech__tensors_find(&out->weights, model->fused->values[layer->weight].name);
        const int64_t each = t->elems / layer->outputs;
        float *w = t->data;
        for (int64_t i = 0; i < t->elems; i++) {
            const float scale = layer->scale[i / each];
            w[i] = ech__whole_weight(w[i], scale) * scale;
        }
    }
    out->output = model->output;
    return ECH_OK;
}

ech_status ech__round_weights(const ech__qmodel *model, const ech__scales *scales,
                              ech__rewritten *out)
{
    begin(model, out);
    return finish(out, round_all(model, scales, out));
}
