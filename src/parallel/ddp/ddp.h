/* Data parallelism as a pass: every rank computes on its own samples, and gradients are added up
 * over the ranks. */
#pragma once

#include "graph/graph.h"

/* The first bucket is full with less, as in PyTorch, so that the exchange begins early. */
enum { ECH__FIRST_BUCKET_BYTES = 1 << 20 };

typedef struct ech__ddp_options {
    int64_t bucket_bytes;   /* gradients travel together in buckets of about this size */
    bool broadcast_buffers; /* rank 0's buffers on every rank, after each step */
    bool sync_bn;           /* batch norms over the samples of all ranks */
    int first_bucket;       /* number of the first bucket */
    ech_dtype wire;         /* ECH_BF16: gradients travel in it; anything else: as they are */
    bool group_params; /* parameters lie in groups as their gradients do, for ech__ddp_update */
    /* The graph of another role of the same training, whose buckets this one takes; NULL: none. */
    const ech_graph *like;
} ech__ddp_options;

/* Puts the gradients into buckets, in the order in which the backward pass completes them, and the
 * exchange of each bucket behind the last operator that touches it; then the wait for all of them.
 * Where gradients travel in another type, the members of a bucket are their conversions, made right
 * before it starts, and the sums are converted back behind the wait. After ech__accumulate and
 * before the optimizer. */
ech_status ech__ddp(ech_graph *graph, const ech__ddp_options *options);

/* Batch norms over the samples of all ranks, as with options.sync_bn: alone, for graphs that have
 * no exchange of gradients. */
ech_status ech__ddp_sync_bn(ech_graph *graph);

/* Lets the rank that has reduced a stretch of gradients update the parameters with it, for all
 * ranks, instead of handing the sum to all, each of whom would update: half the work on two ranks,
 * and the sum never leaves the cache. After the optimizer, with parameters in groups. */
ech_status ech__ddp_update(ech_graph *graph);

/* Bytes that a rank has exchanged in a step, without padding: gradients, buffers, statistics. */
typedef struct ech__ddp_bytes {
    int64_t gradients, buffers, statistics;
} ech__ddp_bytes;
ech__ddp_bytes ech__ddp_count(const ech_graph *graph);
