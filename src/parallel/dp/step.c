/* A step of DataParallel. Device 0 copies and adds for all devices in jobs of its worker, so that
 * counts as its busy time. */
#include "base/system/clock.h"
#include "comm/collective/reduce.h"
#include "parallel/dp/internal.h"
#include "plan/transfer.h"

#include <assert.h>
#include <string.h>

/* ---- phases ---- */

/* Ends a phase of the whole step, which began where the one before ended. */
static void end_phase(ech__dp *dp, ech__dp_phase phase)
{
    if (phase)
        dp->phases[phase].start_ns = dp->phases[phase - 1].end_ns;
    dp->phases[phase].end_ns = ech__clock_wall();
}

/* The same for what only device 0 does. */
static void end_own_phase(ech__dp *dp, ech__dp_phase phase, int64_t start)
{
    end_phase(dp, phase);
    dp->replicas[0].work.phases[phase] = (ech__span){start, dp->phases[phase].end_ns};
}

/* ---- copies ---- */

static void count(ech__dp_replica *from, ech__dp_replica *to, int64_t bytes)
{
    if (from == to)
        return; /* its own memory */
    from->work.bytes_out += bytes;
    to->work.bytes_in += bytes;
}

/* One value of the whole batch on device 0, row-major. */
typedef struct rows {
    char *whole;
    int64_t row; /* bytes of a sample; 0: the value has no samples */
    int64_t elem, bytes;
} rows;

static rows rows_of(const ech__dp *dp, ech_value v)
{
    const ech__plan *plan = dp->now->plan;
    const ech__value *value = &plan->graph->values[v];
    rows r = {.whole = ech__exec_address(dp->now->exec, v),
              .elem = ech__dtype_bytes(value->type.dtype)};
    int64_t elems = 0;
    ech__shape_elems(&plan->places[v].layout.shape, &elems);
    r.bytes = elems * r.elem;
    if (value->type.shape.ndims && value->type.shape.dims[0] == ECH_BATCH)
        r.row = r.bytes / dp->now->batch;
    return r;
}

/* Rows of a value on device 0 to a device's input; all of it where it has no rows. */
static ech_status send_rows(ech__dp_replica *to, rows from, ech_value input)
{
    ech__dp_replica *first = &to->dp->replicas[0];
    const int64_t bytes = from.row ? from.row * to->now->batch : from.bytes;
    count(first, to, bytes);
    return ech__device_send(to->device, &to->now->plan->places[input].layout, from.elem,
                            bytes / from.elem, ech__exec_address(to->now->exec, input),
                            first->device, from.whole + from.row * to->first);
}

/* ---- jobs of device 0 ---- */

static ech_status scatter_inputs(ech__dp *dp)
{
    const ech__plan *plan = dp->replicas[0].now->plan;
    for (size_t v = 0; v < plan->graph->nvalues; v++) {
        if (plan->graph->values[v].kind != ECH__VALUE_INPUT || !plan->places[v].used ||
            (ech_value)v == dp->model.grad_in)
            continue;
        const rows from = rows_of(dp, (ech_value)v);
        for (int d = 0; d < dp->devices; d++) {
            if (dp->replicas[d].now)
                ECH_TRY(send_rows(&dp->replicas[d], from, (ech_value)v));
        }
    }
    return ECH_OK;
}

static ech_status replicate(ech__dp *dp)
{
    ech__dp_replica *first = &dp->replicas[0];
    int64_t bytes;
    const void *weights = ech__exec_block(first->now->exec, ECH__MEMORY_WEIGHTS, &bytes);
    for (int d = 1; d < dp->devices; d++) {
        ech__dp_replica *r = &dp->replicas[d];
        if (!r->now)
            continue;
        void *own = ech__exec_block(r->now->exec, ECH__MEMORY_WEIGHTS, &bytes);
        ECH_TRY(ech__device_copy(r->device, own, first->device, weights, bytes));
        count(first, r, dp->weight_bytes);
    }
    return ECH_OK;
}

static ech_status hand_out(ech__dp *dp)
{
    const int64_t start = ech__clock_wall();
    ECH_TRY(scatter_inputs(dp));
    end_own_phase(dp, ECH__DP_SCATTER, start);
    ECH_TRY(replicate(dp));
    end_own_phase(dp, ECH__DP_REPLICATE, dp->phases[ECH__DP_SCATTER].end_ns);
    return ECH_OK;
}

static ech_status gather(ech__dp *dp)
{
    const rows to = rows_of(dp, dp->model.prediction);
    for (int d = 0; d < dp->devices; d++) {
        ech__dp_replica *r = &dp->replicas[d];
        if (!r->now)
            continue;
        const int64_t bytes = to.row * r->now->batch;
        ECH_TRY(ech__device_copy(dp->replicas[0].device, to.whole + to.row * r->first, r->device,
                                 ech__exec_address(r->now->exec, dp->model.prediction), bytes));
        count(r, &dp->replicas[0], bytes);
    }
    return ECH_OK;
}

static ech_status compute_loss(ech__dp *dp)
{
    const int64_t start = ech__clock_wall();
    ECH_TRY(gather(dp));
    end_own_phase(dp, ECH__DP_GATHER, start);
    ECH_TRY(ech__exec_run(dp->now->exec, ECH__PHASE_BIT(FORWARD) | ECH__PHASE_BIT(BACKWARD),
                          dp->scalars, NULL));
    end_own_phase(dp, ECH__DP_LOSS, dp->phases[ECH__DP_GATHER].end_ns);
    const rows from = rows_of(dp, dp->model.grad_out);
    for (int d = 0; d < dp->devices; d++) {
        if (dp->replicas[d].now)
            ECH_TRY(send_rows(&dp->replicas[d], from, dp->model.grad_in));
    }
    end_own_phase(dp, ECH__DP_SCATTER_GRADIENT, dp->phases[ECH__DP_LOSS].end_ns);
    return ECH_OK;
}

/* ---- the sum of the gradients ---- */

enum { BLOCK = 64 << 10 }; /* floats that a thread adds up at a time */

/* Where the host cannot touch them: block by block through a buffer, to device 0's. */
static ech_status reduce_staged(ech__dp *dp, ech__dp_replica *const *of, const float *const *terms,
                                int n, int64_t elems)
{
    const size_t bytes = (size_t)n * BLOCK * sizeof(float);
    float *buffer = ech__new(dp->ctx, bytes);
    if (!buffer)
        return ech__no_memory(dp->ctx, "a buffer of %zu bytes", bytes);
    ech_status status = ECH_OK;
    for (int64_t at = 0; at < elems && status == ECH_OK; at += BLOCK) {
        const int64_t some = elems - at < BLOCK ? elems - at : BLOCK;
        const int64_t length = some * (int64_t)sizeof *buffer;
        const void *from[ECH__DP_MAX_DEVICES];
        for (int d = 0; d < n && status == ECH_OK; d++) {
            ech__device *device = of[d]->device;
            from[d] = buffer + d * BLOCK;
            status = device->memory->read(device, buffer + d * BLOCK, terms[d] + at, length);
        }
        if (status == ECH_OK)
            status = ech__reduce(dp->ctx, ECH__REDUCTION_SUM, ECH_F32, some, from, n,
                                 (void *[]){buffer}, 1, 1);
        if (status == ECH_OK)
            status =
                of[0]->device->memory->write(of[0]->device, (float *)terms[0] + at, buffer, length);
    }
    ech__delete(dp->ctx, buffer, bytes);
    return status;
}

static ech_status reduce(ech__dp *dp)
{
    const float *terms[ECH__DP_MAX_DEVICES];
    ech__dp_replica *of[ECH__DP_MAX_DEVICES], *first = &dp->replicas[0];
    int64_t bytes;
    int n = 0;
    for (int d = 0; d < dp->devices; d++) {
        ech__dp_replica *r = &dp->replicas[d];
        if (!r->now)
            continue;
        of[n] = r;
        terms[n++] = ech__exec_block(r->now->exec, ECH__MEMORY_GRADIENTS, &bytes);
        count(r, first, dp->gradient_bytes);
    }
    if (n < 2)
        return ECH_OK;
    assert(first->now); /* the first part of a batch is never empty */
    float *sum = ech__exec_block(first->now->exec, ECH__MEMORY_GRADIENTS, &bytes);
    const int64_t elems = bytes / (int64_t)sizeof *sum;
    if (!first->device->memory->host_visible)
        return reduce_staged(dp, of, terms, n, elems);
    const int64_t blocks = (elems + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) if (blocks > 1)
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t at = b * BLOCK, rest = elems - at;
        const void *from[ECH__DP_MAX_DEVICES];
        for (int d = 0; d < n; d++)
            from[d] = terms[d] + at;
        ech__reduce(dp->ctx, ECH__REDUCTION_SUM, ECH_F32, rest < BLOCK ? rest : BLOCK, from, n,
                    (void *[]){sum + at}, 1, 1); /* f32 can always be added */
    }
    return ECH_OK;
}

static ech_status end_step(ech__dp *dp)
{
    const int64_t start = ech__clock_wall();
    ECH_TRY(reduce(dp));
    end_own_phase(dp, ECH__DP_REDUCE, start);
    ECH_TRY(ech__exec_run(dp->replicas[0].now->exec,
                          ECH__PHASE_BIT(OPTIMIZER) | ECH__PHASE_BIT(REFRESH), dp->scalars, NULL));
    end_own_phase(dp, ECH__DP_OPTIMIZER, dp->phases[ECH__DP_REDUCE].end_ns);
    return ECH_OK;
}

/* ---- jobs of all devices ---- */

static ech_status forward(void *arg)
{
    ech__dp_replica *r = arg;
    const ech__scalars *scalars = r->dp->scalars;
    ech__span *span = &r->work.phases[ECH__DP_FORWARD];
    span->start_ns = ech__clock_wall();
    if (r->index) /* device 0 has done this after its optimizer */
        ECH_TRY(ech__exec_run(r->now->exec, ECH__PHASE_BIT(REFRESH), scalars, NULL));
    ECH_TRY(ech__exec_run(r->now->exec, ECH__PHASE_BIT(FORWARD), scalars, NULL));
    span->end_ns = ech__clock_wall();
    atomic_store_explicit(&r->done, true, memory_order_relaxed);
    return ECH_OK;
}

static ech_status backward(void *arg)
{
    ech__dp_replica *r = arg;
    ech__span *span = &r->work.phases[ECH__DP_BACKWARD];
    span->start_ns = ech__clock_wall();
    ECH_TRY(ech__exec_run(r->now->exec, ECH__PHASE_BIT(BACKWARD), r->dp->scalars, NULL));
    span->end_ns = ech__clock_wall();
    atomic_store_explicit(&r->done, true, memory_order_relaxed);
    return ECH_OK;
}

/* How long to spin before sleeping: waking a thread takes time, and parts of a batch end at about
 * the same time. */
enum { SPIN_NS = 500 * 1000 };

static void spin_for(const ech__dp_replica *r)
{
    const int64_t start = ech__clock_wall();
    while (!atomic_load_explicit(&r->done, memory_order_relaxed) &&
           ech__clock_wall() - start < SPIN_NS) {}
}

/* Starts it on every other device that has samples, does device 0's part here, and waits for all;
 * the first failure counts. */
static ech_status run_on_all(ech__dp *dp, ech_status (*job)(void *arg), ech__dp_phase phase)
{
    for (int d = dp->devices - 1; d > 0; d--) {
        ech__dp_replica *r = &dp->replicas[d];
        if (!r->now)
            continue;
        atomic_store_explicit(&r->done, false, memory_order_relaxed);
        r->device->ops->start(r->device, job, r);
    }
    ech_status status = job(&dp->replicas[0]);
    const int64_t start = ech__clock_wall();
    for (int d = 1; d < dp->devices; d++) {
        ech__dp_replica *r = &dp->replicas[d];
        if (r->now && dp->spins)
            spin_for(r);
        const ech_status one = r->now ? r->device->ops->finish(r->device) : ECH_OK;
        if (one < 0 && status == ECH_OK)
            status = ech__fail(dp->ctx, one, "device %d: %s", d, r->ctx->error);
    }
    end_phase(dp, phase);
    dp->replicas[0].work.busy_ns -= dp->phases[phase].end_ns - start;
    return status;
}

static ech_status find_nonfinite(void *arg)
{
    ech__dp_replica *r = arg;
    const ech_status status = ech__exec_find_nonfinite(r->now->exec);
    atomic_store_explicit(&r->done, true, memory_order_relaxed);
    return status;
}

/* All of it on device 0's worker: a step wakes it once, and the other devices for each of their
 * parts. */
static ech_status run(void *arg)
{
    ech__dp *dp = arg;
    ECH_TRY(hand_out(dp));
    ECH_TRY(run_on_all(dp, forward, ECH__DP_FORWARD));
    ECH_TRY(compute_loss(dp));
    if (ech__exec_nonfinite(dp->now->exec).node) /* the loss is not finite: since which layer? */
        ECH_TRY(run_on_all(dp, find_nonfinite, ECH__DP_SCATTER_GRADIENT));
    ECH_TRY(run_on_all(dp, backward, ECH__DP_BACKWARD));
    return end_step(dp);
}

ech_status ech__dp_step(ech__dp *dp, int64_t batch, const ech__scalars *scalars)
{
    ECH_TRY(ech__dp_whole_of(dp, batch, &dp->now));
    ECH_TRY(ech__dp_cut(dp, batch));
    dp->scalars = scalars;
    memset(dp->phases, 0, sizeof dp->phases);
    for (int d = 0; d < dp->devices; d++) {
        ech__dp_replica *r = &dp->replicas[d];
        r->work =
            (ech__dp_work){.samples = r->now ? r->now->batch : 0, .busy_ns = -r->device->busy_ns};
    }
    dp->phases[0].start_ns = ech__clock_wall();
    ech__device *first = dp->replicas[0].device;
    const ech_status status = first->ops->call(first, run, dp);
    for (int d = 0; d < dp->devices; d++)
        dp->replicas[d].work.busy_ns += dp->replicas[d].device->busy_ns;
    return status;
}
