#include "lab/runner.h"
#include "base/system/clock.h"
#include "base/system/process.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const double GRACE = 1.0; /* seconds between asking a group to end and ending it */

/* Returns when the program runs, or when it is known why it does not. */
static ech_status start(ech_ctx *ctx, const ech__runner_job *job, pid_t *pid)
{
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    const int out = open(job->out, flags, 0666), err = out < 0 ? -1 : open(job->err, flags, 0666);
    ech__process_failure why = {.error = errno};
    *pid = -1;
    if (err >= 0)
        *pid = ech__process_start(&(ech__process_options){.path = job->program,
                                                          .argv = job->argv,
                                                          .env = job->env,
                                                          .in = ECH__PROCESS_NULL,
                                                          .out = out,
                                                          .err = err,
                                                          .pass_fd = -1,
                                                          .own_group = true},
                                  &why);
    if (out >= 0)
        close(out);
    if (err >= 0)
        close(err);
    return *pid < 0 ? ech__fail(ctx, ECH_E_IO, "%s cannot be started: %s", job->program,
                                strerror(why.error))
                    : ECH_OK;
}

/* Waits for the process (until seconds have passed) and for the order to stop. */
typedef enum news { NEWS_NONE, NEWS_OVER, NEWS_STOP } news;

static news wait_for(int process, int stop_fd, double seconds)
{
    struct pollfd fds[2] = {{.fd = process, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
    const int ms = seconds <= 0 ? 0 : seconds > 3600 ? 3600000 : (int)ceil(seconds * 1e3);
    if (poll(fds, 2, ms) <= 0)
        return NEWS_NONE;
    return fds[0].revents ? NEWS_OVER : NEWS_STOP;
}

/* Asks the group to end, and ends it where it does not. */
static void end_group(pid_t pid, int process)
{
    kill(-pid, SIGTERM);
    if (wait_for(process, -1, GRACE) != NEWS_OVER)
        kill(-pid, SIGKILL);
}

static void watch(const ech__runner_job *job, pid_t pid, int process, ech__runner_end *out)
{
    const int64_t begin = ech__clock_wall();
    double next = 0;
    out->how = ECH__RUNNER_EXITED;
    for (;;) {
        const double now = ech__seconds(ech__clock_wall() - begin);
        if (now >= job->limit_s) {
            out->how = ECH__RUNNER_LIMIT;
            break;
        }
        if (now >= next) {
            if (job->tick)
                job->tick(job->user, pid, now);
            next = floor(now) + 1;
        }
        const news heard = wait_for(process, job->stop_fd, fmin(next, job->limit_s) - now);
        if (heard == NEWS_STOP)
            out->how = ECH__RUNNER_STOPPED;
        if (heard != NEWS_NONE)
            break;
    }
    if (out->how != ECH__RUNNER_EXITED)
        end_group(pid, process);
    out->seconds = ech__seconds(ech__clock_wall() - begin);
}

ech_status ech__runner_run(ech_ctx *ctx, const ech__runner_job *job, ech__runner_end *out)
{
    pid_t pid = -1;
    ECH_TRY(start(ctx, job, &pid));
    const int process = pidfd_open(pid, 0);
    if (process < 0) {
        const int error = errno;
        kill(-pid, SIGKILL);
        ech__process_wait(pid);
        return ech__fail(ctx, ECH_E_UNSUPPORTED, "a run cannot be waited for: %s", strerror(error));
    }
    watch(job, pid, process, out);
    /* What the process has left behind. Its number cannot be another's before it is reaped. */
    siginfo_t info;
    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR)
        ;
    kill(-pid, SIGKILL);
    const int status = ech__process_wait(pid);
    close(process);
    if (WIFSIGNALED(status) && out->how == ECH__RUNNER_EXITED)
        out->how = ECH__RUNNER_KILLED;
    out->code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    return ECH_OK;
}

/* ---- why it failed ---- */

void ech__runner_reason(const ech__runner_end *end, const char *err, char *out, size_t bytes)
{
    switch (end->how) {
    case ECH__RUNNER_LIMIT:
        snprintf(out, bytes, "stopped after %.1f s, its limit", end->seconds);
        return;
    case ECH__RUNNER_STOPPED:
        snprintf(out, bytes, "stopped after %.1f s with the lab", end->seconds);
        return;
    case ECH__RUNNER_KILLED:
        snprintf(out, bytes, "killed by signal %d", end->code);
        return;
    case ECH__RUNNER_EXITED:
        if (!ech__last_words(err, out, bytes))
            snprintf(out, bytes, "failed with exit code %d and no word", end->code);
        return;
    }
}
