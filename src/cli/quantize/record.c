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
    return ECH__JSON(ech__string("model", ech__model_name(c->model.kind)),
                     ech__string("init", c->init), ech__string("load", c->load),
                     ech__string("data", c->data ? c->data : "synthetic"),
                     ech__int("limit", c->limit), ech__int("samples", c->samples),
                     ech__int("seed", (int64_t)c->seed),
                     ech__string("weights", ech__clip_name(c->scales.weights)),
                     ech__string("per", c->scales.per_channel ? "channel" : "tensor"),
                     ech__real("weight_percentile", c->scales.weight_percentile),
                     ech__string("activations", ech__observe_name(c->scales.activations)),
                     ech__real("percentile", c->scales.percentile),
                     ech__int("batch_size", study->ladder.options.batch),
                     ech__int("threads", study->device->threads), ech__bool("tune", c->tune));
}

static ech_json *share_json(const ech__share *s)
{
    return ECH__JSON(ech__real("share", s->share), ech__real("low", s->low),
                     ech__real("high", s->high), ech__int("hits", s->hits),
                     ech__int("count", s->count));
}

static ech_json *ladder_json(const ech__quantization *study)
{
    ech_json *rows = ech__json_array();
    for (int i = 0; i < study->ladder.count; i++) {
        const ech__rung *r = &study->ladder.rungs[i];
        ech_json *row = ECH__JSON(ech__string("name", ech__rung_name(r->kind)),
                                  ech__string("what", ech__rung_what(r->kind)),
                                  ech__member("accuracy", share_json(&r->accuracy)),
                                  ech__member("agreement", share_json(&r->agreement)),
                                  ech__int("lost", r->lost), ech__int("gained", r->gained));
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
    ech_json *rows = ech__json_array();
    for (size_t i = 0; l->layer_samples && i < study->scales.nlayers; i++) {
        const ech__layer_rung *r = &l->layers[i];
        ech__json_append(&rows, ECH__JSON(ech__string("layer", r->name),
                                          ech__member("accuracy", share_json(&r->accuracy)),
                                          ech__member("agreement", share_json(&r->agreement))));
    }
    return ECH__JSON(ech__int("samples", l->layer_samples),
                     ech__member("f32", share_json(&l->layers_f32)), ech__member("layers", rows));
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
    ECH__JSON_SET(json, ech__string("type", ech__dtype_name(ECH_S8)),
                  ech__member("scales", scales));
}

/* Bars of equal width, the zeros among them: they are zeros times count. */
static void set_bars(ech_json **json, const ech__histogram *histogram)
{
    const ech__bars bars = ech__histogram_bars(histogram);
    ECH__JSON_SET(json, ech__real("first_bin", bars.low), ech__real("bin_width", bars.width),
                  ech__int("zero_bin", bars.zero),
                  ech__ints("counts", bars.height, (size_t)bars.count));
}

static ech_json *seen_json(const ech__quantization *study, const ech__seen *seen)
{
    const ech__histogram_stats s = ech__histogram_stats_of(seen->histogram);
    ech_json *json =
        ECH__JSON(ech__string("layer", seen->layer), ech__string("what", seen->what),
                  ech__int("count", seen->histogram->count), ech__real("min", s.min),
                  ech__real("max", s.max), ech__real("mean", s.mean), ech__real("sigma", s.sigma),
                  ech__real("outliers", s.outliers), ech__real("zeros", s.zeros));
    if (seen->value < 0)
        set_weight_scales(&json, study, seen->layer);
    if (seen->value >= 0 && ech__has_scale(&study->model, seen->value)) {
        const ech_dtype type = ech__scale_type(study->model.fused, seen->value);
        ECH__JSON_SET(&json, ech__string("type", ech__dtype_name(type)),
                      ech__real("scale", (double)study->scales.activation[seen->value]));
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
    const size_t count = (size_t)study->config.timed;
    return ECH__JSON(ech__reals("f32", study->f32_s, study->f32_s ? count : 0),
                     ech__reals("int8", study->int8_s, study->int8_s ? count : 0));
}

ech_json *ech__quantize_json(const ech__quantization *study)
{
    ech_json *json = ech__json_object();
    ech__machine machine;
    ECH__JSON_SET(&json, ech__string("command", ech__cli_command_line()),
                  ech__string("version", ech_version()), ech__string("clock", "measured"));
    if (ech__machine_read(study->ctx, &machine) == ECH_OK)
        ech__json_set(&json, "machine", ech__machine_json(&machine));
    ech__json_set(&json, "config", config_json(study));
    if (study->config.init) {
        ECH__JSON_SET(&json, ech__real("calibration_s", study->calibration_s),
                      ech__int("calibration_samples", study->calibration.samples));
    }
    ECH__JSON_SET(&json, ech__member("values", spreads_json(study)),
                  ech__member("ladder", ladder_json(study)),
                  ech__member("sensitivity", sensitivity_json(study)));
    if (study->config.timed)
        ech__json_set(&json, "timings", timings_json(study));
    ECH__JSON_SET(&json, ech__int("f32_file_bytes", study->f32_bytes),
                  ech__int("int8_file_bytes", study->int8_bytes));
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
