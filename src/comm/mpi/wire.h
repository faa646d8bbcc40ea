/* Collectives made of messages between ranks: the slow, sure way between nodes, for everything that is not an all-reduce in
 * shared memory. Sums are taken over the ranks in the order of ech__tree_split, so they have the bits that shared memory gives.
 *
 * Every wait is bounded and names the ranks that have not answered. Sequence numbers are part of the messages' tags, so ranks
 * in different collectives wait for each other in vain instead of taking one another's data. */
#ifndef ECH_COMM_MPI_WIRE_H
#define ECH_COMM_MPI_WIRE_H

#include "comm/comm.h"
#include "comm/mpi/plugin.h"

/* Tags that are not of a collective. Those of collectives are below the first of them. */
enum {
    ECH__TAG_SHARD = 16384, /* and 8191 more: exchange of shards between nodes */
    ECH__TAG_MESSAGE = 24576,
    ECH__TAG_CLOCK,
    ECH__TAG_NODE,
};

/* The longest single message. */
#define ECH__WIRE_PIECE ((int64_t)1 << 30)

typedef struct ech__wire {
    ech_ctx *ctx;
    const ech__mpi_table *mpi;
    int rank, size;
    double timeout_s;
    uint64_t sequence; /* of the next collective */
    bool failed;       /* a message was lost: those in progress will never complete */

    /* Called while a wait has nothing to do. */
    ech_status (*idle)(void *user);
    void *idle_user;

    /* Messages in progress. */
    ech__mpi_request *requests;
    int *peers;
    int used, capacity;

    char *scratch; /* what other ranks send to be reduced here */
    int64_t scratch_bytes;
    const void **terms; /* [size] what a reduction takes */
} ech__wire;

/* mpi is initialised and stays the caller's. */
ech_status ech__wire_init(ech__wire *wire, ech_ctx *ctx, const ech__mpi_table *mpi, int rank,
                          int size, double timeout_s);
void ech__wire_fini(ech__wire *wire);

/* All operations of comm.h. */
ech_status ech__wire_run(ech__wire *wire, const ech__coll *coll);
ech_status ech__wire_allgather(ech__wire *wire, const void *src, void *dst, int64_t bytes);

/* One message, waited for. `what` is for the error message of a time-out. */
ech_status ech__wire_send(ech__wire *wire, const void *data, int64_t bytes, int peer, int tag,
                          const char *what);
ech_status ech__wire_recv(ech__wire *wire, void *data, int64_t bytes, int peer, int tag,
                          const char *what);

/* Fails with the error message of MPI's error code about a message with peer. */
ech_status ech__wire_broken(ech__wire *wire, int code, int peer, const char *what);

#endif
