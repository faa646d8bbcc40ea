#include "quant/tensors.h"
#include "base/size.h"

#include <math.h>
#include <string.h>

void ech__tensors_init(ech_ctx *ctx, ech__tensors *tensors)
{
    *tensors = (ech__tensors){.ctx = ctx};
    ech__arena_init(&tensors->arena, ctx->alloc);
}

void ech__tensors_fini(ech__tensors *tensors)
{
    if (!tensors->ctx)
        return;
    ech__arena_fini(&tensors->arena);
    *tensors = (ech__tensors){.ctx = NULL};
}

static int64_t bytes_of(const ech__tensor *tensor)
{
    return tensor->elems * ech__dtype_bytes(tensor->dtype);
}

ech_status ech__tensors_add(ech__tensors *tensors, const char *name, ech_dtype dtype,
                            const ech__shape *shape, ech__tensor **out)
{
    ech_ctx *ctx = tensors->ctx;
    int64_t elems, bytes;
    if (ech__tensors_find(tensors, name))
        return ech__fail(ctx, ECH_E_INVALID, "there are two tensors named '%s'", name);
    if (!ech__shape_elems(shape, &elems) || !ech__mul(elems, ech__dtype_bytes(dtype), &bytes))
        return ech__fail(ctx, ECH_E_LIMIT, "'%s' of shape %s has too many elements", name,
                         ech__shape_format(shape).s);
    ech__tensor *tensor = ech__arena_alloc(&tensors->arena, sizeof *tensor);
    if (tensor) {
        *tensor = (ech__tensor){.name = ech__arena_printf(&tensors->arena, "%s", name),
                                .dtype = dtype,
                                .shape = *shape,
                                .elems = elems,
                                .data = ech__arena_alloc(&tensors->arena, (size_t)bytes + 1)};
    }
    if (!tensor || !tensor->name || !tensor->data ||
        !ech__arena_grow(&tensors->arena, (void **)&tensors->items, tensors->count, &tensors->cap,
                         sizeof(ech__tensor *)))
        return ech__no_memory(ctx, "'%s' of %lld bytes", name, (long long)bytes);
    tensors->items[tensors->count++] = tensor;
    if (out)
        *out = tensor;
    return ECH_OK;
}

ech__tensor *ech__tensors_find(const ech__tensors *tensors, const char *name)
{
    for (size_t i = 0; i < tensors->count; i++) {
        if (!strcmp(tensors->items[i]->name, name))
            return tensors->items[i];
    }
    return NULL;
}

ech_status ech__tensors_copy(ech__tensors *tensors, const ech__tensor *from, ech__tensor **out)
{
    ech__tensor *copy;
    ECH_TRY(ech__tensors_add(tensors, from->name, from->dtype, &from->shape, &copy));
    memcpy(copy->data, from->data, (size_t)bytes_of(from));
    if (out)
        *out = copy;
    return ECH_OK;
}

ech_status ech__tensors_copy_all(ech__tensors *tensors, const ech__tensors *from)
{
    for (size_t i = 0; i < from->count; i++)
        ECH_TRY(ech__tensors_copy(tensors, from->items[i], NULL));
    return ECH_OK;
}

ech_status ech__tensors_check_finite(const ech__tensors *tensors)
{
    for (size_t t = 0; t < tensors->count; t++) {
        const ech__tensor *tensor = tensors->items[t];
        const float *data = tensor->data;
        for (int64_t i = 0; tensor->dtype == ECH_F32 && i < tensor->elems; i++) {
            if (!isfinite(data[i]))
                return ech__fail(tensors->ctx, ECH_E_INVALID,
                                 "element %lld of '%s' is %g; weights must be finite numbers",
                                 (long long)i, tensor->name, (double)data[i]);
        }
    }
    return ECH_OK;
}
