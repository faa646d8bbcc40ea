/* Tiles of AVX2. 16 registers: the sums, a vector of each panel, a spread pair of x, and a product. */
#include "device/cpu/int8.h"

#include <immintrin.h>
#include <string.h>

enum { Q = ECH__INT8_OUTPUTS };

#define INLINE static inline __attribute__((always_inline))

/* Eight results of one row and panel. */
INLINE void store(const ech__int8_tile *t, int row, int panel, __m256i acc)
{
    const int valid = t->valid[panel];
    const int64_t at = panel * t->y_panel;
    __m256 v = _mm256_add_ps(_mm256_cvtepi32_ps(acc), _mm256_loadu_ps(t->bias + panel * Q));
    v = _mm256_mul_ps(v, _mm256_loadu_ps(t->scale + panel * Q));
    if (t->relu)
        v = _mm256_max_ps(v, _mm256_setzero_ps());
    if (t->type == ECH_F32) {
        float buffer[Q];
        _mm256_storeu_ps(buffer, v);
        memcpy((float *)t->y[row] + at, buffer, (size_t)valid * sizeof *buffer);
        return;
    }
    const bool is_signed = t->type == ECH_S8;
    v = _mm256_max_ps(v, _mm256_set1_ps(is_signed ? -128.0f : 0.0f));
    v = _mm256_min_ps(v, _mm256_set1_ps(is_signed ? 127.0f : 255.0f));
    const __m256i whole = _mm256_cvtps_epi32(v);
    const __m128i half =
        _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    const __m128i bytes = is_signed ? _mm_packs_epi16(half, half) : _mm_packus_epi16(half, half);
    char *to = (char *)t->y[row] + at;
    if (valid == Q) {
        _mm_storel_epi64((__m128i *)to, bytes);
    } else {
        char buffer[16];
        _mm_storeu_si128((__m128i *)buffer, bytes);
        memcpy(to, buffer, (size_t)valid);
    }
}

INLINE __m256i pair_of(const int16_t *x)
{
    int32_t pair;
    memcpy(&pair, x, sizeof pair);
    return _mm256_set1_epi32(pair);
}

INLINE void tile_of(const ech__int8_tile *t, const int rows, const int panels)
{
    __m256i acc[ECH__INT8_ROWS][ECH__INT8_PANELS];
    const int16_t *x[ECH__INT8_ROWS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        x[r] = t->x[r];
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++)
            acc[r][p] = _mm256_setzero_si256();
    }
    const int8_t *w = t->w;
    int64_t at = 0;
    for (int64_t run = 0; run < t->runs; run++) {
        const int64_t end = at + t->length * ECH__INT8_PAIR;
        for (; at < end; at += ECH__INT8_PAIR, w += ECH__INT8_PAIR * Q) {
            __m256i weight[ECH__INT8_PANELS];
#pragma GCC unroll 2
            for (int p = 0; p < panels; p++)
                weight[p] = _mm256_cvtepi8_epi16(
                    _mm_loadu_si128((const __m128i *)(w + (p ? t->w_panel : 0))));
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                const __m256i pair = pair_of(x[r] + at);
#pragma GCC unroll 2
                for (int p = 0; p < panels; p++)
                    acc[r][p] = _mm256_add_epi32(acc[r][p], _mm256_madd_epi16(pair, weight[p]));
            }
        }
        at += t->x_run - t->length * ECH__INT8_PAIR;
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++)
            store(t, r, p, acc[r][p]);
    }
}

#define SIZE(rows, panels)                                                                         \
    static void tile_##rows##_##panels(const ech__int8_tile *t)                                    \
    {                                                                                              \
        tile_of(t, rows, panels);                                                                  \
    }
#define SIZES(X) X(1, 1) X(2, 1) X(3, 1) X(4, 1) X(5, 1) X(6, 1) X(7, 1) X(8, 1)
#define WIDE_SIZES(X) X(1, 2) X(2, 2) X(3, 2) X(4, 2) X(5, 2) X(6, 2)
SIZES(SIZE)
WIDE_SIZES(SIZE)

static void tile(const ech__int8_tile *t)
{
#define ENTRY(rows, panels) [rows] = tile_##rows##_##panels,
    static void (*const one[])(const ech__int8_tile *) = {SIZES(ENTRY)};
    static void (*const two[])(const ech__int8_tile *) = {WIDE_SIZES(ENTRY)};
    (t->panels == 1 ? one : two)[t->rows](t);
}

static void widen(const void *src, bool is_signed, int64_t count, int64_t src_step,
                  int64_t dst_step, int16_t *dst)
{
    const char *from = src;
    for (int64_t i = 0; i < count; i++, from += src_step, dst += dst_step) {
        const __m128i bytes = _mm_loadl_epi64((const __m128i *)from);
        _mm_storeu_si128((__m128i *)dst,
                         is_signed ? _mm_cvtepi8_epi16(bytes) : _mm_cvtepu8_epi16(bytes));
    }
}

const ech__int8_isa ech__int8_avx2 = {.rows = {8, 6}, .tile = tile, .widen = widen};
