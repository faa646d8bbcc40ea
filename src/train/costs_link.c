/* Measures what it costs to move memory between devices of this machine. */
#include "base/clock.h"
#include "comm/bench.h"
#include "device/device.h"
#include "parallel/dp.h"
#include "train/costs.h"

#include <string.h>

/* ---- between ranks ---- */

static void note_row(void *user, const ech__bench_row *row)
{
    ech__size_costs *c = user;
    if (c->count == ECH__COSTS_SIZES || row->time_s <= 0)
        return;
    c->bytes[c->count] = row->bytes;
    c->seconds[c->count++] = row->time_s;
}

ech_status ech__costs_measure_link(ech__costs *costs, ech__comm *comm)
{
    ech__bench_config config = ech__bench_defaults();
    ech__size_costs sizes = {0};
    config.op = ECH__BENCH_ALLREDUCE;
    config.in_place = true;
    config.min_bytes = 4 << 10;
    config.max_bytes = 64 << 20;
    config.factor = 16; /* 4 KiB, 64 KiB, 1 MiB, 16 MiB, and one more below */
    ECH_TRY(ech__bench_comm(comm, &config, note_row, &sizes));
    config.min_bytes = config.max_bytes;
    ECH_TRY(ech__bench_comm(comm, &config, note_row, &sizes));
    ech__costs_machine(costs)->allreduce = sizes;
    return ECH_OK;
}

/* ---- between devices of one process ---- */

enum { REPEATS = 7 };
static const int64_t SIZES[] = {16 << 10, 256 << 10, 2 << 20, 16 << 20, 64 << 20};

typedef struct copying {
    float *mine, *theirs;
    int64_t count;
    int64_t ns;
} copying;

/* The other device has just written what is to be copied from or to. */
static ech_status use_theirs(void *arg)
{
    copying *c = arg;
    for (int64_t i = 0; i < c->count; i++)
        c->theirs[i] = (float)i;
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

static ech_status time_job(ech__device *first, ech__device *second, copying *c,
                           ech_status (*job)(void *arg), double *out)
{
    double samples[REPEATS];
    for (int i = -1; i < REPEATS; i++) {
        ECH_TRY(second->ops->call(second, use_theirs, c));
        ECH_TRY(first->ops->call(first, job, c));
        if (i >= 0)
            samples[i] = ech__seconds(c->ns);
    }
    *out = ech__stats_of(samples, REPEATS).median;
    return ECH_OK;
}

static ech_status time_sizes(ech__costs *costs, ech__device *first, ech__device *second, copying *c)
{
    ech__size_costs copy = {0}, add = {0};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        c->count = SIZES[i] / (int64_t)sizeof *c->mine;
        copy.bytes[i] = add.bytes[i] = SIZES[i];
        ECH_TRY(time_job(first, second, c, copy_mine, &copy.seconds[i]));
        ECH_TRY(time_job(first, second, c, add_theirs, &add.seconds[i]));
        copy.count = add.count = (int)i + 1;
    }
    ech__costs_machine(costs)->copy = copy;
    ech__costs_machine(costs)->add = add;
    return ECH_OK;
}

ech_status ech__costs_measure_copies(ech_ctx *ctx, ech__costs *costs)
{
    const int64_t most = SIZES[sizeof SIZES / sizeof *SIZES - 1];
    const ech__device_options options = {.kind = ECH__DEVICE_CPU, .threads = 1};
    ech__device *first = NULL, *second = NULL;
    copying c = {0};
    ech_status status = ech__dp_open_device(ctx, 0, 2, &options, &first);
    if (status == ECH_OK)
        status = ech__dp_open_device(ctx, 1, 2, &options, &second);
    if (status == ECH_OK)
        status = first->ops->alloc(first, most, (void **)&c.mine);
    if (status == ECH_OK)
        status = second->ops->alloc(second, most, (void **)&c.theirs);
    if (status == ECH_OK)
        status = time_sizes(costs, first, second, &c);
    if (c.theirs)
        second->ops->free(second, c.theirs, most);
    if (c.mine)
        first->ops->free(first, c.mine, most);
    ech__device_destroy(second);
    ech__device_destroy(first);
    return status;
}
