/* What a lab looks like while it runs and when it is over. Progress goes to stderr, the table to stdout. */
#pragma once

#include "lab/lab.h"

/* What became of the runs of a study. */
typedef struct ech__lab_tally {
    const char *id;
    size_t done, reused, failed, skipped;
    double seconds; /* from its beginning to its end */
    bool told;
} ech__lab_tally;

typedef struct ech__lab_shown {
    ech__lab_tally *studies; /* one for each, and the last for the noise; owned */
    size_t count;
    double began_s; /* of the study that runs */
    bool open;      /* the cursor is inside a line */
} ech__lab_shown;

/* count studies are going to be run. */
ech_status ech__lab_shown_init(ech_ctx *ctx, ech__lab_shown *shown, size_t count);
void ech__lab_shown_fini(ech_ctx *ctx, ech__lab_shown *shown);

/* An ech__lab_options show; user is an ech__lab_shown. */
void ech__lab_show_event(const ech__lab_event *event, void *user);
/* Ends the progress line, if one is open. */
void ech__lab_show_end(ech__lab_shown *shown);
size_t ech__lab_shown_told(const ech__lab_shown *shown);
/* One line for each study that has begun. */
void ech__lab_show_table(const ech__lab_shown *shown);

/* Every study, or what single ones are about. */
void ech__lab_show_list(const ech__study_card *const *cards, size_t count);
void ech__lab_show_card(const ech__study_card *card);
ech_json *ech__lab_list_json(const ech__study_card *const *cards, size_t count);
