/* The reference device with memory that the host cannot touch, as a GPU's: a test of everything that
 * is not a kernel.
 *
 * An address that it hands out lies in a range of pages that fault. The data lies elsewhere, and only
 * this file knows where: the functions of its memory and its kernels, when they are created, go there
 * instead. Time stamps come late, as from a queue. */
#include "base/system/clock.h"
#include "device/ref/ref.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

typedef struct block {
    char *address, *real;
    int64_t bytes;
    struct block *next;
} block;

typedef struct pending {
    int64_t *to, ns;
} pending;

enum { MOST_PENDING = 64, PAGE = 4096 };

typedef struct hidden {
    pthread_mutex_t lock; /* guards all of it: memory is used by any thread */
    block *blocks;
    pending stamps[MOST_PENDING];
    int nstamps;
} hidden;

static ech_status hidden_open(ech__device *device, void **out)
{
    hidden *h = *out = ech__new(device->ctx, sizeof *h);
    if (!h)
        return ech__no_memory(device->ctx, "a device");
    pthread_mutex_init(&h->lock, NULL);
    return ECH_OK;
}

static void hidden_close(ech__device *device, void *state)
{
    hidden *h = state;
    assert(!h->blocks);
    pthread_mutex_destroy(&h->lock);
    ech__delete(device->ctx, h, sizeof *h);
}

/* ---- addresses ---- */

/* Where bytes of an address that was handed out really are. */
static void *real(ech__device *device, const void *address, int64_t bytes)
{
    hidden *h = ech__device_state(device);
    const uintptr_t at = (uintptr_t)address;
    char *found = NULL;
    if (!address)
        return NULL;
    pthread_mutex_lock(&h->lock);
    for (const block *b = h->blocks; b && !found; b = b->next) {
        const uintptr_t first = (uintptr_t)b->address, end = first + (uintptr_t)b->bytes;
        if (at >= first && at + (uintptr_t)bytes <= end)
            found = b->real + (at - first);
    }
    pthread_mutex_unlock(&h->lock);
    assert(found); /* else it is no address of this device */
    return found;
}

/* A page more than there is, so that the end of a block is no other's address. */
static size_t reserved(int64_t bytes)
{
    return (size_t)bytes + PAGE;
}

static void *map(int64_t bytes, int protection)
{
    void *at =
        mmap(NULL, reserved(bytes), protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static void unmap(block *b)
{
    if (b->real)
        munmap(b->real, reserved(b->bytes));
    if (b->address)
        munmap(b->address, reserved(b->bytes));
}

static ech_status hidden_alloc(ech__device *device, int64_t bytes, void **out)
{
    hidden *h = ech__device_state(device);
    block *b = ech__new(device->ctx, sizeof *b);
    if (!b)
        return ech__no_memory(device->ctx, "a block");
    *b = (block){.bytes = bytes};
    b->address = map(bytes, PROT_NONE);
    b->real = b->address ? map(bytes, PROT_READ | PROT_WRITE) : NULL;
    if (!b->real) {
        const int error = errno;
        unmap(b);
        ech__delete(device->ctx, b, sizeof *b);
        return ech__no_memory(device->ctx, "%lld bytes: %s", (long long)bytes, strerror(error));
    }
    pthread_mutex_lock(&h->lock);
    b->next = h->blocks;
    h->blocks = b;
    pthread_mutex_unlock(&h->lock);
    *out = b->address;
    return ECH_OK;
}

static void hidden_free(ech__device *device, void *ptr, int64_t bytes)
{
    hidden *h = ech__device_state(device);
    pthread_mutex_lock(&h->lock);
    block **at = &h->blocks;
    while (*at && (*at)->address != ptr)
        at = &(*at)->next;
    block *b = *at;
    assert(b && b->bytes == bytes);
    *at = b->next;
    pthread_mutex_unlock(&h->lock);
    unmap(b);
    ech__delete(device->ctx, b, sizeof *b);
}

/* ---- memory ---- */

static ech_status hidden_write(ech__device *device, void *dst, const void *host, int64_t bytes)
{
    return ech__host_memory.write(device, real(device, dst, bytes), host, bytes);
}

static ech_status hidden_read(ech__device *device, void *host, const void *src, int64_t bytes)
{
    return ech__host_memory.read(device, host, real(device, src, bytes), bytes);
}

static ech_status hidden_copy(ech__device *device, void *dst, ech__device *from, const void *src,
                              int64_t bytes)
{
    return ech__host_memory.copy(device, real(device, dst, bytes), from, real(from, src, bytes),
                                 bytes);
}

static ech_status hidden_fill(ech__device *device, void *dst, int byte, int64_t bytes)
{
    return ech__host_memory.fill(device, real(device, dst, bytes), byte, bytes);
}

static void give_stamps(hidden *h)
{
    for (int i = 0; i < h->nstamps; i++)
        *h->stamps[i].to = h->stamps[i].ns;
    h->nstamps = 0;
}

static ech_status hidden_sync(ech__device *device)
{
    hidden *h = ech__device_state(device);
    pthread_mutex_lock(&h->lock);
    give_stamps(h);
    pthread_mutex_unlock(&h->lock);
    return ECH_OK;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): it is written later */
static void write_later(ech__device *device, int64_t *to, int64_t ns)
{
    hidden *h = ech__device_state(device);
    pthread_mutex_lock(&h->lock);
    if (h->nstamps == MOST_PENDING)
        give_stamps(h);
    h->stamps[h->nstamps++] = (pending){to, ns};
    pthread_mutex_unlock(&h->lock);
}

static void hidden_stamp(ech__device *device, int64_t *ns)
{
    write_later(device, ns, ech__clock_wall());
}

static void hidden_worked(ech__device *device, int64_t *ns)
{
    write_later(device, ns, ech__clock_cpu());
}

static const ech__memory_ops hidden_memory = {
    .alloc = hidden_alloc,
    .free = hidden_free,
    .write = hidden_write,
    .read = hidden_read,
    .copy = hidden_copy,
    .fill = hidden_fill,
    .sync = hidden_sync,
    .stamp = hidden_stamp,
    .worked = hidden_worked,
};

/* ---- kernels ---- */

/* The reference's kernel, on what the addresses stand for. */
static ech_status hidden_create(const ech__kernel_args *args, ech__kernel **out)
{
    ech__binding there = *args->binding;
    for (int i = 0; i < args->desc->nin + args->desc->nout; i++)
        there.operands[i] = real(args->device, args->binding->operands[i], 0);
    there.scratch = real(args->device, args->binding->scratch, args->candidate->scratch_bytes);
    there.kept = real(args->device, args->binding->kept, args->candidate->kept_bytes);
    there.copy = real(args->device, args->binding->copy, 0);
    return args->candidate->inner(
        &(ech__kernel_args){args->device, args->desc, args->candidate, &there}, out);
}

static ech_status hidden_candidates(ech__device *device, const ech__kernel_desc *desc,
                                    ech__candidate *out, int *count)
{
    ECH_TRY(ech__reference_table.candidates(device, desc, out, count));
    for (int i = 0; i < *count; i++) {
        out[i].inner = out[i].create;
        out[i].create = hidden_create;
    }
    return ECH_OK;
}

const ech__kernel_table ech__hidden_table = {
    .kind = "hidden reference",
    .memory = &hidden_memory,
    .open = hidden_open,
    .close = hidden_close,
    .fingerprint = ech__ref_fingerprint,
    .activation_layout = ech__ref_activation_layout,
    .candidates = hidden_candidates,
};
