#include "base/file/sha256.h"

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static const uint32_t constants[64] __attribute__((aligned(16))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

/* ---- plain C ---- */

static uint32_t rotr(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static uint32_t load_be(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void compress_portable(uint32_t state[8], const uint8_t *blocks, size_t count)
{
    for (; count > 0; count--, blocks += 64) {
        uint32_t w[64];
        for (size_t t = 0; t < 16; t++)
            w[t] = load_be(blocks + 4 * t);
        for (int t = 16; t < 64; t++) {
            const uint32_t x = w[t - 15], y = w[t - 2];
            w[t] = w[t - 16] + (rotr(x, 7) ^ rotr(x, 18) ^ x >> 3) + w[t - 7] +
                   (rotr(y, 17) ^ rotr(y, 19) ^ y >> 10);
        }
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
        uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
        for (int t = 0; t < 64; t++) {
            const uint32_t t1 = h + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) +
                                ((e & f) ^ (~e & g)) + constants[t] + w[t];
            const uint32_t t2 =
                (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
            h = g, g = f, f = e, e = d + t1;
            d = c, c = b, b = a, a = t1 + t2;
        }
        state[0] += a, state[1] += b, state[2] += c, state[3] += d;
        state[4] += e, state[5] += f, state[6] += g, state[7] += h;
    }
}

/* ---- x86 SHA extensions ---- */

#if defined(__x86_64__)

/* The instructions hold the state as the words ABEF and CDGH, high to low, and do two rounds each. */
__attribute__((target("sha,sse4.1,ssse3"))) static void compress_x86(uint32_t state[8],
                                                                     const uint8_t *blocks,
                                                                     size_t count)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i low = _mm_loadu_si128((const __m128i *)(const void *)state);
    __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(state + 4));
    low = _mm_shuffle_epi32(low, 0xb1);
    high = _mm_shuffle_epi32(high, 0x1b);
    __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xf0);
    for (; count > 0; count--, blocks += 64) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i m[4]; /* the last 16 words of the message schedule, a ring */
#pragma GCC unroll 16
        for (size_t g = 0; g < 16; g++) { /* four rounds */
            __m128i *now = &m[g % 4];
            if (g < 4) {
                *now = _mm_loadu_si128((const __m128i *)(const void *)(blocks + 16 * g));
                *now = _mm_shuffle_epi8(*now, swap);
            } else {
                const __m128i w7 = _mm_alignr_epi8(m[(g + 3) % 4], m[(g + 2) % 4], 4);
                *now = _mm_add_epi32(_mm_sha256msg1_epu32(*now, m[(g + 1) % 4]), w7);
                *now = _mm_sha256msg2_epu32(*now, m[(g + 3) % 4]);
            }
            const __m128i k = _mm_load_si128((const __m128i *)(const void *)(constants + 4 * g));
            const __m128i wk = _mm_add_epi32(*now, k);
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0e));
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    low = _mm_shuffle_epi32(abef, 0x1b);
    high = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(low, high, 0xf0));
    _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(high, low, 8));
}

/* By hand because GCC 12 has no name for the feature. */
static bool has_sha(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSE4_1) || !(c & bit_SSSE3))
        return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}

#endif

/* ---- stream ---- */

void ech__sha256_init_portable(ech__sha256 *sha)
{
    *sha = (ech__sha256){.compress = compress_portable};
    memcpy(sha->state, initial, sizeof initial);
}

void ech__sha256_init(ech__sha256 *sha)
{
    ech__sha256_init_portable(sha);
#if defined(__x86_64__)
    if (has_sha())
        sha->compress = compress_x86;
#endif
}

void ech__sha256_update(ech__sha256 *sha, const void *data, size_t bytes)
{
    const uint8_t *src = data;
    const size_t held = sha->bytes % 64;
    sha->bytes += bytes;
    if (held > 0) {
        const size_t free_bytes = 64 - held, part = bytes < free_bytes ? bytes : free_bytes;
        if (part > 0)
            memcpy(sha->block + held, src, part);
        if (part < free_bytes)
            return;
        sha->compress(sha->state, sha->block, 1);
        src += part;
        bytes -= part;
    }
    if (bytes / 64 > 0)
        sha->compress(sha->state, src, bytes / 64);
    if (bytes % 64 > 0)
        memcpy(sha->block, src + bytes / 64 * 64, bytes % 64);
}

ech__sha256_text ech__sha256_final(ech__sha256 *sha)
{
    /* A one bit, zeros up to 8 bytes before the end of a block, the length in bits. */
    const uint64_t bits = sha->bytes * 8;
    uint8_t tail[72] = {0x80};
    const size_t zeros = (64 + 56 - 1 - sha->bytes % 64) % 64;
    for (int i = 0; i < 8; i++)
        tail[1 + zeros + (size_t)i] = (uint8_t)(bits >> (56 - 8 * i));
    ech__sha256_update(sha, tail, 1 + zeros + 8);
    ech__sha256_text text;
    for (int i = 0; i < 64; i++)
        text.s[i] = "0123456789abcdef"[sha->state[i / 8] >> (28 - 4 * (i % 8)) & 15];
    text.s[64] = '\0';
    return text;
}
