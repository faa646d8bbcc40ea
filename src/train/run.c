#include "train/run.h"
#include "base/clock.h"
#include "base/file.h"
#include "models/models.h"
#include "train/record.h"


const char *ech__model_name(ech__model_kind kind)
{
    static const char *const names[] = {
#define NAME(id, text) text,
        ECH__MODEL_LIST(NAME)
#undef NAME
    };
    return names[kind];
}

const char *ech__optimizer_name(ech_optimizer optimizer)
{
    static const char *const names[] = {
#define NAME(id, text) text,
        ECH_OPTIMIZER_LIST(NAME)
#undef NAME
    };
    return names[optimizer];
}

ech__run_config ech__run_defaults(void)
{
    ech__run_config config = {
        .model = ECH__MODEL_LINEAR, .dim = 1024, .depth = 2, .steps = 35, .warmup = 5};
    config.train = ech_train_defaults();
    config.train.batch = 0;
    config.schedule.gamma = 0.1;
    return config;
}

/* ---- set-up ---- */

static ech_status check(ech_ctx *ctx, const ech__run_config *c)
{
    if (c->steps < 1 || c->steps > 100000000)
        return ech__fail(ctx, ECH_E_INVALID, "%lld steps: from 1 to 100000000 are possible",
                         (long long)c->steps);
    if (c->warmup < 0 || c->warmup >= c->steps)
        return ech__fail(ctx, ECH_E_INVALID,
                         "%lld warm-up steps of %lld: at least one step must be left to be timed",
                         (long long)c->warmup, (long long)c->steps);
    if (c->dim < 1 || c->depth < 1 || c->depth > 1000)
        return ech__fail(ctx, ECH_E_INVALID,
                         "a linear stack of dim %lld and depth %lld: dim must be at least 1 and "
                         "depth from 1 to 1000",
                         (long long)c->dim, (long long)c->depth);
    if (c->trace && !c->run_dir)
        return ech__fail(ctx, ECH_E_INVALID, "a trace needs a run directory to be written to");
    return ECH_OK;
}

static void fill_defaults(ech__run_config *c)
{
    if (!c->train.batch)
        c->train.batch = 64;
    c->schedule.lr = c->train.lr;
    c->schedule.steps = c->steps;
    if (!c->schedule.interval)
        c->schedule.interval = c->steps > 3 ? c->steps / 3 : 1;
}

/* The batch comes from the file where there is one; a batch size that was given must agree. */
static ech_status load_data(ech_ctx *ctx, ech__run_config *c, ech__vectors *data)
{
    if (!c->data)
        return ech__vectors_synthetic(ctx, data, c->train.batch, c->dim, c->train.seed);
    ECH_TRY(ech__vectors_load(ctx, data, c->data));
    if (data->dim != c->dim)
        return ech__fail(ctx, ECH_E_INVALID,
                         "%s: x has %lld columns; a linear stack of dim %lld needs %lld", c->data,
                         (long long)data->dim, (long long)c->dim, (long long)c->dim);
    if (c->train.batch && c->train.batch != data->count)
        return ech__fail(ctx, ECH_E_INVALID,
                         "%s holds one batch of %lld samples; the batch size is %lld", c->data,
                         (long long)data->count, (long long)c->train.batch);
    c->train.batch = data->count;
    return ECH_OK;
}

typedef ech_status (*trainer_maker)(ech_ctx *ctx, const ech_graph *graph, ech_value loss,
                                    const ech_train_options *options, ech_trainer **out);

static ech_status make_trainer(ech_ctx *ctx, const ech__run_config *c, trainer_maker make,
                               ech_trainer **out)
{
    ech_graph *graph;
    ECH_TRY(ech_graph_create(ctx, &graph));
    const ech_value loss = ech__model_linear(graph, c->dim, c->depth);
    const ech_status status =
        loss < 0 ? ech_graph_status(graph) : make(ctx, graph, loss, &c->train, out);
    ech_graph_destroy(graph);
    return status;
}

ech_status ech__run_fit(ech_ctx *ctx, const ech__run_config *config, ech_trainer **out)
{
    ech__run_config c = *config;
    *out = NULL;
    ECH_TRY(check(ctx, &c));
    if (c.data) {
        ech__vectors data = {0};
        const ech_status status = load_data(ctx, &c, &data);
        ech__vectors_fini(ctx, &data);
        ECH_TRY(status);
    }
    fill_defaults(&c);
    c.train.tune = false; /* a question about memory should not take seconds */
    return make_trainer(ctx, &c, ech__trainer_plan, out);
}

/* What can be found wrong without planning, allocating or writing anything. */
static ech_status check_places(ech_ctx *ctx, const ech__run_config *c)
{
    if (c->run_dir)
        ECH_TRY(ech__records_check(ctx, c->run_dir));
    if (!c->save_params)
        return ECH_OK;
    ech__file_writer probe;
    const ech_status status = ech__file_writer_init(ctx, &probe, c->save_params);
    ech__file_writer_fini(&probe);
    return status;
}

static ech_status write_inputs(ech__run *run)
{
    const size_t bytes = (size_t)(run->data.count * run->data.dim) * sizeof(float);
    ECH_TRY(ech_trainer_write(run->trainer, "x", run->data.x, bytes));
    ECH_TRY(ech_trainer_write(run->trainer, "y", run->data.y, bytes));
    ech__vectors_fini(run->ctx, &run->data); /* the device has its own copy */
    return ECH_OK;
}

static ech_status set_up(ech__run *run)
{
    ech_ctx *ctx = run->ctx;
    ech__run_config *c = &run->config;
    ECH_TRY(check(ctx, c));
    ECH_TRY(check_places(ctx, c));
    if (c->data) /* the batch may come from it */
        ECH_TRY(load_data(ctx, c, &run->data));
    fill_defaults(c);
    ECH_TRY(ech__machine_read(ctx, &run->machine));
    ECH_TRY(make_trainer(ctx, c, ech_trainer_create, &run->trainer));
    if (!c->data)
        ECH_TRY(load_data(ctx, c, &run->data));
    ECH_TRY(write_inputs(run));
    const size_t ninstrs = run->trainer->plan->ninstrs, timed = (size_t)(c->steps - c->warmup);
    run->steps = ech__new(ctx, (size_t)c->steps * sizeof *run->steps);
    run->ops = ech__new(ctx, ninstrs * sizeof *run->ops);
    run->op_seconds = ech__new(ctx, timed * ninstrs * sizeof *run->op_seconds);
    if (!run->steps || !run->ops || !run->op_seconds)
        return ech__fail(ctx, ECH_E_NOMEM, "no memory for the records of %lld steps",
                         (long long)c->steps);
    if (!c->run_dir)
        return ECH_OK;
    ECH_TRY(ech__records_open(ctx, c->run_dir, c->trace, &run->records));
    return ech__records_run(run->records, run, "running");
}

ech_status ech__run_create(ech_ctx *ctx, const ech__run_config *config, ech__run **out)
{
    *out = NULL;
    ech__run *run = ech__new(ctx, sizeof *run);
    if (!run)
        return ech__fail(ctx, ECH_E_NOMEM, "no memory for a run");
    run->ctx = ctx;
    run->config = *config;
    const ech_status status = set_up(run);
    if (status < 0) {
        ech__run_destroy(run);
        return status;
    }
    *out = run;
    return ECH_OK;
}

void ech__run_destroy(ech__run *run)
{
    if (!run)
        return;
    const ech__run_config *c = &run->config;
    const size_t ninstrs = run->trainer ? run->trainer->plan->ninstrs : 0;
    if (run->records)
        ech__records_close(run->records);
    ech__delete(run->ctx, run->op_seconds,
                (size_t)(c->steps - c->warmup) * ninstrs * sizeof *run->op_seconds);
    ech__delete(run->ctx, run->ops, ninstrs * sizeof *run->ops);
    ech__delete(run->ctx, run->steps, (size_t)c->steps * sizeof *run->steps);
    ech_trainer_destroy(run->trainer);
    ech__vectors_fini(run->ctx, &run->data);
    ech__delete(run->ctx, run, sizeof *run);
}

/* ---- steps ---- */

static void keep_op_times(ech__run *run, int64_t timed)
{
    const ech__span *spans = ech__exec_spans(run->trainer->exec);
    const size_t ninstrs = run->trainer->plan->ninstrs;
    for (size_t n = 0; n < ninstrs; n++)
        run->op_seconds[(size_t)timed * ninstrs + n] =
            (float)ech__seconds(spans[n].end_ns - spans[n].start_ns);
}

static ech_status one_step(ech__run *run, int64_t index, const ech__run_events *events)
{
    const ech__run_config *c = &run->config;
    ech__run_step *step = &run->steps[index];
    step->step = index + 1;
    step->lr = ech__schedule_lr(&c->schedule, index);
    ech_trainer_set_lr(run->trainer, step->lr);
    ECH_TRY(ech_trainer_step(run->trainer, &step->result));
    run->done = index + 1;
    if (index >= c->warmup)
        keep_op_times(run, index - c->warmup);
    if (run->records)
        ECH_TRY(ech__records_step(run->records, run, step));
    if (events && events->on_step)
        events->on_step(events->user, run, step);
    return ECH_OK;
}

/* ---- summary ---- */

enum { TIME, FORWARD, BACKWARD, OPTIMIZER };

static double pick(const ech__run_step *step, int what)
{
    switch (what) {
    case FORWARD:
        return step->result.forward_s;
    case BACKWARD:
        return step->result.backward_s;
    case OPTIMIZER:
        return step->result.optimizer_s;
    default:
        return step->result.time_s;
    }
}

static ech__stats stats_of(const ech__run *run, double *samples, int what)
{
    const int64_t warmup = run->config.warmup, count = run->done - warmup;
    for (int64_t i = 0; i < count; i++)
        samples[i] = pick(&run->steps[warmup + i], what);
    return ech__stats_of(samples, (size_t)count);
}

static void sum_up_ops(ech__run *run, double *samples)
{
    const size_t ninstrs = run->trainer->plan->ninstrs;
    const size_t count = (size_t)(run->done - run->config.warmup);
    double busy = 0, total = 0;
    for (size_t n = 0; n < ninstrs; n++) {
        for (size_t i = 0; i < count; i++)
            samples[i] = (double)run->op_seconds[i * ninstrs + n];
        run->ops[n] = (ech__run_op){.instr = &run->trainer->plan->instrs[n],
                                    .median_s = ech__stats_of(samples, count).median};
    }
    for (size_t i = 0; i < count; i++) {
        const double time = run->steps[(size_t)run->config.warmup + i].result.time_s;
        double inside = 0;
        for (size_t n = 0; n < ninstrs; n++)
            inside += (double)run->op_seconds[i * ninstrs + n];
        samples[i] = 1 - inside / time;
        busy += inside;
        total += time;
    }
    run->summary.utilisation = busy / total;
    run->summary.outside_kernels = ech__stats_of(samples, count).median;
}

static ech_status sum_up(ech__run *run)
{
    ech__run_summary *s = &run->summary;
    const size_t bytes = (size_t)run->done * sizeof(double);
    double *samples = ech__new(run->ctx, bytes);
    if (!samples)
        return ech__fail(run->ctx, ECH_E_NOMEM, "no memory to sum up %lld steps",
                         (long long)run->done);
    s->step_time = stats_of(run, samples, TIME);
    s->forward_s = stats_of(run, samples, FORWARD).median;
    s->backward_s = stats_of(run, samples, BACKWARD).median;
    s->optimizer_s = stats_of(run, samples, OPTIMIZER).median;
    s->samples_per_s = (double)run->config.train.batch / s->step_time.median;
    s->first_loss = run->steps[0].result.loss;
    s->final_loss = run->steps[run->done - 1].result.loss;
    sum_up_ops(run, samples);
    ech__delete(run->ctx, samples, bytes);
    return ech__trainer_hash(run->trainer, s->params_sha256);
}

ech_status ech__run_steps(ech__run *run, const ech__run_events *events)
{
    for (int64_t i = 0; i < run->config.steps; i++)
        ECH_TRY(one_step(run, i, events));
    ECH_TRY(sum_up(run));
    if (run->config.save_params)
        ECH_TRY(ech_trainer_save(run->trainer, run->config.save_params));
    if (!run->records)
        return ECH_OK;
    ECH_TRY(ech__records_run(run->records, run, "done"));
    ech__records *records = run->records;
    run->records = NULL;
    return ech__records_close(records);
}
