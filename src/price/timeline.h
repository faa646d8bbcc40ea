/* The price of a training step on N devices: what its operators cost on one, put on a timeline with the exchange of
 * gradients between them. The same timeline is used for predictions (times from a file of costs) and for emulation (times
 * from the run itself).
 *
 *     ech__timeline t;
 *     ech__timeline_begin(&t, cluster, algorithm, devices);
 *     each rank's buckets, in their order: ech__timeline_bucket(&t, ready_s, bytes)    ready on the slowest rank
 *     t.done_s                                                                         when the last sum is there
 *
 * Links move data by themselves while devices compute; through shared memory the devices do the work (cluster->mover), so there
 * all of it is exposed.
 */
#pragma once

#include "price/collective.h"

/* The link is one thing that buckets take one after the other. */
typedef struct ech__timeline {
    const ech__cluster *cluster;
    ech__algorithm algorithm;
    int64_t devices;
    double done_s;        /* of the last bucket; 0: none yet */
    double comm_s;        /* sum of the times of all buckets */
    double busiest_bytes; /* on the busiest link */
} ech__timeline;

void ech__timeline_begin(ech__timeline *timeline, const ech__cluster *cluster,
                         ech__algorithm algorithm, int64_t devices);
/* A bucket that is ready at this time on the slowest rank. Returns when its sum is there. */
double ech__timeline_bucket(ech__timeline *timeline, double ready_s, int64_t bytes);

/* An operator of a step, in the order of execution: its time, or an exchange. */
#define ECH__PRICED_LIST(X)                                                                        \
    X(FORWARD, "forward")                                                                          \
    X(BACKWARD, "backward")                                                                        \
    X(OPTIMIZER, "optimizer")                                                                      \
    X(BUCKET, "bucket")   /* an all-reduce begins */                                               \
    X(SYNC, "sync")       /* all ranks meet; a small message */                                    \
    X(WAIT, "wait")       /* until all all-reduces are done */                                     \
    X(MESSAGE, "message") /* from one device to another one; not on this timeline */

typedef enum ech__priced_kind {
#define ECH__PRICED_ENUM(id, text) ECH__PRICED_##id,
    ECH__PRICED_LIST(ECH__PRICED_ENUM)
#undef ECH__PRICED_ENUM
} ech__priced_kind;

typedef struct ech__priced_op {
    ech__priced_kind kind;
    double seconds; /* FORWARD, BACKWARD, OPTIMIZER; BUCKET: of the device, when the sum is there */
    int64_t bytes;  /* BUCKET, SYNC, MESSAGE */
} ech__priced_op;

typedef struct ech__priced_step {
    double step_s, compute_s;
    double exposed_s, hidden_s; /* of the exchange */
    double comm_s;              /* all of the exchange */
    double busiest_bytes;
} ech__priced_step;

/* overhead_s: what a step takes besides its operators. */
ech__priced_step ech__price_step(const ech__priced_op *ops, size_t count,
                                 const ech__cluster *cluster, ech__algorithm algorithm,
                                 int64_t devices, double overhead_s);
