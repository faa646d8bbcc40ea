#include "plan/transfer.h"
#include "tensor/half.h"

/* Memory of a device on its way through the host is moved in slices of this size. */
enum { SLICE = 1 << 20 };

static ech_status no_buffer(ech_ctx *ctx, int64_t bytes)
{
    return ech__no_memory(ctx, "a buffer of %lld bytes", (long long)bytes);
}

/* Elements of a layout that is not row-major, through a buffer of the part of memory that holds
 * them. */
static ech_status move_blocked(ech__device *device, const ech__layout *layout, int64_t elem,
                               int64_t first, int64_t count, char *memory, void *canonical,
                               bool to_memory)
{
    int64_t low, high;
    ech__layout_span(layout, first, count, &low, &high);
    const int64_t bytes = (high - low) * elem;
    char *part = memory + low * elem, *buffer = ech__new(device->ctx, (size_t)bytes);
    if (!buffer)
        return no_buffer(device->ctx, bytes);
    /* Of the whole, only this part is there. */
    char *whole = (char *)((uintptr_t)buffer - (uintptr_t)(low * elem));
    ech_status status = device->memory->read(device, buffer, part, bytes);
    if (status == ECH_OK && !to_memory)
        ech__layout_gather(layout, elem, first, count, whole, canonical);
    if (status == ECH_OK && to_memory) {
        ech__layout_scatter(layout, elem, first, count, canonical, whole);
        status = device->memory->write(device, part, buffer, bytes);
    }
    ech__delete(device->ctx, buffer, (size_t)bytes);
    return status;
}

ech_status ech__device_scatter(ech__device *device, const ech__layout *layout, int64_t elem_bytes,
                               int64_t first, int64_t count, const void *canonical, void *memory)
{
    if (device->memory->host_visible) {
        ech__layout_scatter(layout, elem_bytes, first, count, canonical, memory);
        return ECH_OK;
    }
    if (ech__layout_is_plain(layout))
        return device->memory->write(device, (char *)memory + first * elem_bytes, canonical,
                                     count * elem_bytes);
    return move_blocked(device, layout, elem_bytes, first, count, memory, (void *)canonical, true);
}

ech_status ech__device_gather(ech__device *device, const ech__layout *layout, int64_t elem_bytes,
                              int64_t first, int64_t count, const void *memory, void *canonical)
{
    if (device->memory->host_visible) {
        ech__layout_gather(layout, elem_bytes, first, count, memory, canonical);
        return ECH_OK;
    }
    if (ech__layout_is_plain(layout))
        return device->memory->read(device, canonical, (const char *)memory + first * elem_bytes,
                                    count * elem_bytes);
    return move_blocked(device, layout, elem_bytes, first, count, (void *)memory, canonical, false);
}

/* Through a buffer: neither device can touch the other's memory. */
static ech_status copy_staged(ech__device *device, char *dst, ech__device *from, const char *src,
                              int64_t bytes)
{
    const int64_t most = bytes < SLICE ? bytes : SLICE;
    char *buffer = ech__new(device->ctx, (size_t)most);
    if (!buffer)
        return no_buffer(device->ctx, most);
    ech_status status = ECH_OK;
    for (int64_t at = 0; at < bytes && status == ECH_OK; at += most) {
        const int64_t count = bytes - at < most ? bytes - at : most;
        status = from->memory->read(from, buffer, src + at, count);
        if (status == ECH_OK)
            status = device->memory->write(device, dst + at, buffer, count);
    }
    ech__delete(device->ctx, buffer, (size_t)most);
    return status;
}

ech_status ech__device_copy(ech__device *device, void *dst, ech__device *from, const void *src,
                            int64_t bytes)
{
    if (device->memory == from->memory)
        return device->memory->copy(device, dst, from, src, bytes);
    if (from->memory->host_visible)
        return device->memory->write(device, dst, src, bytes);
    if (device->memory->host_visible)
        return from->memory->read(from, dst, src, bytes);
    return copy_staged(device, dst, from, src, bytes);
}

ech_status ech__device_send(ech__device *device, const ech__layout *layout, int64_t elem_bytes,
                            int64_t count, void *dst, ech__device *from, const void *src)
{
    if (from->memory->host_visible)
        return ech__device_scatter(device, layout, elem_bytes, 0, count, src, dst);
    if (ech__layout_is_plain(layout))
        return ech__device_copy(device, dst, from, src, count * elem_bytes);
    const int64_t bytes = count * elem_bytes;
    void *buffer = ech__new(device->ctx, (size_t)bytes);
    if (!buffer)
        return no_buffer(device->ctx, bytes);
    ech_status status = from->memory->read(from, buffer, src, bytes);
    if (status == ECH_OK)
        status = ech__device_scatter(device, layout, elem_bytes, 0, count, buffer, dst);
    ech__delete(device->ctx, buffer, (size_t)bytes);
    return status;
}

ech_status ech__device_all_finite(ech__device *device, ech_dtype dtype, int64_t count,
                                  const void *memory, bool *out)
{
    if (device->memory->host_visible) {
        *out = ech__all_finite(dtype, count, memory);
        return ECH_OK;
    }
    char slice[8192];
    const int64_t each = ech__dtype_bytes(dtype), most = (int64_t)sizeof slice / each;
    *out = true;
    for (int64_t at = 0; at < count && *out; at += most) {
        const int64_t some = count - at < most ? count - at : most;
        ECH_TRY(device->memory->read(device, slice, (const char *)memory + at * each, some * each));
        *out = ech__all_finite(dtype, some, slice);
    }
    return ECH_OK;
}
