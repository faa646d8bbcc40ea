/* The 16-bit numbers bf16 and f16, and f32: one by one, and as arrays.
 *
 * Narrowing rounds to the nearest, ties to even; what is too large becomes infinite, and what is not a number stays so.
 * All ways here give the same bits, but for the digits that one NaN may have and another not.
 */
#pragma once

#include "tensor/shape.h"

#include <string.h>
#if defined(__F16C__) || defined(__AVX2__)
#include <immintrin.h>
#endif

/* ---- one number; written so that a compiler can make vectors of it ---- */

static inline float ech__float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t ech__bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float ech__widen_bf16(uint16_t h)
{
    return ech__float_of_bits((uint32_t)h << 16);
}

static inline uint16_t ech__narrow_bf16(float x)
{
    const uint32_t bits = ech__bits_of_float(x);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)(x != x ? (bits >> 16 | 0x40) : rounded);
}

/* Numbers below the normal ones are scaled by a float that holds their exponent. */
static inline float ech__widen_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
    const float small = (float)rest * 0x1p-24f;
    const uint32_t normal = (rest << 13) + (112u << 23);
    const uint32_t special = (rest << 13) | 0x7f800000u | (rest > 0x7c00 ? 0x400000u : 0);
    const uint32_t bits = rest < 0x400     ? ech__bits_of_float(small)
                          : rest >= 0x7c00 ? special
                                           : normal;
    return ech__float_of_bits(bits | sign);
}

static inline uint16_t ech__narrow_f16(float x)
{
    const uint32_t bits = ech__bits_of_float(x), sign = bits >> 16 & 0x8000;
    const uint32_t rest = bits & 0x7fffffff;
    uint32_t h;
    if (rest > 0x7f800000u)
        h = 0x7e00u | (rest >> 13 & 0x1ff);
    else if (rest >= 0x477ff000u) /* 65520 and more */
        h = 0x7c00;
    else if (rest < 0x38800000u) /* below 2^-14: adding 0.5 leaves the multiple of 2^-24, rounded */
        h = ech__bits_of_float(ech__float_of_bits(rest) + 0.5f) - 0x3f000000u;
    else
        h = (rest + 0xfff + (rest >> 13 & 1) - (112u << 23)) >> 13;
    return (uint16_t)(h | sign);
}

/* ---- n numbers; dtype is ECH_BF16 or ECH_F16 ---- */

/* By the vectors that the including file is compiled for. */
static inline void ech__widen_here(ech_dtype dtype, int64_t n, const void *src, float *dst)
{
    const uint16_t *from = src;
    int64_t i = 0;
    if (dtype == ECH_BF16) {
#ifdef __AVX2__
        for (; i + 8 <= n; i += 8) {
            const __m256i bits =
                _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(from + i)));
            _mm256_storeu_ps(dst + i, _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16)));
        }
#endif
        for (; i < n; i++)
            dst[i] = ech__widen_bf16(from[i]);
        return;
    }
#ifdef __AVX512F__
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(dst + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(from + i))));
#endif
#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
#endif
    for (; i < n; i++)
        dst[i] = ech__widen_f16(from[i]);
}

#ifdef __AVX2__
/* Eight numbers rounded to bf16, each in the lower half of 32 bits. */
static inline __m256i ech__round_bf16(const float *src)
{
    const __m256 x = _mm256_loadu_ps(src);
    const __m256i bits = _mm256_castps_si256(x), upper = _mm256_srli_epi32(bits, 16);
    const __m256i even = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, quiet, nan);
}
#endif

static inline void ech__narrow_here(ech_dtype dtype, int64_t n, const float *src, void *dst)
{
    uint16_t *to = dst;
    int64_t i = 0;
    if (dtype == ECH_BF16) {
#ifdef __AVX2__
        for (; i + 16 <= n; i += 16) {
            const __m256i low = ech__round_bf16(src + i), high = ech__round_bf16(src + i + 8);
            const __m256i turned = _mm256_packus_epi32(low, high); /* quarters 0 2 1 3 */
            _mm256_storeu_si256((__m256i *)(to + i), _mm256_permute4x64_epi64(turned, 0xd8));
        }
#endif
        for (; i < n; i++)
            to[i] = ech__narrow_bf16(src[i]);
        return;
    }
#ifdef __AVX512F__
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(to + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
#endif
#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++)
        to[i] = ech__narrow_f16(src[i]);
}

/* By what every processor has: where speed does not matter. */
void ech__widen(ech_dtype dtype, int64_t n, const void *src, float *dst);
void ech__narrow(ech_dtype dtype, int64_t n, const float *src, void *dst);

/* Whether all n numbers are finite; integers are. */
bool ech__all_finite(ech_dtype dtype, int64_t n, const void *src);
