/* Why the first steps are left out of every figure, and why a seed belongs to every run. */
#include "lab/shared.h"

#include <stdio.h>
#include <string.h>

static const ech__lab_param params[] = {
    {"dim", 1024, 2048, 1, 65536, "width of every layer"},
    {"depth", 4, 4, 1, 1000, "layers of the stack"},
    {"batch", 64, 64, 1, 65536, "samples of a step"},
    {"steps", 35, 35, 6, 100000, "steps of a run, 5 of them warm-up"},
    {"other-seed", 12345, 12345, 0, 9007199254740992, "seed of the run that is to differ"},
    {0},
};

static const char *const SAME[] = {"first", "second", "third"};
enum { REPEATS = sizeof SAME / sizeof *SAME };

static void runs(ech__lab_runs *lab)
{
    const ech__lab_stack stack = ech__lab_stack_of(lab);
    ech__lab_train(lab, SAME[0], stack, 1, NULL);
    for (int i = 1; i < REPEATS; i++)
        ech__lab_train(lab, SAME[i], stack, 1, ech__lab_print("@repeat:%d", i + 1).s);
    ech__lab_train(lab, "other", stack, 1,
                   ech__lab_print("--seed %" PRId64, ech__lab_param_of(lab, "other-seed")).s);
}

/* Names the mean over the runs of one seed of an expression that stands around the run's name. */
static ech__lab_figure let_mean(ech__sheet *s, const char *name, const char *format,
                                const char *before, const char *after)
{
    return ech__tell_let(s, name, format, "(%s%s%s + %s%s%s + %s%s%s) / 3", before, SAME[0], after,
                         before, SAME[1], after, before, SAME[2], after);
}

/* ---- figures ---- */

static const struct {
    const char *name, *field, *first, *later, *steady, *extra;
} PARTS[] = {
    {"forward pass", "forward_s", "forward_first", "forward_later", "forward", "forward_extra"},
    {"backward pass", "backward_s", "backward_first", "backward_later", "backward",
     "backward_extra"},
    {"update of the parameters", "optimizer_s", "update_first", "update_later", "update",
     "update_extra"},
};
enum { PART_COUNT = sizeof PARTS / sizeof *PARTS };

/* Of a field: step 1, the mean of the other steps of the warm-up, and the median behind it. */
static void let_phases(ech__sheet *s, const char *field, const char *first, const char *later,
                       const char *steady)
{
    char all[400];
    size_t used = 0;
    let_mean(s, first, "seconds", "first[", ech__lab_print(" %s 1]", field).s);
    let_mean(s, steady, "seconds", "steps[", ech__lab_print(" %s]", field).s);
    for (int k = 2; k <= ECH__LAB_WARMUP; k++) {
        const ech__lab_id name = ech__lab_name("%s_%d", later, k);
        let_mean(s, name.s, "seconds", "first[", ech__lab_print(" %s %d]", field, k).s);
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", k > 2 ? " + " : "", name.s);
    }
    ech__tell_let(s, later, "seconds", "(%s) / %d", all, ECH__LAB_WARMUP - 1);
}

static void name_figures(ech__sheet *s)
{
    let_phases(s, "time_s", "first_step", "later", "steady");
    ech__tell_let(s, "ratio", "fixed2", "first_step / steady");
    ech__tell_let(s, "later_ratio", "fixed2", "later / steady");
    ech__tell_let(s, "extra", "seconds", "first_step - steady");
    for (int p = 0; p < PART_COUNT; p++) {
        let_phases(s, PARTS[p].field, PARTS[p].first, PARTS[p].later, PARTS[p].steady);
        ech__tell_let(s, PARTS[p].extra, "percent0", "(%s - %s) / extra", PARTS[p].first,
                      PARTS[p].steady);
    }
    ech__tell_let(s, "warmup", "integer", "%d", ECH__LAB_WARMUP);
    ech__tell_let(s, "all", "integer", "%" PRId64, ech__tell_param(s, "steps"));
    let_mean(s, "timed_mean", "seconds", "mean[", " time_s]");
    ech__tell_let(s, "bias", "percent1",
                  "(first_step + %d * later + (all - warmup) * timed_mean) / all / timed_mean - 1",
                  ECH__LAB_WARMUP - 1);
    ech__tell_let(s, "planning", "seconds", "[first summary.planning_s]");
    ech__tell_let(s, "kernels", "integer", "[first summary.timed_kernels]");
    ech__tell_let(s, "planning_again", "seconds", "[third summary.planning_s]");
}

/* ---- tables and plots ---- */

static void tell_row(ech__sheet *s, const char *run, const char *label)
{
    ech__tell_row(s);
    ech__tell_words(s, "%s", label);
    ech__tell_plain(s, "[%s seed]", run);
    ech__tell_plain(s, "first[%s time_s 1]", run);
    ech__tell_plain(s, "first[%s time_s 2]", run);
    ech__tell_cell(s, "steps[%s time_s]", run);
    ech__tell_plain(s, "std[%s time_s]", run);
    ech__tell_plain(s, "[%s summary.final_loss]", run);
    ech__tell_words(s, "%.12s", ech__tell_text(s, run, "summary.losses_sha256"));
}

static void tell_tables(ech__sheet *s)
{
    ech__tell_table(
        s, "The same training, and another seed",
        "Timed steps: the median. Losses: the beginning of a hash over the bits of all of them.");
    ech__tell_column(s, "run", "text");
    ech__tell_column(s, "seed", "integer");
    ech__tell_column(s, "step 1", "seconds");
    ech__tell_column(s, "step 2", "seconds");
    ech__tell_column(s, "timed steps", "seconds");
    ech__tell_column(s, "deviation", "seconds");
    ech__tell_column(s, "last loss", "fixed6");
    ech__tell_column(s, "losses", "text");
    for (int i = 0; i < REPEATS; i++)
        tell_row(s, SAME[i], SAME[i]);
    tell_row(s, "other", "other seed");
}

static void tell_plots(ech__sheet *s)
{
    ech__tell_plot(s, "steps", "Time of every step", NULL);
    ech__tell_x(s, (ech__tell_axis){.label = "step"});
    ech__tell_y(s, (ech__tell_axis){.label = "time", .unit = "ms"});
    ech__tell_band(s, 0.5, ECH__LAB_WARMUP + 0.5, "warm-up");
    for (int i = 0; i < REPEATS; i++) {
        ech__tell_series(s, "%s", SAME[i]);
        ech__tell_from(s, (ech__tell_source){.run = SAME[i], .y = "time_s", .scale = 1e3});
    }
    ech__tell_series(s, "other seed");
    ech__tell_from(s, (ech__tell_source){.run = "other", .y = "time_s", .scale = 1e3});

    ech__tell_plot(s, "stacked", "What a step's time is spent on",
                   "Means of the three runs with the same seed.");
    ech__tell_y(s, (ech__tell_axis){.label = "time", .unit = "s"});
    ech__tell_bar_format(s, "seconds");
    ech__tell_category(s, "step 1");
    ech__tell_category(s, "rest of the warm-up");
    ech__tell_category(s, "timed steps");
    for (int p = 0; p < PART_COUNT; p++) {
        ech__tell_series(s, "%s", PARTS[p].name);
        ech__tell_bar(s, "%s", PARTS[p].first);
        ech__tell_bar(s, "%s", PARTS[p].later);
        ech__tell_bar(s, "%s", PARTS[p].steady);
    }
}

/* ---- answers ---- */

static void answer_warmup(ech__sheet *s)
{
    ech__tell_ask(s, "Why is a warm-up needed, and where does the extra time go?");
    ech__tell_say(s, "The first step takes {first_step}, a step behind the warm-up {steady}: "
                     "{ratio} times as much ({ratio.low} to {ratio.high}).");
    if (ech__tell_side(s, "ratio", 1) > 0) {
        ech__tell_say(s, "Of the extra {extra}, {forward_extra} are in the forward pass, "
                         "{backward_extra} in the backward pass and {update_extra} in the update.");
        int largest = 0;
        for (int p = 1; p < PART_COUNT; p++) {
            if (ech__tell_value(s, "%s", PARTS[p].extra).value >
                ech__tell_value(s, "%s", PARTS[largest].extra).value)
                largest = p;
        }
        ech__tell_sayf(s,
                       "The %s pays most. Kernels are created and memory is allocated before the "
                       "first step, so what is left is memory and caches that are used for the "
                       "first time.",
                       PARTS[largest].name);
    } else if (ech__tell_knows(s, "ratio")) {
        ech__tell_say(s, "So in these runs the first step cannot be told from the others.");
    }
    ech__tell_say(s, "The other steps of the warm-up take {later_ratio} times a timed one.");
    ech__tell_say(s, ech__tell_value(s, "bias").value > 0
                         ? "With the {warmup} steps of the warm-up the mean of the {all} steps "
                           "would be {bias} too high."
                         : "Here the mean of all {all} steps would not be higher with the "
                           "{warmup} steps of the warm-up: it changes by {bias}.");
    ech__tell_say(s, "What comes before the first step is in no step: the first run planned for "
                     "{planning} and timed {kernels} kernels, the third planned for "
                     "{planning_again} with what was known by then.");
}

static bool same_losses(ech__sheet *s, const char *a, const char *b)
{
    const char *hash = ech__tell_text(s, a, "summary.losses_sha256");
    return *hash && !strcmp(hash, ech__tell_text(s, b, "summary.losses_sha256"));
}

static void answer_seed(ech__sheet *s)
{
    ech__tell_let(s, "loss", "fixed6", "[first summary.final_loss]");
    ech__tell_let(s, "other_loss", "fixed6", "[other summary.final_loss]");
    ech__tell_let(s, "loss_moves", "percent2", "abs(other_loss - loss) / loss");
    ech__tell_let(s, "time_moves", "fixed3", "steps[other time_s] / steady");
    ech__tell_let(s, "spread", "percent1",
                  "max(steps[first time_s], steps[second time_s], steps[third time_s]) / "
                  "min(steps[first time_s], steps[second time_s], steps[third time_s]) - 1");

    ech__tell_ask(s, "Why must randomness be controlled?");
    if (ech__tell_has(s, SAME[0]) && ech__tell_has(s, SAME[1]) && ech__tell_has(s, SAME[2]))
        ech__tell_say(s, same_losses(s, SAME[0], SAME[1]) && same_losses(s, SAME[0], SAME[2])
                             ? "With the same seed all {all} losses of the three runs have the "
                               "same bits."
                             : "With the same seed the losses of the three runs do NOT have the "
                               "same bits, which they should.");
    ech__tell_say(s, same_losses(s, SAME[0], "other")
                         ? "Another seed gives the very same losses, which it should not."
                         : "Another seed moves the last loss from {loss} to {other_loss}, by "
                           "{loss_moves}: a change of the program that moves it by less could not "
                           "be seen without the seed.");
    ech__tell_say(s,
                  "Times are not controlled by it: the same training again differs by {spread}.");
    ech__tell_say(s, ech__tell_side(s, "time_moves", 1)
                         ? "The other seed takes {time_moves} times as long ({time_moves.low} to "
                           "{time_moves.high}), more than runs of the same seed differ by."
                         : "The other seed takes {time_moves} times as long ({time_moves.low} to "
                           "{time_moves.high}), so that it changes the work cannot be said.");
}

static void tell(ech__sheet *s)
{
    name_figures(s);
    tell_tables(s);
    tell_plots(s);
    answer_warmup(s);
    answer_seed(s);
}

const ech__study_card ech__study_warmup = {
    .id = "warmup",
    .group = 'A',
    .place = 1,
    .title = "Warm-up and randomness",
    .about = "The same training on one device three times with the same seed, and once with "
             "another.",
    .params = params,
    .quick_seconds = 5,
    .full_seconds = 30,
    .runs = runs,
    .tell = tell,
};
