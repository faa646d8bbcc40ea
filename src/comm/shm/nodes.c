#include "comm/shm/internal.h"

#include "base/system/clock.h"

/* Started all-reduces where there are other nodes. This rank's shard (flat: all of its data) goes
 * in chunks: a chunk is added up over the ranks of the node, exchanged with the other nodes, and
 * written to the ranks of the node. Several chunks are in progress at once, also of several
 * all-reduces, so that messages travel while others are added up. */

/* What this rank exchanges of an all-reduce. */
static ech__range share_of(const ech__shm *s, uint64_t number)
{
    const ech__coll *coll = &s->mine[number % ECH__MAX_STARTED];
    if (s->inter.flat)
        return (ech__range){0, coll->count};
    return ech__shard(coll->count, s->base.rank, s->inter.owners,
                      ECH__LINE / ech__dtype_bytes(coll->dtype));
}

/* The chunk that begins `at` elements after the first of the share. */
static ech__range chunk_at(const ech__shm *s, uint64_t number, int64_t at)
{
    const ech__range share = share_of(s, number);
    const int64_t most =
        s->inter.chunk_bytes / ech__dtype_bytes(s->mine[number % ECH__MAX_STARTED].dtype);
    const int64_t left = share.count - at;
    return (ech__range){share.first + at, left < most ? left : most};
}

/* A mean is a sum inside the node; what all nodes have added up is divided when it is distributed. */
static ech_status begin_chunk(ech__shm *s, const ech__coll *coll, ech__range range)
{
    ech__shm_part part;
    const ech__reduction reduction =
        coll->reduction == ECH__REDUCTION_MEAN ? ECH__REDUCTION_SUM : coll->reduction;
    ech__shm_find_part(s, s->begun, range, &part);
    void *own = part.at[s->base.rank];
    if (!s->inter.flat)
        ECH_TRY(ech__reduce(s->base.ctx, reduction, coll->dtype, range.count,
                            (const void *const *)part.at, s->base.world, &own, 1, 1));
    ECH_TRY(s->inter.begin(s->inter.user, own, range.count, coll->dtype, reduction, s->begun));
    s->flights++;
    return ECH_OK;
}

/* The part of a flat chunk whose parameters this rank updates. */
static ech__range own_of(const ech__shm *s, const ech__coll *coll, ech__range chunk)
{
    const ech__range own = ech__shard(coll->count, s->base.rank, s->base.world,
                                      ECH__LINE / ech__dtype_bytes(coll->dtype));
    const int64_t first = own.first > chunk.first ? own.first : chunk.first;
    const int64_t own_end = own.first + own.count, chunk_end = chunk.first + chunk.count;
    const int64_t end = own_end < chunk_end ? own_end : chunk_end;
    return (ech__range){first, end > first ? end - first : 0};
}

static ech_status distribute(ech__shm *s, const ech__coll *coll, ech__range range)
{
    ech__shm_part part;
    const bool mean = coll->reduction == ECH__REDUCTION_MEAN;
    if (coll->apply && s->inter.flat)
        range = own_of(s, coll, range);
    ech__shm_find_part(s, s->next, range, &part);
    const void *own = part.at[s->base.rank];
    if (range.count == 0)
        return ECH_OK;
    if (coll->apply)
        return coll->apply(coll->user, range.first, range.count, own);
    if (s->inter.flat && !mean)
        return ECH_OK;
    return ech__reduce(s->base.ctx, coll->reduction, coll->dtype, range.count, &own, 1,
                       s->inter.flat ? &part.at[s->base.rank] : part.at,
                       s->inter.flat ? 1 : s->base.world, mean ? s->inter.world : 1);
}

/* Opens number `begun` when it is ready, and begins its next chunk. */
static ech_status begin_next(ech__shm *s, bool *moved)
{
    if (s->begun == s->started || s->flights == s->inter.flights ||
        (!s->begun_open && !ech__shm_ready(s, s->begun)))
        return ECH_OK;
    ech__coll_times *times = &s->times[s->begun % ECH__MAX_STARTED];
    const int64_t began = ech__clock_wall();
    if (!s->begun_open) {
        ECH_TRY(ech__shm_compare(s, s->begun));
        times->start_ns = began;
        s->begun_open = true;
        s->begun_count = 0;
    }
    const ech__range chunk = chunk_at(s, s->begun, s->begun_count);
    if (chunk.count > 0)
        ECH_TRY(begin_chunk(s, &s->mine[s->begun % ECH__MAX_STARTED], chunk));
    times->work_ns += ech__clock_wall() - began;
    s->begun_count += chunk.count;
    if (s->begun_count == share_of(s, s->begun).count) {
        s->begun_open = false;
        s->begun++;
    }
    *moved = true;
    return ECH_OK;
}

/* Distributes the oldest chunk if it has come back. */
static ech_status end_oldest(ech__shm *s, bool *moved)
{
    ech__coll_times *times = &s->times[s->next % ECH__MAX_STARTED];
    const int64_t began = ech__clock_wall();
    if (s->flights > 0) {
        bool done = false;
        ECH_TRY(s->inter.test(s->inter.user, &done));
        if (done) {
            const ech__range chunk = chunk_at(s, s->next, s->done_count);
            ECH_TRY(distribute(s, &s->mine[s->next % ECH__MAX_STARTED], chunk));
            s->flights--;
            s->done_count += chunk.count;
            *moved = true;
        }
        times->work_ns += ech__clock_wall() - began;
    }
    if (s->next < s->begun && s->done_count == share_of(s, s->next).count) {
        s->done_count = 0;
        ech__shm_finish(s);
        *moved = true;
    }
    return ECH_OK;
}

ech_status ech__shm_nodes_step(ech__shm *s, bool *moved)
{
    *moved = false;
    ECH_TRY(begin_next(s, moved));
    return end_oldest(s, moved);
}
