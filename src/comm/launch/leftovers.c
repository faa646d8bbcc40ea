#include "comm/launch/leftovers.h"

#include "base/system/clock.h"
#include "base/system/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

ech_status ech__mark_make(ech_ctx *ctx, const char *name, char mark[ECH__MARK_BYTES])
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return ech__fail(ctx, ECH_E_IO, "a number for this job: no random numbers: %s",
                         strerror(errno));
    snprintf(mark, ECH__MARK_BYTES, "%.14s=%016llx%016llx", name, (unsigned long long)random[0],
             (unsigned long long)random[1]);
    return ECH_OK;
}

/* Whether a process's environment holds the mark. Shells order variables as they like, so all of it
 * is read, in pieces that overlap by a mark. */
static bool has_mark(int proc, const char *pid, const char *mark)
{
    char path[64], text[8192];
    const size_t length = strlen(mark);
    size_t kept = 0;
    bool found = false;
    snprintf(path, sizeof path, "%.20s/environ", pid);
    const int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) /* it is gone, or another user's */
        return false;
    for (ssize_t got; !found && (got = read(fd, text + kept, sizeof text - kept)) > 0;) {
        const size_t bytes = kept + (size_t)got;
        found = memmem(text, bytes, mark, length) != NULL;
        kept = bytes < length ? bytes : length - 1;
        memmove(text, text + bytes - kept, kept);
    }
    close(fd);
    return found;
}

int ech__leftovers_signal(const char *mark, int signal)
{
    /* What the system calls dirent64 has the name at this place; opendir would allocate. */
    enum { NAME_AT = 19, LENGTH_AT = 16 };
    _Alignas(8) char entries[4096];
    int found = 0;
    const int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0)
        return 0;
    for (long got; (got = syscall(SYS_getdents64, proc, entries, sizeof entries)) > 0;) {
        uint16_t length;
        for (long at = 0; at < got; at += length) {
            const char *name = entries + at + NAME_AT;
            memcpy(&length, entries + at + LENGTH_AT, sizeof length);
            const pid_t pid = (pid_t)strtol(name, NULL, 10);
            if (pid <= 0 || pid == getpid() || !has_mark(proc, name, mark))
                continue;
            found++;
            if (signal)
                kill(pid, signal);
            if (signal == SIGTERM) /* one that was stopped would not take it */
                kill(pid, SIGCONT);
        }
    }
    close(proc);
    return found;
}

/* ---- watching ---- */

/* Those that are found may be starting others, so it looks until there are none. */
enum { ROUNDS = 200 };

static _Noreturn void watch(const char *mark, int fd)
{
    char byte;
    ssize_t got;
    /* Out of the terminal's reach, and without a descriptor that somebody might wait for. */
    setsid();
    prctl(PR_SET_NAME, "echelon-watch");
    dup2(fd, STDIN_FILENO);
#ifdef SYS_close_range
    syscall(SYS_close_range, STDIN_FILENO + 1, ~0U, 0);
#endif
    do
        got = read(STDIN_FILENO, &byte, 1);
    while (got < 0 && errno == EINTR);
    for (int i = 0; i < ROUNDS && ech__leftovers_signal(mark, SIGKILL) > 0; i++)
        ech__clock_sleep(0.01);
    _exit(0);
}

ech_status ech__watch_open(ech_ctx *ctx, const char *mark, ech__watch *out)
{
    int ends[2];
    *out = (ech__watch){.fd = -1};
    if (pipe2(ends, O_CLOEXEC) < 0)
        return ech__fail(ctx, ECH_E_IO, "no pipe to watch over the ranks: %s", strerror(errno));
    const pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        watch(mark, ends[0]);
    }
    const int error = errno;
    close(ends[0]);
    if (pid < 0) {
        close(ends[1]);
        return ech__fail(ctx, ECH_E_IO, "no process to watch over the ranks: %s", strerror(error));
    }
    *out = (ech__watch){.pid = pid, .fd = ends[1]};
    return ECH_OK;
}

void ech__watch_close(ech__watch *watch)
{
    if (watch->fd < 0)
        return;
    kill(watch->pid, SIGKILL);
    ech__process_wait(watch->pid);
    close(watch->fd);
    watch->fd = -1;
}
