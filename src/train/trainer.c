#include "train/trainer.h"
#include "base/clock.h"
#include "train/optimizer.h"
#include "train/params.h"
#include "train/trainer_dp.h"

#include <math.h>

ech_train_options ech_train_defaults(void)
{
    return (ech_train_options){.batch = 64,
                               .optimizer = ECH_SGD,
                               .lr = 0.01,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .epsilon = 1e-8,
                               .tune = true,
                               .recompute = true};
}

/* Every pass, in order. */
static ech_status rewrite(ech_graph *graph, ech_value loss, const ech_train_options *options)
{
    ECH_TRY(ech__fuse(graph));
    ECH_TRY(ech__autodiff(graph, loss));
    if (options->recompute)
        ECH_TRY(ech__recompute(graph));
    ECH_TRY(ech__optimize(graph, options));
    if (options->delay_ms > 0)
        ECH_TRY(ech__insert_delay(graph, options->delay_ms * 1e-3));
    return ech__copy_weights(graph);
}

static ech_status check(ech_ctx *ctx, const ech_train_options *o)
{
    if (o->batch < 1)
        return ech__fail(ctx, ECH_E_INVALID, "a batch of %lld samples: at least 1 is needed",
                         (long long)o->batch);
    if (!isfinite(o->lr) || o->lr < 0)
        return ech__fail(ctx, ECH_E_INVALID, "learning rate %g: must be 0 or more", o->lr);
    if (!(o->delay_ms >= 0 && o->delay_ms <= 60000))
        return ech__fail(ctx, ECH_E_INVALID, "delay of %g ms: from 0 to 60000 are possible",
                         o->delay_ms);
    if (o->device_memory < 0)
        return ech__fail(ctx, ECH_E_INVALID, "device memory of %lld bytes: must be 0 or more",
                         (long long)o->device_memory);
    return ECH_OK;
}

static ech_status open_tuning(ech_trainer *trainer, const ech_train_options *options)
{
    char path[4096];
    if (options->tuning_file)
        return ech__tuning_open(trainer->ctx, options->tuning_file, &trainer->tuning);
    ECH_TRY(ech__tuning_default_path(trainer->ctx, path, sizeof path));
    return ech__tuning_open(trainer->ctx, path, &trainer->tuning);
}

/* Timings that cannot be kept cost time at the next start, no more. */
static void save_tuning(ech_trainer *trainer)
{
    if (!trainer->tuning || ech__tuning_save(trainer->tuning) == ECH_OK)
        return;
    ech__log(trainer->ctx, "kernel timings are not kept: %s", trainer->ctx->error);
    trainer->ctx->error[0] = 0;
}

/* By the choices that are handed in where that is possible, or else by measurement. */
static ech_status choose(ech_trainer *trainer, int64_t batch, const ech__choices *choices)
{
    ech_ctx *ctx = trainer->ctx;
    if (choices) {
        const ech__plan_options again = {.batch = batch, .choices = choices};
        const ech_status status =
            ech__plan_create(trainer->graph, trainer->device, &again, &trainer->plan);
        if (status != ECH_E_UNSUPPORTED && status != ECH_E_LIMIT)
            return status;
        ech__log(ctx, "kernels are chosen anew, so results will agree in rounding only: %s",
                 ctx->error);
        ctx->error[0] = 0;
        trainer->chosen_anew = true;
    }
    const ech__plan_options options = {.batch = batch, .tuning = trainer->tuning};
    return ech__plan_create(trainer->graph, trainer->device, &options, &trainer->plan);
}

static ech_status make_plan(ech_trainer *trainer, const ech_graph *graph, ech_value loss,
                            const ech__trainer_options *o)
{
    ech_ctx *ctx = trainer->ctx;
    const ech_train_options *options = o->train;
    const int64_t start = ech__clock_wall();
    ECH_TRY(check(ctx, options));
    ECH_TRY(ech_graph_status(graph));
    if (options->init) /* a wrong file is found before anything takes time */
        ECH_TRY(ech__params_check(graph, options->init));
    ECH_TRY(ech__graph_clone(graph, &trainer->model));
    if (options->dp_devices) {
        ECH_TRY(ech__trainer_dp_graph(trainer, loss, options));
        ECH_TRY(ech__trainer_dp_device(trainer, options));
    } else {
        ECH_TRY(ech__graph_clone(graph, &trainer->graph));
        ECH_TRY(rewrite(trainer->graph, loss, options));
        ECH_TRY(ech__device_create(ctx,
                                   &(ech__device_options){.kind = ECH__DEVICE_CPU,
                                                          .threads = options->threads,
                                                          .memory_limit = options->device_memory},
                                   &trainer->device));
    }
    if (options->tune)
        ECH_TRY(open_tuning(trainer, options));
    ECH_TRY(choose(trainer,
                   options->dp_devices ? ech__dp_first_part(options->batch, options->dp_devices)
                                       : options->batch,
                   o->choices));
    if (options->dp_devices)
        ECH_TRY(ech__trainer_dp_plan(trainer, options));
    trainer->timed_kernels = trainer->tuning ? ech__tuning_added(trainer->tuning) : 0;
    save_tuning(trainer);
    trainer->planning_s = ech__seconds(ech__clock_wall() - start);
    return ECH_OK;
}

static ech_status plan_it(ech_ctx *ctx, const ech_graph *graph, ech_value loss,
                          const ech__trainer_options *options, ech_trainer **out)
{
    *out = NULL;
    ech_trainer *trainer = ech__new(ctx, sizeof *trainer);
    if (!trainer)
        return ech__fail(ctx, ECH_E_NOMEM, "no memory for a trainer");
    trainer->ctx = ctx;
    trainer->seed = options->train->seed;
    trainer->scalars = (ech__scalars){.lr = options->train->lr, .loss_scale = 1, .step = 1};
    const ech_status status = make_plan(trainer, graph, loss, options);
    if (status < 0) {
        ech_trainer_destroy(trainer);
        return status;
    }
    *out = trainer;
    return ECH_OK;
}

ech_status ech__trainer_plan(ech_ctx *ctx, const ech_graph *graph, ech_value loss,
                             const ech_train_options *options, ech_trainer **out)
{
    return plan_it(ctx, graph, loss, &(ech__trainer_options){.train = options}, out);
}

ech_status ech__trainer_create(ech_ctx *ctx, const ech_graph *graph, ech_value loss,
                               const ech__trainer_options *o, ech_trainer **out)
{
    const ech_train_options *options = o->train;
    ECH_TRY(plan_it(ctx, graph, loss, o, out));
    ech_trainer *trainer = *out;
    ech_status status = ech__exec_create(trainer->plan, NULL, &trainer->exec);
    if (status == ECH_OK)
        status =
            options->init ? ech_trainer_load(trainer, options->init) : ech__params_init(trainer);
    ech__variant first = {options->batch, true, trainer->plan, trainer->exec};
    if (status == ECH_OK && options->dp_devices) {
        status = ech__trainer_dp_create(trainer, options);
        if (status == ECH_OK)
            status = ech__trainer_dp_variant(trainer, &first);
    }
    if (status < 0) {
        ech_trainer_destroy(trainer);
        *out = NULL;
        return status;
    }
    trainer->stale = true;
    trainer->variants[trainer->nvariants++] = first;
    return ECH_OK;
}

ech_status ech_trainer_create(ech_ctx *ctx, const ech_graph *graph, ech_value loss,
                              const ech_train_options *options, ech_trainer **out)
{
    return ech__trainer_create(ctx, graph, loss, &(ech__trainer_options){.train = options}, out);
}

void ech_trainer_destroy(ech_trainer *trainer)
{
    if (!trainer)
        return;
    for (int i = trainer->nvariants - 1; i > 0; i--) {
        if (trainer->dp && trainer->variants[i].training)
            continue; /* they belong to it */
        ech__exec_destroy(trainer->variants[i].exec);
        ech__plan_destroy(trainer->variants[i].plan);
    }
    ech__trainer_dp_destroy(trainer);
    ech__exec_destroy(trainer->exec);
    ech__plan_destroy(trainer->plan);
    ech__tuning_close(trainer->tuning);
    ech__device_destroy(trainer->device);
    ech_graph_destroy(trainer->graph);
    ech_graph_destroy(trainer->evaluated);
    ech_graph_destroy(trainer->model);
    ech__delete(trainer->ctx, trainer, sizeof *trainer);
}

/* ---- variants ---- */

static ech_status evaluated_graph(ech_trainer *trainer)
{
    if (trainer->evaluated)
        return ECH_OK;
    ECH_TRY(ech__graph_clone(trainer->model, &trainer->evaluated));
    ech__graph_keep(trainer->evaluated, trainer->graph->loss);
    ECH_TRY(ech__infer_only(trainer->evaluated));
    return ech__fuse(trainer->evaluated);
}

static ech_status make_variant(ech_trainer *trainer, ech__variant *v)
{
    if (v->training && trainer->dp)
        return ech__trainer_dp_variant(trainer, v);
    if (!v->training)
        ECH_TRY(evaluated_graph(trainer));
    /* Evaluation at the training's batch finds its kernels timed already. A short batch is rare: not tuned. */
    const ech__plan_options options = {.batch = v->batch,
                                       .tuning = v->batch == trainer->plan->batch ? trainer->tuning
                                                                                  : NULL,
                                       .like = trainer->plan};
    ECH_TRY(ech__plan_create(v->training ? trainer->graph : trainer->evaluated, trainer->device,
                             &options, &v->plan));
    const ech_status status = ech__exec_create(v->plan, trainer->exec, &v->exec);
    if (status < 0) {
        ech__plan_destroy(v->plan);
        v->plan = NULL;
    }
    return status;
}

ech_status ech__trainer_variant(ech_trainer *trainer, int64_t batch, bool training,
                                const ech__variant **out)
{
    for (int i = 0; i < trainer->nvariants; i++) {
        if (trainer->variants[i].batch == batch && trainer->variants[i].training == training) {
            *out = &trainer->variants[i];
            return ECH_OK;
        }
    }
    *out = NULL;
    if (trainer->nvariants == ECH__MAX_VARIANTS)
        return ech__fail(trainer->ctx, ECH_E_LIMIT, "a trainer takes at most %d batch sizes",
                         ECH__MAX_VARIANTS);
    ech__variant *v = &trainer->variants[trainer->nvariants];
    *v = (ech__variant){.batch = batch, .training = training};
    ECH_TRY(make_variant(trainer, v));
    trainer->nvariants++;
    *out = v;
    return ECH_OK;
}

/* ---- steps ---- */

double ech__variant_scalar(const ech_trainer *trainer, const ech__variant *variant, ech_value value)
{
    const void *at = ech__exec_address(variant->exec, value);
    return trainer->graph->values[value].type.dtype == ECH_F64 ? *(const double *)at
                                                               : (double)*(const float *)at;
}

/* A phase lasts from the start of its first operator to the start of the next phase, or to the end. */
static void fill_times(const ech__variant *variant, int64_t start, int64_t end, ech_step *out)
{
    const ech__plan *plan = variant->plan;
    const ech__span *spans = ech__exec_spans(variant->exec);
    int64_t begins[ECH__PHASE_COUNT + 1];
    begins[ECH__PHASE_COUNT] = end;
    size_t n = plan->ninstrs;
    for (int phase = ECH__PHASE_COUNT - 1; phase >= 0; phase--) {
        begins[phase] = begins[phase + 1];
        while (n > 0 && plan->instrs[n - 1].node->phase == (ech__phase)phase) {
            if (!ech__plan_is_idle(plan, &plan->instrs[--n]))
                begins[phase] = spans[n].start_ns;
        }
    }
    begins[ECH__PHASE_FORWARD] = start;
    out->time_s = ech__seconds(end - start);
    out->forward_s = ech__seconds(begins[ECH__PHASE_BACKWARD] - begins[ECH__PHASE_FORWARD]);
    out->backward_s = ech__seconds(begins[ECH__PHASE_OPTIMIZER] - begins[ECH__PHASE_BACKWARD]);
    out->optimizer_s = ech__seconds(begins[ECH__PHASE_COUNT] - begins[ECH__PHASE_OPTIMIZER]);
}

ech_status ech__variant_step(ech_trainer *trainer, const ech__variant *variant, ech_step *out)
{
    if (trainer->stale) /* outside of the step's time: the optimizer does it otherwise */
        ECH_TRY(ech__exec_run(trainer->exec, ECH__PHASE_REFRESH, ECH__PHASE_REFRESH,
                              &trainer->scalars));
    trainer->stale = false;
    if (variant->training && trainer->dp)
        return ech__trainer_dp_step(trainer, variant, out);
    const int64_t start = ech__clock_wall();
    ECH_TRY(
        ech__exec_run(variant->exec, ECH__PHASE_FORWARD, ECH__PHASE_REFRESH, &trainer->scalars));
    const int64_t end = ech__clock_wall();
    if (variant->training)
        trainer->scalars.step++;
    if (out) {
        fill_times(variant, start, end, out);
        out->loss = ech__variant_scalar(trainer, variant, trainer->graph->loss);
    }
    return ECH_OK;
}

ech_status ech_trainer_step(ech_trainer *trainer, ech_step *out)
{
    return ech__variant_step(trainer, &trainer->variants[0], out);
}

ech_status ech_trainer_evaluate(ech_trainer *trainer, ech_value value, double *out)
{
    const ech__variant *training = &trainer->variants[0], *variant;
    const ech_graph *model = trainer->model;
    if (value < 0 || (size_t)value >= model->nvalues ||
        model->values[value].type.shape.ndims != 0 || !trainer->graph->values[value].kept)
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "value %d is neither the loss nor a count of correct samples", (int)value);
    ECH_TRY(ech__trainer_variant(trainer, training->batch, false, &variant));
    ECH_TRY(ech__variant_take_inputs(trainer, training, variant));
    ECH_TRY(ech__variant_step(trainer, variant, NULL));
    *out = ech__variant_scalar(trainer, variant, value);
    return ECH_OK;
}

void ech_trainer_set_lr(ech_trainer *trainer, double lr)
{
    trainer->scalars.lr = lr;
}

int64_t ech_trainer_planned_memory(const ech_trainer *trainer)
{
    return trainer->plan->total_bytes + (trainer->whole ? trainer->whole->total_bytes : 0);
}

int64_t ech_trainer_peak_memory(const ech_trainer *trainer)
{
    return trainer->device->memory_peak;
}
