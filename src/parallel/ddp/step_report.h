/* What each rank tells the others after a step: its part of the loss, and where its time went. */
#pragma once

#include "parallel/ddp/exchange.h"

typedef struct ech__report {
    double loss,
        correct; /* weighed by its samples, so that the sum over the ranks is that of the step */
    double samples;
    /* As in ech_step: time_s is the sum of the others but the hidden part. */
    double time_s, forward_s, backward_s, optimizer_s, exposed_s, wait_s, other_s, hidden_s;
    double sync_s;    /* of exposed_s and wait_s: buffers and statistics */
    double buffers_s; /* of sync_s: buffers */
    /* By rank 0's clock: of the step, and when it arrived at the broadcast of buffers; 0: none. */
    int64_t start_ns, end_ns, arrived_ns;
} ech__report;

/* Reports of all ranks of one step. */
typedef struct ech__reports {
    ech__ranks *ranks;
    int nbuckets;
    size_t stride; /* bytes of one rank's */
    char *mine, *all;
} ech__reports;

ech_status ech__reports_init(ech__reports *reports, ech__ranks *ranks);
void ech__reports_fini(ech__reports *reports);
/* Hands in this rank's, with the times of its buckets, and takes all. Collective. */
ech_status ech__reports_exchange(ech__reports *reports, const ech__report *mine);

const ech__report *ech__reports_of(const ech__reports *reports, int rank);
/* By rank 0's clock. */
const ech__coll_times *ech__reports_bucket(const ech__reports *reports, int rank, int bucket);
/* For who knows better than the ranks themselves: the price of an exchange. */
ech__report *ech__reports_change(ech__reports *reports, int rank);
void ech__reports_set_bucket(ech__reports *reports, int rank, int bucket, int64_t start_ns,
                             int64_t done_ns);
/* A broadcast that came late counts as waiting: receivers wait for rank 0, which waits for the last
 * of them. */
void ech__reports_split_buffers(ech__reports *reports);
/* Between nodes the last bucket starts when it is ready on a node: until it is ready on all ranks, they wait for the last. */
void ech__reports_split_buckets(ech__reports *reports);
/* The step ends at once on all ranks, by rank 0's clock: who was done before waited until then. */
void ech__reports_end(ech__reports *reports, int64_t end_ns);
/* The rank whose last gradient was ready last. */
int ech__reports_slowest(const ech__reports *reports);
