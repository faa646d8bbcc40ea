/* Plain loops that the compiler turns into vectors. The including file defines TABLE. */
#include "device/cpu/int8.h"

#include <math.h>
#include <string.h>

static void to_f32(int64_t n, const void *src, ech_dtype type, float *restrict dst)
{
    const int8_t *s8 = src;
    const uint8_t *u8 = src;
    if (type == ECH_F32) {
        memcpy(dst, src, (size_t)n * sizeof *dst);
    } else if (type == ECH_S8) {
        for (int64_t i = 0; i < n; i++)
            dst[i] = (float)s8[i];
    } else {
        for (int64_t i = 0; i < n; i++)
            dst[i] = (float)u8[i];
    }
}

/* What is not a number becomes the lower limit. */
static inline float within(float value, float low, float high)
{
    value = value > low ? value : low;
    return rintf(value < high ? value : high);
}

static void from_f32(int64_t n, const float *restrict src, ech_dtype type, void *dst)
{
    int8_t *restrict s8 = dst;
    uint8_t *restrict u8 = dst;
    if (type == ECH_F32) {
        memcpy(dst, src, (size_t)n * sizeof *src);
    } else if (type == ECH_S8) {
        for (int64_t i = 0; i < n; i++)
            s8[i] = (int8_t)(int32_t)within(src[i], -128, 127);
    } else {
        for (int64_t i = 0; i < n; i++)
            u8[i] = (uint8_t)(int32_t)within(src[i], 0, 255);
    }
}

static void divide(int64_t n, const float *restrict src, float by, float *restrict dst)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = src[i] / by;
}

static void multiply(int64_t n, const float *restrict src, float by, float *restrict dst)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = src[i] * by;
}

static void add(int64_t n, const float *restrict a, float scale, const float *restrict b,
                float scale2, bool relu, float *restrict dst)
{
    for (int64_t i = 0; i < n; i++) {
        const float value = a[i] * scale + b[i] * scale2;
        dst[i] = relu && !(value > 0) ? 0 : value;
    }
}

static void round_scaled(int64_t n, const float *x, const float *restrict scale, int64_t period,
                         float low, float high, float *dst)
{
    for (int64_t i = 0; i < n; i += period) {
        for (int64_t c = 0; c < period; c++)
            dst[i + c] = within(x[i + c] * scale[c], low, high);
    }
}

static void insert(int64_t n, const uint8_t *restrict x, int shift, uint64_t *restrict y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] |= (uint64_t)x[i] << shift;
}

/* Eight bytes of either sign. Those with one are compared with their highest bit turned round. */
typedef uint8_t bytes8 __attribute__((vector_size(8)));

static inline bytes8 larger(bytes8 a, bytes8 b)
{
    const bytes8 mask = (bytes8)(a > b);
    return (a & mask) | (b & ~mask);
}

static inline bytes8 load8(const char *from, bytes8 flip)
{
    bytes8 v;
    memcpy(&v, from, sizeof v);
    return v ^ flip;
}

static void maxpool(const ech__int8_pool *p)
{
    const bytes8 flip = (bytes8){0} + (uint8_t)(p->is_signed ? 0x80 : 0);
    for (int64_t i = 0; i < p->P; i++) {
        const int64_t top = i * p->stride - p->pad, bottom = top + p->kernel;
        const int64_t h0 = top < 0 ? 0 : top, h1 = bottom < p->H ? bottom : p->H;
        for (int64_t j = 0; j < p->Q; j++) {
            const int64_t left = j * p->stride - p->pad, right = left + p->kernel;
            const int64_t w0 = left < 0 ? 0 : left, w1 = right < p->W ? right : p->W;
            bytes8 most = {0};
            for (int64_t h = h0; h < h1; h++) {
                const char *row = p->x + h * p->W * p->step;
                for (int64_t w = w0; w < w1; w++)
                    most = larger(load8(row + w * p->step, flip), most);
            }
            most ^= flip;
            memcpy(p->y + (i * p->Q + j) * p->step, &most, sizeof most);
        }
    }
}

static void sums(const void *src, ech_dtype type, int64_t count, int64_t step, int32_t *out)
{
    const int8_t *s8 = src;
    const uint8_t *u8 = src;
    for (int64_t i = 0; i < count; i++) {
        for (int c = 0; c < 8; c++)
            out[c] += type == ECH_S8 ? s8[i * step + c] : u8[i * step + c];
    }
}

const ech__int8_loops TABLE = {
    .to_f32 = to_f32,
    .from_f32 = from_f32,
    .divide = divide,
    .multiply = multiply,
    .add = add,
    .round = round_scaled,
    .insert = insert,
    .maxpool = maxpool,
    .sums = sums,
};
