#include "graph/op.h"
#include "base/names.h"
#include "graph/op_image.h"
#include "graph/op_quant.h"

#include <stdio.h>

/* ---- shape rules ---- */

ech_status ech__op_type_error(ech_ctx *ctx, const ech__node *node, const ech__type *in,
                              const char *rule)
{
    char shapes[512];
    size_t used = 0;
    shapes[0] = 0;
    for (int i = 0; i < node->nin && used < sizeof shapes; i++)
        used += (size_t)snprintf(shapes + used, sizeof shapes - used, "%s%s %s", i ? ", " : "",
                                 ech__dtype_name(in[i].dtype), ech__shape_format(&in[i].shape).s);
    return ech__fail(ctx, ECH_E_INVALID, "%s '%s' on %s: %s", ech__op_name(node->op),
                     node->name ? node->name : "", shapes, rule);
}

#define type_error ech__op_type_error

static bool is_real(ech_dtype dtype)
{
    return dtype == ECH_F32 || dtype == ECH_F64;
}

ech_dtype ech__op_wide(ech_dtype dtype)
{
    return ech__dtype_is_low(dtype) ? ECH_F32 : dtype;
}

/* low_in as in the operator's row. */
static ech_status check_types(ech_ctx *ctx, const ech__node *node, const ech__type *in,
                              unsigned low_in)
{
    const int weight = ech__op_info(node->op)->weight;
    int first = 0;
    while (low_in && !(low_in >> first & 1))
        first++;
    const ech_dtype flow = in[first].dtype, wide = low_in ? ech__op_wide(flow) : flow;
    bool fits = is_real(wide), low = false;
    for (int i = 0; i < node->nin; i++) {
        low |= ech__dtype_is_low(in[i].dtype);
        fits &= in[i].dtype == (low_in >> i & 1 ? flow : wide) ||
                (weight && i == weight && in[i].dtype == flow);
    }
    if (fits)
        return ECH_OK;
    return type_error(ctx, node, in,
                      low ? "what flows must be all bf16 or all f16, and parameters and sums f32"
                          : "all must be f32, or all f64");
}

ech_status ech__op_types(ech_ctx *ctx, const ech__node *node, const ech__type *in)
{
    return check_types(ctx, node, in, ech__op_info(node->op)->low_in);
}

static ech__type matrix(ech_dtype dtype, int64_t rows, int64_t cols)
{
    return (ech__type){dtype, {2, {rows, cols}}};
}

static ech__type vector(ech_dtype dtype, int64_t length)
{
    return (ech__type){dtype, {1, {length}}};
}

static ech__type scalar(ech_dtype dtype)
{
    return (ech__type){dtype, {0, {0}}};
}

static ech_status infer_linear(ech_ctx *ctx, ech__node *node, const ech__type *in, ech__type *out)
{
    ECH_TRY(ech__op_types(ctx, node, in));
    const ech__shape *x = &in[0].shape, *w = &in[1].shape;
    if (x->ndims != 2 || w->ndims != 2)
        return type_error(ctx, node, in, "x and weight must be matrices");
    if (x->dims[1] != w->dims[1])
        return type_error(ctx, node, in, "the last dimension of x and of weight must be equal");
    if (node->nin == 3 && (in[2].shape.ndims != 1 || in[2].shape.dims[0] != w->dims[0]))
        return type_error(ctx, node, in, "bias must be as long as weight has rows");
    node->nout = 1;
    out[0] = matrix(in[0].dtype, x->dims[0], w->dims[0]);
    return ECH_OK;
}

static ech_status infer_linear_bwd_data(ech_ctx *ctx, ech__node *node, const ech__type *in,
                                        ech__type *out)
{
    ECH_TRY(ech__op_types(ctx, node, in));
    const ech__shape *dy = &in[0].shape, *w = &in[1].shape;
    if (dy->ndims != 2 || w->ndims != 2 || dy->dims[1] != w->dims[0])
        return type_error(ctx, node, in, "dy must have a column for each row of weight");
    node->nout = 1;
    out[0] = matrix(in[0].dtype, dy->dims[0], w->dims[1]);
    return ECH_OK;
}

static ech_status infer_linear_bwd_weights(ech_ctx *ctx, ech__node *node, const ech__type *in,
                                           ech__type *out)
{
    ECH_TRY(ech__op_types(ctx, node, in));
    const ech__shape *x = &in[0].shape, *dy = &in[1].shape;
    if (x->ndims != 2 || dy->ndims != 2 || x->dims[0] != dy->dims[0])
        return type_error(ctx, node, in, "x and dy must have the same number of rows");
    node->nout = node->attrs.bias ? 2 : 1;
    const ech_dtype wide = ech__op_wide(in[0].dtype);
    out[0] = matrix(wide, dy->dims[1], x->dims[1]);
    if (node->attrs.bias)
        out[1] = vector(wide, dy->dims[1]);
    return ECH_OK;
}

/* The same shapes, but the output exists already. */
static ech_status infer_linear_add_weights(ech_ctx *ctx, ech__node *node, const ech__type *in,
                                           ech__type *out)
{
    ECH_TRY(infer_linear_bwd_weights(ctx, node, in, out));
    const int made = node->nout;
    node->nout = 0;
    if (node->nin != 2 + made)
        return type_error(ctx, node, in,
                          "a gradient of the bias must be there when it is added to");
    for (int i = 0; i < made; i++) {
        if (!ech__shape_equal(&in[2 + i].shape, &out[i].shape))
            return type_error(ctx, node, in, "gradients must have the shapes of weight and bias");
    }
    return ECH_OK;
}

static ech_status infer_add(ech_ctx *ctx, ech__node *node, const ech__type *in, ech__type *out)
{
    const ech__shape *a = &in[0].shape, *b = &in[1].shape;
    const bool row = a->ndims > 1 && b->ndims == 1 && b->dims[0] == a->dims[a->ndims - 1];
    ECH_TRY(check_types(ctx, node, in, row ? 1u : 3u)); /* a row is a parameter */
    if (!row && !ech__shape_equal(a, b))
        return type_error(ctx, node, in,
                          "shapes must be equal, or b a vector as long as a's last dimension");
    node->nout = 1;
    out[0] = in[0];
    return ECH_OK;
}

static ech_status infer_sum_rows(ech_ctx *ctx, ech__node *node, const ech__type *in, ech__type *out)
{
    ECH_TRY(ech__op_types(ctx, node, in));
    const ech__shape *a = &in[0].shape;
    if (a->ndims < 2)
        return type_error(ctx, node, in, "at least two dimensions are needed");
    node->nout = 1;
    out[0] = vector(ech__op_wide(in[0].dtype), a->dims[a->ndims - 1]);
    return ECH_OK;
}

static ech_status infer_like_first(ech_ctx *ctx, ech__node *node, const ech__type *in,
                                   ech__type *out)
{
    ECH_TRY(ech__op_types(ctx, node, in));
    for (int i = 1; i < node->nin; i++) {
        if (!ech__shape_equal(&in[0].shape, &in[i].shape))
            return type_error(ctx, node, in, "shapes must be equal");
    }
    node->nout = 1;
    out[0] = in[0];
    return ECH_OK;
}

static ech_status infer_mse(ech_ctx *ctx, ech__node *node, const ech__type *in, ech__type *out)
{
    ECH_TRY(infer_like_first(ctx, node, in, out));
    out[0] = scalar(ech__op_wide(in[0].dtype));
    return ECH_OK;
}

static ech_status infer_cross_entropy_bwd(ech_ctx *ctx, ech__node *node, const ech__type *in,
                                          ech__type *out)
{
    const ech__shape *logits = &in[0].shape, *labels = &in[1].shape;
    if (!is_real(ech__op_wide(in[0].dtype)) || in[1].dtype != ECH_S32)
        return type_error(ctx, node, in, "logits must be f32 or f64 and labels s32");
    if (logits->ndims != 2 || labels->ndims != 1 || logits->dims[0] != labels->dims[0])
        return type_error(ctx, node, in,
                          "labels must be a vector with one entry per row of logits");
    node->nout = 1;
    out[0] = in[0];
    return ECH_OK;
}

static ech_status infer_cross_entropy(ech_ctx *ctx, ech__node *node, const ech__type *in,
                                      ech__type *out)
{
    ECH_TRY(infer_cross_entropy_bwd(ctx, node, in, out));
    out[0] = scalar(ech__op_wide(in[0].dtype));
    return ECH_OK;
}

static ech_status infer_update(ech_ctx *ctx, ech__node *node, const ech__type *in, ech__type *out)
{
    ECH_TRY(infer_like_first(ctx, node, in, out));
    node->nout = 0;
    return ECH_OK;
}

static ech_status infer_accumulate(ech_ctx *ctx, ech__node *node, const ech__type *in,
                                   ech__type *out)
{
    if (node->nin > 2 && !node->attrs.fresh)
        return type_error(ctx, node, in, "terms are added where the sum begins anew");
    return infer_update(ctx, node, in, out);
}

static ech_status infer_grad_stats(ech_ctx *ctx, ech__node *node, const ech__type *in,
                                   ech__type *out)
{
    ECH_TRY(ech__op_types(ctx, node, in));
    node->nout = 1;
    out[0] = vector(ECH_F64, ECH__GRAD_STATS);
    return ECH_OK;
}

static bool is_convertible(ech_dtype dtype)
{
    return is_real(dtype) || dtype == ECH_BF16;
}

static ech_status infer_convert(ech_ctx *ctx, ech__node *node, const ech__type *in, ech__type *out)
{
    (void)out;
    if (!is_convertible(in[0].dtype) || !is_convertible(in[1].dtype) || in[0].dtype == in[1].dtype)
        return type_error(ctx, node, in, "one must be bf16 and the other f32 or f64");
    if (!ech__shape_equal(&in[0].shape, &in[1].shape))
        return type_error(ctx, node, in, "shapes must be equal");
    node->nout = 0;
    return ECH_OK;
}

/* Vectors of one length that become sums over the ranks; x is there for its shape. */
static ech_status infer_sync(ech_ctx *ctx, ech__node *node, const ech__type *in, ech__type *out)
{
    ECH_TRY(ech__op_types(ctx, node, in));
    if (in[0].shape.ndims != 1 || !ech__shape_equal(&in[0].shape, &in[1].shape))
        return type_error(ctx, node, in, "the first two must be vectors of one length");
    node->nout = node->op == ECH__OP_SYNC_STATS ? 1 : 2;
    out[0] = out[1] = in[0];
    return ECH_OK;
}

/* Of any type. */
static ech_status infer_same(ech_ctx *ctx, ech__node *node, const ech__type *in, ech__type *out)
{
    (void)ctx;
    node->nout = 1;
    out[0] = in[0];
    return ECH_OK;
}

static ech_status infer_cast(ech_ctx *ctx, ech__node *node, const ech__type *in, ech__type *out)
{
    const ech_dtype from = in[0].dtype, to = node->attrs.dtype;
    const bool narrows = from == ECH_F32 && ech__dtype_is_low(to);
    const bool widens = to == ECH_F32 && ech__dtype_is_low(from);
    if (!narrows && !widens)
        return type_error(ctx, node, in, "only f32 becomes bf16 or f16, and these f32");
    node->nout = 1;
    out[0] = (ech__type){to, in[0].shape};
    return ECH_OK;
}

static ech_status infer_nothing(ech_ctx *ctx, ech__node *node, const ech__type *in, ech__type *out)
{
    (void)ctx, (void)in, (void)out;
    node->nout = 0;
    return ECH_OK;
}

/* ---- backward rules ---- */

static ech_status backward_linear(struct ech__autodiff *ad, const ech__node *node)
{
    const ech_value x = node->in[0], w = node->in[1], y = node->out[0];
    ech_value dy = ech__ad_of(ad, y);
    if (node->attrs.relu)
        dy = ech__ad_add(
            ad, &(ech__node){.op = ECH__OP_RELU_BWD, .name = node->name, .nin = 2, .in = {dy, y}});
    /* Weights first: their gradient can then travel while the data gradient is computed. */
    const bool bias = node->nin == 3 && ech__ad_needs(ad, node->in[2]);
    if (bias || ech__ad_needs(ad, w)) {
        const ech_value dw = ech__ad_add(ad, &(ech__node){.op = ECH__OP_LINEAR_BWD_WEIGHTS,
                                                          .name = node->name,
                                                          .attrs = {.bias = bias},
                                                          .nin = 2,
                                                          .in = {x, dy}});
        ECH_TRY(ech__ad_give(ad, w, dw));
        if (bias)
            ECH_TRY(ech__ad_give(ad, node->in[2], dw < 0 ? dw : dw + 1));
    }
    if (ech__ad_needs(ad, x)) {
        const ech_value dx = ech__ad_add(
            ad, &(ech__node){
                    .op = ECH__OP_LINEAR_BWD_DATA, .name = node->name, .nin = 2, .in = {dy, w}});
        ECH_TRY(ech__ad_give(ad, x, dx));
    }
    return ECH_OK;
}

static ech_status backward_add(struct ech__autodiff *ad, const ech__node *node)
{
    const ech_value dy = ech__ad_of(ad, node->out[0]);
    if (ech__ad_needs(ad, node->in[0]))
        ECH_TRY(ech__ad_give(ad, node->in[0], dy));
    if (!ech__ad_needs(ad, node->in[1]))
        return ECH_OK;
    ech_value db = dy;
    if (ech__ad_type(ad, node->in[1])->shape.ndims != ech__ad_type(ad, node->in[0])->shape.ndims)
        db = ech__ad_add(
            ad, &(ech__node){.op = ECH__OP_SUM_ROWS, .name = node->name, .nin = 1, .in = {dy}});
    return ech__ad_give(ad, node->in[1], db);
}

static ech_status backward_relu(struct ech__autodiff *ad, const ech__node *node)
{
    const ech_value dy = ech__ad_of(ad, node->out[0]);
    const ech_value dx = ech__ad_add(
        ad, &(ech__node){
                .op = ECH__OP_RELU_BWD, .name = node->name, .nin = 2, .in = {dy, node->out[0]}});
    return ech__ad_give(ad, node->in[0], dx);
}

static ech_status backward_loss(struct ech__autodiff *ad, const ech__node *node, ech__op op)
{
    const ech_value dx = ech__ad_add(
        ad, &(ech__node){.op = op, .name = node->name, .nin = 2, .in = {node->in[0], node->in[1]}});
    return ech__ad_give(ad, node->in[0], dx);
}

static ech_status backward_mse(struct ech__autodiff *ad, const ech__node *node)
{
    return backward_loss(ad, node, ECH__OP_MSE_BWD);
}

static ech_status backward_cross_entropy(struct ech__autodiff *ad, const ech__node *node)
{
    return backward_loss(ad, node, ECH__OP_CROSS_ENTROPY_BWD);
}

/* What went there comes back. */
static ech_status backward_transfer(struct ech__autodiff *ad, const ech__node *node)
{
    const ech_value dx =
        ech__ad_add(ad, &(ech__node){.op = ECH__OP_TRANSFER,
                                     .name = node->name,
                                     .attrs = {.from = node->attrs.to, .to = node->attrs.from},
                                     .nin = 1,
                                     .in = {ech__ad_of(ad, node->out[0])}});
    return ech__ad_give(ad, node->in[0], dx);
}

/* ---- the table ---- */

/* clang-format off */
static const ech__op_row rows[ECH__OP_COUNT] = {
    [ECH__OP_LINEAR] = {.min_in = 2, .max_in = 3, .reuses = -1, .low_in = 1u, .low_out = 1u, .weight = 1, .product = true, .infer = infer_linear, .backward = backward_linear},
    [ECH__OP_LINEAR_BWD_DATA] = {.min_in = 2, .max_in = 2, .reuses = -1, .low_in = 1u, .low_out = 1u, .weight = 1, .product = true, .infer = infer_linear_bwd_data},
    [ECH__OP_LINEAR_BWD_WEIGHTS] = {.min_in = 2, .max_in = 2, .reuses = -1, .low_in = 3u, .product = true, .infer = infer_linear_bwd_weights},
    [ECH__OP_LINEAR_ADD_WEIGHTS] = {.min_in = 3, .max_in = 4, .reuses = -1, .changes = 4u | 8u, .low_in = 3u, .infer = infer_linear_add_weights},
    [ECH__OP_CONV2D] = {.min_in = 2, .max_in = 3, .reuses = -1, .low_in = 1u, .low_out = 1u, .weight = 1, .product = true, .infer = ech__infer_conv2d, .backward = ech__backward_conv2d},
    [ECH__OP_CONV2D_BWD_DATA] = {.min_in = 2, .max_in = 2, .reuses = -1, .low_in = 1u, .low_out = 1u, .weight = 1, .product = true, .infer = ech__infer_conv2d_bwd_data},
    [ECH__OP_CONV2D_BWD_WEIGHTS] = {.min_in = 2, .max_in = 2, .reuses = -1, .low_in = 3u, .product = true, .infer = ech__infer_conv2d_bwd_weights},
    [ECH__OP_BN_STATS] = {.min_in = 1, .max_in = 1, .reuses = -1, .low_in = 1u, .infer = ech__infer_bn_stats},
    [ECH__OP_BN_RUNNING] = {.min_in = 5, .max_in = 5, .reuses = -1, .changes = 1u | 2u, .low_in = 16u, .infer = ech__infer_bn_running},
    [ECH__OP_BN_APPLY] = {.min_in = 5, .max_in = 6, .reuses = -1, .low_in = 1u | 32u, .low_out = 1u, .infer = ech__infer_bn_apply, .backward = ech__backward_bn_apply},
    [ECH__OP_BN_REDUCE] = {.min_in = 4, .max_in = 5, .reuses = -1, .low_in = 1u | 2u | 16u, .infer = ech__infer_bn_reduce},
    [ECH__OP_BN_BWD_DATA] = {.min_in = 7, .max_in = 8, .reuses = 1, .low_in = 1u | 2u | 128u, .low_out = 1u, .infer = ech__infer_bn_bwd_data},
    [ECH__OP_MAXPOOL2D] = {.min_in = 1, .max_in = 1, .reuses = -1, .low_in = 1u, .low_out = 1u, .infer = ech__infer_maxpool2d, .backward = ech__backward_maxpool2d},
    [ECH__OP_MAXPOOL2D_BWD] = {.min_in = 2, .max_in = 2, .reuses = -1, .low_in = 1u, .low_out = 1u, .infer = ech__infer_pool_bwd},
    [ECH__OP_AVGPOOL2D] = {.min_in = 1, .max_in = 1, .reuses = -1, .low_in = 1u, .low_out = 1u, .infer = ech__infer_avgpool2d, .backward = ech__backward_avgpool2d},
    [ECH__OP_AVGPOOL2D_BWD] = {.min_in = 1, .max_in = 1, .reuses = -1, .low_in = 1u, .low_out = 1u, .infer = ech__infer_pool_bwd},
    [ECH__OP_FLATTEN] = {.min_in = 1, .max_in = 1, .reuses = -1, .low_in = 1u, .low_out = 1u, .infer = ech__infer_flatten, .backward = ech__backward_flatten},
    [ECH__OP_UNFLATTEN] = {.min_in = 1, .max_in = 1, .reuses = -1, .low_in = 1u, .low_out = 1u, .infer = ech__infer_unflatten},
    [ECH__OP_ADD] = {.min_in = 2, .max_in = 2, .reuses = 0, .low_in = 3u, .low_out = 1u, .infer = infer_add, .backward = backward_add},
    [ECH__OP_SUM_ROWS] = {.min_in = 1, .max_in = 1, .reuses = -1, .low_in = 1u, .infer = infer_sum_rows},
    [ECH__OP_RELU] = {.min_in = 1, .max_in = 1, .reuses = 0, .low_in = 1u, .low_out = 1u, .infer = infer_like_first, .backward = backward_relu},
    [ECH__OP_RELU_BWD] = {.min_in = 2, .max_in = 2, .reuses = 0, .low_in = 3u, .low_out = 1u, .infer = infer_like_first},
    [ECH__OP_MSE] = {.min_in = 2, .max_in = 2, .reuses = -1, .is_loss = true, .low_in = 1u, .infer = infer_mse, .backward = backward_mse},
    [ECH__OP_MSE_BWD] = {.min_in = 2, .max_in = 2, .reuses = 0, .low_in = 1u, .low_out = 1u, .infer = infer_like_first},
    [ECH__OP_CROSS_ENTROPY] = {.min_in = 2, .max_in = 2, .reuses = -1, .is_loss = true, .low_in = 1u, .infer = infer_cross_entropy, .backward = backward_cross_entropy},
    [ECH__OP_CROSS_ENTROPY_BWD] = {.min_in = 2, .max_in = 2, .reuses = 0, .low_in = 1u, .low_out = 1u, .infer = infer_cross_entropy_bwd},
    [ECH__OP_COUNT_CORRECT] = {.min_in = 2, .max_in = 2, .reuses = -1, .low_in = 1u, .infer = infer_cross_entropy},
    [ECH__OP_SGD] = {.min_in = 2, .max_in = 3, .reuses = -1, .changes = 1u | 4u, .flat = true, .infer = infer_update},
    [ECH__OP_ADAM] = {.min_in = 4, .max_in = 4, .reuses = -1, .changes = 1u | 4u | 8u, .flat = true, .infer = infer_update},
    [ECH__OP_ACCUMULATE] = {.min_in = 2, .max_in = ECH__MAX_IN, .reuses = -1, .changes = 1u, .flat = true, .infer = infer_accumulate},
    [ECH__OP_GRAD_STATS] = {.min_in = 1, .max_in = 1, .reuses = -1, .flat = true, .infer = infer_grad_stats},
    [ECH__OP_CONVERT] = {.min_in = 2, .max_in = 2, .reuses = -1, .changes = 1u, .flat = true, .infer = infer_convert},
    [ECH__OP_ALLREDUCE] = {.min_in = 1, .max_in = 4, .reuses = -1, .changes = 1u, .flat = true, .exchange = true, .infer = infer_nothing},
    [ECH__OP_ALLREDUCE_WAIT] = {.min_in = 0, .max_in = 0, .reuses = -1, .exchange = true, .infer = infer_nothing},
    [ECH__OP_BROADCAST] = {.min_in = 1, .max_in = 1, .reuses = -1, .changes = 1u, .flat = true, .exchange = true, .infer = infer_nothing},
    [ECH__OP_SYNC_STATS] = {.min_in = 3, .max_in = 3, .reuses = -1, .changes = 1u | 2u, .exchange = true, .low_in = 4u, .infer = infer_sync},
    [ECH__OP_SYNC_SUMS] = {.min_in = 2, .max_in = 2, .reuses = -1, .exchange = true, .infer = infer_sync},
    [ECH__OP_TRANSFER] = {.min_in = 1, .max_in = 1, .reuses = -1, .exchange = true, .low_in = 1u, .low_out = 1u, .infer = infer_same, .backward = backward_transfer},
    [ECH__OP_SEND] = {.min_in = 1, .max_in = 1, .reuses = -1, .exchange = true, .infer = infer_nothing},
    [ECH__OP_RECV] = {.min_in = 0, .max_in = 0, .reuses = -1, .exchange = true, .infer = infer_nothing},
    [ECH__OP_REORDER] = {.min_in = 1, .max_in = 1, .reuses = -1, .low_in = 1u, .low_out = 1u, .infer = infer_like_first},
    [ECH__OP_CAST] = {.min_in = 1, .max_in = 1, .reuses = -1, .infer = infer_cast},
    [ECH__OP_DELAY] = {.min_in = 0, .max_in = 0, .reuses = -1, .infer = infer_nothing},
    [ECH__OP_QUANTIZE] = {.min_in = 1, .max_in = 1, .reuses = -1, .infer = ech__infer_quantize},
    [ECH__OP_DEQUANTIZE] = {.min_in = 1, .max_in = 1, .reuses = -1, .infer = ech__infer_dequantize},
    [ECH__OP_QLINEAR] = {.min_in = 4, .max_in = 4, .reuses = -1, .infer = ech__infer_qlinear},
    [ECH__OP_QCONV2D] = {.min_in = 4, .max_in = 4, .reuses = -1, .infer = ech__infer_qconv2d},
    [ECH__OP_QADD] = {.min_in = 2, .max_in = 2, .reuses = -1, .infer = ech__infer_qadd},
    [ECH__OP_QMAXPOOL2D] = {.min_in = 1, .max_in = 1, .reuses = -1, .infer = ech__infer_qmaxpool2d},
    [ECH__OP_QAVGPOOL2D] = {.min_in = 1, .max_in = 1, .reuses = -1, .infer = ech__infer_qavgpool2d},
    [ECH__OP_QFLATTEN] = {.min_in = 1, .max_in = 1, .reuses = -1, .infer = ech__infer_qflatten},
    [ECH__OP_ROUND] = {.min_in = 2, .max_in = 2, .reuses = 0, .infer = ech__infer_round},
};
/* clang-format on */

const ech__op_row *ech__op_info(ech__op op)
{
    return &rows[op];
}

ECH__NAMES(ech__op_name, ech__op, ECH__OP_LIST)

ECH__NAMES(ech__phase_name, ech__phase, ECH__PHASE_LIST)
