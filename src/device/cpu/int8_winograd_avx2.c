#include "device/cpu/int8_winograd.h"
#include "device/cpu/int8_pack_avx2.h"

#include <string.h>

enum {
    POINTS = ECH__INT8_WINO_POINTS,
    SIDE = ECH__INT8_WINO_SIDE,
    TILE = ECH__INT8_WINO_TILE,
    ROWS = ECH__INT8_WINO_ROWS,
    WIDE = ECH__INT8_WINO_WIDE,
};

/* 16 numbers of s16, or 8 of s32. The compiler turns * 4 and the like into shifts. Sums that wrap around are meant to. */
typedef int16_t v16 __attribute__((vector_size(32)));
typedef uint32_t v8u __attribute__((vector_size(32)));
typedef int32_t v8 __attribute__((vector_size(32)));

/* ---- weight: G g G' ---- */

INLINE void spread(v16 a, v16 b, v16 c, v16 *out, int step)
{
    const v16 even = a + 4 * c, odd = 2 * b;
    out[0] = a;
    out[step] = -(a + b + c);
    out[2 * step] = b - a - c;
    out[3 * step] = even + odd;
    out[4 * step] = even - odd;
    out[5 * step] = c;
}

static void weight(const int8_t *w, int64_t channels, int16_t *u)
{
    const int64_t pairs = channels / 2, u_point = channels * WIDE;
    for (int64_t k = 0; k < pairs; k++) {
        v16 columns[SIDE * 3], all[POINTS];
        for (int s = 0; s < 3; s++) {
            v16 g[3];
            for (int r = 0; r < 3; r++) {
                const void *from = w + ((r * 3 + s) * pairs + k) * 16;
                g[r] = (v16)_mm256_cvtepi8_epi16(_mm_loadu_si128(from));
            }
            spread(g[0], g[1], g[2], columns + s, 3);
        }
        for (int r = 0; r < SIDE; r++)
            spread(columns[r * 3], columns[r * 3 + 1], columns[r * 3 + 2], all + r * SIDE, 1);
        for (int point = 0; point < POINTS; point++)
            _mm256_storeu_si256((__m256i *)(u + point * u_point + k * 2 * WIDE),
                                (__m256i)all[point]);
    }
}

/* ---- image: B' d B ---- */

INLINE void gather(const v16 *d, int step, v16 *out, int out_step)
{
    const v16 d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step],
              d5 = d[5 * step];
    const v16 a = d4 - 4 * d2, b = d3 - 4 * d1, c = d4 - d2, e = 2 * (d3 - d1);
    out[0] = 4 * (d0 - d2) - d2 + d4;
    out[out_step] = a + b;
    out[2 * out_step] = a - b;
    out[3 * out_step] = c + e;
    out[4 * out_step] = c - e;
    out[5 * out_step] = 4 * (d1 - d3) - d3 + d5;
}

INLINE v16 widened(const ech__int8_wino_input *t, __m128i bytes)
{
    return (v16)(t->is_signed ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes));
}

/* 16 channels of a pixel. */
INLINE v16 pixel_at(const ech__int8_wino_input *t, const char *at)
{
    if (t->block == 16)
        return widened(t, _mm_loadu_si128((const __m128i *)at));
    return widened(t, _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)at),
                                         _mm_loadl_epi64((const __m128i *)(at + t->plane))));
}

/* Columns of a tile at the border, transformed: 16 channels from x on. */
INLINE void columns_at_border(const ech__int8_wino_input *t, const char *x, v16 *half)
{
    v16 d[POINTS] = {{0}};
    for (int r = t->top; r < t->bottom; r++, x += t->line) {
        for (int s = t->left; s < t->right; s++)
            d[r * SIDE + s] = pixel_at(t, x + (s - t->left) * t->block);
    }
    for (int s = 0; s < SIDE; s++)
        gather(d + s, SIDE, half + s, SIDE);
}

/* The same where all is inside and a block has 8 channels: two pixels at a time of one block, then brought together with the
 * other. */
INLINE void columns_inside(const ech__int8_wino_input *t, const char *x, v16 *half)
{
    for (int s = 0; s < SIDE; s += 2) {
        v16 both[2][SIDE];
        for (int block = 0; block < 2; block++) {
            const char *at = x + block * t->plane + s * 8;
            v16 d[SIDE];
            for (int r = 0; r < SIDE; r++)
                d[r] = widened(t, _mm_loadu_si128((const __m128i *)(at + r * t->line)));
            gather(d, 1, both[block], 1);
        }
        for (int r = 0; r < SIDE; r++) {
            const __m256i a = (__m256i)both[0][r], b = (__m256i)both[1][r];
            half[r * SIDE + s] = (v16)_mm256_permute2x128_si256(a, b, 0x20);
            half[r * SIDE + s + 1] = (v16)_mm256_permute2x128_si256(a, b, 0x31);
        }
    }
}

static void input(const ech__int8_wino_input *t)
{
    const bool inside = t->top == 0 && t->bottom == SIDE && t->left == 0 && t->right == SIDE;
    for (int64_t c = 0; c < t->channels; c += 16) {
        const char *x = t->x + c / t->block * t->plane;
        v16 half[POINTS], all[POINTS];
        if (inside && t->block == 8)
            columns_inside(t, x, half);
        else
            columns_at_border(t, x, half);
        for (int r = 0; r < SIDE; r++)
            gather(half + r * SIDE, 1, all + r * SIDE, 1);
        for (int point = 0; point < POINTS; point++)
            _mm256_storeu_si256((__m256i *)(t->v + point * t->v_point + c), (__m256i)all[point]);
    }
}

/* ---- products ---- */

INLINE __m256i pair_of(const int16_t *x)
{
    int32_t pair;
    memcpy(&pair, x, sizeof pair);
    return _mm256_set1_epi32(pair);
}

/* As in int8_avx2.c, with weights of 16 bits and sums as results. */
INLINE void product_of(const ech__int8_wino_product *t, int64_t first, const int rows)
{
    __m256i acc[ROWS][2];
    const int64_t channels = t->channels;
    const int16_t *v = t->v + first * channels, *u = t->u;
    int32_t *m = t->m + first * WIDE;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
        acc[r][0] = acc[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 2
    for (int64_t c = 0; c < channels; c += 2, u += 2 * WIDE) {
        const __m256i w0 = _mm256_loadu_si256((const __m256i *)u);
        const __m256i w1 = _mm256_loadu_si256((const __m256i *)(u + WIDE));
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const __m256i pair = pair_of(v + r * channels + c);
            acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_madd_epi16(pair, w0));
            acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_madd_epi16(pair, w1));
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        _mm256_storeu_si256((__m256i *)(m + r * WIDE), acc[r][0]);
        _mm256_storeu_si256((__m256i *)(m + r * WIDE + 8), acc[r][1]);
    }
}

/* What is left of the rows; each number of them is a loop of its own. */
#define REST(rows)                                                                                 \
    case rows:                                                                                     \
        product_of(t, first, rows);                                                                \
        break;

static void product(const ech__int8_wino_product *t)
{
    int64_t first = 0;
    for (; first + ROWS <= t->rows; first += ROWS)
        product_of(t, first, ROWS);
    switch (t->rows - first) {
        REST(1) REST(2) REST(3) REST(4) REST(5)
    }
}

/* ---- results: A' M A, divided ---- */

INLINE void collect(const v8u *m, int step, v8u *out, int out_step)
{
    const v8u plus = m[step] + m[2 * step], minus = m[step] - m[2 * step];
    const v8u more = m[3 * step] + m[4 * step], less = m[3 * step] - m[4 * step];
    out[0] = 6 * m[0] + 4 * plus + more;
    out[out_step] = 2 * minus + less;
    out[2 * out_step] = plus + more;
    out[3 * out_step] = minus + 2 * less + 6 * m[5 * step];
}

static void store_row(const ech__int8_wino_output *t, const __m256i acc[TILE], char *to)
{
    const factors f = {t->bias, t->scale, t->relu};
    if (t->type == ECH_F32) {
        for (int s = 0; s < t->cols; s++)
            _mm256_storeu_ps((float *)(to + s * t->y_pixel), scaled_relu(&f, acc[s]));
        return;
    }
    char bytes[TILE * 8];
    const __m256i all = t->type == ECH_S8 ? packed(&f, acc, true) : packed(&f, acc, false);
    if (t->cols == TILE && t->y_pixel == 8) {
        _mm256_storeu_si256((__m256i *)to, all);
        return;
    }
    _mm256_storeu_si256((__m256i *)bytes, all);
    for (int s = 0; s < t->cols; s++)
        memcpy(to + s * t->y_pixel, bytes + s * 8, 8);
}

static void output(const ech__int8_wino_output *t)
{
    static const int shift[TILE] = {3, 2, 1, 1}; /* twos in 24, 12, 6, 6 */
    static const uint32_t ninth = 0x38e38e39u;   /* 9 times it is 1, modulo 2^32 */
    v8u m[POINTS], half[TILE * SIDE], all[TILE * TILE];
    for (int point = 0; point < POINTS; point++)
        m[point] = (v8u)_mm256_loadu_si256((const __m256i *)(t->m + point * t->m_point));
    for (int s = 0; s < SIDE; s++)
        collect(m + s, SIDE, half + s, SIDE);
    for (int r = 0; r < TILE; r++)
        collect(half + r * SIDE, 1, all + r * TILE, 1);
    for (int r = 0; r < t->rows; r++) {
        __m256i acc[TILE];
        for (int s = 0; s < TILE; s++)
            acc[s] = (__m256i)((v8)(all[r * TILE + s] * ninth) >> (shift[r] + shift[s]));
        store_row(t, acc, t->y + r * t->y_row);
    }
}

const ech__int8_wino_isa ech__int8_wino_avx2 = {
    .weight = weight, .input = input, .product = product, .output = output};
