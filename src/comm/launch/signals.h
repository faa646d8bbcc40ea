/* What the launcher is told by signals, read from a descriptor.
 *
 *     ech__launch_signals signals;
 *     ECH_TRY(ech__launch_signals_open(ctx, &signals));
 *     ... poll signals.fd for reading, read struct signalfd_siginfo ...
 *     ech__launch_signals_close(&signals);
 *
 * SIGCHLD, SIGINT, SIGTERM and SIGHUP are caught; one that this process was told to ignore (nohup)
 * stays ignored.
 */
#pragma once

#include "base/status.h"

#include <signal.h>

enum { ECH__LAUNCH_SIGNALS = 4 };

typedef struct ech__launch_signals {
    int fd;
    sigset_t old_mask;
    struct sigaction old[ECH__LAUNCH_SIGNALS];
} ech__launch_signals;

/* By the program's first thread only. */
ech_status ech__launch_signals_open(ech_ctx *ctx, ech__launch_signals *out);
/* Puts dispositions and mask back as they were. Async-signal-safe: a child calls it between fork
 * and exec, where the descriptor is closed by exec. */
void ech__launch_signals_restore(const ech__launch_signals *signals);
void ech__launch_signals_close(ech__launch_signals *signals);
