#include "device/cpu/vec.h"

const ech__vec *ech__vec_best(void)
{
#ifdef ECH_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return &ech__vec_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("f16c"))
        return &ech__vec_avx2;
#endif
    return &ech__vec_generic;
}
