#include "comm/shm/internal.h"

#include "base/size.h"
#include "base/system/available.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- giving and taking ---- */

enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };

/* What the parts of ranks are rounded up to: large ones to huge pages, because kernels that stream
 * through small ones spend much of their time on finding them. */
static int64_t grain_of(int64_t bytes)
{
    return bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : PAGE;
}

/* Address space at a multiple of huge pages. NULL: there is none. */
static char *aligned_space(int64_t bytes)
{
    char *space = mmap(NULL, (size_t)bytes + HUGE_PAGE, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED)
        return NULL;
    char *start = (char *)(((uintptr_t)space + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
    if (start > space)
        munmap(space, (size_t)(start - space));
    munmap(start + bytes, (size_t)(space + HUGE_PAGE - start));
    return start;
}

static void *map_aligned(int fd, int64_t offset, int64_t bytes, int flags)
{
    char *space = aligned_space(bytes);
    if (!space)
        return MAP_FAILED;
    void *base = mmap(space, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | flags,
                      fd, offset);
    if (base == MAP_FAILED)
        munmap(space, (size_t)bytes);
    return base;
}

/* Makes huge pages of the small ones that are there, where the system has some; else they stay. In
 * pieces, because a process cannot be killed while the system collapses one, and stops where
 * another rank has failed. */
static void take_huge_pages(ech__shm *s, int64_t offset, int64_t bytes)
{
    enum { PIECE = 16 * HUGE_PAGE };
#ifndef MADV_COLLAPSE
    enum { MADV_COLLAPSE = 25 };
#endif
    char *base = map_aligned(s->fd, offset, bytes, MAP_POPULATE);
    if ((void *)base == MAP_FAILED)
        return;
    for (int64_t at = 0; at < bytes && !atomic_load(&s->head->aborted); at += PIECE) {
        const int64_t piece = bytes - at < PIECE ? bytes - at : PIECE;
        if (madvise(base + at, (size_t)piece, MADV_COLLAPSE) != 0 && errno == EINVAL)
            break; /* the system does not know it */
    }
    munmap(base, (size_t)bytes);
}

static int free_region(ech__shm_head *head)
{
    for (int i = 0; i < ECH__MAX_REGIONS; i++)
        if (atomic_load(&head->regions[i].holders) == 0)
            return i;
    return -1;
}

/* Appends `bytes` to the file, at a multiple of grain; local rank 0 does it for all. */
static ech_status reserve(ech__shm *s, int64_t bytes, int64_t grain)
{
    ech__shm_head *head = s->head;
    ech_ctx *ctx = s->base.ctx;
    const int i = free_region(head);
    if (i < 0)
        return ech__fail(ctx, ECH_E_LIMIT, "%d regions of shared memory are in use already",
                         (int)ECH__MAX_REGIONS);
    const int64_t can = ech__machine_available();
    if (bytes > can)
        return ech__fail(ctx, ECH_E_NOMEM,
                         "cannot allocate %lld bytes of shared memory for %d ranks: %lld are "
                         "available",
                         (long long)bytes, s->base.world, (long long)can);
    int failed;
    head->end = ech__round_up(head->end, grain);
    do
        failed = fallocate(s->fd, 0, head->end, bytes);
    while (failed && errno == EINTR);
    if (failed)
        return ech__fail(ctx, ECH_E_NOMEM,
                         "cannot allocate %lld bytes of shared memory for %d ranks: %s",
                         (long long)bytes, s->base.world, strerror(errno));
    if (grain == HUGE_PAGE)
        take_huge_pages(s, head->end, bytes);
    head->regions[i].offset = head->end;
    head->regions[i].bytes = bytes;
    atomic_store(&head->regions[i].holders, s->base.world);
    head->end += bytes;
    head->alloc_region = i;
    return ECH_OK;
}

static void let_go(ech__shm *s, int index)
{
    ech__shm_region *region = &s->head->regions[index];
    const int64_t offset = region->offset, bytes = region->bytes;
    ech__shm_map *map = &s->maps[index];
    if (map->base)
        munmap(map->base, (size_t)map->bytes);
    *map = (ech__shm_map){0};
    while (s->maps_end > 0 && !s->maps[s->maps_end - 1].base)
        s->maps_end--;
    if (atomic_fetch_sub(&region->holders, 1) == 1)
        fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
}

/* Every rank maps the parts of all. */
static ech_status map_region(ech__shm *s, int index, int64_t stride)
{
    const ech__shm_region *region = &s->head->regions[index];
    void *base = map_aligned(s->fd, region->offset, region->bytes, MAP_POPULATE);
    if (base == MAP_FAILED)
        return ech__fail(s->base.ctx, ECH_E_NOMEM,
                         "rank %d: cannot map %lld bytes of shared memory: %s",
                         ech__shm_name(s, s->base.rank), (long long)region->bytes, strerror(errno));
    s->maps[index] = (ech__shm_map){base, stride, region->bytes};
    s->maps_end = index >= s->maps_end ? index + 1 : s->maps_end;
    return ECH_OK;
}

/* What rank 0 could not do fails on every rank; so does a rank that could not map. */
static ech_status share_status(ech__shm *s, ech_status status)
{
    int32_t mine = -status, worst = 0;
    ech_status heard = ech__shm_run(&s->base, &(ech__coll){.op = ECH__COLL_ALLREDUCE,
                                                           .reduction = ECH__REDUCTION_MAX,
                                                           .dtype = ECH_S32,
                                                           .count = 1,
                                                           .src = &mine,
                                                           .dst = &worst});
    if (heard < 0)
        return heard;
    if (worst && !mine)
        return ech__fail(s->base.ctx, (ech_status)-worst,
                         "another rank could not map the shared memory");
    return status;
}

ech_status ech__shm_alloc(ech__comm *comm, int64_t bytes, void **out)
{
    ech__shm *s = (ech__shm *)comm;
    ech__shm_head *head = s->head;
    int64_t stride, total;
    const int64_t grain = grain_of(bytes);
    if (!ech__add(bytes, 2 * grain, &stride) || !ech__mul(stride, comm->world, &total))
        return ech__fail(comm->ctx, ECH_E_INVALID, "%lld bytes of shared memory were asked for",
                         (long long)bytes);
    stride = ech__round_up(bytes ? bytes : 1, grain);
    total = stride * comm->world;
    /* Ranks that ask for different sizes are found out as ranks in different collectives are. */
    ech__coll what = {.op = (ech__coll_op)ECH__OP_ALLOC, .dtype = ECH_U8, .count = bytes};
    ech__shm_begin(s, &what, 0);
    ECH_TRY(ech__shm_turn_over(s));
    if (comm->rank == 0) {
        head->alloc_status = reserve(s, total, grain);
        snprintf(head->alloc_text, sizeof head->alloc_text, "%s", comm->ctx->error);
    }
    ECH_TRY(ech__shm_turn_over(s));
    if (head->alloc_status < 0)
        return ech__fail(comm->ctx, (ech_status)head->alloc_status, "%s", head->alloc_text);
    const int index = head->alloc_region;
    const ech_status status = share_status(s, map_region(s, index, stride));
    if (status < 0) {
        let_go(s, index);
        return status;
    }
    *out = s->maps[index].base + comm->rank * stride;
    return ECH_OK;
}

void ech__shm_free(ech__comm *comm, void *ptr)
{
    ech__shm *s = (ech__shm *)comm;
    for (int i = 0; i < s->maps_end; i++)
        if (s->maps[i].base && ptr == s->maps[i].base + comm->rank * s->maps[i].stride) {
            let_go(s, i);
            return;
        }
}

void ech__shm_free_all(ech__shm *s)
{
    for (int i = s->maps_end - 1; i >= 0; i--)
        if (s->maps[i].base)
            let_go(s, i);
}

/* ---- places ---- */

uint64_t ech__shm_find(const ech__shm *s, const void *ptr, int64_t bytes)
{
    for (int i = 0; i < s->maps_end; i++) {
        const ech__shm_map *map = &s->maps[i];
        if (!map->base)
            continue;
        const uintptr_t own = (uintptr_t)map->base + (uintptr_t)(s->base.rank * map->stride);
        const uintptr_t at = (uintptr_t)ptr - own;
        if (at <= (uintptr_t)map->stride && (uintptr_t)bytes <= (uintptr_t)map->stride - at)
            return (uint64_t)i << 48 | ((uint64_t)at + 1);
    }
    return 0;
}

char *ech__shm_place(const ech__shm *s, uint64_t where, int rank)
{
    const ech__shm_map *map = &s->maps[where >> 48];
    return map->base + rank * map->stride + (where & (((uint64_t)1 << 48) - 1)) - 1;
}

void *ech__shm_peer(ech__comm *comm, void *ptr, int index)
{
    const ech__shm *s = (const ech__shm *)comm;
    const uint64_t where = ech__shm_find(s, ptr, 1);
    return where && index < comm->world ? ech__shm_place(s, where, index) : NULL;
}
