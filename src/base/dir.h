/* Directories: checked, made with their parents, made durable, removed with what is in them. */
#ifndef ECH_BASE_DIR_H
#define ECH_BASE_DIR_H

#include "base/status.h"

enum { ECH_DIR_MAX_PATH = 4096 }; /* bytes of a path, with its NUL */

/* Whether the directory is there or can be made, and can be written to. Leaves nothing behind. what names it in
 * sentences: "run directory". */
ech_status ech__dir_check(ech_ctx *ctx, const char *what, const char *path);
/* As mkdir -p. */
ech_status ech__dir_make(ech_ctx *ctx, const char *what, const char *path);
/* Makes the names in it durable. */
ech_status ech__dir_sync(ech_ctx *ctx, const char *path);
/* The directory and all files in it; directories in it are an error. One that is not there is fine. */
ech_status ech__dir_remove(ech_ctx *ctx, const char *path);

#endif
