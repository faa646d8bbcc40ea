#include "lab/int8.h"
#include "lab/shared.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- running ---- */

void ech__lab_trained(ech__lab_runs *lab)
{
    ech__lab_run(lab, "trained",
                 "train --model lenet @images --limit %" PRId64 " --epochs %" PRId64
                 " --batch-size 32 --optimizer adam --lr 0.001 --lr-schedule linear --save "
                 "@out/saved",
                 ech__lab_param_of(lab, "images"), ech__lab_param_of(lab, "epochs"));
}

void ech__lab_quantized(ech__lab_runs *lab, const char *id, const char *options)
{
    ech__lab_run(lab, id,
                 "quantize --model lenet --init @of:trained/saved @images --limit %" PRId64
                 " --samples %" PRId64 " %s --out @out",
                 ech__lab_param_of(lab, "tested"), ech__lab_param_of(lab, "samples"), options);
}

void ech__lab_quantized_best(ech__lab_runs *lab)
{
    ech__lab_quantized(lab, "best", "--timed 40 --sensitivity 1000");
}

/* ---- telling ---- */

const char *ech__int8_layer(size_t index)
{
    static const char *const layers[] = {"conv1", "conv2", "fc1", "fc2", "fc3"};
    return index < sizeof layers / sizeof *layers ? layers[index] : NULL;
}

int ech__int8_value(ech__sheet *s, const char *run, const char *layer, const char *what)
{
    const ech_json *values = ech__lab_path(ech__tell_record(s, run), "values");
    for (size_t i = 0; i < ech__json_count(values); i++) {
        const ech_json *value = ech__json_at(values, i);
        const char *has_layer, *has_what;
        if (ech__json_string(ech__json_find(value, "layer"), &has_layer) &&
            ech__json_string(ech__json_find(value, "what"), &has_what) &&
            strcmp(has_layer, layer) == 0 && strcmp(has_what, what) == 0)
            return (int)i;
    }
    return -1;
}

void ech__tell_rung(ech__sheet *s, const char *prefix, const char *run, ech__rung_kind rung)
{
    ech__tell_let(s, ech__lab_name("%sacc", prefix).s, "percent2",
                  "share([%s ladder.%d.accuracy.hits], [%s ladder.%d.accuracy.count])", run,
                  (int)rung, run, (int)rung);
    ech__tell_let(s, ech__lab_name("%sdiff", prefix).s, "fixed2",
                  "100 * paired([%s ladder.%d.gained], [%s ladder.%d.lost], "
                  "[%s ladder.%d.accuracy.count])",
                  run, (int)rung, run, (int)rung, run, (int)rung);
}

const char *ech__tell_verdict(ech__sheet *s, const char *prefix)
{
    const int side = ech__tell_side(s, ech__lab_name("%sdiff", prefix).s, 0);
    return side < 0 ? "a loss" : side > 0 ? "a gain" : "no difference that can be claimed";
}

void ech__tell_say_trained(ech__sheet *s, const char *run)
{
    ech__tell_let(s, "images", "integer", "%" PRId64, ech__tell_param(s, "images"));
    ech__tell_let(s, "epochs", "integer", "[trained config.epochs]");
    ech__tell_let(s, "tested", "integer", "[%s ladder.0.accuracy.count]", run);
    ech__tell_let(s, "f32_acc", "percent2",
                  "share([%s ladder.0.accuracy.hits], [%s ladder.0.accuracy.count])", run, run);
    ech__tell_sayf(
        s,
        "The network, lenet trained for {epochs} epochs on {images} images of %s, has "
        "{f32_acc} of {tested} test images right in f32 ({f32_acc.low} to {f32_acc.high}).",
        ech__tell_real_images(s) ? "CIFAR-10" : "a synthetic set");
}

/* ---- histograms ---- */

static double real_of(const ech_json *value, const char *key)
{
    double real = NAN;
    ech__json_real(ech__json_find(value, key), &real);
    return real;
}

/* Counts without the zeros, beside which all else would be flat. */
static ech_json *counts_of(const ech_json *value)
{
    const ech_json *counts = ech__json_find(value, "counts");
    const double zeros = real_of(value, "zeros") * real_of(value, "count"),
                 zero_bin = real_of(value, "zero_bin");
    ech_json *out = ech__json_array();
    for (size_t i = 0; i < ech__json_count(counts); i++) {
        double count = 0;
        ech__json_real(ech__json_at(counts, i), &count);
        ech__json_append_real(&out, (double)i == zero_bin ? round(count - zeros) : count);
    }
    return out;
}

void ech__tell_value_panel(ech__sheet *s, const char *run, int value)
{
    const ech_json *values = ech__lab_path(ech__tell_record(s, run), "values");
    const ech_json *seen = value < 0 ? NULL : ech__json_at(values, (size_t)value);
    const char *layer, *what;
    if (!ech__json_string(ech__json_find(seen, "layer"), &layer) ||
        !ech__json_string(ech__json_find(seen, "what"), &what))
        return;
    char name[96], note[96];
    const double from = real_of(seen, "first_bin"), zeros = real_of(seen, "zeros");
    ech_json *counts = counts_of(seen);
    snprintf(name, sizeof name, "%s %s", layer, what);
    snprintf(note, sizeof note, "%.3g to %.3g%s", real_of(seen, "min"), real_of(seen, "max"),
             zeros > 0 ? "" : ", no zeros");
    if (zeros > 0)
        snprintf(note + strlen(note), sizeof note - strlen(note), ", %.0f %% zeros", 100 * zeros);
    ech__tell_histogram(s, (ech__tell_panel){.name = name,
                                             .note = note,
                                             .from = from,
                                             .to = from + real_of(seen, "bin_width") *
                                                              (double)ech__json_count(counts),
                                             .counts = counts});
    ech__json_destroy(counts);
}
