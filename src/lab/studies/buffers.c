/* What DDP sends besides gradients: the buffers of batch norms, and their statistics where they are synchronised. */
#include "lab/epochs.h"
#include "lab/shared.h"

#include <string.h>

static const ech__lab_param params[] = {
    {"images", 2048, 50000, 1, 50000, "training images of an epoch"},
    {"batch", 32, 128, 1, 65536, "images a device takes in a step"},
    {"few", 4, 8, 1, 65536, "the same where they are few"},
    {0}};

static const struct {
    const char *name, *text, *more;
} ways[] = {
    {"cast", "broadcast", ""},
    {"left", "left alone", " --no-broadcast-buffers"},
    {"sync", "synchronised, broadcast", " --sync-bn"},
    {"both", "synchronised, left alone", " --sync-bn --no-broadcast-buffers"},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* Batches of a device: the param of each. */
static const char *const sizes[] = {"batch", "few"};

static ech__lab_id run_of(int way, int size)
{
    return ech__lab_name("%s_%s", ways[way].name, sizes[size]);
}

static void runs(ech__lab_runs *lab)
{
    for (int size = 0; size < 2; size++) {
        for (int way = 0; way < WAYS; way++)
            ech__lab_run(
                lab, run_of(way, size).s,
                "train --model %s @images --limit %" PRId64
                " --epochs 2 --devices 2 --batch-size %" PRId64 " --lr %s " ECH__EPOCH_SGD "%s",
                ech__epoch_model(ech__lab_quick(lab)), ech__lab_param_of(lab, "images"),
                ech__lab_param_of(lab, sizes[size]), size ? "0.01" : "0.05", ways[way].more);
    }
}

/* ---- figures ---- */

static bool drifts(int way)
{
    return strstr(ways[way].more, "--no-broadcast-buffers") != NULL;
}

/* Of every run, by its name: t_, grad_, buf_, stat_, acc_, and drift_ of means and spread_ of variances where ranks
 * keep their own. */
static void name_run(ech__sheet *s, int way, int size)
{
    const ech__lab_id run = run_of(way, size);
    const int64_t images = ech__tell_param(s, "images"), tested = images < 10000 ? images : 10000;
    ech__tell_let(s, ech__lab_name("t_%s", run.s).s, "seconds", "steps[%s time_s]", run.s);
    ech__tell_let(s, ech__lab_name("grad_%s", run.s).s, "bytes",
                  "[%s summary.communication.gradient_bytes]", run.s);
    ech__tell_let(s, ech__lab_name("buf_%s", run.s).s, "bytes",
                  "[%s summary.communication.buffer_bytes]", run.s);
    ech__tell_let(s, ech__lab_name("stat_%s", run.s).s, "bytes",
                  "[%s summary.communication.statistics_bytes]", run.s);
    ech__tell_let(s, ech__lab_name("acc_%s", run.s).s, "percent1",
                  "share([%s summary.accuracy] * %" PRId64 ", %" PRId64 ")", run.s, tested, tested);
    if (!drifts(way))
        return;
    ech__tell_let(s, ech__lab_name("drift_%s", run.s).s, "fixed3",
                  "[%s summary.epochs.1.statistics_drift.mean_rms]", run.s);
    ech__tell_let(s, ech__lab_name("far_%s", run.s).s, "fixed3",
                  "[%s summary.epochs.1.statistics_drift.mean_largest]", run.s);
    ech__tell_let(s, ech__lab_name("spread_%s", run.s).s, "percent1",
                  "[%s summary.epochs.1.statistics_drift.variance_rms]", run.s);
}

static void name_figures(ech__sheet *s)
{
    for (size_t i = 0; params[i].name; i++)
        ech__tell_let(s, params[i].name, "integer", "%" PRId64, ech__tell_param(s, params[i].name));
    ech__tell_let(s, "devices", "integer", "2");
    for (int size = 0; size < 2; size++) {
        for (int way = 0; way < WAYS; way++)
            name_run(s, way, size);
    }
}

/* ---- table and plot ---- */

static void tell_row(ech__sheet *s, int way, int size)
{
    const ech__lab_id run = run_of(way, size);
    ech__tell_row(s);
    ech__tell_plain(s, "%s", sizes[size]);
    ech__tell_words(s, "%s", ways[way].text);
    ech__tell_plain(s, "grad_%s", run.s);
    ech__tell_plain(s, "buf_%s", run.s);
    ech__tell_plain(s, "stat_%s", run.s);
    ech__tell_cell(s, "t_%s", run.s);
    if (drifts(way)) {
        ech__tell_plain(s, "drift_%s", run.s);
        ech__tell_plain(s, "spread_%s", run.s);
    } else {
        ech__tell_words(s, "none");
        ech__tell_words(s, "none");
    }
    ech__tell_cell(s, "acc_%s", run.s);
}

static void tell_table(ech__sheet *s)
{
    ech__tell_table(
        s, "Batch norms on two devices, two epochs",
        "Bytes a step and rank. Drift: running statistics of a rank against the mean over "
        "ranks at the end, root of the mean square over channels; means in standard "
        "deviations of their channel, variances relative.");
    ech__tell_column(s, "batch a device", "integer");
    ech__tell_column(s, "running statistics", "text");
    ech__tell_column(s, "gradients", "bytes");
    ech__tell_column(s, "buffers", "bytes");
    ech__tell_column(s, "statistics", "bytes");
    ech__tell_column(s, "time/step", "seconds");
    ech__tell_column(s, "drift of means", "fixed3");
    ech__tell_column(s, "of variances", "percent1");
    ech__tell_column(s, "test accuracy", "percent1");
    for (int size = 0; size < 2; size++) {
        for (int way = 0; way < WAYS; way++)
            tell_row(s, way, size);
    }
}

static void tell_plot(ech__sheet *s)
{
    ech__tell_plot(s, "bars", "What a step sends besides gradients",
                   "Bytes a rank, by how batch norms are treated.");
    ech__tell_y(s, (ech__tell_axis){.label = "bytes a step", .unit = "B"});
    ech__tell_bar_format(s, "bytes");
    for (int way = 0; way < WAYS; way++)
        ech__tell_category(s, "%s", ways[way].text);
    ech__tell_series(s, "buffers");
    for (int way = 0; way < WAYS; way++)
        ech__tell_bar(s, "buf_%s", run_of(way, 0).s);
    ech__tell_series(s, "statistics");
    for (int way = 0; way < WAYS; way++)
        ech__tell_bar(s, "stat_%s", run_of(way, 0).s);
}

/* ---- answers ---- */

static void answer_sent(ech__sheet *s)
{
    ech__tell_let(s, "buf_share", "percent1", "buf_cast_batch / grad_cast_batch");
    ech__tell_let(s, "stat_share", "percent1", "stat_sync_batch / grad_sync_batch");
    ech__tell_let(s, "cost", "percent1", "t_cast_batch / t_left_batch - 1");
    ech__tell_let(s, "cost_sync", "percent1", "t_both_batch / t_left_batch - 1");
    ech__tell_ask(s, "What does DDP send besides gradients?");
    ech__tell_say_network(s);
    ech__tell_say(
        s, "Every rank sends {grad_cast_batch} of gradients a step. The running means and "
           "variances of the batch norms are {buf_cast_batch} more, {buf_share} of that, from "
           "rank zero to all; synchronised batch norms exchange {stat_sync_batch}, "
           "{stat_share}, in the forward and the backward pass.");
    ech__tell_sayf(s,
                   "Without the broadcast a step takes {t_left_batch}; with it the time changes by "
                   "{cost} ({cost.low} to {cost.high})%s, with synchronised norms by {cost_sync} "
                   "({cost_sync.low} to {cost_sync.high})%s.",
                   ech__tell_side(s, "cost", 0) ? "" : ", which is within the noise",
                   ech__tell_side(s, "cost_sync", 0) ? "" : ", which is within the noise");
}

static void answer_drift(ech__sheet *s)
{
    const char *with = ech__tell_text(s, run_of(0, 0).s, "summary.params_sha256"),
               *without = ech__tell_text(s, run_of(1, 0).s, "summary.params_sha256");
    ech__tell_let(s, "more", "fixed1", "drift_left_few / drift_left_batch");
    ech__tell_let(s, "root", "fixed1", "sqrt(batch / few)");
    ech__tell_let(s, "less", "fixed3", "drift_both_batch");
    ech__tell_ask(s, "How far do running statistics drift apart without the broadcast?");
    ech__tell_say(s,
                  "After two epochs with {batch} images a device the running means of a rank are "
                  "{drift_left_batch} standard deviations of their channel away from the mean over "
                  "ranks, {far_left_batch} at most, and the variances {spread_left_batch}.");
    ech__tell_say(s,
                  "With {few} images a device it is {drift_left_few} and {spread_left_few}: {more} "
                  "times as far, where noise that falls with the root of the batch would say "
                  "{root}.");
    ech__tell_say(s, ech__tell_value(s, "drift_both_batch").value == 0
                         ? "With synchronised norms there is none: all ranks compute the same "
                           "statistics."
                         : "With synchronised norms {less} are left.");
    ech__tell_say(s,
                  *with && strcmp(with, without) == 0
                      ? "The trained parameters are the same bits with and without the broadcast: "
                        "running statistics are for evaluation alone."
                      : "The trained parameters differ with and without the broadcast.");
}

/* What synchronised statistics change at one batch, as a sentence that says when nothing can be claimed. */
static int say_difference(ech__sheet *s, const char *size)
{
    const ech__lab_id name = ech__lab_name("points_%s", size);
    ech__tell_let(s, name.s, "fixed1", "100 * (acc_sync_%s - acc_cast_%s)", size, size);
    const int side = ech__tell_side(s, name.s, 0);
    ech__tell_sayf(
        s,
        "With {%s} images a device, accuracy is {acc_cast_%s} with local statistics and "
        "{acc_sync_%s} with synchronised ones, {%s} points apart ({%s.low} to {%s.high}): "
        "%s.",
        size, size, size, name.s, name.s, name.s,
        side > 0   ? "synchronising helps"
        : side < 0 ? "synchronising is worse here"
                   : "no difference can be claimed");
    return side;
}

static void answer_local(ech__sheet *s)
{
    ech__tell_ask(s, "When is local BatchNorm good enough?");
    const int many = say_difference(s, "batch"), few = say_difference(s, "few");
    ech__tell_say(s,
                  many <= 0 && few > 0
                      ? "So local statistics are good enough at the larger of the two batches and "
                        "not at the smaller one."
                  : many <= 0 && few <= 0
                      ? "So local statistics were good enough at both batches in these two epochs; "
                        "whether fewer images would need more is not shown by them."
                      : "So local statistics were not good enough even at the larger batch.");
    ech__tell_say(s, "The intervals are those of the test images; another seed would move both.");
}

static void tell(ech__sheet *s)
{
    name_figures(s);
    tell_table(s);
    tell_plot(s);
    answer_sent(s);
    answer_drift(s);
    answer_local(s);
}

const ech__study_card ech__study_buffers = {
    .id = "buffers",
    .group = 'D',
    .place = 6,
    .title = "What DDP sends besides gradients: batch norms on two devices",
    .about =
        "Buffers of batch norms broadcast or left alone, statistics local or synchronised, with "
        "many and with few images a device.",
    .params = params,
    .quick_seconds = 20,
    .full_seconds = 15000,
    .runs = runs,
    .tell = tell};
