/* Element-wise reductions over the memory of several ranks, in the order of ech__tree_split. */
#ifndef ECH_COMM_COLLECTIVE_REDUCE_H
#define ECH_COMM_COLLECTIVE_REDUCE_H

#include "comm/comm.h"

enum { ECH__MAX_RANKS_PER_NODE = 256 };

/* dst[k][i] = reduction over j of src[j][i], for i < count, k < ndst; a dst may be one of the src. divisor: of a mean.
 * Fails with ECH_E_UNSUPPORTED for types that cannot be reduced (f32 f64 bf16 f16 s32 can). */
ech_status ech__reduce(ech_ctx *ctx, ech__reduction reduction, ech_dtype dtype, int64_t count,
                       const void *const *src, int nsrc, void *const *dst, int ndst, int divisor);

#endif
