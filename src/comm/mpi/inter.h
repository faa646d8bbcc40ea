/* All-reduces by messages, without waiting: the moves of a schedule (price/schedule.h) carried out
 * over MPI.
 *
 *     ech__between_init(&b, &wire, &(ech__between_options){...});
 *     ECH_TRY(ech__between_reserve(&b));                              memory, so that a step allocates nothing
 *     ECH_TRY(ech__between_begin(&b, data, count, dtype, reduction, sequence));    up to ECH__FLIGHTS chunks
 *     while (!done) ECH_TRY(ech__between_test(&b, &done));            the oldest chunk is done
 *
 * Arrays are cut into chunks of at most ECH__CHUNK_BYTES by the caller, and each chunk goes through
 * the schedule by itself. Up to ECH__FLIGHTS chunks are in progress at once, so that the links are
 * busy while others are added up, and while the chunks of the next bucket are not ready. Places of
 * the schedule begin the same chunks in the same order.
 *
 * What a price has to follow: chunks of all buckets queue up in their order, and chunks of a bucket
 * begin when all ranks of the node have it. The links never wait for a step of one chunk while
 * others can travel, so a bucket takes its bytes over the bandwidth of the busiest port, plus the
 * latencies of one chunk's steps. Messages move while the rank computes if it has a helper
 * (comm/helper.h), else only between operators, and in the wait at the end of the backward pass. */
#pragma once

#include "base/system/clock.h"
#include "comm/mpi/wire.h"
#include "comm/shm/shm.h"
#include "price/schedule.h"

enum { ECH__FLIGHTS = 16, ECH__CHUNK_BYTES = 1 << 20 };

typedef struct ech__between_options {
    ech__algorithm algorithm;
    int places, per_node; /* of the schedule: ranks, or nodes */
    int place;            /* of this rank; -1: none, it takes no part */
    const int *ranks;     /* [places] the rank at each; borrowed */
    int first_tag;        /* of ECH__CHUNK_TAGS */
} ech__between_options;

/* One chunk in progress. */
typedef struct ech__flight {
    char *data;
    int64_t count;
    ech_dtype dtype;
    ech__reduction reduction;
    uint64_t sequence;          /* of the all-reduce, for messages */
    int64_t step;               /* steps: it is done */
    ech__move *moves;           /* [most] of the step */
    ech__mpi_request *requests; /* [most] of the moves */
    char *scratch;              /* what is received to be added */
    int nmoves, open;           /* open: requests that are not done */
    int tag;
    ech__waited waited; /* in this step */
} ech__flight;

typedef struct ech__between {
    ech__wire *wire; /* for its table, its time-out and its error messages */
    ech__between_options options;
    ech__schedule schedule; /* count and grain are set for each chunk */
    int64_t steps, most, scratch_bytes;
    const void **terms; /* [places] */
    ech__flight flights[ECH__FLIGHTS];
    uint64_t begun, ended; /* chunks; those from ended on are in flights */
    bool reserved;
} ech__between;

void ech__between_init(ech__between *between, ech__wire *wire, const ech__between_options *options);
void ech__between_fini(ech__between *between);
/* Memory for chunks; once is enough. */
ech_status ech__between_reserve(ech__between *between);
/* The functions of an ech__inter whose user is the ech__between. */
ech_status ech__between_begin(void *between, void *data, int64_t count, ech_dtype dtype,
                              ech__reduction reduction, uint64_t sequence);
ech_status ech__between_test(void *between, bool *done);
ech_status ech__between_push(void *between);
/* An all-reduce of any size, waited for. */
ech_status ech__between_run(ech__between *between, const ech__coll *coll);
