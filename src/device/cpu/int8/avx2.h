/* What the AVX2 loops of integers share: vector types, and the conversion of sums in 32 bits to
 * bytes. Only files that are compiled for AVX2 include it. */
#pragma once

#include "device/cpu/int8/winograd.h"
#include "device/cpu/vec/width.h"

#include <string.h>

/* 16 numbers of s16, or 8 of s32. The compiler turns * 4 and the like into shifts. Sums that
 * wrap around are meant to. */
typedef int16_t v16 __attribute__((vector_size(32)));
typedef uint32_t v8u __attribute__((vector_size(32)));

enum {
    TILE = ECH__INT8_WINO_TILE,
    KINDS = ECH__INT8_WINO_KINDS,
    ROWS = ECH__INT8_WINO_ROWS,
    WIDE = ECH__INT8_WINO_WIDE,
};

/* Two neighbours in every pair of lanes. */
INLINE __m256i pair_of(const int16_t *x)
{
    int32_t pair;
    memcpy(&pair, x, sizeof pair);
    return _mm256_set1_epi32(pair);
}

/* How eight neighbouring outputs become numbers of y. */
typedef struct factors {
    const float *bias, *scale; /* [8] */
    bool relu;
} factors;

/* In the unit of the output, not rounded yet. */
INLINE __m256 scaled(const factors *f, __m256i acc)
{
    const __m256 v = _mm256_add_ps(_mm256_cvtepi32_ps(acc), _mm256_loadu_ps(f->bias));
    return _mm256_mul_ps(v, _mm256_loadu_ps(f->scale));
}

INLINE __m256 scaled_relu(const factors *f, __m256i acc)
{
    const __m256 v = scaled(f, acc);
    return f->relu ? _mm256_max_ps(_mm256_setzero_ps(), v) : v; /* a NaN stays one */
}

/* Four rows of eight, rounded: contiguous rows. Packing saturates, and to u8 it is a
 * ReLU in itself. It does so from below; above, a number beyond 32 bits would come out as the
 * smallest there is. */
INLINE __m256i packed(const factors *f, const __m256i acc[4], const bool is_signed)
{
    const __m256 most = _mm256_set1_ps(255), least = _mm256_set1_ps(f->relu ? 0 : -128);
    __m256i w[4];
    for (int i = 0; i < 4; i++) {
        const __m256 v = scaled(f, acc[i]);
        w[i] = _mm256_cvtps_epi32(_mm256_min_ps(is_signed ? _mm256_max_ps(v, least) : v, most));
    }
    const __m256i low = _mm256_packs_epi32(w[0], w[1]), high = _mm256_packs_epi32(w[2], w[3]);
    const __m256i all = is_signed ? _mm256_packs_epi16(low, high) : _mm256_packus_epi16(low, high);
    /* Packing works in halves of a vector: the halves of each row are brought together. */
    return _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Row number `row`, of four, of what packed gave. */
INLINE void store_packed(__m256i all, const int row, void *to)
{
    const __m128i two = row < 2 ? _mm256_castsi256_si128(all) : _mm256_extracti128_si256(all, 1);
    if (row % 2)
        _mm_storeh_pi(to,
                      _mm_castsi128_ps(two)); /* the instruction for doubles requires alignment */
    else
        _mm_storel_epi64(to, two);
}
