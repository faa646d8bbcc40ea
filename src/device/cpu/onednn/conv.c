/* Convolutions on oneDNN, on images in whatever layout the plan gives them.
 *
 * The weight has up to three layouts that oneDNN would pick itself, one for each direction: all are
 * offered for every direction that has real code for them.
 */
#include "device/cpu/onednn/onednn.h"

#include <string.h>

static ech__create_kernel create_kernel;

/* The tensors of a convolution, whatever the direction: src[N,I,H,W] wei[O,I,K,K] bia[O]
 * dst[N,O,H',W']. */
typedef struct convolution {
    ech__onednn_tensors t;
    dnnl_dims_t strides, pads, pads_end;
} convolution;

static int64_t out_size(int64_t in, const ech__attrs *a)
{
    return (in + 2 * a->pad - a->kernel) / a->stride + 1;
}

/* The padding at the end of an axis that gives just the places that there are. */
static int64_t end_pad(int64_t in, int64_t out, const ech__attrs *a)
{
    return (out - 1) * a->stride + a->kernel - in - a->pad;
}

/* weight NULL: oneDNN picks the layout. */
static convolution describe(const ech__kernel_desc *desc, const ech__layout *weight)
{
    const ech__attrs *a = &desc->attrs;
    const ech__layout *first = &desc->operands[0].layout, *second = &desc->operands[1].layout;
    const ech__layout *last = &desc->operands[desc->nin].layout;
    const bool forward = desc->op == ECH__OP_CONV2D;
    const ech__layout *src = desc->op == ECH__OP_CONV2D_BWD_DATA ? last : first;
    const ech__layout *dst = forward ? last : desc->op == ECH__OP_CONV2D_BWD_DATA ? first : second;
    const ech__operand *wei = &desc->operands[ech__weight_operand(desc->op)];
    const ech__shape *w = &wei->layout.shape;
    const ech_dtype dtype = desc->operands[0].dtype; /* of the images; biases are f32 */
    convolution c = {.strides = {a->stride, a->stride}, .pads = {a->pad, a->pad}};
    for (int k = 0; k < 2; k++)
        c.pads_end[k] = end_pad(src->shape.dims[2 + k], out_size(src->shape.dims[2 + k], a), a);
    ech__onednn_md(src, dtype, &c.t.src);
    ech__onednn_md(dst, dtype, &c.t.dst);
    const ech__layout plain = ech__layout_plain(w),
                      bias = ech__layout_plain(&(ech__shape){1, {w->dims[0]}});
    ech__onednn_md(weight ? weight : &plain, wei->dtype, &c.t.wei);
    ech__onednn_md(&bias, ECH_F32, &c.t.bia);
    if (!weight)
        c.t.wei.format_kind = dnnl_format_kind_any;
    c.t.has_bias = forward ? desc->nin == 3 : a->bias;
    return c;
}

/* The primitive description of op on these tensors, or NULL where oneDNN has none. */
static dnnl_primitive_desc_t primitive_desc(const ech__onednn *onednn, ech__op op,
                                            dnnl_alg_kind_t algorithm, const convolution *c)
{
    const dnnl_memory_desc_t *bia = c->t.has_bias ? &c->t.bia : NULL;
    dnnl_convolution_desc_t d;
    dnnl_primitive_desc_t pd = NULL, hint = NULL;
    dnnl_primitive_attr_t attr = ech__onednn_can_ask(&c->t) ? ech__onednn_attributes() : NULL;
    if (!attr)
        return NULL;
    const ech__onednn_tensors f = ech__onednn_hint(op, &c->t);
    if (dnnl_convolution_forward_desc_init(&d, dnnl_forward_training, algorithm, &f.src, &f.wei,
                                           op == ECH__OP_CONV2D ? bia : NULL, &f.dst, c->strides,
                                           c->pads, c->pads_end) == dnnl_success)
        dnnl_primitive_desc_create(&hint, &d, attr, onednn->engine, NULL);
    if (op != ECH__OP_CONV2D && hint) {
        const dnnl_status_t status =
            op == ECH__OP_CONV2D_BWD_DATA
                ? dnnl_convolution_backward_data_desc_init(&d, algorithm, &c->t.src, &c->t.wei,
                                                           &c->t.dst, c->strides, c->pads,
                                                           c->pads_end)
                : dnnl_convolution_backward_weights_desc_init(&d, algorithm, &c->t.src, &c->t.wei,
                                                              bia, &c->t.dst, c->strides, c->pads,
                                                              c->pads_end);
        if (status == dnnl_success)
            dnnl_primitive_desc_create(&pd, &d, attr, onednn->engine, hint);
        dnnl_primitive_desc_destroy(hint);
    } else {
        pd = hint;
    }
    dnnl_primitive_attr_destroy(attr);
    return pd;
}

int ech__onednn_conv_layouts(ech__onednn *onednn, const ech__kernel_desc *desc, ech__layout *out)
{
    const ech__onednn_directions directions = ech__onednn_directions_of(desc);
    int count = 0;
    for (int k = 0; k < directions.count; k++) {
        const convolution c = describe(desc, NULL);
        dnnl_primitive_desc_t pd =
            primitive_desc(onednn, directions.op[k], dnnl_convolution_direct, &c);
        if (!pd)
            continue;
        const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(
            pd,
            directions.op[k] == ECH__OP_CONV2D_BWD_WEIGHTS ? dnnl_query_diff_weights_md
                                                           : dnnl_query_weights_md,
            0);
        if (ech__onednn_layout(md, &out[count]))
            count++;
        dnnl_primitive_desc_destroy(pd);
    }
    return count;
}

/* oneDNN's Winograd kernels have it in their names: "jit_wino_4x3:avx512_core". */
static bool is_winograd(const ech__candidate *candidate)
{
    return strstr(candidate->name, "wino") != NULL;
}

/* The time that oneDNN takes to find blocks for Winograd grows with the batch: seconds for 1e9
 * samples. Direct convolutions have no such search. */
enum { MOST_WINOGRAD_SAMPLES = 1 << 20 };

void ech__onednn_offer_conv(ech__onednn *onednn, const ech__kernel_desc *desc,
                            const ech__layout *weight, ech__offer *offer)
{
    static const dnnl_alg_kind_t algorithms[] = {dnnl_convolution_direct,
                                                 dnnl_convolution_winograd};
    const convolution c = describe(desc, weight);
    const bool winograd = desc->operands[0].layout.shape.dims[0] <= MOST_WINOGRAD_SAMPLES;
    for (int k = 0; k < 1 + winograd; k++) {
        dnnl_primitive_desc_t pd = primitive_desc(onednn, desc->op, algorithms[k], &c);
        if (!pd)
            continue;
        ech__onednn_offer(pd, create_kernel, desc, ech__weight_operand(desc->op), weight, offer);
        dnnl_primitive_desc_destroy(pd);
    }
}

static ech_status create_kernel(ech__device *device, const ech__kernel_desc *desc,
                                const ech__candidate *candidate, const ech__binding *binding,
                                ech__kernel **out)
{
    ech__onednn *onednn = ((const ech__cpu *)ech__device_state(device))->onednn;
    const dnnl_alg_kind_t algorithm =
        is_winograd(candidate) ? dnnl_convolution_winograd : dnnl_convolution_direct;
    const convolution c = describe(desc, &candidate->layouts[ech__weight_operand(desc->op)]);
    dnnl_primitive_desc_t pd = primitive_desc(onednn, desc->op, algorithm, &c);
    return ech__onednn_create_weighted(device, desc, &c.t, pd, binding, out);
}
