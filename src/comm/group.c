#include "comm/comm.h"

ech_status ech_group_open(ech_ctx *ctx, ech_group **out)
{
    *out = NULL;
    ech_group *group = ech__new(ctx, sizeof *group);
    if (!group)
        return ech__no_memory(ctx, "a group of ranks");
    group->owned = true;
    const ech_status status =
        ech__comm_open(ctx, &(ech__comm_options){.backend = ECH__BACKEND_AUTO}, &group->comm);
    if (status < 0) {
        ech__delete(ctx, group, sizeof *group);
        return status;
    }
    *out = group;
    return ECH_OK;
}

void ech_group_close(ech_group *group)
{
    if (!group)
        return;
    ech_ctx *ctx = group->comm->ctx;
    if (group->owned)
        ech__comm_close(group->comm);
    ech__delete(ctx, group, sizeof *group);
}

int ech_group_rank(const ech_group *group)
{
    return group->comm->rank;
}

int ech_group_size(const ech_group *group)
{
    return group->comm->world;
}

int ech_group_local_rank(const ech_group *group)
{
    return group->comm->local_rank;
}

int ech_group_restarts(const ech_group *group)
{
    return group->comm->restarts;
}

ech_status ech_group_barrier(ech_group *group)
{
    return ech__comm_barrier(group->comm);
}

ech_status ech_group_sum(ech_group *group, float *data, int64_t count)
{
    return ech__comm_run(group->comm, &(ech__coll){.op = ECH__COLL_ALLREDUCE,
                                                   .reduction = ECH__REDUCTION_SUM,
                                                   .dtype = ECH_F32,
                                                   .count = count,
                                                   .src = data,
                                                   .dst = data});
}
