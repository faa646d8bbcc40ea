/* Element-wise reductions over the memory of several ranks, in the order of ech__tree_split. */
#pragma once

#include "comm/comm.h"

enum {
    ECH__MAX_RANKS_PER_NODE = 256,
    ECH__MAX_TERMS = 65536, /* of one sum: ranks, or nodes */
};

/* dst[k][i] = reduction over j of src[j][i], for i < count, k < ndst; a dst may be one of the
 * src. divisor: of a mean. Fails with ECH_E_UNSUPPORTED for types that cannot be reduced (f32
 * f64 bf16 f16 s32 can). */
ech_status ech__reduce(ech_ctx *ctx, ech__reduction reduction, ech_dtype dtype, int64_t count,
                       const void *const *src, int nsrc, void *const *dst, int ndst, int divisor);

/* A reduction as ech__reduce takes it, checked. */
typedef struct ech__reduce_task {
    ech__reduction reduction;
    ech_dtype dtype;
    int64_t count;
    const void *const *src;
    void *const *dst;
    int nsrc, ndst, divisor;
} ech__reduce_task;

/* Compiled once for each vector width; all widths give the same bits. */
typedef struct ech__reduce_loops {
    void (*run)(const ech__reduce_task *task);
    void (*copy)(void *dst, const void *src, int64_t bytes);
} ech__reduce_loops;

extern const ech__reduce_loops ech__reduce_generic, ech__reduce_avx2, ech__reduce_avx512;

/* The widest that the level in force allows (device/isa.h). */
const ech__reduce_loops *ech__reduce_best(void);
