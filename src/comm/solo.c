#include "comm/comm.h"

#include "base/system/clock.h"

#include <stdlib.h>
#include <string.h>

/* World 1: what a collective would bring from others is what this rank has itself. */
typedef struct solo {
    ech__comm base;
    uint64_t started;
    int64_t started_ns[ECH__MAX_STARTED];
} solo;

static void solo_close(ech__comm *comm)
{
    ech__delete(comm->ctx, comm, sizeof(solo));
}

static ech_status solo_run(ech__comm *comm, const ech__coll *coll)
{
    if (coll->op == ECH__COLL_SEND || coll->op == ECH__COLL_RECV)
        return ech__fail(comm->ctx, ECH_E_INVALID, "%s with rank %d: this is the only rank",
                         ech__coll_name(coll->op), coll->peer);
    if (coll->op == ECH__COLL_BROADCAST || coll->op == ECH__COLL_BARRIER || coll->count == 0)
        return ECH_OK;
    if (coll->src != coll->dst)
        memmove(coll->dst, coll->src, (size_t)ech__coll_bytes(coll, coll->count));
    return ECH_OK;
}

static ech_status solo_alloc(ech__comm *comm, int64_t bytes, void **out)
{
    /* Whole cache lines, as shared memory has them. */
    const size_t size = ((size_t)bytes + 63) / 64 * 64;
    *out = aligned_alloc(64, size ? size : 64);
    if (!*out)
        return ech__no_memory(comm->ctx, "a region of %lld bytes", (long long)bytes);
    memset(*out, 0, size);
    return ECH_OK;
}

static void solo_free(ech__comm *comm, void *ptr)
{
    (void)comm;
    free(ptr);
}

static ech_status solo_start(ech__comm *comm, const ech__coll *coll, uint64_t *ticket)
{
    (void)coll;
    solo *s = (solo *)comm;
    *ticket = s->started++;
    s->started_ns[*ticket % ECH__MAX_STARTED] = ech__clock_wall();
    return ECH_OK;
}

static ech_status solo_progress(ech__comm *comm)
{
    (void)comm;
    return ECH_OK;
}

static ech_status solo_wait(ech__comm *comm, uint64_t ticket, ech__coll_times *times)
{
    solo *s = (solo *)comm;
    if (ticket >= s->started)
        return ech__fail(comm->ctx, ECH_E_INVALID, "ticket %llu: only %llu were started",
                         (unsigned long long)ticket, (unsigned long long)s->started);
    if (times) {
        const int64_t at = s->started_ns[ticket % ECH__MAX_STARTED];
        *times = (ech__coll_times){at, at, at, 0};
    }
    return ECH_OK;
}

static void *solo_peer(ech__comm *comm, void *ptr, int index)
{
    (void)comm;
    return index == 0 ? ptr : NULL;
}

static const ech__comm_ops solo_ops = {
    .close = solo_close,
    .run = solo_run,
    .alloc = solo_alloc,
    .free = solo_free,
    .start = solo_start,
    .progress = solo_progress,
    .wait = solo_wait,
    .peer = solo_peer,
};

ech_status ech__solo_open(ech_ctx *ctx, double timeout_s, ech__comm **out)
{
    *out = NULL;
    solo *s = ech__new(ctx, sizeof *s);
    if (!s)
        return ech__no_memory(ctx, "a comm");
    s->base = (ech__comm){.ops = &solo_ops,
                          .ctx = ctx,
                          .world = 1,
                          .local_world = 1,
                          .nodes = 1,
                          .backend = ECH__BACKEND_AUTO,
                          .timeout_s = timeout_s};
    *out = &s->base;
    return ECH_OK;
}
