#include "train/strategy/pipe.h"
#include "base/system/clock.h"
#include "train/step/optimizer.h"
#include "train/step/passes.h"
#include "train/strategy/strategy.h"

typedef struct state {
    ech__pipe *pipe;    /* NULL until the devices are open */
    ech__comm *ranks;   /* borrowed; those that hold the devices, one each; NULL: all are here */
    ech__layers layers; /* of the model */
} state;

static state *state_of(const ech_trainer *trainer)
{
    return trainer->state;
}

static ech__pipe *pipe_of(const ech_trainer *trainer)
{
    return state_of(trainer)->pipe;
}

ech__pipe *ech__trainer_pipe(const ech_trainer *trainer)
{
    return trainer->ops == &ech__ops_pipe && trainer->state ? pipe_of(trainer) : NULL;
}

/* ---- options and ranks ---- */

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

/* Ranks are devices of one model, or groups of devices that train it with samples of their own. */
static ech_status join(ech_trainer *trainer, const ech_train_options *o)
{
    const int world = o->ddp.group ? o->ddp.group->comm->world : 1;
    trainer->state = ech__new(trainer->ctx, sizeof(state));
    if (!trainer->state)
        return ech__no_memory(trainer->ctx, "%d model-parallel devices", o->pipeline.devices);
    if (!o->pipeline.ranks)
        return ech__rank_join(trainer, o);
    if (world != o->pipeline.devices)
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "%d model-parallel devices in %d ranks: each rank has one",
                         o->pipeline.devices, world);
    state_of(trainer)->ranks = o->ddp.group ? o->ddp.group->comm : NULL;
    return ECH_OK;
}

static ech__comm *model_group(const ech_trainer *trainer)
{
    return state_of(trainer)->ranks;
}

/* ---- graphs ---- */

static ech_status make_graphs(ech_trainer *trainer, ech_value loss,
                              const ech__graphs_options *options)
{
    (void)loss;
    ECH_TRY(check(trainer, options->train));
    trainer->nroles = 1;
    const ech_status status = ech__graphs_of_layers(trainer->model, options, &trainer->graphs[0],
                                                    &state_of(trainer)->layers);
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
        return ech__no_memory(trainer->ctx, "a list of %zu parameters", graph->nvalues);
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
    return ech__pipe_stage(pipe_of(trainer), ech__pipe_first(pipe_of(trainer)));
}

static ech_status open_devices(ech_trainer *trainer, ech_value loss, const ech_train_options *o)
{
    ech_value watched[ECH__PIPE_MOST_WATCHED];
    state *own = state_of(trainer);
    const ech__comm *all = ech__trainer_all_ranks(trainer);
    const int here = own->ranks ? 1 : o->pipeline.devices;
    ech__pipe_options options = {.devices = o->pipeline.devices,
                                 .micros = ech__micro_batches(o),
                                 .batch = o->batch,
                                 .order = o->pipeline.schedule,
                                 .device = {.kind = trainer->device_kind,
                                            .threads = o->threads,
                                            .memory_limit = o->device_memory,
                                            .sharers = (all ? all->local_world : 1) * here},
                                 .comm = own->ranks,
                                 .ranks = trainer->ranks,
                                 .sync_bn = o->ddp.sync_bn,
                                 .links = trainer->emulated ? &trainer->emulation.cluster : NULL,
                                 .watched = watched};
    ECH_TRY(watch(trainer, loss, watched, &options.nwatched));
    ECH_TRY(list_params(trainer, &options));
    ECH_TRY(ech__pipe_create(trainer->ctx, &options, &own->pipe));
    trainer->device = own_stage(trainer)->device;
    return ECH_OK;
}

/* ---- times of layers ---- */

/* Plans the training as if it were on one device, which times each kernel once; the plans of the
 * parts then find its times. */
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
        const int layer =
            ech__layer_of(trainer->graph, &state_of(trainer)->layers, plan->instrs[n].node);
        if (layer >= 0)
            state_of(trainer)->layers.at[layer].seconds += plan->instrs[n].seconds;
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
    graph->ctx = own_stage(trainer)->ctx; /* its device's error messages go there */
    const ech_status status = time_layers(trainer, graph, loss, o);
    ech_graph_destroy(graph);
    return ech__stage_result(own_stage(trainer), status);
}

/* ---- parts ---- */

static ech_status cut_graph(ech_trainer *trainer, const ech__graphs_options *o)
{
    int buckets = 0;
    for (int d = 0; d < o->train->pipeline.devices; d++) {
        ech__stage *stage = ech__pipe_stage(pipe_of(trainer), d);
        if (ech__pipe_has(pipe_of(trainer), d))
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
    ECH_TRY(ech__placement_apply(trainer->ctx, &placement, &state_of(trainer)->layers));
    ECH_TRY(ech__graphs_place(trainer->graph, &state_of(trainer)->layers, loss, &options));
    ECH_TRY(cut_graph(trainer, &options));
    return ech__optimize(trainer->graph, o); /* so that it has all values of the parts */
}

static ech_status plan_parts(ech_trainer *trainer, const ech__choices *choices)
{
    if (choices) {
        const ech_status status = ech__pipe_plan(pipe_of(trainer), NULL, choices);
        if (!ech__rank_must_choose(trainer, status))
            return status;
        ech__pipe_unplan(pipe_of(trainer));
    }
    return ech__pipe_plan(pipe_of(trainer), trainer->tuning, NULL);
}

static ech_status make_plans(ech_trainer *trainer, ech_value loss, const ech_train_options *o,
                             const ech__choices *choices)
{
    ECH_TRY(make_parts(trainer, loss, o));
    ECH_TRY(plan_parts(trainer, choices));
    trainer->plan = own_stage(trainer)->plan;
    return ECH_OK;
}

/* ---- lifecycle ---- */

static void destroy(ech_trainer *trainer)
{
    state *own = state_of(trainer);
    if (!own)
        return;
    if (own->pipe) {
        ech__pipe_destroy(own->pipe);
        trainer->plan = NULL; /* these were the first device's */
        trainer->exec = NULL;
        trainer->device = NULL;
    }
    ech__delete(trainer->ctx, own, sizeof *own);
}

/* The forward pass by running statistics, cut as the training is. */
static ech_status make_evaluated(ech_trainer *trainer)
{
    const ech__layers *trained = &state_of(trainer)->layers;
    ech__layers layers;
    if (!trainer->evaluated) {
        ECH_TRY(ech__graph_clone(trainer->model, &trainer->evaluated));
        ech__graph_keep(trainer->evaluated, trainer->graph->loss);
        ECH_TRY(ech__passes_infer(trainer->evaluated));
        ECH_TRY(ech__layers_find(trainer->evaluated, &layers));
        if (layers.count != trained->count)
            return ech__fail(trainer->ctx, ECH_E_INTERNAL,
                             "a model of %d layers has %d when it is evaluated", trained->count,
                             layers.count);
        for (int i = 0; i < layers.count; i++)
            layers.at[i].device = trained->at[i].device;
        ECH_TRY(ech__place_layers(trainer->evaluated, &layers));
        ECH_TRY(ech__passes_infer_cast(trainer->evaluated, trainer->amp));
    }
    for (int d = 0; d < ech__pipe_devices(pipe_of(trainer)); d++) {
        ech__stage *stage = ech__pipe_stage(pipe_of(trainer), d);
        ech_graph **part = &stage->graphs[ECH__PIPE_EVALUATES];
        if (!ech__pipe_has(pipe_of(trainer), d) || *part)
            continue;
        ECH_TRY(ech__cut(trainer->evaluated, d, stage->ctx, part));
        ECH_TRY(ech__stage_result(stage, ech__passes_infer_end(*part)));
    }
    return ECH_OK;
}

static ech_status make_variant(ech_trainer *trainer, ech__variant *variant)
{
    if (!variant->training)
        ECH_TRY(make_evaluated(trainer));
    const ech__pass_kind kind = !variant->training ? ECH__PASS_EVALUATES
                                : variant->role    ? ECH__PASS_ADDS
                                                   : ECH__PASS_WRITES;
    const ech__pass *pass;
    ECH_TRY(ech__pipe_pass_of(pipe_of(trainer), variant->batch, variant->micros, kind, &pass));
    const int at = ech__pipe_first(pipe_of(trainer)) * pass->micros;
    variant->own = pass;
    variant->plan = pass->plans[at];
    variant->exec = pass->execs[at];
    return ECH_OK;
}

static ech_status make_ready(ech_trainer *trainer, const ech_train_options *o)
{
    ECH_TRY(ech__pipe_ready(pipe_of(trainer)));
    trainer->exec = own_stage(trainer)->exec;
    ech__variant *first = &trainer->variants[trainer->nvariants++];
    *first = (ech__variant){
        .batch = o->batch, .training = true, .micros = ech__pipe_micros(pipe_of(trainer))};
    return make_variant(trainer, first);
}

static ech_status share_weights(ech_trainer *trainer)
{
    for (int d = 0; trainer->comm && d < ech__pipe_devices(pipe_of(trainer)); d++) {
        const ech__stage *stage = ech__pipe_stage(pipe_of(trainer), d);
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

/* What the devices did since, as the mean of all. In the rest of the time they wait for each
 * other. */
static void add_times(ech_trainer *trainer, const ech__stage_work *before, ech__phase_times *times)
{
    const ech__stage_work all = work_of(pipe_of(trainer));
    const int devices = ech__pipe_devices(pipe_of(trainer));
    const int64_t forward = (all.forward_ns - before->forward_ns) / devices;
    const int64_t backward = (all.backward_ns - before->backward_ns) / devices;
    const int64_t update = (all.update_ns - before->update_ns) / devices;
    const int64_t moved = (all.copy_ns - before->copy_ns) / devices;
    int64_t start, flushed, end;
    ech__pipe_span(pipe_of(trainer), &start, &flushed, &end);
    times->ns[ECH__PHASE_FORWARD] += forward;
    times->ns[ECH__PHASE_BACKWARD] += backward;
    times->ns[ECH__PHASE_OPTIMIZER] += update;
    times->exposed_ns += moved;
    times->wait_ns += end - start - forward - backward - update - moved;
    if (trainer->emulated)
        trainer->clock.now_ns = end;
}

static ech_status run_micro_step(ech_trainer *trainer, const ech__variant *variant, unsigned after,
                                 const ech__scalars *scalars, ech__phase_times *times)
{
    const ech__pipe_step step = {.scalars = scalars,
                                 .start_ns = trainer->clock.now_ns,
                                 .after = after,
                                 .goes_on = trainer->micro > 0};
    const ech__stage_work before =
        step.goes_on ? work_of(pipe_of(trainer)) : (ech__stage_work){.forward_ns = 0};
    ECH_TRY(ech__pipe_run(pipe_of(trainer), variant->own, &step));
    add_times(trainer, &before, times);
    return ECH_OK;
}

static ech_status apply(ech_trainer *trainer, const ech__scalars *scalars, ech__phase_times *times)
{
    const ech__stage_work before = work_of(pipe_of(trainer));
    ECH_TRY(ech__pipe_apply(pipe_of(trainer), scalars, trainer->clock.now_ns));
    add_times(trainer, &before, times);
    return ECH_OK;
}

/* ---- figures ---- */

static int64_t planned_bytes(const ech_trainer *trainer)
{
    int64_t sum = 0;
    for (int d = 0; d < ech__pipe_devices(pipe_of(trainer)); d++)
        sum += ech__pipe_planned(pipe_of(trainer), d);
    return sum;
}

static ech_json *choices_of(const ech_trainer *trainer)
{
    const ech__plan *plans[ECH__MAX_STAGES];
    const int devices = ech__pipe_devices(pipe_of(trainer));
    for (int d = 0; d < devices; d++)
        plans[d] = ech__pipe_stage(pipe_of(trainer), d)->plan;
    return ech__choices_json_of(plans, devices);
}

static ech_status run(ech_trainer *trainer, const ech__variant *variant, unsigned phases,
                      const ech__scalars *scalars, ech__phase_times *times)
{
    const unsigned compute = ECH__PHASE_BIT(FORWARD) | ECH__PHASE_BIT(BACKWARD);
    return phases & compute ? run_micro_step(trainer, variant, phases & ~compute, scalars, times)
                            : apply(trainer, scalars, times);
}

static int micro_batches(const ech_trainer *trainer, int64_t batch, double share)
{
    return ech__pipe_micros_of(pipe_of(trainer), batch, share);
}

static ech_status grad_stats(ech_trainer *trainer, double out[ECH__GRAD_STATS])
{
    return ech__pipe_grad_stats(pipe_of(trainer), out);
}

static ech_status evaluate(ech_trainer *trainer, const ech__variant *variant)
{
    const ech__pipe_step step = {.scalars = &trainer->scalars, .start_ns = trainer->clock.now_ns};
    return ech__pipe_run(pipe_of(trainer), variant->own, &step);
}

static ech_status refresh(ech_trainer *trainer)
{
    return ech__pipe_refresh(pipe_of(trainer), &trainer->scalars);
}

static ech_status scalar(const ech_trainer *trainer, const ech__variant *variant, ech_value value,
                         double *out)
{
    (void)variant;
    *out = ech__pipe_result(pipe_of(trainer), value);
    return ECH_OK;
}

static int64_t updates(const ech_trainer *trainer)
{
    return ech__pipe_updates(pipe_of(trainer));
}

static ech__nonfinite nonfinite(const ech_trainer *trainer, const ech__variant *variant,
                                int *device)
{
    (void)variant;
    return ech__pipe_nonfinite(pipe_of(trainer), device);
}

/* NOLINTNEXTLINE(readability-non-const-parameter): other strategies write to it */
static double kernels(const ech_trainer *trainer, const ech__variant *variant, double *sums_s)
{
    (void)variant;
    (void)sums_s;
    return ech__pipe_busy_s(pipe_of(trainer));
}

static ech_status write_input(ech_trainer *trainer, const ech__variant *variant,
                              const ech__input *input)
{
    return ech__pipe_write(pipe_of(trainer), variant->own, input->name, input->data, input->bytes);
}

static ech_status read_input(ech_trainer *trainer, const ech__variant *variant,
                             const ech__input *input)
{
    return ech__pipe_read(pipe_of(trainer), variant->own, input->name, input->data, input->bytes);
}

static ech_status take_inputs(ech_trainer *trainer, const ech__variant *from,
                              const ech__variant *to)
{
    return ech__pipe_take_inputs(pipe_of(trainer), from->own, to->own);
}

static int devices(const ech_trainer *trainer)
{
    return ech__pipe_devices(pipe_of(trainer));
}

static const ech__layers *layers_of(const ech_trainer *trainer)
{
    return &state_of(trainer)->layers;
}

static const ech__plan *plan_of(const ech_trainer *trainer, int device)
{
    return ech__pipe_stage(pipe_of(trainer), device)->plan;
}

static const ech__exec *exec_of(const ech_trainer *trainer, int device)
{
    return ech__pipe_stage(pipe_of(trainer), device)->exec;
}

static bool home(const ech_trainer *trainer, ech_value value, const ech__plan **plan,
                 const ech__exec **exec, ech_value *there)
{
    const char *name = trainer->graph->values[value].name;
    const ech__stage *stage = ech__pipe_find(pipe_of(trainer), name, there);
    if (!stage)
        return false;
    *plan = stage->plan;
    *exec = stage->exec;
    return (*plan)->places[*there].used;
}

static void memory(const ech_trainer *trainer, int device, int64_t out[ECH__MEMORY_COUNT])
{
    ech__pipe_memory(pipe_of(trainer), device, out);
}

static int64_t peak(const ech_trainer *trainer, int device)
{
    const ech__stage *stage = ech__pipe_stage(pipe_of(trainer), device);
    return stage->device ? stage->device->memory_peak : stage->work.peak;
}

static void work(const ech_trainer *trainer, int device, ech_device_stats *out)
{
    const ech__stage *stage = ech__pipe_stage(pipe_of(trainer), device);
    out->samples = trainer->variants[0].batch;
    out->bytes_in = stage->work.bytes_in;
    out->bytes_out = stage->work.bytes_out;
    out->busy_s = ech__stage_busy_s(stage);
}

const ech__strategy_ops ech__ops_pipe = {
    .join = join,
    .model_group = model_group,
    .graphs = make_graphs,
    .plans_graphs = true,
    .open = open_devices,
    .plan = make_plans,
    .ready = make_ready,
    .share_weights = share_weights,
    .destroy = destroy,
    .choices = choices_of,
    .variant = make_variant,
    .micro_batches = micro_batches,
    .run = run,
    .grad_stats = grad_stats,
    .evaluate = evaluate,
    .refresh = refresh,
    .scalar = scalar,
    .updates = updates,
    .nonfinite = nonfinite,
    .kernels = kernels,
    .write = write_input,
    .read = read_input,
    .take_inputs = take_inputs,
    .devices = devices,
    .planned_devices = devices,
    .layers = layers_of,
    .plan_of = plan_of,
    .exec_of = exec_of,
    .home = home,
    .memory = memory,
    .peak = peak,
    .need = planned_bytes,
    .work = work,
};
