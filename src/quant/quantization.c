#include "quant/quantization.h"
#include "base/file/dir.h"
#include "base/system/clock.h"
#include "quant/file.h"
#include "quant/onnx.h"
#include "train/checkpoint/dir.h"
#include "train/step/trainer.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void tell(const ech__quantization *study, const char *what)
{
    if (study->config.progress)
        study->config.progress(study->config.user, what);
}

/* ---- what there is ---- */

static ech_status check(ech_ctx *ctx, const ech__quantization_config *c)
{
    if (!ech__model_takes_images(c->model.kind))
        return ech__fail(ctx, ECH_E_INVALID, "model %s: only image models can be quantized",
                         ech__model_name(c->model.kind));
    if (!c->init == !c->load)
        return ech__fail(ctx, ECH_E_INVALID,
                         "one source of weights is needed: trained weights (--init) or a quantized "
                         "network (--load)");
    if (c->init && c->samples < 1)
        return ech__fail(ctx, ECH_E_INVALID,
                         "a calibration set of %lld samples: at least 1 is needed",
                         (long long)c->samples);
    if (c->data && strcmp(c->data, "cifar10") != 0)
        return ech__fail(ctx, ECH_E_INVALID, "data '%s': images come from synthetic or cifar10",
                         c->data);
    if (c->data && !c->data_dir)
        return ech__fail(
            ctx, ECH_E_INVALID,
            "cifar10 needs --data-dir DIR; echelon data cifar10 --dir DIR fetches the data");
    if (c->load && c->turns_f32)
        return ech__fail(ctx, ECH_E_INVALID, "--turns f32 needs weights in f32 (--init)");
    return ECH_OK;
}

static ech_status open_data(ech__quantization *s)
{
    const ech__quantization_config *c = &s->config;
    ech__images_options i = ech__images_defaults();
    i.source = c->data ? ECH__IMAGES_CIFAR10 : ECH__IMAGES_SYNTHETIC;
    i.dir = c->data_dir;
    i.split = ECH__SPLIT_TEST;
    i.limit = c->limit;
    ECH_TRY(ech__images_open(s->ctx, &i, &s->test));
    if (!c->init)
        return ECH_OK;
    i.split = ECH__SPLIT_TRAIN;
    i.limit = 0;
    ECH_TRY(ech__images_open(s->ctx, &i, &s->train));
    if (c->samples > s->train->count)
        return ech__fail(s->ctx, ECH_E_INVALID,
                         "%lld samples for calibration: the training set has %lld",
                         (long long)c->samples, (long long)s->train->count);
    return ECH_OK;
}

/* As the models are trained (train/step/feed.c). */
static ech__norm norm_of(const ech__quantization *s)
{
    return s->config.model.kind == ECH__MODEL_LENET ? ECH__NORM_HALF : ECH__NORM_CIFAR10;
}

static ech_status open_device(ech__quantization *s)
{
    ech__device_options device = {.threads = s->config.threads};
    ECH_TRY(ech__device_asked(s->ctx, &device.kind));
    ECH_TRY(ech__device_create(s->ctx, &device, &s->device));
    if (!s->config.tune)
        return ECH_OK;
    char path[ECH_DIR_MAX_PATH];
    ECH_TRY(ech__tuning_default_path(s->ctx, path, sizeof path));
    return ech__tuning_open(s->ctx, path, &s->tuning);
}

/* ---- the model ---- */

static int64_t file_bytes(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (int64_t)info.st_size : 0;
}

/* The file of the weights; for a directory of checkpoints, the model of its newest one. */
static ech_status find_trained(ech__quantization *s)
{
    struct stat info;
    char checkpoint[ECH_DIR_MAX_PATH];
    const char *given = s->config.init;
    if (stat(given, &info) != 0 || !S_ISDIR(info.st_mode)) {
        const int length = snprintf(s->init, sizeof s->init, "%s", given);
        return length < (int)sizeof s->init
                   ? ECH_OK
                   : ech__fail(s->ctx, ECH_E_INVALID, "a path of %d bytes is too long", length);
    }
    ECH_TRY(ech__checkpoint_find(s->ctx, given, checkpoint));
    ECH_TRY(ech__checkpoint_verify(s->ctx, checkpoint));
    return ech__checkpoint_file_path(s->ctx, checkpoint, ECH__CHECKPOINT_MODEL, s->init);
}

/* Names and shapes of files are a trainer's affair: it reads the weights, at the least size it can have. */
static ech_status read_trained(ech__quantization *s, const ech__model *model)
{
    ech_train_options o = ech_train_defaults();
    o.batch = 1;
    o.threads = 1;
    o.tune = false;
    o.init = s->init;
    ech_trainer *trainer;
    ECH_TRY(ech_trainer_create(s->ctx, s->graph, model->loss, &o, &trainer));
    const ech_status status =
        ech__qmodel_init(&s->model, trainer, ech__prediction_of(s->graph, model->loss));
    ech_trainer_destroy(trainer);
    return status;
}

static ech_status read_model(ech__quantization *s)
{
    ech__model model;
    ECH_TRY(ech_graph_create(s->ctx, &s->graph));
    ECH_TRY(ech__model_build(s->graph, &s->config.model, &model));
    if (s->config.init) {
        ECH_TRY(find_trained(s));
        ECH_TRY(read_trained(s, &model));
        s->f32_bytes = file_bytes(s->init);
        return ech__scales_init(&s->scales, &s->model);
    }
    ECH_TRY(ech__qmodel_bare(&s->model, s->graph, ech__prediction_of(s->graph, model.loss)));
    ECH_TRY(ech__scales_init(&s->scales, &s->model));
    s->int8_bytes = file_bytes(s->config.load);
    return ech__int8_load(s->config.load, &s->model, &s->scales, &s->whole);
}

/* ---- calibration ---- */

static ech_status observe(ech__quantization *s, ech__loader *loader)
{
    const int64_t wanted = s->config.samples;
    while (s->calibration.samples < wanted) {
        const ech__batch *b;
        ECH_TRY(ech__loader_next(loader, &b, NULL));
        const int64_t left = wanted - s->calibration.samples;
        ECH_TRY(ech__calibration_add(&s->calibration, b->x, b->count < left ? b->count : left));
    }
    return ECH_OK;
}

static ech_status calibrate(ech__quantization *s)
{
    const ech__quantization_config *c = &s->config;
    const int64_t start = ech__clock_wall();
    ech__loader_options l = ech__loader_defaults();
    l.batch = c->batch < c->samples ? c->batch : c->samples; /* the training set has as many */
    l.norm = norm_of(s);
    l.seed = c->seed;
    ech__loader *loader;
    ECH_TRY(ech__calibration_init(&s->calibration, &s->model, s->device, l.batch));
    ECH_TRY(ech__loader_create(s->ctx, s->train, &l, &loader));
    const ech_status status = observe(s, loader);
    ech__loader_destroy(loader);
    s->calibration_s = ech__seconds(ech__clock_wall() - start);
    return status;
}

static ech_status look_at_weights(ech__quantization *s)
{
    ech__arena *arena = &s->scales.arena;
    s->weights = ech__arena_array(arena, s->scales.nlayers, sizeof(ech__histogram *));
    for (size_t l = 0; s->weights && l < s->scales.nlayers; l++) {
        const char *name = s->model.fused->values[s->scales.layers[l].weight].name;
        const ech__tensor *t = ech__tensors_find(&s->model.weights, name);
        s->weights[l] = ech__arena_alloc(arena, sizeof **s->weights);
        if (!s->weights[l])
            break;
        ech__histogram_add(s->weights[l], t->data, t->elems);
    }
    if (!s->weights || !s->weights[s->scales.nlayers - 1])
        return ech__no_memory(s->ctx, "histograms");
    return ECH_OK;
}

static ech_status find_scales(ech__quantization *s)
{
    ECH_TRY(look_at_weights(s));
    ECH_TRY(ech__scales_weights(&s->scales, &s->model, &s->config.scales));
    tell(s, "calibration");
    ECH_TRY(calibrate(s));
    ECH_TRY(ech__scales_activations(&s->scales, &s->model, s->calibration.seen, &s->config.scales));
    return ech__round_parameters(&s->model, &s->scales, &s->whole);
}

/* ---- results ---- */

static ech_status climb(ech__quantization *s)
{
    const ech__quantization_config *c = &s->config;
    const ech__ladder_options o = {.device = s->device,
                                   .tuning = s->tuning,
                                   .batch = c->batch < s->test->count ? c->batch : s->test->count,
                                   .test = {.set = s->test, .norm = norm_of(s)},
                                   .progress = c->progress,
                                   .user = c->user};
    ECH_TRY(ech__ladder_init(&s->ladder, &s->model, &s->scales, &s->whole, &o));
    if (!c->init)
        return ech__ladder_int8(&s->ladder);
    ECH_TRY(ech__ladder_climb(&s->ladder));
    return c->sensitivity ? ech__ladder_layers(&s->ladder, c->sensitivity) : ECH_OK;
}

/* A network by itself, batch after batch on the same input. */
static ech_status time_network(ech__quantization *s, const ech_graph *graph, ech_value output,
                               const ech__tensors *weights, double **out)
{
    const ech__network_options o = {
        .device = s->device, .tuning = s->tuning, .batch = s->ladder.options.batch};
    ech__network *network;
    *out = ech__arena_array(&s->scales.arena, (size_t)s->config.timed, sizeof **out);
    if (!*out)
        return ech__no_memory(s->ctx, "%lld times", (long long)s->config.timed);
    ECH_TRY(ech__network_create(graph, output, weights, &o, &network));
    const ech_status status = ech__network_time(network, (int)s->config.timed, *out);
    ech__network_destroy(network);
    return status;
}

static ech_status time_both(ech__quantization *s)
{
    ech__rewritten r;
    if (s->config.init)
        ECH_TRY(time_network(s, s->model.fused, s->model.output, &s->model.weights, &s->f32_s));
    ECH_TRY(ech__quantize(&s->model, &s->scales, &s->whole, NULL, &r));
    const ech_status status = time_network(s, r.graph, r.output, &r.weights, &s->int8_s);
    ech__rewritten_fini(&r);
    return status;
}

/* Timings that cannot be kept cost time at the next start, no more. */
static void keep_timings(ech__quantization *s)
{
    if (!s->tuning || ech__tuning_save(s->tuning) == ECH_OK)
        return;
    ech__log(s->ctx, "kernel timings are not kept: %s", s->ctx->error);
    s->ctx->error[0] = 0;
}

/* A pass after another, each when it is its turn. Kernels are timed before the first. */
static ech_status take_turns(ech__quantization *s, const ech_graph *graph, ech_value output,
                             const ech__tensors *weights)
{
    const ech__network_options o = {
        .device = s->device, .tuning = s->tuning, .batch = s->config.batch};
    ech__network *network;
    ECH_TRY(ech__network_create(graph, output, weights, &o, &network));
    keep_timings(s);
    ech_status status = ECH_OK;
    while (status == ECH_OK) {
        double seconds;
        status = ech__network_again(network, &seconds);
        if (status == ECH_OK)
            status = ech__turns_step(s->turns, seconds);
    }
    ech__network_destroy(network);
    return status;
}

/* As an arm of a comparison: until that is over. */
static ech_status compete(ech__quantization *s)
{
    ech__rewritten r;
    if (s->config.turns_f32)
        return take_turns(s, s->model.fused, s->model.output, &s->model.weights);
    ECH_TRY(ech__quantize(&s->model, &s->scales, &s->whole, NULL, &r));
    const ech_status status = take_turns(s, r.graph, r.output, &r.weights);
    ech__rewritten_fini(&r);
    return status;
}

static ech_status path_of(const ech__quantization *s, const char *file, char out[ECH_DIR_MAX_PATH])
{
    const int length = snprintf(out, ECH_DIR_MAX_PATH, "%s/%s", s->config.out, file);
    return length > 0 && length < ECH_DIR_MAX_PATH
               ? ECH_OK
               : ech__fail(s->ctx, ECH_E_INVALID, "the path of %s is longer than %d bytes", file,
                           ECH_DIR_MAX_PATH - 1);
}

static ech_status write_files(ech__quantization *s)
{
    char path[ECH_DIR_MAX_PATH];
    ECH_TRY(path_of(s, ECH__QUANTIZATION_ONNX_INT8, path));
    ECH_TRY(ech__onnx_save_int8(&s->model, &s->scales, &s->whole, path));
    if (!s->config.init)
        return ECH_OK;
    ECH_TRY(path_of(s, ECH__QUANTIZATION_ONNX, path));
    ECH_TRY(ech__onnx_save(&s->model, path));
    ECH_TRY(path_of(s, ECH__QUANTIZATION_INT8, path));
    ECH_TRY(ech__int8_save(&s->model, &s->scales, &s->whole, path));
    s->int8_bytes = file_bytes(path);
    return ECH_OK;
}

static ech_status run(ech__quantization *s)
{
    const ech__claim_options claim = {"output directory", s->config.out, ".quantize.lock"};
    ECH_TRY(check(s->ctx, &s->config));
    if (s->config.out)
        ECH_TRY(ech__claim_take(s->ctx, &s->claim, &claim));
    ECH_TRY(ech__turns_open(s->ctx, "measured", &s->turns)); /* before a trainer does */
    ECH_TRY(open_data(s));
    ECH_TRY(read_model(s));
    ECH_TRY(open_device(s));
    if (s->config.init)
        ECH_TRY(find_scales(s));
    if (s->config.out)
        ECH_TRY(write_files(s));
    if (s->turns)
        return compete(s);
    ECH_TRY(climb(s));
    if (s->config.timed)
        ECH_TRY(time_both(s));
    keep_timings(s);
    return ECH_OK;
}

ech_status ech__quantization_run(ech_ctx *ctx, const ech__quantization_config *config,
                                 ech__quantization *out)
{
    *out = (ech__quantization){.ctx = ctx, .config = *config};
    ech__tensors_init(ctx, &out->whole);
    const ech_status status = run(out);
    if (status < 0)
        ech__quantization_fini(out);
    return status;
}

void ech__quantization_fini(ech__quantization *s)
{
    if (!s->ctx)
        return;
    ech__ladder_fini(&s->ladder);
    ech__calibration_fini(&s->calibration);
    ech__device_destroy(s->device);
    ech__tuning_close(s->tuning);
    ech__tensors_fini(&s->whole);
    ech__scales_fini(&s->scales);
    ech__qmodel_fini(&s->model);
    ech_graph_destroy(s->graph);
    ech__images_close(s->train);
    ech__images_close(s->test);
    ech__turns_close(s->turns);
    ech__claim_release(&s->claim);
    *s = (ech__quantization){.ctx = NULL};
}
