#include "quant/scales.h"
#include "base/names.h"
#include "graph/op_quant.h"

#include <math.h>
#include <string.h>

enum { WEIGHT_MAX = 127 };

/* A bias in units of x * w stays below this: as far from the limit of s32 as f32 can tell. */
static const double BIAS_MAX = 0x1p30;

ECH__NAMES(ech__clip_name, ech_clip, ECH_CLIP_LIST)

ech__scale_options ech__scale_defaults(void)
{
    return (ech__scale_options){.weights = ECH_CLIP_MSE,
                                .per_channel = true,
                                .weight_percentile = 99.9,
                                .activations = ECH_OBSERVE_ENTROPY,
                                .percentile = 99.99};
}

/* ---- what a graph says of its values ---- */

static bool passes_through(ech__op op)
{
    return op == ECH__OP_MAXPOOL2D || op == ECH__OP_FLATTEN;
}

ech_value ech__scale_owner(const ech_graph *fused, ech_value value)
{
    const ech__node *maker = ech__maker_of(fused, value);
    while (maker && passes_through(maker->op)) {
        value = maker->in[0];
        maker = ech__maker_of(fused, value);
    }
    return value;
}

ech_dtype ech__scale_type(const ech_graph *fused, ech_value value)
{
    value = ech__scale_owner(fused, value);
    const ech__node *maker = ech__maker_of(fused, value);
    if (!maker)
        return ECH_S8;
    if (maker->attrs.relu || maker->op == ECH__OP_RELU)
        return ECH_U8;
    if (maker->op == ECH__OP_AVGPOOL2D)
        return ech__scale_type(fused, maker->in[0]);
    return ECH_S8;
}

const char *ech__scale_name(const ech_graph *fused, ech_value value)
{
    const ech__node *maker = ech__maker_of(fused, value);
    return maker ? maker->name : fused->values[value].name;
}

/* Whether an operator can take its input i as integers. */
static bool takes_integers(const ech_graph *graph, const ech__node *node, int i)
{
    if (ech__is_layer(graph, node) || passes_through(node->op) || node->op == ECH__OP_AVGPOOL2D)
        return i == 0;
    return node->op == ECH__OP_ADD && graph->values[node->in[1]].kind != ECH__VALUE_PARAM;
}

bool ech__has_scale(const ech__qmodel *model, ech_value value)
{
    const ech_graph *graph = model->fused;
    const ech__node *maker = ech__maker_of(graph, value);
    const bool made = maker && !passes_through(maker->op);
    if (value == model->output || (!made && value != model->input))
        return false;
    for (size_t n = 0; n < graph->nnodes; n++) {
        for (int i = 0; i < graph->nodes[n].nin; i++) {
            if (graph->nodes[n].in[i] == value && takes_integers(graph, &graph->nodes[n], i))
                return true;
        }
    }
    return false;
}

/* ---- lifecycle ---- */

static size_t count_layers(const ech_graph *graph)
{
    size_t count = 0;
    for (size_t n = 0; n < graph->nnodes; n++)
        count += ech__is_layer(graph, &graph->nodes[n]);
    return count;
}

ech_status ech__scales_init(ech__scales *scales, const ech__qmodel *model)
{
    const ech_graph *graph = model->fused;
    *scales = (ech__scales){.ctx = model->ctx, .nvalues = graph->nvalues};
    ech__arena_init(&scales->arena, model->ctx->alloc);
    const size_t count = count_layers(graph);
    scales->activation =
        ech__arena_array(&scales->arena, graph->nvalues, sizeof *scales->activation);
    scales->layers = ech__arena_array(&scales->arena, count + 1, sizeof *scales->layers);
    bool ok = scales->activation && scales->layers;
    for (size_t n = 0; ok && n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        if (!ech__is_layer(graph, node))
            continue;
        ech__layer_scales *layer = &scales->layers[scales->nlayers++];
        layer->name = node->name;
        layer->weight = node->in[1];
        layer->outputs = graph->values[node->in[1]].type.shape.dims[0];
        layer->scale =
            ech__arena_array(&scales->arena, (size_t)layer->outputs, sizeof *layer->scale);
        ok = layer->scale != NULL;
    }
    if (ok && count)
        return ECH_OK;
    ech__scales_fini(scales);
    return ok ? ech__fail(model->ctx, ECH_E_INVALID,
                          "the network has no linear layer and no convolution to quantize")
              : ech__no_memory(model->ctx, "the scales of %zu layers", count);
}

void ech__scales_fini(ech__scales *scales)
{
    if (!scales->ctx)
        return;
    ech__arena_fini(&scales->arena);
    *scales = (ech__scales){.ctx = NULL};
}

ech__layer_scales *ech__scales_layer(const ech__scales *scales, const char *name)
{
    for (size_t i = 0; i < scales->nlayers; i++) {
        if (!strcmp(scales->layers[i].name, name))
            return &scales->layers[i];
    }
    return NULL;
}

/* ---- weights ---- */

static double squared_error(const float *weight, int64_t count, float scale)
{
    double sum = 0;
    const float inverse = 1 / scale;
    for (int64_t i = 0; i < count; i++) {
        const float whole = rintf(weight[i] * inverse);
        const float kept = whole > WEIGHT_MAX    ? WEIGHT_MAX
                           : whole < -WEIGHT_MAX ? -WEIGHT_MAX
                                                 : whole;
        const float error = weight[i] - kept * scale;
        sum += (double)(error * error);
    }
    return sum;
}

/* From all of the range down to 40 % of it. */
static float least_error_scale(const float *weight, int64_t count, float most)
{
    enum { TRIES = 31 };
    float best = most / WEIGHT_MAX;
    double least = INFINITY;
    for (int i = 0; i < TRIES; i++) {
        const float scale = most * (1 - 0.02f * (float)i) / WEIGHT_MAX;
        const double error = squared_error(weight, count, scale);
        if (error < least) {
            least = error;
            best = scale;
        }
    }
    return best;
}

float ech__clip_scale(const float *weight, int64_t count, const ech__scale_options *options)
{
    static const ech__histogram none;
    ech__histogram h = none;
    ech__histogram_add(&h, weight, count);
    const double most = fmax(h.max, -h.min);
    const ech__histogram_stats spread = ech__histogram_stats_of(&h);
    double range = most;
    if (most == 0)
        return 0;
    switch (options->weights) {
    case ECH_CLIP_MAX:
        break;
    case ECH_CLIP_SIGMA:
        range = fmin(most, 3 * sqrt(spread.sigma * spread.sigma + spread.mean * spread.mean));
        break;
    case ECH_CLIP_PERCENTILE:
        range = ech__histogram_percentile(&h, options->weight_percentile);
        break;
    case ECH_CLIP_MSE:
        return least_error_scale(weight, count, (float)most);
    }
    /* Numbers so small that their scale would underflow count as zero. */
    return (float)(range / WEIGHT_MAX);
}

float ech__whole_weight(float weight, float scale)
{
    return fminf(fmaxf(rintf(weight / scale), -WEIGHT_MAX), WEIGHT_MAX);
}

void ech__round_weight(const float *weight, int64_t outputs, int64_t each, const float *scale,
                       int8_t *out)
{
    for (int64_t o = 0; o < outputs; o++) {
        for (int64_t i = 0; i < each; i++)
            out[o * each + i] = (int8_t)ech__whole_weight(weight[o * each + i], scale[o]);
    }
}

ech_status ech__scales_weights(ech__scales *scales, const ech__qmodel *model,
                               const ech__scale_options *options)
{
    for (size_t l = 0; l < scales->nlayers; l++) {
        ech__layer_scales *layer = &scales->layers[l];
        const char *name = model->fused->values[layer->weight].name;
        const ech__tensor *t = ech__tensors_find(&model->weights, name);
        if (!t)
            return ech__fail(scales->ctx, ECH_E_INVALID, "layer '%s' lacks its weight '%s'",
                             layer->name, name);
        const int64_t each = t->elems / layer->outputs;
        const float whole = ech__clip_scale(t->data, t->elems, options);
        if (whole == 0)
            return ech__fail(scales->ctx, ECH_E_INVALID,
                             "layer '%s' has a weight range of zero: all %lld numbers of '%s' are "
                             "0, and no scale fits them",
                             layer->name, (long long)t->elems, name);
        for (int64_t o = 0; o < layer->outputs; o++) {
            const float own =
                options->per_channel
                    ? ech__clip_scale((const float *)t->data + o * each, each, options)
                    : whole;
            layer->scale[o] = own > 0 ? own : whole; /* a dead channel is 0 at any scale */
        }
    }
    return ECH_OK;
}

/* ---- activations ---- */

/* Channels whose weights are all but zero would need a bias beyond s32: they get a larger scale, which their weights
 * do not notice. */
static void fit_biases(ech__scales *scales, const ech__qmodel *model)
{
    const ech_graph *graph = model->fused;
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        if (!ech__is_layer(graph, node) || node->nin < 3)
            continue;
        const ech__layer_scales *layer = ech__scales_layer(scales, node->name);
        const ech__tensor *bias =
            ech__tensors_find(&model->weights, graph->values[node->in[2]].name);
        const double x = (double)scales->activation[ech__scale_owner(graph, node->in[0])];
        const float *b = bias ? bias->data : NULL;
        for (int64_t o = 0; b && o < layer->outputs; o++) {
            const double least = fabs((double)b[o]) / (x * BIAS_MAX);
            if ((double)layer->scale[o] < least)
                layer->scale[o] = (float)least * (1 + 0x1p-20f);
        }
    }
}

ech_status ech__scales_activations(ech__scales *scales, const ech__qmodel *model,
                                   ech__histogram *const *observed,
                                   const ech__scale_options *options)
{
    const ech_graph *graph = model->fused;
    for (size_t v = 0; v < scales->nvalues; v++) {
        if (!ech__has_scale(model, (ech_value)v))
            continue;
        const ech__histogram *h = observed[v];
        const char *name = ech__scale_name(graph, (ech_value)v);
        if (!h || !h->count)
            return ech__fail(scales->ctx, ECH_E_INVALID,
                             "the range of '%s' is unknown: the calibration set is empty", name);
        if (h->not_finite)
            return ech__fail(scales->ctx, ECH_E_INVALID,
                             "'%s' gives %lld values that are not finite on the calibration set",
                             name, (long long)h->not_finite);
        const int levels = ech__scale_type(graph, (ech_value)v) == ECH_U8 ? 255 : 127;
        const double range =
            ech__histogram_threshold(h, options->activations, options->percentile, levels);
        const float scale = (float)(range / levels);
        if (!(scale > 0))
            return ech__fail(scales->ctx, ECH_E_INVALID,
                             "'%s' has an activation range of zero: it gave 0 for all %lld values "
                             "of the calibration set, and no scale fits them",
                             name, (long long)h->count);
        scales->activation[v] = scale;
    }
    fit_biases(scales, model);
    return ECH_OK;
}

static ech_status check_scale(const ech__scales *scales, const char *what, const char *name,
                              float scale)
{
    if (isfinite(scale) && scale > 0)
        return ECH_OK;
    return ech__fail(scales->ctx, ECH_E_FORMAT,
                     "the %s scale of '%s' is %g; it must be a finite number above 0", what, name,
                     (double)scale);
}

ech_status ech__scales_check(const ech__scales *scales, const ech__qmodel *model)
{
    for (size_t v = 0; v < scales->nvalues; v++) {
        if (ech__has_scale(model, (ech_value)v))
            ECH_TRY(check_scale(scales, "activation", ech__scale_name(model->fused, (ech_value)v),
                                scales->activation[v]));
    }
    for (size_t l = 0; l < scales->nlayers; l++) {
        for (int64_t o = 0; o < scales->layers[l].outputs; o++)
            ECH_TRY(
                check_scale(scales, "weight", scales->layers[l].name, scales->layers[l].scale[o]));
    }
    return ECH_OK;
}

/* ---- integers ---- */

static ech_status round_bias(const ech__scales *scales, const ech__qmodel *model,
                             const ech__node *node, const ech__layer_scales *layer,
                             ech__tensors *whole)
{
    const ech_graph *graph = model->fused;
    const char *name = graph->values[node->in[2]].name;
    const ech__tensor *from = ech__tensors_find(&model->weights, name);
    const double x = (double)scales->activation[ech__scale_owner(graph, node->in[0])];
    ech__tensor *t;
    if (!from)
        return ech__fail(scales->ctx, ECH_E_INVALID, "layer '%s' lacks its bias '%s'", node->name,
                         name);
    ECH_TRY(ech__tensors_add(whole, name, ECH_S32, &from->shape, &t));
    for (int64_t o = 0; o < layer->outputs; o++) {
        const double unit = x * (double)layer->scale[o];
        const double units = rint((double)((const float *)from->data)[o] / unit);
        if (!(fabs(units) <= INT32_MAX))
            return ech__fail(scales->ctx, ECH_E_LIMIT,
                             "bias %lld of '%s' is %g units of %g; 32 bits hold %d", (long long)o,
                             layer->name, units, unit, INT32_MAX);
        ((int32_t *)t->data)[o] = (int32_t)units;
    }
    return ECH_OK;
}

ech_status ech__round_parameters(const ech__qmodel *model, const ech__scales *scales,
                                 ech__tensors *whole)
{
    const ech_graph *graph = model->fused;
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        if (!ech__is_layer(graph, node))
            continue;
        const ech__layer_scales *layer = ech__scales_layer(scales, node->name);
        const ech__tensor *w =
            ech__tensors_find(&model->weights, graph->values[layer->weight].name);
        ech__tensor *t;
        if (!w)
            return ech__fail(scales->ctx, ECH_E_INVALID, "layer '%s' lacks its weight", node->name);
        ECH_TRY(ech__tensors_add(whole, w->name, ECH_S8, &w->shape, &t));
        ech__round_weight(w->data, layer->outputs, w->elems / layer->outputs, layer->scale,
                          t->data);
        if (node->nin == 3)
            ECH_TRY(round_bias(scales, model, node, layer, whole));
    }
    return ECH_OK;
}
