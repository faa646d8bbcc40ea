/* Prices of collectives by algorithm: pure functions of the number of devices, the bytes and the links. */
#ifndef ECH_PLAN_COLLECTIVE_H
#define ECH_PLAN_COLLECTIVE_H

#include "plan/cluster.h"

#define ECH__ALGORITHM_LIST(X)                                                                     \
    X(BEST, "best") /* the cheapest of the others */                                               \
    X(RING, "ring") /* 2(N-1) steps of bytes/N */                                                  \
    X(TREE, "tree") /* reduce up a binary tree, broadcast down: 2 log2 N steps of all bytes */     \
    X(HALVING, "halving-doubling")  /* log2 N halving steps, log2 N doubling */                    \
    X(HIERARCHICAL, "hierarchical") /* inside nodes, between them, inside again */                 \
    X(DIRECT, "direct") /* each owner of a shard reads all others', and all read its sum */

typedef enum ech__algorithm {
#define ECH__ALGORITHM_ENUM(id, text) ECH__ALGORITHM_##id,
    ECH__ALGORITHM_LIST(ECH__ALGORITHM_ENUM)
#undef ECH__ALGORITHM_ENUM
        ECH__ALGORITHM_COUNT
} ech__algorithm;

const char *ech__algorithm_name(ech__algorithm algorithm);

typedef struct ech__collective_price {
    double seconds;
    double busiest_bytes;     /* through the busiest link, in its busier direction */
    int64_t steps;            /* messages one behind the other */
    ech__algorithm algorithm; /* BEST: which it was */
} ech__collective_price;

/* An all-reduce of `bytes` on every one of `devices`, filled up node by node. devices >= 1; 1 costs nothing. Devices of a
 * node that talk to other nodes at the same time share the node's link. */
ech__collective_price ech__price_allreduce(const ech__cluster *cluster, ech__algorithm algorithm,
                                           int64_t devices, int64_t bytes);
/* One message. */
double ech__price_message(const ech__link *link, int64_t bytes);

#endif
