/* How much of the link the exchange of gradients uses, counted over every all-reduce of an epoch. */
#include "lab/epochs.h"
#include "lab/shared.h"

#include <stdio.h>

static const ech__lab_param params[] = {ECH__LAB_EPOCHS_PARAMS, {0}};

/* Sizes that bench comm goes through, each four times the one before. */
enum { SIZES = 6 };

static void runs(ech__lab_runs *lab)
{
    double bytes;
    ech__lab_epochs(lab);
    if (ech__lab_devices(lab) < 2)
        return;
    ech__lab_run(lab, "peak", "bench comm -n 2 --op allreduce --min 64K --max 64M --factor 4");
    if (ech__lab_known(lab, &bytes, "[%s summary.communication.gradient_bytes]",
                       ech__epoch_run(ech__lab_batch(lab, 0), ech__lab_device(lab, 1)).s))
        ech__lab_run(lab, "same", "bench comm -n 2 --op allreduce --min %.0f --max %.0f", bytes,
                     bytes);
}

/* ---- figures ---- */

/* The largest bus bandwidth that the link has shown at any size, in bytes a second. */
static void name_peak(ech__sheet *s)
{
    char expr[ECH__LAB_EXPR_MAX] = "";
    size_t used = 0;
    for (int i = 0; i < SIZES; i++)
        used += (size_t)snprintf(expr + used, sizeof expr - used, "%s[peak results.%d.busbw_gbs]",
                                 i ? ", " : "", i);
    ech__tell_let(s, "peak_gbs", "fixed2 GB/s", "max(%s)", expr);
    ech__tell_let(s, "peak", "general bytes/s", "peak_gbs * 1e9");
}

/* Of every run of several devices: m_ bytes of one all-reduce, sum_ those of the epoch, x_ exposed and waiting
 * seconds of the epoch, tr_ seconds from when the last rank is ready until all have the sum, for one step; eff_ and
 * bus_ in GB/s by x_, use_ of the peak; slip_ the same from the bytes of one all-reduce; ring_ what one would take
 * at the peak. */
static void name_run(ech__sheet *s, int64_t b, int64_t n)
{
    const ech__lab_id run = ech__epoch_run(b, n);
    ech__tell_let(s, ech__lab_name("m_%s", run.s).s, "bytes",
                  "[%s summary.communication.gradient_bytes]", run.s);
    ech__tell_let(s, ech__lab_name("sum_%s", run.s).s, "bytes", "steps_%s * m_%s", run.s, run.s);
    ech__tell_let(s, ech__lab_name("x_%s", run.s).s, "seconds",
                  "total[%s comm_exposed_s] + total[%s wait_s]", run.s, run.s);
    ech__tell_let(s, ech__lab_name("eff_%s", run.s).s, "general GB/s", "sum_%s / x_%s / 1e9", run.s,
                  run.s);
    ech__tell_let(s, ech__lab_name("bus_%s", run.s).s, "general GB/s",
                  "eff_%s * 2 * (%" PRId64 " - 1) / %" PRId64, run.s, n, n);
    ech__tell_let(s, ech__lab_name("use_%s", run.s).s, "percent2", "bus_%s / peak_gbs", run.s);
    ech__tell_let(s, ech__lab_name("slip_%s", run.s).s, "percent4",
                  "m_%s / x_%s * 2 * (%" PRId64 " - 1) / %" PRId64 " / peak", run.s, run.s, n, n);
    ech__tell_let(s, ech__lab_name("ring_%s", run.s).s, "seconds",
                  "2 * m_%s * (%" PRId64 " - 1) / (%" PRId64 " * peak)", run.s, n, n);
    const ech_json *buckets =
        ech__lab_path(ech__tell_record(s, run.s), "summary.communication.buckets");
    char expr[ECH__LAB_EXPR_MAX] = "0";
    size_t used = 1;
    for (size_t i = 0; i < ech__json_count(buckets) && used < sizeof expr; i++)
        used += (size_t)snprintf(expr + used, sizeof expr - used,
                                 " + [%s summary.communication.buckets.%zu.transfer_s]", run.s, i);
    ech__tell_let(s, ech__lab_name("tr_%s", run.s).s, "seconds", "%s", expr);
}

static void name_figures(ech__sheet *s)
{
    ech__tell_epochs(s);
    name_peak(s);
    for (size_t k = 0; k < ECH__EPOCH_BATCHES; k++) {
        for (size_t i = 1; i < ech__tell_devices(s); i++)
            name_run(s, ech__tell_batch(s, k), ech__tell_device(s, i));
    }
}

/* ---- tables and plot ---- */

/* Begins a row for every batch and number of devices above one; false past the last. */
static bool next_row(ech__sheet *s, size_t row, ech__lab_id *run)
{
    const size_t counts = ech__tell_devices(s) - 1;
    if (counts == 0 || row / counts >= ECH__EPOCH_BATCHES)
        return false;
    const int64_t b = ech__tell_batch(s, row / counts), n = ech__tell_device(s, 1 + row % counts);
    *run = ech__epoch_run(b, n);
    ech__tell_row(s);
    ech__tell_plain(s, "%" PRId64, b);
    ech__tell_plain(s, "%" PRId64, n);
    return true;
}

static void tell_epoch_table(ech__sheet *s)
{
    ech__lab_id run;
    ech__tell_table(s, "Every all-reduce of the second epoch",
                    "The batch is that of a device. Communication is exposed communication and "
                    "waiting on rank 0, in sum over the epoch.");
    ech__tell_column(s, "batch", "integer");
    ech__tell_column(s, "devices", "integer");
    ech__tell_column(s, "all-reduces", "integer");
    ech__tell_column(s, "bytes of one", "bytes");
    ech__tell_column(s, "bytes of all", "bytes");
    ech__tell_column(s, "communication", "seconds");
    for (size_t row = 0; next_row(s, row, &run); row++) {
        ech__tell_plain(s, "steps_%s", run.s);
        ech__tell_plain(s, "m_%s", run.s);
        ech__tell_plain(s, "sum_%s", run.s);
        ech__tell_cell(s, "x_%s", run.s);
    }
}

static void tell_rate_table(ech__sheet *s)
{
    ech__lab_id run;
    ech__tell_table(s, "Bandwidth over the second epoch",
                    "The last column is the mistake: the bytes of one all-reduce by the "
                    "communication time of all.");
    ech__tell_column(s, "batch", "integer");
    ech__tell_column(s, "devices", "integer");
    ech__tell_column(s, "effective", "fixed3 GB/s");
    ech__tell_column(s, "bus", "fixed3 GB/s");
    ech__tell_column(s, "of the peak", "percent2");
    ech__tell_column(s, "one by all", "percent4");
    for (size_t row = 0; next_row(s, row, &run); row++) {
        ech__tell_plain(s, "eff_%s", run.s);
        ech__tell_cell(s, "bus_%s", run.s);
        ech__tell_cell(s, "use_%s", run.s);
        ech__tell_plain(s, "slip_%s", run.s);
    }
}

static void tell_one_table(ech__sheet *s)
{
    ech__tell_table(s, "One all-reduce",
                    "Ring: 2M(N-1)/(N B) with the measured peak as B. Transfer: from when the last "
                    "rank has its gradients until all have the sum. Exposed: a step's share of the "
                    "communication above.");
    ech__lab_id run;
    ech__tell_column(s, "batch", "integer");
    ech__tell_column(s, "devices", "integer");
    ech__tell_column(s, "ring at the peak", "seconds");
    ech__tell_column(s, "transfer", "seconds");
    ech__tell_column(s, "exposed", "seconds");
    for (size_t row = 0; next_row(s, row, &run); row++) {
        ech__tell_plain(s, "ring_%s", run.s);
        ech__tell_cell(s, "tr_%s", run.s);
        ech__tell_cell(s, "x_%s / steps_%s", run.s, run.s);
    }
}

static void tell_plot(ech__sheet *s)
{
    ech__tell_plot(s, "lines", "Bus bandwidth of an all-reduce by its size",
                   "Two ranks, from bench comm; the line across is the size of this network's "
                   "gradients.");
    ech__tell_x(s, (ech__tell_axis){.label = "bytes", .scale = "log2"});
    ech__tell_y(s, (ech__tell_axis){.label = "bus bandwidth", .unit = "GB/s"});
    ech__tell_series(s, "all-reduce alone");
    for (int i = 0; i < SIZES; i++)
        ech__tell_point(s, ech__tell_value(s, "[peak results.%d.bytes]", i).value,
                        "[peak results.%d.busbw_gbs]", i);
    const ech__lab_id run = ech__epoch_run(ech__tell_batch(s, 0), ech__tell_device(s, 1));
    const ech__lab_figure bytes = ech__tell_value(s, "m_%s", run.s);
    if (!bytes.known)
        return;
    ech__tell_series(s, "in training, batch %" PRId64, ech__tell_batch(s, 0));
    ech__tell_no_line(s);
    ech__tell_point(s, bytes.value, "bus_%s", run.s);
    ech__tell_mark(s, 'x', bytes.value, "gradients");
}

/* ---- answers ---- */

static void answer_use(ech__sheet *s, int64_t n)
{
    const ech__lab_id run = ech__epoch_run(ech__tell_batch(s, 0), n),
                      use = ech__lab_name("use_%s", run.s);
    ech__tell_let(s, "longer", "general", "x_%s / steps_%s / ring_%s", run.s, run.s, run.s);
    ech__tell_ask(s, "How much of the link do the all-reduces use?");
    ech__tell_say_network(s);
    ech__tell_sayf(s,
                   "On {n%" PRId64 "} devices with {b%" PRId64
                   "} images each, {steps_%s} all-reduces of {m_%s} move {sum_%s} in the {x_%s} of "
                   "communication: {eff_%s} effective, {bus_%s} on the bus ({bus_%s.low} to "
                   "{bus_%s.high}).",
                   n, ech__tell_batch(s, 0), run.s, run.s, run.s, run.s, run.s, run.s, run.s,
                   run.s);
    ech__tell_sayf(s,
                   "The most that the link has shown is {peak_gbs}, so {%s} of the peak are used "
                   "({%s.low} to {%s.high}).",
                   use.s, use.s, use.s);
    if (ech__tell_asked(s, "same")) {
        ech__tell_let(s, "same_gbs", "fixed2 GB/s", "[same results.0.busbw_gbs]");
        ech__tell_say(s, "All-reduces of this size alone, one behind the other, reach {same_gbs}.");
    }
    ech__tell_sayf(
        s,
        "A ring at the peak would take {ring_%s} for one; in training one costs {longer} "
        "times that.",
        run.s);
    ech__tell_let(s, "half", "percent0", "0.5");
    ech__tell_let(s, "waited", "percent0", "total[%s wait_s] / x_%s", run.s, run.s);
    const int side = ech__tell_side(s, use.s, 0.5);
    ech__tell_say(s, side < 0
                         ? "That is less than {half}, so most of this time does not move bytes; "
                           "{waited} of it is waiting for a rank that is ready later."
                     : side > 0 ? "That is more than {half}: most of this time moves bytes."
                                : "Whether that is more or less than {half} cannot be said.");
    ech__tell_say_emulated(s);
}

static void answer_slip(ech__sheet *s, int64_t n)
{
    const ech__lab_id run = ech__epoch_run(ech__tell_batch(s, 0), n);
    ech__tell_ask(s, "What goes wrong when the bytes of one all-reduce are divided by an epoch's "
                     "communication time?");
    ech__tell_sayf(s,
                   "It comes out as {slip_%s} of the peak instead of {use_%s}: too little by the "
                   "{steps_%s} all-reduces that the epoch has.",
                   run.s, run.s, run.s);
    const size_t last = ECH__EPOCH_BATCHES - 1;
    const ech__lab_id other = ech__epoch_run(ech__tell_batch(s, last), n);
    ech__tell_sayf(s,
                   ech__tell_value(s, "slip_%s / slip_%s", other.s, run.s).value >
                           ech__tell_value(s, "use_%s / use_%s", other.s, run.s).value
                       ? "It also flatters large batches, which have fewer all-reduces: {slip_%s} "
                         "with {b%" PRId64 "} images a device, where the right figure is {use_%s}."
                       : "With a larger batch it is {slip_%s}, {b%" PRId64
                         "} images a device, and the right figure {use_%s}.",
                   other.s, ech__tell_batch(s, last), other.s);
    ech__tell_paragraph(s);
    /* ResNet-18 on two A40 with 32 images each: epochs of 50,000 images in 23.550 s on one and 16.164 s on two. */
    ech__tell_let(s, "published_gbs", "fixed1 GB/s", "0.9");
    ech__tell_let(s, "published_low", "percent1", "0.011");
    ech__tell_let(s, "published_high", "percent0", "0.38");
    ech__tell_let(s, "published_slip", "percent1", "44695848 / (16.164 - 23.550 / 2) / 0.9e9");
    ech__tell_let(s, "published_steps", "integer", "782");
    ech__tell_let(s, "published_right", "fixed1 GB/s",
                  "published_steps * 44695848 / (16.164 - 23.550 / 2) / 1e9");
    ech__tell_let(s, "published_times", "fixed1", "published_right / published_gbs");
    ech__tell_say(
        s, "Figures of ResNet-18 on A40 GPUs have been published that way, {published_low} to "
           "{published_high} of a link of {published_gbs}. With all {published_steps} "
           "all-reduces of its epoch counted, the lowest of them, {published_slip}, is "
           "{published_right}: {published_times} times what that link was said to do, so "
           "that the link was not the one assumed either.");
}

static void tell(ech__sheet *s)
{
    if (ech__tell_devices(s) < 2) {
        ech__tell_ask(s, "How much of the link do the all-reduces use?");
        ech__tell_alone(s);
        return;
    }
    const int64_t real = ech__tell_most_real(s), n = real > 1 ? real : ech__tell_most(s);
    name_figures(s);
    tell_epoch_table(s);
    tell_rate_table(s);
    tell_one_table(s);
    tell_plot(s);
    answer_use(s, n);
    answer_slip(s, n);
}

const ech__study_card ech__study_bandwidth = {
    .id = "bandwidth",
    .group = 'D',
    .place = 4,
    .title = "Bandwidth of the exchange, every all-reduce counted",
    .about =
        "The runs of epoch-scaling beside the measured peak of the link: effective and bus "
        "bandwidth over all all-reduces of an epoch, and a well-known mistake in counting them.",
    .params = params,
    .quick_seconds = 6,
    .full_seconds = 6,
    .runs = runs,
    .tell = tell};
