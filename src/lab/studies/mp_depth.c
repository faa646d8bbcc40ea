/* Deeper and deeper stacks on one device and with their layers on two. */
#include "lab/spread.h"

static const ech__lab_param params[] = {
    {"dim", 512, 2048, 1, 65536, "width of a layer"},
    {"batch", 64, 64, 1, 65536, "samples of a step"},
    {"steps", 35, 35, 6, 100000, "steps of a run, 5 of them warm-up"},
    {0},
};

static const int64_t depths[] = {6, 12, 24};
enum { DEPTHS = sizeof depths / sizeof *depths };

static ech__lab_id id_of(int devices, int64_t depth)
{
    return ech__lab_name("%s%" PRId64, devices > 1 ? "two" : "one", depth);
}

static void runs(ech__lab_runs *lab)
{
    ech__lab_spread stack = {.dim = ech__lab_param_of(lab, "dim"),
                             .batch = ech__lab_param_of(lab, "batch"),
                             .steps = ech__lab_param_of(lab, "steps")};
    for (size_t i = 0; i < DEPTHS; i++) {
        for (int devices = 1; devices <= 2; devices++) {
            stack.depth = depths[i];
            stack.devices = devices;
            ech__lab_spread_layers(lab, id_of(devices, depths[i]).s, &stack);
        }
    }
}

static void tell_table(ech__sheet *s)
{
    ech__tell_table(s, "DEPTH against time", NULL);
    ech__tell_column(s, "DEPTH", "integer");
    ech__tell_column(s, "parameters", "integer");
    ech__tell_column(s, "one device", "seconds");
    ech__tell_column(s, "two devices", "seconds");
    ech__tell_column(s, "speedup", "fixed3");
    ech__tell_column(s, "time/layer, two devices", "seconds");
    ech__tell_column(s, "first busy", "percent1");
    ech__tell_column(s, "second busy", "percent1");
    for (size_t i = 0; i < DEPTHS; i++) {
        const ech__lab_id one = id_of(1, depths[i]), two = id_of(2, depths[i]);
        ech__tell_let(s, ech__lab_name("speedup%" PRId64, depths[i]).s, "fixed3",
                      "steps[%s time_s] / steps[%s time_s]", one.s, two.s);
        ech__tell_row(s);
        ech__tell_cell(s, "%" PRId64, depths[i]);
        ech__tell_cell(s, "[%s summary.parameters]", two.s);
        ech__tell_cell(s, "steps[%s time_s]", one.s);
        ech__tell_cell(s, "steps[%s time_s]", two.s);
        ech__tell_cell(s, "speedup%" PRId64, depths[i]);
        ech__tell_cell(s, "steps[%s time_s] / %" PRId64, two.s, depths[i]);
        ech__tell_cell(s, "[%s summary.utilisation.0]", two.s);
        ech__tell_cell(s, "[%s summary.utilisation.1]", two.s);
    }
}

static void tell_plot(ech__sheet *s)
{
    ech__tell_plot(s, "lines", "Step time over DEPTH", NULL);
    ech__tell_x(s, (ech__tell_axis){.label = "DEPTH"});
    ech__tell_y(s, (ech__tell_axis){.label = "time of a step", .unit = "ms"});
    for (int devices = 1; devices <= 2; devices++) {
        ech__tell_series(s, "%s", devices > 1 ? "two devices" : "one device");
        for (size_t i = 0; i < DEPTHS; i++)
            ech__tell_point(s, (double)depths[i], "1000 * steps[%s time_s]",
                            id_of(devices, depths[i]).s);
    }
}

static void say_growth(ech__sheet *s)
{
    const ech__lab_phrase points = ech__lab_each(depths, DEPTHS, ", ", "#, steps[two# time_s]");
    const int64_t first = depths[0], last = depths[DEPTHS - 1];
    ech__tell_let(s, "layer", "seconds", "slope(%s)", points.s);
    ech__tell_let(s, "rest", "seconds", "intercept(%s)", points.s);
    ech__tell_let(s, "fit", "percent1", "rsquared(%s)", points.s);
    ech__tell_let(s, "low", "integer", "%" PRId64, first);
    ech__tell_let(s, "high", "integer", "%" PRId64, last);
    ech__tell_let(s, "deeper", "fixed2", "high / low");
    ech__tell_let(s, "longer", "fixed2", "steps[%s time_s] / steps[%s time_s]", id_of(2, last).s,
                  id_of(2, first).s);
    ech__tell_let(s, "by", "fixed3", "longer / deeper");
    ech__tell_ask(s, "How does the step time depend on DEPTH?");
    ech__tell_say(s, "From DEPTH {low} to {high}, {deeper} times as many layers, a step on two "
                     "devices becomes {longer} times as long ({longer.low} to {longer.high}).");
    ech__tell_by_side(s, "by", 1, "That is less than in proportion.",
                      "That is in proportion, as far as the intervals tell.",
                      "That is more than in proportion.");
    ech__tell_let(s, "weights", "bytes", "4 * [%s summary.parameters]", id_of(2, last).s);
    ech__tell_let(s, "cache", "bytes", "[%s machine.cache_bytes.2]", id_of(2, last).s);
    if (ech__tell_side(s, "by", 1) > 0 && ech__tell_knows(s, "cache"))
        ech__tell_say(s,
                      "The weights of the deepest stack take {weights}, and the last cache of the "
                      "machine has {cache}.");
    ech__tell_say(s,
                  "A line through the points has {layer} ({layer.low} to {layer.high}) for a "
                  "layer and {rest} ({rest.low} to {rest.high}) for the rest, and explains {fit} "
                  "of the variance.");
}

static void say_speed(ech__sheet *s)
{
    const int64_t first = depths[0], last = depths[DEPTHS - 1];
    const ech__lab_id two = id_of(2, last);
    ech__tell_let(s, "speedup1", "fixed3", "speedup%" PRId64, first);
    ech__tell_let(s, "speedup2", "fixed3", "speedup%" PRId64, last);
    ech__tell_let(s, "gain", "fixed3", "speedup2 / speedup1");
    ech__tell_let(s, "busy", "percent1", "[%s summary.utilisation.0] + [%s summary.utilisation.1]",
                  two.s, two.s);
    ech__tell_let(s, "copies", "percent2",
                  "([%s summary.transfers.moves.0.time_s] + [%s summary.transfers.moves.1.time_s]) "
                  "/ steps[%s time_s]",
                  two.s, two.s, two.s);
    const ech__lab_figure copies = ech__tell_value(s, "copies");
    ech__tell_ask(s, "Does depth help two devices to be faster than one?");
    ech__tell_say(s, "Two devices are {speedup1} times as fast as one ({speedup1.low} to "
                     "{speedup1.high}) at DEPTH {low}, and {speedup2} times ({speedup2.low} to "
                     "{speedup2.high}) at {high}.");
    ech__tell_by_side(s, "speedup2", 1, "So the second device makes even the deepest stack slower.",
                      "So no gain can be told even for the deepest stack.",
                      "So the deepest stack does gain.");
    ech__tell_by_side(s, "gain", 1, "Depth makes it worse.",
                      "Depth makes no difference that could be told.", "Depth does help.");
    if (!copies.known)
        return;
    ech__tell_say(s,
                  copies.value < 0.05
                      ? "The moves take no more than {copies} of the step at DEPTH "
                        "{high}: every layer needs what the one before it has computed, and both "
                        "devices together work {busy} of the step."
                      : "The moves take {copies} of the step at DEPTH {high}; and every layer "
                        "needs what the one before it has computed: both devices together work "
                        "{busy} of the step.");
    ech__tell_say_turns(s, "busy");
    if (ech__tell_side(s, "speedup2", 1) <= 0)
        ech__tell_say(s, "More layers make both turns longer, and neither of them shorter.");
}

static void tell(ech__sheet *s)
{
    tell_table(s);
    tell_plot(s);
    say_growth(s);
    say_speed(s);
}

const ech__study_card ech__study_mp_depth = {
    .id = "mp-depth",
    .group = 'C',
    .place = 2,
    .title = "Depth and model parallelism",
    .about = "Linear stacks of different depth, on one device and with half of the layers on each "
             "of two.",
    .params = params,
    .quick_seconds = 6,
    .full_seconds = 70,
    .runs = runs,
    .tell = tell,
};
