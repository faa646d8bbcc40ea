/* Memory of devices that compute in the host's own. */
#include "base/system/clock.h"
#include "device/device.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, SLICE = 1 << 20 };

/* Blocks are few and large: whole pages from the system, already zero, huge pages where it gives them. */
static ech_status host_alloc(ech__device *device, int64_t bytes, void **out)
{
    void *ptr = mmap(NULL, (size_t)(bytes ? bytes : 1), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ptr == MAP_FAILED)
        return ech__no_memory(device->ctx, "%lld bytes: %s", (long long)bytes, strerror(errno));
    if (bytes >= HUGE_PAGE)
        madvise(ptr, (size_t)bytes, MADV_HUGEPAGE);
    *out = ptr;
    return ECH_OK;
}

static void host_free(ech__device *device, void *ptr, int64_t bytes)
{
    (void)device;
    munmap(ptr, (size_t)(bytes ? bytes : 1));
}

static ech_status host_write(ech__device *device, void *dst, const void *host, int64_t bytes)
{
    (void)device;
    memcpy(dst, host, (size_t)bytes);
    return ECH_OK;
}

static ech_status host_read(ech__device *device, void *host, const void *src, int64_t bytes)
{
    (void)device;
    memcpy(host, src, (size_t)bytes);
    return ECH_OK;
}

static ech_status host_copy(ech__device *device, void *dst, ech__device *from, const void *src,
                            int64_t bytes)
{
    (void)device, (void)from;
    const int64_t slices = (bytes + SLICE - 1) / SLICE;
#pragma omp parallel for schedule(static) if (slices > 1)
    for (int64_t s = 0; s < slices; s++) {
        const int64_t at = s * SLICE, rest = bytes - at;
        memcpy((char *)dst + at, (const char *)src + at, (size_t)(rest < SLICE ? rest : SLICE));
    }
    return ECH_OK;
}

static ech_status host_fill(ech__device *device, void *dst, int byte, int64_t bytes)
{
    (void)device;
    memset(dst, byte, (size_t)bytes);
    return ECH_OK;
}

/* A kernel has ended when its function returns. */
static ech_status host_sync(ech__device *device)
{
    (void)device;
    return ECH_OK;
}

static void host_stamp(ech__device *device, int64_t *ns)
{
    (void)device;
    *ns = ech__clock_wall();
}

static void host_worked(ech__device *device, int64_t *ns)
{
    (void)device;
    *ns = ech__clock_cpu();
}

const ech__memory_ops ech__host_memory = {
    .host_visible = true,
    .alloc = host_alloc,
    .free = host_free,
    .write = host_write,
    .read = host_read,
    .copy = host_copy,
    .fill = host_fill,
    .sync = host_sync,
    .stamp = host_stamp,
    .worked = host_worked,
};
