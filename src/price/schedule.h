/* The geometry of all-reduce algorithms, as pure functions: who sends which elements to whom, step
 * by step. src/comm runs these steps (comm/collective/algorithm.h), and their prices are in
 * price/collective.h.
 *
 *     const ech__schedule s = {ECH__ALGORITHM_RING, .devices = 16, .per_node = 8, .count = n, .grain = 16};
 *     for (int64_t step = 0; step < ech__schedule_steps(&s); step++) {
 *         const int64_t n = ech__schedule_moves(&s, rank, step, moves);     moves[ech__schedule_most(&s)]
 *         start all n of them, wait for all of them
 *     }
 *
 * A rank starts all moves of a step at once, and the next step when they are done. A send and its
 * receive have the same step and the same range. Each rank begins with its own numbers in all
 * elements and ends with the sum over all ranks.
 *
 * N devices, on nodes of D. The last node may have fewer devices; `owners` is the number of devices
 * on it.
 *   ring              Part (r - s) of N goes from rank r to rank r + 1 in step s and is added
 *                     there. After N - 1 steps rank r
 *                     has the sum of part r + 1, and N - 1 more steps copy the sums around the ring.
 *   tree              A binomial tree with root 0, all elements at once. In step j, rank r + 2^j
 *                     sends to rank r where r is a
 *                     multiple of 2^(j+1). The sum goes back the same way.
 *   halving-doubling  Binary blocks: ranks form blocks of 2^K ranks, one for each bit of N, the
 *                     largest block first. In step
 *                     j < K, ranks whose places in the block differ in bit j exchange halves of
 *                     what they have left, and add.
 *                     In step K the rank at place p of the next smaller block of 2^k ranks sends to
 *                     all places of this block
 *                     that are equal to p modulo 2^k. The first block then has the sum, which goes back the same way.
 *   hierarchical      Three phases. 1: each device sends shard i to owner i of its node, all at
 *                     once, which adds them. 2: the
 *                     ring between the nodes, by the owners of each shard. 3: each owner sends its
 *                     shard to its node, all at
 *                     once.
 *   direct            As hierarchical, but phase 2 has two steps: each of M nodes sends part j of
 *                     the shard to node j, which
 *                     adds them; then it sends the sum of its part to all nodes.
 * Several sums of one step, and this rank's own numbers, are added in the order of ech__tree_split
 * over the ranks.
 */
#pragma once

#include "price/collective.h"
#include "price/tree.h"

typedef struct ech__schedule {
    ech__algorithm algorithm;
    int64_t devices, per_node; /* N and D, both at least 1; BEST has no schedule */
    int64_t count;             /* elements of every rank */
    int64_t grain;             /* parts begin at multiples of so many elements */
} ech__schedule;

typedef enum ech__move_kind {
    ECH__MOVE_SEND, /* range to peer */
    ECH__MOVE_ADD,  /* range from peer, added to this rank's */
    ECH__MOVE_COPY, /* range from peer, in place of this rank's */
} ech__move_kind;

typedef struct ech__move {
    ech__move_kind kind;
    int64_t peer;
    ech__range range; /* never empty: what has no elements is left out */
} ech__move;

/* Steps of all ranks; some ranks have no moves in some of them. 0 on one device. */
int64_t ech__schedule_steps(const ech__schedule *schedule);
/* The largest number of moves that any rank has in any step. */
int64_t ech__schedule_most(const ech__schedule *schedule);
/* The moves of a rank in a step; returns their number. */
int64_t ech__schedule_moves(const ech__schedule *schedule, int64_t rank, int64_t step,
                            ech__move *out);
/* Whether sums have the order of ech__tree_split over all ranks, which shared memory has too: then
 * results have the same bits. */
bool ech__schedule_keeps_tree(const ech__schedule *schedule);
