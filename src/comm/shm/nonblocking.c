#include "comm/shm/internal.h"

#include "base/system/clock.h"

#include <sched.h>
#include <string.h>

/* All-reduces that were started. Each rank goes through them in their order: when all have started
 * number `next`, it reduces its shard over all ranks' memory, distributes it, and counts `reduced`
 * up. */

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
    ech__shm_desc_write(&ech__shm_entry(s, comm->rank, number)->desc, coll, number, where);
    atomic_store(&s->ranks[comm->rank].started, s->started);
    ech__shm_ring_bell(s);
    *ticket = number;
    return ECH_OK;
}

/* Checks the rank first that was late the last time. */
bool ech__shm_ready(ech__shm *s, uint64_t number)
{
    if (s->seen_started > number)
        return true;
    if (atomic_load_explicit(&s->ranks[s->slow].started, memory_order_acquire) <= number)
        return false;
    uint64_t least = UINT64_MAX;
    for (int r = 0; r < s->base.world; r++) {
        const uint64_t n = atomic_load_explicit(&s->ranks[r].started, memory_order_acquire);
        if (n <= number) {
            s->slow = r;
            return false;
        }
        least = n < least ? n : least;
    }
    s->seen_started = least;
    return true;
}

ech_status ech__shm_compare(ech__shm *s, uint64_t number)
{
    const ech__shm_desc *mine = &ech__shm_entry(s, s->base.rank, number)->desc;
    for (int r = 0; r < s->base.world; r++) {
        const ech__shm_desc *other = &ech__shm_entry(s, r, number)->desc;
        if (!ech__shm_desc_same(mine, other) ||
            atomic_load_explicit(&mine->where, memory_order_relaxed) !=
                atomic_load_explicit(&other->where, memory_order_relaxed))
            return ech__shm_mismatch(s, r, mine, other);
    }
    return ECH_OK;
}

void ech__shm_find_part(const ech__shm *s, uint64_t number, ech__range range, ech__shm_part *out)
{
    const int64_t each = ech__dtype_bytes(s->mine[number % ECH__MAX_STARTED].dtype);
    out->range = range;
    if (range.count == 0)
        return;
    const uint64_t where = atomic_load_explicit(
        &ech__shm_entry(s, s->base.rank, number)->desc.where, memory_order_relaxed);
    for (int r = 0; r < s->base.world; r++)
        out->at[r] = ech__shm_place(s, where, r) + range.first * each;
}

enum {
    SLICE = 16 * 1024
}; /* bytes of a sum that is used up at once: they stay in the first cache */

/* Passes this rank's shard of the sum to `apply`, slice by slice. */
static ech_status use_up(ech__shm *s, const ech__coll *coll, const ech__shm_part *part)
{
    const int64_t each = ech__dtype_bytes(coll->dtype), step = SLICE / each;
    _Alignas(ECH__LINE) char sum[SLICE];
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

void ech__shm_finish(ech__shm *s)
{
    ech__shm_started *e = ech__shm_entry(s, s->base.rank, s->next);
    atomic_store_explicit(&e->done_ns, ech__clock_wall(), memory_order_relaxed);
    atomic_store_explicit(&e->done_sequence, s->next + 1, memory_order_release);
    s->next++;
    atomic_store(&s->ranks[s->base.rank].reduced, s->next);
    ech__shm_ring_bell(s);
}

/* Number `next`, which is ready, on a node that is the only one. */
static ech_status reduce_shard(ech__shm *s)
{
    const ech__coll *coll = &s->mine[s->next % ECH__MAX_STARTED];
    ech__coll_times *times = &s->times[s->next % ECH__MAX_STARTED];
    const int64_t grain = ECH__LINE / ech__dtype_bytes(coll->dtype);
    ech__shm_part part;
    times->start_ns = ech__clock_wall();
    ECH_TRY(ech__shm_compare(s, s->next));
    ech__shm_find_part(s, s->next, ech__shard(coll->count, s->base.rank, s->base.world, grain),
                       &part);
    if (part.range.count && coll->apply)
        ECH_TRY(use_up(s, coll, &part));
    else if (part.range.count)
        ECH_TRY(ech__reduce(s->base.ctx, coll->reduction, coll->dtype, part.range.count,
                            (const void *const *)part.at, s->base.world, part.at, s->base.world,
                            s->base.world));
    times->work_ns += ech__clock_wall() - times->start_ns;
    ech__shm_finish(s);
    return ECH_OK;
}

ech_status ech__shm_progress(ech__comm *comm)
{
    ech__shm *s = (ech__shm *)comm;
    bool more = true;
    while (more && s->next < s->started) {
        ech_status status = ECH_OK;
        if (s->has_inter)
            status = ech__shm_nodes_step(s, &more);
        else if ((more = ech__shm_ready(s, s->next)))
            status = reduce_shard(s);
        if (status < 0)
            return s->failed ? status : ech__shm_abort(s, status);
    }
    return ECH_OK;
}

ech_status ech__shm_step(ech__comm *comm, bool *moved, bool *busy)
{
    ech__shm *s = (ech__shm *)comm;
    ech_status status = ECH_OK;
    *moved = false;
    if (s->has_inter && s->next < s->started)
        status = ech__shm_nodes_step(s, moved);
    *busy = s->has_inter && s->next < s->started;
    return status < 0 && !s->failed ? ech__shm_abort(s, status) : status;
}

/* Waits until this rank's shard of `number` is distributed. */
static ech_status finish_own(ech__shm *s, uint64_t number)
{
    for (int polls = 0; s->next <= number; polls++) {
        const uint64_t before = s->next;
        ECH_TRY(ech__shm_progress(&s->base));
        if (s->next != before)
            continue;
        const ech__shm_desc *doing = &ech__shm_entry(s, s->base.rank, s->next)->desc;
        if (s->flights == 0) {
            ECH_TRY(ech__shm_await(s, &s->ranks[s->slow].started, s->next + 1, s->slow, doing));
            continue;
        }
        /* The other nodes ring no bell: their messages arrive when they are looked for. The rank
         * that looks for them knows how long that may take, and whom to name. */
        if (polls % 64 == 63) {
            ECH_TRY(ech__shm_check(s, INT64_MAX, -1, doing));
            sched_yield();
        }
    }
    return ECH_OK;
}

/* When the last rank was done with it; a rank that is 1024 further is not asked any more. */
static int64_t latest(ech__shm *s, uint64_t number)
{
    int64_t last = 0;
    for (int r = 0; r < s->base.world; r++) {
        ech__shm_started *e = ech__shm_entry(s, r, number);
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
                               &ech__shm_entry(s, comm->rank, ticket)->desc));
    if (times) {
        *times = s->times[ticket % ECH__MAX_STARTED];
        times->done_ns = latest(s, ticket);
    }
    return ECH_OK;
}
