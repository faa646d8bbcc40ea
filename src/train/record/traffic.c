#include "train/record/traffic.h"
#include "base/stats.h"
#include "base/system/clock.h"

#include <math.h>

enum { MOST_BYTES = 64 << 20 }; /* of records that are kept */

ech_status ech__traffic_init(ech__traffic *t, const ech_trainer *trainer, int64_t steps,
                             ech__arena *arena)
{
    *t = (ech__traffic){.ctx = trainer->ctx, .world = 1, .straggler = {.rank = -1}};
    if (!trainer->ranks)
        return ECH_OK;
    t->world = trainer->comm->world;
    t->nbuckets = trainer->reports.nbuckets;
    for (int d = 0; d < ech__trainer_planned_devices(trainer); d++) {
        const ech__ddp_bytes own = ech__ddp_count(ech__trainer_plan_of(trainer, d)->graph);
        t->bytes.gradients += own.gradients;
        t->bytes.buffers += own.buffers;
        t->bytes.statistics += own.statistics;
    }
    const size_t each =
        (size_t)t->world * (sizeof(ech__report) + (size_t)t->nbuckets * sizeof(ech__coll_times));
    t->steps = steps < (int64_t)(MOST_BYTES / each) ? steps : (int64_t)(MOST_BYTES / each) + 1;
    const size_t rows = (size_t)t->steps * (size_t)t->world, nbuckets = (size_t)t->nbuckets;
    t->reports = ech__arena_array(arena, rows, sizeof *t->reports);
    t->buckets = ech__arena_array(arena, rows, nbuckets * sizeof *t->buckets);
    t->step_s = ech__arena_array(arena, (size_t)t->steps, sizeof *t->step_s);
    t->timed = ech__arena_array(arena, (size_t)t->steps, sizeof *t->timed);
    t->ranks = ech__arena_array(arena, (size_t)t->world, sizeof *t->ranks);
    t->bucket_totals = ech__arena_array(arena, nbuckets, sizeof *t->bucket_totals);
    return t->reports && t->buckets && t->step_s && t->timed && t->ranks && t->bucket_totals
               ? ECH_OK
               : ech__no_memory(t->ctx, "the records of %lld steps", (long long)t->steps);
}

void ech__traffic_add(ech__traffic *t, const ech_trainer *trainer, double step_s)
{
    if (t->kept == t->steps)
        return;
    for (int r = 0; r < t->world; r++) {
        const int64_t row = t->kept * t->world + r;
        t->reports[row] = *ech__reports_of(&trainer->reports, r);
        for (int b = 0; b < t->nbuckets; b++)
            t->buckets[row * t->nbuckets + b] = *ech__reports_bucket(&trainer->reports, r, b);
    }
    t->step_s[t->kept++] = step_s;
}

/* ---- summing up ---- */

static const ech__report *report_of(const ech__traffic *t, int64_t step, int rank)
{
    return &t->reports[step * t->world + rank];
}

static const ech__coll_times *bucket_of(const ech__traffic *t, int64_t step, int rank, int bucket)
{
    return &t->buckets[(step * t->world + rank) * t->nbuckets + bucket];
}

/* When the last rank had a bucket ready, and which rank that was. */
static int64_t last_ready(const ech__traffic *t, int64_t step, int bucket, int *rank)
{
    *rank = 0;
    for (int r = 1; r < t->world; r++) {
        if (bucket_of(t, step, r, bucket)->ready_ns > bucket_of(t, step, *rank, bucket)->ready_ns)
            *rank = r;
    }
    return bucket_of(t, step, *rank, bucket)->ready_ns;
}

static void sum_up_rank(ech__traffic *t, int r)
{
    ech__timed *steps = t->timed;
    ech__rank_traffic *rank = &t->ranks[r];
    for (int64_t i = 0; i < t->kept; i++)
        steps[i] = (ech__timed){report_of(t, i, r)->time_s, (size_t)i};
    size_t first;
    const size_t count = ech__central_steps(steps, (size_t)t->kept, &first);
    for (size_t i = first; i < first + count; i++) {
        const ech__report *report = report_of(t, (int64_t)steps[i].index, r);
        rank->step_s += report->time_s / (double)count;
        rank->forward_s += report->forward_s / (double)count;
        rank->backward_s += report->backward_s / (double)count;
        rank->optimizer_s += report->optimizer_s / (double)count;
        rank->exposed_s += report->exposed_s / (double)count;
        rank->wait_s += report->wait_s / (double)count;
        rank->other_s += report->other_s / (double)count;
        rank->hidden_s += report->hidden_s / (double)count;
        rank->sync_s += report->sync_s / (double)count;
        rank->buffers_s += report->buffers_s / (double)count;
    }
    rank->busy = rank->step_s > 0
                     ? (rank->forward_s + rank->backward_s + rank->optimizer_s) / rank->step_s
                     : 0;
}

/* The last rank does not wait. */
static double least_buffers(const ech__traffic *t, double *samples)
{
    for (int64_t i = 0; i < t->kept; i++) {
        samples[i] = report_of(t, i, 0)->buffers_s;
        for (int r = 1; r < t->world; r++)
            samples[i] = fmin(samples[i], report_of(t, i, r)->buffers_s);
    }
    return ech__stats_of(samples, (size_t)t->kept).median;
}

static void sum_up_buckets(ech__traffic *t, double *samples)
{
    const double factor = 2.0 * (t->world - 1) / t->world;
    for (int b = 0; b < t->nbuckets; b++) {
        ech__bucket_traffic *bucket = &t->bucket_totals[b];
        int slowest;
        for (int64_t i = 0; i < t->kept; i++)
            samples[i] = ech__seconds(last_ready(t, i, b, &slowest) - report_of(t, i, 0)->start_ns);
        bucket->ready_s = ech__stats_of(samples, (size_t)t->kept).median;
        for (int64_t i = 0; i < t->kept; i++) {
            int64_t done = 0;
            for (int r = 0; r < t->world; r++) {
                if (bucket_of(t, i, r, b)->done_ns > done)
                    done = bucket_of(t, i, r, b)->done_ns;
            }
            samples[i] = ech__seconds(done - last_ready(t, i, b, &slowest));
        }
        bucket->transfer_s = ech__stats_of(samples, (size_t)t->kept).median;
        if (bucket->transfer_s > 0)
            bucket->bus_bytes_per_s = factor * (double)bucket->bytes / bucket->transfer_s;
    }
}

static double time_in(const ech__report *report, ech__phase phase)
{
    return phase == ECH__PHASE_FORWARD ? report->forward_s : report->backward_s;
}

/* A rank's time in a phase above the mean of the others'. */
static double excess(const ech__traffic *t, int64_t step, int rank, ech__phase phase)
{
    double others = 0;
    for (int r = 0; r < t->world; r++) {
        if (r != rank)
            others += time_in(report_of(t, step, r), phase);
    }
    return time_in(report_of(t, step, rank), phase) - others / (t->world - 1);
}

static void find_straggler(ech__traffic *t, double *samples)
{
    int best = 0;
    int64_t most = 0;
    for (int r = 0; r < t->world && t->nbuckets; r++) {
        int64_t times = 0;
        for (int64_t i = 0; i < t->kept; i++) {
            int slowest;
            last_ready(t, i, t->nbuckets - 1, &slowest);
            times += slowest == r;
        }
        if (times > most) {
            most = times;
            best = r;
        }
    }
    const double step = ech__stats_of(t->step_s, (size_t)t->kept).median;
    ech__straggler found = {.rank = -1};
    static const ech__phase phases[] = {ECH__PHASE_FORWARD, ECH__PHASE_BACKWARD};
    for (size_t p = 0; p < sizeof phases / sizeof phases[0]; p++) {
        for (int64_t i = 0; i < t->kept; i++)
            samples[i] = excess(t, i, best, phases[p]);
        const double late = ech__stats_of(samples, (size_t)t->kept).median;
        if (late > found.seconds)
            found = (ech__straggler){.rank = best,
                                     .phase = phases[p],
                                     .seconds = late,
                                     .share = (double)most / (double)t->kept};
    }
    if (found.seconds < 1e-4 || found.seconds < 0.02 * step || found.share < 0.5)
        found = (ech__straggler){.rank = -1};
    t->straggler = found;
}

static ech_status gather_memory(ech__traffic *t, const ech_trainer *trainer)
{
    int64_t mine[2] = {ech_trainer_peak_memory(trainer), ech_trainer_planned_memory(trainer)};
    const size_t bytes = (size_t)t->world * sizeof mine;
    int64_t *all = ech__new(t->ctx, bytes);
    if (!all)
        return ech__no_memory(t->ctx, "the totals of %d ranks", t->world);
    const ech_status status = ech__comm_allgather(trainer->comm, mine, all, sizeof mine);
    for (int r = 0; status == ECH_OK && r < t->world; r++) {
        t->ranks[r].peak_memory = all[(ptrdiff_t)2 * r];
        t->ranks[r].planned_memory = all[(ptrdiff_t)2 * r + 1];
    }
    ech__delete(t->ctx, all, bytes);
    return status;
}

ech_status ech__traffic_sum_up(ech__traffic *t, const ech_trainer *trainer)
{
    if (t->world == 1)
        return ECH_OK;
    ECH_TRY(gather_memory(t, trainer));
    for (int b = 0; b < t->nbuckets; b++)
        t->bucket_totals[b].bytes = trainer->ranks->buckets[b].bytes;
    if (!t->kept)
        return ECH_OK;
    for (int r = 0; r < t->world; r++)
        sum_up_rank(t, r);
    double *samples = (double *)t->timed;
    t->buffers_s = least_buffers(t, samples);
    sum_up_buckets(t, samples);
    find_straggler(t, samples);
    return ECH_OK;
}
