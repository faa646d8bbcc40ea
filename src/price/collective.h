/* Prices of collectives by algorithm: pure functions of the number of devices, the bytes and the links.
 *
 *     ech__collective_price p = ech__price_allreduce(&cluster, ECH__ALGORITHM_BEST, 64, 44700000);
 *     p.seconds, ech__algorithm_name(p.algorithm)
 *
 * A message of b bytes over a link takes latency + b / bandwidth, where the bandwidth is shared evenly among the messages
 * that pass the same port in the same direction at the same time. Adding the numbers up costs nothing here: it is the
 * device's work and has a price there. Which port carries what is written down in docs/pricing.md.
 */
#pragma once

#include "price/cluster.h"

#define ECH__ALGORITHM_LIST(X)                                                                     \
    X(BEST, "best") /* the cheapest of the others; direct only inside one node */                  \
    X(RING, "ring") /* 2(N-1) steps of bytes/N, in the order of the devices */                     \
    X(TREE, "tree") /* up a binomial tree and down again, all bytes at once at every level */      \
    X(HALVING, "halving-doubling")  /* log2 N halving steps, nearest first; log2 N doubling */     \
    X(HIERARCHICAL, "hierarchical") /* rings: inside nodes, between them, inside again */          \
    X(DIRECT, "direct")             /* the way of src/comm: all messages of a phase at once */

typedef enum ech__algorithm {
#define ECH__ALGORITHM_ENUM(id, text) ECH__ALGORITHM_##id,
    ECH__ALGORITHM_LIST(ECH__ALGORITHM_ENUM)
#undef ECH__ALGORITHM_ENUM
        ECH__ALGORITHM_COUNT
} ech__algorithm;

const char *ech__algorithm_name(ech__algorithm algorithm);

typedef struct ech__collective_price {
    double seconds;
    double device_bytes;      /* through the busiest port of a device, in its busier direction */
    double node_bytes;        /* through the busiest port of a node; 0 where all are on one */
    double busiest_bytes;     /* the one of these two whose link needs longer for it */
    int64_t steps;            /* messages one after the other */
    ech__algorithm algorithm; /* BEST: which it was */
} ech__collective_price;

/* An all-reduce of `bytes` >= 0 on every one of `devices` >= 1, filled up node by node, also where the cluster has not as
 * many nodes. One device costs nothing; 0 bytes cost the latencies. Devices of a node that talk to other nodes at the same
 * time share the node's port. */
ech__collective_price ech__price_allreduce(const ech__cluster *cluster, ech__algorithm algorithm,
                                           int64_t devices, int64_t bytes);
/* One message that has its link for itself. */
double ech__price_message(const ech__link *link, int64_t bytes);
