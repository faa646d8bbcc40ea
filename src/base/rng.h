/* Counter-based random numbers (Philox 4x32-10): a number is a function of (seed, stream, index), so that
 * no thread, rank or order of calls can change it.
 *
 *     float w = ech__rng_uniform(seed, ech__rng_stream("fc1.weight"), i);      in [0, 1)
 *     float x = ech__rng_normal(seed, stream, i);                              mean 0, variance 1
 */
#pragma once

#include <stdint.h>

/* Four independent 32-bit words. */
void ech__rng_block(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4]);

/* A stream number from a name (FNV-1a). */
uint64_t ech__rng_stream(const char *name);

/* Uniform on [0, 1) with 24 random bits. */
float ech__rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);

/* out[i] = low + (high - low) * ech__rng_uniform(seed, stream, first + i), several at a time. */
typedef struct ech__rng_range {
    uint64_t seed, stream, first;
    float low, high;
} ech__rng_range;
void ech__rng_fill(const ech__rng_range *range, float *out, int64_t count);

/* Standard normal (Box-Muller over the pair that holds index). */
float ech__rng_normal(uint64_t seed, uint64_t stream, uint64_t index);
