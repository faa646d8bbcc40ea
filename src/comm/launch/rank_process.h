/* One rank as a child process. */
#pragma once

#include "comm/launch/launch.h"
#include "comm/launch/signals.h"

#include <sys/types.h>

typedef struct ech__rank_start {
    const ech__launch_options *options;
    const ech__launch_signals *signals; /* caught now; the child gets them back */
    int rank;
    int restarts;     /* how often the job was started again */
    const char *mark; /* see leftovers.h */
    int comm_fd;      /* of the ranks' shared memory; close-on-exec here, inherited by the child */
    const int *cores;
    int ncores;
} ech__rank_start;

/* Returns when the program runs: *pid, and *err, from which its standard error can be read without
 * blocking. Where it fails no child is left, and *code is what a shell would exit with: 127, 126,
 * or else 1. */
ech_status ech__rank_spawn(ech_ctx *ctx, const ech__rank_start *start, pid_t *pid, int *err,
                           int *code);
