/* Any bytes as a safetensors file: either a sentence on one line, or tensors that cover the data exactly and
 * can be read to their last byte. */
#include "tensor/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void read_all(const ech__safetensors *file, const uint8_t *data, size_t size)
{
    int64_t end = -1;
    for (size_t i = 0; i < ech__safetensors_count(file); i++) {
        const ech__safetensor *t = ech__safetensors_at(file, i);
        must(ech__safetensors_find(file, t->name) == t);
        must(t->bytes >= 0 && t->offset >= 8 && (end < 0 || t->offset == end));
        end = t->offset + t->bytes;
        must(end <= (int64_t)size);
        uint8_t *copy = malloc((size_t)t->bytes + 1);
        must(copy && ech__safetensors_read(file, t, 0, copy, (size_t)t->bytes) == ECH_OK);
        must(!memcmp(copy, data + t->offset, (size_t)t->bytes));
        must(ech__safetensors_read(file, t, 1, copy, (size_t)t->bytes) < 0);
        free(copy);
    }
    must(end < 0 || end == (int64_t)size);
    for (size_t i = 0; i < ech__safetensors_metadata_count(file); i++) {
        const ech__safetensors_pair *pair = ech__safetensors_metadata_at(file, i);
        must(ech__safetensors_metadata(file, pair->key) == pair->value);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ech_ctx *ctx;
    ech__safetensors *file;
    must(ech_ctx_create(NULL, &ctx) == ECH_OK);
    if (ech__safetensors_parse(ctx, "input", data, size, &file) < 0) {
        must(file == NULL && ech_ctx_error(ctx)[0] && !strchr(ech_ctx_error(ctx), '\n'));
    } else {
        read_all(file, data, size);
        ech__safetensors_close(file);
    }
    ech_ctx_destroy(ctx);
    return 0;
}
