#include "comm/mpi/inter.h"

#include "comm/collective/reduce.h"
#include "price/tree.h"

#include <stdio.h>

/* Parts end at multiples of so many bytes. */
enum { GRAIN_BYTES = 64 };
/* Shards need not be cut evenly to the byte. */
enum { SLACK_BYTES = 64 * 1024 };
/* The inter-node time-out is longer than the intra-node one: ranks of one node can tell better
 * which of them is stuck. */
#define PATIENCE 1.05

void ech__between_init(ech__between *between, ech__wire *wire, int node, int nodes,
                       const int *peers)
{
    *between = (ech__between){.wire = wire, .node = node, .nodes = nodes, .peers = peers};
}

static void release(ech__between *b)
{
    ech_ctx *ctx = b->wire->ctx;
    ech__delete(ctx, b->parts, (size_t)b->parts_bytes);
    ech__delete(ctx, b->requests, (size_t)b->capacity * sizeof *b->requests);
    ech__delete(ctx, b->request_peers, (size_t)b->capacity * sizeof *b->request_peers);
    b->parts = NULL;
    b->requests = NULL;
    b->request_peers = NULL;
    b->parts_bytes = b->capacity = 0;
}

void ech__between_fini(ech__between *between)
{
    /* MPI may still write to memory of messages in progress, so it is not freed: the process is
     * about to end. */
    if (between->wire && between->used == 0)
        release(between);
}

ech_status ech__between_reserve(ech__between *b, int64_t bytes, int owners)
{
    const int64_t shard = bytes / owners + SLACK_BYTES;
    const int64_t parts = shard + (int64_t)b->nodes * GRAIN_BYTES * 2;
    const int64_t messages = (shard / b->nodes + GRAIN_BYTES) / ECH__WIRE_PIECE + 1;
    const int capacity = (int)(2 * b->nodes * messages);
    if (b->step != ECH__BETWEEN_IDLE)
        return ech__fail(b->wire->ctx, ECH_E_INVALID,
                         "cannot allocate shared memory while allreduce #%llu is in progress",
                         (unsigned long long)b->sequence);
    if (parts <= b->parts_bytes && capacity <= b->capacity)
        return ECH_OK;
    release(b);
    ech_ctx *ctx = b->wire->ctx;
    b->parts_bytes = parts;
    b->capacity = capacity;
    b->parts = ech__new(ctx, (size_t)parts);
    b->requests = ech__new(ctx, (size_t)capacity * sizeof *b->requests);
    b->request_peers = ech__new(ctx, (size_t)capacity * sizeof *b->request_peers);
    if (b->parts && b->requests && b->request_peers)
        return ECH_OK;
    release(b);
    return ech__no_memory(ctx, "%lld bytes to exchange between %d nodes", (long long)parts,
                          b->nodes);
}

/* Posts one message, in pieces where it is long. */
static ech_status post(ech__between *b, bool send, char *data, int64_t bytes, int node, int tag)
{
    const ech__mpi_table *mpi = b->wire->mpi;
    const int peer = b->peers[node];
    for (int64_t at = 0; at < bytes; at += ECH__WIRE_PIECE) {
        const int64_t n = bytes - at < ECH__WIRE_PIECE ? bytes - at : ECH__WIRE_PIECE;
        ech__mpi_request *request = &b->requests[b->used];
        const int code = send ? mpi->isend(data + at, n, peer, tag, request)
                              : mpi->irecv(data + at, n, peer, tag, request);
        if (code != 0)
            return ech__wire_broken(b->wire, code, peer, "a shard");
        b->request_peers[b->used++] = peer;
    }
    return ECH_OK;
}

static ech__range part_of(const ech__between *b, int node)
{
    return ech__shard(b->count, node, b->nodes, GRAIN_BYTES / ech__dtype_bytes(b->dtype));
}

/* Messages of two steps of one shard, and of shards that follow each other, differ in their tags. */
static int tag_of(const ech__between *b)
{
    return ECH__TAG_SHARD + (int)(b->sequence % 4096) * 2 + (b->step == ECH__BETWEEN_GATHER);
}

static ech_status post_scatter(ech__between *b)
{
    const int64_t unit = ech__dtype_bytes(b->dtype);
    const ech__range own = part_of(b, b->node);
    b->step = ECH__BETWEEN_SCATTER;
    for (int j = 0; j < b->nodes; j++) {
        if (j != b->node)
            ECH_TRY(
                post(b, false, b->parts + j * own.count * unit, own.count * unit, j, tag_of(b)));
    }
    for (int j = 0; j < b->nodes; j++) {
        const ech__range other = part_of(b, j);
        if (j != b->node)
            ECH_TRY(post(b, true, b->data + other.first * unit, other.count * unit, j, tag_of(b)));
    }
    return ECH_OK;
}

static ech_status post_gather(ech__between *b)
{
    const int64_t unit = ech__dtype_bytes(b->dtype);
    const ech__range own = part_of(b, b->node);
    b->step = ECH__BETWEEN_GATHER;
    for (int j = 0; j < b->nodes; j++) {
        const ech__range other = part_of(b, j);
        if (j != b->node)
            ECH_TRY(post(b, false, b->data + other.first * unit, other.count * unit, j, tag_of(b)));
    }
    for (int j = 0; j < b->nodes; j++) {
        if (j != b->node)
            ECH_TRY(post(b, true, b->data + own.first * unit, own.count * unit, j, tag_of(b)));
    }
    return ECH_OK;
}

static ech_status reduce_part(ech__between *b)
{
    const int64_t unit = ech__dtype_bytes(b->dtype);
    const ech__range own = part_of(b, b->node);
    const void *terms[ECH__MAX_RANKS_PER_NODE];
    void *dst = b->data + own.first * unit;
    for (int j = 0; j < b->nodes; j++)
        terms[j] = j == b->node ? dst : b->parts + j * own.count * unit;
    return ech__reduce(b->wire->ctx, b->reduction, b->dtype, own.count, terms, b->nodes, &dst, 1,
                       b->wire->size);
}

ech_status ech__between_begin(void *between, void *data, int64_t count, ech_dtype dtype,
                              ech__reduction reduction, uint64_t sequence)
{
    ech__between *b = between;
    const int64_t unit = ech__dtype_bytes(dtype);
    b->data = data;
    b->count = count;
    b->dtype = dtype;
    b->reduction = reduction;
    b->sequence = sequence;
    b->waited = ech__waited_start();
    const int64_t needed = part_of(b, b->node).count * unit * b->nodes;
    if (needed > b->parts_bytes)
        return ech__fail(b->wire->ctx, ECH_E_INTERNAL,
                         "allreduce #%llu: a shard of %lld bytes does not fit in %lld",
                         (unsigned long long)sequence, (long long)needed,
                         (long long)b->parts_bytes);
    return post_scatter(b);
}

/* Tests every message once and forgets those that are done. */
static ech_status test_messages(ech__between *b)
{
    int kept = 0;
    for (int i = 0; i < b->used; i++) {
        bool done = false;
        const int code = b->wire->mpi->test(&b->requests[i], &done);
        if (code != 0)
            return ech__wire_broken(b->wire, code, b->request_peers[i], "a shard");
        if (done)
            continue;
        b->requests[kept] = b->requests[i];
        b->request_peers[kept] = b->request_peers[i];
        kept++;
    }
    b->used = kept;
    const double waited = ech__seconds(ech__waited_look(&b->waited));
    if (kept == 0 || waited <= b->wire->timeout_s * PATIENCE)
        return ECH_OK;
    b->wire->failed = true;
    return ech__fail(b->wire->ctx, ECH_E_IO, "rank %d waited %g s for rank %d in allreduce #%llu",
                     b->wire->rank, b->wire->timeout_s, b->request_peers[0],
                     (unsigned long long)b->sequence);
}

ech_status ech__between_test(void *between, bool *done)
{
    ech__between *b = between;
    *done = false;
    ECH_TRY(test_messages(b));
    if (b->used > 0)
        return ECH_OK;
    if (b->step == ECH__BETWEEN_SCATTER) {
        ECH_TRY(reduce_part(b));
        ECH_TRY(post_gather(b));
        ECH_TRY(test_messages(b));
        if (b->used > 0)
            return ECH_OK;
    }
    b->step = ECH__BETWEEN_IDLE;
    *done = true;
    return ECH_OK;
}

ech_status ech__between_push(void *between)
{
    ech__between *b = between;
    const int code = b->wire->mpi->progress();
    return code == 0 ? ECH_OK : ech__wire_broken(b->wire, code, b->wire->rank, "messages");
}
