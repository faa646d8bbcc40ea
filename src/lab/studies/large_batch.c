/* What a very large batch costs in accuracy at equal epochs, and how much of it two remedies bring back. */
#include "lab/epochs.h"
#include "lab/shared.h"

#include <stdio.h>

static const ech__lab_param params[] = {
    {"images", 10000, 50000, 1, 50000, "training images of an epoch"},
    {"small", 32, 128, 1, 65536, "images of a step over all devices, small"},
    {"large", 256, 8192, 1, 65536, "images of a step over all devices, large"},
    {"epochs", 6, 5, 1, 200, "epochs of each training"},
    {"seeds", 3, 3, 1, 30, "trainings of each kind, each with a seed of its own"},
    {0}};

/* The quick lab trains the small convolutional network: it learns something in seconds. */
static const struct {
    const char *name, *text, *more;
    bool large;
} arms[] = {
    {"small", "small batch", "", false},
    {"large", "large batch", "", true},
    {"scaled", "large, rate scaled", " --lr-scale-base %", true},
    {"warm", "large, scaled, warm-up", " --lr-scale-base % --lr-warmup-epochs 1", true},
};
enum { ARMS = sizeof arms / sizeof *arms, SMALL = 0, LARGE = 1, SCALED = 2, WARM = 3 };

/* ---- runs ---- */

static ech__lab_id run_of(int arm, int64_t seed)
{
    return ech__lab_name("%s%" PRId64, arms[arm].name, seed);
}

/* Devices that have a core each; a large batch is cut so that each micro-step has at most so many images. */
enum { MOST_AT_ONCE = 1024 };

static void ask(ech__lab_runs *lab, int arm, int64_t seed)
{
    const int64_t batch = ech__lab_param_of(lab, arms[arm].large ? "large" : "small"),
                  devices = ech__lab_cores(lab) > 1 ? 2 : 1;
    const int64_t accum = (batch / devices + MOST_AT_ONCE - 1) / MOST_AT_ONCE;
    char more[128] = "";
    size_t used = 0;
    for (const char *p = arms[arm].more; *p && used < sizeof more - 24; p++)
        used += *p == '%' ? (size_t)snprintf(more + used, sizeof more - used, "%" PRId64,
                                             ech__lab_param_of(lab, "small"))
                          : (size_t)snprintf(more + used, sizeof more - used, "%c", *p);
    ech__lab_run(lab, run_of(arm, seed).s,
                 "train --model %s @images --limit %" PRId64 " --epochs %" PRId64
                 " --global-batch %" PRId64 " --devices %" PRId64 " --accum %" PRId64
                 " --lr %s " ECH__EPOCH_SGD " --seed %" PRId64 "%s",
                 ech__lab_quick(lab) ? "lenet" : "resnet18", ech__lab_param_of(lab, "images"),
                 ech__lab_param_of(lab, "epochs"), batch, devices, accum,
                 ech__lab_quick(lab) ? "0.01" : "0.1", seed, more);
}

static void runs(ech__lab_runs *lab)
{
    for (int64_t seed = 0; seed < ech__lab_param_of(lab, "seeds"); seed++) {
        for (int arm = 0; arm < ARMS; arm++)
            ask(lab, arm, seed);
    }
}

/* ---- figures ---- */

/* The mean over the seeds of a field of the record. */
static void name_mean(ech__sheet *s, const char *name, const char *format, int arm,
                      const char *path)
{
    char expr[ECH__LAB_EXPR_MAX] = "";
    size_t used = 0;
    for (int64_t seed = 0; seed < ech__tell_param(s, "seeds") && used < sizeof expr; seed++)
        used += (size_t)snprintf(expr + used, sizeof expr - used, "%s[%s %s]", seed ? ", " : "",
                                 run_of(arm, seed).s, path);
    ech__tell_let(s, name, format, "average(%s)", expr);
}

/* Points of accuracy that one kind has more than another, each seed against itself: they start from the same
 * weights. */
static void name_difference(ech__sheet *s, const char *name, int arm, int other)
{
    char expr[ECH__LAB_EXPR_MAX] = "";
    size_t used = 0;
    for (int64_t seed = 0; seed < ech__tell_param(s, "seeds") && used < sizeof expr; seed++)
        used += (size_t)snprintf(expr + used, sizeof expr - used,
                                 "%s[%s summary.accuracy] - [%s summary.accuracy]",
                                 seed ? ", " : "", run_of(arm, seed).s, run_of(other, seed).s);
    ech__tell_let(s, name, "fixed1", "100 * average(%s)", expr);
}

static void name_arm(ech__sheet *s, int arm)
{
    const int64_t epochs = ech__tell_param(s, "epochs");
    const char *name = arms[arm].name;
    for (int64_t e = 0; e < epochs; e++) {
        const ech__lab_id loss = ech__lab_name("summary.epochs.%" PRId64 ".loss", e),
                          accuracy = ech__lab_name("summary.epochs.%" PRId64 ".accuracy", e);
        name_mean(s, ech__lab_name("loss_%s_%" PRId64, name, e).s, "fixed3", arm, loss.s);
        name_mean(s, ech__lab_name("acc_%s_%" PRId64, name, e).s, "percent1", arm, accuracy.s);
    }
    ech__tell_let(s, ech__lab_name("acc_%s", name).s, "percent1", "acc_%s_%" PRId64, name,
                  epochs - 1);
    ech__tell_let(s, ech__lab_name("loss_%s", name).s, "fixed3", "loss_%s_%" PRId64, name,
                  epochs - 1);
    ech__tell_let(s, ech__lab_name("lr_%s", name).s, "general", "[%s config.lr_largest]",
                  run_of(arm, 0).s);
    ech__tell_let(s, ech__lab_name("steps_%s", name).s, "integer", "[%s config.steps]",
                  run_of(arm, 0).s);
}

static void name_figures(ech__sheet *s)
{
    for (size_t i = 0; params[i].name; i++)
        ech__tell_let(s, params[i].name, "integer", "%" PRId64, ech__tell_param(s, params[i].name));
    for (int arm = 0; arm < ARMS; arm++)
        name_arm(s, arm);
    name_difference(s, "lost", SMALL, LARGE);
    name_difference(s, "more", WARM, SCALED);
    for (int arm = SCALED; arm < ARMS; arm++) {
        const char *name = arms[arm].name;
        name_difference(s, ech__lab_name("gain_%s", name).s, arm, LARGE);
        ech__tell_let(s, ech__lab_name("back_%s", name).s, "percent0", "gain_%s / lost", name);
    }
}

/* ---- tables and plots ---- */

static void tell_end_table(ech__sheet *s)
{
    ech__tell_table(s, "After the last epoch",
                    "Means over the seeds; intervals are Student's, from how the seeds differ.");
    ech__tell_column(s, "training", "text");
    ech__tell_column(s, "images a step", "integer");
    ech__tell_column(s, "steps", "integer");
    ech__tell_column(s, "largest rate", "general");
    ech__tell_column(s, "training loss", "fixed3");
    ech__tell_column(s, "test accuracy", "percent1");
    ech__tell_column(s, "brought back", "percent0");
    for (int arm = 0; arm < ARMS; arm++) {
        ech__tell_row(s);
        ech__tell_words(s, "%s", arms[arm].text);
        ech__tell_plain(s, "%s", arms[arm].large ? "large" : "small");
        ech__tell_plain(s, "steps_%s", arms[arm].name);
        ech__tell_plain(s, "lr_%s", arms[arm].name);
        ech__tell_cell(s, "loss_%s", arms[arm].name);
        ech__tell_cell(s, "acc_%s", arms[arm].name);
        if (arm >= SCALED)
            ech__tell_plain(s, "back_%s", arms[arm].name);
        else
            ech__tell_none(s);
    }
}

static void tell_epoch_table(ech__sheet *s)
{
    ech__tell_table(s, "By epoch: training loss and test accuracy", NULL);
    ech__tell_column(s, "epoch", "integer");
    for (int arm = 0; arm < ARMS; arm++) {
        ech__tell_column(s, ech__lab_name("loss-%s", arms[arm].name).s, "fixed3");
        ech__tell_column(s, ech__lab_name("accuracy-%s", arms[arm].name).s, "percent1");
    }
    for (int64_t e = 0; e < ech__tell_param(s, "epochs"); e++) {
        ech__tell_row(s);
        ech__tell_plain(s, "%" PRId64, e + 1);
        for (int arm = 0; arm < ARMS; arm++) {
            ech__tell_plain(s, "loss_%s_%" PRId64, arms[arm].name, e);
            ech__tell_plain(s, "acc_%s_%" PRId64, arms[arm].name, e);
        }
    }
}

static void tell_plot(ech__sheet *s)
{
    ech__tell_plot(s, "lines", "Test accuracy by epoch", "Means over the seeds.");
    ech__tell_x(s, (ech__tell_axis){.label = "epoch"});
    ech__tell_y(s, (ech__tell_axis){.label = "test accuracy", .unit = "%"});
    for (int arm = 0; arm < ARMS; arm++) {
        ech__tell_series(s, "%s", arms[arm].text);
        for (int64_t e = 0; e < ech__tell_param(s, "epochs"); e++)
            ech__tell_point(s, (double)(e + 1), "100 * acc_%s_%" PRId64, arms[arm].name, e);
    }
    if (ech__tell_quick(s) || !ech__tell_real_images(s))
        return;
    static const double published[] = {14.7, 13.5, 28.7, 25.1, 29.0};
    ech__tell_series(s, "4 A40 x 2048, no remedy, published");
    for (int e = 0; e < 5; e++)
        ech__tell_point(s, e + 1, "%g", published[e]);
}

/* ---- answers ---- */

static void answer_cost(ech__sheet *s)
{
    ech__tell_ask(s, "What does a very large batch cost at equal epochs?");
    ech__tell_sayf(
        s,
        "%s on {images} images of %s, {epochs} epochs, {seeds} %s each. With {small} "
        "images a step, {steps_small} steps end at a test accuracy of {acc_small} and a "
        "loss of {loss_small}; with {large}, {steps_large} steps at the same learning rate "
        "end at {acc_large} and {loss_large}.",
        ech__tell_quick(s) ? "The small convolutional network (lenet)" : "ResNet-18",
        ech__tell_real_images(s) ? "CIFAR-10" : "a synthetic set",
        ech__tell_param(s, "seeds") > 1 ? "seeds" : "seed");
    const int side = ech__tell_side(s, "lost", 0);
    ech__tell_say(
        s, side > 0 ? "That loses {lost} points of accuracy ({lost.low} to {lost.high}): "
                      "every image was seen as often, but the steps were fewer."
           : side < 0
               ? "The large batch is the better one, {lost} points are lost by it ({lost.low} to "
                 "{lost.high}), against what large batches are known for."
               : "The difference, {lost} points, is not beyond what seeds differ by.");
    if (ech__tell_quick(s))
        return;
    ech__tell_let(s, "published", "percent1", "0.290");
    ech__tell_let(s, "published_epochs", "integer", "5");
    ech__tell_say(s, "Published for ResNet-18 on A40 GPUs without a remedy: {published} after "
                     "{published_epochs} epochs of very large steps.");
}

static void say_remedy(ech__sheet *s, int arm)
{
    const char *name = arms[arm].name;
    const ech__lab_id gain = ech__lab_name("gain_%s", name);
    ech__tell_sayf(
        s,
        "The training ends at {acc_%s}, {%s} points from the large batch without a remedy "
        "({%s.low} to {%s.high}).",
        name, gain.s, gain.s, gain.s);
    const int side = ech__tell_side(s, gain.s, 0);
    if (side > 0 && ech__tell_side(s, "lost", 0) > 0)
        ech__tell_sayf(s, "That brings {back_%s} of what was lost back.", name);
    else
        ech__tell_say(s, side > 0
                             ? "It helps, but what the large batch lost is too uncertain to be "
                               "divided by."
                         : side < 0 ? "So here it makes matters worse."
                                    : "That is not beyond what seeds differ by: no effect can be "
                                      "claimed.");
}

static void answer_remedies(ech__sheet *s)
{
    ech__tell_ask(s, "How much does the linear scaling of the learning rate bring back?");
    ech__tell_say(s, "The rate goes from {lr_large} to {lr_scaled}, in proportion to the batch.");
    say_remedy(s, SCALED);
    ech__tell_ask(s, "And a gradual warm-up on top of it?");
    ech__tell_say(
        s, "The rate rises step by step over the first epoch, from {lr_small} to {lr_warm}.");
    say_remedy(s, WARM);
    const int side = ech__tell_side(s, "more", 0);
    ech__tell_say(s, side > 0 ? "It is {more} points better than scaling alone ({more.low} to "
                                "{more.high})."
                     : side < 0
                         ? "It is worse than scaling alone, by {more} points ({more.low} to "
                           "{more.high})."
                         : "Against scaling alone, {more} points, no difference can be claimed.");
}

static void tell(ech__sheet *s)
{
    name_figures(s);
    tell_end_table(s);
    tell_epoch_table(s);
    tell_plot(s);
    answer_cost(s);
    answer_remedies(s);
}

const ech__study_card ech__study_large_batch = {
    .id = "large-batch",
    .group = 'D',
    .place = 5,
    .title = "Large batches at equal epochs, and two remedies",
    .about =
        "A small against a very large global batch for the same number of epochs; then the large "
        "one with the learning rate scaled in proportion, and with a gradual warm-up too.",
    .params = params,
    .quick_seconds = 38,
    .full_seconds = 32000,
    .runs = runs,
    .tell = tell};
