/* The loops of winograd.h for AVX2, at one stride. The including file defines
 *
 *     LOOPS     the name of their table
 *     SIDE      points of a line
 *     BOUND     of true sums
 *     spread    three weights of a line -> its KINDS of points
 *     gather    SIDE pixels of a line -> its points
 *     collect   its points -> TILE results, each times 3 and a power of two, TWOS
 */
#include "device/cpu/int8/avx2.h"

enum { POINTS = SIDE * SIDE };

/* ---- weight: G g G' ---- */

static void weight(const int8_t *w, int64_t channels, int16_t *u)
{
    const int64_t pairs = channels / 2, u_kind = channels * WIDE;
    for (int64_t k = 0; k < pairs; k++) {
        v16 columns[KINDS * 3], all[KINDS * KINDS];
        for (int s = 0; s < 3; s++) {
            v16 g[3];
            for (int r = 0; r < 3; r++) {
                const void *from = w + ((r * 3 + s) * pairs + k) * 16;
                g[r] = (v16)_mm256_cvtepi8_epi16(_mm_loadu_si128(from));
            }
            spread(g[0], g[1], g[2], columns + s, 3);
        }
        for (int r = 0; r < KINDS; r++)
            spread(columns[r * 3], columns[r * 3 + 1], columns[r * 3 + 2], all + r * KINDS, 1);
        for (int kind = 0; kind < KINDS * KINDS; kind++)
            _mm256_storeu_si256((__m256i *)(u + kind * u_kind + k * 2 * WIDE), (__m256i)all[kind]);
    }
}

/* ---- image: B' d B ---- */

INLINE v16 widened(__m128i bytes, const bool is_signed)
{
    return (v16)(is_signed ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes));
}

/* Which lines and pairs of pixels of a tile are in the image, as masks for loads. */
typedef struct borders {
    __m128i of[SIDE][(SIDE + 1) / 2];
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

/* Pixels s and s + 1 of a line, eight channels each. b is NULL where all is inside. */
INLINE __m128i two_pixels(const char *line, const borders *b, int r, int s)
{
    const void *from = line + s * 8;
    if (b)
        return _mm_maskload_epi64(from, b->of[r][s / 2]);
    return s + 1 < SIDE ? _mm_loadu_si128(from) : _mm_loadl_epi64(from);
}

/* Columns of a tile, transformed: 16 channels, in two blocks of 8. Of each block two pixels at a
 * time; then the same pixels of both are brought together. */
INLINE void columns_of_8(const ech__int8_wino_input *t, const char *x, const bool is_signed,
                         const borders *b, v16 *half)
{
#pragma GCC unroll 5
    for (int s = 0; s < SIDE; s += 2) {
        v16 both[2][SIDE];
#pragma GCC unroll 2
        for (int block = 0; block < 2; block++) {
            const char *line = x + block * t->plane;
            v16 d[SIDE];
#pragma GCC unroll 9
            for (int r = 0; r < SIDE; r++, line += t->line)
                d[r] = widened(two_pixels(line, b, r, s), is_signed);
            gather(d, 1, both[block], 1);
        }
#pragma GCC unroll 9
        for (int r = 0; r < SIDE; r++) {
            const __m256i low = (__m256i)both[0][r], high = (__m256i)both[1][r];
            half[r * SIDE + s] = (v16)_mm256_permute2x128_si256(low, high, 0x20);
            if (s + 1 < SIDE)
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
#pragma GCC unroll 9
        for (int r = 0; r < SIDE; r++) {
            v16 row[SIDE];
            gather(half + r * SIDE, 1, row, 1);
#pragma GCC unroll 9
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

/* As in products_avx2.c, with weights of 16 bits and sums as results. */
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
#pragma GCC unroll 9
    for (int s = 0; s < SIDE; s++) {
        v8u m[SIDE], column[TILE];
#pragma GCC unroll 9
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
    static const uint32_t ninth = 0x38e38e39u; /* 9 times it is 1, modulo 2^32 */
    v8u line[TILE];
    collect(half[r], line);
#pragma GCC unroll 4
    for (int s = 0; s < TILE; s++) {
        acc[s] = (__m256i)((vec_s32)(line[s] * ninth) >> (TWOS[r] + TWOS[s]));
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

const ech__int8_winograd_loops LOOPS = {.side = SIDE,
                                        .bound = BOUND,
                                        .weight = weight,
                                        .input = input,
                                        .product = product,
                                        .output = output};
