/* Runs a pass: each device's worker does its tasks in their order, and waits for what others
 * send. */
#include "base/system/clock.h"
#include "parallel/pipe/internal.h"

#include <math.h>
#include <string.h>

static int64_t now(const ech__stage *stage)
{
    return stage->pipe->options.links ? stage->clock.now_ns : ech__clock_wall();
}

/* ---- jobs of a device ---- */

/* The gradient of a micro-batch's mean loss counts by its share of the samples. */
static ech__scalars scalars_of(const ech__pipe *pipe, int micro)
{
    ech__scalars scalars = pipe->scalars;
    scalars.loss_scale *= (double)pipe->now->count[micro] / (double)pipe->now->batch;
    scalars.share = ech__pipe_share(pipe, micro);
    return scalars;
}

/* Only one device makes a value, so only its worker adds to the result. */
static ech_status collect(ech__stage *stage, int micro)
{
    ech__pipe *pipe = stage->pipe;
    const ech__pass *pass = pipe->now;
    const int at = stage->index * pass->micros + micro;
    for (int i = 0; i < pipe->options.nwatched; i++) {
        const ech_value v = pipe->watched[i];
        if (!pass->plans[at]->places[v].used)
            continue;
        const double share = (double)pass->count[micro] / (double)pass->batch;
        double value;
        ECH_TRY(ech__exec_scalar(pass->execs[at], v, &value));
        pipe->results[i] += (i ? 1 : share) * value;
    }
    return ECH_OK;
}

static ech_status run_task(ech__stage *stage, ech__task task)
{
    const ech__pass *pass = stage->pipe->now;
    ech__exec *exec = pass->execs[stage->index * pass->micros + task.micro];
    const ech__scalars scalars = scalars_of(stage->pipe, task.micro);
    ech__phase_times times = {.exposed_ns = 0};
    if (task.kind == ECH__TASK_BACKWARD) {
        ECH_TRY(ech__exec_run(exec, ECH__PHASE_BIT(BACKWARD), &scalars, &times));
        stage->work.backward_ns += times.ns[ECH__PHASE_BACKWARD];
        return ECH_OK;
    }
    if (task.micro >= stage->slots) /* whose memory this one takes */
        ECH_TRY(ech__stage_await_taken(stage, task.micro - stage->slots));
    ECH_TRY(ech__exec_run(exec, ECH__PHASE_BIT(FORWARD), &scalars, &times));
    stage->work.forward_ns += times.ns[ECH__PHASE_FORWARD];
    return collect(stage, task.micro);
}

/* The checks and the update, or one of them. Parameters belong to the first micro-batch's exec. */
static ech_status update(void *arg)
{
    ech__stage *stage = arg;
    const unsigned phases = stage->pipe->after & ~ECH__PHASE_BIT(EXCHANGE);
    ech__phase_times times = {.exposed_ns = 0};
    ECH_TRY(ech__exec_run(stage->exec, phases, &stage->pipe->scalars, &times));
    stage->work.update_ns +=
        times.ns[ECH__PHASE_CHECK] + times.ns[ECH__PHASE_OPTIMIZER] + times.ns[ECH__PHASE_REFRESH];
    stage->work.end_ns = now(stage);
    return ECH_OK;
}

static ech_status run_tasks(ech__stage *stage)
{
    const ech__pass *pass = stage->pipe->now;
    for (int i = 0; i < pass->ntasks; i++)
        ECH_TRY(run_task(stage, pass->tasks[stage->index * pass->ntasks + i]));
    stage->work.flushed_ns = stage->work.end_ns = now(stage);
    stage->work.peak = stage->device->memory_peak;
    return stage->pipe->after && !stage->pipe->options.ranks ? update(stage) : ECH_OK;
}

/* The first that fails ends the waiting of the others. */
static ech_status run_or_fail(void *arg)
{
    ech__stage *stage = arg;
    ech__pipe *pipe = stage->pipe;
    const ech_status status = run_tasks(stage);
    int none = 0;
    if (status < 0 && atomic_compare_exchange_strong(&pipe->failed, &none, 1 + stage->index)) {
        for (int d = 0; d < pipe->options.devices; d++)
            ech__condition_notify(&pipe->stages[d].condition);
    }
    return status;
}

/* ---- with other groups ---- */

/* On a virtual clock the ranks' is this stage's for as long as it exchanges. */
static ech_status exchange(void *arg)
{
    ech__stage *stage = arg;
    ech__virtual_clock *clock = stage->pipe->options.ranks->clock;
    ech__phase_times times = {.exposed_ns = 0};
    if (clock)
        clock->now_ns = stage->clock.now_ns;
    ECH_TRY(ech__exec_run(stage->exec, ECH__PHASE_BIT(EXCHANGE), &stage->pipe->scalars, &times));
    if (clock)
        stage->clock.now_ns = clock->now_ns;
    stage->work.exchange_ns += times.exposed_ns;
    stage->work.wait_ns += times.wait_ns;
    return ECH_OK;
}

/* Stage after stage from the last, which is the first to be done: so all groups exchange in the
 * same order, one thread uses the ranks at a time, and a device updates while the next one
 * exchanges. */
static ech_status finish_all(ech__pipe *pipe)
{
    const bool exchanges = pipe->after && pipe->options.ranks;
    bool updating[ECH__MAX_STAGES] = {false};
    ech_status status = ECH_OK, all = ECH_OK, ended[ECH__MAX_STAGES] = {ECH_OK};
    const bool meets = pipe->options.sync_bn && exchanges; /* until the last of them is done */
    int failed = -1;
    for (int d = 0; meets && d < pipe->options.devices; d++)
        ended[d] = pipe->stages[d].device->ops->finish(pipe->stages[d].device);
    for (int d = pipe->options.devices - 1; d >= 0; d--) {
        ech__stage *stage = &pipe->stages[d];
        ech__device *device = stage->device;
        if (!device) /* another process's */
            continue;
        status = meets ? ended[d] : device->ops->finish(device);
        if (exchanges && status == ECH_OK && all == ECH_OK)
            status = device->ops->call(device, exchange, stage);
        updating[d] = exchanges && status == ECH_OK && all == ECH_OK;
        if (updating[d])
            device->ops->start(device, update, stage);
        if (status < 0 && (all == ECH_OK || atomic_load(&pipe->failed) == 1 + d)) {
            all = status;
            failed = d;
        }
    }
    for (int d = 0; d < pipe->options.devices; d++) {
        ech__stage *stage = &pipe->stages[d];
        status = updating[d] ? stage->device->ops->finish(stage->device) : ECH_OK;
        if (status < 0 && all == ECH_OK) {
            all = status;
            failed = d;
        }
    }
    return all < 0 ? ech__stage_result(&pipe->stages[failed], all) : ECH_OK;
}

/* ---- the whole pass ---- */

/* Every rank knows what each device did, by rank 0's clock, and after a run the results. */
static ech_status share_results(ech__pipe *pipe, bool results)
{
    typedef struct told {
        double results[ECH__PIPE_MOST_WATCHED];
        ech__stage_work work;
    } told;
    ech__comm *comm = pipe->options.comm;
    if (!comm)
        return ECH_OK;
    told mine = {.work = pipe->stages[comm->rank].work};
    told *all = ech__new(pipe->ctx, (size_t)comm->world * sizeof *all);
    if (!all)
        return ech__no_memory(pipe->ctx, "the reports of %d ranks", comm->world);
    memcpy(mine.results, pipe->results, sizeof mine.results);
    const ech_status status = ech__comm_allgather(comm, &mine, all, (int64_t)sizeof mine);
    for (int i = 0; results && i < ECH__PIPE_MOST_WATCHED; i++)
        pipe->results[i] = 0;
    for (int d = 0; status == ECH_OK && d < comm->world; d++) {
        for (int i = 0; results && i < ECH__PIPE_MOST_WATCHED; i++) /* only one of them has it */
            pipe->results[i] += all[d].results[i];
        if (d != comm->rank)
            pipe->stages[d].work = all[d].work;
    }
    ech__delete(pipe->ctx, all, (size_t)comm->world * sizeof *all);
    return status;
}

static int64_t busy_of(const ech__pipe *pipe)
{
    int64_t sum = 0;
    for (int d = 0; d < pipe->options.devices; d++) {
        const ech__stage_work *work = &pipe->stages[d].work;
        sum += work->forward_ns + work->backward_ns + work->update_ns + work->copy_ns;
    }
    return sum;
}

static void begin(ech__pipe *pipe, const ech__pass *pass, const ech__pipe_step *step)
{
    pipe->now = pass;
    pipe->scalars = *step->scalars;
    pipe->after = step->after;
    atomic_store(&pipe->failed, 0);
    for (int i = 0; i < ECH__PIPE_MOST_WATCHED; i++)
        pipe->results[i] = 0;
    for (int d = 0; d < pipe->options.devices; d++) {
        if (!step->goes_on)
            pipe->stages[d].work = (ech__stage_work){.forward_ns = 0};
        pipe->stages[d].clock.now_ns = step->start_ns;
        pipe->stages[d].met = 0;
    }
    atomic_store(&pipe->turn, 0);
    pipe->busy_ns = busy_of(pipe);
    if (!step->goes_on)
        pipe->window_ns = 0;
    pipe->start_ns = pipe->flushed_ns = pipe->end_ns =
        pipe->options.links ? step->start_ns : ech__clock_wall();
}

static void end(ech__pipe *pipe, ech_status status)
{
    const ech__pass *pass = pipe->now;
    for (int d = 0; d < pipe->options.devices; d++) {
        const ech__stage_work *work = &pipe->stages[d].work;
        pipe->flushed_ns =
            work->flushed_ns > pipe->flushed_ns ? work->flushed_ns : pipe->flushed_ns;
        pipe->end_ns = work->end_ns > pipe->end_ns ? work->end_ns : pipe->end_ns;
    }
    pipe->window_ns += pipe->flushed_ns - pipe->start_ns;
    for (int i = 0; status < 0 && i < pass->links * pass->micros; i++) /* nothing is under way */
        atomic_store(&pass->messages[i].taken, atomic_load(&pass->messages[i].sent));
}

ech_status ech__pipe_run(ech__pipe *pipe, const ech__pass *pass, const ech__pipe_step *step)
{
    begin(pipe, pass, step);
    /* The first last: the others' threads may still have to wake up. */
    for (int d = pipe->options.devices - 1; d >= 0; d--) {
        if (pipe->stages[d].device)
            pipe->stages[d].device->ops->start(pipe->stages[d].device, run_or_fail,
                                               &pipe->stages[d]);
    }
    ech_status status = finish_all(pipe);
    if (status == ECH_OK)
        status = share_results(pipe, true);
    end(pipe, status);
    return status;
}

/* ---- after a look at the gradients ---- */

/* Of the devices of this process; the other parameters have zeros. */
static ech_status collect_stats(const ech__pipe *pipe, double *out)
{
    const int count = pipe->options.nparams;
    memset(out, 0, (size_t)count * ECH__GRAD_STATS * sizeof *out);
    for (int d = 0; d < pipe->options.devices; d++) {
        const ech__stage *stage = &pipe->stages[d];
        for (size_t n = 0; stage->plan && n < stage->plan->ninstrs; n++) {
            const ech__node *node = stage->plan->instrs[n].node;
            int at = 0;
            if (node->op != ECH__OP_GRAD_STATS)
                continue;
            while (at < count && pipe->params[at] != stage->plan->graph->values[node->in[0]].of)
                at++;
            if (at < count)
                ECH_TRY(ech__stage_result(stage, ech__exec_read(stage->exec, node->out[0], 0,
                                                                ECH__GRAD_STATS,
                                                                out + at * ECH__GRAD_STATS)));
        }
    }
    return ECH_OK;
}

ech_status ech__pipe_grad_stats(ech__pipe *pipe, double out[ECH__GRAD_STATS])
{
    ech__comm *comm = pipe->options.comm;
    const int64_t count = (int64_t)pipe->options.nparams * ECH__GRAD_STATS;
    ECH_TRY(collect_stats(pipe, pipe->stats));
    if (comm) {
        ECH_TRY(ech__comm_allgather(comm, pipe->stats, pipe->stats + count,
                                    count * (int64_t)sizeof *pipe->stats));
        memset(pipe->stats, 0, (size_t)count * sizeof *pipe->stats);
        for (int64_t i = 0; i < count * comm->world; i++) /* only one of them has it */
            pipe->stats[i % count] += pipe->stats[count + i];
    }
    memset(out, 0, ECH__GRAD_STATS * sizeof *out);
    for (const double *stats = pipe->stats; stats < pipe->stats + count; stats += ECH__GRAD_STATS) {
        out[ECH__GRAD_SQUARES] += stats[ECH__GRAD_SQUARES];
        out[ECH__GRAD_LARGEST] = fmax(out[ECH__GRAD_LARGEST], stats[ECH__GRAD_LARGEST]);
        out[ECH__GRAD_BROKEN] += stats[ECH__GRAD_BROKEN];
    }
    return ECH_OK;
}

/* What telling all devices about all gradients takes. */
static int64_t agreement_ns(const ech__pipe *pipe)
{
    const int64_t bytes = ECH__GRAD_STATS * (int64_t)sizeof(double);
    return pipe->options.links
               ? (int64_t)(1e9 * ech__price_allreduce(pipe->options.links, ECH__ALGORITHM_TREE,
                                                      pipe->options.devices, bytes)
                                     .seconds)
               : 0;
}

ech_status ech__pipe_apply(ech__pipe *pipe, const ech__scalars *scalars, int64_t start_ns)
{
    ech_status status = ECH_OK;
    pipe->scalars = *scalars;
    pipe->after = ECH__PHASE_BIT(OPTIMIZER) | ECH__PHASE_BIT(REFRESH);
    pipe->start_ns = pipe->end_ns = pipe->options.links ? start_ns : ech__clock_wall();
    for (int d = 0; d < pipe->options.devices; d++) {
        ech__stage *stage = &pipe->stages[d];
        stage->clock.now_ns = start_ns + agreement_ns(pipe);
        if (stage->device)
            stage->device->ops->start(stage->device, update, stage);
    }
    for (int d = 0; d < pipe->options.devices; d++) {
        ech__device *device = pipe->stages[d].device;
        const ech_status own = device ? device->ops->finish(device) : ECH_OK;
        if (own < 0 && status == ECH_OK)
            status = ech__stage_result(&pipe->stages[d], own);
    }
    if (status == ECH_OK)
        status = share_results(pipe, false);
    for (int d = 0; d < pipe->options.devices; d++) {
        const int64_t end_ns = pipe->stages[d].work.end_ns;
        pipe->end_ns = end_ns > pipe->end_ns ? end_ns : pipe->end_ns;
    }
    return status;
}

ech_status ech__pipe_refresh(ech__pipe *pipe, const ech__scalars *scalars)
{
    for (int d = 0; d < pipe->options.devices; d++) {
        ech__stage *stage = &pipe->stages[d];
        if (!ech__pipe_has(pipe, d))
            continue;
        ECH_TRY(ech__stage_result(
            stage, ech__exec_run(stage->exec, ECH__PHASE_BIT(REFRESH), scalars, NULL)));
    }
    return ECH_OK;
}

double ech__pipe_result(const ech__pipe *pipe, ech_value watched)
{
    for (int i = 0; i < pipe->options.nwatched; i++) {
        if (pipe->watched[i] == watched)
            return pipe->results[i];
    }
    return 0;
}

/* What a device sends is kept, so it can still be looked at. */
static bool sends_broken(const ech__plan *plan, const ech__exec *exec, ech__nonfinite *out)
{
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const ech__node *node = plan->instrs[n].node;
        bool finite;
        if (node->op != ECH__OP_SEND || node->phase != ECH__PHASE_FORWARD ||
            ech__exec_is_finite(exec, node->in[0], &finite) < 0 || finite)
            continue;
        *out = (ech__nonfinite){plan->graph, node, node->in[0], true};
        return true;
    }
    return false;
}

ech__nonfinite ech__pipe_nonfinite(const ech__pipe *pipe, int *device)
{
    const ech__pass *pass = pipe->now;
    ech__nonfinite found = {.node = NULL};
    for (int at = 0; pass && at < pipe->options.devices * pass->micros; at++) {
        *device = at / pass->micros;
        if (!ech__pipe_has(pipe, *device))
            continue;
        if (sends_broken(pass->plans[at], pass->execs[at], &found))
            return found;
        found = ech__exec_nonfinite(pass->execs[at]);
        if (found.node)
            return found;
    }
    return found;
}

int64_t ech__pipe_updates(const ech__pipe *pipe)
{
    int64_t sum = 0;
    for (int d = 0; d < pipe->options.devices; d++)
        sum += ech__pipe_has(pipe, d) ? ech__exec_updates(pipe->stages[d].exec) : 0;
    return sum;
}

const ech__pass *ech__pipe_last(const ech__pipe *pipe)
{
    return pipe->now;
}

void ech__pipe_span(const ech__pipe *pipe, int64_t *start_ns, int64_t *flushed_ns, int64_t *end_ns)
{
    *start_ns = pipe->start_ns;
    *flushed_ns = pipe->flushed_ns;
    *end_ns = pipe->end_ns;
}

double ech__stage_busy_s(const ech__stage *stage)
{
    const ech__stage_work *work = &stage->work;
    return ech__seconds(work->forward_ns + work->backward_ns + work->update_ns + work->copy_ns);
}

double ech__pipe_busy_s(const ech__pipe *pipe)
{
    return ech__seconds(busy_of(pipe) - pipe->busy_ns) / pipe->options.devices;
}

double ech__pipe_measured_bubble(const ech__pipe *pipe)
{
    const int64_t window = pipe->window_ns;
    int64_t busy = 0;
    for (int d = 0; d < pipe->options.devices; d++) {
        const ech__stage_work *work = &pipe->stages[d].work;
        busy += work->forward_ns + work->backward_ns + work->copy_ns;
    }
    return window > 0 ? 1 - (double)busy / ((double)window * pipe->options.devices) : 0;
}
