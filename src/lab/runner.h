/* One run: a program in a process of its own, with a time limit, that never outlives who started it.
 *
 *     const ech__runner_job job = {.program = "/proc/self/exe", .argv = argv, .env = environ,
 *                                  .out = "run/output.txt", .err = "run/errors.txt", .limit_s = 120, .stop_fd = -1};
 *     ech__runner_end end;
 *     ECH_TRY(ech__runner_run(ctx, &job, &end));
 *     if (end.how != ECH__RUNNER_EXITED || end.code != 0) ... ech__runner_reason(&end, job.err, text, sizeof text) ...
 *
 * The process leads a group of its own, in which its ranks and whatever else it starts are; the
 * whole group is ended at its limit, when it is to be stopped, and when the process is over. It
 * reads nothing.
 */
#pragma once

#include "base/status.h"

#include <sys/types.h>

typedef struct ech__runner_job {
    const char *program; /* its path; PATH is not searched */
    char *const *argv;   /* NULL at its end */
    char *const *env;
    const char *out, *err; /* files that its output and its errors go to */
    double limit_s;
    int stop_fd; /* the run is stopped when it can be read from; -1: never */
    /* When it has begun, and once a second; may be NULL. */
    void (*tick)(void *user, pid_t pid, double seconds);
    void *user;
} ech__runner_job;

typedef struct ech__runner_end {
    enum { ECH__RUNNER_EXITED, ECH__RUNNER_KILLED, ECH__RUNNER_LIMIT, ECH__RUNNER_STOPPED } how;
    int code; /* its exit code, or the signal that killed it */
    double seconds;
} ech__runner_end;

/* Returns when it is over. An error: it could not be started at all. By the thread that lives as long as the program: a
 * run dies with the thread that started it. */
ech_status ech__runner_run(ech_ctx *ctx, const ech__runner_job *job, ech__runner_end *out);

/* Why it failed, in one line without control characters: the last line of its errors that says something, without
 * "echelon COMMAND: " before it, or how it ended. */
void ech__runner_reason(const ech__runner_end *end, const char *err, char *out, size_t bytes);
