#include "price/tree.h"

#include <assert.h>

ech__range ech__shard(int64_t count, int index, int owners, int64_t grain)
{
    assert(count >= 0 && owners > 0 && grain > 0 && index >= 0);
    if (index >= owners)
        return (ech__range){count, 0};
    const int64_t grains = count / grain + (count % grain != 0);
    /* The first `extra` owners have one grain more than the others. */
    const int64_t each = grains / owners, extra = grains % owners;
    const int64_t first = each * index + (index < extra ? index : extra);
    const int64_t end = first + each + (index < extra);
    const int64_t from = first < grains ? first * grain : count;
    const int64_t to = end < grains ? end * grain : count;
    return (ech__range){from, to - from};
}

int ech__tree_split(int n)
{
    assert(n >= 2);
    int half = 1;
    while (half * 2 < n)
        half *= 2;
    return half;
}
