#include "comm/bench_data.h"

#include <assert.h>
#include <string.h>

/* Neighbouring positions get unlike numbers (the multiplier is 2^64 by the golden ratio). */
static uint64_t scatter(int64_t position)
{
    return ((uint64_t)position + 1) * 0x9e3779b97f4a7c15u;
}

/* 1 to 16, so that a few ranks' sum needs no more bits than bf16 has. */
static int base_of(int64_t position)
{
    return 1 + (int)(scatter(position) >> 60);
}

float ech__bench_value(int rank, int world, int64_t position)
{
    const int shift = (int)((scatter(position) >> 32 & 0xffff) % (uint64_t)world);
    return (float)(base_of(position) + (shift + rank) % world);
}

float ech__bench_reduced(ech__reduction reduction, int world, int64_t position)
{
    const int base = base_of(position);
    /* Over all ranks, (shift + rank) mod world is each of 0 .. world - 1 once. */
    const int shifts = world * (world - 1) / 2;
    switch (reduction) {
    case ECH__REDUCTION_SUM:
        return (float)(world * base + shifts);
    case ECH__REDUCTION_MEAN:
        return (float)base + (float)(world - 1) / 2;
    default:
        return (float)(base + world - 1);
    }
}

/* The upper bits of an f32 with `dropped` lower bits rounded away. */
static uint32_t round_bits(float value, int dropped)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits + (1u << (dropped - 1)) - 1 + (bits >> dropped & 1);
}

/* The bytes of an element. Values are 0.5 and more and below f16's largest, so that no type needs
 * subnormal numbers or infinity. */
static int64_t element(ech_dtype dtype, float value, unsigned char out[8])
{
    enum { BIAS_F32 = 127, BIAS_F16 = 15, MANTISSA_F32 = 23, DROPPED_BF16 = 16, DROPPED_F16 = 13 };
    const int64_t bytes = ech__dtype_bytes(dtype);
    uint16_t half;
    switch (dtype) {
    case ECH_F32:
        memcpy(out, &value, sizeof value);
        return bytes;
    case ECH_F64:
        memcpy(out, &(double){value}, sizeof(double));
        return bytes;
    case ECH_S32:
        memcpy(out, &(int32_t){(int32_t)value}, sizeof(int32_t));
        return bytes;
    case ECH_BF16:
        half = (uint16_t)(round_bits(value, DROPPED_BF16) >> DROPPED_BF16);
        break;
    default:
        assert(dtype == ECH_F16);
        half = (uint16_t)((round_bits(value, DROPPED_F16) -
                           ((uint32_t)(BIAS_F32 - BIAS_F16) << MANTISSA_F32)) >>
                          DROPPED_F16);
    }
    memcpy(out, &half, sizeof half);
    return bytes;
}

void ech__bench_store(ech_dtype dtype, void *data, int64_t i, float value)
{
    unsigned char bits[8];
    const int64_t bytes = element(dtype, value, bits);
    memcpy((char *)data + i * bytes, bits, (size_t)bytes);
}

bool ech__bench_holds(ech_dtype dtype, const void *data, int64_t i, float value)
{
    unsigned char bits[8];
    const int64_t bytes = element(dtype, value, bits);
    return !memcmp((const char *)data + i * bytes, bits, (size_t)bytes);
}
