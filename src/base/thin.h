/* A bounded sample of a sequence of items of one size: all of them while there is room, and then
 * one out of every 2, 4, 8, ... in a row. Which one is drawn by counter-based random numbers: the
 * same sequence gives the same sample in every process, and no rhythm of the sequence (the first
 * step of every epoch, say) can coincide with it. Adding allocates nothing.
 *
 *     ech__thin times;
 *     ECH_TRY(ech__thin_init(ctx, &times, sizeof(double), 100000));
 *     ech__thin_add(&times, &seconds);                                 as often as needed
 *     for (int64_t i = 0; i < times.count; i++)
 *         use(*(const double *)ech__thin_at(&times, i));               in the order in which they were added
 *     ech__thin_fini(&times);
 */
#pragma once

#include "base/status.h"

typedef struct ech__thin {
    ech_ctx *ctx;
    char *items; /* [capacity] */
    size_t item_bytes;
    int64_t capacity, count; /* how many fit, and how many are kept */
    int64_t seen;            /* how many were added; count where all of them are kept */
    int64_t stride;          /* one of so many is kept: 1, 2, 4, ... */
} ech__thin;

/* most: of items that are kept; at least 1. */
ech_status ech__thin_init(ech_ctx *ctx, ech__thin *thin, size_t item_bytes, int64_t most);
/* Also of one that is all zero. */
void ech__thin_fini(ech__thin *thin);
void ech__thin_add(ech__thin *thin, const void *item);
const void *ech__thin_at(const ech__thin *thin, int64_t index);
