#include "comm/mpi/wire.h"

#include "base/system/clock.h"
#include "comm/collective/reduce.h"
#include "price/tree.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Above this a reduction is cut into shards, one for each rank; below it, every rank reduces all of
 * it. */
enum { SMALL_BYTES = 16 * 1024 };
/* What is exchanged at a time in larger reductions and broadcasts. */
enum { PIECE_BYTES = 4 * 1024 * 1024 };
/* Shards end at multiples of so many bytes. */
enum { GRAIN_BYTES = 64 };
/* Up to so many bytes of all ranks go up and down a tree: at most 2 log2 N messages from and to
 * each rank, instead of 2 (N - 1). More go from each to each, so that no rank sends it all several
 * times. */
enum { TREE_BYTES = 4 * 1024 * 1024 };

ech_status ech__wire_init(ech__wire *wire, ech_ctx *ctx, const ech__mpi_table *mpi, int rank,
                          int size, double timeout_s)
{
    *wire = (ech__wire){.ctx = ctx, .mpi = mpi, .rank = rank, .size = size, .timeout_s = timeout_s};
    wire->capacity = 2 * size;
    wire->scratch_bytes = PIECE_BYTES + (int64_t)size * (GRAIN_BYTES + SMALL_BYTES);
    wire->requests = ech__new(ctx, (size_t)wire->capacity * sizeof *wire->requests);
    wire->peers = ech__new(ctx, (size_t)wire->capacity * sizeof *wire->peers);
    wire->terms = ech__new(ctx, (size_t)size * sizeof *wire->terms);
    wire->scratch = ech__new(ctx, (size_t)wire->scratch_bytes);
    wire->heard = ech__new(ctx, (size_t)wire->capacity * sizeof *wire->heard);
    wire->waits_for = ech__new(ctx, (size_t)size * sizeof *wire->waits_for);
    if (wire->requests && wire->peers && wire->terms && wire->scratch && wire->heard &&
        wire->waits_for)
        return ECH_OK;
    ech__wire_fini(wire);
    return ech__no_memory(ctx, "%lld bytes of messages between %d ranks",
                          (long long)wire->scratch_bytes, size);
}

void ech__wire_fini(ech__wire *wire)
{
    /* What MPI still writes to must stay: the process is about to end. */
    if (wire->failed || wire->stuck || !wire->mpi)
        return;
    ech__delete(wire->ctx, wire->requests, (size_t)wire->capacity * sizeof *wire->requests);
    ech__delete(wire->ctx, wire->peers, (size_t)wire->capacity * sizeof *wire->peers);
    ech__delete(wire->ctx, wire->terms, (size_t)wire->size * sizeof *wire->terms);
    ech__delete(wire->ctx, wire->scratch, (size_t)wire->scratch_bytes);
    ech__delete(wire->ctx, wire->heard, (size_t)wire->capacity * sizeof *wire->heard);
    ech__delete(wire->ctx, wire->waits_for, (size_t)wire->size * sizeof *wire->waits_for);
    wire->mpi = NULL;
}

/* ---- messages ---- */

ech_status ech__wire_broken(ech__wire *wire, int code, int peer, const char *what)
{
    char text[256];
    wire->failed = true;
    wire->mpi->error_text(code, text, sizeof text);
    return ech__fail(wire->ctx, ECH_E_IO, "rank %d: %s with rank %d: %s", wire->rank, what, peer,
                     text);
}

/* Whether one more message can be sent: always, unless one was lost before. */
static ech_status may_post(ech__wire *wire)
{
    if (wire->failed || wire->used == wire->capacity)
        return ech__fail(wire->ctx, ECH_E_IO, "rank %d: messages have failed before", wire->rank);
    return ECH_OK;
}

static ech_status post_send(ech__wire *wire, const void *data, int64_t bytes, int peer, int tag)
{
    ECH_TRY(may_post(wire));
    const int slot = wire->used;
    const int code = wire->mpi->isend(data, bytes, peer, tag, &wire->requests[slot]);
    if (code != 0)
        return ech__wire_broken(wire, code, peer, "a message");
    wire->peers[slot] = peer;
    wire->used++;
    wire->messages++;
    return ECH_OK;
}

static ech_status post_recv(ech__wire *wire, void *data, int64_t bytes, int peer, int tag)
{
    ECH_TRY(may_post(wire));
    const int slot = wire->used;
    const int code = wire->mpi->irecv(data, bytes, peer, tag, &wire->requests[slot]);
    if (code != 0)
        return ech__wire_broken(wire, code, peer, "a message");
    wire->peers[slot] = peer;
    wire->used++;
    wire->messages++;
    return ECH_OK;
}

/* ---- who is missing ---- */

/* The time after which a rank says that it waits, and how much longer it then listens to the
 * others. Ranks of one node give up first: they can tell better which of them is stuck. */
#define PATIENCE 1.1

static ech_status say_stuck(ech__wire *wire, int peer)
{
    wire->stuck = true;
    for (int r = 0; r < wire->size; r++)
        wire->waits_for[r] = -1;
    wire->waits_for[wire->rank] = peer;
    for (int r = 0; r < wire->size; r++) {
        if (r == wire->rank)
            continue;
        int code = wire->mpi->irecv(&wire->waits_for[r], sizeof *wire->waits_for, r, ECH__TAG_STUCK,
                                    &wire->heard[2 * r]);
        if (code == 0)
            code = wire->mpi->isend(&wire->waits_for[wire->rank], sizeof *wire->waits_for, r,
                                    ECH__TAG_STUCK, &wire->heard[2 * r + 1]);
        if (code != 0)
            return ech__wire_broken(wire, code, r, "a message");
    }
    return ECH_OK;
}

static ech_status hear_others(ech__wire *wire)
{
    for (int i = 0; i < 2 * wire->size; i++) {
        bool done;
        const int code = wire->mpi->test(&wire->heard[i], &done);
        if (code != 0)
            return ech__wire_broken(wire, code, i / 2, "a message");
    }
    return ECH_OK;
}

/* Whether a rank has said that it waits itself. */
static bool waits_too(const ech__wire *wire, int rank)
{
    return !wire->heard[2 * rank].active && wire->waits_for[rank] >= 0;
}

/* The rank at the end of the chain of ranks that wait for each other; in a circle, the peer. */
static int last_in_chain(const ech__wire *wire, int peer)
{
    int at = peer;
    for (int hops = 0; hops < wire->size; hops++) {
        if (at == wire->rank)
            return peer;
        if (!waits_too(wire, at))
            return at;
        at = wire->waits_for[at];
    }
    return peer;
}

/* Whether to give up waiting for peer. */
static ech_status too_late(ech__wire *wire, ech__waited *waited, int peer, bool *late)
{
    const double waited_s = ech__seconds(ech__waited_look(waited));
    *late = false;
    if (waited_s <= wire->timeout_s)
        return ECH_OK;
    if (!wire->stuck)
        ECH_TRY(say_stuck(wire, peer));
    ECH_TRY(hear_others(wire));
    *late = waited_s > wire->timeout_s * PATIENCE;
    return ECH_OK;
}

ech_status ech__wire_look(ech__wire *wire, ech__waited *waited, int peer, uint64_t allreduce)
{
    bool late;
    ECH_TRY(too_late(wire, waited, peer, &late));
    if (!late)
        return ECH_OK;
    wire->failed = true;
    return ech__fail(wire->ctx, ECH_E_IO, "rank %d waited %g s for rank %d in allreduce #%llu",
                     wire->rank, wire->timeout_s, last_in_chain(wire, peer),
                     (unsigned long long)allreduce);
}

/* "3", "1 and 3", "1, 2 and 3": the ranks that the messages in progress wait for, each once. */
static void name_peers(const ech__wire *wire, char *text, size_t bytes)
{
    int named = 0, left = 0;
    size_t at = 0;
    bool *missing = calloc((size_t)wire->size, sizeof *missing);
    if (!missing) {
        snprintf(text, bytes, "%d", wire->peers[0]);
        return;
    }
    for (int i = 0; i < wire->used; i++) {
        bool *who = &missing[last_in_chain(wire, wire->peers[i])];
        left += !*who;
        *who = true;
    }
    for (int r = 0; r < wire->size && at < bytes; r++) {
        if (!missing[r])
            continue;
        const char *between = named == 0 ? "" : named == left - 1 ? " and " : ", ";
        at += (size_t)snprintf(text + at, bytes - at, "%s%d", between, r);
        named++;
    }
    free(missing);
}

/* ---- waiting ---- */

/* Tests every message once and forgets those that are done. */
static ech_status test_all(ech__wire *wire, const char *what)
{
    int kept = 0;
    for (int i = 0; i < wire->used; i++) {
        bool done = false;
        const int code = wire->mpi->test(&wire->requests[i], &done);
        if (code != 0)
            return ech__wire_broken(wire, code, wire->peers[i], what);
        if (done)
            continue;
        wire->requests[kept] = wire->requests[i];
        wire->peers[kept] = wire->peers[i];
        kept++;
    }
    wire->used = kept;
    return ECH_OK;
}

/* Gives the core away the longer the less there is to do, so that ranks that share a core make
 * progress. */
static void pause_a_little(int round)
{
    if (round < 64)
        return;
    if (round < 4096)
        sched_yield();
    else
        ech__clock_sleep(50e-6);
}

ech_status ech__wire_idle(ech__wire *wire, int rounds)
{
    if (wire->idle)
        ECH_TRY(wire->idle(wire->idle_user));
    pause_a_little(rounds);
    return ECH_OK;
}

/* Until all posted messages are done. */
static ech_status wait_all(ech__wire *wire, const char *what)
{
    ech__waited waited = ech__waited_start();
    for (int round = 0;; round++) {
        const int before = wire->used;
        bool late;
        ECH_TRY(test_all(wire, what));
        if (wire->used == 0)
            return ECH_OK;
        if (wire->used < before)
            round = 0;
        ECH_TRY(too_late(wire, &waited, wire->peers[0], &late));
        if (late)
            break;
        ECH_TRY(ech__wire_idle(wire, round));
    }
    char peers[128];
    name_peers(wire, peers, sizeof peers);
    wire->failed = true;
    return ech__fail(wire->ctx, ECH_E_IO, "rank %d waited %g s for rank %s in %s", wire->rank,
                     wire->timeout_s, peers, what);
}

ech_status ech__wire_send(ech__wire *wire, const void *data, int64_t bytes, int peer, int tag,
                          const char *what)
{
    int64_t at = 0;
    do {
        const int64_t n = bytes - at < ECH__WIRE_PIECE ? bytes - at : ECH__WIRE_PIECE;
        ECH_TRY(post_send(wire, (const char *)data + at, n, peer, tag));
        ECH_TRY(wait_all(wire, what));
        at += n;
    } while (at < bytes);
    return ECH_OK;
}

ech_status ech__wire_recv(ech__wire *wire, void *data, int64_t bytes, int peer, int tag,
                          const char *what)
{
    int64_t at = 0;
    do {
        const int64_t n = bytes - at < ECH__WIRE_PIECE ? bytes - at : ECH__WIRE_PIECE;
        ECH_TRY(post_recv(wire, (char *)data + at, n, peer, tag));
        ECH_TRY(wait_all(wire, what));
        at += n;
    } while (at < bytes);
    return ECH_OK;
}

/* ---- collectives ---- */

/* The description of the collective in progress, and the tag of its messages. */
typedef struct call {
    char what[64];
    int tag;
} call;

static call next_call(ech__wire *wire, const char *name)
{
    call c;
    snprintf(c.what, sizeof c.what, "%s #%llu", name, (unsigned long long)wire->sequence);
    c.tag = (int)(wire->sequence++ % ECH__TAG_STARTED);
    return c;
}

/* From each to each. */
static ech_status gather_flat(ech__wire *wire, const call *c, char *dst, int64_t bytes)
{
    int64_t at = 0;
    do {
        const int64_t n = bytes - at < ECH__WIRE_PIECE ? bytes - at : ECH__WIRE_PIECE;
        for (int r = 0; r < wire->size; r++) {
            if (r != wire->rank)
                ECH_TRY(post_recv(wire, dst + r * bytes + at, n, r, c->tag));
        }
        for (int r = 0; r < wire->size; r++) {
            if (r != wire->rank)
                ECH_TRY(post_send(wire, dst + wire->rank * bytes + at, n, r, c->tag));
        }
        ECH_TRY(wait_all(wire, c->what));
        at += n;
    } while (at < bytes);
    return ECH_OK;
}

/* Down a binomial tree whose root is coll->peer: rank r gets from r without its lowest bit, counted
 * from the root. */
static ech_status broadcast(ech__wire *wire, const call *c, char *data, int64_t bytes, int root)
{
    const int size = wire->size, place = (wire->rank - root + size) % size;
    int64_t at = 0;
    do {
        const int64_t n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        int step = 1;
        while (step < size && !(place & step))
            step *= 2;
        if (place != 0) {
            ECH_TRY(post_recv(wire, data + at, n, (place - step + root) % size, c->tag));
            ECH_TRY(wait_all(wire, c->what));
        }
        for (step /= 2; step > 0; step /= 2) {
            if (place + step < size)
                ECH_TRY(post_send(wire, data + at, n, (place + step + root) % size, c->tag));
        }
        ECH_TRY(wait_all(wire, c->what));
        at += n;
    } while (at < bytes);
    return ECH_OK;
}

/* Up a binomial tree: rank r collects from r + 1, r + 2, r + 4, ... as long as these steps divide
 * r, and has the parts of the ranks from r on then. The root sends all of them down again. */
static ech_status gather_tree(ech__wire *wire, const call *c, char *dst, int64_t bytes)
{
    const int size = wire->size, rank = wire->rank;
    int step = 1;
    for (; step < size && !(rank & step); step *= 2) {
        const int from = rank + step, left = size - from;
        if (left > 0)
            ECH_TRY(post_recv(wire, dst + from * bytes, (left < step ? left : step) * bytes, from,
                              c->tag));
    }
    ECH_TRY(wait_all(wire, c->what));
    const int left = size - rank;
    if (rank != 0)
        ECH_TRY(post_send(wire, dst + rank * bytes, (left < step ? left : step) * bytes,
                          rank - step, c->tag));
    ECH_TRY(wait_all(wire, c->what));
    return broadcast(wire, c, dst, size * bytes, 0);
}

/* Each rank's part of dst on every rank. */
static ech_status gather(ech__wire *wire, const call *c, char *dst, int64_t bytes)
{
    return wire->size > 2 && wire->size * bytes <= TREE_BYTES ? gather_tree(wire, c, dst, bytes)
                                                              : gather_flat(wire, c, dst, bytes);
}

ech_status ech__wire_allgather(ech__wire *wire, const void *src, void *dst, int64_t bytes)
{
    const call c = next_call(wire, "allgather");
    if (bytes > 0)
        memmove((char *)dst + wire->rank * bytes, src, (size_t)bytes);
    return gather(wire, &c, dst, bytes);
}

static ech_status reduce_terms(ech__wire *wire, const ech__coll *coll, int64_t count, void *dst)
{
    return ech__reduce(wire->ctx, coll->reduction, coll->dtype, count, wire->terms, wire->size,
                       &dst, 1, wire->size);
}

static ech_status allreduce_small(ech__wire *wire, const call *c, const ech__coll *coll,
                                  int64_t bytes)
{
    if (bytes > 0)
        memcpy(wire->scratch + wire->rank * bytes, coll->src, (size_t)bytes);
    ECH_TRY(gather(wire, c, wire->scratch, bytes));
    for (int r = 0; r < wire->size; r++)
        wire->terms[r] = wire->scratch + r * bytes;
    return reduce_terms(wire, coll, coll->count, coll->dst);
}

/* One piece of a large one: every rank gets its shard of all others' data, reduces it, and hands
 * the result out. */
static ech_status allreduce_piece(ech__wire *wire, const call *c, const ech__coll *coll,
                                  const char *src, char *dst, int64_t count)
{
    const int64_t unit = ech__dtype_bytes(coll->dtype), grain = GRAIN_BYTES / unit;
    const ech__range own = ech__shard(count, wire->rank, wire->size, grain);
    for (int r = 0; r < wire->size; r++) {
        const ech__range other = ech__shard(count, r, wire->size, grain);
        char *at = wire->scratch + r * own.count * unit;
        wire->terms[r] = r == wire->rank ? src + own.first * unit : at;
        if (r != wire->rank && own.count > 0)
            ECH_TRY(post_recv(wire, at, own.count * unit, r, c->tag));
        if (r != wire->rank && other.count > 0)
            ECH_TRY(post_send(wire, src + other.first * unit, other.count * unit, r, c->tag));
    }
    ECH_TRY(wait_all(wire, c->what));
    ECH_TRY(reduce_terms(wire, coll, own.count, dst + own.first * unit));
    for (int r = 0; r < wire->size; r++) {
        const ech__range other = ech__shard(count, r, wire->size, grain);
        if (r != wire->rank && other.count > 0)
            ECH_TRY(post_recv(wire, dst + other.first * unit, other.count * unit, r, c->tag));
        if (r != wire->rank && own.count > 0)
            ECH_TRY(post_send(wire, dst + own.first * unit, own.count * unit, r, c->tag));
    }
    return wait_all(wire, c->what);
}

static ech_status allreduce(ech__wire *wire, const call *c, const ech__coll *coll)
{
    const int64_t unit = ech__dtype_bytes(coll->dtype), most = PIECE_BYTES / unit;
    if (coll->count * unit <= SMALL_BYTES)
        return allreduce_small(wire, c, coll, coll->count * unit);
    for (int64_t at = 0; at < coll->count; at += most) {
        const int64_t n = coll->count - at < most ? coll->count - at : most;
        ECH_TRY(allreduce_piece(wire, c, coll, (const char *)coll->src + at * unit,
                                (char *)coll->dst + at * unit, n));
    }
    return ECH_OK;
}

/* src may be dst: what a piece overwrites, it has sent. */
static ech_status reduce_scatter(ech__wire *wire, const call *c, const ech__coll *coll)
{
    const int64_t unit = ech__dtype_bytes(coll->dtype), most = PIECE_BYTES / unit / wire->size;
    const char *src = coll->src;
    for (int64_t at = 0; at < coll->count; at += most) {
        const int64_t n = coll->count - at < most ? coll->count - at : most;
        for (int r = 0; r < wire->size; r++) {
            char *slot = wire->scratch + r * n * unit;
            wire->terms[r] = slot;
            if (r == wire->rank) {
                memcpy(slot, src + (r * coll->count + at) * unit, (size_t)(n * unit));
                continue;
            }
            ECH_TRY(post_recv(wire, slot, n * unit, r, c->tag));
            ECH_TRY(post_send(wire, src + (r * coll->count + at) * unit, n * unit, r, c->tag));
        }
        ECH_TRY(wait_all(wire, c->what));
        ECH_TRY(reduce_terms(wire, coll, n, (char *)coll->dst + at * unit));
    }
    return ECH_OK;
}

ech_status ech__wire_run(ech__wire *wire, const ech__coll *coll)
{
    const int64_t bytes = coll->count * ech__dtype_bytes(coll->dtype);
    char what[64];
    if (coll->op == ECH__COLL_SEND || coll->op == ECH__COLL_RECV) {
        snprintf(what, sizeof what, "%s of %lld bytes", ech__coll_name(coll->op), (long long)bytes);
        return coll->op == ECH__COLL_SEND
                   ? ech__wire_send(wire, coll->src, bytes, coll->peer, ECH__TAG_MESSAGE, what)
                   : ech__wire_recv(wire, coll->dst, bytes, coll->peer, ECH__TAG_MESSAGE, what);
    }
    if (coll->op == ECH__COLL_ALLGATHER)
        return ech__wire_allgather(wire, coll->src, coll->dst, bytes);
    const call c = next_call(wire, ech__coll_name(coll->op));
    switch (coll->op) {
    case ECH__COLL_ALLREDUCE:
        return allreduce(wire, &c, coll);
    case ECH__COLL_REDUCE_SCATTER:
        return reduce_scatter(wire, &c, coll);
    case ECH__COLL_BROADCAST:
        return broadcast(wire, &c, coll->dst, bytes, coll->peer);
    default:
        return gather(wire, &c, wire->scratch, 0); /* a barrier: empty messages */
    }
}
