/* Accuracy after activations have become integers too, and the scales that lead from layer to layer. */
#include "lab/int8.h"
#include "lab/shared.h"

static const ech__lab_param params[] = {ECH__LAB_INT8_PARAMS, {0}};

/* Ranges of activations; the weights have the default scales in all of them. */
static const struct {
    const char *id, *text, *options;
} ways[] = {
    {"largest", "all that was seen", "--activations max --sensitivity 0"},
    {"most", "all but the largest few", "--activations percentile --sensitivity 0"},
    {"best", "least told wrong (entropy)", NULL},
};
enum { WAYS = sizeof ways / sizeof *ways, BEST = WAYS - 1 };

static void runs(ech__lab_runs *lab)
{
    ech__lab_trained(lab);
    for (int i = 0; i < WAYS; i++) {
        if (ways[i].options)
            ech__lab_quantized(lab, ways[i].id, ways[i].options);
        else
            ech__lab_quantized_best(lab);
    }
}

/* ---- figures ---- */

static void name_figures(ech__sheet *s)
{
    ech__tell_rung(s, "weights_", "best", ECH__RUNG_WEIGHTS);
    for (int i = 0; i < WAYS; i++)
        ech__tell_rung(s, ech__lab_name("%s_", ways[i].id).s, ways[i].id, ECH__RUNG_ACTIVATIONS);
}

/* Of every layer: in_, wei_, out_ scales, and rq_, what an integer sum is multiplied with. The last layer's sums
 * become real. */
static bool name_scales(ech__sheet *s, size_t l)
{
    const char *layer = ech__int8_layer(l);
    const int in = l ? ech__int8_value(s, "best", ech__int8_layer(l - 1), "after ReLU")
                     : ech__int8_value(s, "best", "x", "input"),
              out = ech__int8_value(s, "best", layer, "after ReLU");
    if (in < 0)
        return false;
    ech__tell_let(s, ech__lab_name("in_%s", layer).s, "general", "[best values.%d.scale]", in);
    ech__tell_let(s, ech__lab_name("wei_%s", layer).s, "general",
                  "highest[best values.layer=%s.scales]", layer);
    if (out >= 0)
        ech__tell_let(s, ech__lab_name("out_%s", layer).s, "general", "[best values.%d.scale]",
                      out);
    else
        ech__tell_let(s, ech__lab_name("out_%s", layer).s, "general", "1");
    ech__tell_let(s, ech__lab_name("rq_%s", layer).s, "general", "in_%s * wei_%s / out_%s", layer,
                  layer, layer);
    return true;
}

/* ---- tables and plot ---- */

static void tell_table(ech__sheet *s)
{
    ech__tell_table(
        s, "Weights in s8, activations in u8 and s8, biases real",
        "Ranges are from calibration on training images. Differences are on the same test "
        "images.");
    ech__tell_column(s, "range of the activations", "text");
    ech__tell_column(s, "accuracy", "percent2");
    ech__tell_column(s, "against f32", "fixed2 points");
    ech__tell_column(s, "same answer as f32", "percent2");
    ech__tell_row(s);
    ech__tell_words(s, "f32, no integers");
    ech__tell_cell(s, "f32_acc");
    ech__tell_none(s);
    ech__tell_none(s);
    ech__tell_row(s);
    ech__tell_words(s, "weights alone");
    ech__tell_cell(s, "weights_acc");
    ech__tell_cell(s, "weights_diff");
    ech__tell_plain(s, "[best ladder.%d.agreement.share]", ECH__RUNG_WEIGHTS);
    for (int i = 0; i < WAYS; i++) {
        ech__tell_row(s);
        ech__tell_words(s, "%s", ways[i].text);
        ech__tell_cell(s, "%s_acc", ways[i].id);
        ech__tell_cell(s, "%s_diff", ways[i].id);
        ech__tell_plain(s, "[%s ladder.%d.agreement.share]", ways[i].id, ECH__RUNG_ACTIVATIONS);
    }
}

static void tell_chain(ech__sheet *s)
{
    ech__tell_table(
        s, "The chain of scales",
        "A sum of integers times the factor is the integer that the next layer takes. A "
        "weight has a scale for each channel; here the largest.");
    ech__tell_column(s, "layer", "text");
    ech__tell_column(s, "input scale", "general");
    ech__tell_column(s, "weight scale", "general");
    ech__tell_column(s, "output scale", "general");
    ech__tell_column(s, "factor", "general");
    for (size_t l = 0; ech__int8_layer(l); l++) {
        static const char *const cells[] = {"in", "wei", "out", "rq"};
        if (!name_scales(s, l))
            continue;
        ech__tell_row(s);
        ech__tell_words(s, "%s", ech__int8_layer(l));
        for (size_t c = 0; c < sizeof cells / sizeof *cells; c++)
            ech__tell_plain(s, "%s_%s", cells[c], ech__int8_layer(l));
    }
}

static void tell_plot(ech__sheet *s)
{
    ech__tell_plot(s, "ladder", "Accuracy with weights and activations in integers", NULL);
    ech__tell_y(s, (ech__tell_axis){.label = "accuracy", .unit = "%"});
    ech__tell_bar_format(s, "fixed2");
    ech__tell_category(s, "f32");
    ech__tell_category(s, "weights alone");
    for (int i = 0; i < WAYS; i++)
        ech__tell_category(s, "%s", ways[i].text);
    ech__tell_series(s, "accuracy");
    ech__tell_bar(s, "100 * f32_acc");
    ech__tell_bar(s, "100 * weights_acc");
    for (int i = 0; i < WAYS; i++)
        ech__tell_bar(s, "100 * %s_acc", ways[i].id);
}

/* ---- answers ---- */

static void answer_accuracy(ech__sheet *s)
{
    int worst = 0;
    for (int i = 1; i < WAYS; i++) {
        if (ech__tell_value(s, "%s_diff", ways[i].id).value <
            ech__tell_value(s, "%s_diff", ways[worst].id).value)
            worst = i;
    }
    ech__tell_let(s, "samples", "integer", "[best calibration_samples]");
    ech__tell_let(s, "calibration", "seconds", "[best calibration_s]");
    ech__tell_let(s, "step", "fixed2", "best_diff - weights_diff");
    ech__tell_ask(s, "What is the accuracy after activations are integers too?");
    ech__tell_say_trained(s, "best");
    ech__tell_sayf(
        s,
        "With ranges from {samples} training images, seen in {calibration}, it is {best_acc}: "
        "{best_diff} points against f32 ({best_diff.low} to {best_diff.high}), %s. The "
        "weights alone are at {weights_diff}.",
        ech__tell_verdict(s, "best_"));
    ech__tell_sayf(s,
                   "By the range of activations, \"%s\" is the worst, with {%s_diff} points: %s.",
                   ways[worst].text, ways[worst].id,
                   ech__tell_verdict(s, ech__lab_name("%s_", ways[worst].id).s));
    ech__tell_let(s, "pub_loss", "fixed2", "53.17 - 54.66");
    ech__tell_say(
        s, "The published run of this exercise lost more here than anywhere, {pub_loss} points.");
}

static void answer_chain(ech__sheet *s)
{
    const char *first = ech__int8_layer(0), *second = ech__int8_layer(1);
    ech__tell_ask(s, "How are the scales chained from layer to layer?");
    if (!ech__tell_has(s, "best")) {
        ech__tell_say(s, "{best_acc}");
        return;
    }
    ech__tell_sayf(
        s,
        "What %s makes is what %s takes, so both have the scale {out_%s}: an image comes in "
        "at {in_%s}, a weight has {wei_%s}, a sum is in units of their product, and times "
        "{rq_%s} it is the next integer.",
        first, second, first, first, first, first);
    ech__tell_say(s,
                  "Max-pools and flattening move integers and keep the scale. Nothing between the "
                  "input and the last sums is real.");
}

static void tell(ech__sheet *s)
{
    name_figures(s);
    tell_chain(s);
    answer_accuracy(s);
    tell_table(s);
    tell_plot(s);
    answer_chain(s);
}

const ech__study_card ech__study_quant_activations = {
    .id = "quant-activations",
    .group = 'E',
    .place = 4,
    .title = "Activations to u8 and s8",
    .about = "Activations become integers too, with ranges from calibration on training images and "
             "scales chained from layer to layer.",
    .params = params,
    .quick_seconds = 5,
    .full_seconds = 15,
    .runs = runs,
    .tell = tell};
