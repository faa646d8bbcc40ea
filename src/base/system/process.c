#include "base/system/process.h"
#include "base/names.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

ECH__NAMES(ech__process_step_text, ech__process_step, ECH__PROCESS_STEP_LIST)

char **ech__process_env(const char *const *changes, size_t count)
{
    size_t others = 0, n = 0;
    while (environ[others])
        others++;
    char **env = calloc(count + others + 1, sizeof *env);
    for (size_t i = 0; env && i < count; i++) {
        if (strchr(changes[i], '='))
            env[n++] = (char *)changes[i];
    }
    for (size_t i = 0; env && i < others; i++) {
        const size_t name = strcspn(environ[i], "=");
        bool changed = false;
        for (size_t c = 0; c < count && !changed; c++)
            changed = strcspn(changes[c], "=") == name && !strncmp(changes[c], environ[i], name);
        if (!changed)
            env[n++] = environ[i];
    }
    return env;
}

/* ---- child ---- */

static bool put(int from, int to)
{
    if (from == ECH__PROCESS_INHERIT)
        return true;
    if (from == ECH__PROCESS_NULL)
        from = open("/dev/null", (to == STDIN_FILENO ? O_RDONLY : O_WRONLY) | O_CLOEXEC);
    /* One that is in its place already has to be kept open. */
    return from == to ? fcntl(to, F_SETFD, 0) == 0 : from >= 0 && dup2(from, to) == to;
}

/* From here to exec only what is safe between fork and exec in a program with threads: no allocation, no stdio. Returns
 * only when something failed. */
static ech__process_failure become(const ech__process_options *o, pid_t parent)
{
    if ((o->own_group && setpgid(0, 0) != 0) || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return (ech__process_failure){ECH__PROCESS_TIE, errno};
    if (getppid() != parent) /* it died before that */
        _exit(1);
    if (o->cpus && !ech__cpus_bind(o->cpus))
        return (ech__process_failure){ECH__PROCESS_CPUS, errno};
    if (!put(o->in, STDIN_FILENO) || !put(o->out, STDOUT_FILENO) || !put(o->err, STDERR_FILENO) ||
        (o->pass_fd >= 0 && fcntl(o->pass_fd, F_SETFD, 0) < 0) || (o->dir && chdir(o->dir) != 0))
        return (ech__process_failure){ECH__PROCESS_FILES, errno};
    if (o->set_signals) {
        o->set_signals(o->user);
    } else {
        sigset_t none;
        signal(SIGPIPE, SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
    }
    char *const *env = o->env ? o->env : environ;
    if (o->path)
        execve(o->path, o->argv, env);
    else
        execvpe(o->argv[0], o->argv, env);
    return (ech__process_failure){ECH__PROCESS_EXEC, errno};
}

/* ---- parent ---- */

int ech__process_wait(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return W_EXITCODE(ECH__PROCESS_LOST, 0);
    }
    return status;
}

/* Whether the child has come to its program: exec closes its end of the pipe. So does a death, which waiting tells. */
static bool runs(int fd, ech__process_failure *why)
{
    ssize_t got;
    do
        got = read(fd, why, sizeof *why);
    while (got < 0 && errno == EINTR);
    return got != (ssize_t)sizeof *why;
}

pid_t ech__process_start(const ech__process_options *o, ech__process_failure *why)
{
    int ends[2];
    *why = (ech__process_failure){ECH__PROCESS_FORK, 0};
    if (pipe2(ends, O_CLOEXEC) < 0) {
        why->error = errno;
        return -1;
    }
    const pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        const ech__process_failure failure = become(o, parent);
        const ssize_t told = write(ends[1], &failure, sizeof failure);
        _exit(told == (ssize_t)sizeof failure ? 127 : 126);
    }
    why->error = errno;
    close(ends[1]);
    if (pid > 0 && !runs(ends[0], why)) {
        ech__process_wait(pid);
        pid = -1;
    }
    close(ends[0]);
    return pid;
}

/* ---- last words ---- */

enum { TAIL = 8192 };

/* The last TAIL bytes of a file, ended by NUL. */
static size_t read_tail(const char *path, char text[TAIL + 1])
{
    FILE *file = fopen(path, "re");
    size_t got = 0;
    if (file) {
        if (fseek(file, -TAIL, SEEK_END) != 0)
            rewind(file);
        got = fread(text, 1, TAIL, file);
        fclose(file);
    }
    text[got] = '\0';
    return got;
}

/* Removes and returns the last line of the text that is not empty; *bytes is its length. "" if
 * there is none. */
static const char *cut_line(char *text, size_t *bytes)
{
    size_t end = *bytes;
    while (end > 0 &&
           (isspace((unsigned char)text[end - 1]) || iscntrl((unsigned char)text[end - 1])))
        end--;
    text[end] = '\0';
    while (end > 0 && text[end - 1] != '\n' && text[end - 1] != '\r')
        end--;
    *bytes = end;
    return text + end;
}

/* The error message of a line "echelon train: MESSAGE"; NULL where it is no such line. */
static const char *message_of(const char *line)
{
    const char *colon = strstr(line, ": ");
    return !strncmp(line, "echelon", 7) && colon ? colon + 2 : NULL;
}

/* What a rank said before the launcher noted its end: "[rank 1] echelon train: MESSAGE". */
static const char *rank_message(const char *line)
{
    const char *end = !strncmp(line, "[rank ", 6) ? strstr(line, "] ") : NULL;
    return end ? message_of(end + 2) : message_of(line);
}

bool ech__last_words(const char *path, char *out, size_t bytes)
{
    char text[TAIL + 1];
    size_t length = read_tail(path, text);
    const char *line = cut_line(text, &length), *said = message_of(line);
    if (said)
        line = said;
    if (!strncmp(line, "rank ", 5) && strstr(line, " exited with code ")) {
        const char *before = rank_message(cut_line(text, &length));
        line = before ? before : line;
    }
    const bool fits = strlen(line) < bytes;
    snprintf(out, bytes, "%.*s%s", fits ? (int)bytes : (int)bytes - 4, line, fits ? "" : "...");
    for (char *c = out; *c; c++) {
        if (iscntrl((unsigned char)*c) || !isascii((unsigned char)*c))
            *c = '?';
    }
    return *out;
}
