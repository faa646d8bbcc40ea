#include "comm/launch/rank_process.h"
#include "base/names.h"
#include "base/system/cpus.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- environment ---- */

enum { OWN_VARIABLES = 16, VARIABLE = 64 };

/* Strings that take the place of those of the same name, and in front of the others. */
typedef struct variables {
    char own[OWN_VARIABLES][VARIABLE];
    int count;
    char **all; /* own, then what else this process has; NULL at its end */
} variables;

static void set(variables *v, const char *name, const char *value)
{
    snprintf(v->own[v->count++], VARIABLE, "%s=%s", name, value);
}

static void set_int(variables *v, const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    set(v, name, text);
}

static void set_where_unset(variables *v, const char *name, int value)
{
    if (!getenv(name))
        set_int(v, name, value);
}

/* Whether a string NAME=VALUE has the name of one of our own. */
static bool is_own(const variables *v, const char *variable)
{
    for (int i = 0; i < v->count; i++) {
        const size_t name = strcspn(v->own[i], "=") + 1;
        if (!strncmp(v->own[i], variable, name))
            return true;
    }
    return false;
}

static ech_status make_environment(ech_ctx *ctx, const ech__rank_start *s, variables *v)
{
    v->count = 0;
    set_int(v, "RANK", s->rank);
    set_int(v, "LOCAL_RANK", s->rank);
    set_int(v, "WORLD_SIZE", s->options->ranks);
    set_int(v, "LOCAL_WORLD_SIZE", s->options->ranks);
    set_int(v, "GROUP_RANK", 0);
    set_int(v, "TORCHELASTIC_RESTART_COUNT", s->restarts);
    set_int(v, "TORCHELASTIC_MAX_RESTARTS", s->options->max_restarts);
    set_int(v, "ECHELON_COMM_FD", s->comm_fd);
    snprintf(v->own[v->count++], VARIABLE, "%s", s->mark);
    set(v, "MASTER_ADDR", "127.0.0.1");
    set_where_unset(v, "MASTER_PORT", 29500);
    set_where_unset(v, "OMP_NUM_THREADS", s->ncores);
    /* Only rank 0's bytes are handed on as they come, so only its progress can be written over. */
    set(v, "ECHELON_TERMINAL", s->rank == 0 && isatty(STDERR_FILENO) ? "1" : "0");
    size_t others = 0;
    while (environ[others])
        others++;
    v->all = calloc((size_t)v->count + others + 1, sizeof *v->all);
    if (!v->all)
        return ech__no_memory(ctx, "the environment of rank %d", s->rank);
    size_t n = 0;
    for (int i = 0; i < v->count; i++)
        v->all[n++] = v->own[i];
    for (size_t i = 0; i < others; i++) {
        if (!is_own(v, environ[i]))
            v->all[n++] = environ[i];
    }
    return ECH_OK;
}

/* ---- child ---- */

#define STEP_LIST(X)                                                                               \
    X(DIE, "cannot be tied to the launcher")                                                       \
    X(CORES, "cannot be bound to its cores")                                                       \
    X(FILES, "cannot get its standard input and output")                                           \
    X(EXEC, "cannot be started")

typedef enum step {
#define STEP_ENUM(id, text) STEP_##id,
    STEP_LIST(STEP_ENUM)
#undef STEP_ENUM
} step;

static ECH__NAMES(step_text, step, STEP_LIST)

/* What a child that did not come to its program writes to its launcher. */
typedef struct news {
    step step;
    int error;
} news;

static bool nothing_at(int fd, int flags)
{
    const int null = open("/dev/null", flags | O_CLOEXEC);
    return null >= 0 && dup2(null, fd) == fd;
}

/* From here to exec only what is safe between fork and exec in a program with threads: no allocation, no stdio.
 * Returns only when something failed. */
static news become_rank(const ech__rank_start *s, char *const *environment, const ech__cpus *cores,
                        pid_t launcher, int err)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return (news){STEP_DIE, errno};
    if (getppid() != launcher) /* it died before that */
        _exit(1);
    if (!ech__cpus_bind(cores))
        return (news){STEP_CORES, errno};
    if (dup2(err, STDERR_FILENO) < 0 || fcntl(s->comm_fd, F_SETFD, 0) < 0 ||
        (s->rank > 0 && !nothing_at(STDIN_FILENO, O_RDONLY)) ||
        (s->rank > 0 && s->options->quiet_others && !nothing_at(STDOUT_FILENO, O_WRONLY)))
        return (news){STEP_FILES, errno};
    ech__launch_signals_restore(s->signals);
    if (s->options->path)
        execve(s->options->path, s->options->argv, environment);
    else
        execvpe(s->options->argv[0], s->options->argv, environment);
    return (news){STEP_EXEC, errno};
}

/* ---- launcher ---- */

static ech_status judge(ech_ctx *ctx, const ech__rank_start *s, news n, int *code)
{
    const char *name = s->options->path ? s->options->path : s->options->argv[0];
    if (n.step != STEP_EXEC)
        return ech__fail(ctx, ECH_E_UNSUPPORTED, "rank %d %s: %s", s->rank, step_text(n.step),
                         strerror(n.error));
    *code = n.error == ENOENT ? 127 : 126;
    if (n.error == ENOENT && !strchr(name, '/'))
        return ech__fail(ctx, ECH_E_INVALID, "%s: no such program in PATH", name);
    return ech__fail(ctx, ECH_E_INVALID, "%s %s: %s", name, step_text(STEP_EXEC),
                     strerror(n.error));
}

/* Waits until the child has come to its program, or says why not. */
static ech_status hear(ech_ctx *ctx, const ech__rank_start *s, pid_t child, int fd, int *code)
{
    news n;
    ssize_t got;
    do
        got = read(fd, &n, sizeof n);
    while (got < 0 && errno == EINTR);
    if (got != (ssize_t)sizeof n) /* closed by exec, or by a death that the supervisor will see */
        return ECH_OK;
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    return judge(ctx, s, n, code);
}

static ech_status fork_rank(ech_ctx *ctx, const ech__rank_start *s, variables *v, int err,
                            pid_t *pid, int *code)
{
    ech__cpus cores = {0};
    for (int i = 0; i < s->ncores; i++)
        ech__cpus_add(&cores, s->cores[i]);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return ech__fail(ctx, ECH_E_IO, "no pipe for rank %d: %s", s->rank, strerror(errno));
    const pid_t launcher = getpid();
    *pid = fork();
    if (*pid == 0) {
        const news n = become_rank(s, v->all, &cores, launcher, err);
        const ssize_t told = write(ends[1], &n, sizeof n);
        _exit(told == (ssize_t)sizeof n ? 127 : 126);
    }
    const int error = errno;
    close(ends[1]);
    const ech_status status =
        *pid < 0 ? ech__fail(ctx, ECH_E_IO, "no process for rank %d: %s", s->rank, strerror(error))
                 : hear(ctx, s, *pid, ends[0], code);
    close(ends[0]);
    return status;
}

ech_status ech__rank_spawn(ech_ctx *ctx, const ech__rank_start *s, pid_t *pid, int *err, int *code)
{
    variables v;
    int ends[2];
    *code = 1;
    ECH_TRY(make_environment(ctx, s, &v));
    if (pipe2(ends, O_CLOEXEC) < 0) {
        free(v.all);
        return ech__fail(ctx, ECH_E_IO, "no pipe for rank %d: %s", s->rank, strerror(errno));
    }
    ech_status status = ECH_OK;
    if (fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0)
        status = ech__fail(ctx, ECH_E_IO, "no pipe for rank %d: %s", s->rank, strerror(errno));
    if (status >= 0)
        status = fork_rank(ctx, s, &v, ends[1], pid, code);
    free(v.all);
    close(ends[1]);
    if (status < 0)
        close(ends[0]);
    else
        *err = ends[0];
    return status;
}
