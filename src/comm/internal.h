/* What the files of this folder share besides comm.h. */
#ifndef ECH_COMM_INTERNAL_H
#define ECH_COMM_INTERNAL_H

#include "comm/comm.h"

/* A comm of one rank, which needs nobody. */
ech_status ech__solo_open(ech_ctx *ctx, double timeout_s, ech__comm **out);

/* Bytes of count elements; the count has been checked. */
static inline int64_t ech__coll_bytes(const ech__coll *coll, int64_t count)
{
    return count * ech__dtype_bytes(coll->dtype);
}

#endif
