#include "support/quant_fixture.h"
#include "base/rng.h"
#include "support/kind.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void quant_good(const quant_fixture *q, ech_status status)
{
    if (status < 0)
        fail_msg("%s", ech_ctx_error(q->ctx));
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* Normal, as wide as keeps a signal alive; what stands for a factor or a variance is around 1. */
static void fill(ech__tensor *t)
{
    const uint64_t stream = ech__rng_stream(t->name);
    const double fan = t->shape.ndims > 1 ? (double)(t->elems / t->shape.dims[0]) : 0;
    float *data = t->data;
    for (int64_t i = 0; i < t->elems; i++) {
        const float normal = ech__rng_normal(5, stream, (uint64_t)i);
        if (fan > 0)
            data[i] = normal * (float)sqrt(2 / fan);
        else if (ends_with(t->name, "running_var") || ends_with(t->name, "weight"))
            data[i] = 0.6f + 0.8f * ech__rng_uniform(5, stream, (uint64_t)i);
        else
            data[i] = 0.2f * normal;
    }
}

static void make_tensors(quant_fixture *q)
{
    ech__tensors_init(q->ctx, &q->tensors);
    for (size_t v = 0; v < q->graph->nvalues; v++) {
        const ech__value *value = &q->graph->values[v];
        ech__tensor *t;
        if (value->kind != ECH__VALUE_PARAM && value->kind != ECH__VALUE_BUFFER)
            continue;
        quant_good(q, ech__tensors_add(&q->tensors, value->name, value->type.dtype,
                                       &value->type.shape, &t));
        fill(t);
    }
}

static void calibrate(quant_fixture *q, const ech__scale_options *options)
{
    ech__calibration c;
    quant_good(q, ech__scales_init(&q->scales, &q->model));
    quant_good(q, ech__scales_weights(&q->scales, &q->model, options));
    quant_good(q, ech__calibration_init(&c, &q->model, q->device, QUANT_SAMPLES));
    quant_good(q, ech__calibration_add(&c, q->x, QUANT_SAMPLES));
    quant_good(q, ech__scales_activations(&q->scales, &q->model, c.seen, options));
    ech__calibration_fini(&c);
    ech__tensors_init(q->ctx, &q->whole);
    quant_good(q, ech__round_parameters(&q->model, &q->scales, &q->whole));
}

void quant_init(quant_fixture *q, ech__model_kind kind, const ech__scale_options *options)
{
    *q = (quant_fixture){.ctx = NULL};
    ech__model model;
    assert_int_equal(ech_ctx_create(NULL, &q->ctx), ECH_OK);
    quant_good(q, ech_graph_create(q->ctx, &q->graph));
    quant_good(q, ech__model_build(q->graph, &(ech__model_options){.kind = kind}, &model));
    q->prediction = ech__prediction_of(q->graph, model.loss);
    make_tensors(q);
    quant_good(q, ech__qmodel_from(&q->model, q->graph, q->prediction, &q->tensors));
    const ech__device_options asked = {.kind = asked_kind(), .threads = 2};
    const ech__device_options reference = {.kind = ECH__DEVICE_REFERENCE, .threads = 1};
    quant_good(q, ech__device_create(q->ctx, &asked, &q->device));
    quant_good(q, ech__device_create(q->ctx, &reference, &q->reference));
    q->x = malloc((size_t)QUANT_SAMPLES * QUANT_PIXELS * sizeof *q->x);
    assert_non_null(q->x);
    const ech__rng_range range = {.seed = 3, .stream = 1, .low = -1, .high = 1};
    ech__rng_fill(&range, q->x, (int64_t)QUANT_SAMPLES * QUANT_PIXELS);
    calibrate(q, options);
}

void quant_fini(quant_fixture *q)
{
    free(q->x);
    ech__device_destroy(q->device);
    ech__device_destroy(q->reference);
    ech__tensors_fini(&q->whole);
    ech__scales_fini(&q->scales);
    ech__qmodel_fini(&q->model);
    ech__tensors_fini(&q->tensors);
    ech_graph_destroy(q->graph);
    ech_ctx_destroy(q->ctx);
}

void quant_run_graph(quant_fixture *q, ech__device *device, const ech_graph *graph,
                     ech_value output, const ech__tensors *weights, float *y)
{
    const ech__network_options o = {.device = device, .batch = QUANT_SAMPLES};
    ech__network *network;
    quant_good(q, ech__network_create(graph, output, weights, &o, &network));
    quant_good(q, ech__network_run(network, q->x, QUANT_SAMPLES, y));
    ech__network_destroy(network);
}

void quant_run(quant_fixture *q, ech__device *device, const ech__rewritten *r, float *y)
{
    quant_run_graph(q, device, r->graph, r->output, &r->weights, y);
}
