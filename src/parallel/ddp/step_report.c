#include "parallel/ddp/step_report.h"
#include "base/system/clock.h"

#include <math.h>

ech_status ech__reports_init(ech__reports *r, ech__ranks *ranks)
{
    const int world = ranks->comm->world;
    *r = (ech__reports){.ranks = ranks, .nbuckets = ranks->nbuckets};
    r->stride = sizeof(ech__report) + (size_t)r->nbuckets * sizeof(ech__coll_times);
    r->mine = ech__new(ranks->comm->ctx, r->stride);
    r->all = ech__new(ranks->comm->ctx, r->stride * (size_t)world);
    return r->mine && r->all ? ECH_OK
                             : ech__no_memory(ranks->comm->ctx, "the reports of %d ranks", world);
}

void ech__reports_fini(ech__reports *r)
{
    if (!r->ranks)
        return;
    const ech__comm *comm = r->ranks->comm;
    ech__delete(comm->ctx, r->all, r->stride * (size_t)comm->world);
    ech__delete(comm->ctx, r->mine, r->stride);
    r->ranks = NULL;
}

ech_status ech__reports_exchange(ech__reports *r, const ech__report *mine)
{
    /* Virtual clocks all begin at 0. */
    const int64_t offset = r->ranks->clock ? 0 : r->ranks->comm->clock_offset_ns;
    ech__coll_times *times = (ech__coll_times *)(r->mine + sizeof *mine);
    *(ech__report *)r->mine = *mine;
    ech__report *own = (ech__report *)r->mine;
    own->start_ns += offset;
    own->end_ns += offset;
    own->arrived_ns += own->arrived_ns ? offset : 0;
    for (int i = 0; i < r->nbuckets; i++) {
        times[i] = r->ranks->buckets[i].times;
        times[i].ready_ns += offset;
        times[i].start_ns += offset;
        times[i].done_ns += offset;
    }
    return ech__comm_allgather(r->ranks->comm, r->mine, r->all, (int64_t)r->stride);
}

const ech__report *ech__reports_of(const ech__reports *r, int rank)
{
    return (const ech__report *)(r->all + (size_t)rank * r->stride);
}

const ech__coll_times *ech__reports_bucket(const ech__reports *r, int rank, int bucket)
{
    return (const ech__coll_times *)(r->all + (size_t)rank * r->stride + sizeof(ech__report)) +
           bucket;
}

ech__report *ech__reports_change(ech__reports *r, int rank)
{
    return (ech__report *)(r->all + (size_t)rank * r->stride);
}

void ech__reports_set_bucket(ech__reports *r, int rank, int bucket, int64_t start_ns,
                             int64_t done_ns)
{
    char *of = r->all + (size_t)rank * r->stride + sizeof(ech__report);
    ech__coll_times *times = (ech__coll_times *)of + bucket;
    times->start_ns = start_ns;
    times->done_ns = done_ns;
}

void ech__reports_split_buffers(ech__reports *r)
{
    const int64_t first = ech__reports_of(r, 0)->arrived_ns;
    int64_t last = first;
    for (int rank = 1; rank < r->ranks->comm->world; rank++) {
        const int64_t arrived = ech__reports_of(r, rank)->arrived_ns;
        last = arrived > last ? arrived : last;
    }
    for (int rank = 0; first && rank < r->ranks->comm->world; rank++) {
        ech__report *report = ech__reports_change(r, rank);
        const double late = ech__seconds((rank ? first : last) - report->arrived_ns);
        const double waited = fmax(0, fmin(late, fmin(report->buffers_s, report->exposed_s)));
        report->wait_s += waited;
        report->exposed_s -= waited;
    }
}

void ech__reports_split_buckets(ech__reports *r)
{
    const int last = r->nbuckets - 1;
    if (last < 0 || r->ranks->comm->nodes == 1) /* there a bucket starts when all have it ready */
        return;
    const int64_t ready = ech__reports_bucket(r, ech__reports_slowest(r), last)->ready_ns;
    for (int rank = 0; rank < r->ranks->comm->world; rank++) {
        ech__report *report = ech__reports_change(r, rank);
        const ech__coll_times *own = ech__reports_bucket(r, rank, last);
        int64_t from = own->start_ns > own->ready_ns ? own->start_ns : own->ready_ns;
        for (int b = 0; b < last; b++) { /* until then others move */
            const int64_t done = ech__reports_bucket(r, rank, b)->done_ns;
            from = done > from ? done : from;
        }
        const int64_t to = ready < own->done_ns ? ready : own->done_ns;
        const double waited = fmax(0, fmin(ech__seconds(to - from), report->exposed_s));
        report->wait_s += waited;
        report->exposed_s -= waited;
    }
}

void ech__reports_end(ech__reports *r, int64_t end_ns)
{
    for (int rank = 0; rank < r->ranks->comm->world; rank++) {
        ech__report *report = ech__reports_change(r, rank);
        if (end_ns > report->end_ns)
            report->wait_s += ech__seconds(end_ns - report->end_ns);
        report->time_s = report->forward_s + report->backward_s + report->optimizer_s +
                         report->exposed_s + report->wait_s + report->other_s;
    }
}

int ech__reports_slowest(const ech__reports *r)
{
    int slowest = 0;
    for (int rank = 1; rank < r->ranks->comm->world && r->nbuckets; rank++) {
        if (ech__reports_bucket(r, rank, r->nbuckets - 1)->ready_ns >
            ech__reports_bucket(r, slowest, r->nbuckets - 1)->ready_ns)
            slowest = rank;
    }
    return slowest;
}
