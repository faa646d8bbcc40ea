#include "comm/shm/internal.h"

#include "base/system/clock.h"
#include "price/tree.h"

#include <sched.h>
#include <string.h>

/* All-reduces that were started. Each rank goes through them in their order: when all have started number `next`, it reduces
 * its shard over all ranks' memory, distributes it, and counts `reduced` up. */

static ech__shm_started *entry(ech__shm *s, int rank, uint64_t number)
{
    return &s->ranks[rank].ring[number % ECH__MAX_STARTED];
}

/* The least `reduced` of all ranks. */
static uint64_t all_reduced(ech__shm *s)
{
    uint64_t least = UINT64_MAX;
    for (int r = 0; r < s->base.world; r++) {
        const uint64_t n = atomic_load_explicit(&s->ranks[r].reduced, memory_order_acquire);
        least = n < least ? n : least;
    }
    return least;
}

ech_status ech__shm_start(ech__comm *comm, const ech__coll *coll, uint64_t *ticket)
{
    ech__shm *s = (ech__shm *)comm;
    const int64_t bytes = ech__coll_bytes(coll, coll->count);
    const uint64_t where = coll->count ? ech__shm_find(s, coll->dst, bytes) : 1;
    if (!where)
        return ech__fail(comm->ctx, ECH_E_INVALID,
                         "allreduce of %lld %s cannot be started: its memory is not shared between "
                         "the ranks",
                         (long long)coll->count, ech__dtype_name(coll->dtype));
    if (s->started - all_reduced(s) >= ECH__MAX_STARTED)
        return ech__fail(comm->ctx, ECH_E_LIMIT, "%d allreduces are already in progress",
                         (int)ECH__MAX_STARTED);
    const uint64_t number = s->started++;
    s->mine[number % ECH__MAX_STARTED] = *coll;
    s->times[number % ECH__MAX_STARTED] = (ech__coll_times){.ready_ns = ech__clock_wall()};
    ech__shm_desc_write(&entry(s, comm->rank, number)->desc, coll, number, where);
    atomic_store(&s->ranks[comm->rank].started, s->started);
    ech__shm_ring_bell(s);
    *ticket = number;
    return ECH_OK;
}

/* Whether every rank has started number `next`. Checks the rank first that was late the last
 * time. */
static bool ready_everywhere(ech__shm *s)
{
    if (s->seen_started > s->next)
        return true;
    if (atomic_load_explicit(&s->ranks[s->slow].started, memory_order_acquire) <= s->next)
        return false;
    uint64_t least = UINT64_MAX;
    for (int r = 0; r < s->base.world; r++) {
        const uint64_t n = atomic_load_explicit(&s->ranks[r].started, memory_order_acquire);
        if (n <= s->next) {
            s->slow = r;
            return false;
        }
        least = n < least ? n : least;
    }
    s->seen_started = least;
    return true;
}

static ech_status compare(ech__shm *s)
{
    const ech__shm_desc *mine = &entry(s, s->base.rank, s->next)->desc;
    for (int r = 0; r < s->base.world; r++) {
        const ech__shm_desc *other = &entry(s, r, s->next)->desc;
        if (!ech__shm_desc_same(mine, other) ||
            atomic_load_explicit(&mine->where, memory_order_relaxed) !=
                atomic_load_explicit(&other->where, memory_order_relaxed))
            return ech__shm_mismatch(s, r, mine, other);
    }
    return ECH_OK;
}

/* This rank's shard of an all-reduce, and where it is in every rank's memory. */
typedef struct shard {
    ech__range range;
    void *at[ECH__MAX_RANKS_PER_NODE];
} shard;

static void find_shard(ech__shm *s, const ech__coll *coll, shard *out)
{
    const int64_t each = ech__dtype_bytes(coll->dtype);
    const int owners = s->has_inter ? s->inter.owners : s->base.world;
    out->range = ech__shard(coll->count, s->base.rank, owners, ECH__LINE / each);
    if (out->range.count == 0)
        return;
    const uint64_t where =
        atomic_load_explicit(&entry(s, s->base.rank, s->next)->desc.where, memory_order_relaxed);
    for (int r = 0; r < s->base.world; r++)
        out->at[r] = ech__shm_place(s, where, r) + out->range.first * each;
}

/* A mean is a sum inside the node; what all nodes have added up is divided when it is
 * distributed. */
static ech_status begin_inter(ech__shm *s, const ech__coll *coll, shard *part)
{
    if (s->base.rank >= s->inter.owners)
        return ECH_OK;
    const ech__reduction reduction =
        coll->reduction == ECH__REDUCTION_MEAN ? ECH__REDUCTION_SUM : coll->reduction;
    void *own = part->range.count ? part->at[s->base.rank] : NULL;
    if (part->range.count)
        ECH_TRY(ech__reduce(s->base.ctx, reduction, coll->dtype, part->range.count,
                            (const void *const *)part->at, s->base.world, &own, 1, 1));
    ECH_TRY(s->inter.begin(s->inter.user, own, part->range.count, coll->dtype, reduction, s->next));
    s->inter_busy = true;
    return ECH_OK;
}

enum {
    STRETCH = 16 * 1024
}; /* bytes of a sum that is used up at once: they stay in the first cache */

/* Passes this rank's shard of the sum to `apply`, chunk by chunk. */
static ech_status use_up(ech__shm *s, const ech__coll *coll, const shard *part)
{
    const int64_t each = ech__dtype_bytes(coll->dtype), step = STRETCH / each;
    _Alignas(ECH__LINE) char sum[STRETCH];
    for (int64_t at = 0; at < part->range.count; at += step) {
        const int64_t count = part->range.count - at < step ? part->range.count - at : step;
        const void *src[ECH__MAX_RANKS_PER_NODE];
        void *dst = sum;
        for (int r = 0; r < s->base.world; r++)
            src[r] = (const char *)part->at[r] + at * each;
        ECH_TRY(ech__reduce(s->base.ctx, coll->reduction, coll->dtype, count, src, s->base.world,
                            &dst, 1, s->base.world));
        ECH_TRY(coll->apply(coll->user, part->range.first + at, count, sum));
    }
    return ECH_OK;
}

static ech_status distribute(ech__shm *s, const ech__coll *coll, shard *part)
{
    if (part->range.count == 0)
        return ECH_OK;
    if (coll->apply)
        return coll->apply(coll->user, part->range.first, part->range.count,
                           part->at[s->base.rank]);
    const void *own = part->at[s->base.rank];
    const bool mean = coll->reduction == ECH__REDUCTION_MEAN;
    return ech__reduce(s->base.ctx, coll->reduction, coll->dtype, part->range.count, &own, 1,
                       part->at, s->base.world, mean ? s->inter.world : 1);
}

static void finish(ech__shm *s, ech__coll_times *times, int64_t began)
{
    ech__shm_started *e = entry(s, s->base.rank, s->next);
    const int64_t now = ech__clock_wall();
    times->work_ns += now - began;
    atomic_store_explicit(&e->done_ns, now, memory_order_relaxed);
    atomic_store_explicit(&e->done_sequence, s->next + 1, memory_order_release);
    s->next++;
    atomic_store(&s->ranks[s->base.rank].reduced, s->next);
    ech__shm_ring_bell(s);
}

/* Goes on with number `next`; more tells whether it is through with it. */
static ech_status advance(ech__shm *s, bool *more)
{
    const ech__coll *coll = &s->mine[s->next % ECH__MAX_STARTED];
    ech__coll_times *times = &s->times[s->next % ECH__MAX_STARTED];
    shard part;
    *more = false;
    const int64_t began = ech__clock_wall();
    if (!s->inter_busy) {
        ECH_TRY(compare(s));
        times->start_ns = began;
        find_shard(s, coll, &part);
        if (s->has_inter)
            ECH_TRY(begin_inter(s, coll, &part));
        else if (part.range.count && coll->apply)
            ECH_TRY(use_up(s, coll, &part));
        else if (part.range.count)
            ECH_TRY(ech__reduce(s->base.ctx, coll->reduction, coll->dtype, part.range.count,
                                (const void *const *)part.at, s->base.world, part.at, s->base.world,
                                s->base.world));
    }
    if (s->inter_busy) {
        bool done = false;
        ECH_TRY(s->inter.test(s->inter.user, &done));
        if (!done) {
            times->work_ns += ech__clock_wall() - began;
            return ECH_OK;
        }
        s->inter_busy = false;
        find_shard(s, coll, &part);
        ECH_TRY(distribute(s, coll, &part));
    }
    finish(s, times, began);
    *more = true;
    return ECH_OK;
}

ech_status ech__shm_progress(ech__comm *comm)
{
    ech__shm *s = (ech__shm *)comm;
    bool more = true;
    while (more && s->next < s->started) {
        if (!s->inter_busy && !ready_everywhere(s))
            return ECH_OK;
        const ech_status status = advance(s, &more);
        if (status < 0)
            return s->failed ? status : ech__shm_abort(s, status);
    }
    return ECH_OK;
}

/* Waits until this rank's shard of `number` is distributed. */
static ech_status finish_own(ech__shm *s, uint64_t number)
{
    for (int polls = 0; s->next <= number; polls++) {
        const uint64_t before = s->next;
        ECH_TRY(ech__shm_progress(&s->base));
        if (s->next != before)
            continue;
        const ech__shm_desc *doing = &entry(s, s->base.rank, s->next)->desc;
        if (!s->inter_busy) {
            ECH_TRY(ech__shm_await(s, &s->ranks[s->slow].started, s->next + 1, s->slow, doing));
            continue;
        }
        /* The other nodes ring no bell: their messages arrive when they are looked for. Who looks for them knows how long
         * that may take, and whom to name. */
        if (polls % 64 == 63) {
            ECH_TRY(ech__shm_check(s, INT64_MAX, -1, doing));
            sched_yield();
        }
    }
    return ECH_OK;
}

/* When the last rank was through; a rank that has gone 1024 further is not asked any more. */
static int64_t latest(ech__shm *s, uint64_t number)
{
    int64_t last = 0;
    for (int r = 0; r < s->base.world; r++) {
        ech__shm_started *e = entry(s, r, number);
        if (atomic_load_explicit(&e->done_sequence, memory_order_acquire) != number + 1)
            continue;
        const int64_t at = atomic_load_explicit(&e->done_ns, memory_order_relaxed);
        last = at > last ? at : last;
    }
    return last;
}

ech_status ech__shm_wait(ech__comm *comm, uint64_t ticket, ech__coll_times *times)
{
    ech__shm *s = (ech__shm *)comm;
    if (ticket >= s->started)
        return ech__fail(comm->ctx, ECH_E_INVALID, "ticket %llu: only %llu were started",
                         (unsigned long long)ticket, (unsigned long long)s->started);
    ECH_TRY(finish_own(s, ticket));
    for (int r = 0; r < comm->world; r++)
        ECH_TRY(ech__shm_await(s, &s->ranks[r].reduced, ticket + 1, r,
                               &entry(s, comm->rank, ticket)->desc));
    if (times) {
        *times = s->times[ticket % ECH__MAX_STARTED];
        times->done_ns = latest(s, ticket);
    }
    return ECH_OK;
}
