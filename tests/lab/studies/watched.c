/* A study that only tests have: two ranks that train slowly, long enough to be looked at. */
#include "lab/sheet.h"

static void runs(ech__lab_runs *lab)
{
    ech__lab_run(lab, "slow",
                 "train --model linear --dim 64 --depth 2 --global-batch 16 --steps 100000 "
                 "--warmup 10 --devices 2 --delay-ms 2");
}

static void tell(ech__sheet *s)
{
    ech__tell_table(s, "Time", NULL);
    ech__tell_column(s, "time/step", "seconds");
    ech__tell_row(s);
    ech__tell_cell(s, "steps[slow time_s]");
}

const ech__study_card ech__study_watched = {
    .id = "watched",
    .group = 'B',
    .place = 903,
    .title = "Watched",
    .about = "A training that somebody looks on at.",
    .quick_seconds = 1,
    .full_seconds = 1,
    .runs = runs,
    .tell = tell,
};
