/* How fast collectives are, and whether they are right.
 *
 *     ech__bench_config c = ech__bench_defaults();
 *     c.op = ECH__BENCH_ALLGATHER;
 *     ECH_TRY(ech__bench_comm(comm, &c, on_row, user));     every rank, with the same configuration
 *
 * For each size from min to max: warm-up, timed runs, and one more run on data whose result is
 * known for each rank and position, which every rank checks. Sizes and bandwidths are counted as in
 * nccl-tests, so that figures can be compared: the algorithm bandwidth is size / time; the bus
 * bandwidth is that times a factor which makes it independent of the number of ranks (2(n-1)/n for
 * all-reduce, (n-1)/n for reduce-scatter and all-gather, 1 otherwise).
 */
#pragma once

#include "comm/comm.h"

/* In reduce-scatter and all-gather the size is that of all ranks' parts together, and the count
 * that of one. */
#define ECH__BENCH_OP_LIST(X)                                                                      \
    X(ALLREDUCE, "allreduce")                                                                      \
    X(REDUCE_SCATTER, "reduce_scatter")                                                            \
    X(ALLGATHER, "allgather")                                                                      \
    X(BROADCAST, "broadcast") /* from rank 0 */                                                    \
    X(BARRIER, "barrier")                                                                          \
    X(SENDRECV, "sendrecv") /* each rank to the next, in a ring */

typedef enum ech__bench_op {
#define ECH__BENCH_OP_ENUM(id, text) ECH__BENCH_##id,
    ECH__BENCH_OP_LIST(ECH__BENCH_OP_ENUM)
#undef ECH__BENCH_OP_ENUM
        ECH__BENCH_COUNT
} ech__bench_op;

const char *ech__bench_op_name(ech__bench_op op);
/* Whether a reduction has a part in it. */
bool ech__bench_op_reduces(ech__bench_op op);

enum { ECH__BENCH_MAX_ITERS = 10000 };

typedef struct ech__bench_config {
    ech__bench_op op;
    ech__reduction reduction;
    ech_dtype dtype;
    bool in_place; /* of all-reduce: shared memory, with start and wait */
    int64_t min_bytes,
        max_bytes;     /* rounded down to whole elements of each rank, but to one at least */
    int64_t factor;    /* from a size to the next, 2 or more */
    int warmup, iters; /* of each size; iters up to ECH__BENCH_MAX_ITERS */
} ech__bench_config;

ech__bench_config ech__bench_defaults(void);

typedef struct ech__bench_row {
    ech__bench_op op;
    int ranks;
    bool in_place;
    ech__reduction reduction;
    ech_dtype dtype;
    int64_t bytes, count;
    /* Each iteration takes as long as its slowest rank; iterations that are too short for the clock
     * are timed in batches. */
    const double *
        samples_s; /* [iters], from the shortest to the longest; valid until the callback returns */
    int iters;
    double time_s;               /* their median */
    double algbw_gbs, busbw_gbs; /* 1e9 bytes a second; 0 for a barrier */
    int64_t wrong;               /* elements of all ranks */
} ech__bench_row;

/* Called on every rank with the same row. */
typedef void (*ech__bench_row_fn)(void *user, const ech__bench_row *row);

/* One op over all its sizes. Fails where ranks have different configurations, where the op needs
 * more ranks or where a reduction has no such type. Collective. */
ech_status ech__bench_comm(ech__comm *comm, const ech__bench_config *config,
                           ech__bench_row_fn on_row, void *user);

/* The largest number of bytes that a rank allocates for it. False on overflow. */
bool ech__bench_bytes(const ech__bench_config *config, int world, int64_t *out);

/* Machines that ranks run on, by their names, and the hardware threads that ranks may use on them
 * together. */
typedef struct ech__bench_place {
    int hosts, cores;
} ech__bench_place;

/* Collective. */
ech_status ech__bench_find(ech__comm *comm, ech__bench_place *out);
