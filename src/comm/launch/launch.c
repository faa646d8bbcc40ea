#include "comm/launch/launch.h"
#include "comm/collective/reduce.h"
#include "comm/launch/leftovers.h"
#include "comm/launch/rank_process.h"
#include "comm/launch/signals.h"
#include "comm/launch/supervise.h"
#include "comm/shm/shm.h"
#include "device/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

ech__launch_options ech__launch_defaults(void)
{
    return (ech__launch_options){.ranks = 1, .grace_s = 3};
}

/* What lasts over all attempts. */
typedef struct launcher {
    const ech__launch_options *options;
    ech__launch_signals signals;
    ech__cores cores;
    ech__job job;
    char mark[ECH__MARK_BYTES];
    int restarts;
} launcher;

/* ---- which rank is where ---- */

/* Text that grows in a buffer, cut at its end. */
typedef struct text {
    char s[1024];
    size_t used;
} text;

static __attribute__((format(printf, 2, 3))) void add(text *t, const char *fmt, ...)
{
    if (t->used >= sizeof t->s)
        return;
    va_list args;
    va_start(args, fmt);
    t->used += (size_t)vsnprintf(t->s + t->used, sizeof t->s - t->used, fmt, args);
    va_end(args);
}

/* 0-3,8 */
static void add_ids(text *t, const int *ids, int count)
{
    for (int i = 0; i < count;) {
        int last = i;
        while (last + 1 < count && ids[last + 1] == ids[last] + 1)
            last++;
        add(t, i ? ",%d" : "%d", ids[i]);
        if (last > i)
            add(t, "-%d", ids[last]);
        i = last + 1;
    }
}

static void add_threads(text *t, int least, int most)
{
    const char *given = getenv("OMP_NUM_THREADS");
    if (given)
        add(t, "; OMP_NUM_THREADS is %.16s", given);
    else if (least == most)
        add(t, "; %d thread%s each", most, most == 1 ? "" : "s");
    else
        add(t, "; %d to %d threads each", least, most);
}

enum { NAMED_RANKS = 8 }; /* more are not listed one by one */

static void say_places(const launcher *l)
{
    const int ranks = l->options->ranks;
    /* Only where cores have several hardware threads must the two be told apart. */
    const char *unit = l->cores.count > l->cores.cores ? "hardware thread" : "core";
    int ids[ECH__MAX_HWTHREADS], least = ECH__MAX_HWTHREADS, most = 0;
    text t = {.used = 0};
    add(&t, "%d rank%s on %d %s%s", ranks, ranks == 1 ? "" : "s", l->cores.count, unit,
        l->cores.count == 1 ? "" : "s");
    for (int r = 0; r < ranks; r++) {
        const int n = ech__share_cores(&l->cores, r, ranks, ids, ECH__MAX_HWTHREADS);
        least = n < least ? n : least;
        most = n > most ? n : most;
        if (ranks > NAMED_RANKS)
            continue;
        add(&t, "%s rank %d on %s%s ", r ? "," : ":", r, unit, n == 1 ? "" : "s");
        add_ids(&t, ids, n);
    }
    if (ranks > l->cores.count && ranks > NAMED_RANKS)
        add(&t, ", which they share");
    add_threads(&t, least, most);
    if (l->options->say)
        l->options->say(l->options->user, t.s);
}

/* ---- one attempt ---- */

static ech_status start_ranks(ech_ctx *ctx, launcher *l, int comm_fd, int *code)
{
    int ids[ECH__MAX_HWTHREADS];
    const int ranks = l->options->ranks;
    for (int r = 0; r < ranks; r++) {
        ech__rank_state *state = &l->job.ranks[r];
        const int n = ech__share_cores(&l->cores, r, ranks, ids, ECH__MAX_HWTHREADS);
        const ech__rank_start start = {.options = l->options,
                                       .signals = &l->signals,
                                       .rank = r,
                                       .restarts = l->restarts,
                                       .mark = l->mark,
                                       .comm_fd = comm_fd,
                                       .cores = ids,
                                       .ncores = n};
        ECH_TRY(ech__rank_spawn(ctx, &start, &state->pid, &state->err, code));
        /* Not before the first one runs: of a program that cannot be started nothing else is said. */
        if (r == 0 && l->restarts == 0)
            say_places(l);
    }
    return ECH_OK;
}

static void new_job(launcher *l)
{
    ech__rank_state *ranks = l->job.ranks;
    struct pollfd *polls = l->job.polls;
    l->job = (ech__job){.options = l->options,
                        .signals = &l->signals,
                        .mark = l->mark,
                        .ranks = ranks,
                        .polls = polls};
    memset(ranks, 0, (size_t)l->options->ranks * sizeof *ranks);
    for (int r = 0; r < l->options->ranks; r++)
        ranks[r].err = -1;
}

static void judge(const ech__job *job, ech__launch_result *out)
{
    out->code = job->told ? 128 + job->told : 0;
    out->signal = 0;
    out->failed_rank = job->failed;
    if (job->failed < 0)
        return;
    const int status = job->ranks[job->failed].status;
    out->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    out->code = out->signal ? 128 + out->signal : WEXITSTATUS(status);
    if (ech__job_is_settled(job, job->failed))
        out->code = 1;
}

/* Codes that say that a program was called wrongly, or was not found by a shell. */
static bool is_usage(int code)
{
    return code == 2 || code == 126 || code == 127;
}

/* Whether starting all ranks again may help. What failed because of its arguments would fail again. */
static bool can_restart(const launcher *l, int comm_fd)
{
    const ech__job *job = &l->job;
    if (job->failed < 0 || job->told || ech__job_is_settled(job, job->failed) ||
        l->restarts == l->options->max_restarts)
        return false;
    const int status = job->ranks[job->failed].status;
    const bool early = l->options->tells_begin && !ech__shm_begun(comm_fd);
    if (WIFSIGNALED(status) || !(early || is_usage(WEXITSTATUS(status))))
        return true;
    if (l->options->say)
        l->options->say(l->options->user, early ? "no restart: the ranks failed before their first "
                                                  "step and would fail again"
                                                : "no restart: the exit code means wrong usage");
    return false;
}

static ech_status attempt(ech_ctx *ctx, launcher *l, ech__launch_result *out, bool *again)
{
    int comm_fd;
    ech__watch watch = {.fd = -1};
    new_job(l);
    ECH_TRY(ech__mark_make(ctx, ECH__MARK_NAME, l->mark));
    ECH_TRY(ech__shm_create(ctx, l->options->ranks, &comm_fd));
    ech_status status = start_ranks(ctx, l, comm_fd, &out->code);
    if (status == ECH_OK)
        status = ech__watch_open(ctx, l->mark, &watch);
    if (status < 0) {
        ech__job_abandon(&l->job);
    } else {
        ech__job_supervise(&l->job);
        judge(&l->job, out);
        *again = can_restart(l, comm_fd);
    }
    ech__watch_close(&watch);
    close(comm_fd);
    return status;
}

/* ---- all attempts ---- */

static ech_status attempts(ech_ctx *ctx, launcher *l, ech__launch_result *out)
{
    for (;;) {
        bool again = false;
        ECH_TRY(attempt(ctx, l, out, &again));
        if (!again)
            return ECH_OK;
        out->restarts = ++l->restarts;
        char line[64];
        snprintf(line, sizeof line, "restarting all ranks (%d of %d)", l->restarts,
                 l->options->max_restarts);
        if (l->options->say)
            l->options->say(l->options->user, line);
    }
}

/* Descriptors 0 to 2 must be taken, or a pipe would get one of them and a rank would lose it.
 * Writing to one that was closed must fail as before, so that results that nobody gets are noticed. */
static ech_status fill_standard_files(ech_ctx *ctx)
{
    int fd;
    do
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO && fcntl(fd, F_SETFD, 0) == 0);
    if (fd < 0)
        return ech__fail(ctx, ECH_E_IO, "/dev/null: cannot be opened: %s", strerror(errno));
    close(fd);
    return ECH_OK;
}

static ech_status launch(ech_ctx *ctx, launcher *l, ech__launch_result *out)
{
    ECH_TRY(fill_standard_files(ctx));
    ECH_TRY(ech__machine_cores(ctx, &l->cores));
    const size_t ranks = (size_t)l->options->ranks;
    l->job.ranks = calloc(ranks, sizeof *l->job.ranks);
    l->job.polls = calloc(ranks + 1, sizeof *l->job.polls);
    if (!l->job.ranks || !l->job.polls)
        return ech__no_memory(ctx, "the watch over %zu ranks", ranks);
    ECH_TRY(ech__launch_signals_open(ctx, &l->signals));
    const ech_status status = attempts(ctx, l, out);
    ech__launch_signals_close(&l->signals);
    return status;
}

ech_status ech__launch(ech_ctx *ctx, const ech__launch_options *options, ech__launch_result *out)
{
    *out = (ech__launch_result){.code = 1, .failed_rank = -1};
    if (options->ranks < 1 || options->ranks > ECH__MAX_RANKS_PER_NODE)
        return ech__fail(ctx, ECH_E_INVALID, "%d ranks: must be 1 to %d", options->ranks,
                         ECH__MAX_RANKS_PER_NODE);
    if (options->max_restarts < 0)
        return ech__fail(ctx, ECH_E_INVALID, "%d restarts: must be at least 0",
                         options->max_restarts);
    launcher *l = ech__new(ctx, sizeof *l);
    if (!l)
        return ech__no_memory(ctx, "a launcher");
    l->options = options;
    const ech_status status = launch(ctx, l, out);
    free(l->job.ranks);
    free(l->job.polls);
    ech__delete(ctx, l, sizeof *l);
    return status;
}
