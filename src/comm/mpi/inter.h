/* The exchange of one shard between the ranks that own it on their nodes, without waiting: what shm.h calls an ech__inter.
 *
 * The shard is cut into a part for each node. Everyone sends part j to node j, reduces its own part over the nodes in the
 * order of ech__tree_split, and sends the result to all others. Per rank 2 (nodes - 1) / nodes of the shard leaves and
 * comes, in two steps. */
#ifndef ECH_COMM_MPI_INTER_H
#define ECH_COMM_MPI_INTER_H

#include "base/system/clock.h"
#include "comm/mpi/wire.h"
#include "comm/shm/shm.h"

typedef struct ech__between {
    ech__wire *wire;  /* for its table, its time-out and its error messages */
    int node, nodes;  /* this one, and how many */
    const int *peers; /* [nodes] this rank's counterpart on each node; borrowed */

    /* Reserved ahead, so that a step allocates nothing. */
    char *parts; /* what the others send of this node's part */
    int64_t parts_bytes;
    ech__mpi_request *requests;
    int *request_peers;
    int capacity, used;

    /* The shard in progress. */
    enum { ECH__BETWEEN_IDLE, ECH__BETWEEN_SCATTER, ECH__BETWEEN_GATHER } step;
    char *data;
    int64_t count;
    ech_dtype dtype;
    ech__reduction reduction;
    uint64_t sequence;
    ech__waited waited; /* for it */
} ech__between;

void ech__between_init(ech__between *between, ech__wire *wire, int node, int nodes,
                       const int *peers);
void ech__between_fini(ech__between *between);
/* Room for shards of arrays of `bytes` that have `owners` owners. Not while one is in progress. */
ech_status ech__between_reserve(ech__between *between, int64_t bytes, int owners);
/* The functions of an ech__inter whose user is the ech__between. */
ech_status ech__between_begin(void *between, void *data, int64_t count, ech_dtype dtype,
                              ech__reduction reduction, uint64_t sequence);
ech_status ech__between_test(void *between, bool *done);
ech_status ech__between_push(void *between);

#endif
