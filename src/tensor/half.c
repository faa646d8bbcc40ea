#include "tensor/half.h"

void ech__widen(ech_dtype dtype, int64_t n, const void *src, float *dst)
{
    ech__widen_here(dtype, n, src, dst);
}

void ech__narrow(ech_dtype dtype, int64_t n, const float *src, void *dst)
{
    ech__narrow_here(dtype, n, src, dst);
}
