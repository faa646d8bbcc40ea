/* Sizes and counts are 64-bit and overflow-checked: each function is false where the result does not fit. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

static inline bool ech__mul(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool ech__add(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Rounds up to a multiple of align, a power of two. */
static inline int64_t ech__round_up(int64_t value, int64_t align)
{
    return (value + align - 1) & ~(align - 1);
}

/* A slice of a whole that is split into equal parts; the first slices have one element more if it
 * does not divide. */
typedef struct ech__part {
    int64_t first, count;
} ech__part;

static inline ech__part ech__part_of(int64_t total, int64_t index, int64_t parts)
{
    const int64_t each = total / parts, more = total % parts;
    return (ech__part){index * each + (index < more ? index : more), each + (index < more)};
}
