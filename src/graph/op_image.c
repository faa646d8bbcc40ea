#include "graph/op_image.h"

/* ---- shape rules ---- */

static bool is_image(const ech__type *type)
{
    return type->shape.ndims == 4;
}

static ech__type image(ech_dtype dtype, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return (ech__type){dtype, {4, {n, c, h, w}}};
}

/* Places of a window along an axis; 0 where it does not fit. */
static int64_t places(int64_t length, const ech__attrs *attrs)
{
    const int64_t span = length + 2 * attrs->pad - attrs->kernel;
    return span < 0 ? 0 : span / attrs->stride + 1;
}

static ech_status check_window(ech_ctx *ctx, const ech__node *node, const ech__type *in)
{
    const ech__attrs *a = &node->attrs;
    if (a->kernel < 1 || a->stride < 1 || a->pad < 0 || a->pad >= a->kernel)
        return type_error(ctx, node, in,
                          "kernel and stride must be at least 1, and the padding below the kernel");
    if (!is_image(&in[0]))
        return type_error(ctx, node, in, "the input must have the dimensions [N, C, H, W]");
    return ECH_OK;
}

ECH__INFER(conv2d)
{
    ECH_TRY(check_window(ctx, node, in));
    const ech__shape *x = &in[0].shape, *w = &in[1].shape;
    const int64_t kernel = node->attrs.kernel;
    if (w->ndims != 4 || w->dims[1] != x->dims[1] || w->dims[2] != kernel || w->dims[3] != kernel)
        return type_error(ctx, node, in,
                          "weight must be [O, C, K, K] with the channels of x and the kernel");
    if (node->nin == 3 && !ech__is_vector_of(&in[2], w->dims[0]))
        return type_error(ctx, node, in, "bias must be as long as weight has output channels");
    const int64_t h = places(x->dims[2], &node->attrs), wd = places(x->dims[3], &node->attrs);
    if (h < 1 || wd < 1)
        return type_error(ctx, node, in, "the kernel is larger than the padded image");
    out[0] = image(in[0].dtype, x->dims[0], w->dims[0], h, wd);
    return ECH_OK;
}

ECH__INFER(conv2d_bwd_data)
{
    const ech__attrs *a = &node->attrs;
    ECH_TRY(check_window(ctx, node, in));
    const ech__shape *dy = &in[0].shape, *w = &in[1].shape;
    if (w->ndims != 4 || w->dims[0] != dy->dims[1] || places(a->height, a) != dy->dims[2] ||
        places(a->width, a) != dy->dims[3])
        return type_error(ctx, node, in, "dy is not what this convolution gives");
    out[0] = image(in[0].dtype, dy->dims[0], w->dims[1], a->height, a->width);
    return ECH_OK;
}

ECH__INFER(conv2d_bwd_weights)
{
    const ech__attrs *a = &node->attrs;
    ECH_TRY(check_window(ctx, node, in));
    const ech__shape *x = &in[0].shape, *dy = &in[1].shape;
    if (!is_image(&in[1]) || x->dims[0] != dy->dims[0] || places(x->dims[2], a) != dy->dims[2] ||
        places(x->dims[3], a) != dy->dims[3])
        return type_error(ctx, node, in, "dy is not what this convolution gives for x");
    node->nout = a->bias ? 2 : 1;
    const ech_dtype wide = ech__op_wide(in[0].dtype);
    out[0] = image(wide, dy->dims[1], x->dims[1], a->kernel, a->kernel);
    if (a->bias)
        out[1] = ech__vector_type(wide, dy->dims[1]);
    return ECH_OK;
}

/* An image x first, then vectors as long as it has channels, and images of x's shape: dy before
 * them, the residual or y behind. */
static ech_status check_norm(ech_ctx *ctx, const ech__node *node, const ech__type *in)
{
    const int first = node->op == ECH__OP_BN_APPLY ? 1 : 2;
    const int end = node->op == ECH__OP_BN_REDUCE ? 4 : node->op == ECH__OP_BN_APPLY ? 5 : 7;
    if (!is_image(&in[0]))
        return type_error(ctx, node, in, "the input must have the dimensions [N, C, H, W]");
    for (int i = 1; i < node->nin; i++) {
        const bool is_vector = i >= first && i < end;
        if (is_vector ? !ech__is_vector_of(&in[i], in[0].shape.dims[1])
                      : !ech__shape_equal(&in[i].shape, &in[0].shape))
            return type_error(ctx, node, in,
                              is_vector ? "a vector must be as long as x has channels"
                                        : "images must have the shape of x");
    }
    return ECH_OK;
}

ECH__INFER(bn_sums)
{
    ECH_TRY(check_norm(ctx, node, in));
    node->nout = 2;
    out[0] = out[1] = ech__vector_type(ech__op_wide(in[0].dtype), in[0].shape.dims[1]);
    return ECH_OK;
}

ECH__INFER(bn_image)
{
    ECH_TRY(check_norm(ctx, node, in));
    out[0] = in[0];
    return ECH_OK;
}

ECH__INFER(bn_running)
{
    (void)out;
    for (int i = 0; i < 4; i++) {
        if (!is_image(&in[4]) || !ech__is_vector_of(&in[i], in[4].shape.dims[1]))
            return type_error(ctx, node, in, "a vector must be as long as x has channels");
    }
    node->nout = 0;
    return ECH_OK;
}

ECH__INFER(avgpool2d)
{
    ECH_TRY(check_window(ctx, node, in));
    const ech__shape *x = &in[0].shape;
    const int64_t h = places(x->dims[2], &node->attrs), w = places(x->dims[3], &node->attrs);
    if (h < 1 || w < 1)
        return type_error(ctx, node, in, "the window is larger than the padded image");
    out[0] = image(in[0].dtype, x->dims[0], x->dims[1], h, w);
    return ECH_OK;
}

ECH__INFER(maxpool2d)
{
    ECH_TRY(ech__infer_avgpool2d(ctx, node, in, out));
    if (node->attrs.kernel > 15)
        return type_error(ctx, node, in, "a window of at most 15 x 15 is possible");
    node->nout = 2;
    out[1] = out[0];
    out[1].dtype = ECH_U8;
    return ECH_OK;
}

ECH__INFER(pool_bwd)
{
    const ech__attrs *a = &node->attrs;
    ECH_TRY(check_window(ctx, node, in));
    const ech__shape *dy = &in[0].shape;
    if ((node->nin == 2 && (in[1].dtype != ECH_U8 || !ech__shape_equal(&in[1].shape, dy))) ||
        places(a->height, a) != dy->dims[2] || places(a->width, a) != dy->dims[3])
        return type_error(ctx, node, in, "dy is not what this pool gives");
    out[0] = image(in[0].dtype, dy->dims[0], dy->dims[1], a->height, a->width);
    return ECH_OK;
}

ECH__INFER(flatten)
{
    if (!is_image(&in[0]))
        return type_error(ctx, node, in, "the input must have the dimensions [N, C, H, W]");
    const int64_t *dims = in[0].shape.dims;
    out[0] = (ech__type){in[0].dtype, {2, {dims[0], dims[1] * dims[2] * dims[3]}}};
    return ECH_OK;
}

ECH__INFER(unflatten)
{
    const ech__attrs *a = &node->attrs;
    if (in[0].shape.ndims != 2 || in[0].shape.dims[1] != a->channels * a->height * a->width)
        return type_error(ctx, node, in, "the columns are not channels x height x width");
    out[0] = image(in[0].dtype, in[0].shape.dims[0], a->channels, a->height, a->width);
    return ECH_OK;
}

/* ---- backward rules ---- */

/* Attributes of a backward operator: those of the forward one, and what it gives. */
static ech__attrs attrs_back(struct ech__autodiff *ad, const ech__node *node)
{
    const ech__shape *x = &ech__ad_type(ad, node->in[0])->shape;
    return (ech__attrs){.kernel = node->attrs.kernel,
                        .stride = node->attrs.stride,
                        .pad = node->attrs.pad,
                        .channels = x->dims[1],
                        .height = x->dims[2],
                        .width = x->dims[3]};
}

ECH__BACKWARD(product)
{
    const bool conv = node->op == ECH__OP_CONV2D;
    const ech_value x = node->in[0], w = node->in[1], y = node->out[0];
    ech_value dy = ech__ad_of(ad, y);
    if (node->attrs.relu)
        dy = ech__ad_add(ad, &(ech__node){.op = ECH__OP_RELU_BWD, .nin = 2, .in = {dy, y}});
    ech__node back = {.op = conv ? ECH__OP_CONV2D_BWD_WEIGHTS : ECH__OP_LINEAR_BWD_WEIGHTS,
                      .nin = 2,
                      .in = {x, dy}};
    if (conv)
        back.attrs = attrs_back(ad, node);
    /* Weights first: their gradient can then travel while the data gradient is computed. */
    const bool bias = node->nin == 3 && ech__ad_needs(ad, node->in[2]);
    if (bias || ech__ad_needs(ad, w)) {
        back.attrs.bias = bias;
        const ech_value dw = ech__ad_add(ad, &back);
        ECH_TRY(ech__ad_give(ad, w, dw));
        if (bias)
            ECH_TRY(ech__ad_give(ad, node->in[2], dw < 0 ? dw : dw + 1));
    }
    if (!ech__ad_needs(ad, x))
        return ECH_OK;
    back.op = conv ? ECH__OP_CONV2D_BWD_DATA : ECH__OP_LINEAR_BWD_DATA;
    back.attrs.bias = false;
    back.in[0] = dy;
    back.in[1] = w;
    return ech__ad_give(ad, x, ech__ad_add(ad, &back));
}

/* The statistics are functions of x too: bn_bwd_data gives the gradient through all three ways. */
ECH__BACKWARD(bn_apply)
{
    const ech_value x = node->in[0], mean = node->in[1], var = node->in[2], y = node->out[0];
    const bool residual = node->nin == 6;
    ech_value dy = ech__ad_of(ad, y);
    bool mask = node->attrs.relu;
    if (mask && residual) { /* the residual needs the masked gradient as well */
        dy = ech__ad_add(ad, &(ech__node){.op = ECH__OP_RELU_BWD, .nin = 2, .in = {dy, y}});
        mask = false;
    }
    if (residual && ech__ad_needs(ad, node->in[5]))
        ECH_TRY(ech__ad_give(ad, node->in[5], dy));
    const ech__attrs attrs = {.epsilon = node->attrs.epsilon, .relu = mask};
    const ech_value dgamma = ech__ad_add(ad, &(ech__node){.op = ECH__OP_BN_REDUCE,
                                                          .attrs = attrs,
                                                          .nin = mask ? 5 : 4,
                                                          .in = {x, dy, mean, var, y}});
    const ech_value dbeta = dgamma < 0 ? dgamma : dgamma + 1;
    ECH_TRY(ech__ad_give(ad, node->in[3], dgamma));
    ECH_TRY(ech__ad_give(ad, node->in[4], dbeta));
    if (!ech__ad_needs(ad, x))
        return ECH_OK;
    const ech_value dx =
        ech__ad_add(ad, &(ech__node){.op = ECH__OP_BN_BWD_DATA,
                                     .attrs = attrs,
                                     .nin = mask ? 8 : 7,
                                     .in = {x, dy, mean, var, node->in[3], dgamma, dbeta, y}});
    return ech__ad_give(ad, x, dx);
}

/* The gradient of the one input, by an operator that takes the output's, and the places of the
 * largest. */
ECH__BACKWARD(image)
{
    const ech__op op = node->op == ECH__OP_MAXPOOL2D   ? ECH__OP_MAXPOOL2D_BWD
                       : node->op == ECH__OP_AVGPOOL2D ? ECH__OP_AVGPOOL2D_BWD
                                                       : ECH__OP_UNFLATTEN;
    const ech__node back = {.op = op,
                            .attrs = attrs_back(ad, node),
                            .nin = node->nout,
                            .in = {ech__ad_of(ad, node->out[0]), node->out[1]}};
    return ech__ad_give(ad, node->in[0], ech__ad_add(ad, &back));
}
