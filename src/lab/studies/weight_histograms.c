/* How the weights of each layer are spread, and what that says of one scale for a layer. */
#include "lab/int8.h"
#include "lab/shared.h"

#include <stdio.h>

static const ech__lab_param params[] = {ECH__LAB_INT8_PARAMS, {0}};

static void runs(ech__lab_runs *lab)
{
    ech__lab_trained(lab);
    ech__lab_quantized(lab, "tensor", "--weights max --per tensor --sensitivity 0");
    ech__lab_quantized(lab, "channel", "--weights max --per channel --sensitivity 0");
}

/* ---- figures ---- */

/* Of every layer: low_, high_, sigma_, far_ (largest magnitude in sigmas), beyond_ (share beyond three sigma),
 * step_ (one step of the layer's scale in sigmas), narrow_ (range of the narrowest channel by the widest one's),
 * idle_ (share of the shorter side's integers that no weight uses). */
static void name_layer(ech__sheet *s, const char *layer)
{
    const ech__lab_id v = ech__lab_name("values.layer=%s", layer);
    ech__tell_let(s, ech__lab_name("low_%s", layer).s, "fixed3", "[tensor %s.min]", v.s);
    ech__tell_let(s, ech__lab_name("high_%s", layer).s, "fixed3", "[tensor %s.max]", v.s);
    ech__tell_let(s, ech__lab_name("sigma_%s", layer).s, "fixed4", "[tensor %s.sigma]", v.s);
    ech__tell_let(s, ech__lab_name("far_%s", layer).s, "fixed1",
                  "max(abs(low_%s), abs(high_%s)) / sigma_%s", layer, layer, layer);
    ech__tell_let(s, ech__lab_name("beyond_%s", layer).s, "percent2", "[tensor %s.outliers]", v.s);
    ech__tell_let(s, ech__lab_name("step_%s", layer).s, "fixed4", "far_%s / 127", layer);
    ech__tell_let(s, ech__lab_name("narrow_%s", layer).s, "percent0",
                  "lowest[channel %s.scales] / highest[channel %s.scales]", v.s, v.s);
    ech__tell_let(s, ech__lab_name("idle_%s", layer).s, "percent0",
                  "1 - min(abs(low_%s), abs(high_%s)) / max(abs(low_%s), abs(high_%s))", layer,
                  layer, layer, layer);
}

static void name_figures(ech__sheet *s)
{
    for (size_t l = 0; ech__int8_layer(l); l++)
        name_layer(s, ech__int8_layer(l));
    ech__tell_rung(s, "tensor_", "tensor", ECH__RUNG_WEIGHTS);
    ech__tell_rung(s, "channel_", "channel", ECH__RUNG_WEIGHTS);
}

/* The layer with the largest, or the smallest, figure of that name. */
static const char *layer_with(ech__sheet *s, const char *what, bool largest)
{
    const char *found = ech__int8_layer(0);
    for (size_t l = 1; ech__int8_layer(l); l++) {
        const double here = ech__tell_value(s, "%s_%s", what, ech__int8_layer(l)).value,
                     best = ech__tell_value(s, "%s_%s", what, found).value;
        if (largest ? here > best : here < best)
            found = ech__int8_layer(l);
    }
    return found;
}

/* ---- table and plot ---- */

static void tell_table(ech__sheet *s)
{
    ech__tell_table(s, "Weights by layer",
                    "Step: the distance of two integers where one scale covers all of the layer. "
                    "Narrowest channel: its range by that of the widest.");
    ech__tell_column(s, "layer", "text");
    ech__tell_column(s, "weights", "integer");
    ech__tell_column(s, "smallest", "fixed3");
    ech__tell_column(s, "largest", "fixed3");
    ech__tell_column(s, "sigma", "fixed4");
    ech__tell_column(s, "largest magnitude", "fixed1 sigma");
    ech__tell_column(s, "beyond 3 sigma", "percent2");
    ech__tell_column(s, "step", "fixed4 sigma");
    ech__tell_column(s, "narrowest channel", "percent0");
    for (size_t l = 0; ech__int8_layer(l); l++) {
        const char *layer = ech__int8_layer(l);
        ech__tell_row(s);
        ech__tell_words(s, "%s", layer);
        ech__tell_plain(s, "[tensor values.layer=%s.count]", layer);
        static const char *const cells[] = {"low",    "high", "sigma", "far",
                                            "beyond", "step", "narrow"};
        for (size_t c = 0; c < sizeof cells / sizeof *cells; c++)
            ech__tell_plain(s, "%s_%s", cells[c], layer);
    }
}

static void tell_plot(ech__sheet *s)
{
    ech__tell_plot(s, "histogram", "Weights by layer", NULL);
    ech__tell_x(s, (ech__tell_axis){.label = "weight"});
    ech__tell_y(s, (ech__tell_axis){.label = "count"});
    for (size_t l = 0; ech__int8_layer(l); l++)
        ech__tell_value_panel(s, "tensor",
                              ech__int8_value(s, "tensor", ech__int8_layer(l), "weight"));
}

/* ---- answer ---- */

static void say_shape(ech__sheet *s)
{
    const char *far = layer_with(s, "far", true), *near = layer_with(s, "far", false),
               *idle = layer_with(s, "idle", true);
    ech__tell_sayf(
        s,
        "The largest weight of a layer lies {far_%s} sigma out in %s and {far_%s} in %s, so "
        "that one step of an s8 with a scale for the layer is {step_%s} to {step_%s} sigma.",
        near, near, far, far, near, far);
    ech__tell_sayf(
        s,
        ech__tell_value(s, "beyond_%s", far).value > 0
            ? "Beyond three sigma are {beyond_%s} of the weights of %s: they stretch the "
              "scale for all others."
            : "Beyond three sigma are {beyond_%s} of the weights of %s: no outlier "
              "stretches the scale.",
        far, far);
    ech__tell_sayf(
        s,
        "The two sides are most unequal in %s, where a symmetric scale leaves {idle_%s} of "
        "the integers on the shorter side unused.",
        idle, idle);
}

static void say_accuracy(ech__sheet *s)
{
    const char *narrow = layer_with(s, "narrow", false);
    ech__tell_let(s, "levels", "integer", "127 * narrow_%s", narrow);
    ech__tell_let(s, "all_levels", "integer", "127");
    ech__tell_sayf(
        s,
        "Channels of a layer differ: the narrowest of %s has {narrow_%s} of the range of "
        "the widest, and would use {levels} of {all_levels} integers on either side.",
        narrow, narrow);
    ech__tell_sayf(
        s,
        "What it costs: with one scale a layer, {tensor_diff} points of accuracy "
        "({tensor_diff.low} to {tensor_diff.high}), %s; with one a channel, {channel_diff} "
        "({channel_diff.low} to {channel_diff.high}), %s.",
        ech__tell_verdict(s, "tensor_"), ech__tell_verdict(s, "channel_"));
    ech__tell_say(
        s, ech__tell_side(s, "tensor_diff", 0) < 0
               ? "So one symmetric scale a layer is not enough for this network."
               : "So one symmetric scale a layer is enough for the weights of this network.");
}

static void tell(ech__sheet *s)
{
    name_figures(s);
    tell_table(s);
    tell_plot(s);
    ech__tell_ask(s, "Is one symmetric scale per layer enough?");
    ech__tell_say_trained(s, "tensor");
    say_shape(s);
    ech__tell_paragraph(s);
    say_accuracy(s);
}

const ech__study_card ech__study_weight_histograms = {
    .id = "weight-histograms",
    .group = 'E',
    .place = 1,
    .title = "How the weights are spread",
    .about =
        "The small convolutional network is trained on CIFAR-10; the weights of each layer as a "
        "histogram, with their range, sigma and outliers.",
    .params = params,
    .quick_seconds = 20,
    .full_seconds = 80,
    .runs = runs,
    .tell = tell};
