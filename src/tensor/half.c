#include "tensor/half.h"

void ech__widen(ech_dtype dtype, int64_t n, const void *src, float *dst)
{
    ech__widen_here(dtype, n, src, dst);
}

void ech__narrow(ech_dtype dtype, int64_t n, const float *src, void *dst)
{
    ech__narrow_here(dtype, n, src, dst);
}

/* A number that is not finite has all bits of its exponent set. No early end, so that a compiler
 * can make vectors of the loop. */
#define NONE_HAS(bits_type, exponent)                                                              \
    do {                                                                                           \
        const bits_type *bits = src;                                                               \
        bits_type found = 0;                                                                       \
        for (int64_t i = 0; i < n; i++)                                                            \
            found |= (bits_type)((bits[i] & (exponent)) == (exponent));                            \
        return !found;                                                                             \
    } while (0)

bool ech__all_finite(ech_dtype dtype, int64_t n, const void *src)
{
    switch (dtype) {
    case ECH_F32:
        NONE_HAS(uint32_t, 0x7f800000u);
    case ECH_F64:
        NONE_HAS(uint64_t, 0x7ff0000000000000u);
    case ECH_BF16:
        NONE_HAS(uint16_t, 0x7f80u);
    case ECH_F16:
        NONE_HAS(uint16_t, 0x7c00u);
    default:
        return true;
    }
}
