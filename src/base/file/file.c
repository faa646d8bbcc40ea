#include "base/file/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_of_file(mode_t mode)
{
    if (S_ISDIR(mode))
        return "a directory";
    if (S_ISFIFO(mode))
        return "a pipe";
    if (S_ISSOCK(mode))
        return "a socket";
    return "a device";
}

ech_status ech__file_open(ech_ctx *ctx, const char *path, int *fd, int64_t *bytes)
{
    /* Without O_NONBLOCK the open itself would wait for the other end of a pipe. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return ech__fail(ctx, ECH_E_IO, "%s: cannot be opened: %s", path, strerror(errno));
    struct stat st;
    if (fstat(file, &st) < 0) {
        ech_status status =
            ech__fail(ctx, ECH_E_IO, "%s: cannot be examined: %s", path, strerror(errno));
        close(file);
        return status;
    }
    if (!S_ISREG(st.st_mode)) {
        close(file);
        return ech__fail(ctx, ECH_E_IO, "%s: is %s, not a regular file", path,
                         kind_of_file(st.st_mode));
    }
    *fd = file;
    *bytes = st.st_size;
    return ECH_OK;
}

ech_status ech__file_pread(ech_ctx *ctx, const char *path, int fd, ech__file_range range)
{
    for (size_t done = 0; done < range.bytes;) {
        const int64_t at = range.offset + (int64_t)done;
        ssize_t got = pread(fd, (char *)range.buffer + done, range.bytes - done, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ech__fail(ctx, ECH_E_IO, "%s: cannot be read at byte %" PRId64 ": %s", path, at,
                             strerror(errno));
        if (got == 0)
            return ech__fail(ctx, ECH_E_IO,
                             "%s: ends at byte %" PRId64 ", %zu bytes before what was asked for",
                             path, at, range.bytes - done);
        done += (size_t)got;
    }
    return ECH_OK;
}

ech_status ech__file_read(ech_ctx *ctx, const char *path, size_t max_bytes, char **out,
                          size_t *bytes)
{
    int fd;
    int64_t size;
    *out = NULL;
    *bytes = 0;
    ECH_TRY(ech__file_open(ctx, path, &fd, &size));
    ech_status status = ECH_OK;
    char *data = NULL;
    if ((uint64_t)size > max_bytes)
        status = ech__fail(ctx, ECH_E_LIMIT, "%s: has %" PRId64 " bytes, the limit is %zu", path,
                           size, max_bytes);
    else if (!(data = malloc((size_t)size + 1)))
        status = ech__no_memory(ctx, "the %" PRId64 " bytes of %s", size, path);
    else
        status = ech__file_pread(ctx, path, fd,
                                 (ech__file_range){.buffer = data, .bytes = (size_t)size});
    close(fd);
    if (status < 0) {
        free(data);
        return status;
    }
    data[size] = '\0';
    *out = data;
    *bytes = (size_t)size;
    return ECH_OK;
}

/* ---- links ---- */

enum { MOST_LINKS = 40 }; /* as the kernel */

/* The directory part of a path, without the '/' before the name; "." if there is none. */
static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
}

/* The kernel's rule for open(2) (fs.protected_symlinks), which a path that was resolved before would get around: in a
 * directory like /tmp, where anybody may put links, only our own and those of the directory's owner are followed. */
static bool may_follow(const struct stat *link, const char *dir)
{
    struct stat parent;
    if (link->st_uid == geteuid())
        return true;
    if (stat(dir, &parent) < 0)
        return false;
    const bool shared = (parent.st_mode & (S_ISVTX | S_IWOTH)) == (S_ISVTX | S_IWOTH);
    return !shared || parent.st_uid == link->st_uid;
}

/* Where the link at path, open as fd with O_PATH, leads. The caller frees *out. */
static ech_status read_link(ech_ctx *ctx, int fd, const char *path, const struct stat *st,
                            char **out)
{
    char text[PATH_MAX], *dir = directory_of(path);
    const ssize_t length = readlinkat(fd, "", text, sizeof text - 1);
    ech_status status = ECH_OK;
    *out = NULL;
    if (length < 0)
        status = ech__fail(ctx, ECH_E_IO, "%s: cannot be read: %s", path, strerror(errno));
    else if (!dir || asprintf(out, "%s%s%.*s", *text == '/' ? "" : dir, *text == '/' ? "" : "/",
                              (int)length, text) < 0)
        status = ech__no_memory(ctx, "the path %s", path);
    else if (!may_follow(st, dir))
        status = ech__fail(ctx, ECH_E_IO,
                           "%s: is a link of user %u in a directory that anybody may write to: it "
                           "is not followed",
                           path, (unsigned)st->st_uid);
    free(dir);
    return status;
}

/* One step from *at to the file that it leads to. One descriptor answers all questions, so that nobody can swap the
 * link between them. *st is of *at before the step. */
static ech_status follow(ech_ctx *ctx, char **at, struct stat *st, bool linked)
{
    char *next = NULL;
    const int fd = open(*at, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    ech_status status = ECH_OK;
    if (fd < 0 && errno == ENOENT && !linked)
        st->st_mode = S_IFREG; /* it will be */
    else if (fd < 0 || fstat(fd, st) < 0)
        status = ech__fail(ctx, ECH_E_IO, "%s: cannot be written: %s", *at, strerror(errno));
    else if (S_ISLNK(st->st_mode))
        status = read_link(ctx, fd, *at, st, &next);
    if (fd >= 0)
        close(fd);
    if (next) {
        free(*at);
        *at = next;
    }
    return status;
}

/* The file that path leads to, which need not exist yet unless a link leads there. The caller frees *out. */
static ech_status resolve(ech_ctx *ctx, const char *path, char **out)
{
    struct stat st;
    char *at = strdup(path);
    ech_status status = at ? ECH_OK : ech__no_memory(ctx, "the path %s", path);
    for (int links = 0; status == ECH_OK; links++) {
        status = follow(ctx, &at, &st, links > 0);
        if (status < 0 || !S_ISLNK(st.st_mode))
            break;
        if (links == MOST_LINKS)
            status = ech__fail(ctx, ECH_E_IO, "%s: more than %d links lead on from it", path,
                               MOST_LINKS);
    }
    if (status == ECH_OK && !S_ISREG(st.st_mode))
        status = ech__fail(ctx, ECH_E_IO, "%s: is %s, not a regular file", path,
                           kind_of_file(st.st_mode));
    if (status < 0) {
        free(at);
        return status;
    }
    *out = at;
    return ECH_OK;
}

/* ---- writing ---- */

/* A new file next to path. The name is free because O_EXCL says so; unlike with mkstemp the user's umask
 * decides who may read it. */
static int create_beside(const char *path, char **temp)
{
    for (int attempt = 0; attempt < 100; attempt++) {
        if (asprintf(temp, "%s.%ld-%d.tmp", path, (long)getpid(), attempt) < 0) {
            *temp = NULL;
            errno = ENOMEM;
            return -1;
        }
        int fd = open(*temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0)
            return fd;
        const int error = errno;
        free(*temp);
        *temp = NULL;
        errno = error;
        if (error != EEXIST)
            return -1;
    }
    return -1;
}

ech_status ech__file_writer_init(ech_ctx *ctx, ech__file_writer *writer, const char *path)
{
    char *target;
    *writer = (ech__file_writer){.ctx = ctx, .fd = -1};
    ECH_TRY(resolve(ctx, path, &target));
    char *temp;
    const int fd = create_beside(target, &temp);
    if (fd < 0) {
        const int error = errno;
        free(target);
        return ech__fail(ctx, ECH_E_IO, "%s: cannot be written: %s", path, strerror(error));
    }
    writer->path = target;
    writer->temp = temp;
    writer->fd = fd;
    return ECH_OK;
}

ech_status ech__file_writer_write(ech__file_writer *writer, const void *data, size_t bytes)
{
    assert(writer->fd >= 0);
    for (size_t done = 0; done < bytes;) {
        ssize_t put = write(writer->fd, (const char *)data + done, bytes - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return ech__fail(writer->ctx, ECH_E_IO, "%s: cannot be written at byte %" PRId64 ": %s",
                             writer->path, writer->written, strerror(errno));
        done += (size_t)put;
        writer->written += put;
    }
    return ECH_OK;
}

/* Makes the new name durable. Not every file system can; the file itself is complete by then. */
static void sync_directory(const char *path)
{
    char *dir = directory_of(path);
    const int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(dir);
}

ech_status ech__file_writer_commit(ech__file_writer *writer)
{
    assert(writer->fd >= 0);
    int failed = fsync(writer->fd) < 0 ? errno : 0;
    if (close(writer->fd) < 0 && !failed)
        failed = errno;
    writer->fd = -1;
    if (!failed && rename(writer->temp, writer->path) < 0)
        failed = errno;
    if (failed)
        return ech__fail(writer->ctx, ECH_E_IO, "%s: cannot be written: %s", writer->path,
                         strerror(failed));
    free(writer->temp);
    writer->temp = NULL;
    sync_directory(writer->path);
    return ECH_OK;
}

void ech__file_writer_fini(ech__file_writer *writer)
{
    if (writer->fd >= 0)
        close(writer->fd);
    if (writer->temp)
        unlink(writer->temp);
    free(writer->temp);
    free(writer->path);
    *writer = (ech__file_writer){.fd = -1};
}

ech_status ech__file_write(ech_ctx *ctx, const char *path, const void *data, size_t bytes)
{
    ech__file_writer writer;
    ech_status status = ech__file_writer_init(ctx, &writer, path);
    if (status == ECH_OK)
        status = ech__file_writer_write(&writer, data, bytes);
    if (status == ECH_OK)
        status = ech__file_writer_commit(&writer);
    ech__file_writer_fini(&writer);
    return status;
}
