#include "device/cpu/vec/vec.h"
#include "device/isa.h"

const ech__vec *ech__vec_best(void)
{
#ifdef ECH_X86
    if (ech__isa_level() >= ECH__ISA_AVX512)
        return &ech__vec_avx512;
    if (ech__isa_level() >= ECH__ISA_AVX2)
        return &ech__vec_avx2;
#endif
    return &ech__vec_generic;
}
