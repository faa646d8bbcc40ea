#include "base/thin.h"
#include "base/rng.h"

#include <string.h>

ech_status ech__thin_init(ech_ctx *ctx, ech__thin *t, size_t item_bytes, int64_t most)
{
    /* An even number, so that halving leaves no item without a partner. */
    *t =
        (ech__thin){.ctx = ctx, .item_bytes = item_bytes, .capacity = most + most % 2, .stride = 1};
    t->items = ech__new(ctx, (size_t)t->capacity * item_bytes);
    return t->items ? ECH_OK
                    : ech__no_memory(ctx, "a sample of %lld items", (long long)t->capacity);
}

void ech__thin_fini(ech__thin *t)
{
    if (t->items)
        ech__delete(t->ctx, t->items, (size_t)t->capacity * t->item_bytes);
    *t = (ech__thin){.ctx = NULL};
}

/* Which of the `among` items of a group is kept. */
static int64_t drawn(const ech__thin *t, int64_t group, int64_t among)
{
    uint32_t words[4];
    ech__rng_block(0, (uint64_t)t->stride, (uint64_t)group, words);
    return (int64_t)((((uint64_t)words[0] << 32) | words[1]) % (uint64_t)among);
}

static void halve(ech__thin *t)
{
    t->count /= 2;
    t->stride *= 2;
    for (int64_t i = 0; i < t->count; i++)
        memmove(t->items + (size_t)i * t->item_bytes,
                t->items + (size_t)(2 * i + drawn(t, i, 2)) * t->item_bytes, t->item_bytes);
}

void ech__thin_add(ech__thin *t, const void *item)
{
    const int64_t index = t->seen++;
    if (t->count == t->capacity && index % t->stride == 0) /* every group that began has its item */
        halve(t);
    if (index % t->stride != drawn(t, index / t->stride, t->stride))
        return;
    memcpy(t->items + (size_t)t->count++ * t->item_bytes, item, t->item_bytes);
}

const void *ech__thin_at(const ech__thin *t, int64_t index)
{
    return t->items + (size_t)index * t->item_bytes;
}
