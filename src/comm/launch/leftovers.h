/* Processes that ranks have started and left behind, at any depth. They are found by a variable in
 * their environment that only this attempt of a job has, because a process that has lost its parent
 * cannot be found by its ancestors, and because process groups would take the ranks out of the
 * terminal's foreground.
 *
 *     char mark[ECH__MARK_BYTES];
 *     ECH_TRY(ech__mark_make(ctx, ECH__MARK_NAME, mark));          goes into every rank's environment
 *     ECH_TRY(ech__watch_open(ctx, mark, &watch)); ends them where the launcher is killed
 *     ... the ranks are gone ...
 *     ech__leftovers_signal(mark, SIGTERM);
 *     ech__watch_close(&watch);
 */
#pragma once

#include "base/status.h"

#include <sys/types.h>

#define ECH__MARK_NAME "ECHELON_JOB"
enum { ECH__MARK_BYTES = 48 };

/* A variable of such a name, of at most 14 letters, whose value is a random number. */
ech_status ech__mark_make(ech_ctx *ctx, const char *name, char mark[ECH__MARK_BYTES]);

/* Sends the signal, or nothing where it is 0, to every process that has the mark, and returns how
 * many there are. Calls nothing that is not safe after a fork. */
int ech__leftovers_signal(const char *mark, int signal);

/* A process that sleeps until the one that opened it is gone, and then kills all that have the
 * mark. */
typedef struct ech__watch {
    pid_t pid;
    int fd;
} ech__watch;

ech_status ech__watch_open(ech_ctx *ctx, const char *mark, ech__watch *out);
/* Ends the watching; kills nobody. */
void ech__watch_close(ech__watch *watch);
