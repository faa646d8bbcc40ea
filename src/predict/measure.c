/* Measures what a step costs: trains for a second or two, alone or beside copies of itself. */
#include "parallel/place.h"
#include "predict/measure.h"
#include "train/record/totals.h"

#include <math.h>
#include <string.h>

static bool first_has_loss(const ech_train_options *train)
{
    return ech__strategy_row_of(ech__strategy_of(train).strategy)->first_has_loss;
}

ech__costs_key ech__costs_key_of(const ech__run_config *c)
{
    ech__costs_key key;
    int n = snprintf(key.s, sizeof key.s, "%s", ech__model_name(c->model.kind));
    if (c->model.kind == ECH__MODEL_LINEAR)
        n += snprintf(key.s + n, sizeof key.s - (size_t)n, " %lldx%lld", (long long)c->model.dim,
                      (long long)c->model.depth);
    snprintf(key.s + n, sizeof key.s - (size_t)n, ", threads %d, %s%s%s%s%s%s%s%s%s",
             c->train.threads, ech__optimizer_name(c->train.optimizer.kind),
             c->train.optimizer.momentum != 0 ? " momentum" : "",
             c->train.optimizer.weight_decay != 0 ? " decay" : "",
             c->train.recompute ? "" : ", nothing recomputed", c->train.tune ? "" : ", untuned",
             first_has_loss(&c->train) ? ", dp" : "", c->train.amp.type != ECH_AMP_OFF ? ", " : "",
             c->train.amp.type != ECH_AMP_OFF ? ech__amp_name(c->train.amp.type) : "",
             ech__checks_gradients(&c->train) ? ", gradients checked" : "");
    return key;
}

/* Steps of the first, short run, which says how many the second one takes; kernels are timed in it where they must be. */
enum {
    PROBE_STEPS = 4,
    PROBE_WARMUP = 2,
    LEAST_STEPS = 7,
    LEAST_LONG_STEPS = 4,
    MOST_STEPS = 1500
};
static const double WARMUP_SHARE = 0.2;

/* Copies begin every step together, as ranks do that have just exchanged. */
typedef struct together {
    ech__comm *comm;
    ech_status status;
} together;

static void meet(void *user, const ech__run *run, const ech__run_step *step)
{
    together *t = user;
    (void)run;
    (void)step;
    if (t->comm && t->status == ECH_OK)
        t->status = ech__comm_barrier(t->comm);
}

static ech_status run_steps(ech_ctx *ctx, const ech__run_config *config, ech__comm *comm,
                            ech__run **out)
{
    together t = {.comm = comm};
    ech__run_config measured = *config;
    measured.keep_going = true; /* times are what counts */
    ECH_TRY(ech__run_create(ctx, &measured, out));
    ech_status status = comm ? ech__comm_barrier(comm) : ECH_OK;
    if (status == ECH_OK)
        status = ech__run_steps(*out, &(ech__run_events){.on_step = meet, .user = &t});
    if (status == ECH_OK)
        status = t.status;
    if (status < 0) {
        ech__run_destroy(*out);
        *out = NULL;
    }
    return status;
}

/* ---- what the steps took ---- */

/* The borders of the middle half, and the median. Sorts. */
static void summarise(double *samples, size_t count, double *low, double *median, double *high)
{
    *median = ech__stats_of(samples, count).median;
    *low = count ? samples[count / 4] : 0;
    *high = count ? samples[count - 1 - count / 4] : 0;
}

/* Of all copies, the one in the middle. */
static ech_status middle_of(ech__comm *comm, double *value, double *all)
{
    if (!comm)
        return ECH_OK;
    ECH_TRY(ech__comm_allgather(comm, value, all, (int64_t)sizeof *value));
    *value = ech__stats_of(all, (size_t)comm->world).median;
    return ECH_OK;
}

/* Each step as long as its slowest copy takes. samples[steps * (1 + world)] */
static ech_status slowest_of(ech__comm *comm, double *samples, size_t steps)
{
    if (!comm)
        return ECH_OK;
    double *all = samples + steps;
    ECH_TRY(ech__comm_allgather(comm, samples, all, (int64_t)(steps * sizeof *samples)));
    for (size_t i = 0; i < steps; i++) {
        for (int r = 0; r < comm->world; r++) {
            const double other = all[(size_t)r * steps + i];
            samples[i] = other > samples[i] ? other : samples[i];
        }
    }
    return ECH_OK;
}

static double time_of(const ech__run_step *step)
{
    return step->result.time_s;
}

static double loading_of(const ech__run_step *step)
{
    return step->data_s;
}

static double loader_of(const ech__run_step *step)
{
    return step->loader_s;
}

/* What hits another operator in every step, such as the loader's work where it has no core of its own, is in the median of no
 * operator. It is in that of the step, and so counts besides the operators. */
static ech_status sum_up_step(const ech__run *run, ech__comm *comm, double *samples,
                              ech__step_cost *cost)
{
    const ech__history *history = &run->history;
    const size_t count = (size_t)history->timed.count;
    double low, high, own;
    ech__history_read(history, loading_of, samples);
    summarise(samples, count, &low, &cost->loading_s, &high);
    ech__history_read(history, time_of, samples);
    summarise(samples, count, &low, &own, &high);
    ECH_TRY(middle_of(comm, &own, samples + count));
    cost->overhead_s = own;
    for (size_t n = 0; n < cost->nops; n++)
        cost->overhead_s -= cost->ops[n].median_s;
    ech__history_read(history, loader_of, samples); /* in bursts: the median would be none */
    cost->loader_s = ech__stats_of(samples, count).mean;
    ech__history_read(history, time_of, samples);
    ECH_TRY(slowest_of(comm, samples, count));
    summarise(samples, count, &cost->low_s, &cost->step_s, &cost->high_s);
    cost->wait_s = cost->step_s > own ? cost->step_s - own : 0;
    cost->steps = (int64_t)count;
    return ECH_OK;
}

static ech_status sum_up_ops(const ech__run *run, ech__comm *comm, double *samples,
                             ech__step_cost *cost)
{
    const ech__plan *plan = run->trainer->plan;
    const size_t count = (size_t)run->op_done;
    for (size_t n = 0; n < cost->nops; n++) {
        const ech__instr *instr = &plan->instrs[n];
        ech__op_cost *op = &cost->ops[n];
        *op = (ech__op_cost){.op = ech__op_name(instr->node->op),
                             .name = instr->node->name ? instr->node->name : "",
                             .phase = ech__phase_name(instr->node->phase),
                             .tuned_s = instr->seconds};
        for (size_t i = 0; i < count; i++)
            samples[i] = (double)run->op_seconds[i * plan->ninstrs + n];
        summarise(samples, count, &op->low_s, &op->median_s, &op->high_s);
        ECH_TRY(middle_of(comm, &op->median_s, samples));
        ECH_TRY(middle_of(comm, &op->low_s, samples));
        ECH_TRY(middle_of(comm, &op->high_s, samples));
    }
    return ECH_OK;
}

/* Devices of DataParallel meet after the forward and after the backward pass, and wait for the slowest of each. */
static ech_status wait_in_phases(const ech__run *run, ech__comm *comm, double *samples,
                                 ech__step_cost *cost)
{
    static const ech__dp_phase common[] = {ECH__DP_FORWARD, ECH__DP_BACKWARD};
    const size_t count = (size_t)ech__run_dp_totals(run)->kept;
    cost->wait_s = 0;
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        ech__dp_totals_own(ech__run_dp_totals(run), common[i], samples);
        ECH_TRY(slowest_of(comm, samples, count));
        const double slowest = ech__stats_of(samples, count).median;
        const double middle = cost->phase_s[common[i]];
        cost->wait_s += slowest > middle ? slowest - middle : 0;
    }
    return ECH_OK;
}

/* What device 0 of DataParallel does besides operators of the body, and what its phases take besides them. */
static ech_status sum_up_phases(const ech__run *run, ech__comm *comm, double *samples,
                                ech__step_cost *cost)
{
    static const ech__dp_phase others[] = {ECH__DP_REPLICATE, ECH__DP_FORWARD, ECH__DP_BACKWARD,
                                           ECH__DP_REDUCE, ECH__DP_OPTIMIZER};
    if (!first_has_loss(&run->config.train))
        return ECH_OK;
    for (int p = 0; p < ECH__DP_PHASES; p++) {
        cost->phase_s[p] = ech__run_dp_totals(run)->own_s[p];
        ECH_TRY(middle_of(comm, &cost->phase_s[p], samples));
    }
    cost->hand_over_s = ech__run_dp_totals(run)->hand_over_s;
    ECH_TRY(wait_in_phases(run, comm, samples, cost));
    cost->overhead_s = 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        cost->overhead_s += cost->phase_s[others[i]];
    for (size_t n = 0; n < cost->nops; n++)
        cost->overhead_s -= cost->ops[n].median_s;
    return ECH_OK;
}

static ech_status sum_up(ech__costs *costs, const ech__run *run, ech__comm *comm, double *samples,
                         ech__step_cost *cost)
{
    ech__run_config config = run->config;
    config.train.threads = run->trainer->device->threads;
    ECH_TRY(sum_up_ops(run, comm, samples, cost));
    ECH_TRY(sum_up_step(run, comm, samples, cost));
    ECH_TRY(sum_up_phases(run, comm, samples, cost));
    cost->overhead_s += cost->wait_s;
    return ech__costs_put(costs, ech__costs_key_of(&config).s, cost);
}

static ech_status keep(ech__costs *costs, const ech__run *run, ech__comm *comm)
{
    const ech__plan *plan = run->trainer->plan;
    const size_t world = comm ? (size_t)comm->world : 1;
    const size_t bytes = ((size_t)run->done + 1) * (1 + world) * sizeof(double);
    const size_t op_bytes = plan->ninstrs * sizeof(ech__op_cost);
    double *samples = ech__new(run->ctx, bytes);
    ech__op_cost *ops = ech__new(run->ctx, op_bytes);
    ech_status status;
    if (samples && ops) {
        ech__step_cost cost = {
            .batch = plan->batch, .beside = (int)world, .ops = ops, .nops = plan->ninstrs};
        status = sum_up(costs, run, comm, samples, &cost);
    } else {
        status = ech__no_memory(run->ctx, "the totals of %lld steps", (long long)run->done);
    }
    ech__delete(run->ctx, ops, op_bytes);
    ech__delete(run->ctx, samples, bytes);
    return status;
}

/* Steps that are timed where each takes so long. */
static int64_t steps_in(double seconds, double step_s)
{
    const double steps = seconds / (step_s > 1e-6 ? step_s : 1e-6);
    const int least = step_s > seconds ? LEAST_LONG_STEPS : LEAST_STEPS;
    return steps > MOST_STEPS ? MOST_STEPS : steps < least ? least : (int64_t)steps;
}

/* As many steps as take about the time that is wanted; the same for all copies. */
static ech_status size_run(ech_ctx *ctx, ech__comm *comm, double seconds, ech__run_config *config)
{
    ech__run *run;
    config->steps = PROBE_STEPS;
    config->warmup = PROBE_WARMUP;
    ECH_TRY(run_steps(ctx, config, comm, &run));
    double step_s = run->summary.step_time.median;
    ech__run_destroy(run);
    if (comm)
        ECH_TRY(ech__comm_broadcast(comm, &step_s, (int64_t)sizeof step_s, 0));
    config->steps = steps_in(seconds, step_s);
    config->warmup = (int64_t)(WARMUP_SHARE * (double)config->steps) + 1;
    return ECH_OK;
}

ech_status ech__costs_measure(ech_ctx *ctx, ech__costs *costs, const ech__run_config *config,
                              ech__comm *comm, double seconds)
{
    ech__run_config c = *config;
    ech__run *run;
    if (comm && comm->world == 1)
        comm = NULL;
    c.train.ddp.group = NULL;
    c.clock = ECH__CLOCK_REAL;
    c.straggler = -1;
    if (first_has_loss(&c.train)) /* one process cuts the batch */
        c.global_batch = c.train.batch;
    ECH_TRY(size_run(ctx, comm, seconds, &c));
    ECH_TRY(run_steps(ctx, &c, comm, &run));
    const ech_status status = keep(costs, run, comm);
    ech__run_destroy(run);
    return status;
}

/* ---- which batches ---- */

/* A slow core, slow memory, and the arrays of the parameters' size that a step reads and writes. */
static const double SLOW_FLOPS = 4e9, SLOW_BYTES = 5e9, ARRAYS = 6;

static ech_status guess(ech_graph *graph, const ech__run_config *config, ech__costs_budget *out)
{
    ech__model model;
    ech__layers layers;
    ECH_TRY(ech__model_build(graph, &config->model, &model));
    ECH_TRY(ech__fuse(graph));
    ECH_TRY(ech__layers_find(graph, &layers));
    for (int i = 0; i < layers.count; i++) { /* the backward pass computes twice as much */
        out->guess_s += 3 * layers.at[i].flops / (SLOW_FLOPS * config->train.threads);
        out->guess_fixed_s += ARRAYS * (double)layers.at[i].bytes / SLOW_BYTES;
    }
    return ECH_OK;
}

ech_status ech__costs_guess(ech_ctx *ctx, const ech__run_config *config, ech__costs_budget *out)
{
    ech_graph *graph;
    out->guess_s = out->guess_fixed_s = 0;
    ECH_TRY(ech_graph_create(ctx, &graph));
    const ech_status status = guess(graph, config, out);
    ech_graph_destroy(graph);
    return status;
}

double ech__costs_measuring(double seconds, double step_s)
{
    return (double)(PROBE_STEPS + steps_in(seconds, step_s)) * step_s;
}

/* Batches are halved on the way down, so that what is measured has divisors like what was asked for. */
int64_t ech__costs_next_batch(const ech__costs *costs, const char *key, int64_t batch,
                              const ech__costs_budget *budget)
{
    int64_t known[64], least = 0;
    double fixed = budget->guess_fixed_s, per_sample = budget->guess_s;
    const int count = ech__costs_batches(costs, key, 1, known, 64);
    for (int i = 0; i < count && known[i] <= batch; i++) {
        least = known[i];
        fixed = 0;
        per_sample = ech__costs_find(costs, key, known[i], 1)->step_s / (double)known[i];
    }
    for (int64_t b = batch; b > least + least / 2; b /= 2) {
        const double step_s = fixed + per_sample * (double)b;
        const bool quick = ech__costs_measuring(budget->seconds, step_s) <= budget->most_s;
        if ((quick || (b == 1 && count == 0)) && budget->fits(budget->user, b))
            return b;
    }
    return 0;
}
