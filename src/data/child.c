#include "data/child.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { LINE = 400 };

/* stdin and stdout to nothing, stderr to the pipe. Returns an errno. */
static int spawn(pid_t *pid, const char *dir, const char *const *argv, int err)
{
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error)
        return error;
    if (dir)
        error = posix_spawn_file_actions_addchdir_np(&actions, dir);
    if (!error)
        error = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
    if (!error)
        error = posix_spawnp(pid, argv[0], &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Reads to the end and keeps the first line that is not empty. */
static void first_line(int fd, char line[LINE])
{
    char chunk[4096];
    size_t used = 0;
    bool open = true;
    for (;;) {
        const ssize_t got = read(fd, chunk, sizeof chunk);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        for (ssize_t i = 0; i < got && open; i++) {
            if (chunk[i] == '\n' || chunk[i] == '\r')
                open = used == 0;
            else if (used + 1 < LINE)
                line[used++] = chunk[i];
        }
    }
    line[used] = '\0';
}

static ech_status judge(ech_ctx *ctx, const char *name, int result, const char *line)
{
    if (WIFEXITED(result) && WEXITSTATUS(result) == 0)
        return ECH_OK;
    if (*line) {
        /* Most programs begin with their own name. */
        const size_t length = strlen(name);
        const bool named = !strncmp(line, name, length) && strchr(": ", line[length]);
        return ech__fail(ctx, ECH_E_IO, "%s%s%s", named ? "" : name, named ? "" : ": ", line);
    }
    if (WIFSIGNALED(result))
        return ech__fail(ctx, ECH_E_IO, "%s was ended by signal %d", name, WTERMSIG(result));
    return ech__fail(ctx, ECH_E_IO, "%s failed with exit code %d", name, WEXITSTATUS(result));
}

ech_status ech__child_run(ech_ctx *ctx, const char *dir, const char *const *argv)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return ech__fail(ctx, ECH_E_IO, "no pipe for %s: %s", argv[0], strerror(errno));
    pid_t pid;
    const int error = spawn(&pid, dir, argv, ends[1]);
    close(ends[1]);
    if (error) {
        close(ends[0]);
        if (error == ENOENT)
            return ech__fail(ctx, ECH_E_UNSUPPORTED, "%s is not installed", argv[0]);
        return ech__fail(ctx, ECH_E_IO, "%s cannot be started: %s", argv[0], strerror(error));
    }
    char line[LINE];
    first_line(ends[0], line);
    close(ends[0]);
    int result;
    while (waitpid(pid, &result, 0) < 0) {
        if (errno != EINTR)
            return ech__fail(ctx, ECH_E_IO, "%s: cannot be waited for: %s", argv[0],
                             strerror(errno));
    }
    return judge(ctx, argv[0], result, line);
}
