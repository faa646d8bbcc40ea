/* Linear layers on oneDNN's inner product, and convolutions on images in whatever layout the plan
 * gives them.
 *
 *   forward            dst = src * wei + bia
 *   backward data      diff_src = diff_dst * wei
 *   backward weights   diff_wei = diff_dst * src, diff_bia = sums of diff_dst
 *
 * The weight has up to three layouts that oneDNN would pick itself, one for each direction: all are
 * offered for every direction that has real code for them.
 */
#include "device/cpu/onednn/onednn.h"

#include <string.h>

/* An operator, whatever the direction: src[N,I,H,W] wei[O,I,K,K] bia[O] dst[N,O,H',W'], or without
 * the last two axes. */
typedef struct layer {
    ech__onednn_tensors t;
    bool conv;
    dnnl_dims_t strides, pads, pads_end; /* of a convolution */
} layer;

typedef union primitive {
    dnnl_convolution_desc_t conv;
    dnnl_inner_product_desc_t linear;
} primitive;

static bool is_forward(ech__op op)
{
    return op == ECH__OP_LINEAR || op == ECH__OP_CONV2D;
}

static bool is_data(ech__op op)
{
    return op == ECH__OP_LINEAR_BWD_DATA || op == ECH__OP_CONV2D_BWD_DATA;
}

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
static layer describe(const ech__kernel_desc *desc, const ech__layout *weight)
{
    const ech__attrs *a = &desc->attrs;
    const ech__layout *first = &desc->operands[0].layout, *second = &desc->operands[1].layout;
    const ech__layout *last = &desc->operands[desc->nin].layout;
    const ech__layout *src = is_data(desc->op) ? last : first;
    const ech__layout *dst = is_forward(desc->op) ? last : is_data(desc->op) ? first : second;
    const ech__operand *wei = &desc->operands[ech__weight_operand(desc->op)];
    const ech__shape *w = &wei->layout.shape;
    const ech_dtype dtype = desc->operands[0].dtype; /* of what flows; biases are f32 */
    layer l = {.conv = ech__is_conv(desc->op),
               .strides = {a->stride, a->stride},
               .pads = {a->pad, a->pad}};
    for (int k = 0; k < 2 && l.conv; k++)
        l.pads_end[k] = end_pad(src->shape.dims[2 + k], out_size(src->shape.dims[2 + k], a), a);
    ech__onednn_md(src, dtype, &l.t.src);
    ech__onednn_md(dst, dtype, &l.t.dst);
    const ech__layout plain = ech__layout_plain(w),
                      bias = ech__layout_plain(&(ech__shape){1, {w->dims[0]}});
    ech__onednn_md(weight ? weight : &plain, wei->dtype, &l.t.wei);
    ech__onednn_md(&bias, ECH_F32, &l.t.bia);
    if (!weight)
        l.t.wei.format_kind = dnnl_format_kind_any;
    l.t.has_bias = is_forward(desc->op) ? desc->nin == 3 : a->bias;
    return l;
}

/* The forward operator by which op is described. The weight has the type of the data, where a
 * gradient may be f32, and of bf16 no order that only the backward pass has. */
static dnnl_status_t forward_desc(const layer *l, ech__op op, dnnl_alg_kind_t algorithm,
                                  primitive *d)
{
    ech__onednn_tensors t = l->t;
    if (!is_forward(op) && t.src.data_type == dnnl_bf16) {
        t.wei.data_type = dnnl_bf16;
        t.wei.format_kind = dnnl_format_kind_any;
    }
    const dnnl_memory_desc_t *bia = t.has_bias && is_forward(op) ? &t.bia : NULL;
    return l->conv ? dnnl_convolution_forward_desc_init(&d->conv, dnnl_forward_training, algorithm,
                                                        &t.src, &t.wei, bia, &t.dst, l->strides,
                                                        l->pads, l->pads_end)
                   : dnnl_inner_product_forward_desc_init(&d->linear, dnnl_forward_training, &t.src,
                                                          &t.wei, bia, &t.dst);
}

static dnnl_status_t backward_desc(const layer *l, ech__op op, dnnl_alg_kind_t algorithm,
                                   primitive *d)
{
    const ech__onednn_tensors *t = &l->t;
    const dnnl_memory_desc_t *bia = t->has_bias ? &t->bia : NULL;
    if (!l->conv)
        return is_data(op) ? dnnl_inner_product_backward_data_desc_init(&d->linear, &t->src,
                                                                        &t->wei, &t->dst)
                           : dnnl_inner_product_backward_weights_desc_init(&d->linear, &t->src,
                                                                           &t->wei, bia, &t->dst);
    return is_data(op)
               ? dnnl_convolution_backward_data_desc_init(&d->conv, algorithm, &t->src, &t->wei,
                                                          &t->dst, l->strides, l->pads, l->pads_end)
               : dnnl_convolution_backward_weights_desc_init(&d->conv, algorithm, &t->src, &t->wei,
                                                             bia, &t->dst, l->strides, l->pads,
                                                             l->pads_end);
}

/* The primitive description of op on these tensors, or NULL where oneDNN has none. */
static dnnl_primitive_desc_t primitive_desc(const ech__onednn *onednn, ech__op op,
                                            dnnl_alg_kind_t algorithm, const layer *l)
{
    primitive d;
    dnnl_primitive_desc_t pd = NULL, hint = NULL;
    dnnl_primitive_attr_t attr = ech__onednn_can_ask(&l->t) ? ech__onednn_attributes() : NULL;
    if (!attr)
        return NULL;
    if (forward_desc(l, op, algorithm, &d) == dnnl_success)
        dnnl_primitive_desc_create(&hint, &d, attr, onednn->engine, NULL);
    if (is_forward(op) || !hint) {
        pd = hint;
    } else {
        if (backward_desc(l, op, algorithm, &d) == dnnl_success)
            dnnl_primitive_desc_create(&pd, &d, attr, onednn->engine, hint);
        dnnl_primitive_desc_destroy(hint);
    }
    dnnl_primitive_attr_destroy(attr);
    return pd;
}

/* Directions to ask for layouts of a weight, from op on, ended by ECH__OP_COUNT: of 16 bits, the
 * gradient is another tensor than the weight. */
static void directions_of(const ech__kernel_desc *desc, ech__op out[4])
{
    const bool conv = ech__is_conv(desc->op);
    const ech__op forward = conv ? ECH__OP_CONV2D : ECH__OP_LINEAR;
    const ech__op data = conv ? ECH__OP_CONV2D_BWD_DATA : ECH__OP_LINEAR_BWD_DATA;
    const ech__op weights = conv ? ECH__OP_CONV2D_BWD_WEIGHTS : ECH__OP_LINEAR_BWD_WEIGHTS;
    const bool low = ech__dtype_is_low(desc->operands[0].dtype);
    int count = 0;
    if (!low || desc->op != weights) {
        out[count++] = forward;
        out[count++] = data;
    }
    if (!low || desc->op == weights)
        out[count++] = weights;
    out[count] = ECH__OP_COUNT;
}

int ech__onednn_layouts(ech__onednn *onednn, const ech__kernel_desc *desc, ech__layout *out)
{
    const layer l = describe(desc, NULL);
    ech__op directions[4];
    directions_of(desc, directions);
    int count = 0;
    for (const ech__op *op = directions; *op != ECH__OP_COUNT; op++) {
        dnnl_primitive_desc_t pd = primitive_desc(onednn, *op, dnnl_convolution_direct, &l);
        if (!pd)
            continue;
        const dnnl_query_t what =
            is_forward(*op) || is_data(*op) ? dnnl_query_weights_md : dnnl_query_diff_weights_md;
        bool is_new = ech__onednn_layout(dnnl_primitive_desc_query_md(pd, what, 0), &out[count]);
        for (int i = 0; i < count; i++)
            is_new &= !ech__layout_equal(&out[i], &out[count]);
        count += is_new;
        dnnl_primitive_desc_destroy(pd);
    }
    return count;
}

static ech__onednn_args args_of(const ech__kernel_desc *desc, const ech__onednn_tensors *t,
                                const ech__binding *binding)
{
    void *const *at = binding->operands;
    ech__onednn_args args = {0};
    if (is_forward(desc->op)) { /* x w (b) -> y */
        ech__onednn_arg(&args, DNNL_ARG_SRC, &t->src, at[0]);
        ech__onednn_arg(&args, DNNL_ARG_WEIGHTS, &t->wei, at[1]);
        if (t->has_bias)
            ech__onednn_arg(&args, DNNL_ARG_BIAS, &t->bia, at[2]);
        ech__onednn_arg(&args, DNNL_ARG_DST, &t->dst, at[desc->nin]);
        args.relu = desc->attrs.relu;
    } else if (is_data(desc->op)) { /* dy w -> dx */
        ech__onednn_arg(&args, DNNL_ARG_DIFF_DST, &t->dst, at[0]);
        ech__onednn_arg(&args, DNNL_ARG_WEIGHTS, &t->wei, at[1]);
        ech__onednn_arg(&args, DNNL_ARG_DIFF_SRC, &t->src, at[2]);
    } else { /* x dy -> dw (db) */
        ech__onednn_arg(&args, DNNL_ARG_SRC, &t->src, at[0]);
        ech__onednn_arg(&args, DNNL_ARG_DIFF_DST, &t->dst, at[1]);
        ech__onednn_arg(&args, DNNL_ARG_DIFF_WEIGHTS, &t->wei, at[2]);
        if (t->has_bias)
            ech__onednn_arg(&args, DNNL_ARG_DIFF_BIAS, &t->bia, at[3]);
    }
    return args;
}

static ech_status create_kernel(const ech__kernel_args *args, ech__kernel **out)
{
    const ech__kernel_desc *desc = args->desc;
    const layer l = describe(desc, &args->candidate->layouts[ech__weight_operand(desc->op)]);
    /* oneDNN's Winograd kernels have it in their names: "jit_wino_4x3:avx512_core". */
    const char *name = args->candidate->name;
    const dnnl_alg_kind_t algorithm =
        name && strstr(name, "wino") ? dnnl_convolution_winograd : dnnl_convolution_direct;
    const ech__onednn_args bound = args_of(desc, &l.t, args->binding);
    return ech__onednn_create(
        args->device, primitive_desc(ech__cpu_of(args->device)->onednn, desc->op, algorithm, &l),
        &bound, args->binding->scratch, out);
}

/* The time that oneDNN takes to find blocks for Winograd grows with the batch: seconds for 1e9
 * samples. Direct convolutions have no such search. */
enum { MOST_WINOGRAD_SAMPLES = 1 << 20 };

void ech__onednn_offer_weighted(const ech__kernel_desc *desc, const ech__layout *weight,
                                ech__offer *offer)
{
    static const dnnl_alg_kind_t algorithms[] = {dnnl_convolution_direct,
                                                 dnnl_convolution_winograd};
    if (desc->op == ECH__OP_LINEAR_ADD_WEIGHTS) /* oneDNN overwrites */
        return;
    const layer l = describe(desc, weight);
    const bool winograd = l.conv && desc->operands[0].layout.shape.dims[0] <= MOST_WINOGRAD_SAMPLES;
    for (int k = 0; k < 1 + winograd; k++)
        ech__onednn_offer(primitive_desc(offer->cpu->onednn, desc->op, algorithms[k], &l),
                          create_kernel, desc, ech__weight_operand(desc->op), weight, offer);
}
