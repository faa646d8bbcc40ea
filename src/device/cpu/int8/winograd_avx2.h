/* What the AVX2 loops of int8_winograd.h have in common before they differ. */
#ifndef ECH_DEVICE_CPU_INT8_WINOGRAD_AVX2_H
#define ECH_DEVICE_CPU_INT8_WINOGRAD_AVX2_H

#include "device/cpu/int8/pack_avx2.h"
#include "device/cpu/int8/winograd.h"

/* 16 numbers of s16, or 8 of s32. The compiler turns * 4 and the like into shifts. Sums that wrap around are meant to. */
typedef int16_t v16 __attribute__((vector_size(32)));
typedef uint32_t v8u __attribute__((vector_size(32)));
typedef int32_t v8 __attribute__((vector_size(32)));

enum {
    TILE = ECH__INT8_WINO_TILE,
    KINDS = ECH__INT8_WINO_KINDS,
    ROWS = ECH__INT8_WINO_ROWS,
    WIDE = ECH__INT8_WINO_WIDE,
};

#endif
