/* Batch norms in evaluation are a factor and a shift of each channel: they go into the convolution before them.
 *
 *     gamma * (conv(x) - mean) / sqrt(variance + epsilon) + beta = conv'(x) + shift
 *     factor = gamma / sqrt(variance + epsilon);  w' = w * factor;  shift = beta + (bias - mean) * factor
 */
#include "quant/model.h"

#include <math.h>
#include <string.h>

/* The convolution whose result nothing but this norm takes. */
static ech__node *convolution_before(ech_graph *graph, const ech__node *norm)
{
    const ech__node *maker = ech__maker_of(graph, norm->in[0]);
    if (!maker || maker->op != ECH__OP_CONV2D || !ech__is_layer(graph, maker) ||
        ech__only_user(graph, norm->in[0]) != norm)
        return NULL;
    return &graph->nodes[maker - graph->nodes];
}

/* The bias of the convolution, made where it has none. */
static ech_status bias_of(ech_graph *graph, ech__node *conv, ech_value *out)
{
    if (conv->nin == 3) {
        *out = conv->in[2];
        return ECH_OK;
    }
    const ech__value *weight = &graph->values[conv->in[1]];
    const char *name = ech__arena_printf(&graph->arena, "%s.bias", conv->name);
    if (!name)
        return ech__no_memory(graph->ctx, "the bias of '%s'", conv->name);
    *out = ech__graph_value(
        graph, &(ech__value){.name = name,
                             .kind = ECH__VALUE_PARAM,
                             .type = {weight->type.dtype, {1, {weight->type.shape.dims[0]}}},
                             .of = -1});
    if (*out < 0)
        return (ech_status)*out;
    conv->in[conv->nin++] = *out;
    return ECH_OK;
}

/* weight[O, ...] and bias[O] of the convolution, by the tensors of the norm. */
static ech_status fold_weights(const ech_graph *graph, ech__tensors *weights, const ech__node *norm,
                               const ech__node *conv)
{
    const float *vectors[4]; /* mean variance gamma beta */
    for (int i = 0; i < 4; i++) {
        const ech__tensor *t = ech__tensors_find(weights, graph->values[norm->in[1 + i]].name);
        if (!t)
            return ech__fail(graph->ctx, ECH_E_INVALID, "batch norm '%s' lacks its tensor '%s'",
                             norm->name, graph->values[norm->in[1 + i]].name);
        vectors[i] = t->data;
    }
    ech__tensor *weight = ech__tensors_find(weights, graph->values[conv->in[1]].name);
    const ech__value *bias_value = &graph->values[conv->in[2]];
    ech__tensor *bias = ech__tensors_find(weights, bias_value->name);
    if (!weight)
        return ech__fail(graph->ctx, ECH_E_INVALID, "convolution '%s' lacks its weight",
                         conv->name);
    if (!bias)
        ECH_TRY(
            ech__tensors_add(weights, bias_value->name, ECH_F32, &bias_value->type.shape, &bias));
    const int64_t O = weight->shape.dims[0], each = weight->elems / O;
    float *w = weight->data, *b = bias->data;
    for (int64_t o = 0; o < O; o++) {
        const double variance = (double)vectors[1][o];
        const double factor = (double)vectors[2][o] / sqrt(variance + norm->attrs.epsilon);
        if (!isfinite(factor))
            return ech__fail(graph->ctx, ECH_E_INVALID,
                             "channel %lld of batch norm '%s' has a running variance of %g; it "
                             "must be 0 or more",
                             (long long)o, norm->name, variance);
        for (int64_t i = 0; i < each; i++)
            w[o * each + i] = (float)((double)w[o * each + i] * factor);
        b[o] = (float)((double)vectors[3][o] + ((double)b[o] - (double)vectors[0][o]) * factor);
    }
    return ECH_OK;
}

ech_status ech__fold_norms(ech_graph *graph, ech__tensors *weights)
{
    ECH_TRY(graph->status);
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node norm = graph->nodes[n];
        if (norm.op != ECH__OP_BN_APPLY)
            continue;
        ech__node *conv = convolution_before(graph, &graph->nodes[n]);
        if (!conv || norm.nin != 5)
            return ech__fail(graph->ctx, ECH_E_UNSUPPORTED,
                             "batch norm '%s' has no convolution of its own before it; without one "
                             "it cannot be quantized",
                             norm.name);
        ech_value bias;
        ECH_TRY(bias_of(graph, conv, &bias));
        if (weights)
            ECH_TRY(fold_weights(graph, weights, &norm, conv));
        conv->out[0] = norm.out[0];
        memmove(graph->nodes + n, graph->nodes + n + 1,
                (graph->nnodes - n - 1) * sizeof *graph->nodes);
        graph->nnodes--;
        n--;
    }
    return ECH_OK;
}
