#include "train/step/trainer_pipe.h"
#include "base/system/clock.h"
#include "train/step/optimizer.h"
#include "train/step/passes.h"

static ech_status check(const ech_trainer *trainer, const ech_train_options *o)
{
    ech_ctx *ctx = trainer->ctx;
    if (o->pipeline.devices < 0 || o->pipeline.devices > ECH__MAX_STAGES)
        return ech__fail(ctx, ECH_E_INVALID,
                         "%d model-parallel devices: from 1 to %d are possible, or 0 for none",
                         o->pipeline.devices, ECH__MAX_STAGES);
    if (o->pipeline.micro_batches < 0 || o->pipeline.micro_batches > ECH__PIPE_MOST_MICROS)
        return ech__fail(ctx, ECH_E_INVALID, "%d micro-batches: from 1 to %d are possible",
                         o->pipeline.micro_batches, ECH__PIPE_MOST_MICROS);
    if (o->batch % ech__micro_batches(o))
        return ech__fail(ctx, ECH_E_INVALID,
                         "a batch of %lld samples in %d micro-batches: they must divide it",
                         (long long)o->batch, ech__micro_batches(o));
    return ECH_OK;
}

/* ---- graphs ---- */

ech_status ech__trainer_pipe_graph(ech_trainer *trainer, const ech__graphs_options *options)
{
    ECH_TRY(check(trainer, options->train));
    trainer->nroles = 1;
    const ech_status status =
        ech__graphs_of_layers(trainer->model, options, &trainer->graphs[0], &trainer->layers);
    trainer->graph = trainer->graphs[0];
    return status;
}

static ech_status watch(const ech_trainer *trainer, ech_value loss, ech_value *out, int *count)
{
    *count = 0;
    out[(*count)++] = loss;
    for (size_t v = 0; v < trainer->model->nvalues; v++) {
        const ech__value *value = &trainer->model->values[v];
        if (!value->kept || value->type.shape.ndims || (ech_value)v == loss)
            continue;
        if (*count == ECH__PIPE_MOST_WATCHED)
            return ech__fail(trainer->ctx, ECH_E_LIMIT, "more than %d counts of a model",
                             ECH__PIPE_MOST_WATCHED - 1);
        out[(*count)++] = (ech_value)v;
    }
    return ECH_OK;
}

static ech_status list_params(const ech_trainer *trainer, ech__pipe_options *o)
{
    ech_graph *graph = trainer->graph;
    ech_value *params = ech__arena_array(&graph->arena, graph->nvalues, sizeof *params);
    if (!params)
        return ech__fail(trainer->ctx, ECH_E_NOMEM, "no memory for the parameters of a model");
    for (size_t v = 0; v < graph->nvalues; v++) {
        if (graph->values[v].kind == ECH__VALUE_PARAM)
            params[o->nparams++] = (ech_value)v;
    }
    o->params = params;
    return ECH_OK;
}

/* The first device that is in this process. */
static ech__stage *own_stage(const ech_trainer *trainer)
{
    return ech__pipe_stage(trainer->pipe, ech__pipe_first(trainer->pipe));
}

ech_status ech__trainer_pipe_open(ech_trainer *trainer, ech_value loss, const ech_train_options *o)
{
    ech_value watched[ECH__PIPE_MOST_WATCHED];
    const int here = trainer->stages ? 1 : o->pipeline.devices;
    const int local = trainer->comm     ? trainer->comm->local_world
                      : trainer->stages ? trainer->stages->local_world
                                        : 1;
    ech__pipe_options options = {.devices = o->pipeline.devices,
                                 .micros = ech__micro_batches(o),
                                 .batch = o->batch,
                                 .order = o->pipeline.schedule,
                                 .device = {.kind = trainer->device_kind,
                                            .threads = o->threads,
                                            .memory_limit = o->device_memory,
                                            .sharers = local * here},
                                 .comm = trainer->stages,
                                 .ranks = trainer->ranks,
                                 .sync_bn = o->ddp.sync_bn,
                                 .links = trainer->emulated ? &trainer->emulation.cluster : NULL,
                                 .watched = watched};
    ECH_TRY(watch(trainer, loss, watched, &options.nwatched));
    ECH_TRY(list_params(trainer, &options));
    ECH_TRY(ech__pipe_create(trainer->ctx, &options, &trainer->pipe));
    trainer->device = own_stage(trainer)->device;
    return ECH_OK;
}

/* ---- what layers cost ---- */

/* Plans the training as if it were on one device, which times each kernel once; the plans of the parts then find its times. */
static ech_status time_layers(ech_trainer *trainer, ech_graph *graph, ech_value loss,
                              const ech_train_options *o)
{
    ech__device *device = trainer->device;
    const int64_t limit = device->memory_limit;
    ech__plan *plan;
    ECH_TRY(ech__passes_backward(graph, (ech__backward_from){loss, -1}, o));
    ECH_TRY(ech__passes_step(graph, &(ech__step_passes){.train = o, .updates = true}));
    device->memory_limit = 0; /* nothing of it is allocated */
    const ech_status status = ech__plan_create(
        graph, device,
        &(ech__plan_options){.batch = o->batch / ech__micro_batches(o), .tuning = trainer->tuning},
        &plan);
    device->memory_limit = limit;
    ECH_TRY(status);
    for (size_t n = 0; n < plan->ninstrs; n++) {
        const int layer = ech__layer_of(trainer->graph, &trainer->layers, plan->instrs[n].node);
        if (layer >= 0)
            trainer->layers.at[layer].seconds += plan->instrs[n].seconds;
    }
    ech__plan_destroy(plan);
    return ECH_OK;
}

static ech_status find_seconds(ech_trainer *trainer, ech_value loss, const ech_train_options *o)
{
    if (!trainer->tuning)
        return ECH_OK;
    ech_graph *graph;
    ECH_TRY(ech__graph_clone(trainer->graph, &graph));
    graph->ctx = own_stage(trainer)->ctx; /* its device's sentences go there */
    const ech_status status = time_layers(trainer, graph, loss, o);
    ech_graph_destroy(graph);
    return ech__stage_result(own_stage(trainer), status);
}

/* ---- parts ---- */

static ech_status cut_graph(ech_trainer *trainer, const ech__graphs_options *o)
{
    int buckets = 0;
    for (int d = 0; d < o->train->pipeline.devices; d++) {
        ech__stage *stage = ech__pipe_stage(trainer->pipe, d);
        if (ech__pipe_has(trainer->pipe, d))
            ECH_TRY(ech__stage_result(stage, ech__graphs_of_stage(trainer->graph, d, stage->ctx, o,
                                                                  &buckets, stage->graphs)));
    }
    return ECH_OK;
}

static ech_status make_parts(ech_trainer *trainer, ech_value loss, const ech_train_options *o)
{
    const ech__graphs_options options = {.train = o, .ranks = ech__trainer_world(trainer)};
    const ech__placement placement = ech__graphs_placement(o);
    if (ech__placement_wants_seconds(o->pipeline.placement))
        ECH_TRY(find_seconds(trainer, loss, o));
    ECH_TRY(ech__placement_apply(trainer->ctx, &placement, &trainer->layers));
    ECH_TRY(ech__graphs_place(trainer->graph, &trainer->layers, loss, &options));
    ECH_TRY(cut_graph(trainer, &options));
    return ech__optimize(trainer->graph, o); /* so that its values are all that there are */
}

static ech_status plan_parts(ech_trainer *trainer, const ech__choices *choices)
{
    ech_ctx *ctx = trainer->ctx;
    if (choices) {
        const ech_status status = ech__pipe_plan(trainer->pipe, NULL, choices);
        if (status != ECH_E_UNSUPPORTED && status != ECH_E_LIMIT)
            return status;
        ech__log(ctx, "kernels are chosen anew, so results will agree in rounding only: %s",
                 ctx->error);
        ctx->error[0] = 0;
        trainer->chosen_anew = true;
        ech__pipe_unplan(trainer->pipe);
    }
    return ech__pipe_plan(trainer->pipe, trainer->tuning, NULL);
}

ech_status ech__trainer_pipe_plan(ech_trainer *trainer, ech_value loss, const ech_train_options *o,
                                  const ech__choices *choices)
{
    ECH_TRY(make_parts(trainer, loss, o));
    ECH_TRY(plan_parts(trainer, choices));
    trainer->plan = own_stage(trainer)->plan;
    return ECH_OK;
}

/* ---- life ---- */

ech_status ech__trainer_pipe_ready(ech_trainer *trainer, const ech_train_options *o)
{
    ECH_TRY(ech__pipe_ready(trainer->pipe));
    trainer->exec = own_stage(trainer)->exec;
    ech__variant *first = &trainer->variants[trainer->nvariants++];
    *first = (ech__variant){
        .batch = o->batch, .training = true, .micros = ech__pipe_micros(trainer->pipe)};
    return ech__trainer_pipe_variant(trainer, first);
}

void ech__trainer_pipe_destroy(ech_trainer *trainer)
{
    if (!trainer->pipe)
        return;
    ech__pipe_destroy(trainer->pipe);
    trainer->pipe = NULL;
    trainer->plan = NULL; /* they were its first device's */
    trainer->exec = NULL;
    trainer->device = NULL;
}

/* The forward pass by running statistics, cut as the training is. */
static ech_status make_evaluated(ech_trainer *trainer)
{
    ech__layers layers;
    if (!trainer->evaluated) {
        ECH_TRY(ech__graph_clone(trainer->model, &trainer->evaluated));
        ech__graph_keep(trainer->evaluated, trainer->graph->loss);
        ECH_TRY(ech__passes_infer(trainer->evaluated));
        ECH_TRY(ech__layers_find(trainer->evaluated, &layers));
        if (layers.count != trainer->layers.count)
            return ech__fail(trainer->ctx, ECH_E_INTERNAL,
                             "a model of %d layers has %d when it is evaluated",
                             trainer->layers.count, layers.count);
        for (int i = 0; i < layers.count; i++)
            layers.at[i].device = trainer->layers.at[i].device;
        ECH_TRY(ech__place_layers(trainer->evaluated, &layers));
        ECH_TRY(ech__passes_infer_cast(trainer->evaluated, trainer->amp));
    }
    for (int d = 0; d < ech__pipe_devices(trainer->pipe); d++) {
        ech__stage *stage = ech__pipe_stage(trainer->pipe, d);
        ech_graph **part = &stage->graphs[ECH__PIPE_EVALUATES];
        if (!ech__pipe_has(trainer->pipe, d) || *part)
            continue;
        ECH_TRY(ech__cut(trainer->evaluated, d, stage->ctx, part));
        ECH_TRY(ech__stage_result(stage, ech__passes_infer_end(*part)));
    }
    return ECH_OK;
}

ech_status ech__trainer_pipe_variant(ech_trainer *trainer, ech__variant *variant)
{
    if (!variant->training)
        ECH_TRY(make_evaluated(trainer));
    const ech__pass_kind kind = !variant->training ? ECH__PASS_EVALUATES
                                : variant->role    ? ECH__PASS_ADDS
                                                   : ECH__PASS_WRITES;
    ECH_TRY(
        ech__pipe_pass_of(trainer->pipe, variant->batch, variant->micros, kind, &variant->pass));
    const int at = ech__pipe_first(trainer->pipe) * variant->pass->micros;
    variant->plan = variant->pass->plans[at];
    variant->exec = variant->pass->execs[at];
    return ECH_OK;
}

ech_status ech__trainer_pipe_share_weights(ech_trainer *trainer)
{
    for (int d = 0; trainer->comm && d < ech__pipe_devices(trainer->pipe); d++) {
        const ech__stage *stage = ech__pipe_stage(trainer->pipe, d);
        int64_t bytes;
        void *weights = ech__exec_block(stage->exec, ECH__MEMORY_WEIGHTS, &bytes);
        ECH_TRY(ech__ranks_broadcast(trainer->comm, stage->device, weights, bytes));
    }
    return ECH_OK;
}

/* ---- steps ---- */

/* Of all devices together, in the step so far. */
static ech__stage_work work_of(const ech__pipe *pipe)
{
    ech__stage_work sum = {.forward_ns = 0};
    for (int d = 0; d < ech__pipe_devices(pipe); d++) {
        const ech__stage_work *work = &ech__pipe_stage(pipe, d)->work;
        sum.forward_ns += work->forward_ns;
        sum.backward_ns += work->backward_ns;
        sum.update_ns += work->update_ns;
        sum.copy_ns += work->copy_ns + work->exchange_ns;
    }
    return sum;
}

/* What the devices did since, as the mean of all. They wait for each other in the rest of the time. */
static void add_times(ech_trainer *trainer, const ech__stage_work *before, ech__phase_times *times)
{
    const ech__stage_work all = work_of(trainer->pipe);
    const int devices = ech__pipe_devices(trainer->pipe);
    const int64_t forward = (all.forward_ns - before->forward_ns) / devices;
    const int64_t backward = (all.backward_ns - before->backward_ns) / devices;
    const int64_t update = (all.update_ns - before->update_ns) / devices;
    const int64_t moved = (all.copy_ns - before->copy_ns) / devices;
    int64_t start, flushed, end;
    ech__pipe_span(trainer->pipe, &start, &flushed, &end);
    times->ns[ECH__PHASE_FORWARD] += forward;
    times->ns[ECH__PHASE_BACKWARD] += backward;
    times->ns[ECH__PHASE_OPTIMIZER] += update;
    times->exposed_ns += moved;
    times->wait_ns += end - start - forward - backward - update - moved;
    if (trainer->emulated)
        trainer->clock.now_ns = end;
}

ech_status ech__trainer_pipe_run(ech_trainer *trainer, const ech__variant *variant, unsigned after,
                                 const ech__scalars *scalars, ech__phase_times *times)
{
    const ech__pipe_step step = {.scalars = scalars,
                                 .start_ns = trainer->clock.now_ns,
                                 .after = after,
                                 .goes_on = trainer->micro > 0};
    const ech__stage_work before =
        step.goes_on ? work_of(trainer->pipe) : (ech__stage_work){.forward_ns = 0};
    ECH_TRY(ech__pipe_run(trainer->pipe, variant->pass, &step));
    add_times(trainer, &before, times);
    return ECH_OK;
}

ech_status ech__trainer_pipe_apply(ech_trainer *trainer, const ech__scalars *scalars,
                                   ech__phase_times *times)
{
    const ech__stage_work before = work_of(trainer->pipe);
    ECH_TRY(ech__pipe_apply(trainer->pipe, scalars, trainer->clock.now_ns));
    add_times(trainer, &before, times);
    return ECH_OK;
}

/* ---- figures ---- */

int64_t ech__trainer_pipe_planned(const ech_trainer *trainer)
{
    int64_t sum = 0;
    for (int d = 0; d < ech__pipe_devices(trainer->pipe); d++)
        sum += ech__pipe_planned(trainer->pipe, d);
    return sum;
}

ech_json *ech__trainer_pipe_choices(const ech_trainer *trainer)
{
    const ech__plan *plans[ECH__MAX_STAGES];
    const int devices = ech__pipe_devices(trainer->pipe);
    for (int d = 0; d < devices; d++)
        plans[d] = ech__pipe_stage(trainer->pipe, d)->plan;
    return ech__choices_json_of(plans, devices);
}
