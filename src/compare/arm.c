#include "compare/arm.h"
#include "base/stats.h"
#include "base/system/clock.h"
#include "base/system/process.h"
#include "base/system/turns.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static const double GRACE_S = 1.5; /* between asking an arm to end and ending it */

typedef struct path {
    char s[ECH__ARM_PATH + 24];
} path;

static path path_of(const ech__arm *arm, const char *end)
{
    path p;
    snprintf(p.s, sizeof p.s, "%s/%d.%s", arm->dir, arm->number, end);
    return p;
}

ech_status ech__arm_init(ech__arm *arm)
{
    arm->process = arm->listener = arm->in = arm->out = -1;
    arm->samples = ech__new(arm->ctx, ECH__ARM_SAMPLES * sizeof *arm->samples);
    return arm->samples ? ECH_OK : ech__no_memory(arm->ctx, "%d samples", ECH__ARM_SAMPLES);
}

void ech__arm_fini(ech__arm *arm)
{
    ech__arm_end(arm);
    if (arm->samples)
        ech__delete(arm->ctx, arm->samples, ECH__ARM_SAMPLES * sizeof *arm->samples);
    arm->samples = NULL;
}

static void drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- starting ---- */

static ech_status listen_for(ech__arm *arm)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.*s", (int)sizeof address.sun_path - 1,
             path_of(arm, "sock").s);
    unlink(address.sun_path);
    arm->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (arm->listener < 0 || bind(arm->listener, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(arm->listener, 1) < 0)
        return ech__fail(arm->ctx, ECH_E_IO, "socket %s: %s", address.sun_path, strerror(errno));
    return ECH_OK;
}

typedef struct ends {
    int in[2], out[2], err;
} ends;

static void close_ends(ends *e)
{
    for (int i = 0; i < 2; i++) {
        drop(&e->in[i]);
        drop(&e->out[i]);
    }
    drop(&e->err);
}

/* The descriptors of a child: pipes of a peer, nothing to read and nowhere to write for one of our own. */
static ech_status make_ends(const ech__arm *arm, ends *e)
{
    const path err = path_of(arm, "err");
    *e = (ends){{-1, -1}, {-1, -1}, -1};
    if (arm->spec.is_peer && (pipe2(e->in, O_CLOEXEC) < 0 || pipe2(e->out, O_CLOEXEC) < 0))
        return ech__fail(arm->ctx, ECH_E_IO, "cannot create pipes for %s: %s", arm->spec.name,
                         strerror(errno));
    e->err = open(err.s, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (e->err < 0)
        return ech__fail(arm->ctx, ECH_E_IO, "%s: %s", err.s, strerror(errno));
    return ECH_OK;
}

/* Returns when the program runs, or when it is known why it does not. */
static ech_status start(ech__arm *arm, const ends *e)
{
    const bool peer = arm->spec.is_peer;
    char turns[ECH__ARM_PATH + 64];
    snprintf(turns, sizeof turns, ECH__TURNS_NAME "=%s", path_of(arm, "sock").s);
    char **env = ech__process_env((const char *[]){arm->mark, peer ? ECH__TURNS_NAME : turns}, 2);
    if (!env)
        return ech__no_memory(arm->ctx, "the environment of %s", arm->spec.name);
    const ech__process_options options = {.argv = arm->spec.argv,
                                          .env = env,
                                          .in = peer ? e->in[0] : ECH__PROCESS_NULL,
                                          .out = peer ? e->out[1] : ECH__PROCESS_NULL,
                                          .err = e->err,
                                          .pass_fd = -1,
                                          .own_group = true};
    ech__process_failure why;
    const pid_t pid = ech__process_start(&options, &why);
    free(env);
    arm->tree = (ech__tree){.root = pid < 0 ? 0 : pid};
    return pid < 0 ? ech__fail(arm->ctx, ECH_E_IO, "%s: %s cannot be started: %s", arm->spec.name,
                               arm->spec.argv[0], strerror(why.error))
                   : ECH_OK;
}

ech_status ech__arm_launch(ech__arm *arm)
{
    ends e;
    arm->first = arm->last = 0;
    if (!arm->spec.is_peer)
        ECH_TRY(listen_for(arm));
    ech_status status = make_ends(arm, &e);
    if (status == ECH_OK)
        status = start(arm, &e);
    if (status == ECH_OK) {
        arm->process = pidfd_open(arm->tree.root, 0);
        arm->in = e.in[1];
        arm->out = e.out[0];
        e.in[1] = e.out[0] = -1;
        if (arm->process < 0)
            status = ech__fail(arm->ctx, ECH_E_UNSUPPORTED, "%s cannot be waited for: %s",
                               arm->spec.name, strerror(errno));
    }
    close_ends(&e);
    return status;
}

/* ---- what it says ---- */

static bool ends_soon(const ech__arm *arm)
{
    struct pollfd over = {.fd = arm->process, .events = POLLIN};
    return poll(&over, 1, (int)(GRACE_S * 1e3)) > 0;
}

/* Only printable ASCII of what it said. */
static void clean(char *text)
{
    for (char *c = text; *c; c++) {
        if (*c < ' ' || *c > '~')
            *c = '?';
    }
}

/* It is over: why. */
static ech_status died(ech__arm *arm)
{
    char why[256];
    const pid_t pid = arm->tree.root;
    ech__tree_kill(&arm->tree); /* the others in it */
    const int status = ech__process_wait(pid);
    arm->tree.root = 0;
    const path err = path_of(arm, "err");
    const bool said = ech__last_words(err.s, why, sizeof why);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return ech__fail(arm->ctx, ECH_E_IO, "%s was killed by signal 9: out of memory?%s%s",
                         arm->spec.name, said ? " Its last words: " : "", said ? why : "");
    if (WIFSIGNALED(status))
        return ech__fail(arm->ctx, ECH_E_IO, "%s was killed by signal %d%s%s", arm->spec.name,
                         WTERMSIG(status), said ? ": " : "", said ? why : "");
    if (WEXITSTATUS(status))
        return ech__fail(arm->ctx, ECH_E_IO, "%s failed with exit code %d: %s", arm->spec.name,
                         WEXITSTATUS(status), said ? why : "it gave no reason");
    return ech__fail(
        arm->ctx, ECH_E_IO,
        "%s ended by itself: an arm runs until the comparison is over, so give it more steps%s%s",
        arm->spec.name, said ? "; its last words: " : "", said ? why : "");
}

/* Waits until fd can be read from. The end of the process, an order to stop and the limit are errors. */
static ech_status wait_for(ech__arm *arm, int fd, const char *what)
{
    ech__waited waited = ech__waited_start();
    const int64_t limit = (int64_t)(arm->limit_s * 1e9);
    for (;;) {
        struct pollfd fds[3] = {{.fd = fd, .events = POLLIN},
                                {.fd = arm->stop_fd, .events = POLLIN},
                                {.fd = arm->process, .events = POLLIN}};
        const int64_t slice = ech__waited_slice(&waited, limit);
        const int got = poll(fds, 3, (int)(slice / 1000000) + 1);
        if (got > 0 && fds[1].revents)
            return ech__fail(arm->ctx, ECH_E_IO, "the comparison was stopped");
        if (got > 0 && fds[0].revents) /* also where it was closed, which reading tells */
            return ECH_OK;
        if (got > 0 && fds[2].revents)
            return died(arm);
        if (ech__waited_look(&waited) >= limit)
            return ech__fail(arm->ctx, ECH_E_IO, "%s sent nothing for %.3g s (expected %s)",
                             arm->spec.name, arm->limit_s, what);
    }
}

static ech_status accept_arm(ech__arm *arm)
{
    ECH_TRY(wait_for(arm, arm->listener, "that it is ready: does it train, or run a benchmark?"));
    arm->out = accept4(arm->listener, NULL, NULL, SOCK_CLOEXEC);
    if (arm->out < 0)
        return ech__fail(arm->ctx, ECH_E_IO, "%s: %s", arm->spec.name, strerror(errno));
    arm->in = dup(arm->out);
    drop(&arm->listener); /* a second trainer of the same program runs freely */
    unlink(path_of(arm, "sock").s);
    return ECH_OK;
}

/* The next line, without its end. It lives until the next call. */
static ech_status read_line(ech__arm *arm, const char *what, char **line)
{
    for (;;) {
        char *start = arm->said + arm->first;
        char *end = memchr(start, '\n', arm->last - arm->first);
        if (end) {
            *end = '\0';
            arm->first = (size_t)(end + 1 - arm->said);
            if (end > start && end[-1] == '\r')
                end[-1] = '\0';
            *line = start;
            return ECH_OK;
        }
        memmove(arm->said, start, arm->last - arm->first);
        arm->last -= arm->first;
        arm->first = 0;
        if (arm->last == sizeof arm->said)
            return ech__fail(arm->ctx, ECH_E_IO,
                             "%s sent a line of more than %zu bytes where %s was expected",
                             arm->spec.name, sizeof arm->said, what);
        ECH_TRY(wait_for(arm, arm->out, what));
        const ssize_t got = read(arm->out, arm->said + arm->last, sizeof arm->said - arm->last);
        if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
            if (ends_soon(arm))
                return died(arm);
            return ech__fail(arm->ctx, ECH_E_IO, "%s closed its output where %s was expected",
                             arm->spec.name, what);
        }
        arm->last += got > 0 ? (size_t)got : 0;
    }
}

static ech_status rubbish(const ech__arm *arm, const char *line, const char *what)
{
    char shown[48];
    snprintf(shown, sizeof shown, "%s", line);
    clean(shown);
    return ech__fail(arm->ctx, ECH_E_IO, "%s sent '%s%s' where %s was expected", arm->spec.name,
                     shown, strlen(line) >= sizeof shown ? "..." : "", what);
}

ech_status ech__arm_await(ech__arm *arm)
{
    static const char what[] = "'ready TEXT'";
    char *line;
    if (!arm->spec.is_peer)
        ECH_TRY(accept_arm(arm));
    ECH_TRY(read_line(arm, what, &line));
    if (strncmp(line, "ready", 5) != 0 || (line[5] && line[5] != ' '))
        return rubbish(arm, line, what);
    snprintf(arm->what, sizeof arm->what, "%s", line[5] ? line + 6 : "");
    clean(arm->what);
    ech__tree_stop(&arm->tree);
    return ECH_OK;
}

/* ---- blocks ---- */

static ech_status say(ech__arm *arm, const char *line)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, old;
    sigaction(SIGPIPE, &ignore, &old);
    const ssize_t got = write(arm->in, line, strlen(line));
    sigaction(SIGPIPE, &old, NULL);
    if (got == (ssize_t)strlen(line))
        return ECH_OK;
    return ends_soon(arm) ? died(arm)
                          : ech__fail(arm->ctx, ECH_E_IO, "%s does not read its input any more",
                                      arm->spec.name);
}

ech_status ech__arm_block(ech__arm *arm, double ms, ech__block *out)
{
    static const char what[] = "a step's time in seconds, or 'done'";
    char text[32], *line = text, *end;
    size_t kept = 0;
    int steps = 0;
    snprintf(text, sizeof text, "run %.6g\n", ms);
    ech__tree_continue(&arm->tree);
    ECH_TRY(say(arm, text));
    for (;; steps++) {
        ECH_TRY(read_line(arm, what, &line));
        if (!strcmp(line, "done"))
            break;
        const double seconds = strtod(line, &end);
        if (end == line || *end || !(seconds > 0 && seconds < 1e6))
            return rubbish(arm, line, what);
        if (steps > 0 &&
            kept < ECH__ARM_SAMPLES) /* the first step after a switch is always dropped */
            arm->samples[kept++] = seconds;
    }
    ech__tree_stop(&arm->tree);
    if (!kept)
        return ech__fail(arm->ctx, ECH_E_IO, "%s did %d steps in a block; at least 2 are needed",
                         arm->spec.name, steps);
    out->step_s = ech__stats_of(arm->samples, kept).median;
    out->steps = steps;
    return ECH_OK;
}

/* ---- ending ---- */

void ech__arm_ask(ech__arm *arm)
{
    drop(&arm->in);
    drop(&arm->out);
    if (arm->tree.root <= 0)
        return;
    kill(arm->tree.root, SIGTERM);
    ech__tree_continue(&arm->tree);
}

void ech__arm_end(ech__arm *arm)
{
    if (arm->tree.root > 0) {
        ech__arm_ask(arm);
        /* Others in the tree may outlive the process that started them: they are remembered before it is gone. */
        if (!ends_soon(arm))
            ech__tree_kill(&arm->tree);
        ech__process_wait(arm->tree.root);
        arm->tree.root = 0;
    }
    drop(&arm->in);
    drop(&arm->out);
    drop(&arm->listener);
    drop(&arm->process);
    if (arm->dir)
        unlink(path_of(arm, "sock").s);
}

bool ech__arm_is_emulated(const ech__arm *arm)
{
    return strstr(arm->what, "emulated") != NULL;
}
