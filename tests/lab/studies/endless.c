/* A study that only tests have: two ranks that train until somebody stops them. */
#include "lab/sheet.h"

static void runs(ech__lab_runs *lab)
{
    ech__lab_run(lab, "endless",
                 "train --model linear --dim 32 --depth 2 --global-batch 8 --steps 3000000 "
                 "--warmup 2 --devices 2");
}

static void tell(ech__sheet *s)
{
    ech__tell_table(s, "Time", NULL);
    ech__tell_column(s, "time/step", "seconds");
    ech__tell_row(s);
    ech__tell_cell(s, "steps[endless time_s]");
}

const ech__study_card ech__study_endless = {
    .id = "endless",
    .group = 'B',
    .place = 902,
    .title = "Without end",
    .about = "A training that is always stopped.",
    .quick_seconds = 1,
    .full_seconds = 1,
    .runs = runs,
    .tell = tell,
};
