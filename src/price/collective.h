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

/* The all-reduce algorithms, a row each: name, description, geometry (in price/schedule.c), price (in price/collective.c)
 * and what runs it between nodes (in comm/collective/algorithm.c). The enum, the names, the help of --algorithm and the
 * tables of these three files are expansions of this list. A row that names what is not there does not compile; `none`
 * stands for nothing, and the help then says "not run here". */
#define ECH__ALGORITHM_LIST(X)                                                                     \
    X(BEST, "best", "the cheapest of the others by price", none, none, none)                       \
    X(RING, "ring", "parts of bytes/N around all ranks", ring, ring, ranks)                        \
    X(TREE, "tree", "all bytes up a binomial tree and down", tree, tree, ranks)                    \
    X(HALVING, "halving-doubling", "halves to the nearest rank first, and back", halving, halving, \
      ranks)                                                                                       \
    X(HIERARCHICAL, "hierarchical", "shards intra-node, and rings of their owners inter-node",     \
      hierarchical, hierarchical, rings)                                                           \
    X(DIRECT, "direct", "shards intra-node, and each owner to all others at once", direct, direct, \
      owners)

/* All rows for a help text: "best: the cheapest of the others by price (not run here); ring: ..." */
#define ECH__ALGORITHM_HELP ECH__ALGORITHM_LIST(ECH__ALGORITHM_ABOUT)
#define ECH__ALGORITHM_ABOUT(id, name, about, geometry, price, run)                                \
    " " name ": " about ECH__ALGORITHM_RUN_##run "."
#define ECH__ALGORITHM_RUN_none " (not run here)"
#define ECH__ALGORITHM_RUN_ranks
#define ECH__ALGORITHM_RUN_rings
#define ECH__ALGORITHM_RUN_owners

typedef enum ech__algorithm {
#define ECH__ALGORITHM_ENUM(id, ...) ECH__ALGORITHM_##id,
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
