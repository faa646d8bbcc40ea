#include "comm/shm_inner.h"

#include "base/size.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- what the system can give ---- */

/* The number behind `name` in a file of lines "name number", or the file's first number where name is empty; -1: none. */
static int64_t read_number(const char *path, const char *name)
{
    char line[256];
    int64_t value = -1;
    FILE *f = fopen(path, "re");
    if (!f)
        return -1;
    while (value < 0 && fgets(line, sizeof line, f)) {
        const size_t n = strlen(name);
        char *end;
        if (strncmp(line, name, n) != 0)
            continue;
        const long long number = strtoll(line + n, &end, 10);
        if (end != line + n)
            value = number;
    }
    fclose(f);
    return value;
}

/* What is left of a control group's limit; -1: it has none that could be read. What files take up in caches can be
 * had. */
static int64_t group_left(const char *folder, const char *limit_name, const char *usage_name,
                          const char *cache_name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, limit_name);
    const int64_t limit = read_number(path, "");
    snprintf(path, sizeof path, "%s/%s", folder, usage_name);
    const int64_t usage = read_number(path, "");
    if (limit < 0 || usage < 0)
        return -1;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    const int64_t inactive = read_number(path, cache_name);
    const int64_t left = limit - usage + (inactive > 0 ? inactive : 0);
    return left > 0 ? left : 0;
}

/* The least that is left in this process's control group and those above it. */
static int64_t groups_left(void)
{
    char line[512], folder[640];
    int64_t least = -1;
    FILE *f = fopen("/proc/self/cgroup", "re");
    if (!f)
        return -1;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        const bool second = strncmp(line, "0::", 3) == 0;
        char *path = second ? line + 3 : strstr(line, ":memory:");
        if (!path)
            continue;
        path = second ? path : path + strlen(":memory:");
        for (char *end = path + strlen(path); end; end = strrchr(path, '/')) {
            *end = '\0';
            snprintf(folder, sizeof folder, "/sys/fs/cgroup%s%s", second ? "" : "/memory", path);
            const int64_t left =
                second ? group_left(folder, "memory.max", "memory.current", "inactive_file ")
                       : group_left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                    "total_inactive_file ");
            if (left >= 0 && (least < 0 || left < least))
                least = left;
        }
    }
    fclose(f);
    return least;
}

/* Bytes that can be had without getting somebody killed. */
static int64_t available(void)
{
    const int64_t kilobytes = read_number("/proc/meminfo", "MemAvailable:");
    const int64_t machine = kilobytes < 0 ? INT64_MAX : kilobytes * 1024;
    const int64_t group = groups_left();
    return group >= 0 && group < machine ? group : machine;
}

/* ---- giving and taking ---- */

static int free_region(ech__shm_head *head)
{
    for (int i = 0; i < ECH__MAX_REGIONS; i++)
        if (atomic_load(&head->regions[i].holders) == 0)
            return i;
    return -1;
}

/* Appends `bytes` to the file; local rank 0 does it for all. */
static ech_status reserve(ech__shm *s, int64_t bytes)
{
    ech__shm_head *head = s->head;
    ech_ctx *ctx = s->base.ctx;
    const int i = free_region(head);
    if (i < 0)
        return ech__fail(ctx, ECH_E_LIMIT, "%d regions of shared memory are in use already",
                         (int)ECH__MAX_REGIONS);
    const int64_t can = available();
    if (bytes > can)
        return ech__fail(ctx, ECH_E_NOMEM,
                         "the system gave no %lld bytes of shared memory for %d ranks: %lld are "
                         "available",
                         (long long)bytes, s->base.world, (long long)can);
    int failed;
    do
        failed = fallocate(s->fd, 0, head->end, bytes);
    while (failed && errno == EINTR);
    if (failed)
        return ech__fail(ctx, ECH_E_NOMEM,
                         "the system gave no %lld bytes of shared memory for %d ranks: %s",
                         (long long)bytes, s->base.world, strerror(errno));
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
    void *base = mmap(NULL, (size_t)region->bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_POPULATE, s->fd, region->offset);
    if (base == MAP_FAILED)
        return ech__fail(s->base.ctx, ECH_E_NOMEM,
                         "rank %d: %lld bytes of shared memory could not be mapped: %s",
                         ech__shm_name(s, s->base.rank), (long long)region->bytes, strerror(errno));
    s->maps[index] = (ech__shm_map){base, stride, region->bytes};
    s->maps_end = index >= s->maps_end ? index + 1 : s->maps_end;
    return ECH_OK;
}

/* What rank 0 could not do fails on every rank; so does a rank that could not map. */
static ech_status share_status(ech__shm *s, ech_status status)
{
    int32_t mine = -status, worst;
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
    if (!ech__add(bytes, 2 * 4096, &stride) || !ech__mul(stride, comm->world, &total))
        return ech__fail(comm->ctx, ECH_E_INVALID, "%lld bytes of shared memory were asked for",
                         (long long)bytes);
    stride = ech__round_up(bytes ? bytes : 1, 4096);
    total = stride * comm->world;
    /* Ranks that ask for different sizes are found out as ranks in different collectives are. */
    ech__coll what = {.op = (ech__coll_op)ECH__OP_ALLOC, .dtype = ECH_U8, .count = bytes};
    ech__shm_begin(s, &what, 0);
    ECH_TRY(ech__shm_turn_over(s));
    if (comm->rank == 0) {
        head->alloc_status = reserve(s, total);
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
