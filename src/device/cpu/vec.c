#include "device/cpu/vec.h"

#ifdef ECH_X86
#include <cpuid.h>

/* Not every compiler knows this feature by name. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

const ech__vec *ech__vec_best(void)
{
#ifdef ECH_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return &ech__vec_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
        return &ech__vec_avx2;
#endif
    return &ech__vec_generic;
}
