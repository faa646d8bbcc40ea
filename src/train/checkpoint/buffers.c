#include "train/checkpoint/buffers.h"
#include "tensor/safetensors.h"

#include <stdio.h>
#include <string.h>

static bool is_buffer(const ech_trainer *trainer, size_t v)
{
    return trainer->graph->values[v].kind == ECH__VALUE_BUFFER;
}

static int64_t elems_of(const ech__value *value)
{
    int64_t elems = 0;
    ech__shape_elems(&value->type.shape, &elems);
    return elems;
}

static size_t bytes_of(const ech__value *value)
{
    return (size_t)(elems_of(value) * ech__dtype_bytes(value->type.dtype));
}

static int world_of(const ech_trainer *trainer)
{
    return trainer->comm ? trainer->comm->world : 1;
}

/* How many there are, and what they take on one rank. */
static size_t count(const ech_trainer *trainer, size_t *bytes)
{
    size_t found = 0;
    *bytes = 0;
    for (size_t v = 0; v < trainer->graph->nvalues; v++) {
        if (!is_buffer(trainer, v))
            continue;
        found++;
        *bytes += bytes_of(&trainer->graph->values[v]);
    }
    return found;
}

bool ech__buffers_on_ranks(const ech_trainer *trainer)
{
    size_t bytes;
    return world_of(trainer) > 1 && count(trainer, &bytes) > 0;
}

/* ---- out ---- */

/* This rank's buffers, one after the other. */
static ech_status collect(ech_trainer *trainer, char *out)
{
    for (size_t v = 0; v < trainer->graph->nvalues; v++) {
        const ech__value *value = &trainer->graph->values[v];
        if (!is_buffer(trainer, v))
            continue;
        ECH_TRY(ech_trainer_read(trainer, value->name, out, bytes_of(value)));
        out += bytes_of(value);
    }
    return ECH_OK;
}

static ech__safetensor tensor_of(const ech_trainer *trainer, const ech__value *value)
{
    return (ech__safetensor){
        .name = value->name,
        .dtype = value->type.dtype,
        .shape = {.ndims = 2, .dims = {world_of(trainer), elems_of(value)}},
    };
}

/* all[ranks][each]: what collect gave on every rank. */
static ech_status write_all(const ech_trainer *trainer, ech__safetensors_writer *writer,
                            const char *all, size_t each)
{
    size_t at = 0;
    for (size_t v = 0; v < trainer->graph->nvalues; v++) {
        const size_t bytes = bytes_of(&trainer->graph->values[v]);
        if (!is_buffer(trainer, v))
            continue;
        for (int rank = 0; rank < world_of(trainer); rank++)
            ECH_TRY(ech__safetensors_writer_write(writer, all + (size_t)rank * each + at, bytes));
        at += bytes;
    }
    return ech__safetensors_writer_commit(writer);
}

static ech_status write_file(const ech_trainer *trainer, const char *path, const char *all,
                             size_t each)
{
    size_t bytes;
    const size_t list = count(trainer, &bytes) * sizeof(ech__safetensor);
    ech__safetensor *tensors = ech__new(trainer->ctx, list);
    if (!tensors)
        return ech__no_memory(trainer->ctx, "a list of buffers");
    ech__safetensors_header header = {.tensors = tensors};
    for (size_t v = 0; v < trainer->graph->nvalues; v++) {
        if (is_buffer(trainer, v))
            tensors[header.count++] = tensor_of(trainer, &trainer->graph->values[v]);
    }
    ech__safetensors_writer *writer;
    ech_status status = ech__safetensors_writer_create(trainer->ctx, path, &header, &writer);
    ech__delete(trainer->ctx, tensors, list);
    if (status < 0)
        return status;
    status = write_all(trainer, writer, all, each);
    ech__safetensors_writer_destroy(writer);
    return status;
}

ech_status ech__buffers_save(ech_trainer *trainer, const char *path)
{
    size_t each;
    count(trainer, &each);
    const size_t together = each * (size_t)(world_of(trainer) + 1);
    char *mine = ech__new(trainer->ctx, together);
    if (!mine)
        return ech__no_memory(trainer->ctx, "the buffers of %d ranks", world_of(trainer));
    char *all = mine + each;
    ech_status status = collect(trainer, mine);
    if (status == ECH_OK)
        status = ech__comm_allgather(trainer->comm, mine, all, (int64_t)each);
    if (status == ECH_OK && path)
        status = write_file(trainer, path, all, each);
    ech__delete(trainer->ctx, mine, together);
    return status;
}

/* ---- in ---- */

static ech_status load_one(ech_trainer *trainer, const ech__safetensors *file,
                           const ech__value *value)
{
    const ech__safetensor wanted = tensor_of(trainer, value);
    const ech__safetensor *t = ech__safetensors_find(file, value->name);
    const size_t bytes = bytes_of(value);
    if (!t || t->dtype != wanted.dtype || !ech__shape_equal(&t->shape, &wanted.shape))
        return ech__fail(trainer->ctx, ECH_E_INVALID,
                         "tensor '%s' is %s; the running statistics of %d ranks need %s",
                         value->name, t ? ech__shape_format(&t->shape).s : "missing",
                         world_of(trainer), ech__shape_format(&wanted.shape).s);
    char *data = ech__new(trainer->ctx, bytes);
    if (!data)
        return ech__no_memory(trainer->ctx, "%zu bytes of buffers", bytes);
    const int64_t offset = trainer->comm->rank * (int64_t)bytes;
    ech_status status = ech__safetensors_read(file, t, offset, data, bytes);
    if (status == ECH_OK)
        status = ech_trainer_write(trainer, value->name, data, bytes);
    ech__delete(trainer->ctx, data, bytes);
    return status;
}

ech_status ech__buffers_load(ech_trainer *trainer, const char *path)
{
    ech__safetensors *file;
    ECH_TRY(ech__safetensors_open(trainer->ctx, path, &file));
    ech_status status = ECH_OK;
    for (size_t v = 0; v < trainer->graph->nvalues && status == ECH_OK; v++) {
        if (is_buffer(trainer, v))
            status = load_one(trainer, file, &trainer->graph->values[v]);
    }
    ech__safetensors_close(file);
    return status < 0 ? ech__fail_in(trainer->ctx, status, "%s", path) : ECH_OK;
}
