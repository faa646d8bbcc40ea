/* A study that only tests have: a run that fails, one that builds on it, one that is known not to
 * work, and one that works. */
#include "lab/sheet.h"

#define WORDS "train --model linear --dim 32 --depth 2 --batch-size 8 --steps 8 --warmup 2"

static void runs(ech__lab_runs *lab)
{
    ech__lab_run(lab, "large", WORDS " --device-memory 1K --save-params @out/w.safetensors");
    ech__lab_run(lab, "onward", WORDS " --init @of:large/w.safetensors");
    ech__lab_skip(lab, "absurd", "%d devices are too many", 1000);
    /* The words of the probe's first run in quick sizes. */
    ech__lab_run(lab, "good", WORDS " --save-params @out/w.safetensors");
}

static void tell(ech__sheet *s)
{
    static const char *const ids[] = {"large", "onward", "absurd", "good"};
    ech__tell_table(s, "Losses", NULL);
    ech__tell_column(s, "run", "text");
    ech__tell_column(s, "loss", "fixed4");
    for (int i = 0; i < 4; i++) {
        ech__tell_row(s);
        ech__tell_words(s, "%s", ids[i]);
        ech__tell_cell(s, "[%s summary.final_loss]", ids[i]);
    }
}

const ech__study_card ech__study_troubled = {
    .id = "troubled",
    .group = 'B',
    .place = 901,
    .title = "Trouble",
    .about = "Runs that fail, and the rest goes on.",
    .quick_seconds = 1,
    .full_seconds = 1,
    .runs = runs,
    .tell = tell,
};
