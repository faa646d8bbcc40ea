/* The tables of echelon quantize. */
#include "base/format.h"
#include "cli/quantize/quantize.h"

#include <stdio.h>
#include <string.h>

bool ech__quantize_seen(const ech__quantization *study, size_t i, ech__seen *out)
{
    const ech__scales *scales = &study->scales;
    if (!study->weights)
        return false;
    if (i < scales->nlayers) {
        *out = (ech__seen){scales->layers[i].name, "weight", study->weights[i], -1};
        return true;
    }
    i -= scales->nlayers;
    if (i == 0) {
        const ech_value input = study->model.input;
        *out = (ech__seen){study->model.graph->values[input].name, "input",
                           study->calibration.seen[input], input};
        return true;
    }
    const size_t layer = (i - 1) / 2;
    if (layer >= scales->nlayers)
        return false;
    const char *name = scales->layers[layer].name;
    const ech__around_relu around = ech__around_relu_of(&study->model, name);
    const bool after = (i - 1) % 2 == 1;
    const ech_value value = after ? around.after : around.before;
    *out = (ech__seen){name,
                       after               ? "after ReLU"
                       : around.after >= 0 ? "before ReLU"
                                           : "output",
                       value >= 0 ? study->calibration.seen[value] : NULL, value};
    return true;
}

/* ---- what there is ---- */

/* Names are as wide as the longest. */
static int width_of(const ech__quantization *study)
{
    size_t most = strlen("layer");
    ech__seen seen;
    for (size_t i = 0; ech__quantize_seen(study, i, &seen); i++)
        most = strlen(seen.layer) > most ? strlen(seen.layer) : most;
    for (size_t l = 0; l < study->scales.nlayers; l++) {
        const size_t length = strlen(study->scales.layers[l].name);
        most = length > most ? length : most;
    }
    return (int)most;
}

static void show_spread(const ech__seen *seen, int width)
{
    const ech__histogram_stats s = ech__histogram_stats_of(seen->histogram);
    printf("%-*s  %-11s  %10.4g %10.4g %10.3g %10.4g %9.2f %8.1f", width, seen->layer, seen->what,
           s.min, s.max, s.mean, s.sigma, 100 * s.outliers, 100 * s.zeros);
}

/* The smallest and largest scale of a layer's weight. */
static void show_weight_scale(const ech__layer_scales *layer)
{
    float least = layer->scale[0], most = layer->scale[0];
    for (int64_t o = 1; o < layer->outputs; o++) {
        least = layer->scale[o] < least ? layer->scale[o] : least;
        most = layer->scale[o] > most ? layer->scale[o] : most;
    }
    if (least == most)
        printf("  s8  %.4g\n", (double)least);
    else
        printf("  s8  %.4g to %.4g\n", (double)least, (double)most);
}

static void show_value_scale(const ech__quantization *study, ech_value value)
{
    if (value >= 0 && ech__has_scale(&study->model, value))
        printf("  %-2s  %.4g\n", ech__dtype_name(ech__scale_type(study->model.fused, value)),
               (double)study->scales.activation[value]);
    else
        printf("\n");
}

static void show_histograms(const ech__quantization *study)
{
    const int width = width_of(study);
    ech__seen seen;
    printf("%-*s  %-11s  %10s %10s %10s %10s %9s %8s  scale\n", width, "layer", "", "min", "max",
           "mean", "sigma", ">3sigma %", "zeros %");
    for (size_t i = 0; ech__quantize_seen(study, i, &seen); i++) {
        if (!seen.histogram)
            continue;
        show_spread(&seen, width);
        if (seen.value < 0)
            show_weight_scale(&study->scales.layers[i]);
        else
            show_value_scale(study, seen.value);
    }
    printf("\n");
}

/* ---- the ladder ---- */

static void show_rung(const ech__quantization *study, const ech__rung *r)
{
    const ech__rung *first = &study->ladder.rungs[0];
    char size[32] = "", points[16] = "";
    if (r->bytes)
        snprintf(size, sizeof size, "%s", ech__format_bytes(r->bytes).s);
    if (r != first)
        snprintf(points, sizeof points, "%+.2f", 100 * (r->accuracy.share - first->accuracy.share));
    printf("%-30s %7.2f  %6.2f to %6.2f  %8s  %9.2f  %9s  %s\n", ech__rung_name(r->kind),
           100 * r->accuracy.share, 100 * r->accuracy.low, 100 * r->accuracy.high, points,
           100 * r->agreement.share, size, r->image_s > 0 ? ech__format_seconds(r->image_s).s : "");
}

static void show_ladder(const ech__quantization *study)
{
    const ech__ladder *l = &study->ladder;
    printf("%-30s %7s  %16s  %8s  %9s  %9s  %s\n", "", "acc. %", "95 % interval", "points",
           "as f32 %", "size", "time/image");
    for (int i = 0; i < l->count; i++)
        show_rung(study, &l->rungs[i]);
    printf("%lld test images, batches of %lld, %d thread%s; times are measured\n\n",
           (long long)l->rungs[0].accuracy.count, (long long)l->options.batch,
           study->device->threads, study->device->threads == 1 ? "" : "s");
}

static void show_layers(const ech__quantization *study)
{
    const ech__ladder *l = &study->ladder;
    const int width = width_of(study);
    if (!l->layer_samples)
        return;
    printf("sensitivity: only one layer in int8, %lld test images (f32: %.2f %%)\n",
           (long long)l->layer_samples, 100 * l->layers_f32.share);
    printf("%-*s  %7s  %8s  %9s\n", width, "layer", "acc. %", "points", "as f32 %");
    for (size_t i = 0; i < study->scales.nlayers; i++) {
        const ech__layer_rung *r = &l->layers[i];
        printf("%-*s  %7.2f  %+8.2f  %9.2f\n", width, r->name, 100 * r->accuracy.share,
               100 * (r->accuracy.share - l->layers_f32.share), 100 * r->agreement.share);
    }
    printf("\n");
}

static void show_files(const ech__quantization *study)
{
    const ech__quantization_config *c = &study->config;
    if (c->init)
        printf("calibration of %lld images: %s\n", (long long)study->calibration.samples,
               ech__format_seconds(study->calibration_s).s);
    if (study->f32_bytes && study->int8_bytes)
        printf("model file: %s in f32, %s in int8 (%.1f %%)\n",
               ech__format_bytes(study->f32_bytes).s, ech__format_bytes(study->int8_bytes).s,
               100.0 * (double)study->int8_bytes / (double)study->f32_bytes);
    if (c->out)
        printf("wrote models, records and plots to %s\n", c->out);
}

void ech__quantize_show(const ech__quantization *study)
{
    const ech__scale_options *s = &study->config.scales;
    if (study->config.init) {
        printf("%s: weights by %s per %s, activations by %s\n\n",
               ech__model_name(study->config.model.kind), ech__clip_name(s->weights),
               s->per_channel ? "channel" : "tensor", ech__observe_name(s->activations));
        show_histograms(study);
    } else {
        printf("%s in int8 from %s\n\n", ech__model_name(study->config.model.kind),
               study->config.load);
    }
    show_ladder(study);
    show_layers(study);
    show_files(study);
}
