#include "base/dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

ech_status ech__dir_check(ech_ctx *ctx, const char *what, const char *dir)
{
    char path[ECH_DIR_MAX_PATH], missing[ECH_DIR_MAX_PATH] = "";
    if (!*dir || strlen(dir) >= sizeof path)
        return ech__fail(ctx, ECH_E_INVALID, "%s '%.60s': from 1 to %zu bytes are possible", what,
                         dir, sizeof path - 1);
    strcpy(path, dir);
    struct stat info;
    while (stat(path, &info) != 0 && errno == ENOENT) { /* up to what exists */
        strcpy(missing, path);
        char *slash = strrchr(path, '/');
        if (slash)
            slash[slash == path] = 0;
        else
            strcpy(path, ".");
    }
    /* Only an attempt tells whether something can be made there. */
    const bool good = *missing ? mkdir(missing, 0777) == 0 && rmdir(missing) == 0
                               : access(path, W_OK | X_OK) == 0;
    if (!good)
        return ech__fail(ctx, ECH_E_IO, "%s %s cannot be written: %s", what, dir, strerror(errno));
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode)
               ? ECH_OK
               : ech__fail(ctx, ECH_E_IO, "%s %s: %s is no directory", what, dir, path);
}

ech_status ech__dir_make(ech_ctx *ctx, const char *what, const char *dir)
{
    char path[ECH_DIR_MAX_PATH];
    snprintf(path, sizeof path, "%s", dir);
    for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = 0;
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return ech__fail(ctx, ECH_E_IO, "%s %s cannot be made: %s", what, dir, strerror(errno));
        if (!slash)
            return ECH_OK;
        *slash = '/';
    }
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

ech_status ech__dir_remove(ech_ctx *ctx, const char *path)
{
    DIR *list = opendir(path);
    if (!list && errno == ENOENT)
        return ECH_OK;
    int error = list ? 0 : errno;
    for (struct dirent *entry; list && !error && (entry = readdir(list)) != NULL;) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (unlinkat(dirfd(list), entry->d_name, 0) < 0)
            error = errno;
    }
    if (list)
        closedir(list);
    if (!error && rmdir(path) < 0)
        error = errno;
    return error ? ech__fail(ctx, ECH_E_IO, "%s: cannot be removed: %s", path, strerror(error))
                 : ECH_OK;
}
