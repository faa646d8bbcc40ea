/* A study that only tests have: a training that diverges is a result, and figures that depend on its loss say so. */
#include "lab/sheet.h"

#define WORDS                                                                                      \
    "train --model linear --dim 64 --depth 3 --batch-size 64 --steps 12 --warmup 2 --lr %" PRId64

static const ech__lab_param params[] = {{"lr", 100000, 100000, 1, 1000000, "learning rate"}, {0}};

static void runs(ech__lab_runs *lab)
{
    ech__lab_run(lab, "tame", WORDS, INT64_C(0));
    ech__lab_run(lab, "wild", WORDS, ech__lab_param_of(lab, "lr"));
}

static void tell(ech__sheet *s)
{
    static const char *const ids[] = {"tame", "wild"};
    ech__tell_let(s, "gap", "fixed4", "[wild summary.final_loss] - [tame summary.final_loss]");
    ech__tell_table(s, "Losses", NULL);
    ech__tell_column(s, "run", "text");
    ech__tell_column(s, "loss", "fixed4");
    ech__tell_column(s, "mean loss", "fixed4");
    ech__tell_column(s, "time/step", "seconds");
    for (int i = 0; i < 2; i++) {
        ech__tell_row(s);
        ech__tell_words(s, "%s", ids[i]);
        ech__tell_cell(s, "[%s summary.final_loss]", ids[i]);
        ech__tell_cell(s, "mean[%s loss]", ids[i]);
        ech__tell_cell(s, "steps[%s time_s]", ids[i]);
    }
    ech__tell_plot(s, "lines", "Loss", NULL);
    ech__tell_x(s, (ech__tell_axis){.label = "step"});
    ech__tell_y(s, (ech__tell_axis){.label = "loss"});
    ech__tell_series(s, "wild");
    ech__tell_from(s, (ech__tell_source){.run = "wild", .y = "loss"});
    ech__tell_ask(s, "How far are the losses apart?");
    ech__tell_say(s, "By {gap}.");
}

const ech__study_card ech__study_wild = {
    .id = "wild",
    .group = 'B',
    .place = 904,
    .title = "Divergence",
    .about = "A training with a rate that is far too large.",
    .params = params,
    .quick_seconds = 1,
    .full_seconds = 1,
    .runs = runs,
    .tell = tell,
};
