/* Safetensors files: a JSON header and named tensors, read and written in pieces of any size.
 *
 *     ech__safetensors *file;
 *     ECH_TRY(ech__safetensors_open(ctx, "model.safetensors", &file));
 *     const ech__safetensor *w = ech__safetensors_find(file, "fc1.weight");
 *     s = ech__safetensors_read(file, w, 0, buffer, (size_t)w->bytes);
 *     ech__safetensors_close(file);
 *
 * The complete header is checked before a tensor is handed out: types, shapes and offsets agree,
 * the data is covered without overlap or hole, and nothing follows it. If not, the error message
 * names the file, the tensor, the value and the limit.
 *
 *     ech__safetensor t[] = {{.name = "x", .dtype = ECH_F32, .shape = {1, {4}}}};
 *     ech__safetensors_header h = {.tensors = t, .count = 1};
 *     ech__safetensors_writer *w;
 *     ECH_TRY(ech__safetensors_writer_create(ctx, path, &h, &w));
 *     s = ech__safetensors_writer_write(w, data, 16);       all tensors in order, in any pieces
 *     if (s == ECH_OK)
 *         s = ech__safetensors_writer_commit(w);            now, and not before, the file is there
 *     ech__safetensors_writer_destroy(w);
 *
 * Layout: 8 bytes little-endian length of the header, the header, the data. Equal calls write equal
 * bytes.
 */
#pragma once

#include "tensor/shape.h"

enum { ECH_SAFETENSORS_MAX_HEADER = 100000000 };

typedef struct ech__safetensor {
    const char *name;
    ech_dtype dtype;
    ech__shape shape;
    int64_t bytes;  /* set by the reader */
    int64_t offset; /* in the file; set by the reader */
} ech__safetensor;

/* One entry of __metadata__. */
typedef struct ech__safetensors_pair {
    const char *key, *value;
} ech__safetensors_pair;

/* ---- reading ---- */

typedef struct ech__safetensors ech__safetensors;

ech_status ech__safetensors_open(ech_ctx *ctx, const char *path, ech__safetensors **out);
/* The same for a file in memory, which must outlive *out. what names it in error messages. */
ech_status ech__safetensors_parse(ech_ctx *ctx, const char *what, const void *data, size_t bytes,
                                  ech__safetensors **out);
void ech__safetensors_close(ech__safetensors *file);

/* What follows is borrowed and lives until close. Tensors are counted in the order of their data. */
size_t ech__safetensors_count(const ech__safetensors *file);
const ech__safetensor *ech__safetensors_at(const ech__safetensors *file, size_t index);
/* NULL if there is no tensor of that name. */
const ech__safetensor *ech__safetensors_find(const ech__safetensors *file, const char *name);

size_t ech__safetensors_metadata_count(const ech__safetensors *file);
const ech__safetensors_pair *ech__safetensors_metadata_at(const ech__safetensors *file,
                                                          size_t index);
/* NULL where there is no such key. */
const char *ech__safetensors_metadata(const ech__safetensors *file, const char *key);

/* Bytes [offset, offset + bytes) of a tensor of this file, unconverted. */
ech_status ech__safetensors_read(const ech__safetensors *file, const ech__safetensor *tensor,
                                 int64_t offset, void *buffer, size_t bytes);

/* ---- writing ---- */

typedef struct ech__safetensors_header {
    const ech__safetensor *tensors; /* name, dtype and shape; the data comes in this order */
    size_t count;
    const ech__safetensors_pair *metadata;
    size_t metadata_count;
} ech__safetensors_header;

typedef struct ech__safetensors_writer ech__safetensors_writer;

/* Writes the header to a temporary file next to path. header is not needed afterwards. */
ech_status ech__safetensors_writer_create(ech_ctx *ctx, const char *path,
                                          const ech__safetensors_header *header,
                                          ech__safetensors_writer **out);
ech_status ech__safetensors_writer_write(ech__safetensors_writer *writer, const void *data,
                                         size_t bytes);
/* Puts the file in place; all data must have been written. */
ech_status ech__safetensors_writer_commit(ech__safetensors_writer *writer);
/* Removes what was not committed. NULL is fine. */
void ech__safetensors_writer_destroy(ech__safetensors_writer *writer);
