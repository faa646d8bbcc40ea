#include "comm/launch/signals.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const int caught[ECH__LAUNCH_SIGNALS] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP};

/* Blocking a signal here does not block it in threads that libraries have started when they were
 * loaded, as OpenBLAS does. One that is delivered to them is sent on to the first thread, where it
 * waits to be read. */
static void send_on(int signal)
{
    const int error = errno;
    if (gettid() != getpid())
        tgkill(getpid(), getpid(), signal);
    errno = error;
}

void ech__launch_signals_restore(const ech__launch_signals *signals)
{
    for (int i = 0; i < ECH__LAUNCH_SIGNALS; i++)
        sigaction(caught[i], &signals->old[i], NULL);
    sigprocmask(SIG_SETMASK, &signals->old_mask, NULL);
}

ech_status ech__launch_signals_open(ech_ctx *ctx, ech__launch_signals *out)
{
    if (gettid() != getpid())
        return ech__fail(ctx, ECH_E_INVALID, "only a program's first thread can start ranks");
    sigset_t mask;
    sigemptyset(&mask);
    for (int i = 0; i < ECH__LAUNCH_SIGNALS; i++) {
        sigaction(caught[i], NULL, &out->old[i]);
        if (caught[i] == SIGCHLD || out->old[i].sa_handler != SIG_IGN)
            sigaddset(&mask, caught[i]);
    }
    out->fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    if (out->fd < 0)
        return ech__fail(ctx, ECH_E_IO, "no descriptor for signals: %s", strerror(errno));
    sigprocmask(SIG_BLOCK, &mask, &out->old_mask);
    const struct sigaction action = {.sa_handler = send_on, .sa_flags = SA_RESTART};
    for (int i = 0; i < ECH__LAUNCH_SIGNALS; i++) {
        if (sigismember(&mask, caught[i]))
            sigaction(caught[i], &action, NULL);
    }
    return ECH_OK;
}

void ech__launch_signals_close(ech__launch_signals *signals)
{
    ech__launch_signals_restore(signals);
    close(signals->fd);
    signals->fd = -1;
}
