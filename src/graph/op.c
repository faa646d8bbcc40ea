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

#define INFER(function)                                                                            \
    static ech_status function(ech_ctx *ctx, ech__node *node, const ech__type *in, ech__type *out)

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

static ech__type matrix(ech_dtype dtype, int64_t rows, int64_t cols)
{
    return (ech__type){dtype, {2, {rows, cols}}};
}

static ech__type scalar(ech_dtype dtype)
{
    return (ech__type){dtype, {0, {0}}};
}

INFER(infer_linear)
{
    const ech__shape *x = &in[0].shape, *w = &in[1].shape;
    if (x->ndims != 2 || w->ndims != 2)
        return type_error(ctx, node, in, "x and weight must be matrices");
    if (x->dims[1] != w->dims[1])
        return type_error(ctx, node, in, "the last dimension of x and of weight must be equal");
    if (node->nin == 3 && !ech__is_vector_of(&in[2], w->dims[0]))
        return type_error(ctx, node, in, "bias must be as long as weight has rows");
    out[0] = matrix(in[0].dtype, x->dims[0], w->dims[0]);
    return ECH_OK;
}

INFER(infer_linear_bwd_data)
{
    const ech__shape *dy = &in[0].shape, *w = &in[1].shape;
    if (dy->ndims != 2 || w->ndims != 2 || dy->dims[1] != w->dims[0])
        return type_error(ctx, node, in, "dy must have a column for each row of weight");
    out[0] = matrix(in[0].dtype, dy->dims[0], w->dims[1]);
    return ECH_OK;
}

INFER(infer_linear_bwd_weights)
{
    const ech__shape *x = &in[0].shape, *dy = &in[1].shape;
    if (x->ndims != 2 || dy->ndims != 2 || x->dims[0] != dy->dims[0])
        return type_error(ctx, node, in, "x and dy must have the same number of rows");
    node->nout = node->attrs.bias ? 2 : 1;
    const ech_dtype wide = ech__op_wide(in[0].dtype);
    out[0] = matrix(wide, dy->dims[1], x->dims[1]);
    if (node->attrs.bias)
        out[1] = ech__vector_type(wide, dy->dims[1]);
    return ECH_OK;
}

/* The same shapes, but the output exists already. */
INFER(infer_linear_add_weights)
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

INFER(infer_add)
{
    const ech__shape *a = &in[0].shape, *b = &in[1].shape;
    const bool row = a->ndims > 1 && b->ndims == 1 && b->dims[0] == a->dims[a->ndims - 1];
    ECH_TRY(check_types(ctx, node, in, row ? 1u : 3u)); /* a row is a parameter */
    if (!row && !ech__shape_equal(a, b))
        return type_error(ctx, node, in,
                          "shapes must be equal, or b a vector as long as a's last dimension");
    out[0] = in[0];
    return ECH_OK;
}

INFER(infer_sum_rows)
{
    const ech__shape *a = &in[0].shape;
    if (a->ndims < 2)
        return type_error(ctx, node, in, "at least two dimensions are needed");
    out[0] = ech__vector_type(ech__op_wide(in[0].dtype), a->dims[a->ndims - 1]);
    return ECH_OK;
}

INFER(infer_like_first)
{
    for (int i = 1; i < node->nin; i++) {
        if (!ech__shape_equal(&in[0].shape, &in[i].shape))
            return type_error(ctx, node, in, "shapes must be equal");
    }
    out[0] = in[0];
    return ECH_OK;
}

INFER(infer_mse)
{
    ECH_TRY(infer_like_first(ctx, node, in, out));
    out[0] = scalar(ech__op_wide(in[0].dtype));
    return ECH_OK;
}

INFER(infer_cross_entropy_bwd)
{
    const ech__shape *logits = &in[0].shape, *labels = &in[1].shape;
    if (!is_real(ech__op_wide(in[0].dtype)) || in[1].dtype != ECH_S32)
        return type_error(ctx, node, in, "logits must be f32 or f64 and labels s32");
    if (logits->ndims != 2 || labels->ndims != 1 || logits->dims[0] != labels->dims[0])
        return type_error(ctx, node, in,
                          "labels must be a vector with one entry per row of logits");
    out[0] = in[0];
    return ECH_OK;
}

INFER(infer_cross_entropy)
{
    ECH_TRY(infer_cross_entropy_bwd(ctx, node, in, out));
    out[0] = scalar(ech__op_wide(in[0].dtype));
    return ECH_OK;
}

INFER(infer_update)
{
    ECH_TRY(infer_like_first(ctx, node, in, out));
    node->nout = 0;
    return ECH_OK;
}

INFER(infer_accumulate)
{
    if (node->nin > 2 && !node->attrs.fresh)
        return type_error(ctx, node, in, "terms are added where the sum begins anew");
    return infer_update(ctx, node, in, out);
}

INFER(infer_grad_stats)
{
    (void)ctx, (void)node, (void)in;
    out[0] = ech__vector_type(ECH_F64, ECH__GRAD_STATS);
    return ECH_OK;
}

static bool is_convertible(ech_dtype dtype)
{
    return is_real(dtype) || dtype == ECH_BF16;
}

INFER(infer_convert)
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
INFER(infer_sync)
{
    if (in[0].shape.ndims != 1 || !ech__shape_equal(&in[0].shape, &in[1].shape))
        return type_error(ctx, node, in, "the first two must be vectors of one length");
    node->nout = node->op == ECH__OP_SYNC_STATS ? 1 : 2;
    out[0] = out[1] = in[0];
    return ECH_OK;
}

/* Of any type. */
INFER(infer_same)
{
    (void)ctx, (void)node;
    out[0] = in[0];
    return ECH_OK;
}

INFER(infer_cast)
{
    const ech_dtype from = in[0].dtype, to = node->attrs.dtype;
    const bool narrows = from == ECH_F32 && ech__dtype_is_low(to);
    const bool widens = to == ECH_F32 && ech__dtype_is_low(from);
    if (!narrows && !widens)
        return type_error(ctx, node, in, "only f32 becomes bf16 or f16, and these f32");
    out[0] = (ech__type){to, in[0].shape};
    return ECH_OK;
}

INFER(infer_nothing)
{
    (void)ctx, (void)in, (void)out;
    node->nout = 0;
    return ECH_OK;
}

/* ---- backward rules ---- */

static ech_status backward_add(struct ech__autodiff *ad, const ech__node *node)
{
    const ech_value dy = ech__ad_of(ad, node->out[0]);
    if (ech__ad_needs(ad, node->in[0]))
        ECH_TRY(ech__ad_give(ad, node->in[0], dy));
    if (!ech__ad_needs(ad, node->in[1]))
        return ECH_OK;
    ech_value db = dy;
    if (ech__ad_type(ad, node->in[1])->shape.ndims != ech__ad_type(ad, node->in[0])->shape.ndims)
        db = ech__ad_add(ad, &(ech__node){.op = ECH__OP_SUM_ROWS, .nin = 1, .in = {dy}});
    return ech__ad_give(ad, node->in[1], db);
}

static ech_status backward_relu(struct ech__autodiff *ad, const ech__node *node)
{
    const ech_value dy = ech__ad_of(ad, node->out[0]);
    const ech_value dx =
        ech__ad_add(ad, &(ech__node){.op = ECH__OP_RELU_BWD, .nin = 2, .in = {dy, node->out[0]}});
    return ech__ad_give(ad, node->in[0], dx);
}

static ech_status backward_loss(struct ech__autodiff *ad, const ech__node *node)
{
    const ech__op op = node->op == ECH__OP_MSE ? ECH__OP_MSE_BWD : ECH__OP_CROSS_ENTROPY_BWD;
    const ech_value dx =
        ech__ad_add(ad, &(ech__node){.op = op, .nin = 2, .in = {node->in[0], node->in[1]}});
    return ech__ad_give(ad, node->in[0], dx);
}

/* What went there comes back. */
static ech_status backward_transfer(struct ech__autodiff *ad, const ech__node *node)
{
    const ech_value dx =
        ech__ad_add(ad, &(ech__node){.op = ECH__OP_TRANSFER,
                                     .attrs = {.from = node->attrs.to, .to = node->attrs.from},
                                     .nin = 1,
                                     .in = {ech__ad_of(ad, node->out[0])}});
    return ech__ad_give(ad, node->in[0], dx);
}

/* ---- the table ---- */

/* clang-format off */
/* Number of inputs, from and to; the input whose memory is reused; types of the outputs. */
#define ROW(id, min, max, reused, rule, ...)                                                       \
    [ECH__OP_##id] = {.min_in = (min), .max_in = (max), .reuses = (reused), .infer = (rule), __VA_ARGS__}

static const ech__op_row rows[ECH__OP_COUNT] = {
    ROW(LINEAR, 2, 3, -1, infer_linear, .low_in = 1u, .low_out = 1u, .weight = 1, .product = true,
        .backward = ech__backward_product),
    ROW(LINEAR_BWD_DATA, 2, 2, -1, infer_linear_bwd_data, .low_in = 1u, .low_out = 1u, .weight = 1, .product = true),
    ROW(LINEAR_BWD_WEIGHTS, 2, 2, -1, infer_linear_bwd_weights, .low_in = 3u, .product = true),
    ROW(LINEAR_ADD_WEIGHTS, 3, 4, -1, infer_linear_add_weights, .changes = 4u | 8u, .low_in = 3u),
    ROW(CONV2D, 2, 3, -1, ech__infer_conv2d, .low_in = 1u, .low_out = 1u, .weight = 1, .product = true,
        .backward = ech__backward_product),
    ROW(CONV2D_BWD_DATA, 2, 2, -1, ech__infer_conv2d_bwd_data, .low_in = 1u, .low_out = 1u, .weight = 1,
        .product = true),
    ROW(CONV2D_BWD_WEIGHTS, 2, 2, -1, ech__infer_conv2d_bwd_weights, .low_in = 3u, .product = true),
    ROW(BN_STATS, 1, 1, -1, ech__infer_bn_sums, .low_in = 1u),
    ROW(BN_RUNNING, 5, 5, -1, ech__infer_bn_running, .changes = 1u | 2u, .low_in = 16u),
    ROW(BN_APPLY, 5, 6, -1, ech__infer_bn_image, .low_in = 1u | 32u, .low_out = 1u,
        .backward = ech__backward_bn_apply),
    ROW(BN_REDUCE, 4, 5, -1, ech__infer_bn_sums, .low_in = 1u | 2u | 16u),
    ROW(BN_BWD_DATA, 7, 8, 1, ech__infer_bn_image, .low_in = 1u | 2u | 128u, .low_out = 1u),
    ROW(MAXPOOL2D, 1, 1, -1, ech__infer_maxpool2d, .low_in = 1u, .low_out = 1u, .backward = ech__backward_image),
    ROW(MAXPOOL2D_BWD, 2, 2, -1, ech__infer_pool_bwd, .own_types = true, .low_in = 1u, .low_out = 1u),
    ROW(AVGPOOL2D, 1, 1, -1, ech__infer_avgpool2d, .low_in = 1u, .low_out = 1u, .backward = ech__backward_image),
    ROW(AVGPOOL2D_BWD, 1, 1, -1, ech__infer_pool_bwd, .own_types = true, .low_in = 1u, .low_out = 1u),
    ROW(FLATTEN, 1, 1, -1, ech__infer_flatten, .low_in = 1u, .low_out = 1u, .backward = ech__backward_image),
    ROW(UNFLATTEN, 1, 1, -1, ech__infer_unflatten, .low_in = 1u, .low_out = 1u),
    ROW(ADD, 2, 2, 0, infer_add, .own_types = true, .low_in = 3u, .low_out = 1u, .backward = backward_add),
    ROW(SUM_ROWS, 1, 1, -1, infer_sum_rows, .low_in = 1u),
    ROW(RELU, 1, 1, 0, infer_like_first, .low_in = 1u, .low_out = 1u, .backward = backward_relu),
    ROW(RELU_BWD, 2, 2, 0, infer_like_first, .low_in = 3u, .low_out = 1u),
    ROW(MSE, 2, 2, -1, infer_mse, .is_loss = true, .low_in = 1u, .backward = backward_loss),
    ROW(MSE_BWD, 2, 2, 0, infer_like_first, .low_in = 1u, .low_out = 1u),
    ROW(CROSS_ENTROPY, 2, 2, -1, infer_cross_entropy, .own_types = true, .is_loss = true, .low_in = 1u,
        .backward = backward_loss),
    ROW(CROSS_ENTROPY_BWD, 2, 2, 0, infer_cross_entropy_bwd, .own_types = true, .low_in = 1u, .low_out = 1u),
    ROW(COUNT_CORRECT, 2, 2, -1, infer_cross_entropy, .own_types = true, .low_in = 1u),
    ROW(SGD, 2, 3, -1, infer_update, .changes = 1u | 4u, .flat = true),
    ROW(ADAM, 4, 4, -1, infer_update, .changes = 1u | 4u | 8u, .flat = true),
    ROW(ACCUMULATE, 2, ECH__MAX_IN, -1, infer_accumulate, .changes = 1u, .flat = true),
    ROW(GRAD_STATS, 1, 1, -1, infer_grad_stats, .flat = true),
    ROW(CONVERT, 2, 2, -1, infer_convert, .own_types = true, .changes = 1u, .flat = true),
    ROW(ALLREDUCE, 1, 4, -1, infer_nothing, .own_types = true, .changes = 1u, .flat = true, .exchange = true),
    ROW(ALLREDUCE_WAIT, 0, 0, -1, infer_nothing, .own_types = true, .exchange = true),
    ROW(BROADCAST, 1, 1, -1, infer_nothing, .own_types = true, .changes = 1u, .flat = true, .exchange = true),
    ROW(SYNC_STATS, 3, 3, -1, infer_sync, .changes = 1u | 2u, .exchange = true, .low_in = 4u),
    ROW(SYNC_SUMS, 2, 2, -1, infer_sync, .exchange = true),
    ROW(TRANSFER, 1, 1, -1, infer_same, .own_types = true, .exchange = true, .low_in = 1u, .low_out = 1u,
        .backward = backward_transfer),
    ROW(SEND, 1, 1, -1, infer_nothing, .own_types = true, .exchange = true),
    ROW(RECV, 0, 0, -1, infer_nothing, .own_types = true, .exchange = true),
    ROW(REORDER, 1, 1, -1, infer_like_first, .low_in = 1u, .low_out = 1u),
    ROW(CAST, 1, 1, -1, infer_cast, .own_types = true),
    ROW(DELAY, 0, 0, -1, infer_nothing, .own_types = true),
    ROW(QUANTIZE, 1, 1, -1, ech__infer_quantize, .own_types = true),
    ROW(DEQUANTIZE, 1, 1, -1, ech__infer_dequantize, .own_types = true),
    ROW(QLINEAR, 4, 4, -1, ech__infer_qlinear, .own_types = true),
    ROW(QCONV2D, 4, 4, -1, ech__infer_qconv2d, .own_types = true),
    ROW(QADD, 2, 2, -1, ech__infer_qadd, .own_types = true),
    ROW(QMAXPOOL2D, 1, 1, -1, ech__infer_qmaxpool2d, .own_types = true),
    ROW(QAVGPOOL2D, 1, 1, -1, ech__infer_qavgpool2d, .own_types = true),
    ROW(QFLATTEN, 1, 1, -1, ech__infer_qflatten, .own_types = true),
    ROW(ROUND, 2, 2, 0, ech__infer_round, .own_types = true),
};
/* clang-format on */

const ech__op_row *ech__op_info(ech__op op)
{
    return &rows[op];
}

ech_status ech__op_infer(ech_ctx *ctx, ech__node *node, const ech__type *in, ech__type *out)
{
    if (!rows[node->op].own_types)
        ECH_TRY(check_types(ctx, node, in, rows[node->op].low_in));
    return rows[node->op].infer(ctx, node, in, out);
}

ECH__NAMES(ech__op_name, ech__op, ECH__OP_LIST)

ECH__NAMES(ech__phase_name, ech__phase, ECH__PHASE_LIST)
