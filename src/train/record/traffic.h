/* What the exchange between ranks cost over the timed steps of a run: every rank's time by what it
 * did, every bucket's way, and the rank that the others waited for. */
#pragma once

#include "base/stats.h"
#include "parallel/ddp/ddp.h"
#include "train/step/trainer.h"

/* Means over the central steps (base/stats.h), in seconds; the parts as plan/account.h has them. */
typedef struct ech__rank_traffic {
    double step_s; /* forward + backward + optimizer + exposed + wait + other */
    double forward_s, backward_s, optimizer_s, exposed_s, wait_s, other_s;
    double hidden_s;  /* of computing */
    double sync_s;    /* of exposed and wait: buffers and statistics of batch norms */
    double buffers_s; /* of sync: buffers */
    double busy;      /* share of the step that it computed */
    int64_t peak_memory, planned_memory;
} ech__rank_traffic;

typedef struct ech__bucket_traffic {
    int64_t bytes;
    double ready_s;         /* from the start of the step until the last rank had it ready */
    double transfer_s;      /* from there until all had the sum */
    double bus_bytes_per_s; /* 2 (N-1)/N bytes by that time */
} ech__bucket_traffic;

/* The rank that is ready last in most steps, and where it spends more time than the others: none
 * where no rank is late by more than a tenth of a millisecond and two per cent of the step. */
typedef struct ech__straggler {
    int rank; /* -1: none */
    ech__phase phase;
    double seconds; /* median over the steps of its time in that phase above the others' */
    double share;   /* of the steps that it was the last */
} ech__straggler;

typedef struct ech__traffic {
    ech_ctx *ctx;
    int world, nbuckets;
    int64_t steps, kept;      /* capacity, and number of steps kept */
    ech__report *reports;     /* [steps][world] */
    ech__coll_times *buckets; /* [steps][world][nbuckets] */
    double *step_s;           /* [steps] */
    ech__timed *timed;        /* [steps] to find central steps and medians */
    /* after ech__traffic_sum_up */
    ech__ddp_bytes bytes;
    /* Broadcasting buffers, without waiting for ranks that are late: median of the least time that
     * a rank took in a step. */
    double buffers_s;
    ech__rank_traffic *ranks;           /* [world] */
    ech__bucket_traffic *bucket_totals; /* [nbuckets] */
    ech__straggler straggler;
} ech__traffic;

/* Room for at most this many steps. With one rank it stays empty. */
ech_status ech__traffic_init(ech__traffic *traffic, const ech_trainer *trainer, int64_t steps,
                             ech__arena *arena);
/* Records the trainer's last step, up to the capacity. */
void ech__traffic_add(ech__traffic *traffic, const ech_trainer *trainer, double step_s);
/* Collective: ranks tell their memory. */
ech_status ech__traffic_sum_up(ech__traffic *traffic, const ech_trainer *trainer);
