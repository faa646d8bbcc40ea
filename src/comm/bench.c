#include "comm/bench.h"

#include "base/names.h"
#include "base/size.h"
#include "base/stats.h"
#include "base/system/clock.h"
#include "base/system/cpus.h"
#include "base/system/turns.h"
#include "comm/bench_data.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ROOT = 0, PROBES = 4, MAX_BATCH = 128 };
/* Shorter than this, and the clock and the barrier before it would be seen in a sample. */
static const double batch_s = 200e-6;

ECH__NAMES(ech__bench_op_name, ech__bench_op, ECH__BENCH_OP_LIST)

bool ech__bench_op_reduces(ech__bench_op op)
{
    return op == ECH__BENCH_ALLREDUCE || op == ECH__BENCH_REDUCE_SCATTER;
}

ech__bench_config ech__bench_defaults(void)
{
    return (ech__bench_config){.op = ECH__BENCH_ALLREDUCE,
                               .reduction = ECH__REDUCTION_SUM,
                               .dtype = ECH_F32,
                               .in_place = true,
                               .min_bytes = 4 << 10,
                               .max_bytes = 64 << 20,
                               .factor = 2,
                               .warmup = 5,
                               .iters = 20};
}

/* ---- sizes ---- */

/* A size in bytes counts the parts of all ranks. */
static bool counts_all(ech__bench_op op)
{
    return op == ECH__BENCH_REDUCE_SCATTER || op == ECH__BENCH_ALLGATHER;
}

static bool in_place(const ech__bench_config *c)
{
    return c->op == ECH__BENCH_ALLREDUCE && c->in_place;
}

static double bus_factor(ech__bench_op op, int world)
{
    const double n = world;
    if (op == ECH__BENCH_ALLREDUCE)
        return 2 * (n - 1) / n;
    return counts_all(op) ? (n - 1) / n : 1;
}

/* What one op at one size works on. */
typedef struct job {
    ech__comm *comm;
    const ech__bench_config *config;
    int64_t count;        /* of the ech__coll */
    int64_t bytes;        /* that the size is called */
    int64_t srcs, dsts;   /* elements of src and dst; 0: not used */
    char *src, *dst;      /* the same in place */
    int64_t buffer_bytes; /* of each of src and dst, for the largest size */
    double *own, *all;    /* samples: [iters] and [world][iters] */
} job;

/* Elements for a size; buffers are not touched. */
static void set_size(job *j, int64_t bytes)
{
    const ech__bench_op op = j->config->op;
    const int64_t parts = counts_all(op) ? j->comm->world : 1;
    const int64_t unit = parts * ech__dtype_bytes(j->config->dtype);
    j->count = op == ECH__BENCH_BARRIER ? 0 : bytes < unit ? 1 : bytes / unit;
    j->bytes = j->count * unit;
    j->srcs = op == ECH__BENCH_BROADCAST   ? 0
              : op == ECH__BENCH_ALLGATHER ? j->count
                                           : j->count * parts;
    j->dsts = op == ECH__BENCH_REDUCE_SCATTER ? j->count : j->count * parts;
}

/* Of one buffer, for the largest size. */
static int64_t buffer_bytes(const ech__bench_config *config, int world)
{
    const int64_t least = (int64_t)world * ech__dtype_bytes(config->dtype);
    return config->max_bytes > least ? config->max_bytes : least;
}

/* A broadcast and what is done in place have one. */
static int buffers(const ech__bench_config *config)
{
    if (config->op == ECH__BENCH_BARRIER)
        return 0;
    return in_place(config) || config->op == ECH__BENCH_BROADCAST ? 1 : 2;
}

bool ech__bench_bytes(const ech__bench_config *config, int world, int64_t *out)
{
    return ech__mul(buffers(config), buffer_bytes(config, world), out);
}

/* ---- buffers ---- */

static size_t sample_bytes(const job *j)
{
    return (size_t)j->config->iters * sizeof(double);
}

static void drop_buffers(job *j)
{
    if (in_place(j->config)) {
        ech__comm_free(j->comm, j->dst);
    } else {
        ech__delete(j->comm->ctx, j->src, (size_t)j->buffer_bytes);
        ech__delete(j->comm->ctx, j->dst, (size_t)j->buffer_bytes);
    }
    ech__delete(j->comm->ctx, j->own, sample_bytes(j));
    ech__delete(j->comm->ctx, j->all, sample_bytes(j) * (size_t)j->comm->world);
    j->src = j->dst = NULL;
    j->own = j->all = NULL;
}

/* Drops what it made where something is missing. */
static ech_status make_buffers(job *j)
{
    ech_ctx *ctx = j->comm->ctx;
    const int wanted = buffers(j->config);
    j->buffer_bytes = buffer_bytes(j->config, j->comm->world);
    if (in_place(j->config)) {
        void *shared;
        ECH_TRY(ech__comm_alloc(j->comm, j->buffer_bytes, &shared));
        j->src = j->dst = shared;
    } else {
        j->dst = wanted > 0 ? ech__new(ctx, (size_t)j->buffer_bytes) : NULL;
        j->src = wanted > 1 ? ech__new(ctx, (size_t)j->buffer_bytes) : NULL;
    }
    j->own = ech__new(ctx, sample_bytes(j));
    j->all = ech__new(ctx, sample_bytes(j) * (size_t)j->comm->world);
    if ((j->dst || wanted < 1) && (j->src || wanted < 2) && j->own && j->all)
        return ECH_OK;
    drop_buffers(j);
    return ech__no_memory(ctx, "%d x %lld bytes of %s", wanted, (long long)j->buffer_bytes,
                          ech__bench_op_name(j->config->op));
}

/* ---- running ---- */

/* Even ranks send first and odd ones receive first, so that somebody always takes what is sent. */
static ech_status run_ring(const job *j)
{
    const int rank = j->comm->rank, world = j->comm->world;
    ech__coll both[2] = {{.op = ECH__COLL_SEND, .peer = (rank + 1) % world, .src = j->src},
                         {.op = ECH__COLL_RECV, .peer = (rank + world - 1) % world, .dst = j->dst}};
    for (int k = 0; k < 2; k++) {
        ech__coll *coll = &both[k ^ (rank & 1)];
        coll->dtype = j->config->dtype;
        coll->count = j->count;
        ECH_TRY(ech__comm_run(j->comm, coll));
    }
    return ECH_OK;
}

static ech_status run_once(const job *j)
{
    static const ech__coll_op colls[ECH__BENCH_COUNT] = {
        [ECH__BENCH_ALLREDUCE] = ECH__COLL_ALLREDUCE,
        [ECH__BENCH_REDUCE_SCATTER] = ECH__COLL_REDUCE_SCATTER,
        [ECH__BENCH_ALLGATHER] = ECH__COLL_ALLGATHER,
        [ECH__BENCH_BROADCAST] = ECH__COLL_BROADCAST,
        [ECH__BENCH_BARRIER] = ECH__COLL_BARRIER};
    if (j->config->op == ECH__BENCH_SENDRECV)
        return run_ring(j);
    const ech__coll coll = {.op = colls[j->config->op],
                            .reduction = j->config->reduction,
                            .dtype = j->config->dtype,
                            .count = j->count,
                            .src = j->src,
                            .dst = j->dst,
                            .peer = ROOT};
    if (!in_place(j->config))
        return ech__comm_run(j->comm, &coll);
    uint64_t ticket;
    ECH_TRY(ech__comm_start(j->comm, &coll, &ticket));
    return ech__comm_wait(j->comm, ticket, NULL);
}

/* Seconds of one run on this rank, over a batch of them that all ranks begin together. */
static ech_status time_batch(const job *j, int64_t batch, double *seconds)
{
    ECH_TRY(ech__comm_barrier(j->comm));
    const int64_t start = ech__clock_wall();
    for (int64_t k = 0; k < batch; k++)
        ECH_TRY(run_once(j));
    *seconds = ech__seconds(ech__clock_wall() - start) / (double)batch;
    return ECH_OK;
}

/* Rank 0 decides from a few runs how many make a batch. */
static ech_status choose_batch(const job *j, int64_t *batch)
{
    double seconds;
    ECH_TRY(time_batch(j, PROBES, &seconds));
    const double fit = batch_s / (seconds > 1e-9 ? seconds : 1e-9);
    *batch = fit < 1 ? 1 : fit > MAX_BATCH ? MAX_BATCH : (int64_t)fit;
    return ech__comm_broadcast(j->comm, batch, sizeof *batch, 0);
}

/* own: [iters] of this rank; all: room for [world][iters]. The slowest rank's are put into own,
 * sorted. */
static ech_status take_slowest(ech__comm *comm, double *own, double *all, int iters, double *median)
{
    ECH_TRY(ech__comm_allgather(comm, own, all, (int64_t)iters * (int64_t)sizeof *own));
    for (int rank = 0; rank < comm->world; rank++)
        for (int i = 0; i < iters; i++)
            if (all[(int64_t)rank * iters + i] > own[i])
                own[i] = all[(int64_t)rank * iters + i];
    *median = ech__stats_of(own, (size_t)iters).median;
    return ECH_OK;
}

/* As an arm of a comparison: until that is over. The other ranks wait for rank 0 in the barrier of
 * a batch. */
static ech_status take_turns(const job *j, int64_t batch)
{
    ech__turns *turns = NULL;
    ech_status status =
        j->comm->rank == 0 ? ech__turns_open(j->comm->ctx, "measured", &turns) : ECH_OK;
    while (status == ECH_OK) {
        double seconds;
        status = time_batch(j, batch, &seconds);
        if (status == ECH_OK)
            status = ech__turns_step(turns, seconds);
    }
    ech__turns_close(turns);
    return status;
}

static ech_status measure_time(const job *j, double *median)
{
    const int iters = j->config->iters;
    for (int k = 0; k < j->config->warmup; k++)
        ECH_TRY(run_once(j));
    int64_t batch;
    ECH_TRY(choose_batch(j, &batch));
    if (ech__turns_wanted())
        return take_turns(j, batch);
    for (int i = 0; i < iters; i++)
        ECH_TRY(time_batch(j, batch, &j->own[i]));
    return take_slowest(j->comm, j->own, j->all, iters, median);
}

/* ---- checking ---- */

/* What element i of this rank's dst must become. */
static float expected(const job *j, int64_t i)
{
    const int rank = j->comm->rank, world = j->comm->world;
    switch (j->config->op) {
    case ECH__BENCH_ALLREDUCE:
        return ech__bench_reduced(j->config->reduction, world, i);
    case ECH__BENCH_REDUCE_SCATTER:
        return ech__bench_reduced(j->config->reduction, world, rank * j->count + i);
    case ECH__BENCH_ALLGATHER:
        return ech__bench_value((int)(i / j->count), world, i % j->count);
    case ECH__BENCH_BROADCAST:
        return ech__bench_value(ROOT, world, i);
    default:
        return ech__bench_value((rank + world - 1) % world, world, i);
    }
}

static void fill(const job *j)
{
    const int rank = j->comm->rank, world = j->comm->world;
    const ech_dtype dtype = j->config->dtype;
    /* Bytes that no element has, so that what is never written is seen. */
    if (j->dst)
        memset(j->dst, 0xff, (size_t)(j->dsts * ech__dtype_bytes(dtype)));
    for (int64_t i = 0; i < j->srcs; i++)
        ech__bench_store(dtype, j->src, i, ech__bench_value(rank, world, i));
    if (j->config->op == ECH__BENCH_BROADCAST && rank == ROOT)
        for (int64_t i = 0; i < j->dsts; i++)
            ech__bench_store(dtype, j->dst, i, ech__bench_value(rank, world, i));
}

/* One run on known data; *wrong is counted over all ranks. */
static ech_status count_wrong(const job *j, int64_t *wrong)
{
    ech_ctx *ctx = j->comm->ctx;
    const int world = j->comm->world;
    int64_t own = 0;
    fill(j);
    ECH_TRY(run_once(j));
    for (int64_t i = 0; i < j->dsts; i++)
        own += !ech__bench_holds(j->config->dtype, j->dst, i, expected(j, i));
    const size_t bytes = (size_t)world * sizeof own;
    int64_t *all = ech__new(ctx, bytes);
    if (!all)
        return ech__no_memory(ctx, "the errors of %d ranks", world);
    const ech_status status = ech__comm_allgather(j->comm, &own, all, sizeof own);
    *wrong = 0;
    for (int rank = 0; rank < world; rank++)
        *wrong += all[rank];
    ech__delete(ctx, all, bytes);
    return status;
}

/* ---- all sizes ---- */

static ech_status measure_size(job *j, int64_t bytes, ech__bench_row *row)
{
    const ech__bench_config *c = j->config;
    set_size(j, bytes);
    *row = (ech__bench_row){.op = c->op,
                            .ranks = j->comm->world,
                            .in_place = in_place(c),
                            .reduction = c->reduction,
                            .dtype = c->dtype,
                            .bytes = j->bytes,
                            .count = j->count};
    /* Sums in place would grow from run to run, out of the range of whole numbers; zeros do not. */
    if (in_place(c))
        memset(j->dst, 0, (size_t)j->bytes);
    ECH_TRY(measure_time(j, &row->time_s));
    row->samples_s = j->own;
    row->iters = c->iters;
    ECH_TRY(count_wrong(j, &row->wrong));
    if (row->time_s > 0)
        row->algbw_gbs = (double)row->bytes / row->time_s * 1e-9;
    row->busbw_gbs = row->algbw_gbs * bus_factor(c->op, j->comm->world);
    return ECH_OK;
}

static ech_status check(ech__comm *comm, const ech__bench_config *c)
{
    char text[512];
    snprintf(text, sizeof text,
             "op: %s\nreduction: %s\ntype: %s\nin place: %d\nsmallest size: %lld\nlargest size: "
             "%lld\nfactor: %lld\nwarm-up: %d\niterations: %d\n",
             ech__bench_op_name(c->op), ech__reduction_name(c->reduction),
             ech__dtype_name(c->dtype), c->in_place, (long long)c->min_bytes,
             (long long)c->max_bytes, (long long)c->factor, c->warmup, c->iters);
    ECH_TRY(ech__comm_agree(comm, text));
    if (c->min_bytes < 1 || c->max_bytes < c->min_bytes)
        return ech__fail(comm->ctx, ECH_E_INVALID, "no sizes from %lld to %lld",
                         (long long)c->min_bytes, (long long)c->max_bytes);
    if (c->factor < 2 || c->warmup < 0 || c->iters < 1 || c->iters > ECH__BENCH_MAX_ITERS)
        return ech__fail(
            comm->ctx, ECH_E_INVALID,
            "factor %lld, %d warm-up runs, %d iterations: the factor must be 2 or more, "
            "iterations 1 to %d",
            (long long)c->factor, c->warmup, c->iters, ECH__BENCH_MAX_ITERS);
    if (c->op == ECH__BENCH_SENDRECV && comm->world < 2)
        return ech__fail(comm->ctx, ECH_E_INVALID, "sendrecv needs at least 2 ranks, got %d",
                         comm->world);
    if (ech__bench_op_reduces(c->op) && c->reduction == ECH__REDUCTION_MEAN && c->dtype == ECH_S32)
        return ech__fail(comm->ctx, ECH_E_UNSUPPORTED, "mean is not supported for s32");
    return ECH_OK;
}

ech_status ech__bench_comm(ech__comm *comm, const ech__bench_config *config,
                           ech__bench_row_fn on_row, void *user)
{
    ECH_TRY(check(comm, config));
    job j = {.comm = comm, .config = config};
    ECH_TRY(make_buffers(&j));
    ech_status status = ECH_OK;
    int64_t last = -1;
    for (int64_t bytes = config->min_bytes; bytes <= config->max_bytes && status >= 0;) {
        ech__bench_row row;
        set_size(&j, bytes);
        if (j.bytes != last) {
            status = measure_size(&j, bytes, &row);
            if (status >= 0)
                on_row(user, &row);
        }
        last = j.bytes;
        if (!ech__mul(bytes, config->factor, &bytes))
            break;
    }
    drop_buffers(&j);
    return status;
}

/* ---- where the ranks run ---- */

typedef struct place {
    char host[64];
    ech__cpus cores;
} place;

static ech__bench_place count_places(place *all, int world)
{
    ech__bench_place out = {0};
    for (int first = 0; first < world; first++) {
        bool seen = false;
        for (int rank = 0; rank < first; rank++)
            seen |= !strcmp(all[rank].host, all[first].host);
        if (seen)
            continue;
        for (int rank = first + 1; rank < world; rank++)
            if (!strcmp(all[rank].host, all[first].host))
                ech__cpus_add_all(&all[first].cores, &all[rank].cores);
        out.hosts++;
        out.cores += ech__cpus_count(&all[first].cores);
    }
    return out;
}

ech_status ech__bench_find(ech__comm *comm, ech__bench_place *out)
{
    place own = {0};
    gethostname(own.host, sizeof own.host - 1);
    ech__cpus_read(&own.cores);
    const size_t bytes = (size_t)comm->world * sizeof own;
    place *all = ech__new(comm->ctx, bytes);
    if (!all)
        return ech__no_memory(comm->ctx, "the places of %d ranks", comm->world);
    const ech_status status = ech__comm_allgather(comm, &own, all, sizeof own);
    if (status >= 0)
        *out = count_places(all, comm->world);
    ech__delete(comm->ctx, all, bytes);
    return status;
}
