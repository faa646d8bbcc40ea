/* Who reduces which part of an array, and the fixed order of sums, as pure functions. */
#pragma once

#include <stdint.h>

/* Elements [first, first + count) of an array. */
typedef struct ech__range {
    int64_t first, count;
} ech__range;

/* The part of `count` elements that owner `index` of `owners` reduces: nearly equal parts whose
 * borders are multiples of `grain` elements (a cache line, so that no two ranks write to the
 * same one). Empty for some where there are few. */
ech__range ech__shard(int64_t count, int index, int owners, int64_t grain);

/* The order of sums over n terms: the first half, plus the second half, each in the same way;
 * the first half is the largest power of two below n. So 4 terms are (0+1)+(2+3), 3 are (0+1)+2;
 * and the sum over 2^k terms is the sum over the sums of its aligned parts, whatever their
 * sizes. Returns the size of the first half; n >= 2. */
int ech__tree_split(int n);

/* n >= 1 */
static inline int ech__floor_log2(int64_t n)
{
    int log = 0;
    while ((int64_t)2 << log <= n)
        log++;
    return log;
}

static inline int ech__ceil_log2(int64_t n)
{
    return n > 1 ? ech__floor_log2(n - 1) + 1 : 0;
}

/* 1 for levels that are not there. */
static inline int64_t ech__power_of_2(int levels)
{
    return levels > 0 ? (int64_t)1 << levels : 1;
}
