/* Whole files in, and files out that are either complete or not there.
 *
 *     char *text;  size_t bytes;
 *     ECH_TRY(ech__file_read(ctx, "run.json", 1 << 20, &text, &bytes));
 *     free(text);
 *
 *     ech__file_writer w;
 *     ECH_TRY(ech__file_writer_init(ctx, &w, "model.safetensors"));
 *     ech_status s = ech__file_writer_write(&w, data, bytes);      as often as needed
 *     if (s == ECH_OK)
 *         s = ech__file_writer_commit(&w);                         now, and not before, the file is there
 *     ech__file_writer_fini(&w);                                   removes what was not committed
 *
 * Only regular files are read and replaced: a directory, device or pipe is refused with an error message. A
 * symbolic link is followed, so that writing keeps the link and replaces what it points to; but not a link that
 * another user has put into a directory where anybody may write, such as /tmp.
 */
#pragma once

#include "base/status.h"

/* Opens a regular file for reading; the caller closes *fd. */
ech_status ech__file_open(ech_ctx *ctx, const char *path, int *fd, int64_t *bytes);

/* Fills buffer from one place of an open file; fewer bytes than asked for are an error.
 * path is for the error message. */
typedef struct ech__file_range {
    int64_t offset;
    void *buffer;
    size_t bytes;
} ech__file_range;
ech_status ech__file_pread(ech_ctx *ctx, const char *path, int fd, ech__file_range range);

/* The whole file, followed by a NUL that *bytes does not count. The caller frees *out with
 * free(). */
ech_status ech__file_read(ech_ctx *ctx, const char *path, size_t max_bytes, char **out,
                          size_t *bytes);

/* A file that is being written: the bytes go to a temporary file in the same directory. */
typedef struct ech__file_writer {
    ech_ctx *ctx;
    char *path, *temp; /* owned */
    int fd;            /* -1 when closed */
    int64_t written;
} ech__file_writer;

ech_status ech__file_writer_init(ech_ctx *ctx, ech__file_writer *writer, const char *path);
ech_status ech__file_writer_write(ech__file_writer *writer, const void *data, size_t bytes);
/* Makes the bytes durable and puts the file in place. Nothing may be written afterwards. */
ech_status ech__file_writer_commit(ech__file_writer *writer);
/* After init, whether it succeeded or not. */
void ech__file_writer_fini(ech__file_writer *writer);

/* Writes a whole file in one go. */
ech_status ech__file_write(ech_ctx *ctx, const char *path, const void *data, size_t bytes);
