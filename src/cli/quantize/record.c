/* The records of echelon quantize: quantize.json, and the histograms as data. */
#include "base/file/dir.h"
#include "base/file/file.h"
#include "base/file/json.h"
#include "cli/cli.h"
#include "cli/quantize/quantize.h"
#include "device/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- quantize.json ---- */

static ech_json *config_json(const ech__quantization *study)
{
    const ech__quantization_config *c = &study->config;
    ech_json *json = ech__json_object();
    ech__json_set_string(&json, "model", ech__model_name(c->model.kind));
    ech__json_set_string(&json, "init", c->init);
    ech__json_set_string(&json, "load", c->load);
    ech__json_set_string(&json, "data", c->data ? c->data : "synthetic");
    ech__json_set_int(&json, "limit", c->limit);
    ech__json_set_int(&json, "samples", c->samples);
    ech__json_set_int(&json, "seed", (int64_t)c->seed);
    ech__json_set_string(&json, "weights", ech__clip_name(c->scales.weights));
    ech__json_set_string(&json, "per", c->scales.per_channel ? "channel" : "tensor");
    ech__json_set_real(&json, "weight_percentile", c->scales.weight_percentile);
    ech__json_set_string(&json, "activations", ech__observe_name(c->scales.activations));
    ech__json_set_real(&json, "percentile", c->scales.percentile);
    ech__json_set_int(&json, "batch_size", study->ladder.options.batch);
    ech__json_set_int(&json, "threads", study->device->threads);
    ech__json_set_bool(&json, "tune", c->tune);
    return json;
}

static ech_json *share_json(const ech__share *s)
{
    ech_json *json = ech__json_object();
    ech__json_set_real(&json, "share", s->share);
    ech__json_set_real(&json, "low", s->low);
    ech__json_set_real(&json, "high", s->high);
    ech__json_set_int(&json, "hits", s->hits);
    ech__json_set_int(&json, "count", s->count);
    return json;
}

static ech_json *ladder_json(const ech__quantization *study)
{
    ech_json *rows = ech__json_array();
    for (int i = 0; i < study->ladder.count; i++) {
        const ech__rung *r = &study->ladder.rungs[i];
        ech_json *row = ech__json_object();
        ech__json_set_string(&row, "name", ech__rung_name(r->kind));
        ech__json_set_string(&row, "what", ech__rung_what(r->kind));
        ech__json_set(&row, "accuracy", share_json(&r->accuracy));
        ech__json_set(&row, "agreement", share_json(&r->agreement));
        ech__json_set_int(&row, "lost", r->lost);
        ech__json_set_int(&row, "gained", r->gained);
        if (r->bytes)
            ech__json_set_int(&row, "bytes", r->bytes);
        ech__json_set_real(&row, "time_per_image_s", r->image_s);
        ech__json_append(&rows, row);
    }
    return rows;
}

static ech_json *sensitivity_json(const ech__quantization *study)
{
    const ech__ladder *l = &study->ladder;
    ech_json *json = ech__json_object(), *rows = ech__json_array();
    for (size_t i = 0; l->layer_samples && i < study->scales.nlayers; i++) {
        ech_json *row = ech__json_object();
        ech__json_set_string(&row, "layer", l->layers[i].name);
        ech__json_set(&row, "accuracy", share_json(&l->layers[i].accuracy));
        ech__json_set(&row, "agreement", share_json(&l->layers[i].agreement));
        ech__json_append(&rows, row);
    }
    ech__json_set_int(&json, "samples", l->layer_samples);
    ech__json_set(&json, "f32", share_json(&l->layers_f32));
    ech__json_set(&json, "layers", rows);
    return json;
}

/* The scales of a weight: one for each output channel, or the same for all. */
static void set_weight_scales(ech_json **json, const ech__quantization *study, const char *layer)
{
    const ech__layer_scales *l = NULL;
    for (size_t i = 0; i < study->scales.nlayers; i++) {
        if (strcmp(study->scales.layers[i].name, layer) == 0)
            l = &study->scales.layers[i];
    }
    ech_json *scales = ech__json_array();
    for (int64_t o = 0; l && o < l->outputs; o++)
        ech__json_append_real(&scales, (double)l->scale[o]);
    ech__json_set_string(json, "type", ech__dtype_name(ECH_S8));
    ech__json_set(json, "scales", scales);
}

/* Bars of equal width, the zeros among them: they are zeros times count. */
static void set_bars(ech_json **json, const ech__histogram *histogram)
{
    const ech__bars bars = ech__histogram_bars(histogram);
    ech_json *counts = ech__json_array();
    for (int b = 0; b < bars.count; b++)
        ech__json_append_int(&counts, bars.height[b]);
    ech__json_set_real(json, "first_bin", bars.low);
    ech__json_set_real(json, "bin_width", bars.width);
    ech__json_set_int(json, "zero_bin", bars.zero);
    ech__json_set(json, "counts", counts);
}

static ech_json *seen_json(const ech__quantization *study, const ech__seen *seen)
{
    const ech__histogram_stats s = ech__histogram_stats_of(seen->histogram);
    ech_json *json = ech__json_object();
    ech__json_set_string(&json, "layer", seen->layer);
    ech__json_set_string(&json, "what", seen->what);
    ech__json_set_int(&json, "count", seen->histogram->count);
    ech__json_set_real(&json, "min", s.min);
    ech__json_set_real(&json, "max", s.max);
    ech__json_set_real(&json, "mean", s.mean);
    ech__json_set_real(&json, "sigma", s.sigma);
    ech__json_set_real(&json, "outliers", s.outliers);
    ech__json_set_real(&json, "zeros", s.zeros);
    if (seen->value < 0)
        set_weight_scales(&json, study, seen->layer);
    if (seen->value >= 0 && ech__has_scale(&study->model, seen->value)) {
        const ech_dtype type = ech__scale_type(study->model.fused, seen->value);
        ech__json_set_string(&json, "type", ech__dtype_name(type));
        ech__json_set_real(&json, "scale", (double)study->scales.activation[seen->value]);
    }
    set_bars(&json, seen->histogram);
    return json;
}

static ech_json *spreads_json(const ech__quantization *study)
{
    ech_json *rows = ech__json_array();
    ech__seen seen;
    for (size_t i = 0; ech__quantize_seen(study, i, &seen); i++) {
        if (seen.histogram)
            ech__json_append(&rows, seen_json(study, &seen));
    }
    return rows;
}

/* Seconds of each batch that was timed by itself. */
static ech_json *timings_json(const ech__quantization *study)
{
    const double *all[] = {study->f32_s, study->int8_s};
    static const char *const names[] = {"f32", "int8"};
    ech_json *json = ech__json_object();
    for (int k = 0; k < 2; k++) {
        ech_json *list = ech__json_array();
        for (int64_t i = 0; all[k] && i < study->config.timed; i++)
            ech__json_append_real(&list, all[k][i]);
        ech__json_set(&json, names[k], list);
    }
    return json;
}

ech_json *ech__quantize_json(const ech__quantization *study)
{
    ech_json *json = ech__json_object();
    ech__machine machine;
    ech__json_set_string(&json, "command", ech__cli_command_line());
    ech__json_set_string(&json, "version", ech_version());
    ech__json_set_string(&json, "clock", "measured");
    if (ech__machine_read(study->ctx, &machine) == ECH_OK)
        ech__json_set(&json, "machine", ech__machine_json(&machine));
    ech__json_set(&json, "config", config_json(study));
    if (study->config.init) {
        ech__json_set_real(&json, "calibration_s", study->calibration_s);
        ech__json_set_int(&json, "calibration_samples", study->calibration.samples);
    }
    ech__json_set(&json, "values", spreads_json(study));
    ech__json_set(&json, "ladder", ladder_json(study));
    ech__json_set(&json, "sensitivity", sensitivity_json(study));
    if (study->config.timed)
        ech__json_set(&json, "timings", timings_json(study));
    ech__json_set_int(&json, "f32_file_bytes", study->f32_bytes);
    ech__json_set_int(&json, "int8_file_bytes", study->int8_bytes);
    return json;
}

/* ---- histograms as data ---- */

static void print_histograms(const ech__quantization *study, FILE *out)
{
    ech__seen seen;
    fputs("layer,what,from,to,count\n", out);
    for (size_t i = 0; ech__quantize_seen(study, i, &seen); i++) {
        if (!seen.histogram)
            continue;
        const ech__bars bars = ech__histogram_bars(seen.histogram);
        for (int b = 0; b < bars.count; b++)
            fprintf(out, "%s,%s,%.9g,%.9g,%lld\n", seen.layer, seen.what, bars.low + b * bars.width,
                    bars.low + (b + 1) * bars.width, (long long)bars.height[b]);
    }
}

/* What each test image is, and what f32 and int8 say it is; a network that was loaded has no f32. */
static void print_predictions(const ech__quantization *study, FILE *out)
{
    const ech__ladder *l = &study->ladder;
    const bool both = study->config.init != NULL;
    fprintf(out, "image,label,%sint8\n", both ? "f32," : "");
    for (int64_t i = 0; i < study->test->count; i++) {
        fprintf(out, "%lld,%d,", (long long)i, study->test->labels[i]);
        if (both)
            fprintf(out, "%d,", (int)l->f32[i]);
        fprintf(out, "%d\n", (int)l->int8[i]);
    }
}

static ech_status write_csv(const ech__quantization *study, const char *file,
                            void (*print)(const ech__quantization *study, FILE *out))
{
    char path[ECH_DIR_MAX_PATH + 32], *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/%s", study->config.out, file);
    FILE *out = open_memstream(&text, &bytes);
    if (out)
        print(study, out);
    const ech_status status = !out || fclose(out) != 0
                                  ? ech__no_memory(study->ctx, "%s", path)
                                  : ech__file_write(study->ctx, path, text, bytes);
    free(text);
    return status;
}

static ech_status save_json(const ech__quantization *study, const char *file, ech_json *json)
{
    char path[ECH_DIR_MAX_PATH + 32];
    snprintf(path, sizeof path, "%s/%s", study->config.out, file);
    const ech_status status = ech__json_save(study->ctx, path, json, ECH_JSON_INDENT);
    ech__json_destroy(json);
    return status;
}

ech_status ech__quantize_record(const ech__quantization *study)
{
    ECH_TRY(save_json(study, "quantize.json", ech__quantize_json(study)));
    ECH_TRY(write_csv(study, "predictions.csv", print_predictions));
    if (!study->config.init)
        return ECH_OK;
    ECH_TRY(save_json(study, "histograms.json", spreads_json(study)));
    ECH_TRY(write_csv(study, "histograms.csv", print_histograms));
    return ech__quantize_plot(study);
}
