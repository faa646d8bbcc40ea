#include "quant/ladder.h"
#include "base/names.h"
#include "base/stats.h"
#include "base/system/clock.h"

#include <math.h>
#include <stdlib.h>

ECH__NAMES(ech__rung_name, ech__rung_kind, ECH__RUNG_LIST)

const char *ech__rung_what(ech__rung_kind kind)
{
    static const char *const texts[] = {
#define TEXT(id, text, what) what,
        ECH__RUNG_LIST(TEXT)
#undef TEXT
    };
    return texts[kind];
}

ech__share ech__share_of(int64_t hits, int64_t count)
{
    static const double z = 1.959963984540054; /* 97.5 % of the normal distribution */
    ech__share s = {.hits = hits, .count = count, .high = 1};
    if (!count)
        return s;
    const double n = (double)count, p = (double)hits / n,
                 centre = (p + z * z / (2 * n)) / (1 + z * z / n);
    const double half = z / (1 + z * z / n) * sqrt(p * (1 - p) / n + z * z / (4 * n * n));
    s.share = p;
    /* At the ends the formula gives them exactly, but for rounding. */
    s.low = hits ? centre - half : 0;
    s.high = hits < count ? centre + half : 1;
    return s;
}

/* ---- evaluation ---- */

static int32_t largest(const float *values, int64_t count)
{
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        best = values[i] > values[best] ? i : best;
    return (int32_t)best;
}

typedef struct scoring {
    ech__network *network;
    float *y;        /* [batch, outputs] */
    double *seconds; /* of full batches */
    size_t full;
} scoring;

static ech_status score_batch(scoring *s, const ech__batch *b, int64_t count, int32_t *predicted,
                              const int32_t *expected, ech__scored *out)
{
    ech__network *net = s->network;
    ECH_TRY(ech__network_run(net, b->x, count, s->y));
    if (count == net->batch)
        s->seconds[s->full++] = ech__seconds(net->run_ns);
    for (int64_t i = 0; i < count; i++) {
        const int32_t answer = largest(s->y + i * net->out_elems, net->out_elems);
        const bool right = answer == b->y[i];
        out->correct += right;
        if (predicted)
            predicted[out->samples] = answer;
        if (expected) {
            const bool was_right = expected[out->samples] == b->y[i];
            out->agree += answer == expected[out->samples];
            out->lost += was_right && !right;
            out->gained += right && !was_right;
        }
        out->samples++;
    }
    return ECH_OK;
}

static int64_t count_of(const ech__samples *samples)
{
    const int64_t all = samples->set->count;
    return samples->limit && samples->limit < all ? samples->limit : all;
}

static ech_status score(scoring *s, const ech__samples *samples, int32_t *predicted,
                        const int32_t *expected, ech__scored *out)
{
    ech_ctx *ctx = s->network->ctx;
    const int64_t wanted = count_of(samples);
    ech__loader_options l = ech__loader_defaults();
    l.batch = s->network->batch < samples->set->count ? s->network->batch : samples->set->count;
    l.norm = samples->norm;
    l.shuffle = false;
    l.drop_last = false;
    l.epochs = 1;
    ech__loader *loader;
    ECH_TRY(ech__loader_create(ctx, samples->set, &l, &loader));
    const ech__batch *b;
    ech_status status = ECH_OK;
    while (status == ECH_OK && out->samples < wanted) {
        status = ech__loader_next(loader, &b, NULL);
        if (status < 0 || !b)
            break;
        const int64_t left = wanted - out->samples;
        status = score_batch(s, b, b->count < left ? b->count : left, predicted, expected, out);
    }
    ech__loader_destroy(loader);
    if (s->full)
        out->batch_s = ech__stats_of(s->seconds, s->full).median;
    return status;
}

ech_status ech__score(ech__network *network, const ech__samples *samples, int32_t *predicted,
                      const int32_t *expected, ech__scored *out)
{
    *out = (ech__scored){.samples = 0};
    const size_t batches = (size_t)(count_of(samples) / network->batch + 1);
    scoring s = {.network = network,
                 .y = malloc((size_t)(network->batch * network->out_elems) * sizeof(float)),
                 .seconds = malloc(batches * sizeof(double))};
    const ech_status status = s.y && s.seconds ? score(&s, samples, predicted, expected, out)
                                               : ech__no_memory(network->ctx, "an evaluation");
    free(s.y);
    free(s.seconds);
    return status;
}

/* ---- the ladder ---- */

ech_status ech__ladder_init(ech__ladder *ladder, const ech__qmodel *model,
                            const ech__scales *scales, const ech__tensors *whole,
                            const ech__ladder_options *options)
{
    *ladder = (ech__ladder){
        .ctx = model->ctx, .model = model, .scales = scales, .whole = whole, .options = *options};
    ech__arena_init(&ladder->arena, model->ctx->alloc);
    ladder->f32 =
        ech__arena_array(&ladder->arena, (size_t)count_of(&options->test), sizeof *ladder->f32);
    ladder->int8 =
        ech__arena_array(&ladder->arena, (size_t)count_of(&options->test), sizeof *ladder->int8);
    ladder->layers = ech__arena_array(&ladder->arena, scales->nlayers, sizeof *ladder->layers);
    if (ladder->f32 && ladder->int8 && ladder->layers)
        return ECH_OK;
    ech__ladder_fini(ladder);
    return ech__no_memory(model->ctx, "the predictions of a test set");
}

void ech__ladder_fini(ech__ladder *ladder)
{
    if (!ladder->ctx)
        return;
    ech__arena_fini(&ladder->arena);
    *ladder = (ech__ladder){.ctx = NULL};
}

static ech_status score_rewritten(const ech__ladder *ladder, const ech__rewritten *r,
                                  const ech__samples *samples, int32_t *predicted,
                                  const int32_t *expected, ech__scored *out)
{
    const ech__network_options o = {.device = ladder->options.device,
                                    .tuning = ladder->options.tuning,
                                    .batch = ladder->options.batch};
    ech__network *network;
    ECH_TRY(ech__network_create(r->graph, r->output, &r->weights, &o, &network));
    const ech_status status = ech__score(network, samples, predicted, expected, out);
    ech__network_destroy(network);
    return status;
}

/* The network of a rung. That of f32 is the model itself, and not to be destroyed. */
static ech_status make_rung(const ech__ladder *ladder, ech__rung_kind kind, ech__rewritten *out)
{
    const ech__qmodel *m = ladder->model;
    const ech__scales *s = ladder->scales;
    switch (kind) {
    case ECH__RUNG_F32:
        *out = (ech__rewritten){.graph = m->fused, .output = m->output, .weights = m->weights};
        return ECH_OK;
    case ECH__RUNG_WEIGHTS:
        return ech__round_weights(m, s, out);
    case ECH__RUNG_ACTIVATIONS:
        return ech__fake_quantize(m, s, &(ech__fake_options){.bias = ECH__FAKE_REAL}, out);
    case ECH__RUNG_INT8:
        return ech__quantize(m, s, ladder->whole, NULL, out);
    case ECH__RUNG_FAKE:
        return ech__fake_quantize(m, s, &(ech__fake_options){.bias = ECH__FAKE_WHOLE}, out);
    case ECH__RUNG_UNSCALED:
        return ech__fake_quantize(m, s, &(ech__fake_options){.bias = ECH__FAKE_UNSCALED}, out);
    case ECH__RUNG_CLAMPED:
        return ech__fake_quantize(m, s, &(ech__fake_options){.clamp_at_127 = true}, out);
    case ECH__RUNG_COUNT:
        break;
    }
    return ech__fail(ladder->ctx, ECH_E_INTERNAL, "there is no rung %d", (int)kind);
}

/* Bytes of the parameters as this rung would keep them: weights in s8 with their scales, biases in 4 bytes. */
static int64_t bytes_of(const ech__ladder *ladder, ech__rung_kind kind)
{
    const ech__qmodel *m = ladder->model;
    int64_t bytes = 0;
    for (size_t v = 0; v < m->fused->nvalues; v++) {
        const ech__value *value = &m->fused->values[v];
        int64_t elems = 0;
        bool layer = false, used = false;
        for (size_t n = 0; n < m->fused->nnodes; n++) {
            const ech__node *node = &m->fused->nodes[n];
            for (int i = 1; i < node->nin; i++)
                used |= node->in[i] == (ech_value)v;
            layer |= ech__is_layer(m->fused, node) && node->in[1] == (ech_value)v;
        }
        if (!used || (value->kind != ECH__VALUE_PARAM && value->kind != ECH__VALUE_BUFFER))
            continue;
        ech__shape_elems(&value->type.shape, &elems);
        if (layer && kind != ECH__RUNG_F32)
            bytes += elems + value->type.shape.dims[0] * (int64_t)sizeof(float);
        else
            bytes += elems * (int64_t)sizeof(float);
    }
    return bytes;
}

/* The first rung's predictions are those that others are compared with. */
static ech_status climb(ech__ladder *ladder, ech__rung_kind kind)
{
    const bool first = ladder->count == 0;
    ech__rewritten r;
    ech__scored scored;
    if (ladder->options.progress)
        ladder->options.progress(ladder->options.user, ech__rung_name(kind));
    ECH_TRY(make_rung(ladder, kind, &r));
    int32_t *predicted = kind == ECH__RUNG_INT8 ? ladder->int8 : first ? ladder->f32 : NULL;
    const ech_status status = score_rewritten(ladder, &r, &ladder->options.test, predicted,
                                              first ? NULL : ladder->f32, &scored);
    if (kind != ECH__RUNG_F32)
        ech__rewritten_fini(&r);
    ECH_TRY(status);
    ladder->rungs[ladder->count++] = (ech__rung){
        .kind = kind,
        .accuracy = ech__share_of(scored.correct, scored.samples),
        .agreement = ech__share_of(first ? scored.samples : scored.agree, scored.samples),
        .lost = scored.lost,
        .gained = scored.gained,
        .bytes = kind <= ECH__RUNG_INT8 ? bytes_of(ladder, kind) : 0,
        .image_s = scored.batch_s / (double)ladder->options.batch};
    return ECH_OK;
}

ech_status ech__ladder_climb(ech__ladder *ladder)
{
    for (int kind = 0; kind < ECH__RUNG_COUNT; kind++)
        ECH_TRY(climb(ladder, (ech__rung_kind)kind));
    return ECH_OK;
}

ech_status ech__ladder_int8(ech__ladder *ladder)
{
    return climb(ladder, ECH__RUNG_INT8);
}

/* ---- each layer alone ---- */

static int64_t hits_of_f32(const ech__ladder *ladder, int64_t samples)
{
    int64_t hits = 0;
    for (int64_t i = 0; i < samples; i++)
        hits += ladder->f32[i] == (int32_t)ladder->options.test.set->labels[i];
    return hits;
}

static ech_status try_layer(ech__ladder *ladder, size_t layer, bool *chosen)
{
    ech__samples samples = ladder->options.test;
    samples.limit = ladder->layer_samples;
    ech__rewritten r;
    ech__scored scored;
    if (ladder->options.progress)
        ladder->options.progress(ladder->options.user, ladder->scales->layers[layer].name);
    chosen[layer] = true;
    ECH_TRY(ech__quantize(ladder->model, ladder->scales, ladder->whole, chosen, &r));
    const ech_status status = score_rewritten(ladder, &r, &samples, NULL, ladder->f32, &scored);
    ech__rewritten_fini(&r);
    chosen[layer] = false;
    ECH_TRY(status);
    ladder->layers[layer] =
        (ech__layer_rung){.name = ladder->scales->layers[layer].name,
                          .accuracy = ech__share_of(scored.correct, scored.samples),
                          .agreement = ech__share_of(scored.agree, scored.samples)};
    return ECH_OK;
}

ech_status ech__ladder_layers(ech__ladder *ladder, int64_t samples)
{
    const int64_t all = count_of(&ladder->options.test);
    bool *chosen = ech__arena_array(&ladder->arena, ladder->scales->nlayers, sizeof *chosen);
    if (!chosen)
        return ech__no_memory(ladder->ctx, "%zu layers", ladder->scales->nlayers);
    ladder->layer_samples = samples < all ? samples : all;
    ladder->layers_f32 =
        ech__share_of(hits_of_f32(ladder, ladder->layer_samples), ladder->layer_samples);
    for (size_t l = 0; l < ladder->scales->nlayers; l++)
        ECH_TRY(try_layer(ladder, l, chosen));
    return ECH_OK;
}
