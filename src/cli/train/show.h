/* What a run looks like on a terminal. Results go to stdout, progress to stderr. */
#pragma once

#include "train/run.h"

/* One line on what is going to be run, before the steps. */
void ech__show_head(const ech__run *run);
/* A table of steps and the summary. */
void ech__show_run(const ech__run *run);
/* A table of kernels with their times, and the summary. */
void ech__show_kernels(const ech__run *run);

/* Layers on several devices: where they are, what moves between them, and what each device does (show_pipe.c).
 * Nothing for other runs. */
void ech__show_pipe(const ech__run *run);
/* A line of the head. */
void ech__show_pipe_head(const ech__run *run);
/* The memory of each device by kind. */
void ech__show_memory_of_devices(const ech_trainer *trainer);

/* A line that is written over on a terminal; elsewhere a plain line every few seconds. */
typedef struct ech__progress {
    int64_t last_ns; /* when it was last shown; 0: never */
    bool open;       /* the cursor is inside a line */
} ech__progress;

/* An ech__run_events on_step; user is an ech__progress. */
void ech__show_progress(void *user, const ech__run *run, const ech__run_step *step);
/* An ech__run_events on_epoch; user is an ech__progress. */
void ech__show_epoch(void *user, const ech__run *run, const ech__run_epoch *epoch);
void ech__show_progress_end(ech__progress *progress);
