#include "base/file/store_lock.h"

#include "base/system/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { POLL_NS = 10000000 };

/* Asks again and again instead of waiting inside flock, which has no time limit. */
static ech_status wait_for(ech_ctx *ctx, const char *name, int fd, double seconds)
{
    const int64_t start = ech__clock_wall();
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return ech__fail(ctx, ECH_E_IO, "%s: cannot be locked: %s", name, strerror(errno));
        if (ech__seconds(ech__clock_wall() - start) >= seconds)
            return ech__fail(ctx, ECH_E_IO, "%s: another process has held it for %g s", name,
                             seconds);
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
    return ECH_OK;
}

ech_status ech__store_lock(ech_ctx *ctx, const char *path, double seconds, int *out)
{
    char name[4096];
    *out = -1;
    if ((size_t)snprintf(name, sizeof name, "%s.lock", path) >= sizeof name)
        return ech__fail(ctx, ECH_E_INVALID, "the path %.100s... is longer than %zu bytes", path,
                         sizeof name);
    const int fd = open(name, O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0)
        return ech__fail(ctx, ECH_E_IO, "%s: cannot be opened: %s", name, strerror(errno));
    const ech_status status = wait_for(ctx, name, fd, seconds);
    if (status < 0) {
        close(fd);
        return status;
    }
    *out = fd;
    return ECH_OK;
}
