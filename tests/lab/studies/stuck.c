/* A study that only tests have: it never comes to an end of asking for runs. */
#include "lab/sheet.h"

#include <stdio.h>

static void runs(ech__lab_runs *lab)
{
    fputs("stuck\n", stderr); /* so that a test knows when */
    for (volatile int round = 0; round >= 0; round = 0)
        ech__lab_skip(lab, "same", "it is asked for again and again");
}

static void tell(ech__sheet *s)
{
    (void)s;
}

const ech__study_card ech__study_stuck = {
    .id = "stuck",
    .group = 'B',
    .place = 904,
    .title = "Stuck",
    .about = "A study that asks for runs for ever.",
    .quick_seconds = 1,
    .full_seconds = 1,
    .runs = runs,
    .tell = tell,
};
