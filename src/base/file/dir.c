#include "base/file/dir.h"
#include "base/system/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- making ---- */

static ech_status check_length(ech_ctx *ctx, const char *what, const char *dir, size_t most)
{
    return *dir && strlen(dir) <= most
               ? ECH_OK
               : ech__fail(ctx, ECH_E_INVALID, "%s '%.60s': from 1 to %zu bytes are possible", what,
                           dir, most);
}

/* As mkdir -p. Returns 0 or an errno; *made becomes the length of the outermost directory that was not there. */
static int make_all(const char *dir, size_t *made)
{
    char path[ECH_DIR_MAX_PATH];
    strcpy(path, dir);
    for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = 0;
        if (mkdir(path, 0777) == 0) {
            if (!*made || strlen(path) < *made)
                *made = strlen(path);
        } else if (errno != EEXIST) {
            return errno;
        }
        if (!slash)
            return 0;
        *slash = '/';
    }
}

ech_status ech__dir_make(ech_ctx *ctx, const char *what, const char *dir)
{
    size_t made = 0;
    struct stat info;
    ECH_TRY(check_length(ctx, what, dir, ECH_DIR_MAX_PATH - 1));
    int error = make_all(dir, &made);
    if (!error && stat(dir, &info) == 0 && !S_ISDIR(info.st_mode))
        error = ENOTDIR;
    else if (!error && access(dir, W_OK | X_OK) != 0)
        error = errno;
    return error
               ? ech__fail(ctx, ECH_E_IO, "%s %s cannot be written: %s", what, dir, strerror(error))
               : ECH_OK;
}

ech_status ech__dir_sync(ech_ctx *ctx, const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return ech__fail(ctx, ECH_E_IO, "%s: cannot be opened: %s", path, strerror(errno));
    /* Some file systems cannot do it for directories, and say so with EINVAL. */
    const int error = fsync(fd) < 0 && errno != EINVAL ? errno : 0;
    close(fd);
    return error ? ech__fail(ctx, ECH_E_IO, "%s: cannot be written: %s", path, strerror(error))
                 : ECH_OK;
}

/* ---- removing ---- */

/* Removes all files of an open directory and closes it. Returns 0 or an errno. */
static int empty(int fd)
{
    DIR *list = fdopendir(fd);
    if (!list) {
        const int error = errno;
        close(fd);
        return error;
    }
    int error = 0;
    for (struct dirent *entry; !error && (entry = readdir(list)) != NULL;) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (unlinkat(dirfd(list), entry->d_name, 0) < 0)
            error = errno;
    }
    closedir(list);
    return error;
}

ech_status ech__dir_remove(ech_ctx *ctx, const char *path)
{
    int error = 0;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0) {
        error = empty(fd);
        if (!error && rmdir(path) < 0)
            error = errno;
    } else if (errno == ENOTDIR || errno == ELOOP) { /* a file or a link */
        error = unlink(path) < 0 ? errno : 0;
    } else if (errno != ENOENT) {
        error = errno;
    }
    return error ? ech__fail(ctx, ECH_E_IO, "%s: cannot be removed: %s", path, strerror(error))
                 : ECH_OK;
}

/* ---- claims ---- */

static const double GRACE_SECONDS = 0.5; /* for a killed process to be gone */
enum { MOST_ATTEMPTS = 20 };             /* while others remove what was just made */

/* Whether the file at path is the one that is open as fd: releasing a claim removes its lock
 * file. */
static bool is_at(int fd, const char *path)
{
    struct stat ours, there;
    return fstat(fd, &ours) == 0 && lstat(path, &there) == 0 && ours.st_dev == there.st_dev &&
           ours.st_ino == there.st_ino;
}

/* Locks the open file. Returns 0 or an errno: EWOULDBLOCK where another process holds it, ENOENT where it is not at
 * path any more. *locks becomes false where the file system has no locks. */
static int lock(int fd, const char *path, bool *locks)
{
    struct stat info;
    *locks = true;
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno == EWOULDBLOCK)
            return EWOULDBLOCK;
        if (errno == EINTR)
            continue;
        *locks = false;
        break;
    }
    if (!is_at(fd, path))
        return ENOENT;
    /* It is written to, so it must not be a hard link to another file. */
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_nlink == 1 ? 0 : EEXIST;
}

/* Tells other processes which one holds the lock. If the disk is full, only this information is
 * missing. */
static void sign(int fd)
{
    char text[128], host[64] = "";
    gethostname(host, sizeof host - 1);
    const int length = snprintf(text, sizeof text, "%ld %s\n", (long)getpid(), host);
    if (ftruncate(fd, 0) == 0) {
        const ssize_t put = pwrite(fd, text, (size_t)length, 0);
        (void)put;
    }
}

static int take_once(ech__claim *c, bool *locks)
{
    char dir[ECH_DIR_MAX_PATH];
    memcpy(dir, c->path, c->length);
    dir[c->length] = 0;
    int error = make_all(dir, &c->made);
    if (error)
        return error;
    /* Only a descriptor that can be written to is locked by NFS. */
    c->fd = open(c->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (c->fd < 0)
        return errno;
    error = lock(c->fd, c->path, locks);
    if (error)
        close(c->fd);
    return error;
}

/* Innermost first; one that is not empty ends it. */
static void remove_made(ech__claim *c)
{
    for (size_t length = c->length; c->made && length >= c->made; length--) {
        if (length < c->length && c->path[length] != '/')
            continue;
        c->path[length] = 0;
        if (rmdir(c->path) < 0 && errno != ENOENT)
            return;
    }
}

static ech_status in_use(ech_ctx *ctx, const ech__claim *c, const ech__claim_options *o)
{
    char text[128] = "", here[64] = "", *host;
    const int fd = open(c->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    const long pid = strtol(text, &host, 10);
    if (got <= 0 || pid <= 0)
        return ech__fail(ctx, ECH_E_IO, "%s %s is in use by another process", o->what, o->dir);
    host += strspn(host, " ");
    host[strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._")] = 0;
    gethostname(here, sizeof here - 1);
    const bool elsewhere = *host && strcmp(host, here) != 0;
    return ech__fail(ctx, ECH_E_IO, "%s %s is in use by process %ld%s%s", o->what, o->dir, pid,
                     elsewhere ? " on " : "", elsewhere ? host : "");
}

static ech_status not_taken(ech_ctx *ctx, ech__claim *c, const ech__claim_options *o, int error)
{
    ech_status status;
    struct stat info;
    if (error == EWOULDBLOCK)
        status = in_use(ctx, c, o);
    else if (lstat(c->path, &info) == 0) /* such as a file of another user */
        status = ech__fail(ctx, ECH_E_IO, "%s %s cannot be locked: %s: %s", o->what, o->dir,
                           c->path, strerror(error));
    else
        status = ech__fail(ctx, ECH_E_IO, "%s %s cannot be written: %s", o->what, o->dir,
                           strerror(error));
    remove_made(c);
    *c = (ech__claim){.held = false};
    return status;
}

ech_status ech__claim_take(ech_ctx *ctx, ech__claim *c, const ech__claim_options *o)
{
    const int64_t start = ech__clock_wall();
    bool locks = true;
    int error;
    *c = (ech__claim){.held = false};
    ECH_TRY(check_length(ctx, o->what, o->dir, sizeof c->path - strlen(o->lock) - 2));
    c->length = strlen(o->dir);
    snprintf(c->path, sizeof c->path, "%s/%s", o->dir, o->lock);
    for (int attempt = 1; (error = take_once(c, &locks)) != 0; attempt++) {
        if (error == EWOULDBLOCK && ech__seconds(ech__clock_wall() - start) < GRACE_SECONDS)
            ech__clock_sleep(0.02);
        else if (error != ENOENT || attempt >= MOST_ATTEMPTS)
            return not_taken(ctx, c, o, error);
    }
    c->held = true;
    if (!locks)
        ech__log(ctx,
                 "%s %s: its file system does not support locks, so a second run is not refused",
                 o->what, o->dir);
    sign(c->fd);
    return ECH_OK;
}

void ech__claim_release(ech__claim *c)
{
    if (!c->held)
        return;
    if (is_at(c->fd, c->path)) /* while it is locked: no waiter may lock a removed file */
        unlink(c->path);
    close(c->fd);
    remove_made(c);
    *c = (ech__claim){.held = false};
}

/* ---- locks of stores ---- */

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
        ech__clock_sleep(0.01);
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
