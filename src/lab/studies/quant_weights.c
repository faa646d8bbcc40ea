/* Accuracy after the weights alone have become s8, by how their scales are chosen. */
#include "lab/int8.h"
#include "lab/shared.h"

static const ech__lab_param params[] = {ECH__LAB_INT8_PARAMS, {0}};

static const struct {
    const char *id, *text, *options;
} ways[] = {
    {"tensor", "max-abs, per layer", "--weights max --per tensor --sensitivity 0"},
    {"sigma", "three sigma, per layer", "--weights 3sigma --per tensor --sensitivity 0"},
    {"channel", "max-abs, per channel", "--weights max --per channel --sensitivity 0"},
    {"csigma", "three sigma, per channel", "--weights 3sigma --per channel --sensitivity 0"},
};
enum { WAYS = sizeof ways / sizeof *ways };

static void runs(ech__lab_runs *lab)
{
    ech__lab_trained(lab);
    for (int i = 0; i < WAYS; i++)
        ech__lab_quantized(lab, ways[i].id, ways[i].options);
    ech__lab_quantized_best(lab);
}

/* The last row is what echelon quantize does by default. */
static const char *id_of(int i)
{
    return i < WAYS ? ways[i].id : "best";
}

static void name_figures(ech__sheet *s)
{
    for (int i = 0; i <= WAYS; i++)
        ech__tell_rung(s, ech__lab_name("%s_", id_of(i)).s, id_of(i), ECH__RUNG_WEIGHTS);
}

static void tell_table(ech__sheet *s)
{
    ech__tell_table(s, "Weights in s8, everything else in f32",
                    "Differences are on the same test images, so their intervals are narrower than "
                    "those of the accuracies.");
    ech__tell_column(s, "range of the weights", "text");
    ech__tell_column(s, "accuracy", "percent2");
    ech__tell_column(s, "against f32", "fixed2 points");
    ech__tell_column(s, "same answer as f32", "percent2");
    ech__tell_row(s);
    ech__tell_words(s, "f32");
    ech__tell_cell(s, "f32_acc");
    ech__tell_none(s);
    ech__tell_none(s);
    for (int i = 0; i <= WAYS; i++) {
        ech__tell_row(s);
        ech__tell_words(s, "%s", i < WAYS ? ways[i].text : "least squared error, per channel");
        ech__tell_cell(s, "%s_acc", id_of(i));
        ech__tell_cell(s, "%s_diff", id_of(i));
        ech__tell_plain(s, "[%s ladder.%d.agreement.share]", id_of(i), ECH__RUNG_WEIGHTS);
    }
}

static void tell_plot(ech__sheet *s)
{
    ech__tell_plot(s, "ladder", "Accuracy with weights in s8", NULL);
    ech__tell_y(s, (ech__tell_axis){.label = "accuracy", .unit = "%"});
    ech__tell_bar_format(s, "fixed2");
    ech__tell_category(s, "f32");
    for (int i = 0; i <= WAYS; i++)
        ech__tell_category(s, "%s", i < WAYS ? ways[i].text : "least error, per channel");
    ech__tell_series(s, "accuracy");
    ech__tell_bar(s, "100 * f32_acc");
    for (int i = 0; i <= WAYS; i++)
        ech__tell_bar(s, "100 * %s_acc", id_of(i));
}

static void answer_accuracy(ech__sheet *s)
{
    int worst = 0, lose = 0;
    for (int i = 0; i <= WAYS; i++) {
        if (ech__tell_value(s, "%s_diff", id_of(i)).value <
            ech__tell_value(s, "%s_diff", id_of(worst)).value)
            worst = i;
        lose += ech__tell_side(s, ech__lab_name("%s_diff", id_of(i)).s, 0) < 0;
    }
    ech__tell_sayf(
        s,
        "Max-abs with one scale a layer: {tensor_acc}, {tensor_diff} points ({tensor_diff.low} "
        "to {tensor_diff.high}), %s. Three sigma: {sigma_acc}, {sigma_diff} points "
        "({sigma_diff.low} to {sigma_diff.high}), %s. Max-abs with one scale a channel: "
        "{channel_acc}, {channel_diff} points ({channel_diff.low} to {channel_diff.high}), %s.",
        ech__tell_verdict(s, "tensor_"), ech__tell_verdict(s, "sigma_"),
        ech__tell_verdict(s, "channel_"));
    ech__tell_sayf(s, "The most is lost by \"%s\".",
                   worst < WAYS ? ways[worst].text : "least squared error, per channel");
    ech__tell_let(s, "ways", "integer", "%d", WAYS + 1);
    ech__tell_let(s, "losers", "integer", "%d", lose);
    ech__tell_say(
        s, lose ? "{losers} of {ways} ways lose more than can be chance."
                : "None of the {ways} ways loses more than can be chance on so many images.");
}

static void answer_compare(ech__sheet *s)
{
    ech__tell_let(s, "clip", "fixed2", "sigma_diff - tensor_diff");
    ech__tell_let(s, "finer", "fixed2", "channel_diff - tensor_diff");
    ech__tell_ask(s, "Does it pay to clip at three sigma, or to have a scale for each channel?");
    const int clip = ech__tell_side(s, "clip", 0), finer = ech__tell_side(s, "finer", 0);
    ech__tell_sayf(s,
                   "Clipping changes accuracy by {clip} points against max-abs ({clip.low} to "
                   "{clip.high}): %s.",
                   clip > 0   ? "the finer steps are worth more than the clamped weights"
                   : clip < 0 ? "the clamped weights cost more than the finer steps bring"
                              : "no difference can be claimed");
    ech__tell_sayf(s,
                   "A scale for each channel changes it by {finer} points ({finer.low} to "
                   "{finer.high}): %s.",
                   finer > 0   ? "it pays"
                   : finer < 0 ? "it does not pay here"
                               : "no difference can be claimed");
    ech__tell_let(s, "pub_f32", "percent2", "0.5466");
    ech__tell_let(s, "pub_low", "percent1", "0.514");
    ech__tell_let(s, "pub_high", "percent1", "0.541");
    ech__tell_say(s, "Published runs of this exercise went from {pub_f32} to between {pub_low} and "
                     "{pub_high} with the weights alone.");
}

static void tell(ech__sheet *s)
{
    name_figures(s);
    ech__tell_ask(s, "What is the accuracy after the weights are s8?");
    ech__tell_say_trained(s, "tensor");
    answer_accuracy(s);
    answer_compare(s);
    tell_table(s);
    tell_plot(s);
}

const ech__study_card ech__study_quant_weights = {
    .id = "quant-weights",
    .group = 'E',
    .place = 2,
    .title = "Weights to s8",
    .about =
        "The weights of the trained network are rounded to s8 with scales from the largest "
        "magnitude, from three sigma and from the least squared error, for a layer or a channel.",
    .params = params,
    .quick_seconds = 8,
    .full_seconds = 20,
    .runs = runs,
    .tell = tell};
