#include "base/rng.h"

#include <math.h>

void ech__rng_block(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint64_t ech__rng_stream(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

static float unit(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

float ech__rng_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t words[4];
    ech__rng_block(seed, stream, index / 4, words);
    return unit(words[index % 4]);
}

void ech__rng_fill(const ech__rng_range *range, float *out, int64_t count)
{
    const float width = range->high - range->low;
    uint32_t words[4];
    for (int64_t i = 0; i < count; i++) {
        const uint64_t index = range->first + (uint64_t)i;
        if (i == 0 || index % 4 == 0)
            ech__rng_block(range->seed, range->stream, index / 4, words);
        out[i] = range->low + width * unit(words[index % 4]);
    }
}

float ech__rng_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t words[4];
    ech__rng_block(seed, stream, index / 4, words);
    const uint32_t *pair = words + (index % 4 / 2) * 2;
    /* 1 - u lies in (0, 1], so that the logarithm is finite. */
    const double radius = sqrt(-2.0 * log(1.0 - (double)unit(pair[0])));
    const double angle = 2.0 * M_PI * (double)unit(pair[1]);
    return (float)(radius * (index % 2 ? sin(angle) : cos(angle)));
}
