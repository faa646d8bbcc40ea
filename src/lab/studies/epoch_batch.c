/* How the batch sets the time of an epoch on one device, and which batch no longer fits. */
#include "base/format.h"
#include "lab/epochs.h"
#include "lab/shared.h"
#include "plan/kernel.h"

#include <math.h>

static const ech__lab_param params[] = {ECH__LAB_EPOCHS_PARAMS, {0}};

/* Seconds of the second epoch on one A40 with PyTorch at batch 32, 128, ..., 8192, as published: with data loading,
 * and computing alone; 0: out of memory. */
static const struct {
    double loading, compute;
} published[] = {{23.550, 22.782}, {18.311, 18.051}, {19.704, 19.448}, {20.714, 19.658}, {0, 0}};
enum {
    ROWS = sizeof published / sizeof *published,
    PUBLISHED_BATCH = 32,
    PUBLISHED_IMAGES = 50000
};

/* ---- runs ---- */

/* Asks for the run, or says why it would not work. */
static void ask(ech__lab_runs *lab, int64_t batch, bool fits, double need, double room)
{
    const ech__lab_id id = ech__epoch_run(batch, 1);
    if (!fits)
        ech__lab_skip(lab, id.s, "out of memory: a batch of %" PRId64 " needs %s, a device has %s",
                      batch, ech__format_bytes((int64_t)need).s,
                      ech__format_bytes((int64_t)room).s);
    else
        ech__lab_epoch(lab, batch, 1);
}

static void runs(ech__lab_runs *lab)
{
    ech__lab_run(lab, "fit",
                 "plan --model %s " ECH__EPOCH_SGD " --fit %" PRId64 ",%" PRId64 ",%" PRId64
                 ",%" PRId64 ",%" PRId64 " --device-memory %" PRId64 "MB",
                 ech__epoch_model(ech__lab_quick(lab)), ech__lab_batch(lab, 0),
                 ech__lab_batch(lab, 1), ech__lab_batch(lab, 2), ech__lab_batch(lab, 3),
                 ech__lab_batch(lab, 4), ech__lab_param_of(lab, "memory_mb"));
    for (int i = 0; i < ROWS; i++) {
        double fits, need, room;
        if (ech__lab_known(lab, &fits, "[fit rows.%d.fits]", i) &&
            ech__lab_known(lab, &need, "[fit rows.%d.planned_memory_bytes]", i) &&
            ech__lab_known(lab, &room, "[fit device_memory]"))
            ask(lab, ech__lab_batch(lab, (size_t)i), fits > 0, need, room);
    }
}

/* ---- figures ---- */

static bool ran(ech__sheet *s, int i)
{
    return ech__tell_has(s, ech__epoch_run(ech__tell_batch(s, (size_t)i), 1).s);
}

static void name_figures(ech__sheet *s)
{
    ech__tell_let(s, "images", "integer", "%" PRId64, ech__tell_param(s, "images"));
    ech__tell_let(s, "room", "bytes", "[fit device_memory]");
    ech__tell_let(s, "largest", "integer", "[fit largest_batch]");
    for (int i = 0; i < ROWS; i++) {
        const ech__lab_id run = ech__epoch_run(ech__tell_batch(s, (size_t)i), 1);
        ech__tell_let(s, ech__lab_name("batch%d", i).s, "integer", "%" PRId64,
                      ech__tell_batch(s, (size_t)i));
        ech__tell_let(s, ech__lab_name("need%d", i).s, "bytes",
                      "[fit rows.%d.planned_memory_bytes]", i);
        if (!ran(s, i))
            continue;
        ech__tell_let(s, ech__lab_name("with%d", i).s, "seconds", "[%s summary.epochs.1.time_s]",
                      run.s);
        ech__tell_let(s, ech__lab_name("only%d", i).s, "seconds", "[%s summary.epochs.1.compute_s]",
                      run.s);
        ech__tell_let(s, ech__lab_name("besides%d", i).s, "percent2", "1 - only%d / with%d", i, i);
        ech__tell_let(s, ech__lab_name("rate%d", i).s, "fixed0 images/s", "images / with%d", i);
        ech__tell_let(s, ech__lab_name("step%d", i).s, "seconds", "mean[%s time_s]", run.s);
    }
}

static int last_that_ran(ech__sheet *s)
{
    int last = -1;
    for (int i = 0; i < ROWS; i++)
        last = ran(s, i) ? i : last;
    return last;
}

/* ---- table and plot ---- */

/* Published times stand beside runs of the same network on the same images only. */
static bool is_comparable(ech__sheet *s)
{
    return !ech__tell_quick(s) && ech__tell_real_images(s) &&
           ech__tell_param(s, "images") == PUBLISHED_IMAGES &&
           ech__tell_param(s, "batch") == PUBLISHED_BATCH;
}

static void tell_row(ech__sheet *s, int i)
{
    ech__tell_row(s);
    ech__tell_plain(s, "batch%d", i);
    ech__tell_plain(s, "need%d", i);
    ech__tell_plain(s, "need%d / room", i);
    if (!ran(s, i)) {
        ech__tell_cell(s, "[%s summary.epochs.1.time_s]",
                       ech__epoch_run(ech__tell_batch(s, (size_t)i), 1).s);
        for (int k = 0; k < 4; k++)
            ech__tell_none(s);
    } else {
        ech__tell_cell(s, "with%d", i);
        ech__tell_cell(s, "only%d", i);
        ech__tell_plain(s, "besides%d", i);
        ech__tell_plain(
            s, "%" PRId64,
            ech__epoch_steps(ech__tell_param(s, "images"), ech__tell_batch(s, (size_t)i), 1));
        ech__tell_cell(s, "rate%d", i);
    }
    if (!is_comparable(s))
        return;
    if (published[i].loading > 0) {
        ech__tell_plain(s, "%g", published[i].loading);
        ech__tell_plain(s, "%g", published[i].compute);
    } else {
        ech__tell_words(s, "out of memory");
        ech__tell_words(s, "out of memory");
    }
}

static void tell_table(ech__sheet *s)
{
    ech__tell_table(s, "The second epoch by batch, one device",
                    "Memory is that of the plan, known before anything runs.");
    ech__tell_column(s, "batch", "integer");
    ech__tell_column(s, "memory", "bytes");
    ech__tell_column(s, "of the device", "percent1");
    ech__tell_column(s, "with data loading", "seconds");
    ech__tell_column(s, "compute only", "seconds");
    ech__tell_column(s, "not computing", "percent2");
    ech__tell_column(s, "steps", "integer");
    ech__tell_column(s, "throughput", "fixed0 images/s");
    if (is_comparable(s)) {
        ech__tell_column(s, "A40, published, with loading", "fixed1 s");
        ech__tell_column(s, "A40, published, compute only", "fixed1 s");
    }
    for (int i = 0; i < ROWS; i++)
        tell_row(s, i);
}

static void tell_plot(ech__sheet *s)
{
    const ech__lab_figure largest = ech__tell_value(s, "largest");
    ech__tell_plot(s, "lines", "Throughput of the second epoch by batch",
                   "The line across is the largest batch that fits the device.");
    ech__tell_x(s, (ech__tell_axis){.label = "batch", .scale = "log2"});
    ech__tell_y(s, (ech__tell_axis){.label = "throughput", .unit = "images/s"});
    ech__tell_series(s, "with data loading");
    for (int i = 0; i < ROWS; i++) {
        if (ran(s, i))
            ech__tell_point(s, (double)ech__tell_batch(s, (size_t)i), "rate%d", i);
    }
    ech__tell_series(s, "compute only");
    for (int i = 0; i < ROWS; i++) {
        if (ran(s, i))
            ech__tell_point(s, (double)ech__tell_batch(s, (size_t)i), "images / only%d", i);
    }
    if (largest.known && largest.value <= (double)ech__tell_batch(s, ROWS - 1))
        ech__tell_mark(s, 'x', largest.value, "largest that fits");
}

/* The first batch that needs more than a device has; ROWS: all fit. */
static int first_refused(ech__sheet *s)
{
    int i = 0;
    while (i < ROWS && ech__tell_value(s, "need%d / room", i).value <= 1)
        i++;
    return i;
}

/* Up to the first that does not fit; the bars of smaller ones would vanish beside larger ones still. */
static void tell_memory_plot(ech__sheet *s)
{
    const int refused = first_refused(s), count = refused < ROWS ? refused + 1 : ROWS;
    const ech__lab_figure room = ech__tell_value(s, "room / 1e6");
    ech__tell_plot(s, "stacked", "Memory of a device by batch and kind",
                   "As planned; the line across is what a device has.");
    ech__tell_y(s, (ech__tell_axis){.label = "memory", .unit = "MB"});
    ech__tell_bar_format(s, "fixed0");
    for (int i = 0; i < count; i++)
        ech__tell_category(s, "%" PRId64, ech__tell_batch(s, (size_t)i));
    for (int k = 0; k < ECH__MEMORY_COUNT; k++) {
        ech__tell_series(s, "%s", ech__memory_name((ech__memory_kind)k));
        for (int i = 0; i < count; i++)
            ech__tell_bar(s, "[fit rows.%d.memory_by_kind.%s] / 1e6", i,
                          ech__memory_name((ech__memory_kind)k));
    }
    if (room.known)
        ech__tell_mark(s, 'y', room.value, "a device has");
}

/* ---- answers ---- */

static void answer_loading(ech__sheet *s, int last)
{
    ech__tell_ask(s, "How long is the second epoch, with and without data loading?");
    ech__tell_say_network(s);
    ech__tell_sayf(s,
                   "At batch {batch0} it takes {with0} ({with0.low} to {with0.high}), of which "
                   "{only0} is computing; at batch {batch%d} {with%d} and {only%d}.",
                   last, last, last);
    const ech__lab_figure first = ech__tell_value(s, "besides0"),
                          most = ech__tell_value(s, "besides%d", last);
    ech__tell_let(s, "slight", "percent0", "0.02");
    if (first.known && most.known && fmax(first.value, most.value) < 0.02)
        ech__tell_sayf(s,
                       "What is not computing is {besides0} and {besides%d} of it, less than "
                       "{slight}: images are loaded while the device computes.",
                       last);
    else
        ech__tell_sayf(s,
                       "What is not computing is {besides0} and {besides%d} of it, more than "
                       "{slight}: loading is not hidden here.",
                       last);
}

static void answer_largest(ech__sheet *s, int last)
{
    const ech__lab_id run = ech__epoch_run(ech__tell_batch(s, (size_t)last), 1);
    const int refused = first_refused(s);
    ech__tell_let(s, "each", "bytes", "(need1 - need0) / (batch1 - batch0)");
    ech__tell_let(s, "fixed", "bytes", "need0 - batch0 * each");
    ech__tell_let(s, "peak", "bytes", "[%s summary.peak_memory_bytes.0]", run.s);
    ech__tell_let(s, "off", "percent2", "peak / need%d - 1", last);
    ech__tell_let(s, "own_off", "percent2", "peak / [%s summary.planned_memory_bytes.0] - 1",
                  run.s);
    ech__tell_ask(s, "What is the largest batch that fits?");
    ech__tell_say(s, "{largest}, of a device with {room}: from the plan alone, before anything is "
                     "run. {fixed} are there for any batch, and every image adds {each}.");
    if (refused < ROWS)
        ech__tell_sayf(s,
                       "A batch of {batch%d} would need {need%d}, so its row is out of memory and "
                       "nothing was started for it.",
                       refused, refused);
    else
        ech__tell_say(s, "No batch of the table needs more than there is.");
    ech__tell_sayf(
        s,
        ech__tell_value(s, "own_off").value == 0
            ? "The run at batch {batch%d} took {peak}, to the byte what its own plan said "
              "before it began; the table, which times no kernels and so may choose others, "
              "is {off} away from that."
            : "The run at batch {batch%d} took {peak}, which differs from its own plan by "
              "{own_off} and from the table by {off}.",
        last);
}

/* The smallest batch whose throughput is within a twentieth of the best one's. */
static int saturated(ech__sheet *s, int best)
{
    int i = 0;
    while (i < best && (!ran(s, i) || ech__tell_value(s, "rate%d / rate%d", i, best).value < 0.95))
        i++;
    return i;
}

static int best_of(ech__sheet *s)
{
    int best = 0;
    for (int i = 1; i < ROWS; i++) {
        if (ran(s, i) &&
            ech__tell_value(s, "rate%d", i).value > ech__tell_value(s, "rate%d", best).value)
            best = i;
    }
    return best;
}

/* What a step takes for each image and what besides. */
static void say_step(ech__sheet *s, int last)
{
    ech__tell_let(s, "image_s", "seconds", "slope(batch0, step0, batch%d, step%d)", last, last);
    ech__tell_let(s, "start_s", "seconds", "intercept(batch0, step0, batch%d, step%d)", last, last);
    ech__tell_sayf(s,
                   "Between batch {batch0} and {batch%d} a step takes {image_s} more for every "
                   "image",
                   last);
    ech__tell_say(s, ech__tell_side(s, "start_s", 0) > 0
                         ? "and {start_s} besides ({start_s.low} to {start_s.high})."
                         : "and nothing besides that would be beyond the noise.");
}

/* What the next larger batch does to the epoch, beside what it did on a GPU. */
static void say_gain(ech__sheet *s)
{
    ech__tell_let(s, "gain", "fixed2", "with0 / with1");
    const int side = ech__tell_side(s, "gain", 1);
    ech__tell_sayf(
        s,
        "From batch {batch0} to {batch1} the time of the epoch falls {gain} times ({gain.low} "
        "to {gain.high})%s.",
        side > 0   ? ""
        : side < 0 ? ": it grows"
                   : ", an interval that holds one, so that no difference can be claimed");
    if (ech__tell_param(s, "batch") != PUBLISHED_BATCH)
        return;
    ech__tell_let(s, "gain_a40", "fixed2", "%g / %g", published[0].loading, published[1].loading);
    ech__tell_say(
        s, "The times published for ResNet-18 on one A40 fall {gain_a40} times between these "
           "two.");
}

static void answer_saturation(ech__sheet *s, int last)
{
    const int best = best_of(s), first = saturated(s, best);
    ech__tell_let(s, "near", "percent0", "0.95");
    ech__tell_let(s, "of_best", "percent0", "rate%d / rate%d", first, best);
    ech__tell_ask(s, "Where does throughput saturate?");
    ech__tell_sayf(s, "It is highest at batch {batch%d} with {rate%d}.", best, best);
    if (first == 0)
        ech__tell_say(s, "Batch {batch0}, the smallest, already reaches {of_best} of that, so that "
                         "there is no rise to see: it saturates below the batches of this table.");
    else if (first < best)
        ech__tell_sayf(s,
                       "Batch {batch%d} is the first to reach {near} of that or more, with "
                       "{of_best}.",
                       first);
    else
        ech__tell_say(s, best < last
                             ? "No smaller batch reaches {near} of that, and no larger one "
                               "is faster: it saturates there."
                             : "No smaller batch reaches {near} of that, so that it may not "
                               "have saturated yet.");
    if (last > 0)
        say_step(s, last);
    if (ran(s, 1))
        say_gain(s);
}

static void tell(ech__sheet *s)
{
    name_figures(s);
    tell_table(s);
    const int last = last_that_ran(s);
    if (last < 0 || !ran(s, 0)) {
        ech__tell_ask(s, "How long is the second epoch?");
        ech__tell_say(s, "Of a device with {room}, {largest} is the largest batch that fits; none "
                         "of the runs is there.");
        return;
    }
    tell_plot(s);
    tell_memory_plot(s);
    answer_loading(s, last);
    answer_largest(s, last);
    answer_saturation(s, last);
}

const ech__study_card ech__study_epoch_batch = {
    .id = "epoch-batch",
    .group = 'D',
    .place = 1,
    .title = "An epoch by batch size, until it does not fit",
    .about =
        "A ResNet on CIFAR-10, one device, batches 32 to 8192: the time of the second epoch with "
        "and without data loading, and the memory that each batch needs, known before it runs.",
    .params = params,
    .quick_seconds = 20,
    .full_seconds = 7000,
    .runs = runs,
    .tell = tell};
