#include "base/arena.h"
#include "base/size.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_CHUNK = 4096, ALIGN = _Alignof(max_align_t) };

struct ech__arena_chunk {
    ech__arena_chunk *next;
    size_t size, used; /* both count this header */
};

void ech__arena_init(ech__arena *arena, ech_allocator alloc)
{
    *arena = (ech__arena){.alloc = alloc};
}

void ech__arena_fini(ech__arena *arena)
{
    while (arena->chunks) {
        ech__arena_chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        arena->alloc.free(arena->alloc.user, chunk, chunk->size);
    }
    arena->total = 0;
}

void *ech__arena_alloc(ech__arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 4)
        return NULL;
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    ech__arena_chunk *chunk = arena->chunks;
    if (!chunk || chunk->size - chunk->used < bytes) {
        const size_t header = (sizeof *chunk + ALIGN - 1) / ALIGN * ALIGN;
        size_t size = chunk ? chunk->size * 2 : FIRST_CHUNK;
        if (size < header + bytes)
            size = header + bytes;
        chunk = arena->alloc.alloc(arena->alloc.user, size, ALIGN);
        if (!chunk)
            return NULL;
        *chunk = (ech__arena_chunk){.next = arena->chunks, .size = size, .used = header};
        arena->chunks = chunk;
        arena->total += size;
    }
    void *ptr = (char *)chunk + chunk->used;
    chunk->used += bytes;
    return memset(ptr, 0, bytes);
}

void *ech__arena_array(ech__arena *arena, size_t count, size_t size)
{
    size_t bytes;
    return __builtin_mul_overflow(count, size, &bytes) ? NULL : ech__arena_alloc(arena, bytes);
}

char *ech__arena_printf(ech__arena *arena, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = len < 0 ? NULL : ech__arena_alloc(arena, (size_t)len + 1);
    if (text) {
        va_start(args, fmt);
        vsnprintf(text, (size_t)len + 1, fmt, args);
        va_end(args);
    }
    return text;
}

bool ech__arena_grow(ech__arena *arena, void **array, size_t used, size_t *cap, size_t size)
{
    if (used < *cap)
        return true;
    size_t more = *cap ? *cap * 2 : 16;
    void *place = ech__arena_array(arena, more, size);
    if (!place)
        return false;
    if (used)
        memcpy(place, *array, used * size);
    *array = place;
    *cap = more;
    return true;
}
