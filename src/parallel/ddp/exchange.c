#include "parallel/ddp/exchange.h"
#include "base/system/clock.h"

#include <stdlib.h>
#include <string.h>

static ech__ranks *of(ech__exchange *exchange)
{
    return (ech__ranks *)exchange;
}

typedef struct exchange_kernel exchange_kernel;

struct exchange_kernel {
    ech__kernel base;
    ech__ranks *ranks;
    ech__device *device;
    ech_status (*fn)(exchange_kernel *k, const ech__scalars *scalars);
    ech_dtype dtype;
    int64_t count; /* elements of the first operand */
    int64_t M;     /* sync_stats: samples times pixels of this rank */
    int bucket;
    size_t bytes;         /* of this kernel, with its staging */
    ech__kernel *update;  /* of the parameters, in at[1], by the sum of gradients; NULL: none */
    ech__scalars scalars; /* of the step under way */
    int nchanged;         /* operands behind the gradients that the update changes */
    double *staging;      /* sync: this rank's vectors, then all ranks' */
    void *vector;         /* sync: an operand, on the host */
    void *shared;         /* of an all-reduce, see ech__binding.staging; NULL: none */
    void *at[ECH__MAX_OPERANDS];
};

static void note_moving(ech__ranks *ranks, int64_t start_ns, int64_t end_ns)
{
    if (ranks->nmoving < sizeof ranks->moving / sizeof ranks->moving[0])
        ranks->moving[ranks->nmoving++] = (ech__span){start_ns, end_ns};
}

/* ---- gradients ---- */

/* Updates a slice of the parameters and states here, and hands the result to all ranks that share
 * memory with this one. */
static ech_status apply_update(void *user, int64_t first, int64_t count, const void *sum)
{
    exchange_kernel *k = user;
    enum { SLICE = 4096 };
    /* On a virtual clock, too, it is this device's work. */
    const bool virtual = k->ranks->clock != NULL;
    const int64_t start = virtual ? ech__clock_cpu() : ech__clock_wall();
    const int64_t each = ech__dtype_bytes(k->dtype);
    for (int64_t at = 0; at < count; at += SLICE) {
        const int64_t n = count - at < SLICE ? count - at : SLICE;
        ECH_TRY(k->update->run_part(k->update, &k->scalars, first + at, n,
                                    (const char *)sum + at * each));
        for (int i = 1; i <= k->nchanged; i++) {
            char *mine = (char *)k->at[i] + (first + at) * each, *other;
            for (int r = 0; (other = ech__comm_peer(k->ranks->comm, mine, r)) != NULL; r++) {
                if (other != mine)
                    memcpy(other, mine, (size_t)(n * each));
            }
        }
    }
    k->ranks->update_ns += (virtual ? ech__clock_cpu() : ech__clock_wall()) - start;
    return ECH_OK;
}

static ech_status run_allreduce(exchange_kernel *k, const ech__scalars *scalars)
{
    k->scalars = *scalars;
    ech__bucket *bucket = &k->ranks->buckets[k->bucket];
    void *at = k->shared ? k->shared : k->at[0];
    const int64_t bytes = k->count * ech__dtype_bytes(k->dtype);
    if (k->shared) {
        const int64_t start = ech__clock_wall();
        ECH_TRY(k->device->memory->read(k->device, k->shared, k->at[0], bytes));
        note_moving(k->ranks, start, ech__clock_wall());
    }
    bucket->back = k->shared ? (ech__staged){k->device, k->at[0], k->shared, bytes}
                             : (ech__staged){.device = NULL};
    const ech__coll sum = {.op = ECH__COLL_ALLREDUCE,
                           .reduction = ECH__REDUCTION_SUM,
                           .dtype = k->dtype,
                           .count = k->count,
                           .src = at,
                           .dst = at,
                           .apply = k->update ? apply_update : NULL,
                           .user = k};
    ECH_TRY(ech__comm_start(k->ranks->comm, &sum, &bucket->ticket));
    bucket->started = true;
    if (k->ranks->clock)
        bucket->times = (ech__coll_times){.ready_ns = k->ranks->clock->now_ns};
    return ECH_OK;
}

static ech_status run_wait(exchange_kernel *k, const ech__scalars *scalars)
{
    (void)scalars;
    ech__ranks *ranks = k->ranks;
    for (int i = 0; i < ranks->nbuckets; i++) {
        ech__bucket *bucket = &ranks->buckets[i];
        if (!bucket->started)
            continue;
        bucket->started = false;
        const ech__staged *back = &bucket->back;
        /* A virtual clock stands still; the price is known when all ranks have reported. */
        ECH_TRY(ech__comm_wait(ranks->comm, bucket->ticket, ranks->clock ? NULL : &bucket->times));
        if (!ranks->clock)
            note_moving(ranks, bucket->times.start_ns, bucket->times.done_ns);
        if (!back->device)
            continue;
        const int64_t start = ech__clock_wall();
        ECH_TRY(back->device->memory->write(back->device, back->at, back->shared, back->bytes));
        note_moving(ranks, start, ech__clock_wall());
    }
    return ECH_OK;
}

int64_t ech__ranks_emulate(const ech__ranks *ranks, const int64_t *ready_ns, ech__coll_times *out,
                           int64_t *worked_ns)
{
    const int world = ranks->comm->world;
    const bool own = ranks->cluster->mover == ECH__MOVER_DEVICES;
    ech__timeline t;
    int64_t origin = INT64_MAX;
    ech__timeline_begin(&t, ranks->cluster, ranks->algorithm, world);
    for (int i = 0; i < ranks->nbuckets * world; i++)
        origin = ready_ns[i] < origin ? ready_ns[i] : origin;
    for (int b = 0; b < ranks->nbuckets; b++) {
        int64_t ready = ready_ns[b * world];
        for (int r = 1; r < world; r++)
            ready = ready_ns[b * world + r] > ready ? ready_ns[b * world + r] : ready;
        const double free_s = t.done_s;
        const double ready_s = ech__seconds(ready - origin) + (own ? t.comm_s : 0);
        /* Handing the result out is then in the time of the update: the sum alone moves half of the
         * bytes. */
        const ech__bucket *bucket = &ranks->buckets[b];
        const double done =
            ech__timeline_bucket(&t, ready_s, bucket->bytes / (bucket->updates && own ? 2 : 1));
        out[b].start_ns = origin + (int64_t)(1e9 * (free_s > ready_s ? free_s : ready_s));
        out[b].done_ns = origin + (int64_t)(1e9 * done);
    }
    *worked_ns = own ? (int64_t)(1e9 * t.comm_s) : 0;
    return ranks->nbuckets ? out[ranks->nbuckets - 1].done_ns : 0;
}

/* On a virtual clock all ranks are where the last one is, plus what a message of so many bytes
 * costs. */
static ech_status meet(ech__ranks *ranks, int64_t bytes)
{
    ech__virtual_clock *clock = ranks->clock;
    if (!clock)
        return ECH_OK;
    int64_t last = clock->now_ns;
    const ech__coll latest = {.op = ECH__COLL_ALLREDUCE,
                              .reduction = ECH__REDUCTION_MAX,
                              .dtype = ECH_F64,
                              .count = 1,
                              .src = &(double){(double)last},
                              .dst = &(double){0}};
    ECH_TRY(ech__comm_run(ranks->comm, &latest));
    last = (int64_t) * (double *)latest.dst;
    const int64_t start = clock->now_ns;
    clock->now_ns = last + (int64_t)(1e9 * ech__price_allreduce(ranks->cluster, ranks->algorithm,
                                                                ranks->comm->world, bytes)
                                               .seconds);
    ranks->sync_ns += clock->now_ns - start;
    note_moving(ranks, last, clock->now_ns);
    return ECH_OK;
}

/* ---- buffers ---- */

ech_status ech__ranks_broadcast(ech__comm *comm, ech__device *device, void *memory, int64_t bytes)
{
    if (device->memory->host_visible)
        return ech__comm_broadcast(comm, memory, bytes, 0);
    enum { SLICE = 1 << 20 };
    const int64_t most = bytes < SLICE ? bytes : SLICE;
    char *slice = ech__new(comm->ctx, (size_t)most);
    if (!slice)
        return ech__no_memory(comm->ctx, "a buffer of %lld bytes", (long long)most);
    ech_status status = ECH_OK;
    for (int64_t at = 0; at < bytes && status == ECH_OK; at += most) {
        const int64_t count = bytes - at < most ? bytes - at : most;
        char *there = (char *)memory + at;
        if (comm->rank == 0)
            status = device->memory->read(device, slice, there, count);
        if (status == ECH_OK)
            status = ech__comm_broadcast(comm, slice, count, 0);
        if (status == ECH_OK && comm->rank != 0)
            status = device->memory->write(device, there, slice, count);
    }
    ech__delete(comm->ctx, slice, (size_t)most);
    return status;
}

static ech_status run_broadcast(exchange_kernel *k, const ech__scalars *scalars)
{
    (void)scalars;
    ech__ranks *ranks = k->ranks;
    const int64_t bytes = k->count * ech__dtype_bytes(k->dtype);
    const int64_t start = ech__clock_wall(), before = ranks->sync_ns;
    if (!ranks->arrived_ns)
        ranks->arrived_ns = start;
    ECH_TRY(ech__ranks_broadcast(ranks->comm, k->device, k->at[0], bytes));
    const int64_t end = ech__clock_wall();
    if (ranks->clock) {
        ECH_TRY(meet(ranks, bytes));
    } else { /* waiting included, which is found when all ranks have told when they arrived */
        ranks->sync_ns += end - start;
        note_moving(ranks, start, end);
    }
    ranks->buffers_ns += ranks->sync_ns - before;
    return ECH_OK;
}

/* ---- statistics of batch norms ---- */

/* An operand as doubles. */
static ech_status load(exchange_kernel *k, int operand, double *out)
{
    const int64_t bytes = k->count * ech__dtype_bytes(k->dtype);
    ECH_TRY(k->device->memory->read(k->device, k->vector, k->at[operand], bytes));
    for (int64_t c = 0; c < k->count; c++)
        out[c] = k->dtype == ECH_F64 ? ((const double *)k->vector)[c]
                                     : (double)((const float *)k->vector)[c];
    return ECH_OK;
}

static ech_status store(exchange_kernel *k, int operand, const double *values)
{
    for (int64_t c = 0; c < k->count; c++) {
        if (k->dtype == ECH_F64)
            ((double *)k->vector)[c] = values[c];
        else
            ((float *)k->vector)[c] = (float)values[c];
    }
    return k->device->memory->write(k->device, k->at[operand], k->vector,
                                    k->count * ech__dtype_bytes(k->dtype));
}

/* Both vectors of every rank, as doubles, after a number of the rank's own and before the time when
 * it arrived. */
static int64_t gathered_length(int64_t count)
{
    return 2 + 2 * count;
}

/* all[world][gathered_length] */
static ech_status gather(exchange_kernel *k, double first, const double **out)
{
    const int64_t length = gathered_length(k->count);
    double *mine = k->staging, *all = mine + length;
    mine[0] = first;
    ECH_TRY(load(k, 0, mine + 1));
    ECH_TRY(load(k, 1, mine + 1 + k->count));
    ech__ranks *ranks = k->ranks;
    const int64_t start = ech__clock_wall(), offset = ranks->comm->clock_offset_ns;
    mine[length - 1] = (double)(start + offset);
    ECH_TRY(ech__comm_allgather(ranks->comm, mine, all, length * (int64_t)sizeof *all));
    *out = all;
    if (ranks->clock)
        return meet(ranks, 2 * k->count * ech__dtype_bytes(k->dtype));
    const int64_t end = ech__clock_wall();
    int64_t last = start;
    for (int r = 0; r < ranks->comm->world; r++) {
        const int64_t arrived = (int64_t)all[(r + 1) * length - 1] - offset;
        last = arrived > last ? arrived : last;
    }
    ranks->sync_ns += end - start;
    note_moving(ranks, last < end ? last : end, end);
    return ECH_OK;
}

/* mean and variance over the samples of all ranks, from each rank's mean, variance and number of
 * samples times pixels. The output has what bn_running must see to correct for bias by this rank's
 * count and end with that of all. */
static ech_status run_sync_stats(exchange_kernel *k, const ech__scalars *scalars)
{
    const double *all;
    const int64_t length = gathered_length(k->count);
    const int world = k->ranks->comm->world;
    double total = 0;
    /* A rank without samples of its own computes on others that do not count. */
    ECH_TRY(gather(k, scalars->share > 0 ? (double)k->M : 0, &all));
    for (int r = 0; r < world; r++)
        total += all[r * length];
    const double ours = k->M > 1 ? (double)k->M / (double)(k->M - 1) : 1;
    const double theirs = total > 1 ? total / (total - 1) : 1;
    /* What this rank handed in is not needed any more. */
    double *means = k->staging, *variances = means + k->count;
    for (int64_t c = 0; c < k->count; c++) {
        double mean = 0, variance = 0;
        for (int r = 0; r < world; r++)
            mean += all[r * length] / total * all[r * length + 1 + c];
        for (int r = 0; r < world; r++) {
            const double off = all[r * length + 1 + c] - mean;
            variance += all[r * length] / total * (all[r * length + 1 + k->count + c] + off * off);
        }
        means[c] = mean;
        variances[c] = variance;
    }
    ECH_TRY(store(k, 0, means));
    ECH_TRY(store(k, 1, variances));
    for (int64_t c = 0; c < k->count; c++)
        variances[c] = variances[c] * theirs / ours;
    return store(k, 3, variances);
}

/* bn_bwd_data divides by this rank's count; the sums over all ranks are to be divided by the count
 * of all. */
static ech_status run_sync_sums(exchange_kernel *k, const ech__scalars *scalars)
{
    const double *all;
    const int64_t length = gathered_length(k->count);
    const int world = k->ranks->comm->world;
    ECH_TRY(gather(k, scalars->share, &all));
    for (int half = 0; half < 2; half++) {
        for (int64_t c = 0; c < k->count; c++) {
            double sum = 0;
            for (int r = 0; r < world; r++)
                sum += all[r * length + 1 + half * k->count + c];
            k->staging[c] = sum * scalars->share;
        }
        ECH_TRY(store(k, 2 + half, k->staging));
    }
    return ECH_OK;
}

/* ---- the table of the plan ---- */

static ech_status run(ech__kernel *base, const ech__scalars *scalars)
{
    exchange_kernel *k = (exchange_kernel *)base;
    return k->fn(k, scalars);
}

static void destroy(ech__kernel *base)
{
    exchange_kernel *k = (exchange_kernel *)base;
    if (k->update)
        k->update->destroy(k->update);
    ech__delete(k->ranks->comm->ctx, k, k->bytes);
}

typedef ech_status (*exchange_fn)(exchange_kernel *k, const ech__scalars *scalars);

static const exchange_fn functions[ECH__OP_COUNT] = {
    [ECH__OP_ALLREDUCE] = run_allreduce, [ECH__OP_ALLREDUCE_WAIT] = run_wait,
    [ECH__OP_BROADCAST] = run_broadcast, [ECH__OP_SYNC_STATS] = run_sync_stats,
    [ECH__OP_SYNC_SUMS] = run_sync_sums,
};

static ech_status note_bucket(ech__ranks *ranks, const exchange_kernel *k)
{
    if (k->bucket >= ECH__MAX_STARTED)
        return ech__fail(ranks->comm->ctx, ECH_E_LIMIT,
                         "%d buckets of gradients: at most %d are possible; make them larger",
                         k->bucket + 1, ECH__MAX_STARTED);
    ranks->buckets[k->bucket].bytes = k->count * ech__dtype_bytes(k->dtype);
    ranks->buckets[k->bucket].updates = k->update != NULL;
    if (k->bucket >= ranks->nbuckets)
        ranks->nbuckets = k->bucket + 1;
    return ECH_OK;
}

static ech_status create(ech__exchange *exchange, ech__device *device, const ech__kernel_desc *desc,
                         const ech__binding *binding, ech__kernel *update, ech__kernel **out)
{
    ech__ranks *ranks = of(exchange);
    const bool sync = desc->op == ECH__OP_SYNC_STATS || desc->op == ECH__OP_SYNC_SUMS;
    int64_t count = 0, M = 0;
    *out = NULL;
    if (desc->nin)
        ech__shape_elems(&desc->operands[0].layout.shape, &count);
    if (desc->op == ECH__OP_SYNC_STATS) { /* samples and pixels of x[N,C,H,W] */
        const ech__shape *x = &desc->operands[2].layout.shape;
        M = x->dims[0] * x->dims[2] * x->dims[3];
    }
    const size_t vectors = sync ? (size_t)gathered_length(count) * sizeof(double) : 0;
    const size_t all = vectors * (size_t)(1 + ranks->comm->world);
    const size_t bytes = sizeof(exchange_kernel) + all + vectors;
    exchange_kernel *k = ech__new(ranks->comm->ctx, bytes);
    if (!k) {
        if (update)
            update->destroy(update);
        return ech__no_memory(ranks->comm->ctx, "%s", ech__op_name(desc->op));
    }
    *k = (exchange_kernel){.base = {run, destroy},
                           .ranks = ranks,
                           .device = device,
                           .fn = functions[desc->op],
                           .dtype = desc->nin ? desc->operands[0].dtype : ECH_F32,
                           .count = count,
                           .M = M,
                           .bucket = (int)desc->attrs.bucket,
                           .bytes = bytes,
                           .update = update,
                           .nchanged = update ? desc->nin - 1 : 0,
                           .staging = (double *)(void *)(k + 1),
                           .vector = (char *)(k + 1) + all,
                           .shared = binding->staging};
    memcpy(k->at, binding->operands, sizeof k->at);
    if (desc->op == ECH__OP_ALLREDUCE) {
        const ech_status status = note_bucket(ranks, k);
        if (status < 0) {
            destroy(&k->base);
            return status;
        }
    }
    *out = &k->base;
    return ECH_OK;
}

static ech_status alloc(ech__exchange *exchange, int64_t bytes, void **out)
{
    return ech__comm_alloc(of(exchange)->comm, bytes, out);
}

static void free_shared(ech__exchange *exchange, void *ptr)
{
    ech__comm_free(of(exchange)->comm, ptr);
}

static ech_status progress(ech__exchange *exchange)
{
    return ech__comm_progress(of(exchange)->comm);
}

static int by_start(const void *a, const void *b)
{
    const ech__span *x = a, *y = b;
    return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

static ech__spans transfers(ech__exchange *exchange)
{
    ech__ranks *ranks = of(exchange);
    const ech__spans moved = {ranks->moving, ranks->nmoving};
    qsort(ranks->moving, ranks->nmoving, sizeof ranks->moving[0], by_start);
    ranks->nmoving = 0;
    return moved;
}

static const ech__exchange_ops exchange_ops = {alloc, free_shared, create, progress, transfers};

ech_status ech__ranks_create(ech__comm *comm, ech__ranks **out)
{
    ech__ranks *ranks = *out = ech__new(comm->ctx, sizeof *ranks);
    if (!ranks)
        return ech__no_memory(comm->ctx, "the exchange with other ranks");
    ranks->base = (ech__exchange){&exchange_ops, comm->rank, comm->world};
    ranks->comm = comm;
    return ECH_OK;
}

void ech__ranks_destroy(ech__ranks *ranks)
{
    if (ranks)
        ech__delete(ranks->comm->ctx, ranks, sizeof *ranks);
}

ech__exchange *ech__ranks_exchange(ech__ranks *ranks)
{
    return ranks ? &ranks->base : NULL;
}
