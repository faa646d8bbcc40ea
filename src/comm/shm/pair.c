#include "comm/shm/internal.h"

#include "base/size.h"

#include <string.h>

/* Send and recv. Each ordered pair of ranks has a ring of bytes through which one writes to the
 * other: a header for each message, then its data. A send returns when all of it is in the ring, so
 * two ranks may both send before they receive as long as what is in progress fits; larger messages go
 * through in pieces while the other side receives them. */

enum { RINGS_TOTAL = 4 * 1024 * 1024, RING_MOST = 64 * 1024, RING_LEAST = 256 };

typedef struct message {
    uint64_t what, count, number;
} message;

int64_t ech__shm_rings_bytes(int world, int64_t *ring_bytes)
{
    const int64_t pairs = (int64_t)world * world;
    int64_t bytes = RINGS_TOTAL / pairs / ECH__LINE * ECH__LINE;
    bytes = bytes > RING_MOST ? RING_MOST : bytes < RING_LEAST ? RING_LEAST : bytes;
    *ring_bytes = bytes;
    return pairs * ((int64_t)sizeof(ech__shm_ring) + bytes);
}

static ech__shm_ring *ring_of(ech__shm *s, int from, int to)
{
    const int64_t each = (int64_t)sizeof(ech__shm_ring) + s->head->ring_bytes;
    return (ech__shm_ring *)(s->rings + ((int64_t)from * s->base.world + to) * each);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static ech_status put(ech__shm *s, ech__shm_ring *ring, const char *data, int64_t bytes, int to)
{
    const int64_t size = s->head->ring_bytes;
    uint64_t at = atomic_load_explicit(&ring->written, memory_order_relaxed);
    while (bytes > 0) {
        /* Room for one byte at least. */
        ECH_TRY(ech__shm_await(s, &ring->read,
                               at + 1 > (uint64_t)size ? at + 1 - (uint64_t)size : 0, to, &s->now));
        const uint64_t read = atomic_load_explicit(&ring->read, memory_order_acquire);
        const int64_t place = (int64_t)(at % (uint64_t)size);
        const int64_t n = least(least(bytes, size - (int64_t)(at - read)), size - place);
        memcpy((char *)(ring + 1) + place, data, (size_t)n);
        at += (uint64_t)n;
        data += n;
        bytes -= n;
        atomic_store(&ring->written, at);
        ech__shm_ring_bell(s);
    }
    return ECH_OK;
}

static ech_status take(ech__shm *s, ech__shm_ring *ring, char *data, int64_t bytes, int from)
{
    const int64_t size = s->head->ring_bytes;
    uint64_t at = atomic_load_explicit(&ring->read, memory_order_relaxed);
    while (bytes > 0) {
        ECH_TRY(ech__shm_await(s, &ring->written, at + 1, from, &s->now));
        const uint64_t written = atomic_load_explicit(&ring->written, memory_order_acquire);
        const int64_t place = (int64_t)(at % (uint64_t)size);
        const int64_t n = least(least(bytes, (int64_t)(written - at)), size - place);
        memcpy(data, (const char *)(ring + 1) + place, (size_t)n);
        at += (uint64_t)n;
        data += n;
        bytes -= n;
        atomic_store(&ring->read, at);
        ech__shm_ring_bell(s);
    }
    return ECH_OK;
}

/* Messages of a pair have numbers of their own; each side counts. */
ech_status ech__shm_send(ech__shm *s, const ech__coll *coll)
{
    ech__shm_ring *ring = ring_of(s, s->base.rank, coll->peer);
    const message head = {(uint64_t)coll->dtype, (uint64_t)coll->count, s->sent[coll->peer]};
    ech__shm_desc_write(&s->now, coll, s->sent[coll->peer]++, 0);
    ECH_TRY(put(s, ring, (const char *)&head, sizeof head, coll->peer));
    return put(s, ring, coll->src, ech__coll_bytes(coll, coll->count), coll->peer);
}

ech_status ech__shm_recv(ech__shm *s, const ech__coll *coll)
{
    ech__shm_ring *ring = ring_of(s, coll->peer, s->base.rank);
    message head;
    ech__shm_desc_write(&s->now, coll, s->received[coll->peer]++, 0);
    ECH_TRY(take(s, ring, (char *)&head, sizeof head, coll->peer));
    if (head.what != (uint64_t)coll->dtype || head.count != (uint64_t)coll->count)
        return ech__shm_abort(
            s, ech__fail(s->base.ctx, ECH_E_INVALID,
                         "rank %d sent %lld %s where rank %d receives %lld %s, as their #%llu",
                         coll->peer, (long long)head.count, ech__dtype_name((ech_dtype)head.what),
                         s->base.rank, (long long)coll->count, ech__dtype_name(coll->dtype),
                         (unsigned long long)head.number));
    return take(s, ring, coll->dst, ech__coll_bytes(coll, coll->count), coll->peer);
}
