/* Where each element of a tensor lies: strides, and blocks inside them as the kernel libraries use.
 *
 * Element (i0, i1, ...) is at the sum of outer_k * strides[k] plus its place in the innermost
 * block, where the blocks cut off an axis's low part, outermost block first. A plain row-major
 * tensor has no blocks. Axes are padded up to a multiple of their blocks; padding holds zeros.
 *
 * The canonical order, in which tensors meet files and programs, is row-major without padding.
 */
#pragma once

#include "tensor/shape.h"

enum { ECH__MAX_BLOCKS = 4 };

typedef struct ech__layout {
    ech__shape shape;
    int64_t padded[ECH_MAX_DIMS];
    int64_t strides[ECH_MAX_DIMS]; /* elements, of the part of an index above its blocks */
    int nblocks;
    int block_axis[ECH__MAX_BLOCKS];
    int64_t block_size[ECH__MAX_BLOCKS];
} ech__layout;

/* Row-major. The shape must be bound and not overflow. */
ech__layout ech__layout_plain(const ech__shape *shape);
/* A matrix [R, C] stored column by column. */
ech__layout ech__layout_transposed(const ech__shape *shape);

/* An image [N, C, H, W] as [N][C/block][H][W][block]. */
ech__layout ech__layout_blocked_channels(const ech__shape *shape, int64_t block);

bool ech__layout_equal(const ech__layout *a, const ech__layout *b);
bool ech__layout_is_plain(const ech__layout *layout);
/* Elements of memory it takes, padding included; false on overflow. */
bool ech__layout_extent(const ech__layout *layout, int64_t *out);

typedef struct ech__layout_text {
    char s[64];
} ech__layout_text;

/* A short tag without spaces, equal for equal layouts of one shape: "ab", "ba", "AB16b64a". */
ech__layout_text ech__layout_tag(const ech__layout *layout);

/* Copies count elements of elem_bytes each between the canonical order, starting at canonical position
 * first, and laid-out memory. Padding in memory is not written. */
void ech__layout_scatter(const ech__layout *layout, int64_t elem_bytes, int64_t first,
                         int64_t count, const void *canonical, void *memory);
void ech__layout_gather(const ech__layout *layout, int64_t elem_bytes, int64_t first, int64_t count,
                        const void *memory, void *canonical);

/* Elements of memory, from *low to before *high, that hold count elements from canonical position first on. */
void ech__layout_span(const ech__layout *layout, int64_t first, int64_t count, int64_t *low,
                      int64_t *high);
