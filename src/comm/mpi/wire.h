/* Collectives made of messages between ranks: the slow, sure way between nodes, for everything that
 * is not an all-reduce in shared memory. Sums are taken over the ranks in the order of
 * ech__tree_split, so they have the bits that shared memory gives.
 *
 * Every wait is bounded and names the ranks that have not answered. Sequence numbers are part of
 * the messages' tags, so ranks in different collectives wait for each other in vain instead of
 * taking one another's data. */
#pragma once

#include "base/system/clock.h"
#include "comm/comm.h"
#include "comm/mpi/plugin.h"

/* Tags that are not of a blocking collective, whose tags are below the first of them. Chunks of
 * all-reduces that are in progress at the same time differ in their tags. */
enum {
    ECH__CHUNK_TAGS = 4096,
    ECH__TAG_STARTED = 16384,
    ECH__TAG_CHUNK = ECH__TAG_STARTED + ECH__CHUNK_TAGS,
    ECH__TAG_MESSAGE = ECH__TAG_CHUNK + ECH__CHUNK_TAGS,
    ECH__TAG_CLOCK,
    ECH__TAG_NODE,
    ECH__TAG_STUCK,
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
    uint64_t messages;  /* sent and received in blocking collectives, for tests */

    /* A wait that takes too long: ranks that wait as well say so, and for whom. */
    bool stuck;
    ech__mpi_request *heard; /* [2 * size] messages from and to each rank */
    int32_t *waits_for;      /* [size] -1: nothing heard; [rank]: what this rank says */
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

/* For loops that wait for a message from peer: fails when that takes too long. The error message
 * names the rank that all wait for, which need not be the peer: a peer that waits itself has said
 * for whom. */
ech_status ech__wire_look(ech__wire *wire, ech__waited *waited, int peer, uint64_t allreduce);
/* Between two looks: goes on with other work, and gives the core away the longer nothing has
 * happened. */
ech_status ech__wire_idle(ech__wire *wire, int rounds);

/* Fails with the error message of MPI's error code about a message with peer. */
ech_status ech__wire_broken(ech__wire *wire, int code, int peer, const char *what);
