/* The operators on integers, to the bit: integer sums, then f32 in the order that graph/op_quant.h states. */
#include "device/ref/ref.h"
#include "graph/op_quant.h"

#include <math.h>

static const int64_t *dims(const ech__ref_kernel *k, int operand)
{
    return k->desc.operands[operand].layout.shape.dims;
}

static ech_dtype type_of(const ech__ref_kernel *k, int operand)
{
    return k->desc.operands[operand].dtype;
}

/* Element i of a quantized operand. */
static int32_t whole(const ech__ref_kernel *k, int operand, int64_t i)
{
    return type_of(k, operand) == ECH_S8 ? ((const int8_t *)k->at[operand])[i]
                                         : ((const uint8_t *)k->at[operand])[i];
}

static float number(const ech__ref_kernel *k, int operand, int64_t i)
{
    return type_of(k, operand) == ECH_F32 ? ((const float *)k->at[operand])[i]
                                          : (float)whole(k, operand, i);
}

/* Rounds and saturates into element i of the output. */
static void give(const ech__ref_kernel *k, int64_t i, float value)
{
    const int out = k->desc.nin;
    const ech_dtype type = type_of(k, out);
    if (type == ECH_S8)
        ((int8_t *)k->at[out])[i] = (int8_t)ech__round_within(value, -128, 127);
    else if (type == ECH_U8)
        ((uint8_t *)k->at[out])[i] = (uint8_t)ech__round_within(value, 0, 255);
    else
        ((float *)k->at[out])[i] = value;
}

static void quantize(const ech__ref_kernel *k)
{
    const float *x = k->at[0], scale = (float)k->desc.attrs.scale;
    for (int64_t i = 0; i < k->extent[0]; i++)
        give(k, i, x[i] / scale);
}

static void dequantize(const ech__ref_kernel *k)
{
    const float scale = (float)k->desc.attrs.scale;
    for (int64_t i = 0; i < k->extent[0]; i++)
        give(k, i, (float)whole(k, 0, i) * scale);
}

/* From the exact sum of output o to element i. */
static void finish_product(const ech__ref_kernel *k, int64_t i, int64_t o, int32_t acc)
{
    const int32_t *bias = k->at[2];
    const float *scale = k->at[3];
    const float value = ((float)acc + (float)bias[o]) * scale[o];
    const bool keeps = isnan(value) && type_of(k, k->desc.nin) == ECH_F32; /* bytes have no NaN */
    give(k, i, k->desc.attrs.relu && !(value > 0) && !keeps ? 0 : value);
}

/* y[N,O] = x[N,I] w[O,I]^T */
static void qlinear(const ech__ref_kernel *k)
{
    const int64_t N = dims(k, 0)[0], I = dims(k, 0)[1], O = dims(k, 1)[0];
    for (int64_t n = 0; n < N; n++) {
        for (int64_t o = 0; o < O; o++) {
            int32_t acc = 0;
            for (int64_t i = 0; i < I; i++)
                acc += whole(k, 0, n * I + i) * whole(k, 1, o * I + i);
            finish_product(k, n * O + o, o, acc);
        }
    }
}

/* The sum of output channel o at row p, column q: w[O,K,K*I], x[N,I,H,W]. */
static int32_t conv_at(const ech__ref_kernel *k, int64_t n, int64_t o, int64_t p, int64_t q)
{
    const ech__attrs *a = &k->desc.attrs;
    const int64_t I = dims(k, 0)[1], H = dims(k, 0)[2], W = dims(k, 0)[3], K = a->kernel;
    int32_t acc = 0;
    for (int64_t r = 0; r < K; r++) {
        for (int64_t s = 0; s < K; s++) {
            const int64_t h = p * a->stride - a->pad + r, w = q * a->stride - a->pad + s;
            if (h < 0 || h >= H || w < 0 || w >= W)
                continue;
            for (int64_t i = 0; i < I; i++)
                acc += whole(k, 0, ((n * I + i) * H + h) * W + w) *
                       whole(k, 1, (o * K + r) * K * I + s * I + i);
        }
    }
    return acc;
}

/* Runs body for each element i = (n, c, p, q) of the output. */
#define FOR_OUTPUT(k, i, n, c, p, q)                                                               \
    for (int64_t n = 0, i = 0; n < dims(k, (k)->desc.nin)[0]; n++)                                 \
        for (int64_t c = 0; c < dims(k, (k)->desc.nin)[1]; c++)                                    \
            for (int64_t p = 0; p < dims(k, (k)->desc.nin)[2]; p++)                                \
                for (int64_t q = 0; q < dims(k, (k)->desc.nin)[3]; q++, i++)

static void qconv2d(const ech__ref_kernel *k)
{
    FOR_OUTPUT(k, i, n, o, p, q)
    {
        finish_product(k, i, o, conv_at(k, n, o, p, q));
    }
}

static void qadd(const ech__ref_kernel *k)
{
    const ech__attrs *a = &k->desc.attrs;
    const float first = (float)a->scale, second = (float)a->scale2;
    for (int64_t i = 0; i < k->extent[0]; i++) {
        float value = number(k, 0, i) * first;
        value += number(k, 1, i) * second;
        value = a->relu && !(value > 0) ? 0 : value;
        give(k, i, type_of(k, 2) == ECH_F32 ? rintf(value) : value);
    }
}

/* The largest under the window, or the sum. */
static int32_t pool_at(const ech__ref_kernel *k, int64_t plane, int64_t p, int64_t q, bool largest)
{
    const ech__attrs *a = &k->desc.attrs;
    const int64_t H = dims(k, 0)[2], W = dims(k, 0)[3];
    int32_t acc = 0;
    bool first = true;
    for (int64_t h = p * a->stride - a->pad; h < p * a->stride - a->pad + a->kernel; h++) {
        for (int64_t w = q * a->stride - a->pad; w < q * a->stride - a->pad + a->kernel; w++) {
            if (h < 0 || h >= H || w < 0 || w >= W)
                continue;
            const int32_t value = whole(k, 0, (plane * H + h) * W + w);
            acc = !largest ? acc + value : first || value > acc ? value : acc;
            first = false;
        }
    }
    return acc;
}

static void qmaxpool2d(const ech__ref_kernel *k)
{
    FOR_OUTPUT(k, i, n, c, p, q)
    {
        give(k, i, (float)pool_at(k, n * dims(k, 0)[1] + c, p, q, true));
    }
}

static void qavgpool2d(const ech__ref_kernel *k)
{
    const float scale = (float)k->desc.attrs.scale;
    FOR_OUTPUT(k, i, n, c, p, q)
    {
        give(k, i, (float)pool_at(k, n * dims(k, 0)[1] + c, p, q, false) * scale);
    }
}

static void qflatten(const ech__ref_kernel *k)
{
    for (int64_t i = 0; i < k->extent[0]; i++)
        give(k, i, (float)whole(k, 0, i));
}

static void round_scaled(const ech__ref_kernel *k)
{
    const ech__attrs *a = &k->desc.attrs;
    const float *x = k->at[0], *scale = k->at[1];
    const int64_t C = dims(k, 0)[1], pixels = k->extent[0] / (dims(k, 0)[0] * C);
    float *y = k->at[2];
    for (int64_t i = 0; i < k->extent[0]; i++)
        y[i] = ech__round_within(x[i] * scale[i / pixels % C], (float)a->low, (float)a->high);
}

const ech__ref_fn ech__ref_quant[ECH__OP_COUNT] = {
    [ECH__OP_QUANTIZE] = quantize,
    [ECH__OP_DEQUANTIZE] = dequantize,
    [ECH__OP_QLINEAR] = qlinear,
    [ECH__OP_QCONV2D] = qconv2d,
    [ECH__OP_QADD] = qadd,
    [ECH__OP_QMAXPOOL2D] = qmaxpool2d,
    [ECH__OP_QAVGPOOL2D] = qavgpool2d,
    [ECH__OP_QFLATTEN] = qflatten,
    [ECH__OP_ROUND] = round_scaled,
};
