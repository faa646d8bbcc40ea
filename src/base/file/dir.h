/* Directories: made with their parents, claimed by one process at a time, made durable, removed with what is in them;
 * and the lock of a file that several processes replace.
 *
 *     ech__claim claim;
 *     ECH_TRY(ech__claim_take(ctx, &claim, &(ech__claim_options){"run directory", "runs/a", ".run.lock"}));
 *     ... write to runs/a ...
 *     ech__claim_release(&claim);
 */
#pragma once

#include "base/status.h"

enum { ECH_DIR_MAX_PATH = 4096 }; /* bytes of a path, with its NUL */

/* As mkdir -p; fails where it cannot be written to. what names it in error messages: "directory for tables". */
ech_status ech__dir_make(ech_ctx *ctx, const char *what, const char *path);
/* Makes the names in it durable. */
ech_status ech__dir_sync(ech_ctx *ctx, const char *path);
/* The directory and all files in it; directories in it are an error. A symbolic link is removed itself, never followed,
 * and so is a file. A path that does not exist is fine. */
ech_status ech__dir_remove(ech_ctx *ctx, const char *path);

/* A directory that no other process may write the same kind of files to. The kernel holds the lock on a file in the
 * directory, so it ends with the process, however that ends. All zero: nothing is claimed. */
typedef struct ech__claim {
    char path[ECH_DIR_MAX_PATH]; /* of the lock file */
    size_t length;               /* of the directory's part of it */
    size_t made; /* length of the outermost directory that was made for the claim; 0: none was */
    int fd;      /* of the lock file */
    bool held;
} ech__claim;

typedef struct ech__claim_options {
    const char *what; /* names the directory in error messages: "run directory" */
    const char *dir;
    const char *lock; /* file name; one for each kind of files that may be in one place */
} ech__claim_options;

/* Makes the directory with its parents and locks it. Where another process holds it the error says
 * which, after a moment: a process that was just killed may still be about to end. */
ech_status ech__claim_take(ech_ctx *ctx, ech__claim *claim, const ech__claim_options *options);
/* Removes the lock file, and the directories that were made for the claim where nothing was put into them. */
void ech__claim_release(ech__claim *claim);

/* The lock of a file that several processes read, merge and replace, such as the tuning store. It is a file of its
 * own, because the stored file is replaced.
 *
 *     int lock;
 *     ECH_TRY(ech__store_lock(ctx, "tuning.json", 5, &lock));      tuning.json.lock
 *     ...read, merge, write...
 *     close(lock);                                                 also when the process ends
 *
 * Waits at most so many seconds for another holder; fails where the lock cannot be had. */
ech_status ech__store_lock(ech_ctx *ctx, const char *path, double seconds, int *out);
