#include "comm/launch/rank_process.h"
#include "base/system/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- environment ---- */

enum { OWN_VARIABLES = 16, VARIABLE = 64 };

typedef struct variables {
    char text[OWN_VARIABLES][VARIABLE];
    const char *list[OWN_VARIABLES];
    size_t count;
} variables;

static void set(variables *v, const char *name, const char *value)
{
    snprintf(v->text[v->count], VARIABLE, "%s=%s", name, value);
    v->list[v->count] = v->text[v->count];
    v->count++;
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

static void set_all(const ech__rank_start *s, variables *v)
{
    set_int(v, "RANK", s->rank);
    set_int(v, "LOCAL_RANK", s->rank);
    set_int(v, "WORLD_SIZE", s->options->ranks);
    set_int(v, "LOCAL_WORLD_SIZE", s->options->ranks);
    set_int(v, "GROUP_RANK", 0);
    set_int(v, "TORCHELASTIC_RESTART_COUNT", s->restarts);
    set_int(v, "TORCHELASTIC_MAX_RESTARTS", s->options->max_restarts);
    set_int(v, "ECHELON_COMM_FD", s->comm_fd);
    set(v, "MASTER_ADDR", "127.0.0.1");
    set_where_unset(v, "MASTER_PORT", 29500);
    set_where_unset(v, "OMP_NUM_THREADS", s->ncores);
    /* Only rank 0's bytes are handed on as they come, so only its progress can be written over. */
    set(v, "ECHELON_TERMINAL", s->rank == 0 && isatty(STDERR_FILENO) ? "1" : "0");
    v->list[v->count++] = s->mark;
}

/* ---- starting ---- */

static void restore_signals(const void *signals)
{
    ech__launch_signals_restore(signals);
}

static ech_status judge(ech_ctx *ctx, const ech__rank_start *s, ech__process_failure why, int *code)
{
    const char *name = s->options->path ? s->options->path : s->options->argv[0];
    if (why.step == ECH__PROCESS_FORK)
        return ech__fail(ctx, ECH_E_IO, "no process for rank %d: %s", s->rank, strerror(why.error));
    if (why.step != ECH__PROCESS_EXEC)
        return ech__fail(ctx, ECH_E_UNSUPPORTED, "rank %d %s: %s", s->rank,
                         ech__process_step_text(why.step), strerror(why.error));
    *code = why.error == ENOENT ? 127 : 126;
    if (why.error == ENOENT && !strchr(name, '/'))
        return ech__fail(ctx, ECH_E_INVALID, "%s: no such program in PATH", name);
    return ech__fail(ctx, ECH_E_INVALID, "%s cannot be started: %s", name, strerror(why.error));
}

static ech_status start(ech_ctx *ctx, const ech__rank_start *s, int err, pid_t *pid, int *code)
{
    variables v = {.count = 0};
    ech__cpus cores = {0};
    const bool other = s->rank > 0;
    ech__process_failure why;
    for (int i = 0; i < s->ncores; i++)
        ech__cpus_add(&cores, s->cores[i]);
    set_all(s, &v);
    char **env = ech__process_env(v.list, v.count);
    if (!env)
        return ech__no_memory(ctx, "the environment of rank %d", s->rank);
    const ech__process_options options = {
        .path = s->options->path,
        .argv = s->options->argv,
        .env = env,
        .in = other ? ECH__PROCESS_NULL : ECH__PROCESS_INHERIT,
        .out = other && s->options->quiet_others ? ECH__PROCESS_NULL : ECH__PROCESS_INHERIT,
        .err = err,
        .pass_fd = s->comm_fd,
        .cpus = &cores,
        .set_signals = restore_signals,
        .user = s->signals};
    *pid = ech__process_start(&options, &why);
    free(env);
    return *pid < 0 ? judge(ctx, s, why, code) : ECH_OK;
}

ech_status ech__rank_spawn(ech_ctx *ctx, const ech__rank_start *s, pid_t *pid, int *err, int *code)
{
    int ends[2];
    *code = 1;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return ech__fail(ctx, ECH_E_IO, "no pipe for rank %d: %s", s->rank, strerror(errno));
    ech_status status = ECH_OK;
    if (fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0)
        status = ech__fail(ctx, ECH_E_IO, "no pipe for rank %d: %s", s->rank, strerror(errno));
    if (status >= 0)
        status = start(ctx, s, ends[1], pid, code);
    close(ends[1]);
    if (status < 0)
        close(ends[0]);
    else
        *err = ends[0];
    return status;
}
