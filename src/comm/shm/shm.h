/* The shared-memory transport: ranks of one node over one memfd, which has no name and is gone with
 * the last rank.
 *
 *     int fd;
 *     ECH_TRY(ech__shm_create(ctx, world, &fd));                      once for all: the launcher, or local rank 0
 *     ECH_TRY(ech__shm_join(ctx, fd, rank, world, timeout, &comm));   each rank, a process or a thread
 *
 * The file starts with a control block: for each rank its counters, a descriptor ring (so that
 * ranks in different collectives are found out and named) and slots through which small and
 * unshared data pass. Memory from ech__comm_alloc is appended, reserved with fallocate.
 *
 * An all-reduce in place: every rank counts up `started` when its part is ready. When all have,
 * each rank reduces its own shard over all ranks' memory and writes the result to all of them, then
 * counts up `reduced`. When all have, it is done. Waiting spins for a few microseconds and then
 * sleeps on a futex.
 *
 * A send returns when all of it is in the ring of its pair (64 KB for up to 8 ranks, less for
 * more), so two ranks may both send before they receive as long as what is in progress fits; more
 * goes through while the other side receives.
 */
#pragma once

#include "comm/comm.h"

/* What happens to a shard between its reduction inside the node and its distribution, where there
 * are other nodes. A shard is cut into chunks of at most chunk_bytes. begin starts one on
 * data[count], in place; test drives all that are in progress and says whether the oldest of them
 * is done, or fails when that takes too long. Neither waits. At most `flights` chunks are in
 * progress, in the order in which they were begun, also of several all-reduces. push is called in
 * waits while no chunk is in progress, so that what was sent before goes on. Shards have `owners`
 * parts: local ranks from owners on have none. begin gets a sum for a mean: what all nodes have
 * added up is divided here, when it is distributed. Only started all-reduces go this way; blocking
 * collectives stay inside the node. flat: nothing is added up inside the node; every rank hands
 * over all of its own data, and gets the sum over all ranks. */
typedef struct ech__inter {
    ech_status (*begin)(void *user, void *data, int64_t count, ech_dtype dtype,
                        ech__reduction reduction, uint64_t sequence);
    ech_status (*test)(void *user, bool *done);
    ech_status (*push)(void *user);
    void *user;
    bool flat;
    int flights;
    int64_t chunk_bytes;
    int owners;
    int world; /* of all nodes: what a mean divides by */
    /* [ranks of this node] their numbers in the job, for error messages; borrowed; NULL: the same */
    const int *ranks;
} ech__inter;

/* A memfd with a control block for `world` ranks, close-on-exec. The caller closes it. */
ech_status ech__shm_create(ech_ctx *ctx, int world, int *fd);
/* Whether a rank has called ech__comm_begun. */
bool ech__shm_begun(int fd);
/* fd is borrowed: it may be closed afterwards. */
ech_status ech__shm_join(ech_ctx *ctx, int fd, int rank, int world, double timeout_s,
                         ech__comm **out);
/* Before the first collective. inter is copied. */
void ech__shm_set_inter(ech__comm *comm, const ech__inter *inter);
