/* Tiles of AVX2. 16 registers: the sums, a vector of each panel, a splat pair of x, and a
 * product. */
#include "device/cpu/int8/int8.h"
#include "device/cpu/int8/avx2.h"

enum { EIGHT = ECH__INT8_OUTPUTS, FOUR = 4 };

/* Up to four rows of a panel, all of type s8 or u8. */
INLINE void store_bytes(const ech__int8_tile *t, const factors *f, int panel, int first,
                        const int count, const __m256i acc[FOUR])
{
    const __m256i all = t->type == ECH_S8 ? packed(f, acc, true) : packed(f, acc, false);
    const int64_t at = panel * t->y_panel;
    const int valid = t->valid[panel];
    if (valid == EIGHT) {
#pragma GCC unroll 4
        for (int i = 0; i < count; i++)
            store_packed(all, i, (char *)t->y[first + i] + at);
        return;
    }
    char buffer[FOUR * EIGHT];
    _mm256_storeu_si256((__m256i *)buffer, all);
    for (int i = 0; i < count; i++)
        memcpy((char *)t->y[first + i] + at, buffer + i * EIGHT, (size_t)valid);
}

INLINE void store_f32(const ech__int8_tile *t, const factors *f, int panel, int row, __m256i acc)
{
    float buffer[EIGHT];
    _mm256_storeu_ps(buffer, scaled_relu(f, acc));
    memcpy((float *)t->y[row] + panel * t->y_panel, buffer,
           (size_t)t->valid[panel] * sizeof *buffer);
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
        for (; at < end; at += ECH__INT8_PAIR, w += ECH__INT8_PAIR * EIGHT) {
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
#pragma GCC unroll 2
    for (int p = 0; p < panels; p++) {
        const factors f = {t->bias + p * EIGHT, t->scale + p * EIGHT, t->relu};
        if (t->type == ECH_F32) {
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++)
                store_f32(t, &f, p, r, acc[r][p]);
            continue;
        }
#pragma GCC unroll 2
        for (int r = 0; r < rows; r += FOUR) {
            const int last = rows - 1; /* stands in for missing rows */
            const __m256i four[FOUR] = {acc[r][p], acc[r + 1 < rows ? r + 1 : last][p],
                                        acc[r + 2 < rows ? r + 2 : last][p],
                                        acc[r + 3 < rows ? r + 3 : last][p]};
            store_bytes(t, &f, p, r, rows - r < FOUR ? rows - r : FOUR, four);
        }
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

/* Of blocks of 8 channels that have up to 4, two pixels at a time: their numbers contiguously.
 * Returns how many pixels that were. */
static int64_t widen_few(const char *from, bool is_signed, int64_t count, int64_t channels,
                         int16_t *dst)
{
    char order[16];
    for (int i = 0; i < 16; i++)
        order[i] = (char)(i < channels ? i : i < 2 * channels ? 8 + i - channels : -1);
    const __m128i places = _mm_loadu_si128((const __m128i *)order);
    int64_t i = 0;
    for (; i + 2 <= count; i += 2, dst += 2 * channels) {
        const __m128i two = _mm_loadu_si128((const __m128i *)(from + i * 8));
        const __m128i bytes = _mm_shuffle_epi8(two, places);
        _mm_storeu_si128((__m128i *)dst,
                         is_signed ? _mm_cvtepi8_epi16(bytes) : _mm_cvtepu8_epi16(bytes));
    }
    return i;
}

static void widen(const void *src, bool is_signed, int64_t count, int64_t src_step,
                  int64_t dst_step, int16_t *dst)
{
    const char *from = src;
    int64_t i = 0;
    if (src_step == 8 && dst_step <= 4) {
        i = widen_few(from, is_signed, count, dst_step, dst);
        from += i * src_step;
        dst += i * dst_step;
    }
    for (; i < count; i++, from += src_step, dst += dst_step) {
        const __m128i bytes = _mm_loadl_epi64((const __m128i *)from);
        _mm_storeu_si128((__m128i *)dst,
                         is_signed ? _mm_cvtepi8_epi16(bytes) : _mm_cvtepu8_epi16(bytes));
    }
}

/* The sums of up to four rows. */
INLINE void finish_rows(const ech__int8_sums *t, const factors *f, int64_t first, int count)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i there = _mm256_cmpgt_epi32(_mm256_set1_epi32(t->valid), lane);
    const __m256i shift = _mm256_loadu_si256((const __m256i *)t->shift);
    char *y = (char *)t->y + first * t->y_step;
    __m256i acc[FOUR];
    for (int i = 0; i < FOUR; i++) {
        const int32_t *at = t->acc + (first + (i < count ? i : 0)) * t->acc_step;
        acc[i] = _mm256_add_epi32(_mm256_maskload_epi32(at, there), shift);
    }
    if (t->type == ECH_F32) {
        for (int i = 0; i < count; i++, y += t->y_step)
            _mm256_maskstore_ps((float *)(void *)y, t->fills ? _mm256_set1_epi32(-1) : there,
                                scaled_relu(f, acc[i]));
        return;
    }
    char buffer[FOUR * EIGHT];
    _mm256_storeu_si256((__m256i *)buffer,
                        t->type == ECH_S8 ? packed(f, acc, true) : packed(f, acc, false));
    for (int i = 0; i < count; i++, y += t->y_step) {
        if (t->fills || t->valid == EIGHT)
            memcpy(y, buffer + i * EIGHT, EIGHT);
        else
            memcpy(y, buffer + i * EIGHT, (size_t)t->valid);
    }
}

static void finish(const ech__int8_sums *t)
{
    const factors f = {t->bias, t->scale, t->relu};
    for (int64_t row = 0; row < t->rows; row += FOUR)
        finish_rows(t, &f, row, (int)(t->rows - row < FOUR ? t->rows - row : FOUR));
}

const ech__int8_products ech__int8_products_avx2 = {
    .rows = {8, 6}, .tile = tile, .widen = widen, .finish = finish};
