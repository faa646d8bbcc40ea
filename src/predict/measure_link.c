/* Measures what it costs to move memory between devices of this machine, in the state in which training leaves it: each device
 * has just written its own, and uses it again afterwards. Cores fetch from each other what the other one has changed, so the
 * exchange is not over when it has returned: what comes next takes longer. */
#include "base/system/clock.h"
#include "comm/collective/reduce.h"
#include "device/device.h"
#include "parallel/dp/dp.h"
#include "predict/measure.h"

#include <stdatomic.h>
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
        return ech__fail(comm->ctx, ECH_E_LIMIT, "a link is measured with 2 ranks, not %d",
                         comm->world);
    ECH_TRY(ech__comm_alloc(comm, RANK_SIZES[sizes - 1], &at));
    ech_status status = ECH_OK;
    for (int i = 0; i < sizes && status == ECH_OK; i++) {
        const int64_t count = RANK_SIZES[i] / (int64_t)sizeof(float);
        exchange_times with = {0}, without = {0};
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

/* Memory as a step of DataParallel uses it: device 0 copies its weights to the second device; both read theirs and write their
 * gradients; device 0 adds up gradients and changes its weights by them. */
typedef struct copying {
    ech_ctx *ctx;
    ech__device *first, *second;
    float *weights[2], *gradients[2];
    int64_t count;
    bool exchange; /* else each device uses its own memory only */
    int64_t copy_ns, add_ns, read_ns, write_ns;
    volatile float sink[2];
} copying;

static ech_status copy_weights(void *arg)
{
    copying *c = arg;
    const int64_t start = ech__clock_wall();
    if (c->exchange)
        memcpy(c->weights[1], c->weights[0], (size_t)c->count * sizeof *c->weights[0]);
    c->copy_ns = ech__clock_wall() - start;
    return ECH_OK;
}

static ech_status use_first(void *arg)
{
    copying *c = arg;
    c->sink[0] = read_all(c->weights[0], c->count);
    fill(c->gradients[0], c->count);
    return ECH_OK;
}

static ech_status use_second(void *arg)
{
    copying *c = arg;
    const int64_t start = ech__clock_wall();
    c->sink[1] = read_all(c->weights[1], c->count);
    const int64_t read = ech__clock_wall();
    fill(c->gradients[1], c->count);
    c->write_ns = ech__clock_wall() - read;
    c->read_ns = read - start;
    return ECH_OK;
}

static void add_to(float *sum, const float *terms, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sum[i] += terms[i];
}

static ech_status add_and_update(void *arg)
{
    copying *c = arg;
    const int64_t start = ech__clock_wall();
    if (c->exchange) /* as parallel/dp/step.c does */
        ECH_TRY(ech__reduce(c->ctx, ECH__REDUCTION_SUM, ECH_F32, c->count,
                            (const void *[]){c->gradients[0], c->gradients[1]}, 2,
                            (void *[]){c->gradients[0]}, 1, 1));
    c->add_ns = ech__clock_wall() - start;
    add_to(c->weights[0], c->gradients[0], c->count);
    return ECH_OK;
}

static ech_status copy_once(copying *c, bool exchange)
{
    c->exchange = exchange;
    ECH_TRY(c->first->ops->call(c->first, copy_weights, c));
    c->second->ops->start(c->second, use_second, c);
    const ech_status mine = c->first->ops->call(c->first, use_first, c);
    const ech_status theirs = c->second->ops->finish(c->second);
    ECH_TRY(mine);
    ECH_TRY(theirs);
    return c->first->ops->call(c->first, add_and_update, c);
}

typedef struct copy_times {
    double copy, add, fetch, rewrite;
} copy_times;

static double median_from_0(double *samples)
{
    const double median = ech__stats_of(samples, REPEATS).median;
    return median > 0 ? median : 0;
}

/* How much longer the second device takes to read and to write where there was an exchange is what comes after it. */
static ech_status time_copies(copying *c, copy_times *out)
{
    double copy[REPEATS], add[REPEATS], fetch[REPEATS], rewrite[REPEATS];
    for (int i = -1; i < REPEATS; i++) {
        ECH_TRY(
            copy_once(c, true)); /* what it reads was copied now, what it writes was added before */
        const copying first = *c;
        ECH_TRY(copy_once(c, true));
        const copying with = *c;
        ECH_TRY(copy_once(c, false));
        ECH_TRY(copy_once(c, false));
        if (i < 0)
            continue;
        copy[i] = ech__seconds(first.copy_ns + with.copy_ns) / 2;
        add[i] = ech__seconds(first.add_ns + with.add_ns) / 2;
        fetch[i] = ech__seconds(with.read_ns - c->read_ns);
        rewrite[i] = ech__seconds(with.write_ns - c->write_ns);
    }
    *out = (copy_times){median_from_0(copy), median_from_0(add), median_from_0(fetch),
                        median_from_0(rewrite)};
    return ECH_OK;
}

/* ---- handing jobs over ---- */

/* A step of DataParallel is a job of device 0, which works alone and then twice starts one on the others and does its own part meanwhile.
 * All of it lasts long enough for who waits to fall asleep; what is found to be taken besides does not depend on how long that is. */
enum { PART_NS = 1000 * 1000, HAND_OVERS = 40 };

typedef struct hand_over {
    ech__device *second;
    atomic_bool done;
    int64_t start_ns, part_ns[2], end_ns;
} hand_over;

static ech_status work_a_part(void *arg)
{
    hand_over *h = arg;
    const int64_t start = ech__clock_wall();
    while (ech__clock_wall() - start < PART_NS) {}
    if (h)
        atomic_store(&h->done, true);
    return ECH_OK;
}

static ech_status work_together(void *arg)
{
    hand_over *h = arg;
    h->start_ns = ech__clock_wall();
    work_a_part(NULL);
    for (int i = 0; i < 2; i++) {
        const int64_t start = ech__clock_wall();
        atomic_store(&h->done, false);
        h->second->ops->start(h->second, work_a_part, h);
        work_a_part(NULL);
        while (!atomic_load(&h->done)) { /* as parallel/dp/step.c waits */
        }
        ECH_TRY(h->second->ops->finish(h->second));
        h->part_ns[i] = ech__clock_wall() - start;
    }
    h->end_ns = ech__clock_wall();
    return ECH_OK;
}

static ech_status time_hand_overs(ech__costs *costs, ech__device *first, ech__device *second)
{
    ech__machine_costs *m = ech__costs_machine(costs);
    double steps[HAND_OVERS], parts[HAND_OVERS];
    for (int i = -2; i < HAND_OVERS; i++) {
        hand_over h = {.second = second};
        const int64_t start = ech__clock_wall();
        ECH_TRY(first->ops->call(first, work_together, &h));
        if (i < 0)
            continue;
        steps[i] = ech__seconds(ech__clock_wall() - start - (h.end_ns - h.start_ns));
        parts[i] = ech__seconds(h.part_ns[0] + h.part_ns[1] - 2 * PART_NS) / 2;
    }
    m->step_job_s = ech__stats_of(steps, HAND_OVERS).median;
    m->part_job_s = ech__stats_of(parts, HAND_OVERS).median;
    return ECH_OK;
}

static ech_status time_sizes(ech__costs *costs, copying *c)
{
    const int sizes = sizeof COPY_SIZES / sizeof *COPY_SIZES;
    ech__size_costs copy = {.count = sizes}, add = copy, fetch = copy, rewrite = copy;
    for (int i = 0; i < sizes; i++) {
        copy_times times;
        c->count = COPY_SIZES[i] / (int64_t)sizeof *c->weights[0];
        copy.bytes[i] = add.bytes[i] = fetch.bytes[i] = rewrite.bytes[i] = COPY_SIZES[i];
        ECH_TRY(time_copies(c, &times));
        copy.seconds[i] = times.copy;
        add.seconds[i] = times.add;
        fetch.seconds[i] = times.fetch;
        rewrite.seconds[i] = times.rewrite;
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
    copying c = {.ctx = ctx};
    ech_status status = ech__dp_open_device(ctx, 0, 2, &options, &c.first);
    if (status == ECH_OK)
        status = ech__dp_open_device(ctx, 1, 2, &options, &c.second);
    for (int d = 0; d < 2 && status == ECH_OK; d++) {
        ech__device *device = d ? c.second : c.first;
        status = device->ops->alloc(device, most, (void **)&c.weights[d]);
        if (status == ECH_OK)
            status = device->ops->alloc(device, most, (void **)&c.gradients[d]);
    }
    if (status == ECH_OK)
        status = time_sizes(costs, &c);
    if (status == ECH_OK)
        status = time_hand_overs(costs, c.first, c.second);
    for (int d = 0; d < 2; d++) {
        ech__device *device = d ? c.second : c.first;
        if (c.weights[d])
            device->ops->free(device, c.weights[d], most);
        if (c.gradients[d])
            device->ops->free(device, c.gradients[d], most);
    }
    ech__device_destroy(c.second);
    ech__device_destroy(c.first);
    return status;
}
