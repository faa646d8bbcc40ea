/* Starts ranks on this machine and looks after them until the last one is gone.
 *
 *     ech__launch_options o = ech__launch_defaults();
 *     o.ranks = 2;  o.argv = argv;  o.output = forward;
 *     ech__launch_result r;
 *     ECH_TRY(ech__launch(ctx, &o, &r));       r.code is what the program should exit with
 *
 * Ranks are direct children by fork and exec, bound to cores of their own, with torchrun's
 * variables (RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, TORCHELASTIC_RESTART_COUNT) and
 * ECHELON_COMM_FD, the descriptor of their shared memory. They die with the launcher. The first
 * rank that fails is named; the others get SIGTERM, and SIGKILL after the grace. So do the
 * processes that ranks have started, once the ranks are gone.
 *
 * leftovers.c finds what ranks have started, rank_process.c starts one rank, rank_lines.c keeps its
 * last lines, launch_signals.c catches what the launcher is told, supervise.c looks after the ranks
 * of one attempt.
 */
#pragma once

#include "base/status.h"

typedef struct ech__launch_options {
    int ranks;
    int max_restarts; /* of all ranks, after one has failed */
    bool
        tells_begin; /* the program calls ech__comm_begun: if it exits by itself before, it is not started again */
    char *const *argv; /* program and arguments, as execvp takes them */
    const char *path;  /* the program's file; NULL: argv[0] in PATH */
    double grace_s;    /* between SIGTERM and SIGKILL */
    bool quiet_others; /* only rank 0's standard output is let through */
    /* By which a rank says that the job has failed, that it has said why, and that another try
     * would end alike: nothing is added, nothing is started again, and the job's code is 1. 0:
     * none. */
    int settled_code;
    /* What ranks write to standard error, as it comes; rank 0's may be a piece of a line, others'
     * are whole lines. */
    void (*output)(void *user, int rank, const char *text, size_t bytes);
    /* A sentence of the launcher itself: which rank failed, that all are started again. */
    void (*say)(void *user, const char *line);
    void *user;
} ech__launch_options;

ech__launch_options ech__launch_defaults(void);

typedef struct ech__launch_result {
    int code;        /* 0, the failed rank's code, or 128 + its signal */
    int failed_rank; /* -1: none */
    int signal;      /* that killed it; 0: it exited by itself */
    int restarts;
} ech__launch_result;

/* Fails where no rank could be started; a rank that fails later is a result. out->code is set in
 * both cases: a program that is not there gives 127, one that cannot be run 126. While it runs,
 * SIGINT, SIGTERM and SIGHUP are handed on to the ranks and end the job with 128 + signal. To be
 * called by a program's first thread, because ranks die with the thread that started them. */
ech_status ech__launch(ech_ctx *ctx, const ech__launch_options *options, ech__launch_result *out);
