/* What of an epoch is communication: as measured, and as people estimate it from two run times. */
#include "lab/epochs.h"
#include "lab/shared.h"

static const ech__lab_param params[] = {ECH__LAB_EPOCHS_PARAMS, {0}};

static void runs(ech__lab_runs *lab)
{
    ech__lab_epochs(lab);
}

/* Of every run, seconds of the second epoch on rank 0: t_ all steps, x_ not computing because of the exchange, w_
 * of it waiting for a rank that is late, k_ the rest of it, c_ computing; est_ what T_N - T_1/N takes for
 * communication, gap_ how far that is from x_. */
static void name_run(ech__sheet *s, int64_t b, int64_t n)
{
    const ech__lab_id run = ech__epoch_run(b, n), one = ech__epoch_run(b, 1);
    ech__tell_let(s, ech__lab_name("t_%s", run.s).s, "seconds", "total[%s time_s]", run.s);
    if (n == 1) {
        ech__tell_let(s, ech__lab_name("c_%s", run.s).s, "seconds", "t_%s", run.s);
        ech__tell_let(s, ech__lab_name("k_%s", run.s).s, "seconds", "0");
        ech__tell_let(s, ech__lab_name("w_%s", run.s).s, "seconds", "0");
        return;
    }
    ech__tell_let(s, ech__lab_name("k_%s", run.s).s, "seconds", "total[%s comm_exposed_s]", run.s);
    ech__tell_let(s, ech__lab_name("w_%s", run.s).s, "seconds", "total[%s wait_s]", run.s);
    ech__tell_let(s, ech__lab_name("x_%s", run.s).s, "seconds", "k_%s + w_%s", run.s, run.s);
    ech__tell_let(s, ech__lab_name("c_%s", run.s).s, "seconds", "t_%s - x_%s", run.s, run.s);
    ech__tell_let(s, ech__lab_name("xs_%s", run.s).s, "percent1", "x_%s / t_%s", run.s, run.s);
    ech__tell_let(s, ech__lab_name("est_%s", run.s).s, "seconds", "t_%s - t_%s / %" PRId64, run.s,
                  one.s, n);
    ech__tell_let(s, ech__lab_name("gap_%s", run.s).s, "seconds", "est_%s - x_%s", run.s, run.s);
    ech__tell_let(s, ech__lab_name("slow_%s", run.s).s, "percent0", "c_%s * %" PRId64 " / t_%s - 1",
                  run.s, n, one.s);
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
    ech__tell_plain(s, "t_%s", run.s);
    if (n == 1) {
        ech__tell_plain(s, "t_%s", run.s);
        for (int k = 0; k < 5; k++)
            ech__tell_none(s);
        return;
    }
    ech__tell_plain(s, "c_%s", run.s);
    ech__tell_cell(s, "k_%s", run.s);
    ech__tell_plain(s, "w_%s", run.s);
    ech__tell_plain(s, "xs_%s", run.s);
    ech__tell_cell(s, "est_%s", run.s);
    ech__tell_cell(s, "gap_%s", run.s);
}

static void tell_table(ech__sheet *s)
{
    ech__tell_table(
        s, "Compute and communication of the second epoch",
        "Of rank 0, in sum over the steps; the batch is that of a device. Exposed: bytes are on "
        "their way and it does nothing else. Wait: another rank is late. Of T_N: both. Estimate: "
        "T_N - T_1/N. Difference: estimate - exposed - wait.");
    ech__tell_column(s, "batch", "integer");
    ech__tell_column(s, "devices", "integer");
    ech__tell_column(s, "T_N", "seconds");
    ech__tell_column(s, "compute", "seconds");
    ech__tell_column(s, "exposed", "seconds");
    ech__tell_column(s, "wait", "seconds");
    ech__tell_column(s, "of T_N", "percent1");
    ech__tell_column(s, "estimate", "seconds");
    ech__tell_column(s, "difference", "seconds");
    for (size_t k = 0; k < ECH__EPOCH_BATCHES; k++) {
        for (size_t i = 0; i < ech__tell_devices(s); i++)
            tell_row(s, ech__tell_batch(s, k), ech__tell_device(s, i));
    }
}

/* The bars of one part, by the first letter of its figures. */
static void tell_part(ech__sheet *s, const char *name, char figure)
{
    ech__tell_series(s, "%s", name);
    for (size_t k = 0; k < ECH__EPOCH_BATCHES; k++) {
        for (size_t i = 0; i < ech__tell_devices(s); i++)
            ech__tell_bar(s, "%c_%s", figure,
                          ech__epoch_run(ech__tell_batch(s, k), ech__tell_device(s, i)).s);
    }
}

static void tell_plot(ech__sheet *s)
{
    ech__tell_plot(s, "stacked", "Where the second epoch goes, by batch and devices",
                   "Rank 0. Wait: for a rank that is ready later.");
    ech__tell_y(s, (ech__tell_axis){.label = "time", .unit = "s"});
    ech__tell_bar_format(s, "seconds");
    for (size_t k = 0; k < ECH__EPOCH_BATCHES; k++) {
        for (size_t i = 0; i < ech__tell_devices(s); i++)
            ech__tell_category(s, "%" PRId64 " on %" PRId64, ech__tell_batch(s, k),
                               ech__tell_device(s, i));
    }
    tell_part(s, "compute", 'c');
    tell_part(s, "communication", 'k');
    tell_part(s, "wait", 'w');
}

/* ---- answers ---- */

static void answer_split(ech__sheet *s)
{
    const int64_t real = ech__tell_most_real(s), n = real > 1 ? real : ech__tell_most(s);
    ech__tell_ask(s, "How does an epoch divide into computing and communication?");
    ech__tell_say_network(s);
    if (ech__tell_alone(s))
        return;
    for (size_t k = 0; k < ECH__EPOCH_BATCHES; k++) {
        const ech__lab_id run = ech__epoch_run(ech__tell_batch(s, k), n);
        ech__tell_sayf(s,
                       "On {n%" PRId64 "} devices with {b%" PRId64
                       "} images each, {x_%s} of {t_%s} are communication that is not hidden, "
                       "{xs_%s} ({xs_%s.low} to {xs_%s.high}); {w_%s} of that is waiting for a "
                       "later rank.",
                       n, ech__tell_batch(s, k), run.s, run.s, run.s, run.s, run.s, run.s);
    }
    const size_t last = ECH__EPOCH_BATCHES - 1;
    ech__tell_let(s, "fall", "percent1", "xs_%s - xs_%s",
                  ech__epoch_run(ech__tell_batch(s, 0), n).s,
                  ech__epoch_run(ech__tell_batch(s, last), n).s);
    const int side = ech__tell_side(s, "fall", 0);
    ech__tell_say(s,
                  side > 0 ? "The share falls as the batch grows: as many bytes are sent for more "
                             "computing."
                  : side < 0 ? "The share does not fall as the batch grows, against the rule that "
                               "more computing hides the same bytes."
                             : "Between the smallest and the largest batch the share does not "
                               "differ beyond the noise.");
    ech__tell_say_emulated(s);
}

/* The two figures for one run, and what the difference between them is. */
static int say_gap(ech__sheet *s, int64_t b, int64_t n)
{
    const ech__lab_id run = ech__epoch_run(b, n);
    const int side = ech__tell_side(s, ech__lab_name("gap_%s", run.s).s, 0);
    ech__tell_sayf(s,
                   "At {b%" PRId64 "} images a device the estimate is {est_%s} ({est_%s.low} to "
                   "{est_%s.high}) and {x_%s} were measured: %s.",
                   b, run.s, run.s, run.s, run.s,
                   side > 0   ? "the estimate is too high"
                   : side < 0 ? "the estimate is too low"
                              : "no difference beyond the noise");
    return side;
}

static void answer_estimate(ech__sheet *s)
{
    const int64_t real = ech__tell_most_real(s), n = real > 1 ? real : ech__tell_most(s);
    ech__tell_ask(s, "Does T_N - T_1/N give the same?");
    if (ech__tell_alone(s))
        return;
    bool apart = false;
    ech__tell_sayf(s, "On {n%" PRId64 "} devices:", n);
    for (size_t k = 0; k < ECH__EPOCH_BATCHES; k++)
        apart |= say_gap(s, ech__tell_batch(s, k), n) != 0;
    ech__tell_paragraph(s);
    const ech__lab_id first = ech__epoch_run(ech__tell_batch(s, 0), n);
    ech__tell_say(s, "The estimate takes everything for communication that is not an N-th of one "
                     "device's time. What it has too much or too little is computing that takes "
                     "more or less than that N-th.");
    ech__tell_sayf(
        s,
        "At the smallest batch the computing of all devices in sum differs by {slow_%s} from "
        "that of one device ({slow_%s.low} to {slow_%s.high}).",
        first.s, first.s, first.s);
    ech__tell_say(s, apart ? "So the estimate cannot stand for the measured time here."
                           : "Here the two cannot be told apart.");
}

static void tell(ech__sheet *s)
{
    name_figures(s);
    tell_table(s);
    tell_plot(s);
    answer_split(s);
    answer_estimate(s);
}

const ech__study_card ech__study_comm_split = {
    .id = "comm-split",
    .group = 'D',
    .place = 3,
    .title = "Compute and communication of an epoch, two ways",
    .about =
        "The runs of epoch-scaling: communication that was not hidden, as measured in every step, "
        "beside the estimate T_N - T_1/N from whole epochs.",
    .params = params,
    .quick_seconds = 2,
    .full_seconds = 2,
    .runs = runs,
    .tell = tell};
