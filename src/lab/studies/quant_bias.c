/* The last rung, biases in s32, and with it the whole ladder from f32 to a network that computes in integers. */
#include "lab/int8.h"
#include "lab/shared.h"

static const ech__lab_param params[] = {ECH__LAB_INT8_PARAMS, {0}};

static void runs(ech__lab_runs *lab)
{
    ech__lab_trained(lab);
    ech__lab_quantized_best(lab);
}

/* ---- figures ---- */

/* Rung k has the figures rKacc and rKdiff. */
static void name_figures(ech__sheet *s)
{
    for (int k = 0; k < ECH__RUNG_COUNT; k++)
        ech__tell_rung(s, ech__lab_name("r%d", k).s, "best", (ech__rung_kind)k);
    ech__tell_let(s, "faster", "fixed2", "steps[best timings.f32] / steps[best timings.int8]");
    ech__tell_let(s, "f32_s", "seconds", "steps[best timings.f32] / [best config.batch_size]");
    ech__tell_let(s, "int8_s", "seconds", "steps[best timings.int8] / [best config.batch_size]");
    ech__tell_let(s, "f32_file", "bytes", "[best f32_file_bytes]");
    ech__tell_let(s, "int8_file", "bytes", "[best int8_file_bytes]");
    ech__tell_let(s, "smaller", "percent0", "int8_file / f32_file");
}

/* ---- tables and plot ---- */

static void tell_ladder_table(ech__sheet *s)
{
    ech__tell_table(
        s, "The ladder",
        "Differences are on the same test images. Bytes are those of the parameters; the "
        "last three rungs compute in floats and would not be kept.");
    ech__tell_column(s, "rung", "text");
    ech__tell_column(s, "accuracy", "percent2");
    ech__tell_column(s, "against f32", "fixed2 points");
    ech__tell_column(s, "same answer as f32", "percent2");
    ech__tell_column(s, "parameters", "bytes");
    ech__tell_column(s, "time/image", "seconds");
    for (int k = 0; k < ECH__RUNG_COUNT; k++) {
        ech__tell_row(s);
        ech__tell_words(s, "%s", ech__rung_name((ech__rung_kind)k));
        ech__tell_cell(s, "r%dacc", k);
        if (k == ECH__RUNG_F32)
            ech__tell_none(s);
        else
            ech__tell_cell(s, "r%ddiff", k);
        ech__tell_plain(s, "[best ladder.%d.agreement.share]", k);
        if (k <= ECH__RUNG_INT8)
            ech__tell_plain(s, "[best ladder.%d.bytes]", k);
        else
            ech__tell_none(s);
        if (k == ECH__RUNG_F32)
            ech__tell_cell(s, "f32_s");
        else if (k == ECH__RUNG_INT8)
            ech__tell_cell(s, "int8_s");
        else
            ech__tell_none(s);
    }
}

static void tell_layer_table(ech__sheet *s)
{
    ech__tell_table(s, "Each layer alone in int8", NULL);
    ech__tell_column(s, "layer", "text");
    ech__tell_column(s, "accuracy", "percent2");
    ech__tell_column(s, "same answer as f32", "percent2");
    for (size_t l = 0; ech__int8_layer(l); l++) {
        const ech__lab_id at = ech__lab_name("sensitivity.layers.%zu", l);
        ech__tell_row(s);
        ech__tell_words(s, "%s", ech__int8_layer(l));
        ech__tell_cell(s, "share([best %s.accuracy.hits], [best %s.accuracy.count])", at.s, at.s);
        ech__tell_plain(s, "[best %s.agreement.share]", at.s);
    }
}

static void tell_plot(ech__sheet *s)
{
    ech__tell_plot(s, "ladder", "Accuracy from f32 to int8",
                   "Intervals of 95 %; below the rungs of the network, two classroom slips.");
    ech__tell_y(s, (ech__tell_axis){.label = "accuracy", .unit = "%"});
    ech__tell_bar_format(s, "fixed2");
    for (int k = 0; k < ECH__RUNG_COUNT; k++)
        ech__tell_category(s, "%s", ech__rung_name((ech__rung_kind)k));
    ech__tell_series(s, "accuracy");
    for (int k = 0; k < ECH__RUNG_COUNT; k++)
        ech__tell_bar(s, "100 * r%dacc", k);
}

/* ---- answers ---- */

static void answer_ladder(ech__sheet *s)
{
    ech__tell_ask(s, "What is the accuracy after biases are s32, and of each rung?");
    ech__tell_say_trained(s, "best");
    ech__tell_sayf(
        s, "Weights in s8: {r%dacc}, {r%ddiff} points. Activations too: {r%dacc}, {r%ddiff}.",
        ECH__RUNG_WEIGHTS, ECH__RUNG_WEIGHTS, ECH__RUNG_ACTIVATIONS, ECH__RUNG_ACTIVATIONS);
    ech__tell_sayf(s,
                   "Biases in s32 with the scale of input times weight, all in integers: {r%dacc}, "
                   "{r%ddiff} points ({r%ddiff.low} to {r%ddiff.high}), %s.",
                   ECH__RUNG_INT8, ECH__RUNG_INT8, ECH__RUNG_INT8, ECH__RUNG_INT8,
                   ech__tell_verdict(s, ech__lab_name("r%d", ECH__RUNG_INT8).s));
    ech__tell_let(s, "apart", "integer",
                  "[best ladder.%d.accuracy.hits] - [best ladder.%d.accuracy.hits]", ECH__RUNG_FAKE,
                  ECH__RUNG_INT8);
    ech__tell_say(s, ech__tell_value(s, "apart").value == 0
                         ? "The same in float arithmetic on whole numbers has as many images right."
                         : "The same in float arithmetic on whole numbers has {apart} more images "
                           "right.");
    ech__tell_let(s, "pub_f32", "percent2", "0.5466");
    ech__tell_let(s, "pub_bias", "percent2", "0.5449");
    ech__tell_let(s, "pub_act", "percent2", "0.5317");
    ech__tell_say(
        s, "Published for this exercise: f32 {pub_f32}, weights and biases {pub_bias}, weights "
           "and activations {pub_act}.");
}

static void answer_slips(ech__sheet *s)
{
    ech__tell_ask(s, "What do the two classroom slips cost?");
    ech__tell_sayf(
        s,
        "Biases added to integer sums as they were trained, without a scale: {r%ddiff} points "
        "({r%ddiff.low} to {r%ddiff.high}), %s.",
        ECH__RUNG_UNSCALED, ECH__RUNG_UNSCALED, ECH__RUNG_UNSCALED,
        ech__tell_verdict(s, ech__lab_name("r%d", ECH__RUNG_UNSCALED).s));
    ech__tell_let(s, "top", "integer", "127");
    ech__tell_let(s, "all", "integer", "255");
    ech__tell_sayf(s,
                   "Activations scaled to {all} steps and clamped at {top}: {r%ddiff} points "
                   "({r%ddiff.low} to {r%ddiff.high}), %s.",
                   ECH__RUNG_CLAMPED, ECH__RUNG_CLAMPED, ECH__RUNG_CLAMPED,
                   ech__tell_verdict(s, ech__lab_name("r%d", ECH__RUNG_CLAMPED).s));
}

static void answer_speed(ech__sheet *s)
{
    const int side = ech__tell_side(s, "faster", 1);
    ech__tell_ask(s, "How fast and how large is the int8 network?");
    ech__tell_let(s, "batch", "integer", "[best config.batch_size]");
    ech__tell_sayf(
        s,
        "On one thread in batches of {batch}, an image takes {int8_s} in int8 and {f32_s} in "
        "f32, timed in turns: {faster} times as fast ({faster.low} to {faster.high})%s.",
        side > 0   ? ""
        : side < 0 ? ", so int8 is slower here"
                   : ", which is no difference that can be claimed");
    ech__tell_say(
        s, "Its file has {int8_file} instead of {f32_file}, {smaller} of it: a weight takes a "
           "quarter of the bytes, biases and scales do not shrink.");
}

static void tell(ech__sheet *s)
{
    name_figures(s);
    tell_ladder_table(s);
    tell_layer_table(s);
    tell_plot(s);
    answer_ladder(s);
    answer_slips(s);
    answer_speed(s);
}

const ech__study_card ech__study_quant_bias = {
    .id = "quant-bias",
    .group = 'E',
    .place = 5,
    .title = "Biases to s32, and the whole ladder",
    .about = "The network in integers from the first layer to the last, beside fake quantization "
             "and two "
             "slips that are often made; accuracy, size and speed of every rung.",
    .params = params,
    .quick_seconds = 4,
    .full_seconds = 10,
    .runs = runs,
    .tell = tell};
