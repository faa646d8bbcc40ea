/* Measures what it costs to move memory between devices of this machine, in the state in which training leaves it: each device
 * has just written its own, and uses it again afterwards. Cores fetch from each other what the other one has changed, so the
 * exchange is not over when it has returned: what comes next takes longer. */
#include "base/clock.h"
#include "device/device.h"
#include "parallel/dp.h"
#include "train/costs.h"

#include <string.h>

enum { REPEATS = 9 };

static void fill(float *at, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        at[i] = (float)(i & 15);
}

/* The sum is of no interest, but must be made. */
static float read_all(const float *at, int64_t count)
{
    float sum[16] = {0};
    for (int64_t i = 0; i + 16 <= count; i += 16) {
        for (int k = 0; k < 16; k++)
            sum[k] += at[i + k];
    }
    float all = 0;
    for (int k = 0; k < 16; k++)
        all += sum[k];
    return all;
}

/* ---- between ranks ---- */

static const int64_t RANK_SIZES[] = {4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
_Static_assert(sizeof RANK_SIZES / sizeof *RANK_SIZES <= ECH__COSTS_SIZES, "room for all sizes");

typedef struct exchange_times {
    double all, reduce; /* seconds */
} exchange_times;

static ech_status exchange_once(ech__comm *comm, float *at, int64_t count, bool exchange,
                                exchange_times *out)
{
    const ech__coll sum = {.op = ECH__COLL_ALLREDUCE,
                           .reduction = ECH__REDUCTION_SUM,
                           .dtype = ECH_F32,
                           .count = count,
                           .src = at,
                           .dst = at};
    uint64_t ticket;
    volatile float sink;
    ECH_TRY(ech__comm_barrier(comm));
    const int64_t start = ech__clock_wall();
    fill(at, count);
    const int64_t ready = ech__clock_wall();
    if (exchange) {
        ECH_TRY(ech__comm_start(comm, &sum, &ticket));
        ECH_TRY(ech__comm_wait(comm, ticket, NULL));
    }
    const int64_t done = ech__clock_wall();
    sink = read_all(at, count);
    (void)sink;
    *out = (exchange_times){ech__seconds(ech__clock_wall() - start), ech__seconds(done - ready)};
    return ECH_OK;
}

/* Medians over the repeats, of the slower rank. */
static ech_status time_exchange(ech__comm *comm, float *at, int64_t count, bool exchange,
                                exchange_times *out)
{
    double all[REPEATS], reduce[REPEATS];
    for (int i = -2; i < REPEATS; i++) {
        exchange_times mine, each[64];
        ECH_TRY(exchange_once(comm, at, count, exchange, &mine));
        ECH_TRY(ech__comm_allgather(comm, &mine, each, (int64_t)sizeof mine));
        for (int r = 0; r < comm->world; r++) {
            mine.all = each[r].all > mine.all ? each[r].all : mine.all;
            mine.reduce = each[r].reduce > mine.reduce ? each[r].reduce : mine.reduce;
        }
        if (i >= 0) {
            all[i] = mine.all;
            reduce[i] = mine.reduce;
        }
    }
    *out =
        (exchange_times){ech__stats_of(all, REPEATS).median, ech__stats_of(reduce, REPEATS).median};
    return ECH_OK;
}

ech_status ech__costs_measure_link(ech__costs *costs, ech__comm *comm)
{
    const int sizes = sizeof RANK_SIZES / sizeof *RANK_SIZES;
    ech__machine_costs *m = ech__costs_machine(costs);
    ech__size_costs reduce = {.count = sizes}, whole = {.count = sizes};
    void *at;
    if (comm->world > 64)
        return ech__fail(comm->ctx, ECH_E_LIMIT, "%d ranks measure a link: 2 do", comm->world);
    ECH_TRY(ech__comm_alloc(comm, RANK_SIZES[sizes - 1], &at));
    ech_status status = ECH_OK;
    for (int i = 0; i < sizes && status == ECH_OK; i++) {
        const int64_t count = RANK_SIZES[i] / (int64_t)sizeof(float);
        exchange_times with, without;
        status = time_exchange(comm, at, count, true, &with);
        if (status == ECH_OK)
            status = time_exchange(comm, at, count, false, &without);
        if (status < 0)
            break;
        reduce.bytes[i] = whole.bytes[i] = RANK_SIZES[i];
        reduce.seconds[i] = with.reduce;
        whole.seconds[i] =
            with.all - without.all > with.reduce ? with.all - without.all : with.reduce;
    }
    ech__comm_free(comm, at);
    m->allreduce = reduce;
    m->exchange = whole;
    return status;
}

/* ---- between devices of one process ---- */

static const int64_t COPY_SIZES[] = {16 << 10, 256 << 10, 2 << 20, 8 << 20, 16 << 20, 64 << 20};
_Static_assert(sizeof COPY_SIZES / sizeof *COPY_SIZES <= ECH__COSTS_SIZES, "room for all sizes");

typedef struct copying {
    ech__device *first, *second;
    float *mine, *theirs;
    int64_t count;
    int64_t ns;
    volatile float sink;
} copying;

static ech_status write_theirs(void *arg)
{
    copying *c = arg;
    const int64_t start = ech__clock_wall();
    fill(c->theirs, c->count);
    c->ns = ech__clock_wall() - start;
    return ECH_OK;
}

static ech_status read_theirs(void *arg)
{
    copying *c = arg;
    const int64_t start = ech__clock_wall();
    c->sink = read_all(c->theirs, c->count);
    c->ns = ech__clock_wall() - start;
    return ECH_OK;
}

static ech_status copy_mine(void *arg)
{
    copying *c = arg;
    const int64_t start = ech__clock_wall();
    memcpy(c->theirs, c->mine, (size_t)c->count * sizeof *c->mine);
    c->ns = ech__clock_wall() - start;
    return ECH_OK;
}

static ech_status add_theirs(void *arg)
{
    copying *c = arg;
    const int64_t start = ech__clock_wall();
    for (int64_t i = 0; i < c->count; i++)
        c->mine[i] += c->theirs[i];
    c->ns = ech__clock_wall() - start;
    return ECH_OK;
}

/* The first device does something to the second one's memory, which this one then uses twice: how much longer it takes for the
 * first time is what comes after. */
static ech_status time_job(copying *c, ech_status (*job)(void *arg), ech_status (*use)(void *arg),
                           double *during, double *after)
{
    double jobs[REPEATS], uses[REPEATS];
    for (int i = -1; i < REPEATS; i++) {
        ECH_TRY(c->second->ops->call(c->second, use, c));
        ECH_TRY(c->first->ops->call(c->first, job, c));
        const double took = ech__seconds(c->ns);
        ECH_TRY(c->second->ops->call(c->second, use, c));
        const double cold = ech__seconds(c->ns);
        ECH_TRY(c->second->ops->call(c->second, use, c));
        if (i >= 0) {
            jobs[i] = took;
            uses[i] = cold - ech__seconds(c->ns);
        }
    }
    *during = ech__stats_of(jobs, REPEATS).median;
    *after = ech__stats_of(uses, REPEATS).median;
    if (*after < 0)
        *after = 0;
    return ECH_OK;
}

static ech_status time_sizes(ech__costs *costs, copying *c)
{
    const int sizes = sizeof COPY_SIZES / sizeof *COPY_SIZES;
    ech__size_costs copy = {.count = sizes}, add = copy, fetch = copy, rewrite = copy;
    for (int i = 0; i < sizes; i++) {
        c->count = COPY_SIZES[i] / (int64_t)sizeof *c->mine;
        copy.bytes[i] = add.bytes[i] = fetch.bytes[i] = rewrite.bytes[i] = COPY_SIZES[i];
        ECH_TRY(time_job(c, copy_mine, read_theirs, &copy.seconds[i], &fetch.seconds[i]));
        ECH_TRY(time_job(c, add_theirs, write_theirs, &add.seconds[i], &rewrite.seconds[i]));
    }
    ech__machine_costs *m = ech__costs_machine(costs);
    m->copy = copy;
    m->add = add;
    m->fetch = fetch;
    m->rewrite = rewrite;
    return ECH_OK;
}

ech_status ech__costs_measure_copies(ech_ctx *ctx, ech__costs *costs)
{
    const int64_t most = COPY_SIZES[sizeof COPY_SIZES / sizeof *COPY_SIZES - 1];
    const ech__device_options options = {.kind = ECH__DEVICE_CPU, .threads = 1};
    copying c = {.first = NULL};
    ech_status status = ech__dp_open_device(ctx, 0, 2, &options, &c.first);
    if (status == ECH_OK)
        status = ech__dp_open_device(ctx, 1, 2, &options, &c.second);
    if (status == ECH_OK)
        status = c.first->ops->alloc(c.first, most, (void **)&c.mine);
    if (status == ECH_OK)
        status = c.second->ops->alloc(c.second, most, (void **)&c.theirs);
    if (status == ECH_OK)
        status = time_sizes(costs, &c);
    if (c.theirs)
        c.second->ops->free(c.second, c.theirs, most);
    if (c.mine)
        c.first->ops->free(c.first, c.mine, most);
    ech__device_destroy(c.second);
    ech__device_destroy(c.first);
    return status;
}
