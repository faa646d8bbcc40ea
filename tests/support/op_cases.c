#include "support/op_cases.h"

#include <string.h>

ech__type matrix_of(ech_dtype dtype, int64_t rows, int64_t cols)
{
    return harness_type(dtype, 2, (int64_t[]){rows, cols});
}

ech__type image_of(ech_dtype dtype, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return harness_type(dtype, 4, (int64_t[]){n, c, h, w});
}

ech__type vector_of(int64_t length)
{
    return harness_type(ECH_F32, 1, (int64_t[]){length});
}

static int copy_rows(const op_row *rows, size_t bytes, op_row *out)
{
    memcpy(out, rows, bytes);
    return (int)(bytes / sizeof *rows);
}

#define NODE(op_, nin_, ...)                                                                       \
    {                                                                                              \
        .op = ECH__OP_##op_, .nin = (nin_), .attrs = __VA_ARGS__                                   \
    }

/* clang-format off */
int layer_rows(ech_dtype t, int64_t N, int64_t I, int64_t O, op_row *out)
{
    const ech__type x = matrix_of(t, N, I), w = matrix_of(t, O, I), dy = matrix_of(t, N, O);
    const ech__type dw = matrix_of(ECH_F32, O, I), b = vector_of(O);
    const ech__attrs none = {0}, relu = {.relu = true}, bias = {.bias = true};
    const op_row rows[LAYER_ROWS] = {
        {NODE(LINEAR, 2, none),             1u << 1, {x, w}},
        {NODE(LINEAR, 2, relu),             1u << 1, {x, w}},
        {NODE(LINEAR, 3, none),             1u << 1, {x, w, b}},
        {NODE(LINEAR, 3, relu),             1u << 1, {x, w, b}},
        {NODE(LINEAR_BWD_DATA, 2, none),    1u << 1, {dy, w}},
        {NODE(LINEAR_BWD_WEIGHTS, 2, none), 1u << 2, {x, dy}},
        {NODE(LINEAR_BWD_WEIGHTS, 2, bias), 1u << 2, {x, dy}},
        {NODE(LINEAR_ADD_WEIGHTS, 3, none), 1u << 2, {x, dy, dw}},
        {NODE(LINEAR_ADD_WEIGHTS, 4, bias), 1u << 2, {x, dy, dw, b}},
    };
    return copy_rows(rows, sizeof rows, out);
}

static ech__attrs window_of(int64_t kernel, int64_t stride, int64_t pad, int64_t H, int64_t W)
{
    return (ech__attrs){.kernel = kernel, .stride = stride, .pad = pad, .height = H, .width = W};
}

/* Places of the window along a side of the image. */
static int64_t places(const ech__attrs *a, int64_t side)
{
    return (side + 2 * a->pad - a->kernel) / a->stride + 1;
}

int conv_rows(ech_dtype t, const conv_shape *v, op_row *out)
{
    const ech__attrs plain = window_of(v->kernel, v->stride, v->pad, v->H, v->W);
    ech__attrs relu = plain, bias = plain;
    relu.relu = true;
    bias.bias = true;
    const ech__type x = image_of(t, v->N, v->I, v->H, v->W), b = vector_of(v->O);
    const ech__type dy = image_of(t, v->N, v->O, places(&plain, v->H), places(&plain, v->W));
    const ech__type w = image_of(t, v->O, v->I, v->kernel, v->kernel);
    const op_row rows[CONV_ROWS] = {
        {NODE(CONV2D, 2, plain),             1u << 1, {x, w}},
        {NODE(CONV2D, 2, relu),              1u << 1, {x, w}},
        {NODE(CONV2D, 3, plain),             1u << 1, {x, w, b}},
        {NODE(CONV2D, 3, relu),              1u << 1, {x, w, b}},
        {NODE(CONV2D_BWD_DATA, 2, plain),    1u << 1, {dy, w}},
        {NODE(CONV2D_BWD_WEIGHTS, 2, plain), 1u << 2, {x, dy}},
        {NODE(CONV2D_BWD_WEIGHTS, 2, bias),  1u << 2, {x, dy}},
    };
    return copy_rows(rows, sizeof rows, out);
}

int norm_rows(ech_dtype t, const int64_t *d, op_row *out)
{
    const ech__type x = image_of(t, d[0], d[1], d[2], d[3]), v = vector_of(d[1]);
    const ech__attrs none = {0}, running = {.momentum = 0.1};
    const ech__attrs norm = {.epsilon = 1e-5}, relu = {.epsilon = 1e-5, .relu = true};
    const op_row rows[] = {
        {NODE(BN_STATS, 1, none),      0, {x}},
        {NODE(BN_RUNNING, 5, running), 0, {v, v, v, v, x}},
        {NODE(BN_APPLY, 5, norm),      0, {x, v, v, v, v}},
        {NODE(BN_APPLY, 6, norm),      0, {x, v, v, v, v, x}},
        {NODE(BN_REDUCE, 4, norm),     0, {x, x, v, v}},
        {NODE(BN_BWD_DATA, 7, norm),   0, {x, x, v, v, v, v, v}},
        {NODE(BN_APPLY, 5, relu),      0, {x, v, v, v, v}},
        {NODE(BN_APPLY, 6, relu),      0, {x, v, v, v, v, x}},
        {NODE(BN_REDUCE, 5, relu),     0, {x, x, v, v, x}},
        {NODE(BN_BWD_DATA, 8, relu),   0, {x, x, v, v, v, v, v, x}},
    };
    return copy_rows(rows, sizeof rows, out);
}

int shape_rows(ech_dtype t, const int64_t *d, op_row *out)
{
    const ech__type x = image_of(t, d[0], d[1], d[2], d[3]);
    const ech__type flat = matrix_of(t, d[0], d[1] * d[2] * d[3]);
    const ech__attrs none = {0}, shape = {.channels = d[1], .height = d[2], .width = d[3]};
    const op_row rows[] = {
        {NODE(ADD, 2, none),        0, {x, x}},
        {NODE(RELU, 1, none),       0, {x}},
        {NODE(RELU_BWD, 2, none),   0, {x, x}},
        {NODE(FLATTEN, 1, none),    0, {x}},
        {NODE(UNFLATTEN, 1, shape), 0, {flat}},
    };
    return copy_rows(rows, sizeof rows, out);
}

int pool_rows(ech_dtype t, const int64_t *d, const int64_t *window, op_row *out)
{
    const ech__attrs a = window_of(window[0], window[1], window[2], d[2], d[3]);
    if (d[2] + 2 * a.pad < a.kernel || d[3] + 2 * a.pad < a.kernel)
        return 0;
    const int64_t P = places(&a, d[2]), Q = places(&a, d[3]);
    const ech__type x = image_of(t, d[0], d[1], d[2], d[3]), dy = image_of(t, d[0], d[1], P, Q);
    const ech__type at = image_of(ECH_U8, d[0], d[1], P, Q);
    const op_row rows[] = {
        {NODE(MAXPOOL2D, 1, a),     0, {x}},
        {NODE(MAXPOOL2D_BWD, 2, a), 0, {dy, at}},
        {NODE(AVGPOOL2D, 1, a),     0, {x}},
        {NODE(AVGPOOL2D_BWD, 1, a), 0, {dy}},
    };
    return copy_rows(rows, sizeof rows, out);
}
/* clang-format on */

void row_cases(harness *h, const op_row *rows, int count, bool plain_input, op_case *out)
{
    for (int i = 0; i < count; i++) {
        out[i] = harness_case(h, &rows[i].node, rows[i].in, rows[i].free);
        if (plain_input && rows[i].node.op != ECH__OP_CONV2D_BWD_DATA)
            out[i].desc.operands[0].layout = ech__layout_plain(&rows[i].in[0].shape);
    }
}

void for_each_row(harness *h, const op_row *rows, int count, node_fn visit)
{
    for (int i = 0; i < count; i++)
        visit(h, &rows[i].node, rows[i].in);
}
