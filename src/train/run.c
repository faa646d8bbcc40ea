#include "train/run.h"
#include "base/clock.h"
#include "base/dir.h"
#include "base/file.h"
#include "train/record.h"

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
    ech__run_config config = {.model = {.kind = ECH__MODEL_LINEAR, .dim = 1024, .depth = 2},
                              .shuffle = true,
                              .augment = true,
                              .steps = 35,
                              .warmup = 5};
    config.train = ech_train_defaults();
    config.train.batch = 0;
    config.schedule.gamma = 0.1;
    return config;
}

/* ---- set-up ---- */

static ech_status check(ech_ctx *ctx, const ech__run_config *c)
{
    if (c->epochs < 0 || c->epochs > 100000)
        return ech__fail(ctx, ECH_E_INVALID, "%lld epochs: from 1 to 100000 are possible",
                         (long long)c->epochs);
    if (c->epochs && !ech__model_takes_images(c->model.kind))
        return ech__fail(ctx, ECH_E_INVALID,
                         "the linear stack has one batch and no epochs; give steps");
    if (!c->epochs && (c->steps < 1 || c->steps > 100000000))
        return ech__fail(ctx, ECH_E_INVALID, "%lld steps: from 1 to 100000000 are possible",
                         (long long)c->steps);
    if (c->warmup < 0 || (!c->epochs && c->warmup >= c->steps))
        return ech__fail(ctx, ECH_E_INVALID,
                         "%lld warm-up steps of %lld: at least one step must be left to be timed",
                         (long long)c->warmup, (long long)c->steps);
    if (c->model.dim < 1 || c->model.depth < 1 || c->model.depth > 1000)
        return ech__fail(ctx, ECH_E_INVALID,
                         "a linear stack of dim %lld and depth %lld: dim must be at least 1 and "
                         "depth from 1 to 1000",
                         (long long)c->model.dim, (long long)c->model.depth);
    if (c->limit < 0)
        return ech__fail(ctx, ECH_E_INVALID, "a limit of %lld samples: must be 0 or more",
                         (long long)c->limit);
    if (c->trace && !c->run_dir)
        return ech__fail(ctx, ECH_E_INVALID, "a trace needs a run directory to be written to");
    return ECH_OK;
}

static ech__feed_options feed_options(const ech__run_config *c)
{
    return (ech__feed_options){.model = c->model,
                               .data = c->data,
                               .data_dir = c->data_dir,
                               .limit = c->limit,
                               .batch = c->train.batch,
                               .shuffle = c->shuffle,
                               .augment = c->augment,
                               .seed = c->train.seed};
}

/* What follows from the data. */
static ech_status fill_in(ech_ctx *ctx, ech__run_config *c, const ech__feed *feed)
{
    c->train.batch = feed->batch;
    if (c->epochs)
        c->steps = c->epochs * feed->per_epoch;
    if (c->epochs && c->warmup >= c->steps)
        c->warmup = c->steps - 1;
    c->schedule.lr = c->train.lr;
    c->schedule.steps = c->steps;
    if (!c->schedule.interval)
        c->schedule.interval = c->steps > 3 ? c->steps / 3 : 1;
    return c->steps < 100000000 ? ECH_OK
                                : ech__fail(ctx, ECH_E_LIMIT, "%lld steps are more than 100000000",
                                            (long long)c->steps);
}

typedef ech_status (*trainer_maker)(ech_ctx *ctx, const ech_graph *graph, ech_value loss,
                                    const ech_train_options *options, ech_trainer **out);

static ech_status make_trainer(ech_ctx *ctx, const ech__run_config *c, trainer_maker make,
                               ech__model *model, ech_trainer **out)
{
    ech_graph *graph;
    ECH_TRY(ech_graph_create(ctx, &graph));
    ech_status status = ech__model_build(graph, &c->model, model);
    if (status == ECH_OK)
        status = make(ctx, graph, model->loss, &c->train, out);
    ech_graph_destroy(graph);
    return status;
}

ech_status ech__run_fit(ech_ctx *ctx, const ech__run_config *config, ech_trainer **out)
{
    ech__run_config c = *config;
    ech__model model;
    *out = NULL;
    ECH_TRY(check(ctx, &c));
    if (c.data && !ech__model_takes_images(c.model.kind)) { /* the file says what a batch is */
        const ech__feed_options o = feed_options(&c);
        ech__feed feed;
        ECH_TRY(ech__feed_open(ctx, &o, &feed));
        c.train.batch = feed.batch;
        ech__feed_close(&feed);
    } else if (!c.train.batch) {
        c.train.batch = 64;
    }
    c.train.tune = false; /* a question about memory should not take seconds */
    return make_trainer(ctx, &c, ech__trainer_plan, &model, out);
}

/* What can be found wrong without planning, allocating or writing anything. */
static ech_status check_places(ech_ctx *ctx, const ech__run_config *c)
{
    if (c->run_dir)
        ECH_TRY(ech__dir_check(ctx, "run directory", c->run_dir));
    if (!c->save_params)
        return ECH_OK;
    ech__file_writer probe;
    const ech_status status = ech__file_writer_init(ctx, &probe, c->save_params);
    ech__file_writer_fini(&probe);
    return status;
}

enum { MOST_OP_STEPS = 2000 }; /* whose operators are kept apart: enough for medians */

static ech_status allocate(ech__run *run)
{
    const ech__run_config *c = &run->config;
    const size_t ninstrs = run->trainer->plan->ninstrs;
    const int64_t timed = c->steps - c->warmup;
    run->op_steps = timed < MOST_OP_STEPS ? timed : MOST_OP_STEPS;
    run->steps = ech__new(run->ctx, (size_t)c->steps * sizeof *run->steps);
    run->epochs = ech__new(run->ctx, (size_t)(c->epochs + 1) * sizeof *run->epochs);
    run->ops = ech__new(run->ctx, ninstrs * sizeof *run->ops);
    run->op_seconds = ech__new(run->ctx, (size_t)run->op_steps * ninstrs * sizeof *run->op_seconds);
    return run->steps && run->epochs && run->ops && run->op_seconds
               ? ECH_OK
               : ech__fail(run->ctx, ECH_E_NOMEM, "no memory for the records of %lld steps",
                           (long long)c->steps);
}

static ech_status set_up(ech__run *run)
{
    ech_ctx *ctx = run->ctx;
    ech__run_config *c = &run->config;
    ECH_TRY(check(ctx, c));
    ECH_TRY(check_places(ctx, c));
    const ech__feed_options options = feed_options(c);
    ECH_TRY(ech__feed_open(ctx, &options, &run->feed));
    ECH_TRY(fill_in(ctx, c, &run->feed));
    ECH_TRY(ech__machine_read(ctx, &run->machine));
    ECH_TRY(make_trainer(ctx, c, ech_trainer_create, &run->model, &run->trainer));
    ECH_TRY(allocate(run));
    ECH_TRY(ech__feed_start(&run->feed, &options));
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
                (size_t)run->op_steps * ninstrs * sizeof *run->op_seconds);
    ech__delete(run->ctx, run->ops, ninstrs * sizeof *run->ops);
    ech__delete(run->ctx, run->epochs, (size_t)(c->epochs + 1) * sizeof *run->epochs);
    ech__delete(run->ctx, run->steps, (size_t)c->steps * sizeof *run->steps);
    ech__feed_close(&run->feed);
    ech_trainer_destroy(run->trainer);
    ech__delete(run->ctx, run, sizeof *run);
}

/* ---- steps ---- */

static void keep_op_times(ech__run *run)
{
    const ech__span *spans = ech__exec_spans(run->trainer->exec);
    const size_t ninstrs = run->trainer->plan->ninstrs;
    for (size_t n = 0; n < ninstrs; n++)
        run->op_seconds[(size_t)run->op_done * ninstrs + n] =
            (float)ech__seconds(spans[n].end_ns - spans[n].start_ns);
    run->op_done++;
}

static void add_to_epoch(ech__run *run, const ech__run_step *step, const ech__variant *variant)
{
    const double samples = (double)step->samples;
    run->now.compute_s += step->result.time_s;
    run->now.time_s += step->result.time_s + step->data_s;
    run->now.loss += step->result.loss * samples;
    if (run->model.correct >= 0)
        run->now.train_accuracy += ech__variant_scalar(run->trainer, variant, run->model.correct);
    run->now_samples += step->samples;
}

static ech_status one_step(ech__run *run, int64_t index, const ech__run_events *events)
{
    const ech__run_config *c = &run->config;
    ech__run_step *step = &run->steps[index];
    const ech__variant *variant;
    step->step = index + 1;
    step->epoch = index / run->feed.per_epoch + 1;
    step->lr = ech__schedule_lr(&c->schedule, index);
    ech_trainer_set_lr(run->trainer, step->lr);
    ECH_TRY(ech__feed_next(&run->feed, run->trainer, &variant, &step->data_s));
    step->samples = variant->batch;
    ECH_TRY(ech__variant_step(run->trainer, variant, &step->result));
    run->done = index + 1;
    if (index >= c->warmup && run->op_done < run->op_steps && variant->exec == run->trainer->exec)
        keep_op_times(run);
    add_to_epoch(run, step, variant);
    if (run->records)
        ECH_TRY(ech__records_step(run->records, run, step, variant));
    if (events && events->on_step)
        events->on_step(events->user, run, step);
    return ECH_OK;
}

static ech_status end_epoch(ech__run *run, const ech__run_events *events)
{
    ech__run_epoch *epoch = &run->epochs[run->epochs_done++];
    *epoch = run->now;
    epoch->epoch = run->epochs_done;
    epoch->loss /= (double)run->now_samples;
    epoch->train_accuracy /= (double)run->now_samples;
    run->now = (ech__run_epoch){0};
    run->now_samples = 0;
    ECH_TRY(ech__feed_evaluate(&run->feed, run->trainer, &run->model, &epoch->test));
    if (events && events->on_epoch)
        events->on_epoch(events->user, run, epoch);
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

/* Over the timed steps with a full batch; a shorter last one of an epoch would only blur them. */
static ech__stats stats_of(const ech__run *run, double *samples, int what)
{
    size_t count = 0;
    for (int64_t i = run->config.warmup; i < run->done; i++) {
        if (run->steps[i].samples == run->config.train.batch)
            samples[count++] = pick(&run->steps[i], what);
    }
    return ech__stats_of(samples, count);
}

static void sum_up_ops(ech__run *run, double *samples)
{
    const size_t ninstrs = run->trainer->plan->ninstrs, count = (size_t)run->op_done;
    double busy = 0, total = 0;
    for (size_t n = 0; n < ninstrs; n++) {
        for (size_t i = 0; i < count; i++)
            samples[i] = (double)run->op_seconds[i * ninstrs + n];
        run->ops[n] = (ech__run_op){.instr = &run->trainer->plan->instrs[n],
                                    .median_s = ech__stats_of(samples, count).median};
    }
    size_t row = 0;
    for (int64_t i = run->config.warmup; i < run->done && row < count; i++) {
        if (run->steps[i].samples != run->config.train.batch)
            continue;
        const double time = run->steps[i].result.time_s;
        double inside = 0;
        for (size_t n = 0; n < ninstrs; n++)
            inside += (double)run->op_seconds[row * ninstrs + n];
        samples[row++] = 1 - inside / time;
        busy += inside;
        total += time;
    }
    run->summary.timed = (int64_t)row;
    run->summary.utilisation = total > 0 ? busy / total : 0;
    run->summary.outside_kernels = ech__stats_of(samples, row).median;
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
    s->samples_per_s =
        s->step_time.median > 0 ? (double)run->config.train.batch / s->step_time.median : 0;
    s->first_loss = run->steps[0].result.loss;
    s->final_loss = run->steps[run->done - 1].result.loss;
    sum_up_ops(run, samples);
    ech__delete(run->ctx, samples, bytes);
    return ech__trainer_hash(run->trainer, s->params_sha256);
}

ech_status ech__run_steps(ech__run *run, const ech__run_events *events)
{
    for (int64_t i = 0; i < run->config.steps; i++) {
        ECH_TRY(one_step(run, i, events));
        if (run->config.epochs && (i + 1) % run->feed.per_epoch == 0)
            ECH_TRY(end_epoch(run, events));
    }
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
