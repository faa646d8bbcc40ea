/* A stack cut in its middle: which layer is where, after which operator data moves, and who works when. */
#include "lab/spread.h"

static const ech__lab_param params[] = {
    {"dim", 512, 2048, 1, 65536, "width of a layer"},
    {"depth", 6, 6, 1, 1000, "layers"},
    {"batch", 64, 64, 1, 65536, "samples of a step"},
    {"steps", 35, 35, 6, 100000, "steps of a run, 5 of them warm-up"},
    {0},
};

static void runs(ech__lab_runs *lab)
{
    const ech__lab_spread half = {.dim = ech__lab_param_of(lab, "dim"),
                                  .depth = ech__lab_param_of(lab, "depth"),
                                  .batch = ech__lab_param_of(lab, "batch"),
                                  .steps = ech__lab_param_of(lab, "steps"),
                                  .devices = 2,
                                  .more = "--placement half --trace"};
    ech__lab_spread_layers(lab, "half", &half);
}

static void tell_layers(ech__sheet *s, int64_t depth)
{
    ech__tell_table(s, "Where the layers are",
                    "Time: forward, backward and update of the layer in a step.");
    ech__tell_column(s, "layer", "text");
    ech__tell_column(s, "device", "integer");
    ech__tell_column(s, "parameters", "integer");
    ech__tell_column(s, "bytes", "bytes");
    ech__tell_column(s, "time of a step", "seconds");
    for (int64_t i = 0; i < depth; i++) {
        const ech__lab_id path = ech__lab_name("summary.placement.%" PRId64, i);
        ech__tell_row(s);
        ech__tell_words(s, "%s", ech__tell_text(s, "half", ech__lab_name("%s.layer", path.s).s));
        ech__tell_cell(s, "[half %s.device]", path.s);
        ech__tell_cell(s, "[half %s.parameters]", path.s);
        ech__tell_cell(s, "[half %s.bytes]", path.s);
        ech__tell_cell(s, "[half %s.time_s]", path.s);
    }
}

/* There and back: two moves, as long as there are two devices. */
static void tell_moves(ech__sheet *s)
{
    ech__tell_table(s, "Moves of a step", NULL);
    ech__tell_column(s, "pass", "text");
    ech__tell_column(s, "from device", "integer");
    ech__tell_column(s, "to device", "integer");
    ech__tell_column(s, "after the operator", "text");
    ech__tell_column(s, "of layer", "text");
    ech__tell_column(s, "bytes", "bytes");
    ech__tell_column(s, "time of the copy", "seconds");
    for (int i = 0; i < 2; i++) {
        const ech__lab_id path = ech__lab_name("summary.transfers.moves.%d", i);
        ech__tell_row(s);
        ech__tell_words(s, "%s", ech__tell_text(s, "half", ech__lab_name("%s.phase", path.s).s));
        ech__tell_cell(s, "[half %s.from]", path.s);
        ech__tell_cell(s, "[half %s.to]", path.s);
        ech__tell_words(s, "%s", ech__tell_text(s, "half", ech__lab_name("%s.after_op", path.s).s));
        ech__tell_words(s, "%s", ech__tell_text(s, "half", ech__lab_name("%s.after", path.s).s));
        ech__tell_cell(s, "[half %s.bytes]", path.s);
        ech__tell_cell(s, "[half %s.time_s]", path.s);
    }
}

static void say_layers(ech__sheet *s, int64_t depth)
{
    ech__tell_let(s, "depth", "integer", "%" PRId64, depth);
    ech__tell_let(s, "on0", "integer", "[half summary.stages.0.layers]");
    ech__tell_let(s, "on1", "integer", "[half summary.stages.1.layers]");
    ech__tell_let(s, "next", "integer", "on0 + 1");
    ech__tell_let(s, "params0", "integer", "[half summary.stages.0.parameters]");
    ech__tell_let(s, "params1", "integer", "[half summary.stages.1.parameters]");
    ech__tell_let(s, "uneven", "fixed3", "params0 / params1");
    ech__tell_ask(s, "How many layers does each device have?");
    ech__tell_say(s, "Counted from one, the first device has the first {on0} of the {depth} layers "
                     "({params0} parameters) and the second the other {on1}, from layer {next} on "
                     "({params1} parameters).");
    ech__tell_by_side(s, "uneven", 1, "The first device holds less of the model.",
                      "Both hold as much of the model.",
                      "The first device holds more of the model.");
}

static void say_moves(ech__sheet *s)
{
    ech__tell_let(s, "forward", "integer", "[half summary.transfers.forward]");
    ech__tell_let(s, "backward", "integer", "[half summary.transfers.backward]");
    ech__tell_let(s, "bytes", "bytes", "[half summary.transfers.moves.0.bytes]");
    ech__tell_let(s, "back", "bytes", "[half summary.transfers.moves.1.bytes]");
    ech__tell_let(
        s, "copy", "seconds",
        "[half summary.transfers.moves.0.time_s] + [half summary.transfers.moves.1.time_s]");
    ech__tell_let(s, "copy_share", "percent2", "copy / steps[half time_s]");
    for (int i = 0; i < 2; i++) {
        const ech__lab_id path = ech__lab_name("summary.transfers.moves.%d", i);
        ech__tell_let_text(s, i ? "op_back" : "op", "half", ech__lab_name("%s.after_op", path.s).s);
        ech__tell_let_text(s, i ? "at_back" : "at", "half", ech__lab_name("%s.after", path.s).s);
    }
    ech__tell_ask(s, "After which operator exactly does data move?");
    ech__tell_say(s,
                  "Moves forward: {forward}, after {op} of {at}, the output of layer {on0} and the "
                  "last operator of the first device: {bytes} of activations. Moves backward: "
                  "{backward}, after {op_back} of {at_back}, the gradient for the input of layer "
                  "{next}: {back}.");
    ech__tell_say(s, "Both copies together take {copy}, {copy_share} of a step.");
}

static void say_timeline(ech__sheet *s)
{
    ech__tell_let(s, "busy0", "percent1", "[half summary.utilisation.0]");
    ech__tell_let(s, "busy1", "percent1", "[half summary.utilisation.1]");
    ech__tell_let(s, "sum", "percent1", "busy0 + busy1");
    ech__tell_let(s, "step", "seconds", "steps[half time_s]");
    ech__tell_ask(s, "What does the timeline show?");
    ech__tell_say(s, "A step takes {step}; the first device works {busy0} of it and the second "
                     "{busy1}, {sum} together.");
    ech__tell_say_turns(s, "sum");
}

static void tell(ech__sheet *s)
{
    const int64_t depth = ech__tell_param(s, "depth");
    tell_layers(s, depth);
    say_layers(s, depth);
    tell_moves(s);
    say_moves(s);
    ech__tell_plot(s, "timeline", "One step on two devices",
                   "Every operator of the last step: forward through the first device, over to the "
                   "second, and back.");
    ech__tell_trace(s, "half", "cut in the middle", ech__tell_param(s, "steps"));
    say_timeline(s);
}

const ech__study_card ech__study_mp_placement = {
    .id = "mp-placement",
    .group = 'C',
    .place = 1,
    .title = "A model on two devices",
    .about = "A linear stack whose first half of layers is on one device and whose second half is "
             "on another, in one process.",
    .params = params,
    .quick_seconds = 2,
    .full_seconds = 8,
    .runs = runs,
    .tell = tell,
};
