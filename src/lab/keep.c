#include "lab/keep.h"
#include "base/file/dir.h"
#include "base/file/json.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FORMAT = 1, MAX_BYTES = 64 << 10 };

/* dir, then end, such as ".new" or ".new/done.json". */
static ech_status path_of(ech_ctx *ctx, const char *dir, const char *end,
                          char out[ECH_DIR_MAX_PATH])
{
    return snprintf(out, ECH_DIR_MAX_PATH, "%s%s", dir, end) < ECH_DIR_MAX_PATH
               ? ECH_OK
               : ech__fail(ctx, ECH_E_INVALID, "%.60s...: its path has more than %d bytes", dir,
                           ECH_DIR_MAX_PATH - 1);
}

/* ---- directories ---- */

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

static ech_status remove_all(ech_ctx *ctx, const char *dir)
{
    /* Depth first, and links are removed, not followed. */
    return nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT
               ? ECH_OK
               : ech__fail(ctx, ECH_E_IO, "%s: the run that was there cannot be removed: %s", dir,
                           strerror(errno));
}

ech_status ech__lab_keep_drop(ech_ctx *ctx, const char *dir)
{
    char path[ECH_DIR_MAX_PATH];
    ECH_TRY(path_of(ctx, dir, ECH__LAB_KEEP_NEW, path));
    return remove_all(ctx, path);
}

ech_status ech__lab_keep_begin(ech_ctx *ctx, const char *dir)
{
    char path[ECH_DIR_MAX_PATH];
    ECH_TRY(ech__lab_keep_drop(ctx, dir));
    ECH_TRY(path_of(ctx, dir, ECH__LAB_KEEP_NEW, path));
    return ech__dir_make(ctx, "directory of a run", path);
}

/* Puts one directory into the place of another. Where the file system can exchange two names there
 * is no moment without one. */
static ech_status replace(ech_ctx *ctx, const char *from, const char *to)
{
    if (rename(from, to) == 0)
        return ECH_OK;
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0)
        return remove_all(ctx, from);
    ECH_TRY(remove_all(ctx, to));
    return rename(from, to) == 0 ? ECH_OK
                                 : ech__fail(ctx, ECH_E_IO, "%s cannot be renamed to %s: %s", from,
                                             to, strerror(errno));
}

/* ---- done.json ---- */

static ech_status save(ech_ctx *ctx, const char *dir, const ech__lab_kept *kept)
{
    char path[ECH_DIR_MAX_PATH];
    ECH_TRY(path_of(ctx, dir, ECH__LAB_KEEP_NEW "/done.json", path));
    ech_json *json = ech__json_object();
    ech__json_set_int(&json, "format", FORMAT);
    ech__json_set_string(&json, "words", kept->words);
    ech__json_set_string(&json, "state", kept->good ? "done" : "failed");
    ech__json_set_int(&json, "code", kept->code);
    ech__json_set_real(&json, "seconds", kept->seconds);
    ech__json_set_string(&json, "reason", kept->reason);
    const ech_status status = ech__json_save(ctx, path, json, ECH_JSON_INDENT);
    ech__json_destroy(json);
    return status;
}

ech_status ech__lab_keep_save(ech_ctx *ctx, const char *dir, const ech__lab_kept *kept)
{
    char made[ECH_DIR_MAX_PATH], failed[ECH_DIR_MAX_PATH];
    ECH_TRY(save(ctx, dir, kept));
    ECH_TRY(path_of(ctx, dir, ECH__LAB_KEEP_NEW, made));
    ECH_TRY(path_of(ctx, dir, ECH__LAB_KEEP_FAILED, failed));
    if (!kept->good)
        return replace(ctx, made, failed);
    ECH_TRY(replace(ctx, made, dir));
    return remove_all(ctx, failed);
}

bool ech__lab_keep_find(ech_ctx *ctx, const char *dir, const char *words, double *seconds)
{
    char path[ECH_DIR_MAX_PATH];
    ech_json *json;
    const char *state = NULL, *was = NULL;
    int64_t format = 0;
    if (path_of(ctx, dir, "/done.json", path) < 0 || access(path, R_OK) != 0 ||
        ech__json_load(ctx, path, MAX_BYTES, &json) < 0)
        return false;
    const ech_json *number = ech__json_find(json, "format"), *a = ech__json_find(json, "state"),
                   *b = ech__json_find(json, "words"), *c = ech__json_find(json, "seconds");
    const bool same = number && a && b && c && ech__json_int(number, &format) && format == FORMAT &&
                      ech__json_string(a, &state) && !strcmp(state, "done") &&
                      ech__json_string(b, &was) && !strcmp(was, words) &&
                      ech__json_real(c, seconds);
    ech__json_destroy(json);
    return same;
}
