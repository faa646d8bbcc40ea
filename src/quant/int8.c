/* The public face: a network in int8 as one thing. */
#include "quant/calibrate.h"
#include "quant/file.h"
#include "quant/onnx.h"
#include "quant/rewrite.h"
#include "train/step/trainer.h"

struct ech_int8 {
    ech_ctx *ctx;
    ech__qmodel model;
    ech__scales scales;
    ech__tensors whole;
    ech__rewritten rewritten;
    ech__device *device;
    ech__network *network;
};

ech_int8_options ech_int8_defaults(void)
{
    const ech__scale_options s = ech__scale_defaults();
    return (ech_int8_options){.size = sizeof(ech_int8_options),
                              .batch = 64,
                              .weights = s.weights,
                              .per_channel = s.per_channel,
                              .weight_percentile = s.weight_percentile,
                              .activations = s.activations,
                              .percentile = s.percentile};
}

static ech_status check(ech_ctx *ctx, const ech_int8_options *o)
{
    if (o->batch < 1)
        return ech__fail(ctx, ECH_E_INVALID, "a batch of %lld samples: at least 1 is needed",
                         (long long)o->batch);
    if (!(o->percentile > 0 && o->percentile <= 100) ||
        !(o->weight_percentile > 0 && o->weight_percentile <= 100))
        return ech__fail(ctx, ECH_E_INVALID,
                         "percentiles %g and %g: they must be above 0 and at most 100",
                         o->percentile, o->weight_percentile);
    return ECH_OK;
}

static ech_status begin(ech_ctx *ctx, const ech_int8_options *given, ech_int8_options *o,
                        ech_int8 **out)
{
    *out = NULL;
    *o = ech_int8_defaults();
    ECH_TRY(ech__options_take(ctx, "ech_int8_defaults", given, o, sizeof *o));
    ECH_TRY(check(ctx, o));
    ech_int8 *net = ech__new(ctx, sizeof *net);
    if (!net)
        return ech__no_memory(ctx, "a network");
    net->ctx = ctx;
    ech__tensors_init(ctx, &net->whole);
    *out = net;
    return ECH_OK;
}

static ech_status open_device(ech_int8 *net, const ech_int8_options *o)
{
    ech__device_options device = {.threads = o->threads};
    ECH_TRY(ech__device_asked(net->ctx, &device.kind));
    return ech__device_create(net->ctx, &device, &net->device);
}

static ech_status finish(ech_int8 *net, const ech_int8_options *o)
{
    ECH_TRY(ech__quantize(&net->model, &net->scales, &net->whole, NULL, &net->rewritten));
    const ech__network_options n = {.device = net->device, .batch = o->batch};
    return ech__network_create(net->rewritten.graph, net->rewritten.output, &net->rewritten.weights,
                               &n, &net->network);
}

static ech_status calibrate(ech_int8 *net, const float *samples, int64_t count,
                            const ech_int8_options *o)
{
    const ech__scale_options s = {.weights = o->weights,
                                  .per_channel = o->per_channel,
                                  .weight_percentile = o->weight_percentile,
                                  .activations = o->activations,
                                  .percentile = o->percentile};
    ech__calibration c;
    ECH_TRY(ech__scales_weights(&net->scales, &net->model, &s));
    ECH_TRY(ech__calibration_init(&c, &net->model, net->device, o->batch));
    const int64_t each = c.network->in_elems;
    ech_status status = ECH_OK;
    for (int64_t first = 0; first < count && status == ECH_OK; first += o->batch) {
        const int64_t left = count - first;
        status =
            ech__calibration_add(&c, samples + first * each, left < o->batch ? left : o->batch);
    }
    if (status == ECH_OK)
        status = ech__scales_activations(&net->scales, &net->model, c.seen, &s);
    ech__calibration_fini(&c);
    return status;
}

static ech_status create(ech_int8 *net, ech_trainer *trainer, ech_value prediction,
                         const float *samples, int64_t count, const ech_int8_options *o)
{
    if (count < 1)
        return ech__fail(net->ctx, ECH_E_INVALID,
                         "a calibration set of %lld samples: at least 1 is needed",
                         (long long)count);
    ECH_TRY(ech__qmodel_init(&net->model, trainer, prediction));
    ECH_TRY(ech__scales_init(&net->scales, &net->model));
    ECH_TRY(open_device(net, o));
    ECH_TRY(calibrate(net, samples, count, o));
    ECH_TRY(ech__round_parameters(&net->model, &net->scales, &net->whole));
    return finish(net, o);
}

static ech_status load(ech_int8 *net, const ech_graph *graph, ech_value prediction,
                       const char *path, const ech_int8_options *o)
{
    ECH_TRY(ech__qmodel_bare(&net->model, graph, prediction));
    ECH_TRY(ech__scales_init(&net->scales, &net->model));
    ECH_TRY(ech__int8_load(path, &net->model, &net->scales, &net->whole));
    ECH_TRY(open_device(net, o));
    return finish(net, o);
}

static ech_status end(ech_int8 **out, ech_status status)
{
    if (status < 0) {
        ech_int8_destroy(*out);
        *out = NULL;
    }
    return status;
}

ech_status ech_int8_create(ech_trainer *trainer, ech_value prediction, const float *samples,
                           int64_t count, const ech_int8_options *options, ech_int8 **out)
{
    ech_int8_options o;
    ECH_TRY(begin(trainer->ctx, options, &o, out));
    return end(out, create(*out, trainer, prediction, samples, count, &o));
}

ech_status ech_int8_load(ech_ctx *ctx, const ech_graph *graph, ech_value prediction,
                         const char *path, const ech_int8_options *options, ech_int8 **out)
{
    ech_int8_options o;
    ECH_TRY(begin(ctx, options, &o, out));
    return end(out, load(*out, graph, prediction, path, &o));
}

void ech_int8_destroy(ech_int8 *net)
{
    if (!net)
        return;
    ech__network_destroy(net->network);
    ech__device_destroy(net->device);
    ech__rewritten_fini(&net->rewritten);
    ech__tensors_fini(&net->whole);
    ech__scales_fini(&net->scales);
    ech__qmodel_fini(&net->model);
    ech__delete(net->ctx, net, sizeof *net);
}

ech_status ech_int8_run(ech_int8 *net, const float *x, int64_t count, float *y)
{
    ech__network *n = net->network;
    if (count < 1)
        return ech__fail(net->ctx, ECH_E_INVALID, "%lld samples: at least 1 is needed",
                         (long long)count);
    for (int64_t first = 0; first < count; first += n->batch) {
        const int64_t left = count - first;
        ECH_TRY(ech__network_run(n, x + first * n->in_elems, left < n->batch ? left : n->batch,
                                 y + first * n->out_elems));
    }
    return ECH_OK;
}

ech_status ech_int8_save(const ech_int8 *net, const char *path)
{
    return ech__int8_save(&net->model, &net->scales, &net->whole, path);
}

ech_status ech_int8_export(const ech_int8 *net, const char *path)
{
    return ech__onnx_save_int8(&net->model, &net->scales, &net->whole, path);
}
