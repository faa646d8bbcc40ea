#include "train/step/trainer.h"
#include "base/format.h"
#include "base/names.h"
#include "base/system/available.h"
#include "base/system/clock.h"
#include "comm/comm.h"
#include "train/options.h"
#include "train/step/clock.h"
#include "train/step/graphs.h"
#include "train/step/params.h"
#include "train/strategy/strategy.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ech_train_options ech_train_defaults(void)
{
    return (ech_train_options){.size = sizeof(ech_train_options),
                               .batch = 64,
                               .optimizer.kind = ECH_OPTIMIZER_SGD,
                               .optimizer.lr = 0.01,
                               .optimizer.beta1 = 0.9,
                               .optimizer.beta2 = 0.999,
                               .optimizer.epsilon = 1e-8,
                               .tune = true,
                               .recompute = true,
                               .accum = 1,
                               .ddp.bucket_bytes = 25 << 20,
                               .ddp.broadcast_buffers = true,
                               .ddp.sharded_update = true,
                               .ddp.slots = 8,
                               .pipeline.schedule = ECH_PIPELINE_ONE_F_ONE_B};
}

ech__virtual_clock *ech__trainer_clock(ech_trainer *trainer)
{
    return trainer->emulated ? &trainer->clock : NULL;
}

int ech__trainer_world(const ech_trainer *trainer)
{
    return trainer->comm ? trainer->comm->world : 1;
}

ech__comm *ech__trainer_model_group(const ech_trainer *trainer)
{
    return trainer->ops->model_group ? trainer->ops->model_group(trainer) : NULL;
}

ech__comm *ech__trainer_all_ranks(const ech_trainer *trainer)
{
    return trainer->comm ? trainer->comm : ech__trainer_model_group(trainer);
}

int ech__trainer_rank(const ech_trainer *trainer)
{
    const ech__comm *all = ech__trainer_all_ranks(trainer);
    return all ? all->rank : 0;
}

/* ---- graphs ---- */

static ech__graphs_options graphs_options(const ech_trainer *trainer, const ech__trainer_options *o)
{
    return (ech__graphs_options){
        .train = o->train,
        .ranks = o->pretended_ranks ? o->pretended_ranks : ech__trainer_world(trainer),
        .shared_memory =
            ech__device_shards_updates(trainer->device_kind) &&
            (!trainer->emulated || trainer->emulation.cluster.mover == ECH__MOVER_DEVICES),
        .straggle_ms = o->straggle_ms};
}

static ech_status make_graphs(ech_trainer *trainer, const ech_graph *graph, ech_value loss,
                              const ech__trainer_options *o)
{
    const ech__graphs_options options = graphs_options(trainer, o);
    trainer->nroles = ech__roles(o->train, options.ranks);
    ECH_TRY(ech__graph_clone(graph, &trainer->model));
    return trainer->ops->graphs(trainer, loss, &options);
}

ECH__NAMES(ech__amp_name, ech_amp, ECH_AMP_LIST)

static ech_status check_precision(ech_ctx *ctx, const ech_train_options *o)
{
    if (o->amp.type < ECH_AMP_OFF || o->amp.type > ECH_AMP_FP16)
        return ech__fail(ctx, ECH_E_INVALID, "mixed precision of kind %d: there are 0 to %d",
                         (int)o->amp.type, (int)ECH_AMP_FP16);
    if (!isfinite(o->optimizer.clip_norm) || o->optimizer.clip_norm < 0)
        return ech__fail(ctx, ECH_E_INVALID, "gradients clipped to a norm of %g: must be 0 or more",
                         o->optimizer.clip_norm);
    if (!(o->amp.loss_scale <= 0 ||
          (o->amp.loss_scale >= ECH__SCALER_LEAST && o->amp.loss_scale <= (double)FLT_MAX)))
        return ech__fail(ctx, ECH_E_INVALID, "a loss scale of %g: must be from %g to %g, or 0",
                         o->amp.loss_scale, ECH__SCALER_LEAST, (double)FLT_MAX);
    if (o->ddp.grad_dtype != ECH_F32 && o->ddp.grad_dtype != ECH_BF16)
        return ech__fail(ctx, ECH_E_INVALID, "gradients exchanged in %s: f32 and bf16 are possible",
                         ech__dtype_name(o->ddp.grad_dtype));
    if (o->ddp.grad_dtype == ECH_BF16 && o->ddp.reproducible)
        return ech__fail(ctx, ECH_E_INVALID,
                         "gradients exchanged in bf16: one rank, which exchanges nothing, would "
                         "not have the same bits; the reproducible mode needs f32");
    return ECH_OK;
}

static ech_status check(ech_ctx *ctx, const ech_train_options *o)
{
    if (o->batch < 1)
        return ech__fail(ctx, ECH_E_INVALID, "a batch of %lld samples: at least 1 is needed",
                         (long long)o->batch);
    if ((int)o->optimizer.kind < ECH_OPTIMIZER_SGD || o->optimizer.kind > ECH_OPTIMIZER_ADAMW)
        return ech__fail(ctx, ECH_E_INVALID, "unknown optimizer %d: there are 0 to %d",
                         (int)o->optimizer.kind, (int)ECH_OPTIMIZER_ADAMW);
    if (!isfinite(o->optimizer.lr) || o->optimizer.lr < 0)
        return ech__fail(ctx, ECH_E_INVALID, "learning rate %g: must be 0 or more",
                         o->optimizer.lr);
    if (!(o->delay_ms >= 0 && o->delay_ms <= 60000))
        return ech__fail(ctx, ECH_E_INVALID, "delay of %g ms: from 0 to 60000 are possible",
                         o->delay_ms);
    if (o->accum < 1 || o->accum > 1000000)
        return ech__fail(ctx, ECH_E_INVALID, "accumulation over %d micro-steps: from 1 to 1000000",
                         o->accum);
    if (o->ddp.bucket_bytes < 1)
        return ech__fail(ctx, ECH_E_INVALID, "buckets of %lld bytes: at least 1 is needed",
                         (long long)o->ddp.bucket_bytes);
    if (o->device_memory < 0)
        return ech__fail(ctx, ECH_E_INVALID, "device memory of %lld bytes: must be 0 or more",
                         (long long)o->device_memory);
    return check_precision(ctx, o);
}

/* Micro-steps of this rank in a step, and how they add up. */
static ech_status check_slots(ech_trainer *trainer, const ech_train_options *o)
{
    const int world = ech__trainer_world(trainer), slots = o->ddp.slots;
    trainer->micro_steps = o->accum;
    trainer->tree = o->ddp.reproducible;
    if (!o->ddp.reproducible)
        return ECH_OK;
    if (slots < 1 || slots > 64 || (slots & (slots - 1)))
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "%d slots: the reproducible mode needs a power of two up to 64", slots);
    if (slots % (world * o->accum))
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "%d ranks with %d micro-steps each: the reproducible mode divides its %d "
                         "slots evenly among them",
                         world, o->accum, slots);
    if (o->ddp.sync_bn)
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "the reproducible mode has the batch statistics of a slot; it goes "
                         "without synchronised batch norms");
    trainer->micro_steps = ech__micro_steps(o, world);
    return ECH_OK;
}

/* ---- the other ranks ---- */

static ech_status join(ech_trainer *trainer, const ech__trainer_options *o)
{
    if (o->emulation) {
        trainer->emulated = true;
        trainer->emulation = *o->emulation;
    }
    return trainer->ops->join ? trainer->ops->join(trainer, o->train) : ECH_OK;
}

/* One line for each thing that ranks must have in common. */
static void describe(const ech_trainer *trainer, const ech_train_options *o, FILE *out)
{
    const ech_graph *g = trainer->model;
    fprintf(out, "values in the model: %zu\noperators in the model: %zu\n", g->nvalues, g->nnodes);
    for (size_t v = 0; v < g->nvalues; v++) {
        const ech__value *value = &g->values[v];
        if (value->kind == ECH__VALUE_ACTIVATION)
            continue;
        fprintf(out, "%s: %s %s\n", value->name, ech__dtype_name(value->type.dtype),
                ech__shape_format(&value->type.shape).s);
    }
    for (size_t n = 0; n < g->nnodes; n++)
        fprintf(out, "operator %zu: %s %s\n", n, ech__op_name(g->nodes[n].op), g->nodes[n].name);
    fprintf(out, "device: %s\n", trainer->device->kind);
    ech__run_config config = {.train = *o};
    ech_json *terms = ech__json_object();
    config.train.threads = trainer->device->threads;
    ech__options_terms(&config, ech__trainer_world(trainer), ECH__TERMS_TRAINER, &terms);
    ech__options_print(trainer->ctx, terms, "", out);
    ech__json_destroy(terms);
}

static ech_status agree(ech_trainer *trainer, const ech_train_options *options)
{
    if (!ech__trainer_all_ranks(trainer))
        return ECH_OK;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out)
        describe(trainer, options, out);
    if (!out || fclose(out) != 0) {
        free(text);
        return ech__no_memory(trainer->ctx, "the comparison of ranks");
    }
    const ech_status status = ech__comm_agree(ech__trainer_all_ranks(trainer), text);
    free(text);
    return status;
}

/* ---- tuning ---- */

/* Only rank 0 times kernels and writes to the file; the others get its times, and so choose as it
 * does. */
static ech_status open_tuning(ech_trainer *trainer, const ech_train_options *options)
{
    char path[4096];
    if (ech__trainer_rank(trainer) != 0)
        return ech__tuning_open(trainer->ctx, NULL, &trainer->tuning);
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

static ech_status send_timings(ech_trainer *trainer)
{
    char *text, *none;
    ECH_TRY(ech__tuning_text(trainer->tuning, &text));
    const ech_status status = ech__comm_share_text(ech__trainer_all_ranks(trainer), text, &none);
    free(text);
    if (status == ECH_OK)
        free(none);
    return status;
}

static ech_status receive_timings(ech_trainer *trainer)
{
    char *text;
    ECH_TRY(ech__comm_share_text(ech__trainer_all_ranks(trainer), NULL, &text));
    const ech_status status = ech__tuning_merge_text(trainer->tuning, text);
    free(text);
    return status;
}

/* Rank 0 first, since it times kernels while nobody else computes. */
static ech_status plan_in_turn(ech_trainer *trainer, ech_value loss, const ech__trainer_options *o)
{
    const bool shared = ech__trainer_all_ranks(trainer) && trainer->tuning;
    if (shared && ech__trainer_rank(trainer) != 0)
        ECH_TRY(receive_timings(trainer));
    ECH_TRY(trainer->ops->plan(trainer, loss, o->train, o->choices));
    trainer->timed_kernels = trainer->tuning ? ech__tuning_added(trainer->tuning) : 0;
    save_tuning(trainer);
    return shared && ech__trainer_rank(trainer) == 0 ? send_timings(trainer) : ECH_OK;
}

static ech_status make_plan(ech_trainer *trainer, const ech_graph *graph, ech_value loss,
                            const ech__trainer_options *o)
{
    ech_ctx *ctx = trainer->ctx;
    const ech_train_options *options = o->train;
    const int64_t start = ech__clock_wall();
    ECH_TRY(check(ctx, options));
    ECH_TRY(ech_graph_status(graph));
    ECH_TRY(ech__strategy_check(ctx, trainer->by,
                                ech__strategy_asked(options) |
                                    (o->emulation ? ECH__FEATURE_BIT(VIRTUAL) : 0)));
    ECH_TRY(ech__device_asked(ctx, &trainer->device_kind));
    ECH_TRY(join(trainer, o));
    ECH_TRY(check_slots(trainer, options));
    if (options->init) /* a wrong file is found before anything takes time */
        ECH_TRY(ech__params_check(graph, options->init));
    ECH_TRY(make_graphs(trainer, graph, loss, o));
    if (o->only_graphs && !trainer->ops->plans_graphs)
        return ECH_OK;
    ECH_TRY(trainer->ops->open(trainer, loss, options));
    ECH_TRY(agree(trainer, options));
    if (options->tune)
        ECH_TRY(open_tuning(trainer, options));
    if (options->tune && o->only_plan)
        ech__tuning_freeze(trainer->tuning);
    ECH_TRY(plan_in_turn(trainer, loss, o));
    trainer->planning_s = ech__seconds(ech__clock_wall() - start);
    return ECH_OK;
}

static ech_status create_planned(ech_ctx *ctx, const ech_graph *graph, ech_value loss,
                                 const ech__trainer_options *options, ech_trainer **out)
{
    *out = NULL;
    ech_trainer *trainer = ech__new(ctx, sizeof *trainer);
    if (!trainer)
        return ech__no_memory(ctx, "a trainer");
    trainer->ctx = ctx;
    trainer->by = ech__strategy_of(options->train);
    trainer->ops = ech__strategy_ops_of(trainer->by.strategy);
    trainer->seed = options->train->seed;
    trainer->amp = options->train->amp.type;
    trainer->counted = -1;
    trainer->scaler = ech__scaler_start(ech__loss_scale(options->train));
    trainer->clip_norm = options->train->optimizer.clip_norm;
    trainer->checks = ech__checks_gradients(options->train);
    trainer->scalars = (ech__scalars){.lr = options->train->optimizer.lr,
                                      .loss_scale = 1,
                                      .grad_factor = 1,
                                      .step = 1,
                                      .share = 1};
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
    const ech__trainer_options o = {.train = options, .only_plan = true};
    return create_planned(ctx, graph, loss, &o, out);
}

/* The least that a rank of this machine has found, so that all of them say the same. */
static ech_status find_available(const ech_trainer *trainer, int64_t *out)
{
    typedef struct found {
        int64_t node, bytes;
    } found;
    ech__comm *comm = ech__trainer_all_ranks(trainer);
    *out = ech__machine_available();
    if (!comm)
        return ECH_OK;
    const found mine = {comm->node, *out};
    const size_t bytes = (size_t)comm->world * sizeof(found);
    found *all = ech__new(trainer->ctx, bytes);
    if (!all)
        return ech__no_memory(trainer->ctx, "the free memory of %d ranks", comm->world);
    const ech_status status = ech__comm_allgather(comm, &mine, all, (int64_t)sizeof mine);
    for (int r = 0; status == ECH_OK && r < comm->world; r++) {
        if (all[r].node == comm->node && all[r].bytes < *out)
            *out = all[r].bytes;
    }
    ech__delete(trainer->ctx, all, bytes);
    return status;
}

/* Ranks of one machine come here before any of them has touched what it planned: the system hands
 * out more addresses than it has memory, and would kill a rank later. */
static ech_status check_available(const ech_trainer *trainer, const ech_train_options *options)
{
    const int sharers =
        ech__trainer_all_ranks(trainer) ? ech__trainer_all_ranks(trainer)->local_world : 1;
    const int64_t need =
        trainer->ops->need ? trainer->ops->need(trainer) : trainer->plan->total_bytes;
    int64_t can;
    ECH_TRY(find_available(trainer, &can));
    const int devices = ech__strategy_devices(options);
    if (need <= can / sharers)
        return ech__memory_check(trainer->ctx, "training", need, 1,
                                 trainer->device->threads * devices);
    char whose[48] = "";
    if (sharers > 1)
        snprintf(whose, sizeof whose, " on each of %d ranks", sharers);
    return ech__fail(trainer->ctx, ECH_E_NOMEM,
                     "training needs %lld bytes (%s)%s, and %lld bytes (%s) are available on this "
                     "machine",
                     (long long)need, ech__format_bytes(need).s, whose, (long long)can,
                     ech__format_bytes(can).s);
}

/* Whether each device has as many cores of its own as it has threads. */
static ech_status find_core_share(ech_trainer *trainer, const ech_train_options *options)
{
    ech__core_share share;
    ECH_TRY(ech__core_share_find(trainer->ctx, options, &share));
    trainer->sharing = share.devices;
    trainer->shared = share.cores;
    trainer->oversubscribed =
        !trainer->emulated && (int64_t)share.devices * trainer->device->threads > share.cores;
    return ECH_OK;
}

static ech_status make_exec(ech_trainer *trainer, const ech_train_options *options)
{
    ECH_TRY(check_available(trainer, options));
    ECH_TRY(find_core_share(trainer, options));
    ECH_TRY(trainer->ops->ready(trainer, options));
    ECH_TRY(options->init ? ech_trainer_load(trainer, options->init) : ech__params_init(trainer));
    if (trainer->ops->share_weights)
        ECH_TRY(trainer->ops->share_weights(trainer));
    trainer->stale = true;
    if (options->amp.type == ECH_AMP_BF16 && options->amp.loss_scale == 0 &&
        ech__trainer_rank(trainer) == 0)
        ech__log(trainer->ctx, "the loss is not scaled: bf16 has the exponents of f32, so that "
                               "nothing vanishes or overflows in it that would not in f32");
    return trainer->ranks ? ech__reports_init(&trainer->reports, trainer->ranks) : ECH_OK;
}

ech_status ech__trainer_create(ech_ctx *ctx, const ech_graph *graph, ech_value loss,
                               const ech__trainer_options *o, ech_trainer **out)
{
    ECH_TRY(create_planned(ctx, graph, loss, o, out));
    if (o->only_plan || o->only_graphs)
        return ECH_OK;
    ech_status status = make_exec(*out, o->train);
    const ech_trainer *t = *out;
    if (status == ECH_OK && ech__trainer_rank(t) == 0)
        status = ech__turns_open(ctx, ech_clock_name(ech_trainer_clock(t)), &(*out)->turns);
    if (status < 0) {
        ech_trainer_destroy(*out);
        *out = NULL;
    }
    return status;
}

ech_status ech_trainer_create(ech_ctx *ctx, const ech_graph *graph, ech_value loss,
                              const ech_train_options *options, ech_trainer **out)
{
    ech_train_options all = ech_train_defaults();
    ech__emulation emulation;
    ech__clock_kind kind;
    ech__core_share share;
    *out = NULL;
    ECH_TRY(ech__options_take(ctx, "ech_train_defaults", options, &all, sizeof all));
    ECH_TRY(ech__clock_asked(ctx, graph, all.ddp.bucket_bytes, &kind, &emulation));
    if (kind != ECH__CLOCK_REAL) {
        ECH_TRY(ech__core_share_find(ctx, &all, &share));
        ECH_TRY(ech__clock_choose(ctx, &share, &all, &kind));
    }
    const ech__trainer_options o = {.train = &all,
                                    .emulation = kind == ECH__CLOCK_VIRTUAL ? &emulation : NULL};
    return ech__trainer_create(ctx, graph, loss, &o, out);
}

int ech_device_count(void)
{
    return ech__device_cores();
}

const ech__layers *ech__trainer_layers(ech_trainer *trainer)
{
    ech__layers *found = &trainer->model_layers;
    if (trainer->ops->layers)
        return trainer->ops->layers(trainer);
    return found->count || ech__layers_find(trainer->model, found) == ECH_OK ? found : NULL;
}

int ech_trainer_layer_count(ech_trainer *trainer)
{
    const ech__layers *layers = ech__trainer_layers(trainer);
    return layers ? layers->count : 0;
}

ech_status ech_trainer_layer(ech_trainer *trainer, int layer, ech_layer *out)
{
    const ech__layers *layers = ech__trainer_layers(trainer);
    *out = (ech_layer){.name = NULL};
    if (!layers)
        return ECH_E_NOMEM;
    if (layer < 0 || layer >= layers->count)
        return ech__fail(trainer->ctx, ECH_E_INVALID, "layer %d: there are 0 to %d", layer,
                         layers->count - 1);
    const ech__layer *l = &layers->at[layer];
    *out = (ech_layer){.name = l->name, .device = l->device, .params = l->params};
    return ECH_OK;
}

ECH__NAMES(ech_clock_name, ech_clock, ECH_CLOCK_LIST)

ech_clock ech_trainer_clock(const ech_trainer *trainer)
{
    return trainer->emulated         ? ECH_CLOCK_EMULATED
           : trainer->oversubscribed ? ECH_CLOCK_OVERSUBSCRIBED
                                     : ECH_CLOCK_MEASURED;
}

void ech_trainer_destroy(ech_trainer *trainer)
{
    if (!trainer)
        return;
    for (int i = trainer->nvariants - 1; i >= 0; i--) {
        if (!trainer->variants[i].owned)
            continue;
        ech__exec_destroy(trainer->variants[i].exec);
        ech__plan_destroy(trainer->variants[i].plan);
    }
    ech__turns_close(trainer->turns);
    if (trainer->ops->destroy)
        trainer->ops->destroy(trainer);
    ech__reports_fini(&trainer->reports);
    ech__exec_destroy(trainer->exec);
    ech__plan_destroy(trainer->plan);
    ech__ranks_destroy(trainer->ranks);
    ech__tuning_close(trainer->tuning);
    ech__device_destroy(trainer->device);
    for (int role = 0; role < ECH__MAX_ROLES; role++)
        ech_graph_destroy(trainer->graphs[role]);
    ech_graph_destroy(trainer->evaluated);
    ech_graph_destroy(trainer->model);
    ech__delete(trainer->ctx, trainer, sizeof *trainer);
}

void ech_trainer_set_lr(ech_trainer *trainer, double lr)
{
    trainer->scalars.lr = lr;
}

/* ---- devices ---- */

int ech__trainer_devices(const ech_trainer *trainer)
{
    return trainer->ops->devices ? trainer->ops->devices(trainer) : 1;
}

int ech__trainer_planned_devices(const ech_trainer *trainer)
{
    return trainer->ops->planned_devices ? trainer->ops->planned_devices(trainer) : 1;
}

const ech__plan *ech__trainer_plan_of(const ech_trainer *trainer, int device)
{
    return trainer->ops->plan_of ? trainer->ops->plan_of(trainer, device) : trainer->plan;
}

const ech__exec *ech__trainer_exec_of(const ech_trainer *trainer, int device)
{
    return trainer->ops->exec_of ? trainer->ops->exec_of(trainer, device) : trainer->exec;
}

bool ech__trainer_home(const ech_trainer *trainer, ech_value value, const ech__plan **plan,
                       const ech__exec **exec, ech_value *there)
{
    if (trainer->ops->home)
        return trainer->ops->home(trainer, value, plan, exec, there);
    *plan = trainer->plan;
    *exec = trainer->exec;
    *there = value;
    return trainer->plan->places[value].used;
}

void ech__trainer_memory(const ech_trainer *trainer, int device, int64_t out[ECH__MEMORY_COUNT])
{
    if (trainer->ops->memory)
        trainer->ops->memory(trainer, device, out);
    else
        memcpy(out, trainer->plan->memory, sizeof trainer->plan->memory);
}

int64_t ech__trainer_planned(const ech_trainer *trainer, int device)
{
    int64_t memory[ECH__MEMORY_COUNT], sum = 0;
    ech__trainer_memory(trainer, device, memory);
    for (int k = 0; k < ECH__MEMORY_COUNT; k++)
        sum += memory[k];
    return sum;
}

int ech__trainer_fullest(const ech_trainer *trainer)
{
    int fullest = 0;
    for (int d = 1; d < ech__trainer_devices(trainer); d++) {
        if (ech__trainer_planned(trainer, d) > ech__trainer_planned(trainer, fullest))
            fullest = d;
    }
    return fullest;
}

int64_t ech_trainer_planned_memory(const ech_trainer *trainer)
{
    return ech__trainer_planned(trainer, ech__trainer_fullest(trainer));
}

static int64_t peak_of(const ech_trainer *trainer, int device)
{
    return trainer->ops->peak ? trainer->ops->peak(trainer, device) : trainer->device->memory_peak;
}

int64_t ech_trainer_peak_memory(const ech_trainer *trainer)
{
    int64_t most = 0;
    for (int d = 0; d < ech__trainer_devices(trainer); d++) {
        const int64_t peak = peak_of(trainer, d);
        most = peak > most ? peak : most;
    }
    return most;
}

ech_status ech_trainer_device_stats(const ech_trainer *trainer, int device, ech_device_stats *out)
{
    const int devices = ech__trainer_devices(trainer);
    int64_t memory[ECH__MEMORY_COUNT];
    *out = (ech_device_stats){.samples = 0};
    if (device < 0 || device >= devices)
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "there is no device %d; this training has %d, from 0 on", device, devices);
    trainer->ops->work(trainer, device, out);
    out->memory = peak_of(trainer, device);
    ech__trainer_memory(trainer, device, memory);
    out->weights = memory[ECH__MEMORY_WEIGHTS] + memory[ECH__MEMORY_COPIES];
    out->gradients = memory[ECH__MEMORY_GRADIENTS] + memory[ECH__MEMORY_SUMS];
    out->optimizer = memory[ECH__MEMORY_OPTIMIZER];
    out->inputs = memory[ECH__MEMORY_INPUTS];
    out->activations = memory[ECH__MEMORY_ACTIVATIONS] + memory[ECH__MEMORY_WORKSPACE];
    out->copies = memory[ECH__MEMORY_COPIES];
    out->workspace = memory[ECH__MEMORY_WORKSPACE];
    return ECH_OK;
}
