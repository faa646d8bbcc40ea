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
    out[0] = 6 * a;
    out[step] = -(a + b + c);
    out[2 * step] = b - a - c;
    out[3 * step] = even + odd;
    out[4 * step] = even - odd;
    out[5 * step] = 6 * c;
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
    out[0] = 4 * d0 + a - d2;
    out[out_step] = a + b;
    out[2 * out_step] = a - b;
    out[3 * out_step] = c + e;
    out[4 * out_step] = c - e;
    out[5 * out_step] = d5 - d3 - (e + e);
}

INLINE v16 widened(__m128i bytes, const bool is_signed)
{
    return (v16)(is_signed ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes));
}

/* Which lines and pairs of pixels of a tile are in the image, as masks for loads. */
typedef struct borders {
    __m128i of[SIDE][SIDE / 2];
} borders;

INLINE borders borders_of(const ech__int8_wino_input *t)
{
    borders b;
    for (int r = 0; r < SIDE; r++) {
        const bool line = r >= t->top && r < t->bottom;
        for (int s = 0; s < SIDE; s += 2)
            b.of[r][s / 2] = _mm_set_epi64x(-(line && s + 1 >= t->left && s + 1 < t->right),
                                            -(line && s >= t->left && s < t->right));
    }
    return b;
}

/* Columns of a tile, transformed: 16 channels, in two blocks of 8. Of each block two pixels at a time; then the same pixels of both
 * are brought together. b is NULL where all is inside. */
INLINE void columns_of_8(const ech__int8_wino_input *t, const char *x, const bool is_signed,
                         const borders *b, v16 *half)
{
#pragma GCC unroll 3
    for (int s = 0; s < SIDE; s += 2) {
        v16 both[2][SIDE];
#pragma GCC unroll 2
        for (int block = 0; block < 2; block++) {
            const char *at = x + block * t->plane + s * 8;
            v16 d[SIDE];
#pragma GCC unroll 6
            for (int r = 0; r < SIDE; r++, at += t->line) {
                const void *from = at;
                d[r] =
                    widened(b ? _mm_maskload_epi64(from, b->of[r][s / 2]) : _mm_loadu_si128(from),
                            is_signed);
            }
            gather(d, 1, both[block], 1);
        }
#pragma GCC unroll 6
        for (int r = 0; r < SIDE; r++) {
            const __m256i low = (__m256i)both[0][r], high = (__m256i)both[1][r];
            half[r * SIDE + s] = (v16)_mm256_permute2x128_si256(low, high, 0x20);
            half[r * SIDE + s + 1] = (v16)_mm256_permute2x128_si256(low, high, 0x31);
        }
    }
}

/* The same in one block of 16. */
INLINE void columns_of_16(const ech__int8_wino_input *t, const char *x, const bool is_signed,
                          const borders *b, v16 *half)
{
    for (int s = 0; s < SIDE; s++) {
        v16 d[SIDE];
        for (int r = 0; r < SIDE; r++) {
            const void *from = x + r * t->line + s * 16;
            const __m128i mask = s % 2 ? _mm_unpackhi_epi64(b->of[r][s / 2], b->of[r][s / 2])
                                       : _mm_unpacklo_epi64(b->of[r][s / 2], b->of[r][s / 2]);
            d[r] = widened(_mm_maskload_epi64(from, mask), is_signed);
        }
        gather(d, 1, half + s, SIDE);
    }
}

INLINE void input_of(const ech__int8_wino_input *t, const bool is_signed)
{
    const bool inside = t->top == 0 && t->bottom == SIDE && t->left == 0 && t->right == SIDE;
    const borders b = borders_of(t);
    const char *first = t->x - t->top * t->line - t->left * t->block;
    for (int64_t c = 0; c < t->channels; c += 16) {
        const char *x = first + c / t->block * t->plane;
        v16 half[POINTS];
        if (t->block == 16)
            columns_of_16(t, x, is_signed, &b, half);
        else if (inside)
            columns_of_8(t, x, is_signed, NULL, half);
        else
            columns_of_8(t, x, is_signed, &b, half);
#pragma GCC unroll 6
        for (int r = 0; r < SIDE; r++) {
            v16 row[SIDE];
            gather(half + r * SIDE, 1, row, 1);
#pragma GCC unroll 6
            for (int s = 0; s < SIDE; s++)
                _mm256_storeu_si256((__m256i *)(t->v + (r * SIDE + s) * t->v_point + c),
                                    (__m256i)row[s]);
        }
    }
}

static void input(const ech__int8_wino_input *t)
{
    if (t->is_signed)
        input_of(t, true);
    else
        input_of(t, false);
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
    const int64_t channels = t->channels, v_row = t->v_row;
    const int16_t *v = t->v + first * v_row, *u = t->u;
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
            const __m256i pair = pair_of(v + r * v_row + c);
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

INLINE void collect(const v8u m[SIDE], v8u out[TILE])
{
    const v8u plus = m[1] + m[2], minus = m[1] - m[2], more = m[3] + m[4], less = m[3] - m[4];
    out[0] = m[0] + 4 * plus + more;
    out[1] = minus + minus + less;
    out[2] = plus + more;
    out[3] = minus + less + less + m[5];
}

/* A line of a tile of y, as far as it is in the image. */
INLINE void store_line(const ech__int8_wino_output *t, const __m256i acc[TILE],
                       const ech_dtype type, char *to)
{
    const factors f = {t->bias, t->scale, t->relu};
    if (type == ECH_F32) {
        for (int s = 0; s < t->cols; s++)
            _mm256_storeu_ps((float *)(void *)(to + s * t->y_pixel), scaled_relu(&f, acc[s]));
        return;
    }
    const __m256i all = packed(&f, acc, type == ECH_S8);
    if (t->cols == TILE && t->y_pixel == 8) {
        _mm256_storeu_si256((__m256i *)to, all);
        return;
    }
    char bytes[TILE * 8];
    _mm256_storeu_si256((__m256i *)bytes, all);
    for (int s = 0; s < t->cols; s++)
        memcpy(to + s * t->y_pixel, bytes + s * 8, 8);
}

/* A' M */
INLINE void collect_columns(const ech__int8_wino_output *t, v8u half[TILE][SIDE])
{
#pragma GCC unroll 6
    for (int s = 0; s < SIDE; s++) {
        v8u m[SIDE], column[TILE];
#pragma GCC unroll 6
        for (int r = 0; r < SIDE; r++)
            m[r] = (v8u)_mm256_loadu_si256((const __m256i *)(t->m + (r * SIDE + s) * t->m_point));
        collect(m, column);
#pragma GCC unroll 4
        for (int r = 0; r < TILE; r++)
            half[r][s] = column[r];
    }
}

/* Line r of A' M A, divided, and what the parts before have left there. */
INLINE void line_of(const ech__int8_wino_output *t, const v8u half[TILE][SIDE], const int r,
                    const bool adds, __m256i acc[TILE])
{
    static const int shift[TILE] = {3, 2, 1, 1}; /* twos in 24, 12, 6, 6 */
    static const uint32_t ninth = 0x38e38e39u;   /* 9 times it is 1, modulo 2^32 */
    v8u line[TILE];
    collect(half[r], line);
#pragma GCC unroll 4
    for (int s = 0; s < TILE; s++) {
        acc[s] = (__m256i)((v8)(line[s] * ninth) >> (shift[r] + shift[s]));
        if (adds)
            acc[s] = _mm256_add_epi32(
                acc[s], _mm256_loadu_si256((const __m256i *)(t->sums + (r * TILE + s) * 8)));
    }
}

INLINE void output_of(const ech__int8_wino_output *t, const ech_dtype type, const bool adds)
{
    v8u half[TILE][SIDE];
    collect_columns(t, half);
#pragma GCC unroll 4
    for (int r = 0; r < TILE; r++) {
        __m256i acc[TILE];
        if (r >= t->rows)
            return;
        line_of(t, half, r, adds, acc);
        store_line(t, acc, type, t->y + r * t->y_row);
    }
}

INLINE void keep_sums(const ech__int8_wino_output *t, const bool adds)
{
    v8u half[TILE][SIDE];
    collect_columns(t, half);
#pragma GCC unroll 4
    for (int r = 0; r < TILE; r++) {
        __m256i acc[TILE];
        line_of(t, half, r, adds, acc);
#pragma GCC unroll 4
        for (int s = 0; s < TILE; s++)
            _mm256_storeu_si256((__m256i *)(t->sums + (r * TILE + s) * 8), acc[s]);
    }
}

static void output(const ech__int8_wino_output *t)
{
    if (!t->last) {
        if (t->first)
            keep_sums(t, false);
        else
            keep_sums(t, true);
    } else if (!t->first) { /* all types in one: that is rare enough */
        output_of(t, t->type, true);
    } else if (t->type == ECH_U8) {
        output_of(t, ECH_U8, false);
    } else if (t->type == ECH_S8) {
        output_of(t, ECH_S8, false);
    } else {
        output_of(t, ECH_F32, false);
    }
}

const ech__int8_wino_isa ech__int8_wino_avx2 = {
    .weight = weight, .input = input, .product = product, .output = output};
