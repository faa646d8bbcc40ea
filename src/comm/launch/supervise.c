#include "comm/launch/supervise.h"
#include "base/system/process.h"
#include "comm/launch/leftovers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

static __attribute__((format(printf, 2, 3))) void say(const ech__job *job, const char *fmt, ...)
{
    char line[ECH__TAIL_BYTES + 64];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (job->options->say)
        job->options->say(job->options->user, line);
}

/* ---- output ---- */

/* One rank's lines, on their way out. */
typedef struct outlet {
    const ech__launch_options *options;
    int rank;
} outlet;

static void put(void *user, const char *text, size_t bytes)
{
    const outlet *o = user;
    if (o->options->output)
        o->options->output(o->options->user, o->rank, text, bytes);
}

/* Rank 0's bytes have gone out already. */
static void put_nothing(void *user, const char *text, size_t bytes)
{
    (void)user, (void)text, (void)bytes;
}

/* Takes what is there, at most one buffer full. False when there is nothing for now, or for ever. */
static bool read_rank(ech__job *job, int rank)
{
    char text[16384];
    ech__rank_state *r = &job->ranks[rank];
    outlet o = {job->options, rank};
    if (r->err < 0)
        return false;
    const ssize_t got = read(r->err, text, sizeof text);
    if (got < 0)
        return errno == EINTR;
    if (got == 0) {
        close(r->err);
        r->err = -1;
        return false;
    }
    if (rank == 0)
        put(&o, text, (size_t)got);
    ech__rank_lines_take(&r->lines, text, (size_t)got, &job->printed, rank == 0 ? put_nothing : put,
                         &o);
    return true;
}

/* All that a rank which is gone has left. Its own children may go on to write, so there is an end
 * to it. */
static void drain(ech__job *job, int rank)
{
    outlet o = {job->options, rank};
    for (int i = 0; i < 64 && read_rank(job, rank); i++)
        ;
    ech__rank_lines_end(&job->ranks[rank].lines, &job->printed, rank == 0 ? put_nothing : put, &o);
}

/* ---- stopping ---- */

static void send_all(const ech__job *job, int signal)
{
    for (int r = 0; r < job->options->ranks; r++) {
        if (job->ranks[r].pid > 0)
            kill(job->ranks[r].pid, signal);
    }
}

/* The ranks have got the signal. SIGCONT goes with it, because one that was stopped would not take
 * it. */
static void begin_stop(ech__job *job, int signal)
{
    send_all(job, SIGCONT);
    job->phase = signal == SIGTERM ? ECH__JOB_TOLD : ECH__JOB_ASKED;
    job->stopping = ech__waited_start();
    job->kill_ns = (int64_t)(job->options->grace_s * 1e9);
    job->next_ns = signal == SIGTERM ? job->kill_ns : job->kill_ns / 2;
}

static void kill_all(ech__job *job)
{
    send_all(job, SIGKILL);
    job->phase = ECH__JOB_KILLED;
}

/* Names those that did not stop by themselves; many are only counted. */
static void say_killed(const ech__job *job)
{
    char list[64] = "";
    size_t used = 0;
    for (int r = 0; r < job->options->ranks; r++) {
        if (job->ranks[r].pid > 0 && used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", used ? ", " : "", r);
    }
    if (used >= sizeof list)
        say(job, "%d ranks did not stop within %g s and are killed", job->alive,
            job->options->grace_s);
    else
        say(job, "%s %s did not stop within %g s and %s killed", job->alive == 1 ? "rank" : "ranks",
            list, job->options->grace_s, job->alive == 1 ? "is" : "are");
}

static void advance_stop(ech__job *job)
{
    if (job->phase == ECH__JOB_RUNS || job->phase == ECH__JOB_KILLED ||
        ech__waited_look(&job->stopping) < job->next_ns)
        return;
    if (job->phase == ECH__JOB_ASKED) {
        send_all(job, SIGTERM);
        job->phase = ECH__JOB_TOLD;
        job->next_ns = job->kill_ns;
        return;
    }
    say_killed(job);
    kill_all(job);
}

/* ---- what happens ---- */

/* Some wrappers send a signal to the launcher and then to its group: that is one order. One that
 * comes later is somebody's impatience. */
static const double SAME_ORDER = 0.5; /* seconds */

static void take_order(ech__job *job, const struct signalfd_siginfo *info)
{
    const int signal = (int)info->ssi_signo;
    const int64_t now = ech__clock_wall();
    if (job->told) {
        if (ech__seconds(now - job->told_ns) > SAME_ORDER)
            kill_all(job);
        return;
    }
    job->told = signal;
    job->told_ns = now;
    if (job->phase == ECH__JOB_RUNS) {
        say(job, "stopping all ranks after signal %d (%s)", signal, strsignal(signal));
        if (info->ssi_code != SI_KERNEL) /* a terminal has sent it to all of them already */
            send_all(job, signal);
        begin_stop(job, signal);
    }
}

static void read_signals(ech__job *job)
{
    struct signalfd_siginfo info;
    while (read(job->signals->fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo != SIGCHLD)
            take_order(job, &info);
    }
}

/* How many printed lines are still before a user's eyes. */
enum { IN_SIGHT = 20 };

/* The last lines again, unless all of them were only just printed. */
static void say_last_lines(const ech__job *job, int rank)
{
    const ech__rank_lines *lines = &job->ranks[rank].lines;
    const int kept = ech__rank_lines_kept(lines);
    uint64_t number;
    if (!kept)
        return;
    ech__rank_lines_get(lines, 0, &number);
    if (job->printed - number <= IN_SIGHT)
        return;
    say(job, "last lines of rank %d:", rank);
    for (int i = 0; i < kept; i++)
        say(job, "  %s", ech__rank_lines_get(lines, i, &number));
}

bool ech__job_is_settled(const ech__job *job, int rank)
{
    const int status = job->ranks[rank].status, code = job->options->settled_code;
    return code && WIFEXITED(status) && WEXITSTATUS(status) == code;
}

static void say_failed(const ech__job *job, int rank, pid_t pid)
{
    const int status = job->ranks[rank].status;
    if (ech__job_is_settled(job, rank))
        return;
    if (WIFSIGNALED(status))
        say(job, "rank %d (pid %d) was killed by signal %d (%s)", rank, (int)pid, WTERMSIG(status),
            strsignal(WTERMSIG(status)));
    else
        say(job, "rank %d (pid %d) exited with code %d", rank, (int)pid, WEXITSTATUS(status));
    say_last_lines(job, rank);
}

/* Waits for those that are gone. Of several that failed since the last time, one that was killed is
 * the likelier cause: the others may have failed because of it. */
static void reap(ech__job *job)
{
    int failed = -1;
    pid_t failed_pid = 0;
    for (int i = 0; i < job->options->ranks; i++) {
        ech__rank_state *r = &job->ranks[i];
        const pid_t pid = r->pid;
        if (pid <= 0 || waitpid(pid, &r->status, WNOHANG) != pid)
            continue;
        r->pid = 0;
        job->alive--;
        drain(job, i);
        if (r->status &&
            (failed < 0 || (WIFSIGNALED(r->status) && !WIFSIGNALED(job->ranks[failed].status)))) {
            failed = i;
            failed_pid = pid;
        }
    }
    if (failed < 0 || job->phase != ECH__JOB_RUNS)
        return;
    job->failed = failed;
    say_failed(job, failed, failed_pid);
    send_all(job, SIGTERM);
    begin_stop(job, SIGTERM);
}

static int time_left_ms(const ech__job *job)
{
    if (job->phase == ECH__JOB_RUNS || job->phase == ECH__JOB_KILLED)
        return -1;
    return (int)(ech__waited_slice(&job->stopping, job->next_ns) / 1000000) + 1;
}

/* ---- processes that ranks started ---- */

/* The ranks are gone. What they have started gets SIGTERM, and SIGKILL where it does not stop in
 * what is left of the grace; at once where somebody is impatient. */
static void end_leftovers(ech__job *job)
{
    enum { ROUNDS = 100 }; /* of SIGKILL: what cannot be killed is left */
    int left = ech__leftovers_signal(job->mark, SIGTERM), killed = 0;
    if (left && job->phase == ECH__JOB_RUNS)
        begin_stop(job, SIGTERM);
    for (; left && killed < ROUNDS; left = ech__leftovers_signal(job->mark, killed ? SIGKILL : 0)) {
        poll(&(struct pollfd){.fd = job->signals->fd, .events = POLLIN}, 1, 10);
        read_signals(job);
        const bool over = ech__waited_look(&job->stopping) >= job->kill_ns;
        if (over && !killed && job->phase != ECH__JOB_KILLED)
            say(job, "%d processes that ranks had started did not stop within %g s and are killed",
                left, job->options->grace_s);
        killed += over || job->phase == ECH__JOB_KILLED;
    }
}

/* ---- the job ---- */

static void close_all(ech__job *job)
{
    for (int r = 0; r < job->options->ranks; r++) {
        drain(job, r);
        if (job->ranks[r].err >= 0)
            close(job->ranks[r].err);
        job->ranks[r].err = -1;
    }
}

void ech__job_supervise(ech__job *job)
{
    const int ranks = job->options->ranks;
    job->failed = -1;
    job->alive = ranks;
    while (job->alive) {
        job->polls[0] = (struct pollfd){.fd = job->signals->fd, .events = POLLIN};
        for (int r = 0; r < ranks; r++)
            job->polls[r + 1] = (struct pollfd){.fd = job->ranks[r].err, .events = POLLIN};
        poll(job->polls, (nfds_t)ranks + 1, time_left_ms(job));
        for (int r = 0; r < ranks; r++) {
            if (job->polls[r + 1].revents)
                read_rank(job, r);
        }
        /* Orders before deaths: a Ctrl-C reaches ranks and launcher, and is no failure of a rank's. */
        read_signals(job);
        reap(job);
        advance_stop(job);
    }
    end_leftovers(job);
    close_all(job);
}

void ech__job_abandon(ech__job *job)
{
    send_all(job, SIGKILL);
    for (int r = 0; r < job->options->ranks; r++) {
        if (job->ranks[r].pid > 0)
            ech__process_wait(job->ranks[r].pid);
        job->ranks[r].pid = 0;
    }
    ech__leftovers_signal(job->mark, SIGKILL);
    close_all(job);
}
