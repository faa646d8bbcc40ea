#include "graph/op_quant.h"

#include <math.h>

static bool is_scale(double scale)
{
    return isfinite(scale) && scale > 0;
}

static bool is_vector_of(const ech__type *type, ech_dtype dtype, int64_t length)
{
    return type->dtype == dtype && ech__is_vector_of(type, length);
}

ECH__INFER(quantize)
{
    if (in[0].dtype != ECH_F32 || !ech__is_int8(node->attrs.dtype) || !is_scale(node->attrs.scale))
        return type_error(ctx, node, in,
                          "f32 becomes s8 or u8, by a scale that is finite and above 0");
    out[0] = (ech__type){node->attrs.dtype, in[0].shape};
    return ECH_OK;
}

ECH__INFER(dequantize)
{
    if (!ech__is_int8(in[0].dtype) || !is_scale(node->attrs.scale))
        return type_error(ctx, node, in,
                          "s8 or u8 becomes f32, by a scale that is finite and above 0");
    out[0] = (ech__type){ECH_F32, in[0].shape};
    return ECH_OK;
}

/* x, s8 weights, s32 bias[O], f32 scale[O], and the type of the result. */
static ech_status check_product(ech_ctx *ctx, const ech__node *node, const ech__type *in)
{
    const int64_t outputs = in[1].shape.dims[0];
    if (!ech__is_int8(in[0].dtype) || in[1].dtype != ECH_S8)
        return type_error(ctx, node, in, "x must be s8 or u8, and weight s8");
    if (!is_vector_of(&in[2], ECH_S32, outputs) || !is_vector_of(&in[3], ECH_F32, outputs))
        return type_error(ctx, node, in,
                          "bias must be s32 and scale f32, as long as weight has outputs");
    if (!ech__is_int8(node->attrs.dtype) && node->attrs.dtype != ECH_F32)
        return type_error(ctx, node, in, "the result must be s8, u8 or f32");
    return ECH_OK;
}

ECH__INFER(qlinear)
{
    const ech__shape *x = &in[0].shape, *w = &in[1].shape;
    if (x->ndims != 2 || w->ndims != 2 || x->dims[1] != w->dims[1])
        return type_error(ctx, node, in,
                          "x and weight must be matrices with the same last dimension");
    ECH_TRY(check_product(ctx, node, in));
    out[0] = (ech__type){node->attrs.dtype, {2, {x->dims[0], w->dims[0]}}};
    return ECH_OK;
}

ECH__INFER(qconv2d)
{
    const ech__attrs *a = &node->attrs;
    const ech__shape *x = &in[0].shape, *w = &in[1].shape;
    if (x->ndims != 4 || w->ndims != 3 || w->dims[1] != a->kernel ||
        w->dims[2] != a->kernel * x->dims[1])
        return type_error(ctx, node, in,
                          "x must be [N, I, H, W] and weight [O, K, K * I] with its channels");
    ECH_TRY(check_product(ctx, node, in));
    ech__node pool = *node; /* the same windows */
    pool.nin = 1;
    ech__type image = {ECH_F32, *x};
    ECH_TRY(ech__infer_avgpool2d(ctx, &pool, &image, out));
    out[0].dtype = a->dtype;
    out[0].shape.dims[1] = w->dims[0];
    return ECH_OK;
}

static bool is_whole(ech_dtype dtype)
{
    return ech__is_int8(dtype) || dtype == ECH_F32;
}

ECH__INFER(qadd)
{
    const ech__attrs *a = &node->attrs;
    if (!is_whole(in[0].dtype) || !is_whole(in[1].dtype) || !is_whole(a->dtype) ||
        !is_scale(a->scale) || !is_scale(a->scale2))
        return type_error(ctx, node, in,
                          "s8, u8 or whole f32, by scales that are finite and above 0");
    if (!ech__shape_equal(&in[0].shape, &in[1].shape))
        return type_error(ctx, node, in, "shapes must be equal");
    out[0] = (ech__type){a->dtype, in[0].shape};
    return ECH_OK;
}

/* A pool of integers has the shapes of one in f32. */
static ech_status infer_pool(ech_ctx *ctx, ech__node *node, const ech__type *in, ech__type *out)
{
    const ech__type image = {ECH_F32, in[0].shape};
    if (!ech__is_int8(in[0].dtype))
        return type_error(ctx, node, in, "x must be s8 or u8");
    return ech__infer_avgpool2d(ctx, node, &image, out);
}

ECH__INFER(qmaxpool2d)
{
    ECH_TRY(infer_pool(ctx, node, in, out));
    out[0].dtype = in[0].dtype;
    return ECH_OK;
}

ECH__INFER(qavgpool2d)
{
    if (!ech__is_int8(node->attrs.dtype) || !is_scale(node->attrs.scale))
        return type_error(ctx, node, in,
                          "the result must be s8 or u8, by a scale that is finite and above 0");
    ECH_TRY(infer_pool(ctx, node, in, out));
    out[0].dtype = node->attrs.dtype;
    return ECH_OK;
}

ECH__INFER(qflatten)
{
    const int64_t *dims = in[0].shape.dims;
    if (!ech__is_int8(in[0].dtype) || in[0].shape.ndims != 4)
        return type_error(ctx, node, in, "x must be s8 or u8 of [N, C, H, W]");
    out[0] = (ech__type){in[0].dtype, {2, {dims[0], dims[1] * dims[2] * dims[3]}}};
    return ECH_OK;
}

ECH__INFER(round)
{
    if (in[0].dtype != ECH_F32 || in[0].shape.ndims < 2 ||
        !is_vector_of(&in[1], ECH_F32, in[0].shape.dims[1]))
        return type_error(ctx, node, in,
                          "x must be f32 of [N, C, ...] and scale f32, as long as C");
    if (!(node->attrs.low < node->attrs.high))
        return type_error(ctx, node, in, "the lower limit must be below the upper one");
    out[0] = in[0];
    return ECH_OK;
}
