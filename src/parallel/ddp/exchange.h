/* The exchange of a plan (plan/exchange.h) over a group of ranks (comm/comm.h), and what is
 * measured of it.
 *
 *     ech__ranks *ranks;
 *     ECH_TRY(ech__ranks_create(comm, &ranks));
 *     plan with .exchange = ech__ranks_exchange(ranks), run steps
 *     ranks->buckets[k].times                          of the last step
 *     ech__ranks_destroy(ranks);                       after the plans
 */
#pragma once

#include "comm/comm.h"
#include "plan/exchange.h"
#include "price/timeline.h"

/* A sum that goes back to memory of a device which the host cannot touch. */
typedef struct ech__staged {
    ech__device *device; /* NULL: none, the ranks have added up in the device's own memory */
    void *at;
    const void *shared;
    int64_t bytes;
} ech__staged;

typedef struct ech__bucket {
    int64_t bytes; /* with padding */
    uint64_t ticket;
    ech__coll_times times; /* of the last step */
    ech__staged back;      /* of the step under way */
    bool started;
    /* Parameters are changed by the sum where it arises, and handed out instead of it. */
    bool updates;
} ech__bucket;

typedef struct ech__ranks {
    ech__exchange base; /* first, so that an ech__exchange is an ech__ranks */
    ech__comm *comm;    /* borrowed */
    ech__bucket buckets[ECH__MAX_STARTED];
    int nbuckets;
    /* Since they were set to 0. */
    int64_t update_ns;  /* updates of parameters by sums that this rank made */
    int64_t sync_ns;    /* broadcasts and statistics, waiting included */
    int64_t buffers_ns; /* of it, broadcasts of buffers */
    int64_t arrived_ns; /* at the first broadcast of buffers; 0: there was none */
    /* When bytes were on their way, since the plan last asked; what is more than this counts as
     * waiting. */
    ech__span moving[2 * ECH__MAX_STARTED];
    size_t nmoving;
    /* With a virtual clock, what would be exchanged over which links; all NULL by default. */
    ech__virtual_clock *clock;
    const ech__cluster *cluster;
    ech__algorithm algorithm;
} ech__ranks;

ech_status ech__ranks_create(ech__comm *comm, ech__ranks **out);
void ech__ranks_destroy(ech__ranks *ranks);
ech__exchange *ech__ranks_exchange(ech__ranks *ranks); /* NULL for NULL */

/* Rank 0's memory of a device, on every rank. */
ech_status ech__ranks_broadcast(ech__comm *comm, ech__device *device, void *memory, int64_t bytes);

/* On a virtual clock, when all ranks have told when their buckets were ready: ready_ns[bucket *
 * world + rank] gives each bucket's start and end. Returns when the last one ends. Through
 * shared memory the devices do the work themselves: *worked_ns is how much later each of them is at its
 * end because of it, and buckets are later by what came before them; over links it is 0. */
int64_t ech__ranks_emulate(const ech__ranks *ranks, const int64_t *ready_ns, ech__coll_times *out,
                           int64_t *worked_ns);
