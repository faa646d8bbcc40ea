/* What each rank tells the others after a step: its part of the loss, and where its time went. */
#ifndef ECH_PARALLEL_DDP_STEP_REPORT_H
#define ECH_PARALLEL_DDP_STEP_REPORT_H

#include "parallel/ddp/exchange.h"

typedef struct ech__report {
    double loss,
        correct; /* weighed by its samples, so that the sum over the ranks is that of the step */
    double samples;
    double forward_s, backward_s, comm_s, optimizer_s; /* as in ech_step */
    double wait_s;                                     /* of comm_s: for gradients of others */
    double sync_s;                                     /* of comm_s: buffers and statistics */
    double buffers_s;                                  /* of sync_s: buffers */
    int64_t start_ns;                                  /* of the step, by rank 0's clock */
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
/* The rank whose last gradient was ready last. */
int ech__reports_slowest(const ech__reports *reports);

#endif
