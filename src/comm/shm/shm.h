/* The shared-memory transport: ranks of one node over one memfd, which has no name and is gone with the last rank.
 *
 *     int fd;
 *     ECH_TRY(ech__shm_create(ctx, world, &fd));                      once for all: the launcher, or local rank 0
 *     ECH_TRY(ech__shm_join(ctx, fd, rank, world, timeout, &comm));   each rank, a process or a thread
 *
 * The file starts with a control block: for each rank its counters, a descriptor ring (so that ranks in different
 * collectives are found out and named) and slots through which small and unshared data pass. Memory from ech__comm_alloc
 * is appended, reserved with fallocate.
 *
 * An all-reduce in place: every rank counts up `started` when its part is ready. When all have, each rank reduces its own
 * shard over all ranks' memory and writes the result to all of them, then counts up `reduced`. When all have, it is done.
 * Waiting spins for a few microseconds and then sleeps on a futex.
 *
 * A send returns when all of it lies in the ring of its pair (64 KB for up to 8 ranks, less for more), so two ranks may both
 * send before they receive as long as what is under way fits; more goes through while the other side receives.
 */
#ifndef ECH_COMM_SHM_SHM_H
#define ECH_COMM_SHM_SHM_H

#include "comm/comm.h"

/* What happens to a shard between the reduction inside of the node and its distribution, where there are other nodes.
 * begin starts it on data[count], in place; test drives it and says when it is done, or fails when that takes too long. Both
 * never wait. push, where there is one, is called in waits while no shard is under way, so that what was sent before goes on.
 * One shard is under way at a time, in the order of the sequence numbers. Shards have `owners` parts: local ranks from owners
 * on have none. begin gets a sum for a mean: what all nodes have added up is divided here, when it is distributed. It is
 * called on every owner for every all-reduce, with count 0 and data NULL where the shard is empty. Only started all-reduces
 * go this way; blocking collectives stay inside of the node. */
typedef struct ech__inter {
    ech_status (*begin)(void *user, void *data, int64_t count, ech_dtype dtype,
                        ech__reduction reduction, uint64_t sequence);
    ech_status (*test)(void *user, bool *done);
    ech_status (*push)(void *user);
    void *user;
    int owners;
    int world; /* of all nodes: what a mean divides by */
    const int *
        ranks; /* [ranks of this node] their numbers in the job, for sentences; borrowed; NULL: the same */
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

#endif
