/* How what flows between layers is spread, before and after each ReLU. */
#include "lab/int8.h"
#include "lab/shared.h"

#include <stdio.h>
#include <string.h>

static const ech__lab_param params[] = {ECH__LAB_INT8_PARAMS, {0}};

static void runs(ech__lab_runs *lab)
{
    ech__lab_trained(lab);
    ech__lab_quantized_best(lab);
}

/* ---- what there is to see ---- */

enum { MOST_SEEN = 24 };

typedef struct seen {
    int index; /* in the record */
    const char *layer, *what;
} seen;

/* Everything but weights, in the order of the record. */
static int list_seen(ech__sheet *s, seen *out)
{
    const ech_json *values = ech__lab_path(ech__tell_record(s, "best"), "values");
    int count = 0;
    for (size_t i = 0; i < ech__json_count(values) && count < MOST_SEEN; i++) {
        const ech_json *value = ech__json_at(values, i);
        const bool weight = ech__json_find(value, "scales") != NULL;
        seen *next = &out[count];
        if (!weight && ech__json_string(ech__json_find(value, "layer"), &next->layer) &&
            ech__json_string(ech__json_find(value, "what"), &next->what)) {
            next->index = (int)i;
            count++;
        }
    }
    return count;
}

static bool is_behind(const seen *v)
{
    return strcmp(v->what, "after ReLU") == 0;
}

static double value_of(ech__sheet *s, const seen *v, const char *field)
{
    return ech__tell_value(s, "[best values.%d.%s]", v->index, field).value;
}

/* ---- table and plot ---- */

static void tell_table(ech__sheet *s, const seen *all, int count)
{
    ech__tell_table(
        s, "Activations on calibration images",
        "Integers: the type that has no half unused, and the value of one step. Only what a "
        "layer takes or makes in integers has one.");
    ech__tell_column(s, "layer", "text");
    ech__tell_column(s, "where", "text");
    ech__tell_column(s, "smallest", "fixed2");
    ech__tell_column(s, "largest", "fixed2");
    ech__tell_column(s, "sigma", "fixed3");
    ech__tell_column(s, "beyond 3 sigma", "percent2");
    ech__tell_column(s, "zeros", "percent1");
    ech__tell_column(s, "integers", "text");
    ech__tell_column(s, "step", "fixed4");
    for (int i = 0; i < count; i++) {
        static const char *const fields[] = {"min", "max", "sigma", "outliers", "zeros"};
        const ech__lab_id at = ech__lab_name("values.%d", all[i].index);
        const char *type = ech__tell_text(s, "best", ech__lab_name("%s.type", at.s).s);
        ech__tell_row(s);
        ech__tell_words(s, "%s", all[i].layer);
        ech__tell_words(s, "%s", all[i].what);
        for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
            ech__tell_plain(s, "[best %s.%s]", at.s, fields[f]);
        if (*type) {
            ech__tell_words(s, "%s", type);
            ech__tell_plain(s, "[best %s.scale]", at.s);
        } else {
            ech__tell_none(s);
            ech__tell_none(s);
        }
    }
}

static void tell_plot(ech__sheet *s, const seen *all, int count)
{
    ech__tell_plot(s, "histogram", "Activations before and after each ReLU",
                   "Without the zeros, whose share stands beside the range.");
    ech__tell_x(s, (ech__tell_axis){.label = "value"});
    ech__tell_y(s, (ech__tell_axis){.label = "count"});
    for (int i = 0; i < count; i++)
        ech__tell_value_panel(s, "best", all[i].index);
}

/* ---- answers ---- */

/* Of what comes from a ReLU, the one that reaches farthest, or least far. */
static const seen *widest(ech__sheet *s, const seen *all, int count, bool most)
{
    const seen *found = NULL;
    for (int i = 0; i < count; i++) {
        if (is_behind(&all[i]) &&
            (!found || (value_of(s, &all[i], "max") > value_of(s, found, "max")) == most))
            found = &all[i];
    }
    return found;
}

static void answer_ranges(ech__sheet *s, const seen *all, int count)
{
    const seen *wide = widest(s, all, count, true), *narrow = widest(s, all, count, false);
    ech__tell_ask(s, "Which ranges do activations take?");
    ech__tell_let(s, "samples", "integer", "[best calibration_samples]");
    if (!wide || !narrow) {
        ech__tell_say(s, "Of {samples} images nothing was recorded behind a ReLU.");
        return;
    }
    ech__tell_let(s, "wide", "fixed2", "[best values.%d.max]", wide->index);
    ech__tell_let(s, "narrow", "fixed2", "[best values.%d.max]", narrow->index);
    ech__tell_let(s, "sigmas", "fixed1", "wide / [best values.%d.sigma]", wide->index);
    ech__tell_let(s, "covered", "fixed2", "255 * [best values.%d.scale]", wide->index);
    ech__tell_let(s, "times", "fixed1", "wide / narrow");
    ech__tell_sayf(
        s,
        "On {samples} training images, from {narrow} behind the ReLU of %s to {wide} behind "
        "that of %s: {times} times as far%s.",
        narrow->layer, wide->layer,
        ech__tell_value(s, "times").value > 1.25 ? ", so that they cannot share a scale" : "");
    ech__tell_sayf(
        s,
        "The largest value of %s lies {sigmas} sigma out. Calibration covers the range up to "
        "{covered} there, %s.",
        wide->layer,
        ech__tell_value(s, "covered / wide").value < 0.99 ? "and clamps the few that lie beyond"
                                                          : "which is all of it");
}

/* Names the least and the largest share of zeros behind a ReLU. */
static void name_zeros(ech__sheet *s, const seen *all, int count)
{
    char list[ECH__LAB_EXPR_MAX] = "";
    size_t used = 0;
    for (int i = 0; i < count && used < sizeof list; i++) {
        if (is_behind(&all[i]))
            used += (size_t)snprintf(list + used, sizeof list - used, "%s[best values.%d.zeros]",
                                     used ? ", " : "", all[i].index);
    }
    ech__tell_let(s, "fewest", "percent0", "min(%s)", used ? list : "0");
    ech__tell_let(s, "most", "percent0", "max(%s)", used ? list : "0");
}

static void answer_empty(ech__sheet *s, const seen *all, int count)
{
    int after = 0, empty = 0, both = 0;
    for (int i = 0; i < count; i++) {
        const bool below = value_of(s, &all[i], "min")<0, above = value_of(s, &all[i], "max")> 0;
        after += is_behind(&all[i]);
        empty += is_behind(&all[i]) && !below;
        both += !is_behind(&all[i]) && below && above;
    }
    name_zeros(s, all, count);
    ech__tell_let(s, "after", "integer", "%d", after);
    ech__tell_let(s, "empty", "integer", "%d", empty);
    ech__tell_let(s, "both", "integer", "%d", both);
    ech__tell_let(s, "others", "integer", "%d", count - after);
    ech__tell_ask(s, "Which side is empty?");
    ech__tell_say(s,
                  after && empty == after
                      ? "Behind all {after} ReLUs the negative side: nothing lies below zero, and "
                        "{fewest} to {most} of the values are zero."
                      : "Behind {empty} of {after} ReLUs the negative side is empty.");
    ech__tell_say(
        s, "Of the {others} others, the input among them, {both} have values on both sides.");
    ech__tell_let(s, "signed_steps", "integer", "127");
    ech__tell_let(s, "unsigned_steps", "integer", "255");
    if (empty)
        ech__tell_say(s,
                      "Where it is empty an s8 has {signed_steps} steps for the side that is used, "
                      "and a u8 {unsigned_steps}: so u8 behind a ReLU and s8 elsewhere.");
}

static void tell(ech__sheet *s)
{
    seen all[MOST_SEEN];
    const int count = list_seen(s, all);
    tell_table(s, all, count);
    if (count)
        tell_plot(s, all, count);
    answer_ranges(s, all, count);
    answer_empty(s, all, count);
}

const ech__study_card ech__study_activation_histograms = {
    .id = "activation-histograms",
    .group = 'E',
    .place = 3,
    .title = "How activations are spread",
    .about =
        "What flows between the layers of the trained network on training images, before and after "
        "each ReLU.",
    .params = params,
    .quick_seconds = 4,
    .full_seconds = 10,
    .runs = runs,
    .tell = tell};
