#include "tensor/layout.h"
#include "base/size.h"

#include <stdio.h>
#include <string.h>

ech__layout ech__layout_plain(const ech__shape *shape)
{
    ech__layout layout = {.shape = *shape};
    int64_t stride = 1;
    for (int k = shape->ndims - 1; k >= 0; k--) {
        layout.padded[k] = shape->dims[k];
        layout.strides[k] = stride;
        stride *= shape->dims[k];
    }
    return layout;
}

ech__layout ech__layout_transposed(const ech__shape *shape)
{
    ech__layout layout = ech__layout_plain(shape);
    layout.strides[0] = 1;
    layout.strides[1] = shape->dims[0];
    return layout;
}

ech__layout ech__layout_blocked_channels(const ech__shape *shape, int64_t block)
{
    const int64_t h = shape->dims[2], w = shape->dims[3];
    const int64_t channels = (shape->dims[1] + block - 1) / block * block;
    return (ech__layout){.shape = *shape,
                         .padded = {shape->dims[0], channels, h, w},
                         .strides = {channels * h * w, h * w * block, w * block, block},
                         .nblocks = 1,
                         .block_axis = {1},
                         .block_size = {block}};
}

bool ech__layout_equal(const ech__layout *a, const ech__layout *b)
{
    if (!ech__shape_equal(&a->shape, &b->shape) || a->nblocks != b->nblocks)
        return false;
    for (int k = 0; k < a->shape.ndims; k++) {
        /* The stride of an axis of one element moves nothing. */
        if (a->padded[k] != b->padded[k] || (a->padded[k] > 1 && a->strides[k] != b->strides[k]))
            return false;
    }
    for (int b_ = 0; b_ < a->nblocks; b_++) {
        if (a->block_axis[b_] != b->block_axis[b_] || a->block_size[b_] != b->block_size[b_])
            return false;
    }
    return true;
}

bool ech__layout_is_plain(const ech__layout *layout)
{
    const ech__layout plain = ech__layout_plain(&layout->shape);
    return ech__layout_equal(layout, &plain);
}

bool ech__layout_extent(const ech__layout *layout, int64_t *out)
{
    int64_t count = 1;
    for (int k = 0; k < layout->shape.ndims; k++) {
        if (!ech__mul(count, layout->padded[k], &count))
            return false;
    }
    *out = count;
    return true;
}

static bool is_blocked(const ech__layout *layout, int axis)
{
    for (int b = 0; b < layout->nblocks; b++) {
        if (layout->block_axis[b] == axis)
            return true;
    }
    return false;
}

ech__layout_text ech__layout_tag(const ech__layout *layout)
{
    /* Axes from the largest stride to the smallest; a capital letter marks a blocked axis. The stride of an
     * axis of one element says nothing: such axes stand first, or where row-major has them. */
    int order[ECH_MAX_DIMS];
    int64_t strides[ECH_MAX_DIMS];
    const int ndims = layout->shape.ndims;
    const ech__layout plain = ech__layout_plain(&layout->shape);
    const bool is_plain = ech__layout_equal(layout, &plain);
    for (int k = 0; k < ndims; k++) {
        strides[k] = layout->padded[k] > 1 ? layout->strides[k] : INT64_MAX;
        if (is_plain)
            strides[k] = plain.strides[k];
        int at = k;
        for (; at > 0 && strides[order[at - 1]] < strides[k]; at--)
            order[at] = order[at - 1];
        order[at] = k;
    }
    ech__layout_text text = {{0}};
    size_t used = 0;
    for (int k = 0; k < ndims; k++)
        text.s[used++] = (char)((is_blocked(layout, order[k]) ? 'A' : 'a') + order[k]);
    for (int b = 0; b < layout->nblocks && used < sizeof text.s - 24; b++)
        used += (size_t)snprintf(text.s + used, sizeof text.s - used, "%d%c",
                                 (int)layout->block_size[b], 'a' + layout->block_axis[b]);
    return text;
}

/* The place in memory of the element with these indices. */
static int64_t offset_of(const ech__layout *layout, const int64_t *index)
{
    int64_t outer[ECH_MAX_DIMS], place = 0, step = 1;
    for (int k = 0; k < layout->shape.ndims; k++)
        outer[k] = index[k];
    for (int b = layout->nblocks - 1; b >= 0; b--) {
        const int axis = layout->block_axis[b];
        place += outer[axis] % layout->block_size[b] * step;
        outer[axis] /= layout->block_size[b];
        step *= layout->block_size[b];
    }
    for (int k = 0; k < layout->shape.ndims; k++)
        place += outer[k] * layout->strides[k];
    return place;
}

static void copy_element(char *dst, const char *src, int64_t bytes)
{
    switch (bytes) {
    case 4:
        memcpy(dst, src, 4);
        break;
    case 2:
        memcpy(dst, src, 2);
        break;
    default:
        memcpy(dst, src, (size_t)bytes);
    }
}

/* Walks count elements in canonical order. */
static void walk(const ech__layout *layout, int64_t elem, int64_t first, int64_t count,
                 char *memory, char *canonical, bool to_memory)
{
    const int ndims = layout->shape.ndims;
    if (ech__layout_is_plain(layout)) {
        if (to_memory)
            memcpy(memory + first * elem, canonical, (size_t)(count * elem));
        else
            memcpy(canonical, memory + first * elem, (size_t)(count * elem));
        return;
    }
    int64_t index[ECH_MAX_DIMS], rest = first;
    for (int k = ndims - 1; k >= 0; k--) {
        index[k] = rest % layout->shape.dims[k];
        rest /= layout->shape.dims[k];
    }
    for (int64_t i = 0; i < count; i++) {
        char *at = memory + offset_of(layout, index) * elem;
        if (to_memory)
            copy_element(at, canonical + i * elem, elem);
        else
            copy_element(canonical + i * elem, at, elem);
        for (int k = ndims - 1; k >= 0 && ++index[k] == layout->shape.dims[k]; k--)
            index[k] = 0;
    }
}

void ech__layout_scatter(const ech__layout *layout, int64_t elem_bytes, int64_t first,
                         int64_t count, const void *canonical, void *memory)
{
    walk(layout, elem_bytes, first, count, memory, (char *)canonical, true);
}

void ech__layout_gather(const ech__layout *layout, int64_t elem_bytes, int64_t first, int64_t count,
                        const void *memory, void *canonical)
{
    walk(layout, elem_bytes, first, count, (char *)memory, canonical, false);
}
