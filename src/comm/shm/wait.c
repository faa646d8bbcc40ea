#include "comm/shm/internal.h"

#include "base/system/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SPIN_NS = 30 * 1000,  /* before sleeping, where every rank has a processor */
    CROWDED_SPINS = 16,   /* looks before sleeping, where not */
    POLL_NS = 200 * 1000, /* of sleep between looks at messages, where there are other nodes */
};

/* ---- descriptions ---- */

void ech__shm_desc_write(ech__shm_desc *desc, const ech__coll *coll, uint64_t sequence,
                         uint64_t where)
{
    const bool reduces = coll->op == ECH__COLL_ALLREDUCE || coll->op == ECH__COLL_REDUCE_SCATTER;
    const uint64_t what = (uint64_t)coll->op | (reduces ? (uint64_t)coll->reduction << 8 : 0) |
                          (uint64_t)coll->dtype << 16 |
                          (coll->op == ECH__COLL_BROADCAST ? (uint64_t)coll->peer << 32 : 0);
    atomic_store_explicit(&desc->what, what, memory_order_relaxed);
    atomic_store_explicit(&desc->count, (uint64_t)coll->count, memory_order_relaxed);
    atomic_store_explicit(&desc->sequence, sequence, memory_order_relaxed);
    atomic_store_explicit(&desc->where, where, memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

bool ech__shm_desc_same(const ech__shm_desc *a, const ech__shm_desc *b)
{
    return get(&a->what) == get(&b->what) && get(&a->count) == get(&b->count) &&
           get(&a->sequence) == get(&b->sequence);
}

ech__desc_text ech__shm_describe(const ech__shm_desc *desc, bool numbered)
{
    const uint64_t what = get(&desc->what);
    const unsigned op = what & 255, reduction = what >> 8 & 255, dtype = what >> 16 & 255;
    const long long count = (long long)get(&desc->count);
    char number[32] = "", extra[24] = "";
    ech__desc_text text;
    if (numbered)
        snprintf(number, sizeof number, " #%llu", (unsigned long long)get(&desc->sequence));
    if (op == ECH__COLL_BROADCAST)
        snprintf(extra, sizeof extra, " from rank %u", (unsigned)(what >> 32));
    else if (reduction != ECH__REDUCTION_SUM)
        snprintf(extra, sizeof extra, ", %s", ech__reduction_name((ech__reduction)reduction));
    if (op == ECH__OP_ALLOC)
        snprintf(text.s, sizeof text.s, "alloc%s of %lld bytes", number, count);
    else if (op == ECH__COLL_BARRIER)
        snprintf(text.s, sizeof text.s, "barrier%s", number);
    else
        snprintf(text.s, sizeof text.s, "%s%s of %lld %s%s", ech__coll_name((ech__coll_op)op),
                 number, count, ech__dtype_name((ech_dtype)dtype), extra);
    return text;
}

ech_status ech__shm_mismatch(ech__shm *s, int rank, const ech__shm_desc *mine,
                             const ech__shm_desc *other)
{
    /* Every rank names the two in the same order. */
    const bool first = s->base.rank < rank;
    const int me = ech__shm_name(s, s->base.rank), it = ech__shm_name(s, rank);
    const int a = first ? me : it, b = first ? it : me;
    const ech__desc_text text_a = ech__shm_describe(first ? mine : other, false);
    const ech__desc_text text_b = ech__shm_describe(first ? other : mine, false);
    const char *both = get(&mine->where) == get(&other->where) || strcmp(text_a.s, text_b.s) != 0
                           ? ""
                           : ", at different places";
    return ech__shm_abort(
        s, ech__fail(s->base.ctx, ECH_E_INVALID, "rank %d is in %s, rank %d in %s, both as #%llu%s",
                     a, text_a.s, b, text_b.s, (unsigned long long)get(&mine->sequence), both));
}

/* ---- bells ---- */

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void ring(ech__shm_rank *rank)
{
    atomic_fetch_add(&rank->bell, 1);
    futex_wake(&rank->bell);
}

/* The counter was stored with sequential consistency, and a sleeper announces itself before it
 * looks at the counter for the last time: either it sees the counter, or it is seen here. */
void ech__shm_ring_bell(ech__shm *s)
{
    ech__shm_rank *me = &s->ranks[s->base.rank];
    if (atomic_load(&me->sleepers))
        ring(me);
}

ech_status ech__shm_abort(ech__shm *s, ech_status status)
{
    int none = 0;
    s->failed = true;
    if (!atomic_compare_exchange_strong(&s->head->aborted, &none, 1))
        return status;
    snprintf(s->head->abort_text, sizeof s->head->abort_text, "%s", s->base.ctx->error);
    s->head->aborter = s->base.rank;
    atomic_store(&s->head->aborted, 2);
    for (int r = 0; r < s->base.world; r++)
        ring(&s->ranks[r]);
    return status;
}

bool ech__shm_comm_abort(ech__comm *comm)
{
    ech__shm *s = (ech__shm *)comm;
    ech__shm_abort(s, ECH_E_IO);
    /* The other rank is still writing its error message, unless it was killed meanwhile. */
    for (int i = 0; i < 100 && atomic_load(&s->head->aborted) != 2; i++)
        ech__clock_sleep(0.001);
    return atomic_load(&s->head->aborted) != 2 || s->head->aborter == comm->rank ||
           !strstr(comm->ctx->error, s->head->abort_text);
}

/* ---- waiting ---- */

ech_status ech__shm_alive(ech__shm *s)
{
    if (atomic_load_explicit(&s->head->aborted, memory_order_acquire) != 2)
        return ECH_OK;
    const bool before = s->failed;
    s->failed = true;
    return ech__fail(s->base.ctx, ECH_E_IO, "%s%s",
                     before ? "" : "another rank has failed: ", s->head->abort_text);
}

ech_status ech__shm_check(ech__shm *s, int64_t left_ns, int rank, const ech__shm_desc *doing)
{
    ech_ctx *ctx = s->base.ctx;
    const int me = ech__shm_name(s, s->base.rank);
    ECH_TRY(ech__shm_alive(s));
    const ech__desc_text text = ech__shm_describe(doing, true);
    if (left_ns <= 0) {
        char whom[24] = "other nodes";
        if (rank >= 0)
            snprintf(whom, sizeof whom, "rank %d", ech__shm_name(s, rank));
        return ech__shm_abort(s,
                              ech__fail(ctx, ECH_E_IO, "rank %d waited %.1f s for %s in %s", me,
                                        s->base.timeout_s - ech__seconds(left_ns), whom, text.s));
    }
    if (getppid() != s->parent)
        return ech__shm_abort(s, ech__fail(ctx, ECH_E_IO,
                                           "rank %d was in %s when process %d, which started it, "
                                           "was gone",
                                           me, text.s, s->parent));
    return ECH_OK;
}

static ech_status has_left(ech__shm *s, int rank, const ech__shm_desc *doing)
{
    const ech__desc_text text = ech__shm_describe(doing, true);
    return ech__shm_abort(s, ech__fail(s->base.ctx, ECH_E_IO,
                                       "rank %d waited for rank %d in %s, but that rank has exited",
                                       ech__shm_name(s, s->base.rank), ech__shm_name(s, rank),
                                       text.s));
}

/* Whether there are more ranks than processors for them; the ranks' processors are known once all
 * have joined. */
static bool crowded(ech__shm *s)
{
    if (s->all_known)
        return s->crowded;
    int cpus = 0, joined = 0;
    for (int r = 0; r < s->base.world; r++)
        joined += atomic_load(&s->ranks[r].joined) > 0;
    for (int w = 0; w < ECH__CPU_WORDS; w++)
        cpus += __builtin_popcountll(atomic_load(&s->head->cpus[w]));
    s->crowded = cpus < s->base.world;
    s->all_known = joined == s->base.world;
    return s->crowded;
}

/* Looks for a while without sleeping. */
static bool spin(ech__shm *s, const _Atomic uint64_t *counter, uint64_t least, int64_t since_ns)
{
    const bool full = crowded(s);
    for (int i = 0;; i++) {
        if (atomic_load_explicit(counter, memory_order_acquire) >= least)
            return true;
        if (full && i >= CROWDED_SPINS)
            return false;
        ech__clock_pause();
        if (i % 64 == 63 && ech__clock_wall() - since_ns > SPIN_NS)
            return false;
    }
}

/* Sleeps until the rank rings, at most for a slice. */
static void sleep_for(const _Atomic uint64_t *counter, uint64_t least, ech__shm_rank *rank,
                      int64_t slice_ns)
{
    const uint32_t bell = atomic_load(&rank->bell);
    const struct timespec slice = {.tv_nsec = slice_ns};
    atomic_fetch_add(&rank->sleepers, 1);
    if (atomic_load(counter) < least)
        syscall(SYS_futex, &rank->bell, FUTEX_WAIT, bell, &slice, NULL, 0);
    atomic_fetch_sub(&rank->sleepers, 1);
}

ech_status ech__shm_await(ech__shm *s, const _Atomic uint64_t *counter, uint64_t least, int rank,
                          const ech__shm_desc *doing)
{
    /* Two ranks that run are a few hundred nanoseconds apart: no clock is read for that. */
    for (int i = 0; i < 32; i++) {
        if (atomic_load_explicit(counter, memory_order_acquire) >= least)
            return ECH_OK;
        ech__clock_pause();
    }
    /* A rank whose shard is with other nodes fails first, and knows whom it waits for. */
    const bool shard = s->has_inter && counter == &s->ranks[rank].reduced;
    const int64_t limit = (int64_t)(s->base.timeout_s * 1e9), extra = shard ? limit / 5 : 0;
    ech__waited waited = ech__waited_start();
    if (spin(s, counter, least, waited.looked_ns))
        return ECH_OK;
    for (;;) {
        /* In this order: a rank that has left may have counted up before. */
        const bool gone = atomic_load(&s->ranks[rank].left) > s->generation;
        if (atomic_load_explicit(counter, memory_order_acquire) >= least)
            return ECH_OK;
        const int64_t left = limit + extra - ech__waited_look(&waited);
        ECH_TRY(ech__shm_check(s, left, rank, doing));
        if (gone)
            return has_left(s, rank, doing);
        /* Messages from other nodes ring no bell, and those to them may need a push. */
        const int64_t slice = ech__waited_slice(&waited, limit + extra);
        sleep_for(counter, least, &s->ranks[rank],
                  s->has_inter && slice > POLL_NS ? POLL_NS : slice);
        ECH_TRY(ech__shm_progress(&s->base));
        if (s->has_inter && s->inter.push && s->flights == 0)
            ECH_TRY(s->inter.push(s->inter.user));
    }
}
