/* A bump arena for descriptions (graphs, plans, parsed files): many small pieces, one free.
 *
 *     ech__arena a;
 *     ech__arena_init(&a, ctx->alloc);
 *     node *n = ech__arena_alloc(&a, sizeof *n);     zeroed; NULL when memory is out
 *     ech__arena_fini(&a);                           every piece is gone
 *
 * Tensor memory does not live here: a device owns that (plan/kernel.h).
 */
#pragma once

#include "base/status.h"

typedef struct ech__arena_chunk ech__arena_chunk;

typedef struct ech__arena {
    ech_allocator alloc;
    ech__arena_chunk *chunks; /* newest first */
    size_t total;             /* bytes taken from the allocator */
} ech__arena;

void ech__arena_init(ech__arena *arena, ech_allocator alloc);
void ech__arena_fini(ech__arena *arena);

/* Zeroed and aligned for any type; NULL when the allocator has nothing left. */
void *ech__arena_alloc(ech__arena *arena, size_t bytes);

/* count elements of size bytes; NULL on overflow too. */
void *ech__arena_array(ech__arena *arena, size_t count, size_t size);

char *ech__arena_printf(ech__arena *arena, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Grows an array of *cap elements so that one more fits after used. The old place stays allocated
 * until the arena goes. Returns false when memory is out. */
bool ech__arena_grow(ech__arena *arena, void **array, size_t used, size_t *cap, size_t size);
