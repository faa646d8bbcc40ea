#include "comm/comm.h"

#include "base/names.h"
#include "base/size.h"
#include "comm/collective/reduce.h"
#include "comm/helper.h"

#include <stdlib.h>
#include <string.h>

ECH__NAMES(ech__coll_name, ech__coll_op, ECH__COLL_LIST)
ECH__NAMES(ech__reduction_name, ech__reduction, ECH__REDUCTION_LIST)
ECH__NAMES(ech__backend_name, ech__backend, ECH__BACKEND_LIST)

void ech__comm_close(ech__comm *comm)
{
    if (!comm)
        return;
    ech__helper_stop(comm->helper);
    comm->ops->close(comm);
}

bool ech__comm_abort(ech__comm *comm)
{
    return !comm->ops->abort || comm->ops->abort(comm);
}

void ech__comm_begun(ech__comm *comm)
{
    if (comm->ops->begun)
        comm->ops->begun(comm);
}

/* ---- checks that all transports share ---- */

static ech_status check_reduction(ech__comm *comm, const ech__coll *coll)
{
    const bool known = coll->dtype == ECH_F32 || coll->dtype == ECH_F64 ||
                       coll->dtype == ECH_BF16 || coll->dtype == ECH_F16 || coll->dtype == ECH_S32;
    if (!known)
        return ech__fail(comm->ctx, ECH_E_UNSUPPORTED,
                         "%s of %s: only f32, f64, bf16, f16 and s32 are reduced",
                         ech__coll_name(coll->op), ech__dtype_name(coll->dtype));
    if ((unsigned)coll->reduction >= ECH__REDUCTION_COUNT)
        return ech__fail(comm->ctx, ECH_E_INVALID, "unknown reduction %d", (int)coll->reduction);
    if (coll->reduction == ECH__REDUCTION_MEAN && coll->dtype == ECH_S32)
        return ech__fail(comm->ctx, ECH_E_UNSUPPORTED,
                         "%s of s32: mean is not supported for integers", ech__coll_name(coll->op));
    return ECH_OK;
}

static ech_status check(ech__comm *comm, const ech__coll *coll)
{
    ech_ctx *ctx = comm->ctx;
    if ((unsigned)coll->op >= ECH__COLL_COUNT)
        return ech__fail(ctx, ECH_E_INVALID, "unknown collective %d", (int)coll->op);
    if (coll->op == ECH__COLL_BARRIER)
        return ECH_OK;
    const char *name = ech__coll_name(coll->op);
    int64_t all;
    if (coll->count < 0 || !ech__mul(coll->count, comm->world, &all) ||
        !ech__mul(all, ech__dtype_bytes(coll->dtype), &all))
        return ech__fail(ctx, ECH_E_INVALID, "%s of %lld elements", name, (long long)coll->count);
    const bool reads = coll->op != ECH__COLL_BROADCAST && coll->op != ECH__COLL_RECV;
    const bool writes = coll->op != ECH__COLL_SEND;
    if (coll->count > 0 && ((reads && !coll->src) || (writes && !coll->dst)))
        return ech__fail(ctx, ECH_E_INVALID, "%s of %lld %s without memory", name,
                         (long long)coll->count, ech__dtype_name(coll->dtype));
    const bool pair = coll->op == ECH__COLL_SEND || coll->op == ECH__COLL_RECV;
    if ((pair || coll->op == ECH__COLL_BROADCAST) &&
        (coll->peer < 0 || coll->peer >= comm->world || (pair && coll->peer == comm->rank)))
        return ech__fail(ctx, ECH_E_INVALID, "rank %d: %s %s rank %d of %d", comm->rank, name,
                         coll->op == ECH__COLL_RECV || !pair ? "from" : "to", coll->peer,
                         comm->world);
    if (coll->op == ECH__COLL_ALLREDUCE || coll->op == ECH__COLL_REDUCE_SCATTER)
        return check_reduction(comm, coll);
    return ECH_OK;
}

/* ---- dispatch ---- */

/* Calls of a transport, which the helper leaves alone meanwhile. */
#define WITH_HELPER(comm, call)                                                                    \
    do {                                                                                           \
        if (!(comm)->helper)                                                                       \
            return call;                                                                           \
        ECH_TRY(ech__helper_enter(comm));                                                          \
        const ech_status status_ = call;                                                           \
        ech__helper_leave(comm);                                                                   \
        return status_;                                                                            \
    } while (0)

ech_status ech__comm_run(ech__comm *comm, const ech__coll *coll)
{
    ECH_TRY(check(comm, coll));
    WITH_HELPER(comm, comm->ops->run(comm, coll));
}

ech_status ech__comm_barrier(ech__comm *comm)
{
    return ech__comm_run(comm, &(ech__coll){.op = ECH__COLL_BARRIER, .dtype = ECH_U8});
}

ech_status ech__comm_allgather(ech__comm *comm, const void *src, void *dst, int64_t bytes)
{
    return ech__comm_run(
        comm,
        &(ech__coll){
            .op = ECH__COLL_ALLGATHER, .dtype = ECH_U8, .count = bytes, .src = src, .dst = dst});
}

ech_status ech__comm_broadcast(ech__comm *comm, void *data, int64_t bytes, int root)
{
    return ech__comm_run(
        comm,
        &(ech__coll){
            .op = ECH__COLL_BROADCAST, .dtype = ECH_U8, .count = bytes, .dst = data, .peer = root});
}

ech_status ech__comm_alloc(ech__comm *comm, int64_t bytes, void **out)
{
    *out = NULL;
    if (bytes < 0)
        return ech__fail(comm->ctx, ECH_E_INVALID, "%lld bytes of shared memory were asked for",
                         (long long)bytes);
    WITH_HELPER(comm, comm->ops->alloc(comm, bytes, out));
}

void ech__comm_free(ech__comm *comm, void *ptr)
{
    if (ptr)
        comm->ops->free(comm, ptr);
}

ech_status ech__comm_start(ech__comm *comm, const ech__coll *coll, uint64_t *ticket)
{
    if (coll->op != ECH__COLL_ALLREDUCE)
        return ech__fail(comm->ctx, ECH_E_UNSUPPORTED,
                         "%s is blocking only: just allreduce can be started without waiting",
                         ech__coll_name(coll->op));
    if (coll->src != coll->dst)
        return ech__fail(comm->ctx, ECH_E_INVALID,
                         "an allreduce that is started must be in place, with src the same as dst");
    ECH_TRY(check(comm, coll));
    WITH_HELPER(comm, comm->ops->start(comm, coll, ticket));
}

ech_status ech__comm_progress(ech__comm *comm)
{
    return comm->helper ? ech__helper_status(comm) : comm->ops->progress(comm);
}

ech_status ech__comm_wait(ech__comm *comm, uint64_t ticket, ech__coll_times *times)
{
    WITH_HELPER(comm, comm->ops->wait(comm, ticket, times));
}

void *ech__comm_peer(ech__comm *comm, void *ptr, int index)
{
    return comm->ops->peer(comm, ptr, index);
}
