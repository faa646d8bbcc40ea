/* How the time of an epoch falls with devices when each keeps its batch. */
#include "lab/epochs.h"
#include "lab/shared.h"

static const ech__lab_param params[] = {ECH__LAB_EPOCHS_PARAMS, {0}};

static void runs(ech__lab_runs *lab)
{
    ech__lab_epochs(lab);
}

/* ---- figures ---- */

/* Of every run: with_, only_ (the epoch with data loading, and its steps alone), s_ (speedup of the steps against one
 * device), e_ (its share of the devices), step_, p_ (predicted time of the steps). */
static void name_run(ech__sheet *s, int64_t b, int64_t n)
{
    const ech__lab_id run = ech__epoch_run(b, n), one = ech__epoch_run(b, 1);
    ech__tell_let(s, ech__lab_name("with_%s", run.s).s, "seconds", "[%s summary.epochs.1.time_s]",
                  run.s);
    ech__tell_let(s, ech__lab_name("only_%s", run.s).s, "seconds",
                  "[%s summary.epochs.1.compute_s]", run.s);
    ech__tell_let(s, ech__lab_name("s_%s", run.s).s, "fixed2", "only_%s / only_%s", one.s, run.s);
    ech__tell_let(s, ech__lab_name("e_%s", run.s).s, "percent0", "s_%s / %" PRId64, run.s, n);
    ech__tell_let(s, ech__lab_name("step_%s", run.s).s, "seconds", "mean[%s time_s]", run.s);
    ech__tell_let(s, ech__lab_name("p_%s", run.s).s, "seconds",
                  "steps_%s * [plan_b%" PRId64 " rows.devices=%" PRId64 ".step_time_s]", run.s, b,
                  n);
}

static void name_figures(ech__sheet *s)
{
    ech__tell_epochs(s);
    for (size_t k = 0; k < ECH__EPOCH_BATCHES; k++) {
        for (size_t i = 0; i < ech__tell_devices(s); i++)
            name_run(s, ech__tell_batch(s, k), ech__tell_device(s, i));
    }
}

/* ---- table and plot ---- */

static void tell_row(ech__sheet *s, int64_t b, int64_t n)
{
    const ech__lab_id run = ech__epoch_run(b, n);
    ech__tell_row(s);
    ech__tell_plain(s, "%" PRId64, b);
    ech__tell_plain(s, "%" PRId64, n);
    ech__tell_plain(s, "%" PRId64, b * n);
    ech__tell_plain(s, "steps_%s", run.s);
    ech__tell_plain(s, "with_%s", run.s);
    ech__tell_cell(s, "only_%s", run.s);
    if (n == 1) {
        ech__tell_plain(s, "1");
        ech__tell_plain(s, "1");
    } else {
        ech__tell_cell(s, "s_%s", run.s);
        ech__tell_plain(s, "e_%s", run.s);
    }
    ech__tell_plain(s, "p_%s", run.s);
}

static void tell_table(ech__sheet *s)
{
    ech__tell_table(s, "The second epoch by devices",
                    "The batch is that of a device. Speedup and efficiency are those of computing "
                    "alone, the exchange between "
                    "devices included, against one device with the same batch.");
    ech__tell_column(s, "batch", "integer");
    ech__tell_column(s, "devices", "integer");
    ech__tell_column(s, "images a step", "integer");
    ech__tell_column(s, "steps", "integer");
    ech__tell_column(s, "with data loading", "seconds");
    ech__tell_column(s, "compute only", "seconds");
    ech__tell_column(s, "speedup", "fixed2");
    ech__tell_column(s, "efficiency", "percent0");
    ech__tell_column(s, "compute only, plan", "seconds");
    for (size_t k = 0; k < ECH__EPOCH_BATCHES; k++) {
        for (size_t i = 0; i < ech__tell_devices(s); i++)
            tell_row(s, ech__tell_batch(s, k), ech__tell_device(s, i));
    }
}

static void tell_plot(ech__sheet *s)
{
    ech__tell_plot(s, "speedup", "Speedup of an epoch, the batch of a device fixed",
                   "Dashed: what echelon plan predicts from one device.");
    ech__tell_scaling_axes(s);
    for (size_t k = 0; k < ECH__EPOCH_BATCHES; k++) {
        ech__tell_series(s, "batch %" PRId64, ech__tell_batch(s, k));
        for (size_t i = 0; i < ech__tell_devices(s); i++) {
            const int64_t n = ech__tell_device(s, i);
            ech__tell_point(s, (double)n, "s_%s", ech__epoch_run(ech__tell_batch(s, k), n).s);
        }
    }
    ech__tell_series(s, "predicted, batch %" PRId64, ech__tell_batch(s, 0));
    for (size_t i = 0; i < ech__tell_devices(s); i++) {
        const int64_t n = ech__tell_device(s, i);
        ech__tell_point(s, (double)n, "p_%s / p_%s", ech__epoch_run(ech__tell_batch(s, 0), 1).s,
                        ech__epoch_run(ech__tell_batch(s, 0), n).s);
    }
}

/* ---- answers ---- */

/* One sentence for a batch on the most devices that have a core each, and what it says of proportion. */
static void say_speedup(ech__sheet *s, int64_t b, int64_t n)
{
    const ech__lab_id run = ech__epoch_run(b, n), one = ech__epoch_run(b, 1),
                      speedup = ech__lab_name("s_%s", run.s);
    ech__tell_sayf(s,
                   "With {b%" PRId64 "} images a device, {n%" PRId64
                   "} devices compute {only_%s} instead of {only_%s}, which is {%s} times as fast "
                   "({%s.low} to {%s.high}): %s.",
                   b, n, run.s, one.s, speedup.s, speedup.s, speedup.s,
                   ech__tell_side(s, speedup.s, (double)n) < 0 ? "less than in proportion"
                   : ech__tell_side(s, speedup.s, (double)n) > 0
                       ? "more than in proportion"
                       : "in proportion, as far as the noise lets one say");
}

static void answer_speedup(ech__sheet *s)
{
    const int64_t real = ech__tell_most_real(s), most = ech__tell_most(s);
    ech__tell_ask(s, "How much shorter does an epoch become with devices?");
    ech__tell_say_network(s);
    if (ech__tell_alone(s))
        return;
    const int64_t shown = real > 1 ? real : most;
    for (size_t k = 0; k < ECH__EPOCH_BATCHES; k++)
        say_speedup(s, ech__tell_batch(s, k), shown);
    const ech__lab_id run = ech__epoch_run(ech__tell_batch(s, 0), shown);
    ech__tell_let(s, "error", "percent0", "p_%s / only_%s - 1", run.s, run.s);
    ech__tell_sayf(s, "For the first of these the plan said {p_%s}, an error of {error}.", run.s);
    if (most == shown)
        return;
    ech__tell_paragraph(s);
    const ech__lab_id further = ech__epoch_run(ech__tell_batch(s, 0), most);
    ech__tell_let(s, "further", "fixed2", "only_%s / only_%s", run.s, further.s);
    ech__tell_sayf(s,
                   "From {n%" PRId64 "} to {n%" PRId64 "} devices it is {further} times as fast "
                   "at the smallest batch ({further.low} to {further.high}).",
                   shown, most);
    ech__tell_say_emulated(s);
}

static void answer_kind(ech__sheet *s)
{
    const int64_t b = ech__tell_batch(s, 0), most = ech__tell_most(s);
    const ech__lab_id run = ech__epoch_run(b, most), one = ech__epoch_run(b, 1);
    ech__tell_ask(s, "Is this strong or weak scaling?");
    if (ech__tell_alone(s))
        return;
    ech__tell_sayf(s,
                   "An epoch is strong scaling: it has {images} images on any number of devices, "
                   "and its steps become fewer, {steps_%s} on one device and {steps_%s} on "
                   "{n%" PRId64 "}.",
                   one.s, run.s, most);
    ech__tell_let(s, "together", "integer", "b%" PRId64 " * n%" PRId64, b, most);
    ech__tell_let(s, "stretch", "fixed2", "step_%s / step_%s", run.s, one.s);
    ech__tell_sayf(s,
                   "A single step is weak scaling: every device keeps {b%" PRId64
                   "} images, so that a step has {together} of them, and it takes {stretch} times "
                   "as long ({stretch.low} to {stretch.high}).",
                   b);
    ech__tell_say(s, "The optimizer sees a larger batch on more devices, so the epochs are equally "
                     "long in images, but they are not the same training.");
}

static void answer_weak(ech__sheet *s)
{
    const int64_t b = ech__tell_batch(s, 0), most = ech__tell_most(s);
    const ech__lab_id run = ech__epoch_run(b, most), one = ech__epoch_run(b, 1);
    ech__tell_ask(s, "What would weak scaling show?");
    if (ech__tell_alone(s))
        return;
    ech__tell_let(s, "grown", "integer", "images * %" PRId64, most);
    ech__tell_let(s, "weak_t", "seconds", "steps_%s * step_%s", one.s, run.s);
    ech__tell_let(s, "weak_1", "seconds", "steps_%s * step_%s", one.s, one.s);
    ech__tell_let(s, "weak_e", "percent0", "step_%s / step_%s", one.s, run.s);
    ech__tell_let(s, "weak_s", "fixed2", "%" PRId64 " * weak_e", most);
    ech__tell_sayf(s,
                   "With images in proportion to devices, {grown} on {n%" PRId64
                   "}, an epoch would have the {steps_%s} steps of one device. From the steps "
                   "measured it would take {weak_t} where one device takes {weak_1} for its own "
                   "part: {weak_e} efficient ({weak_e.low} to {weak_e.high}), a scaled speedup of "
                   "{weak_s}.",
                   most, one.s);
    ech__tell_let(s, "apart", "percent0", "weak_e - e_%s", run.s);
    ech__tell_sayf(s,
                   ech__tell_side(s, "apart", 0)
                       ? "The strong scaling of the epoch, {e_%s} efficient, differs from it by "
                         "{apart}."
                       : "That is what the epoch shows too, {e_%s}: where each device keeps its "
                         "batch, fewer equal steps are the whole difference.",
                   run.s);
}

static void tell(ech__sheet *s)
{
    name_figures(s);
    tell_table(s);
    tell_plot(s);
    answer_speedup(s);
    answer_kind(s);
    answer_weak(s);
}

const ech__study_card ech__study_epoch_scaling = {
    .id = "epoch-scaling",
    .group = 'D',
    .place = 2,
    .title = "An epoch on one, two and four devices",
    .about =
        "The same epochs under DDP, with 32, 128 and 512 images a device: the time of the second "
        "epoch and its speedup, beside what the plan predicts.",
    .params = params,
    .quick_seconds = 35,
    .full_seconds = 12000,
    .runs = runs,
    .tell = tell};
