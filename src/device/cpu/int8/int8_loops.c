/* Plain loops that the compiler turns into vectors. */
#include "device/cpu/int8/int8.h"
#include "device/cpu/vec/width.h"
#include "graph/op_quant.h"

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

static void from_f32(int64_t n, const float *restrict src, ech_dtype type, void *dst)
{
    int8_t *restrict s8 = dst;
    uint8_t *restrict u8 = dst;
    if (type == ECH_F32) {
        memcpy(dst, src, (size_t)n * sizeof *src);
    } else if (type == ECH_S8) {
        for (int64_t i = 0; i < n; i++)
            s8[i] = (int8_t)(int32_t)ech__round_within(src[i], -128, 127);
    } else {
        for (int64_t i = 0; i < n; i++)
            u8[i] = (uint8_t)(int32_t)ech__round_within(src[i], 0, 255);
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

/* A loop for each three types, so that the compiler sees them. */
#define ADD_BYTES(name, a_number, b_number, y_number, low, high)                                   \
    static void name(const ech__int8_sum *s)                                                       \
    {                                                                                              \
        const a_number *restrict a = s->a;                                                         \
        const b_number *restrict b = s->b;                                                         \
        y_number *restrict y = s->y;                                                               \
        const int64_t n = s->n; /* a byte that is written might be one of s->n */                  \
        const float scale = s->scale, scale2 = s->scale2, lowest = s->relu ? 0 : (low);            \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = (y_number)(int32_t)ech__round_within(                                           \
                (float)a[i] * scale + (float)b[i] * scale2, lowest, high);                         \
    }
ADD_BYTES(add_sss, int8_t, int8_t, int8_t, -128, 127)
ADD_BYTES(add_ssu, int8_t, int8_t, uint8_t, 0, 255)
ADD_BYTES(add_sus, int8_t, uint8_t, int8_t, -128, 127)
ADD_BYTES(add_suu, int8_t, uint8_t, uint8_t, 0, 255)
ADD_BYTES(add_uss, uint8_t, int8_t, int8_t, -128, 127)
ADD_BYTES(add_usu, uint8_t, int8_t, uint8_t, 0, 255)
ADD_BYTES(add_uus, uint8_t, uint8_t, int8_t, -128, 127)
ADD_BYTES(add_uuu, uint8_t, uint8_t, uint8_t, 0, 255)

static void add_bytes(const ech__int8_sum *s)
{
    static void (*const adders[2][2][2])(const ech__int8_sum *) = {
        {{add_sss, add_ssu}, {add_sus, add_suu}}, {{add_uss, add_usu}, {add_uus, add_uuu}}};
    adders[s->a_type == ECH_U8][s->b_type == ECH_U8][s->y_type == ECH_U8](s);
}

static void round_scaled(int64_t n, const float *x, const float *restrict scale, int64_t period,
                         float low, float high, float *dst)
{
    for (int64_t i = 0; i < n; i += period) {
        for (int64_t c = 0; c < period; c++)
            dst[i + c] = ech__round_within(x[i + c] * scale[c], low, high);
    }
}

/* ---- eight channels together, and apart ---- */

typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint16_t twos8 __attribute__((vector_size(16)));
typedef uint32_t fours4 __attribute__((vector_size(16)));

#define LOW_BYTES(a, b)                                                                            \
    (twos8) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define LOW_TWOS(a, b) (fours4) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_TWOS(a, b) (fours4) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW_FOURS(a, b) (bytes16) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH_FOURS(a, b) (bytes16) __builtin_shufflevector(a, b, 2, 6, 3, 7)

/* The columns of eight rows of eight bytes, of which only the first halves count; two columns in
 * each result. */
static inline void transpose(const bytes16 row[8], bytes16 columns[4])
{
    const twos8 a = LOW_BYTES(row[0], row[1]), b = LOW_BYTES(row[2], row[3]);
    const twos8 c = LOW_BYTES(row[4], row[5]), d = LOW_BYTES(row[6], row[7]);
    const fours4 left = LOW_TWOS(a, b), right = HIGH_TWOS(a, b);
    const fours4 left2 = LOW_TWOS(c, d), right2 = HIGH_TWOS(c, d);
    columns[0] = LOW_FOURS(left, left2);
    columns[1] = HIGH_FOURS(left, left2);
    columns[2] = LOW_FOURS(right, right2);
    columns[3] = HIGH_FOURS(right, right2);
}

/* Eight bytes, in the first half. Going through memory as a half of 16 would stall the load of
 * the whole. */
static inline bytes16 row_of(const uint8_t *from)
{
    typedef uint64_t eights2 __attribute__((vector_size(16)));
    uint64_t eight;
    memcpy(&eight, from, sizeof eight);
    return (bytes16)(eights2){eight, 0};
}

static void join(int64_t n, const uint8_t *const x[8], uint8_t *y, int64_t step)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        bytes16 rows[8], columns[4];
        for (int c = 0; c < 8; c++)
            rows[c] = x[c] ? row_of(x[c] + i) : (bytes16){0};
        transpose(rows, columns);
        for (int j = 0; j < 8; j++)
            memcpy(y + (i + j) * step, (const uint8_t *)columns + j * 8, 8);
    }
    for (; i < n; i++) {
        for (int c = 0; c < 8; c++)
            y[i * step + c] = x[c] ? x[c][i] : 0;
    }
}

static void split(int64_t n, const uint8_t *x, int64_t step, int64_t channels, uint8_t *y,
                  int64_t row)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        bytes16 rows[8], columns[4];
        for (int j = 0; j < 8; j++)
            rows[j] = row_of(x + (i + j) * step);
        transpose(rows, columns);
        for (int64_t c = 0; c < channels; c++)
            memcpy(y + c * row + i, (const uint8_t *)columns + c * 8, 8);
    }
    for (; i < n; i++) {
        for (int64_t c = 0; c < channels; c++)
            y[c * row + i] = x[i * step + c];
    }
}

/* ---- pools ---- */

/* dst = the larger of both, of either sign. */
static void larger(int64_t n, const uint8_t *restrict x, bool is_signed, uint8_t *restrict dst)
{
    if (is_signed) {
        for (int64_t i = 0; i < n; i++) {
            const int8_t a = (int8_t)x[i], b = (int8_t)dst[i];
            dst[i] = (uint8_t)(a > b ? a : b);
        }
    } else {
        for (int64_t i = 0; i < n; i++)
            dst[i] = x[i] > dst[i] ? x[i] : dst[i];
    }
}

/* The pixels of a line that are number k of their windows. Beside the image stands its last
 * pixel, which the window has too. */
static void pick(const ech__int8_pool *p, const uint8_t *line, int64_t k, uint8_t *to)
{
    for (int64_t j = 0; j < p->Q; j++) {
        const int64_t w = j * p->stride - p->pad + k;
        const int64_t at = w < 0 ? 0 : w < p->W ? w : p->W - 1;
        for (int64_t c = 0; c < p->block; c += 8)
            memcpy(to + j * p->block + c, line + at * p->block + c, 8);
    }
}

static void maxpool(const ech__int8_pool *p)
{
    const int64_t row = p->W * p->block, out = p->Q * p->block;
    uint8_t *line = p->lines, *picked = p->lines + row, *y = p->y;
    for (int64_t i = 0; i < p->P; i++, y += out) {
        const int64_t top = i * p->stride - p->pad, bottom = top + p->kernel;
        const int64_t h0 = top < 0 ? 0 : top, h1 = bottom < p->H ? bottom : p->H;
        memcpy(line, p->x + h0 * row, (size_t)row);
        for (int64_t h = h0 + 1; h < h1; h++)
            larger(row, p->x + h * row, p->is_signed, line);
        pick(p, line, 0, y);
        for (int64_t k = 1; k < p->kernel; k++) {
            pick(p, line, k, picked);
            larger(out, picked, p->is_signed, y);
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

const ech__int8_loops TABLE(ech__int8_loops) = {
    .to_f32 = to_f32,
    .from_f32 = from_f32,
    .divide = divide,
    .multiply = multiply,
    .add = add,
    .add_bytes = add_bytes,
    .round = round_scaled,
    .join = join,
    .split = split,
    .maxpool = maxpool,
    .sums = sums,
};
