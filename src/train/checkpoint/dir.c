#include "train/checkpoint/dir.h"
#include "base/file/file.h"
#include "base/file/json.h"
#include "base/file/sha256.h"
#include "base/names.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MANIFEST[] = "MANIFEST.json", COMPLETE[] = "COMPLETE", LATEST[] = "LATEST";

enum { MAX_MANIFEST = 1 << 16, MAX_MARKER = 128, CHUNK = 1 << 20 };

static ECH__NAMES(file_name, ech__checkpoint_file, ECH__CHECKPOINT_FILE_LIST)

/* ---- names ---- */

static ech_status join(ech_ctx *ctx, const char *dir, const char *name, char out[ECH_DIR_MAX_PATH])
{
    const int length = snprintf(out, ECH_DIR_MAX_PATH, "%s/%s", dir, name);
    return length > 0 && length < ECH_DIR_MAX_PATH
               ? ECH_OK
               : ech__fail(ctx, ECH_E_INVALID,
                           "checkpoint directory '%.60s...': the path is too long", dir);
}

ech_status ech__checkpoint_file_path(ech_ctx *ctx, const char *checkpoint,
                                     ech__checkpoint_file part, char out[ECH_DIR_MAX_PATH])
{
    return join(ctx, checkpoint, file_name(part), out);
}

/* The number in "step-000120", or -1 if the name has another form. */
static int64_t step_of(const char *name)
{
    if (strncmp(name, "step-", 5) != 0)
        return -1;
    const char *digits = name + 5;
    const size_t length = strlen(digits);
    if (length < 6 || length > 15 || strspn(digits, "0123456789") != length)
        return -1;
    return strtoll(digits, NULL, 10);
}

static bool exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

/* Calls each with every entry of a directory; a negative result ends it. */
typedef ech_status (*entry_fn)(void *user, const char *name);

static ech_status for_entries(ech_ctx *ctx, const char *dir, entry_fn each, void *user)
{
    DIR *list = opendir(dir);
    if (!list)
        return ech__fail(ctx, ECH_E_IO, "checkpoint directory %s cannot be read: %s", dir,
                         strerror(errno));
    ech_status status = ECH_OK;
    for (struct dirent *entry; status == ECH_OK && (entry = readdir(list)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = each(user, entry->d_name);
    }
    closedir(list);
    return status;
}

static ech_status keep_newest(void *user, const char *name)
{
    int64_t *newest = user;
    const int64_t step = step_of(name);
    if (step > *newest)
        *newest = step;
    return ECH_OK;
}

static void name_of(int64_t step, char out[ECH__CHECKPOINT_NAME])
{
    snprintf(out, ECH__CHECKPOINT_NAME, "step-%06lld", (long long)step);
}

/* ---- manifest ---- */

static ech_status hash_file(ech_ctx *ctx, const char *path, int64_t *bytes, char out[65])
{
    int fd = -1;
    char *chunk = ech__new(ctx, CHUNK);
    if (!chunk)
        return ech__no_memory(ctx, "a buffer of %d bytes", CHUNK);
    ech_status status = ech__file_open(ctx, path, &fd, bytes);
    ech__sha256 sha;
    ech__sha256_init(&sha);
    for (int64_t at = 0; status == ECH_OK && at < *bytes; at += CHUNK) {
        const size_t count = *bytes - at < CHUNK ? (size_t)(*bytes - at) : CHUNK;
        status = ech__file_pread(ctx, path, fd, (ech__file_range){at, chunk, count});
        if (status == ECH_OK)
            ech__sha256_update(&sha, chunk, count);
    }
    ech__delete(ctx, chunk, CHUNK);
    if (fd >= 0)
        close(fd);
    ECH_TRY(status);
    memcpy(out, ech__sha256_final(&sha).s, 65);
    return ECH_OK;
}

static ech_json *manifest_json(const ech__manifest *manifest)
{
    ech_json *json = ech__json_object(), *files = ech__json_object();
    for (int p = 0; p < ECH__CHECKPOINT_COUNT; p++) {
        if (manifest->bytes[p] < 0)
            continue;
        ech_json *file = ECH__JSON(ech__int("bytes", manifest->bytes[p]),
                                   ech__string("sha256", manifest->sha256[p]));
        ech__json_set(&files, file_name(p), file);
    }
    return ECH__JSON_SET(&json, ech__int("format", ECH__CHECKPOINT_FORMAT),
                         ech__member("files", files));
}

static ech_status parse_file(ech_ctx *ctx, const ech_json *files, int part, ech__manifest *out)
{
    const ech_json *file;
    const char *sha;
    out->bytes[part] = -1;
    if (!ech__json_find(files, file_name(part)))
        return part >= ECH__CHECKPOINT_NEEDED
                   ? ECH_OK
                   : ech__fail(ctx, ECH_E_FORMAT, "%s is missing: every checkpoint has it",
                               file_name(part));
    ECH_TRY(ech__json_get_object(ctx, files, file_name(part), &file));
    ECH_TRY(ech__json_get_int(ctx, file, "bytes", &out->bytes[part]));
    ECH_TRY(ech__json_get_string(ctx, file, "sha256", &sha));
    if (out->bytes[part] < 0)
        return ech__fail(ctx, ECH_E_FORMAT, "%s cannot have %lld bytes", file_name(part),
                         (long long)out->bytes[part]);
    if (strlen(sha) != 64 || strspn(sha, "0123456789abcdef") != 64)
        return ech__fail(ctx, ECH_E_FORMAT, "the sha256 of %s is not 64 hexadecimal digits",
                         file_name(part));
    memcpy(out->sha256[part], sha, 65);
    return ECH_OK;
}

static ech_status parse_manifest(ech_ctx *ctx, const ech_json *doc, ech__manifest *out)
{
    int64_t format;
    const ech_json *files;
    ECH_TRY(ech__json_get_int(ctx, doc, "format", &format));
    if (format != ECH__CHECKPOINT_FORMAT)
        return ech__fail(ctx, ECH_E_FORMAT, "the format is %lld; this program reads %d",
                         (long long)format, ECH__CHECKPOINT_FORMAT);
    ECH_TRY(ech__json_get_object(ctx, doc, "files", &files));
    size_t parts = 0;
    for (int p = 0; p < ECH__CHECKPOINT_COUNT; p++) {
        ECH_TRY(parse_file(ctx, files, p, out));
        parts += out->bytes[p] >= 0;
    }
    return ech__json_count(files) == parts
               ? ECH_OK
               : ech__fail(ctx, ECH_E_FORMAT, "there are %zu files; a checkpoint has %zu",
                           ech__json_count(files), parts);
}

ech_status ech__manifest_parse(ech_ctx *ctx, const char *what, const char *text, size_t bytes,
                               ech__manifest *out)
{
    ech_json *doc;
    *out = (ech__manifest){.bytes = {0}};
    ECH_TRY(ech__json_parse(ctx, what, text, bytes, &doc));
    ech_status status = parse_manifest(ctx, doc, out);
    ech__json_destroy(doc);
    return status < 0 ? ech__fail_in(ctx, status, "%s", what) : ECH_OK;
}

/* ---- finding ---- */

static ech_status read_latest(ech_ctx *ctx, const char *path, char out[ECH__CHECKPOINT_NAME])
{
    char *text;
    size_t bytes;
    ECH_TRY(ech__file_read(ctx, path, MAX_MARKER, &text, &bytes));
    text[strcspn(text, "\n")] = 0;
    const bool good = step_of(text) >= 0;
    if (good)
        snprintf(out, ECH__CHECKPOINT_NAME, "%s", text);
    free(text);
    return good ? ECH_OK
                : ech__fail(
                      ctx, ECH_E_FORMAT,
                      "%s does not name a checkpoint: it should contain a name such as step-000120",
                      path);
}

ech_status ech__checkpoint_find(ech_ctx *ctx, const char *dir, char out[ECH_DIR_MAX_PATH])
{
    char path[ECH_DIR_MAX_PATH], name[ECH__CHECKPOINT_NAME];
    int64_t newest = -1;
    struct stat info;
    if (stat(dir, &info) < 0)
        return ech__fail(ctx, ECH_E_IO, "no checkpoint at %s: %s", dir, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return ech__fail(ctx, ECH_E_IO, "no checkpoint at %s: it is not a directory", dir);
    for (int p = 0; p < ECH__CHECKPOINT_COUNT; p++) {
        ECH_TRY(join(ctx, dir, file_name(p), path));
        if (!exists(path))
            continue;
        snprintf(out, ECH_DIR_MAX_PATH, "%s", dir); /* it is one itself */
        return ECH_OK;
    }
    ECH_TRY(join(ctx, dir, LATEST, path));
    if (exists(path)) {
        ECH_TRY(read_latest(ctx, path, name));
    } else {
        /* The very first one was renamed, and the run ended before LATEST was there. */
        ECH_TRY(for_entries(ctx, dir, keep_newest, &newest));
        if (newest < 0)
            return ech__fail(ctx, ECH_E_IO, "no checkpoint in %s: it has no LATEST and no step-N",
                             dir);
        name_of(newest, name);
    }
    ECH_TRY(join(ctx, dir, name, out));
    return exists(out) ? ECH_OK
                       : ech__fail(ctx, ECH_E_IO, "%s names %s, which does not exist", path, name);
}

/* ---- verifying ---- */

/* The marker holds the hash of the manifest, the manifest those of the parts. */
static ech_status check_marker(ech_ctx *ctx, const char *checkpoint, const char *manifest)
{
    char path[ECH_DIR_MAX_PATH], hash[65], *text;
    int64_t size;
    size_t bytes;
    ECH_TRY(join(ctx, checkpoint, COMPLETE, path));
    if (!exists(path))
        return ech__fail(ctx, ECH_E_FORMAT, "%s is incomplete: it has no %s file", checkpoint,
                         COMPLETE);
    ECH_TRY(ech__file_read(ctx, path, MAX_MARKER, &text, &bytes));
    ech_status status = bytes >= 64
                            ? ECH_OK
                            : ech__fail(ctx, ECH_E_FORMAT, "%s is incomplete: %s is truncated",
                                        checkpoint, COMPLETE);
    if (status == ECH_OK)
        status = hash_file(ctx, manifest, &size, hash);
    if (status == ECH_OK && memcmp(text, hash, 64) != 0)
        status = ech__fail(ctx, ECH_E_FORMAT, "%s has the SHA-256 %.12s...; %s says %.12s...",
                           manifest, hash, COMPLETE, text);
    free(text);
    return status;
}

static ech_status check_part(ech_ctx *ctx, const char *path, int64_t expected, const char *sha256)
{
    char hash[65];
    int64_t bytes;
    struct stat info;
    if (stat(path, &info) < 0)
        return ech__fail(ctx, ECH_E_FORMAT, "%s is missing from the checkpoint: %s", path,
                         strerror(errno));
    if (S_ISREG(info.st_mode) && info.st_size != expected)
        return ech__fail(ctx, ECH_E_FORMAT, "%s has %lld bytes; %s says %lld", path,
                         (long long)info.st_size, MANIFEST, (long long)expected);
    ECH_TRY(hash_file(ctx, path, &bytes, hash));
    if (strcmp(hash, sha256) != 0)
        return ech__fail(ctx, ECH_E_FORMAT, "%s has the SHA-256 %.12s...; %s says %.12s...", path,
                         hash, MANIFEST, sha256);
    return ECH_OK;
}

ech_status ech__checkpoint_verify(ech_ctx *ctx, const char *checkpoint)
{
    char path[ECH_DIR_MAX_PATH], *text;
    size_t bytes;
    ech__manifest manifest;
    ECH_TRY(join(ctx, checkpoint, MANIFEST, path));
    if (!exists(path))
        return ech__fail(ctx, ECH_E_FORMAT, "%s is missing from the checkpoint", path);
    ECH_TRY(check_marker(ctx, checkpoint, path));
    ECH_TRY(ech__file_read(ctx, path, MAX_MANIFEST, &text, &bytes));
    const ech_status status = ech__manifest_parse(ctx, path, text, bytes, &manifest);
    free(text);
    ECH_TRY(status);
    for (int p = 0; p < ECH__CHECKPOINT_COUNT; p++) {
        if (manifest.bytes[p] < 0)
            continue;
        ECH_TRY(ech__checkpoint_file_path(ctx, checkpoint, (ech__checkpoint_file)p, path));
        ECH_TRY(check_part(ctx, path, manifest.bytes[p], manifest.sha256[p]));
    }
    return ECH_OK;
}

/* ---- writing ---- */

struct ech__checkpoint_dir {
    ech_ctx *ctx;
    char root[ECH_DIR_MAX_PATH];
    ech__claim claim;                /* on root, so that no other run writes there */
    char last[ECH__CHECKPOINT_NAME]; /* the newest that this run saved or goes on from; or "" */
    char name[ECH__CHECKPOINT_NAME]; /* of the one that was begun */
    char temp[ECH_DIR_MAX_PATH];     /* where it grows; "" when none was begun */
};

/* Whether the checkpoint `path` is in dir; then its name. */
static bool is_inside(const char *dir, const char *path, char name[ECH__CHECKPOINT_NAME])
{
    char *root = realpath(dir, NULL), *full = path ? realpath(path, NULL) : NULL;
    char *slash = full ? strrchr(full, '/') : NULL;
    bool inside = false;
    if (root && slash && step_of(slash + 1) >= 0) {
        snprintf(name, ECH__CHECKPOINT_NAME, "%s", slash + 1);
        *slash = 0;
        inside = !strcmp(root, *full ? full : "/");
    }
    free(root);
    free(full);
    return inside;
}

static ech_status check_empty(ech_ctx *ctx, const char *dir, const char *resumed)
{
    char name[ECH__CHECKPOINT_NAME];
    int64_t newest = -1;
    if (is_inside(dir, resumed, name))
        return ECH_OK;
    ECH_TRY(for_entries(ctx, dir, keep_newest, &newest));
    if (newest < 0)
        return ECH_OK;
    return ech__fail(
        ctx, ECH_E_INVALID,
        "checkpoint directory %s holds step %lld of another run: resume that one, or save "
        "elsewhere",
        dir, (long long)newest);
}

/* A checkpoint that goes is first renamed, so that no half of it ever has its name. */
static ech_status remove_checkpoint(ech__checkpoint_dir *d, const char *name)
{
    char path[ECH_DIR_MAX_PATH], old[ECH__CHECKPOINT_NAME + 8], gone[ECH_DIR_MAX_PATH];
    snprintf(old, sizeof old, ".%s.old", name);
    ECH_TRY(join(d->ctx, d->root, name, path));
    ECH_TRY(join(d->ctx, d->root, old, gone));
    ECH_TRY(ech__dir_remove(d->ctx, gone));
    if (rename(path, gone) < 0)
        return errno == ENOENT ? ECH_OK
                               : ech__fail(d->ctx, ECH_E_IO, "%s: cannot be removed: %s", path,
                                           strerror(errno));
    return ech__dir_remove(d->ctx, gone);
}

/* What a killed run left: ".step-000120.tmp", ".step-000100.old" and "LATEST.1234-0.tmp". */
static ech_status remove_leftover(void *user, const char *name)
{
    ech__checkpoint_dir *d = user;
    char path[ECH_DIR_MAX_PATH];
    ECH_TRY(join(d->ctx, d->root, name, path));
    if (!strncmp(name, ".step-", 6))
        return ech__dir_remove(d->ctx, path);
    const size_t length = strlen(name);
    if (!strncmp(name, "LATEST.", 7) && !strcmp(name + length - 4, ".tmp"))
        (void)unlink(path);
    return ECH_OK;
}

/* Keeps the newest and the one before; d->last is still that one. */
static ech_status remove_older(void *user, const char *name)
{
    ech__checkpoint_dir *d = user;
    if (step_of(name) < 0 || !strcmp(name, d->name) || !strcmp(name, d->last))
        return ECH_OK;
    return remove_checkpoint(d, name);
}

static ech_status open_dir(ech__checkpoint_dir *d, const char *resumed)
{
    const ech__claim_options claim = {"checkpoint directory", d->root, ".checkpoints.lock"};
    ECH_TRY(ech__claim_take(d->ctx, &d->claim, &claim));
    ECH_TRY(check_empty(d->ctx, d->root, resumed));
    if (!is_inside(d->root, resumed, d->last))
        d->last[0] = 0;
    return for_entries(d->ctx, d->root, remove_leftover, d);
}

ech_status ech__checkpoint_dir_open(ech_ctx *ctx, const char *dir, const char *resumed,
                                    ech__checkpoint_dir **out)
{
    *out = NULL;
    ech__checkpoint_dir *d = ech__new(ctx, sizeof *d);
    if (!d)
        return ech__no_memory(ctx, "a checkpoint directory");
    d->ctx = ctx;
    snprintf(d->root, sizeof d->root, "%s", dir);
    const ech_status status = open_dir(d, resumed);
    if (status < 0) {
        ech__checkpoint_dir_close(d);
        return status;
    }
    *out = d;
    return ECH_OK;
}

void ech__checkpoint_dir_close(ech__checkpoint_dir *d)
{
    if (!d)
        return;
    ech__checkpoint_abort(d);
    ech__claim_release(&d->claim);
    ech__delete(d->ctx, d, sizeof *d);
}

int64_t ech__checkpoint_last(const ech__checkpoint_dir *d)
{
    return step_of(d->last);
}

ech_status ech__checkpoint_begin(ech__checkpoint_dir *d, int64_t step)
{
    char name[ECH__CHECKPOINT_NAME + 8];
    name_of(step, d->name);
    snprintf(name, sizeof name, ".%s.tmp", d->name);
    ECH_TRY(join(d->ctx, d->root, name, d->temp));
    ECH_TRY(ech__dir_remove(d->ctx, d->temp));
    if (mkdir(d->temp, 0777) == 0)
        return ECH_OK;
    const ech_status status =
        ech__fail(d->ctx, ECH_E_IO, "%s: cannot be made: %s", d->temp, strerror(errno));
    d->temp[0] = 0;
    return status;
}

ech_status ech__checkpoint_new_path(ech__checkpoint_dir *d, ech__checkpoint_file part,
                                    char out[ECH_DIR_MAX_PATH])
{
    return ech__checkpoint_file_path(d->ctx, d->temp, part, out);
}

void ech__checkpoint_abort(ech__checkpoint_dir *d)
{
    char sentence[sizeof d->ctx->error]; /* of what went wrong before */
    memcpy(sentence, d->ctx->error, sizeof sentence);
    if (d->temp[0])
        (void)ech__dir_remove(d->ctx, d->temp);
    d->temp[0] = 0;
    memcpy(d->ctx->error, sentence, sizeof sentence);
}

/* The manifest over the parts, and the marker over the manifest. */
static ech_status write_marker(ech__checkpoint_dir *d)
{
    char path[ECH_DIR_MAX_PATH], marker[66];
    int64_t bytes;
    ech__manifest manifest;
    for (int p = 0; p < ECH__CHECKPOINT_COUNT; p++) {
        ECH_TRY(ech__checkpoint_new_path(d, (ech__checkpoint_file)p, path));
        manifest.bytes[p] = -1;
        if (p >= ECH__CHECKPOINT_NEEDED && !exists(path))
            continue;
        ECH_TRY(hash_file(d->ctx, path, &manifest.bytes[p], manifest.sha256[p]));
    }
    ECH_TRY(join(d->ctx, d->temp, MANIFEST, path));
    ech_json *json = manifest_json(&manifest);
    const ech_status status = ech__json_save(d->ctx, path, json, ECH_JSON_INDENT);
    ech__json_destroy(json);
    ECH_TRY(status);
    ECH_TRY(hash_file(d->ctx, path, &bytes, marker));
    strcpy(marker + 64, "\n");
    ECH_TRY(join(d->ctx, d->temp, COMPLETE, path));
    ECH_TRY(ech__file_write(d->ctx, path, marker, 65));
    return ech__dir_sync(d->ctx, d->temp);
}

static ech_status point_at(ech__checkpoint_dir *d, const char *name)
{
    char path[ECH_DIR_MAX_PATH], text[ECH__CHECKPOINT_NAME + 1];
    ECH_TRY(join(d->ctx, d->root, LATEST, path));
    const int length = snprintf(text, sizeof text, "%s\n", name);
    return ech__file_write(d->ctx, path, text, (size_t)length);
}

ech_status ech__checkpoint_commit(ech__checkpoint_dir *d)
{
    char path[ECH_DIR_MAX_PATH];
    ECH_TRY(write_marker(d));
    ECH_TRY(join(d->ctx, d->root, d->name, path));
    if (exists(path)) {
        /* A run that ended before it replaced LATEST left this directory, or this run resumed from
         * an earlier step. LATEST points at the complete checkpoint that this run resumed from
         * until the new one is written. */
        if (d->last[0])
            ECH_TRY(point_at(d, d->last));
        ECH_TRY(remove_checkpoint(d, d->name));
    }
    if (rename(d->temp, path) < 0)
        return ech__fail(d->ctx, ECH_E_IO, "%s: cannot be renamed to %s: %s", d->temp, path,
                         strerror(errno));
    d->temp[0] = 0;
    ECH_TRY(ech__dir_sync(d->ctx, d->root));
    ECH_TRY(point_at(d, d->name));
    ECH_TRY(for_entries(d->ctx, d->root, remove_older, d));
    memcpy(d->last, d->name, sizeof d->last);
    return ECH_OK;
}
