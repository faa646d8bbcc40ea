/* Devices of several groups synchronise in the middle of their tasks, for the statistics of batch
 * norms. All groups must call the collectives of their ranks in one order, from one device of a
 * group at a time. With one micro-batch the data give that order. With several, devices work at the
 * same time and take turns, in the order of the tasks if all took equally long; the collectives of
 * a task are spread evenly over it. That order respects what tasks wait for, so there is no
 * deadlock. */
#include "base/size.h"
#include "parallel/pipe/internal.h"

#include <math.h>
#include <stdlib.h>

/* ---- the order ---- */

typedef struct rendezvous {
    double at;
    int device, number; /* of the device's */
} rendezvous;

static int compare(const void *a, const void *b)
{
    const rendezvous *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->device != y->device ? x->device - y->device : x->number - y->number;
}

static int syncs_of(const ech__stage *stage, ech__task_kind kind)
{
    const ech_graph *graph = stage->graphs[ECH__PIPE_WRITES];
    const ech__op op = kind == ECH__TASK_FORWARD ? ECH__OP_SYNC_STATS : ECH__OP_SYNC_SUMS;
    int count = 0;
    for (size_t n = 0; n < graph->nnodes; n++)
        count += graph->nodes[n].op == op;
    return count;
}

static int count_all(const ech__pipe *pipe, const ech__pass *pass, int device)
{
    const ech__stage *stage = &pipe->stages[device];
    return pass->micros *
           (syncs_of(stage, ECH__TASK_FORWARD) + syncs_of(stage, ECH__TASK_BACKWARD));
}

static void list(const ech__pipe *pipe, const ech__pass *pass, const double *starts,
                 rendezvous *out)
{
    for (int d = 0; d < pipe->options.devices; d++) {
        int number = 0;
        for (int i = 0; i < pass->ntasks; i++) {
            const int task = d * pass->ntasks + i;
            const int count = syncs_of(&pipe->stages[d], pass->tasks[task].kind);
            for (int k = 0; k < count; k++)
                *out++ = (rendezvous){starts[task] + (double)k / count, d, number++};
        }
    }
}

static ech_status allocate(ech__pipe *pipe, ech__pass *pass)
{
    const int devices = pipe->options.devices;
    for (int d = 0; d < devices; d++)
        pass->nturns += count_all(pipe, pass, d);
    if (!pass->nturns)
        return ECH_OK;
    pass->turns = ech__arena_array(&pass->arena, (size_t)devices, sizeof *pass->turns);
    int *all = ech__arena_array(&pass->arena, (size_t)pass->nturns, sizeof *all);
    if (!pass->turns || !all)
        return ech__no_memory(pipe->ctx, "%d statistics", pass->nturns);
    for (int d = 0; d < devices; d++) {
        pass->turns[d] = all;
        all += count_all(pipe, pass, d);
    }
    return ECH_OK;
}

ech_status ech__pass_order_meetings(ech__pipe *pipe, ech__pass *pass)
{
    const ech__pipe_options *o = &pipe->options;
    if (!o->sync_bn || !o->ranks || !pass->training || pass->micros == 1)
        return ECH_OK;
    ECH_TRY(allocate(pipe, pass));
    if (!pass->nturns)
        return ECH_OK;
    const size_t tasks = (size_t)o->devices * (size_t)pass->ntasks, count = (size_t)pass->nturns;
    double *starts = ech__arena_array(&pass->arena, tasks, sizeof *starts);
    rendezvous *meetings = ech__arena_array(&pass->arena, count, sizeof *meetings);
    if (!starts || !meetings)
        return ech__no_memory(pipe->ctx, "%d statistics", pass->nturns);
    ECH_TRY(ech__pipe_starts(pipe->ctx, o->order, o->devices, pass->micros, starts));
    list(pipe, pass, starts, meetings);
    qsort(meetings, count, sizeof *meetings, compare);
    for (size_t i = 0; i < count; i++)
        pass->turns[meetings[i].device][meetings[i].number] = (int)i;
    return ECH_OK;
}

/* ---- the samples ---- */

double ech__pipe_share(const ech__pipe *pipe, int micro)
{
    const ech__pass *pass = pipe->now;
    const double share = pipe->scalars.share;
    if (!pipe->options.sync_bn || !pipe->options.ranks || !(share > 0))
        return share;
    const int world = pipe->options.ranks->comm->world;
    const int64_t together = llround((double)pass->batch / share);
    int64_t sum = 0;
    for (int r = 0; r < world; r++)
        sum += ech__part_of(ech__part_of(together, r, world).count, micro, pass->micros).count;
    return (double)pass->count[micro] / (double)sum;
}

/* ---- rendezvous ---- */

typedef struct sync_kernel {
    ech__kernel base;
    ech__stage *stage;
    ech__kernel *inner;
} sync_kernel;

/* On a virtual clock the ranks' is this device's for as long as it meets them. */
static ech_status meet(const sync_kernel *k, const ech__scalars *scalars)
{
    ech__stage *stage = k->stage;
    const ech__ranks *ranks = stage->pipe->options.ranks;
    if (ranks->clock)
        ranks->clock->now_ns = stage->clock.now_ns;
    const ech_status status = k->inner->run(k->inner, scalars);
    if (ranks->clock)
        stage->clock.now_ns = ranks->clock->now_ns;
    return status < 0 ? ech__fail(stage->ctx, status, "%s", ranks->comm->ctx->error) : ECH_OK;
}

static ech_status run(ech__kernel *base, const ech__scalars *scalars)
{
    const sync_kernel *k = (const sync_kernel *)base;
    ech__stage *stage = k->stage;
    ech__pipe *pipe = stage->pipe;
    if (!pipe->now->turns)
        return meet(k, scalars);
    const uint64_t turn = (uint64_t)pipe->now->turns[stage->index][stage->met++];
    if (!ech__message_await(&stage->condition, &pipe->turn, turn, &pipe->failed, pipe->spin_ns))
        return ech__fail(stage->ctx, ECH_E_INTERNAL, "ended because device %d failed",
                         atomic_load(&pipe->failed) - 1);
    ECH_TRY(meet(k, scalars));
    atomic_store_explicit(&pipe->turn, turn + 1, memory_order_release);
    for (int d = 0; d < pipe->options.devices; d++)
        ech__condition_notify(&pipe->stages[d].condition);
    return ECH_OK;
}

static void destroy(ech__kernel *base)
{
    sync_kernel *k = (sync_kernel *)base;
    k->inner->destroy(k->inner);
    ech__delete(k->stage->ctx, k, sizeof *k);
}

ech_status ech__stage_meeting(ech__stage *stage, ech__kernel *inner, ech__kernel **out)
{
    sync_kernel *k = ech__new(stage->ctx, sizeof *k);
    *out = NULL;
    if (!k) {
        inner->destroy(inner);
        return ech__no_memory(stage->ctx, "statistics of batch norms");
    }
    *k = (sync_kernel){.base = {.run = run, .destroy = destroy}, .stage = stage, .inner = inner};
    *out = &k->base;
    return ECH_OK;
}
