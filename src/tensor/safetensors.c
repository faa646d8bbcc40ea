#include "tensor/safetensors.h"
#include "base/arena.h"
#include "base/file/file.h"
#include "base/file/json.h"
#include "base/size.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH_BYTES = 8, HEADER_ALIGN = 8 };

static const char metadata_key[] = "__metadata__";

/* The format's names of our types. */
static const char *const type_names[] = {
    [ECH_F32] = "F32", [ECH_F64] = "F64", [ECH_BF16] = "BF16", [ECH_F16] = "F16",
    [ECH_S8] = "I8",   [ECH_U8] = "U8",   [ECH_S32] = "I32",   [ECH_S64] = "I64",
};

/* Rows of the table that names are looked up in. */
typedef struct named {
    const char *name;
    const ech__safetensor *tensor;
} named;

struct ech__safetensors {
    ech_ctx *ctx;
    const char *path;
    int fd;                /* -1 if the file is in memory */
    const uint8_t *memory; /* NULL when it does not */
    int64_t file_bytes, data_start;
    ech__arena arena; /* holds this struct's strings and arrays */
    ech__safetensor *tensors;
    size_t count;
    named *by_name; /* sorted */
    ech__safetensors_pair *metadata;
    size_t metadata_count;
};

/* ---- reading: one entry of the header ---- */

static char *copy_text(ech__safetensors *file, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = ech__arena_alloc(&file->arena, bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

static ech_status read_type(ech__safetensors *file, const ech_json *entry, ech__safetensor *tensor)
{
    const char *type;
    ECH_TRY(ech__json_get_string(file->ctx, entry, "dtype", &type));
    for (size_t i = 0; i < sizeof type_names / sizeof *type_names; i++) {
        if (!strcmp(type, type_names[i])) {
            tensor->dtype = (ech_dtype)i;
            return ECH_OK;
        }
    }
    return ech__fail(file->ctx, ECH_E_UNSUPPORTED,
                     "type %.99s is not supported; F32, F64, BF16, F16, I8, U8, I32 and I64 are",
                     type);
}

static ech_status read_shape(ech__safetensors *file, const ech_json *entry, ech__safetensor *tensor)
{
    const ech_json *dims;
    int64_t elems;
    ECH_TRY(ech__json_get_array(file->ctx, entry, "shape", &dims));
    if (ech__json_count(dims) > ECH_MAX_DIMS)
        return ech__fail(file->ctx, ECH_E_UNSUPPORTED, "has %zu dimensions, the limit is %d",
                         ech__json_count(dims), ECH_MAX_DIMS);
    tensor->shape.ndims = (int)ech__json_count(dims);
    for (int i = 0; i < tensor->shape.ndims; i++) {
        int64_t *dim = &tensor->shape.dims[i];
        if (!ech__json_int(ech__json_at(dims, (size_t)i), dim))
            return ech__fail(file->ctx, ECH_E_FORMAT, "dimension %d must be an integer", i);
        if (*dim < 0)
            return ech__fail(file->ctx, ECH_E_FORMAT,
                             "dimension %d is %" PRId64 ", must be 0 or more", i, *dim);
    }
    if (!ech__shape_elems(&tensor->shape, &elems) ||
        !ech__mul(elems, ech__dtype_bytes(tensor->dtype), &tensor->bytes))
        return ech__fail(file->ctx, ECH_E_FORMAT, "shape %s has more bytes than a file can hold",
                         ech__shape_format(&tensor->shape).s);
    return ECH_OK;
}

/* Needs type and shape. The tensor's offset counts from the start of the data until the header is done. */
static ech_status read_offsets(ech__safetensors *file, const ech_json *entry,
                               ech__safetensor *tensor)
{
    const ech_json *pair;
    int64_t begin, end;
    const int64_t data_bytes = file->file_bytes - file->data_start;
    ECH_TRY(ech__json_get_array(file->ctx, entry, "data_offsets", &pair));
    if (ech__json_count(pair) != 2 || !ech__json_int(ech__json_at(pair, 0), &begin) ||
        !ech__json_int(ech__json_at(pair, 1), &end))
        return ech__fail(file->ctx, ECH_E_FORMAT, "data_offsets must be two integers");
    if (begin < 0 || end < begin)
        return ech__fail(file->ctx, ECH_E_FORMAT,
                         "data_offsets [%" PRId64 ", %" PRId64 "] are reversed or negative", begin,
                         end);
    if (end > data_bytes)
        return ech__fail(file->ctx, ECH_E_FORMAT,
                         "data_offsets [%" PRId64 ", %" PRId64 "] reach past the %" PRId64
                         " bytes of data in the file",
                         begin, end, data_bytes);
    if (end - begin != tensor->bytes)
        return ech__fail(file->ctx, ECH_E_FORMAT,
                         "data_offsets [%" PRId64 ", %" PRId64 "] hold %" PRId64
                         " bytes, but %s of type %s has %" PRId64,
                         begin, end, end - begin, ech__shape_format(&tensor->shape).s,
                         type_names[tensor->dtype], tensor->bytes);
    tensor->offset = begin;
    return ECH_OK;
}

static ech_status read_tensor(ech__safetensors *file, ech__json_iter entry, ech__safetensor *tensor)
{
    ech_status status;
    if (ech__json_kind_of(entry.value) != ECH_JSON_OBJECT)
        status = ech__fail(file->ctx, ECH_E_FORMAT, "must be an object");
    else if ((status = read_type(file, entry.value, tensor)) == ECH_OK &&
             (status = read_shape(file, entry.value, tensor)) == ECH_OK)
        status = read_offsets(file, entry.value, tensor);
    if (status < 0)
        return ech__fail_in(file->ctx, status, "%s: tensor %.99s", file->path, entry.key);
    tensor->name = copy_text(file, entry.key);
    return tensor->name ? ECH_OK : ech__no_memory(file->ctx, "the header of %s", file->path);
}

static ech_status read_metadata(ech__safetensors *file, const ech_json *map)
{
    if (ech__json_kind_of(map) != ECH_JSON_OBJECT)
        return ech__fail(file->ctx, ECH_E_FORMAT, "%s: %s must be an object", file->path,
                         metadata_key);
    file->metadata = ech__arena_array(&file->arena, ech__json_count(map), sizeof *file->metadata);
    if (!file->metadata)
        return ech__no_memory(file->ctx, "the header of %s", file->path);
    for (ech__json_iter it = ech__json_begin(map); it.key; ech__json_next(&it)) {
        ech__safetensors_pair *pair = &file->metadata[file->metadata_count++];
        const char *value;
        if (!ech__json_string(it.value, &value))
            return ech__fail(file->ctx, ECH_E_FORMAT, "%s: %s: the value of %.99s must be a string",
                             file->path, metadata_key, it.key);
        pair->key = copy_text(file, it.key);
        pair->value = copy_text(file, value);
        if (!pair->key || !pair->value)
            return ech__no_memory(file->ctx, "the header of %s", file->path);
    }
    return ECH_OK;
}

/* ---- reading: all of it ---- */

/* By place; where an empty tensor and another begin together the empty one comes first. */
static int compare_places(const void *a, const void *b)
{
    const ech__safetensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int compare_names(const void *a, const void *b)
{
    const named *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* The tensors, sorted by place, must cover the data exactly. */
static ech_status check_cover(ech__safetensors *file)
{
    int64_t end = 0;
    const int64_t data_bytes = file->file_bytes - file->data_start;
    for (size_t i = 0; i < file->count; i++) {
        const ech__safetensor *t = &file->tensors[i];
        if (t->offset < end)
            return ech__fail(file->ctx, ECH_E_FORMAT,
                             "%s: tensor %.99s: begins at %" PRId64
                             " and overlaps tensor %.99s, which ends at "
                             "%" PRId64,
                             file->path, t->name, t->offset, t[-1].name, end);
        if (t->offset > end)
            return ech__fail(file->ctx, ECH_E_FORMAT,
                             "%s: tensor %.99s: begins at %" PRId64
                             " and leaves a gap after %" PRId64,
                             file->path, t->name, t->offset, end);
        end += t->bytes;
    }
    if (end != data_bytes)
        return ech__fail(file->ctx, ECH_E_FORMAT,
                         "%s: has %" PRId64 " bytes after its last tensor, must have none",
                         file->path, data_bytes - end);
    return ECH_OK;
}

static ech_status read_entries(ech__safetensors *file, const ech_json *header)
{
    file->tensors = ech__arena_array(&file->arena, ech__json_count(header), sizeof *file->tensors);
    file->by_name = ech__arena_array(&file->arena, ech__json_count(header), sizeof *file->by_name);
    if (!file->tensors || !file->by_name)
        return ech__no_memory(file->ctx, "the header of %s", file->path);
    for (ech__json_iter it = ech__json_begin(header); it.key; ech__json_next(&it)) {
        if (!strcmp(it.key, metadata_key))
            ECH_TRY(read_metadata(file, it.value));
        else
            ECH_TRY(read_tensor(file, it, &file->tensors[file->count++]));
    }
    if (file->count > 0)
        qsort(file->tensors, file->count, sizeof *file->tensors, compare_places);
    ECH_TRY(check_cover(file));
    for (size_t i = 0; i < file->count; i++) {
        file->tensors[i].offset += file->data_start;
        file->by_name[i] = (named){file->tensors[i].name, &file->tensors[i]};
    }
    if (file->count > 0)
        qsort(file->by_name, file->count, sizeof *file->by_name, compare_names);
    return ECH_OK;
}

static ech_status read_bytes(const ech__safetensors *file, ech__file_range range)
{
    if (!file->memory)
        return ech__file_pread(file->ctx, file->path, file->fd, range);
    if (range.bytes > 0)
        memcpy(range.buffer, file->memory + range.offset, range.bytes);
    return ECH_OK;
}

/* Where the data starts, from the first eight bytes. */
static ech_status read_length(ech__safetensors *file)
{
    uint8_t raw[LENGTH_BYTES];
    if (file->file_bytes < LENGTH_BYTES)
        return ech__fail(file->ctx, ECH_E_FORMAT,
                         "%s: has %" PRId64
                         " bytes, a safetensors file begins with %d for its length",
                         file->path, file->file_bytes, LENGTH_BYTES);
    ECH_TRY(read_bytes(file, (ech__file_range){.buffer = raw, .bytes = sizeof raw}));
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | raw[i];
    if (length == 0)
        return ech__fail(file->ctx, ECH_E_FORMAT, "%s: its header has 0 bytes", file->path);
    if (length > ECH_SAFETENSORS_MAX_HEADER)
        return ech__fail(file->ctx, ECH_E_FORMAT,
                         "%s: its header has %" PRIu64 " bytes, the limit is %d", file->path,
                         length, ECH_SAFETENSORS_MAX_HEADER);
    if ((int64_t)length > file->file_bytes - LENGTH_BYTES)
        return ech__fail(file->ctx, ECH_E_FORMAT,
                         "%s: its header has %" PRIu64 " bytes, but the file ends after %" PRId64,
                         file->path, length, file->file_bytes - LENGTH_BYTES);
    file->data_start = LENGTH_BYTES + (int64_t)length;
    return ECH_OK;
}

static ech_status parse_header(ech__safetensors *file, const char *text, size_t bytes)
{
    ech_json *header = NULL;
    if (text[0] != '{')
        return ech__fail(file->ctx, ECH_E_FORMAT, "%s: its header does not begin with {",
                         file->path);
    ECH_TRY(ech__json_parse(file->ctx, file->path, text, bytes, &header));
    ech_status status = read_entries(file, header);
    ech__json_destroy(header);
    return status;
}

static ech_status read_header(ech__safetensors *file)
{
    ECH_TRY(read_length(file));
    const size_t bytes = (size_t)(file->data_start - LENGTH_BYTES);
    if (file->memory)
        return parse_header(file, (const char *)file->memory + LENGTH_BYTES, bytes);
    char *text = malloc(bytes);
    if (!text)
        return ech__no_memory(file->ctx, "the header of %s", file->path);
    ech_status status =
        read_bytes(file, (ech__file_range){.offset = LENGTH_BYTES, .buffer = text, .bytes = bytes});
    if (status == ECH_OK)
        status = parse_header(file, text, bytes);
    free(text);
    return status;
}

/* Takes the source (fd or memory) over from a caller's half-filled struct. */
static ech_status create(ech_ctx *ctx, const char *path, ech__safetensors source,
                         ech__safetensors **out)
{
    ech__safetensors *file = ech__new(ctx, sizeof *file);
    if (!file) {
        if (source.fd >= 0)
            close(source.fd);
        return ech__no_memory(ctx, "the header of %s", path);
    }
    *file = source;
    file->ctx = ctx;
    file->path = path;
    ech__arena_init(&file->arena, ctx->alloc);
    ech_status status = read_header(file);
    if (status == ECH_OK && !(file->path = copy_text(file, path))) {
        file->path = path;
        status = ech__no_memory(file->ctx, "the header of %s", file->path);
    }
    if (status < 0) {
        ech__safetensors_close(file);
        return status;
    }
    *out = file;
    return ECH_OK;
}

ech_status ech__safetensors_open(ech_ctx *ctx, const char *path, ech__safetensors **out)
{
    ech__safetensors source = {.fd = -1};
    *out = NULL;
    ECH_TRY(ech__file_open(ctx, path, &source.fd, &source.file_bytes));
    return create(ctx, path, source, out);
}

ech_status ech__safetensors_parse(ech_ctx *ctx, const char *what, const void *data, size_t bytes,
                                  ech__safetensors **out)
{
    *out = NULL;
    return create(ctx, what,
                  (ech__safetensors){.fd = -1, .memory = data, .file_bytes = (int64_t)bytes}, out);
}

void ech__safetensors_close(ech__safetensors *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    ech__arena_fini(&file->arena);
    ech__delete(file->ctx, file, sizeof *file);
}

/* ---- reading: what a caller asks ---- */

size_t ech__safetensors_count(const ech__safetensors *file)
{
    return file->count;
}

const ech__safetensor *ech__safetensors_at(const ech__safetensors *file, size_t index)
{
    assert(index < file->count);
    return &file->tensors[index];
}

const ech__safetensor *ech__safetensors_find(const ech__safetensors *file, const char *name)
{
    const named key = {.name = name};
    const named *found = NULL;
    if (file->count > 0)
        found = bsearch(&key, file->by_name, file->count, sizeof *file->by_name, compare_names);
    return found ? found->tensor : NULL;
}

size_t ech__safetensors_metadata_count(const ech__safetensors *file)
{
    return file->metadata_count;
}

const ech__safetensors_pair *ech__safetensors_metadata_at(const ech__safetensors *file,
                                                          size_t index)
{
    assert(index < file->metadata_count);
    return &file->metadata[index];
}

const char *ech__safetensors_metadata(const ech__safetensors *file, const char *key)
{
    for (size_t i = 0; i < file->metadata_count; i++) {
        if (!strcmp(file->metadata[i].key, key))
            return file->metadata[i].value;
    }
    return NULL;
}

ech_status ech__safetensors_read(const ech__safetensors *file, const ech__safetensor *tensor,
                                 int64_t offset, void *buffer, size_t bytes)
{
    if (offset < 0 || offset > tensor->bytes || bytes > (uint64_t)(tensor->bytes - offset))
        return ech__fail(file->ctx, ECH_E_INVALID,
                         "%s: tensor %.99s: %zu bytes at %" PRId64
                         " were asked for, it has %" PRId64,
                         file->path, tensor->name, bytes, offset, tensor->bytes);
    return read_bytes(
        file,
        (ech__file_range){.offset = tensor->offset + offset, .buffer = buffer, .bytes = bytes});
}

/* ---- writing ---- */

struct ech__safetensors_writer {
    ech_ctx *ctx;
    ech__file_writer file;
    int64_t data_bytes; /* as the header says */
    int64_t data_start;
};

/* Adds one tensor to the header and moves *end after its data. */
static ech_status add_tensor(ech_ctx *ctx, ech_json **json, const ech__safetensor *tensor,
                             int64_t *end)
{
    int64_t elems, bytes;
    const int64_t begin = *end;
    if (!strcmp(tensor->name, metadata_key) || ech__json_find(*json, tensor->name))
        return ech__fail(ctx, ECH_E_INVALID, "tensor %.99s: the name is taken", tensor->name);
    if (!ech__shape_elems(&tensor->shape, &elems) ||
        !ech__mul(elems, ech__dtype_bytes(tensor->dtype), &bytes) || !ech__add(begin, bytes, end))
        return ech__fail(ctx, ECH_E_INVALID, "tensor %.99s: shape %s cannot be written",
                         tensor->name, ech__shape_format(&tensor->shape).s);
    ech__json_set(json, tensor->name,
                  ECH__JSON(ech__string("dtype", type_names[tensor->dtype]),
                            ech__ints("shape", tensor->shape.dims, (size_t)tensor->shape.ndims),
                            ech__ints("data_offsets", (const int64_t[]){begin, *end}, 2)));
    if (!*json)
        return ech__fail(ctx, ECH_E_INVALID, "tensor %.99s: no memory, or the name is not UTF-8",
                         tensor->name);
    return ECH_OK;
}

/* The header as JSON; *data_bytes is the size of the data that must follow. The caller destroys *json,
 * also on failure. */
static ech_status build_header(ech_ctx *ctx, const ech__safetensors_header *header, ech_json **json,
                               int64_t *data_bytes)
{
    *json = ech__json_object();
    *data_bytes = 0;
    if (header->metadata_count > 0) {
        ech_json *map = ech__json_object();
        for (size_t i = 0; i < header->metadata_count; i++)
            ech__json_set_string(&map, header->metadata[i].key, header->metadata[i].value);
        ech__json_set(json, metadata_key, map);
    }
    for (size_t i = 0; i < header->count; i++)
        ECH_TRY(add_tensor(ctx, json, &header->tensors[i], data_bytes));
    return ECH_OK;
}

/* Length, text, and blanks up to a multiple of eight, so that the data is aligned. */
static ech_status write_header(ech__safetensors_writer *writer, const char *text, size_t bytes)
{
    static const char blanks[HEADER_ALIGN] = "        ";
    const int64_t padded = ech__round_up((int64_t)bytes, HEADER_ALIGN);
    uint8_t raw[LENGTH_BYTES];
    if (padded > ECH_SAFETENSORS_MAX_HEADER)
        return ech__fail(writer->ctx, ECH_E_LIMIT,
                         "%s: its header has %" PRId64 " bytes, the limit is %d", writer->file.path,
                         padded, ECH_SAFETENSORS_MAX_HEADER);
    for (int i = 0; i < LENGTH_BYTES; i++)
        raw[i] = (uint8_t)((uint64_t)padded >> (8 * i));
    writer->data_start = LENGTH_BYTES + padded;
    ECH_TRY(ech__file_writer_write(&writer->file, raw, sizeof raw));
    ECH_TRY(ech__file_writer_write(&writer->file, text, bytes));
    return ech__file_writer_write(&writer->file, blanks, (size_t)padded - bytes);
}

ech_status ech__safetensors_writer_create(ech_ctx *ctx, const char *path,
                                          const ech__safetensors_header *header,
                                          ech__safetensors_writer **out)
{
    char *text = NULL;
    size_t bytes = 0;
    ech_json *json;
    *out = NULL;
    ech__safetensors_writer *writer = ech__new(ctx, sizeof *writer);
    if (!writer)
        return ech__no_memory(ctx, "the writer of %s", path);
    writer->ctx = ctx;
    writer->file.fd = -1;
    ech_status status = build_header(ctx, header, &json, &writer->data_bytes);
    if (status < 0)
        ech__fail_in(ctx, status, "%s", path);
    else
        status = ech__json_dump(ctx, json, ECH_JSON_LINE, &text, &bytes);
    ech__json_destroy(json);
    if (status == ECH_OK)
        status = ech__file_writer_init(ctx, &writer->file, path);
    if (status == ECH_OK)
        status = write_header(writer, text, bytes);
    free(text);
    if (status < 0) {
        ech__safetensors_writer_destroy(writer);
        return status;
    }
    *out = writer;
    return ECH_OK;
}

ech_status ech__safetensors_writer_write(ech__safetensors_writer *writer, const void *data,
                                         size_t bytes)
{
    const int64_t written = writer->file.written - writer->data_start;
    if (bytes > (uint64_t)(writer->data_bytes - written))
        return ech__fail(writer->ctx, ECH_E_INVALID,
                         "%s: %zu bytes more than the %" PRId64 " that its tensors have",
                         writer->file.path, bytes - (size_t)(writer->data_bytes - written),
                         writer->data_bytes);
    return ech__file_writer_write(&writer->file, data, bytes);
}

ech_status ech__safetensors_writer_commit(ech__safetensors_writer *writer)
{
    const int64_t written = writer->file.written - writer->data_start;
    if (written != writer->data_bytes)
        return ech__fail(writer->ctx, ECH_E_INVALID,
                         "%s: %" PRId64 " of the %" PRId64
                         " bytes that its tensors have were written",
                         writer->file.path, written, writer->data_bytes);
    return ech__file_writer_commit(&writer->file);
}

void ech__safetensors_writer_destroy(ech__safetensors_writer *writer)
{
    if (!writer)
        return;
    ech__file_writer_fini(&writer->file);
    ech__delete(writer->ctx, writer, sizeof *writer);
}
