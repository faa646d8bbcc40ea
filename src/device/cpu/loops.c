#include "device/cpu/loops.h"

#define TABLES(width)                                                                              \
    .vec = &ech__vec_##width, .image = &ech__image_##width, .winograd = &ech__winograd_##width,    \
    .direct = &ech__direct_##width, .panel = &ech__panel_##width, .int8 = &ech__int8_loops_##width
/* Written for AVX2 only. */
#define AVX2_TABLES                                                                                \
    .int8_products = &ech__int8_products_avx2,                                                     \
    .int8_winograd = {&ech__int8_winograd_stride1_avx2, &ech__int8_winograd_stride2_avx2}

static const ech__loops loops[] = {
    [ECH__WIDTH_GENERIC] = {8, TABLES(generic), .int8_products = &ech__int8_products_generic},
#ifdef ECH_X86
    [ECH__WIDTH_AVX2] = {8, TABLES(avx2), AVX2_TABLES},
    [ECH__WIDTH_AVX512] = {16, TABLES(avx512), AVX2_TABLES},
#endif
};

const ech__loops *ech__loops_for(ech__isa level)
{
    return &loops[ech__isa_width(level)];
}
