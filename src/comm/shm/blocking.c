#include "comm/shm/internal.h"

#include "price/tree.h"

#include <string.h>

/* Blocking collectives. Data pass through slots in pieces, one or two turns for each; an all-reduce
 * of memory that all ranks share needs no slots. */

enum {
    SMALL = 16 * 1024, /* bytes: up to here every rank reduces everything itself, in one turn */
};

void ech__shm_begin(ech__shm *s, const ech__coll *coll, uint64_t where)
{
    ech__shm_desc_write(&s->now, coll, s->sequence++, where);
}

static void copy_desc(ech__shm_desc *to, const ech__shm_desc *from)
{
#define COPY(field)                                                                                \
    atomic_store_explicit(&to->field, atomic_load_explicit(&from->field, memory_order_relaxed),    \
                          memory_order_relaxed)
    COPY(what);
    COPY(count);
    COPY(sequence);
    COPY(where);
#undef COPY
}

ech_status ech__shm_turn_over(ech__shm *s)
{
    const int side = (int)(s->turn & 1);
    ech__shm_turn *mine = &s->ranks[s->base.rank].turn[side];
    ECH_TRY(ech__shm_alive(s));
    copy_desc(&mine->desc, &s->now);
    atomic_store(&mine->arrived, s->turn + 1);
    ech__shm_ring_bell(s);
    for (int r = 0; r < s->base.world; r++) {
        if (r == s->base.rank)
            continue;
        ech__shm_turn *other = &s->ranks[r].turn[side];
        ECH_TRY(ech__shm_await(s, &other->arrived, s->turn + 1, r, &s->now));
        if (!ech__shm_desc_same(&s->now, &other->desc))
            return ech__shm_mismatch(s, r, &s->now, &other->desc);
    }
    s->turn++;
    return ECH_OK;
}

/* This rank's slot of the turn that comes. */
static char *own_slot(ech__shm *s)
{
    return ech__shm_slot(s, s->base.rank, s->turn);
}

/* The slots of the turn that was, but for this rank's own part, which is still where it came from. */
static void last_slots(ech__shm *s, int64_t offset, const void *own, const void **out)
{
    for (int r = 0; r < s->base.world; r++)
        out[r] = r == s->base.rank && own ? own : ech__shm_slot(s, r, s->turn - 1) + offset;
}

/* ---- all-reduce ---- */

static ech_status reduce(ech__shm *s, const ech__coll *coll, int64_t count, const void *const *src,
                         void *const *dst, int ndst)
{
    return ech__reduce(s->base.ctx, coll->reduction, coll->dtype, count, src, s->base.world, dst,
                       ndst, s->base.world);
}

/* Asks for the lines of a slot ahead of writing to it: others have read them last, and getting them
 * back one by one takes longer than the copy itself. */
static void claim(const char *slot, int64_t bytes)
{
#ifdef ECH_X86
    for (int64_t i = 0; i < bytes; i += ECH__LINE)
        __asm__ volatile("prefetchw %0" : : "m"(slot[i]));
#else
    (void)slot;
    (void)bytes;
#endif
}

/* One turn: every rank reduces all. */
static ech_status reduce_piece(ech__shm *s, const ech__coll *coll, const char *src, char *dst,
                               int64_t count)
{
    const void *parts[ECH__MAX_RANKS_PER_NODE];
    const int64_t bytes = ech__coll_bytes(coll, count);
    claim(own_slot(s), bytes);
    ech__shm_copy(own_slot(s), src, bytes);
    ECH_TRY(ech__shm_turn_over(s));
    last_slots(s, 0, src, parts);
    return reduce(s, coll, count, parts, (void *[]){dst}, 1);
}

/* Two turns: each rank reduces its shard, and all collect the shards. */
static ech_status reduce_shards(ech__shm *s, const ech__coll *coll, const char *src, char *dst,
                                int64_t count)
{
    const int64_t each = ech__dtype_bytes(coll->dtype);
    const void *parts[ECH__MAX_RANKS_PER_NODE];
    ech__shm_copy(own_slot(s), src, count * each);
    ECH_TRY(ech__shm_turn_over(s));
    const ech__range mine = ech__shard(count, s->base.rank, s->base.world, ECH__LINE / each);
    last_slots(s, mine.first * each, src + mine.first * each, parts);
    void *result = own_slot(s) + mine.first * each;
    if (mine.count)
        ECH_TRY(reduce(s, coll, mine.count, parts, &result, 1));
    ECH_TRY(ech__shm_turn_over(s));
    for (int r = 0; r < s->base.world; r++) {
        const ech__range part = ech__shard(count, r, s->base.world, ECH__LINE / each);
        ech__shm_copy(dst + part.first * each, ech__shm_slot(s, r, s->turn - 1) + part.first * each,
                      part.count * each);
    }
    return ECH_OK;
}

/* Each rank reduces its shard over the memory of all and writes it to all. */
static ech_status reduce_in_place(ech__shm *s, const ech__coll *coll, uint64_t where)
{
    const int64_t each = ech__dtype_bytes(coll->dtype);
    const ech__range mine = ech__shard(coll->count, s->base.rank, s->base.world, ECH__LINE / each);
    void *at[ECH__MAX_RANKS_PER_NODE];
    for (int r = 0; r < s->base.world; r++)
        at[r] = ech__shm_place(s, where, r) + mine.first * each;
    if (mine.count)
        ECH_TRY(reduce(s, coll, mine.count, (const void *const *)at, at, s->base.world));
    return ech__shm_turn_over(s);
}

/* Whether all ranks have their data at the same place of shared memory. All come to the same
 * answer. */
static bool same_place(ech__shm *s)
{
    const ech__shm_desc *first = &s->ranks[0].turn[(s->turn - 1) & 1].desc;
    const uint64_t where = atomic_load_explicit(&first->where, memory_order_relaxed);
    for (int r = 1; r < s->base.world; r++) {
        const ech__shm_desc *other = &s->ranks[r].turn[(s->turn - 1) & 1].desc;
        if (atomic_load_explicit(&other->where, memory_order_relaxed) != where)
            return false;
    }
    return where != 0;
}

static ech_status allreduce(ech__shm *s, const ech__coll *coll)
{
    const int64_t each = ech__dtype_bytes(coll->dtype), bytes = coll->count * each;
    if (bytes <= SMALL) {
        ech__shm_begin(s, coll, 0);
        return reduce_piece(s, coll, coll->src, coll->dst, coll->count);
    }
    const uint64_t where = coll->src == coll->dst ? ech__shm_find(s, coll->dst, bytes) : 0;
    ech__shm_begin(s, coll, where);
    ECH_TRY(ech__shm_turn_over(s));
    if (same_place(s))
        return reduce_in_place(s, coll, where);
    const int64_t piece = ECH__SLOT / each;
    for (int64_t i = 0; i < coll->count; i += piece) {
        const int64_t n = coll->count - i < piece ? coll->count - i : piece;
        const char *src = (const char *)coll->src + i * each;
        char *dst = (char *)coll->dst + i * each;
        if (s->base.world <= 2)
            ECH_TRY(reduce_piece(s, coll, src, dst, n));
        else
            ECH_TRY(reduce_shards(s, coll, src, dst, n));
    }
    return ECH_OK;
}

/* ---- the others ---- */

/* A slot holds a piece for each rank. */
static ech_status reduce_scatter(ech__shm *s, const ech__coll *coll)
{
    const int64_t each = ech__dtype_bytes(coll->dtype), world = s->base.world;
    const int64_t piece = ECH__SLOT / world / each;
    const void *parts[ECH__MAX_RANKS_PER_NODE];
    int64_t i = 0;
    ech__shm_begin(s, coll, 0);
    do {
        const int64_t n = coll->count - i < piece ? coll->count - i : piece;
        char *slot = own_slot(s);
        for (int64_t r = 0; r < world; r++)
            ech__shm_copy(slot + r * n * each,
                          (const char *)coll->src + (r * coll->count + i) * each, n * each);
        ECH_TRY(ech__shm_turn_over(s));
        last_slots(s, s->base.rank * n * each, NULL, parts);
        void *dst = (char *)coll->dst + i * each;
        ECH_TRY(reduce(s, coll, n, parts, &dst, 1));
        i += n;
    } while (i < coll->count);
    return ECH_OK;
}

static ech_status allgather(ech__shm *s, const ech__coll *coll)
{
    const int64_t bytes = ech__coll_bytes(coll, coll->count);
    int64_t i = 0;
    ech__shm_begin(s, coll, 0);
    do {
        const int64_t n = bytes - i < ECH__SLOT ? bytes - i : ECH__SLOT;
        ech__shm_copy(own_slot(s), (const char *)coll->src + i, n);
        ECH_TRY(ech__shm_turn_over(s));
        for (int r = 0; r < s->base.world; r++)
            ech__shm_copy((char *)coll->dst + r * bytes + i, ech__shm_slot(s, r, s->turn - 1), n);
        i += n;
    } while (i < bytes);
    return ECH_OK;
}

static ech_status broadcast(ech__shm *s, const ech__coll *coll)
{
    const int64_t bytes = ech__coll_bytes(coll, coll->count);
    const bool root = coll->peer == s->base.rank;
    int64_t i = 0;
    ech__shm_begin(s, coll, 0);
    do {
        const int64_t n = bytes - i < ECH__SLOT ? bytes - i : ECH__SLOT;
        if (root)
            ech__shm_copy(own_slot(s), (char *)coll->dst + i, n);
        ECH_TRY(ech__shm_turn_over(s));
        if (!root)
            ech__shm_copy((char *)coll->dst + i, ech__shm_slot(s, coll->peer, s->turn - 1), n);
        i += n;
    } while (i < bytes);
    return ECH_OK;
}

static ech_status barrier(ech__shm *s, const ech__coll *coll)
{
    ech__shm_begin(s, coll, 0);
    return ech__shm_turn_over(s);
}

ech_status ech__shm_run(ech__comm *comm, const ech__coll *coll)
{
    ech__shm *s = (ech__shm *)comm;
    static ech_status (*const run[ECH__COLL_COUNT])(ech__shm *, const ech__coll *) = {
        [ECH__COLL_ALLREDUCE] = allreduce, [ECH__COLL_REDUCE_SCATTER] = reduce_scatter,
        [ECH__COLL_ALLGATHER] = allgather, [ECH__COLL_BROADCAST] = broadcast,
        [ECH__COLL_BARRIER] = barrier,     [ECH__COLL_SEND] = ech__shm_send,
        [ECH__COLL_RECV] = ech__shm_recv,
    };
    return run[coll->op](s, coll);
}
