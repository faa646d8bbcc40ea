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

/* What an index along one axis adds to the place of an element; the sum over the axes is the place. */
static int64_t offset_along(const ech__layout *layout, int axis, int64_t index)
{
    int64_t place = 0, step = 1;
    for (int b = layout->nblocks - 1; b >= 0; b--) {
        const int64_t size = layout->block_size[b];
        if (layout->block_axis[b] == axis) {
            place += index % size * step;
            index /= size;
        }
        step *= size;
    }
    return place + index * layout->strides[axis];
}

/* Elements side by side along the last axis: from index on, count of them, in memory from `row` on. */
typedef struct row_run {
    char *row, *canonical;
    int64_t index, count;
} row_run;

static inline void copy_row(const ech__layout *layout, int64_t elem, row_run r, bool to_memory)
{
    const int last = layout->shape.ndims - 1;
    const bool blocked = is_blocked(layout, last);
    for (int64_t i = 0; i < r.count; i++) {
        const int64_t at_index = r.index + i;
        char *at = r.row + elem * (blocked ? offset_along(layout, last, at_index)
                                           : at_index * layout->strides[last]);
        if (to_memory)
            memcpy(at, r.canonical + i * elem, (size_t)elem);
        else
            memcpy(r.canonical + i * elem, at, (size_t)elem);
    }
}

/* Where a row begins: an index along every axis but the last, and what each adds to the place. */
typedef struct row_cursor {
    int64_t index[ECH_MAX_DIMS], along[ECH_MAX_DIMS], place;
} row_cursor;

static row_cursor row_at(const ech__layout *layout, int64_t row)
{
    row_cursor c = {.place = 0};
    for (int k = layout->shape.ndims - 2; k >= 0; k--) {
        c.index[k] = row % layout->shape.dims[k];
        row /= layout->shape.dims[k];
        c.along[k] = offset_along(layout, k, c.index[k]);
        c.place += c.along[k];
    }
    return c;
}

/* Mostly one index moves and the rest stays: no division for a kernel's rows of 3. */
static void next_row(const ech__layout *layout, row_cursor *c)
{
    bool carry = true;
    for (int k = layout->shape.ndims - 2; k >= 0 && carry; k--) {
        carry = ++c->index[k] == layout->shape.dims[k];
        if (carry)
            c->index[k] = 0;
        c->place -= c->along[k];
        c->along[k] = offset_along(layout, k, c->index[k]);
        c->place += c->along[k];
    }
}

/* Walks count elements in canonical order, a row at a time. */
static void walk(const ech__layout *layout, int64_t elem, int64_t first, int64_t count,
                 char *memory, char *canonical, bool to_memory)
{
    if (ech__layout_is_plain(layout)) {
        if (to_memory)
            memcpy(memory + first * elem, canonical, (size_t)(count * elem));
        else
            memcpy(canonical, memory + first * elem, (size_t)(count * elem));
        return;
    }
    const int64_t width = layout->shape.dims[layout->shape.ndims - 1];
    row_cursor cursor = row_at(layout, first / width);
    for (int64_t done = 0; done < count; next_row(layout, &cursor)) {
        row_run r = {.row = memory + cursor.place * elem,
                     .canonical = canonical + done * elem,
                     .index = (first + done) % width};
        r.count = width - r.index < count - done ? width - r.index : count - done;
        if (elem == 4) /* nearly always: a copy of a size that the compiler knows */
            copy_row(layout, 4, r, to_memory);
        else
            copy_row(layout, elem, r, to_memory);
        done += r.count;
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

/* Places grow with the index along an axis. Several indices of the first axis may have any of the others. */
void ech__layout_span(const ech__layout *layout, int64_t first, int64_t count, int64_t *low,
                      int64_t *high)
{
    const int ndims = layout->shape.ndims;
    int64_t each = 1; /* elements of one index of the first axis */
    *low = *high = 0;
    for (int k = 1; k < ndims; k++) {
        each *= layout->shape.dims[k];
        *high += offset_along(layout, k, layout->shape.dims[k] - 1);
    }
    if (ndims) {
        *low = offset_along(layout, 0, first / each);
        *high += offset_along(layout, 0, (first + count - 1) / each);
    }
    *high += 1;
}
