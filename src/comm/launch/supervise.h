/* Looks after the ranks of one attempt, from the first to the last one gone. One thread, which
 * sleeps in poll. */
#pragma once

#include "base/system/clock.h"
#include "comm/launch/launch.h"
#include "comm/launch/rank_lines.h"
#include "comm/launch/signals.h"

#include <poll.h>
#include <sys/types.h>

typedef struct ech__rank_state {
    pid_t pid;  /* 0: not there, or gone and waited for */
    int err;    /* where its standard error is read; -1: closed */
    int status; /* as waitpid gave it */
    ech__rank_lines lines;
} ech__rank_state;

typedef enum ech__job_phase {
    ECH__JOB_RUNS,
    ECH__JOB_ASKED, /* to stop, by a signal of the launcher's that is not SIGTERM */
    ECH__JOB_TOLD,  /* to stop, by SIGTERM */
    ECH__JOB_KILLED
} ech__job_phase;

typedef struct ech__job {
    const ech__launch_options *options;
    const ech__launch_signals *signals;
    ech__rank_state *ranks;
    const char *mark;     /* that processes have which ranks have started; see leftovers.h */
    struct pollfd *polls; /* signals, then the ranks */
    int alive;
    uint64_t printed; /* lines, of all ranks */
    ech__job_phase phase;
    ech__waited stopping;     /* since the stop began */
    int64_t next_ns, kill_ns; /* of that: when its next step is due, and its last */
    int failed;               /* the first rank that failed; -1 */
    int told;                 /* signal that the launcher got; 0 */
    int64_t told_ns;
} ech__job;

/* Runs until all ranks are gone and waited for, and what they have left behind is gone too.
 * options, mark, signals and ranks are set, all else is 0. */
void ech__job_supervise(ech__job *job);
/* Whether a rank has ended with options->settled_code. */
bool ech__job_is_settled(const ech__job *job, int rank);
/* Kills and waits for the ranks that are there. */
void ech__job_abandon(ech__job *job);
