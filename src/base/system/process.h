/* Child processes: the one way in which a program is started.
 *
 *     const ech__process_options o = {.argv = argv, .in = ECH__PROCESS_NULL, .out = ECH__PROCESS_INHERIT,
 *                                     .err = fd, .pass_fd = -1};
 *     ech__process_failure why;
 *     const pid_t pid = ech__process_start(&o, &why);
 *     if (pid < 0) ... why.step, strerror(why.error) ...
 *     const int status = ech__process_wait(pid);
 *
 * A child is killed when the thread that started it ends, so none outlives its program. It gets the standard
 * descriptors that are given and, of all others, only pass_fd. */
#pragma once

#include "base/system/cpus.h"

#include <sys/types.h>

enum {
    ECH__PROCESS_INHERIT = -1, /* the descriptor of this process */
    ECH__PROCESS_NULL = -2,    /* /dev/null */
    ECH__PROCESS_LOST = 255,   /* exit code of a child that cannot be waited for: no success */
};

typedef struct ech__process_options {
    const char *path;  /* NULL: argv[0], looked up in PATH */
    char *const *argv; /* NULL at its end */
    char *const *env;  /* NULL: this process's */
    const char *dir;   /* NULL: this process's */
    int in, out, err;  /* descriptors, or ECH__PROCESS_INHERIT or _NULL */
    int pass_fd;       /* close-on-exec here, open in the child under the same number; -1: none */
    bool own_group;    /* it leads a process group of its own */
    const ech__cpus *cpus; /* that it is bound to; NULL: those of this thread */
    /* Signals: called in the child instead of unblocking all and giving SIGPIPE its default. Async-signal-safe. */
    void (*set_signals)(const void *user);
    const void *user;
} ech__process_options;

#define ECH__PROCESS_STEP_LIST(X)                                                                  \
    X(FORK, "cannot be forked")                                                                    \
    X(TIE, "cannot be tied to its parent")                                                         \
    X(CPUS, "cannot be bound to its cores")                                                        \
    X(FILES, "cannot get its standard input and output")                                           \
    X(EXEC, "cannot be started")

typedef enum ech__process_step {
#define ECH__PROCESS_STEP_ENUM(id, text) ECH__PROCESS_##id,
    ECH__PROCESS_STEP_LIST(ECH__PROCESS_STEP_ENUM)
#undef ECH__PROCESS_STEP_ENUM
} ech__process_step;

const char *ech__process_step_text(ech__process_step step);

typedef struct ech__process_failure {
    ech__process_step step;
    int error; /* an errno */
} ech__process_failure;

/* Returns when the program runs. -1: it does not, and no child is left. */
pid_t ech__process_start(const ech__process_options *o, ech__process_failure *why);

/* Waits for its end: the status as waitpid gives it, ECH__PROCESS_LOST where waitpid fails. */
int ech__process_wait(pid_t pid);

/* This process's environment with count changes: "NAME=VALUE" sets, "NAME" removes. The caller frees the list, not the
 * texts. NULL where there is no memory. */
char **ech__process_env(const char *const *changes, size_t count);

/* Why a process failed, as it said itself: the last line of its errors, in the file at path, that says something.
 * Without "echelon COMMAND: " before it and without control characters; what a rank said comes before what its
 * launcher says of the rank's end. False where the file has no such line. */
bool ech__last_words(const char *path, char *out, size_t bytes);
