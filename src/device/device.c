#include "device/device.h"
#include "base/names.h"
#include "base/size.h"
#include "base/system/available.h"
#include "base/system/clock.h"
#include "base/system/cpus.h"
#include "device/isa.h"

#include <assert.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct job {
    ech_status (*run)(void *arg);
    void *arg;
    ech_status result;
} job;

typedef struct device {
    ech__device base; /* first, so that an ech__device is a device */
    const ech__kernel_table *table;
    void *state;
    ech__cpus cores;
    bool bound;
    pthread_t thread;
    pthread_mutex_t lock; /* guards job and quit, and changes of busy */
    pthread_cond_t changed;
    job job;          /* the last one that was handed over */
    atomic_bool busy; /* with it: handed over, not finished */
    bool quit;
    bool watches;        /* before it sleeps: where there are cores for more than its jobs */
    atomic_llong job_ns; /* that the last job took */
} device;

static device *of(ech__device *base)
{
    return (device *)base;
}

int ech__device_cores(void)
{
    ech__cpus set;
    if (!ech__cpus_read(&set))
        return 1;
    const int count = ech__cpus_count(&set);
    return count > 0 ? count : 1;
}

/* One process's part of what the machine has; 0 when it does not say. */
static int64_t physical_memory(int sharers)
{
    const long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && bytes > 0 ? (int64_t)pages * bytes / (sharers > 1 ? sharers : 1) : 0;
}

/* ---- worker ---- */

/* The threads that a device starts take its name over, so that from outside the threads of one
 * device can be told from those of another. */
static void name_worker(void)
{
    char name[16];
    snprintf(name, sizeof name, "device %u", (unsigned)gettid() % 10000000);
    pthread_setname_np(pthread_self(), name);
}

enum { SHORT_NS = 1000000, WATCH_NS = 100000, LOOKS = 64 };

/* Stays awake for a moment, until the device is busy or is not. Waking a thread takes the system
 * longer than a small network needs. Other work for this core goes first. Longer jobs do better with a
 * worker that sleeps: it wakes where its caches are. */
static void watch(const device *dev, bool busy)
{
    if (!dev->watches || atomic_load_explicit(&dev->job_ns, memory_order_relaxed) > SHORT_NS)
        return;
    const int64_t end = ech__clock_wall() + WATCH_NS;
    do {
        for (int i = 0; i < LOOKS; i++) {
            if (atomic_load_explicit(&dev->busy, memory_order_acquire) == busy)
                return;
            ech__clock_pause();
        }
        sched_yield();
    } while (ech__clock_wall() < end);
}

static void *work(void *arg)
{
    device *dev = arg;
    name_worker();
    if (dev->bound)
        ech__cpus_bind(&dev->cores);
    omp_set_dynamic(0);
    omp_set_num_threads(dev->base.threads);
    pthread_mutex_lock(&dev->lock);
    for (;;) {
        while (!dev->busy && !dev->quit)
            pthread_cond_wait(&dev->changed, &dev->lock);
        if (!dev->busy)
            break;
        const job todo = dev->job;
        pthread_mutex_unlock(&dev->lock);
        const int64_t start = ech__clock_wall();
        const ech_status result = todo.run(todo.arg);
        const int64_t busy = ech__clock_wall() - start;
        atomic_store_explicit(&dev->job_ns, busy, memory_order_relaxed);
        pthread_mutex_lock(&dev->lock);
        dev->base.busy_ns += busy;
        dev->job.result = result;
        dev->busy = false;
        pthread_cond_broadcast(&dev->changed);
        pthread_mutex_unlock(&dev->lock);
        watch(dev, true);
        pthread_mutex_lock(&dev->lock);
    }
    pthread_mutex_unlock(&dev->lock);
    return NULL;
}

static bool is_worker(const device *dev)
{
    return pthread_equal(pthread_self(), dev->thread);
}

static void device_start(ech__device *base, ech_status (*run)(void *arg), void *arg)
{
    device *dev = of(base);
    assert(!is_worker(dev)); /* it would wait for itself */
    pthread_mutex_lock(&dev->lock);
    assert(!dev->busy);
    dev->job = (job){run, arg, ECH_OK};
    dev->busy = true;
    pthread_cond_broadcast(&dev->changed);
    pthread_mutex_unlock(&dev->lock);
}

static ech_status device_finish(ech__device *base)
{
    device *dev = of(base);
    watch(dev, false);
    pthread_mutex_lock(&dev->lock);
    while (dev->busy)
        pthread_cond_wait(&dev->changed, &dev->lock);
    const ech_status result = dev->job.result;
    pthread_mutex_unlock(&dev->lock);
    return result;
}

static ech_status device_call(ech__device *base, ech_status (*run)(void *arg), void *arg)
{
    if (is_worker(of(base))) /* a job that calls again is already there */
        return run(arg);
    device_start(base, run, arg);
    return device_finish(base);
}

/* ---- memory ---- */

static ech_status device_charge(ech__device *base, int64_t bytes)
{
    int64_t total;
    if (!ech__add(base->memory_used, bytes, &total))
        return ech__fail(base->ctx, ECH_E_INVALID, "%lld bytes cannot be allocated",
                         (long long)bytes);
    if (bytes > 0 && base->memory_limit && total > base->memory_limit)
        return ech__fail(base->ctx, ECH_E_LIMIT,
                         "the device needs %lld bytes; its limit is %lld bytes", (long long)total,
                         (long long)base->memory_limit);
    base->memory_used = total;
    if (total > base->memory_peak)
        base->memory_peak = total;
    return ECH_OK;
}

static ech_status device_alloc(ech__device *base, int64_t bytes, void **out)
{
    *out = NULL;
    if (bytes < 0)
        return ech__fail(base->ctx, ECH_E_INVALID, "%lld bytes cannot be allocated",
                         (long long)bytes);
    ECH_TRY(device_charge(base, bytes));
    const ech_status status = ech__memory_check(base->ctx, "the device", bytes, 1, base->threads);
    if (status < 0) {
        device_charge(base, -bytes);
        return status;
    }
    const ech_status given = base->memory->alloc(base, bytes, out);
    if (given < 0)
        device_charge(base, -bytes);
    return given;
}

static int64_t device_available(ech__device *base)
{
    const int64_t machine = ech__machine_available();
    const int64_t process = ech__process_available(base->threads);
    return process < machine ? process : machine;
}

static void device_free(ech__device *base, void *ptr, int64_t bytes)
{
    if (!ptr)
        return;
    base->memory->free(base, ptr, bytes);
    base->memory_used -= bytes;
}

/* ---- calls that go to the kind, on the worker ---- */

typedef struct request {
    ech__device *device;
    const ech__kernel_desc *desc;
    ech__candidate *candidates;
    int *count;
} request;

static ech_status do_candidates(void *arg)
{
    const request *r = arg;
    return of(r->device)->table->candidates(r->device, r->desc, r->candidates, r->count);
}

static ech_status device_candidates(ech__device *base, const ech__kernel_desc *desc,
                                    ech__candidate *out, int *count)
{
    *count = 0;
    return device_call(base, do_candidates, &(request){base, desc, out, count});
}

typedef struct creation {
    const ech__kernel_args *args;
    ech__kernel **out;
} creation;

static ech_status do_create(void *arg)
{
    const creation *c = arg;
    return c->args->candidate->create(c->args, c->out);
}

static ech_status device_create(const ech__kernel_args *args, ech__kernel **out)
{
    *out = NULL;
    return device_call(args->device, do_create, &(creation){args, out});
}

static const char *device_fingerprint(ech__device *base)
{
    return of(base)->table->fingerprint(base);
}

static ech__layout device_activation_layout(ech__device *base, const ech__shape *shape)
{
    return of(base)->table->activation_layout(base, shape);
}

static const ech__device_ops device_ops = {
    .fingerprint = device_fingerprint,
    .activation_layout = device_activation_layout,
    .candidates = device_candidates,
    .create = device_create,
    .alloc = device_alloc,
    .free = device_free,
    .available = device_available,
    .charge = device_charge,
    .call = device_call,
    .start = device_start,
    .finish = device_finish,
};

/* ---- life ---- */

static ech_status do_open(void *arg)
{
    device *dev = arg;
    return dev->table->open ? dev->table->open(&dev->base, &dev->state) : ECH_OK;
}

static ech_status do_close(void *arg)
{
    device *dev = arg;
    if (dev->table->close)
        dev->table->close(&dev->base, dev->state);
    return ECH_OK;
}

static void stop_worker(device *dev)
{
    pthread_mutex_lock(&dev->lock);
    dev->quit = true;
    pthread_cond_broadcast(&dev->changed);
    pthread_mutex_unlock(&dev->lock);
    pthread_join(dev->thread, NULL);
}

static void release(device *dev)
{
    pthread_cond_destroy(&dev->changed);
    pthread_mutex_destroy(&dev->lock);
    ech__delete(dev->base.ctx, dev, sizeof *dev);
}

static const ech__kernel_table *const tables[] = {
    [ECH__DEVICE_CPU] = &ech__cpu_table,
    [ECH__DEVICE_REFERENCE] = &ech__reference_table,
    [ECH__DEVICE_HIDDEN] = &ech__hidden_table,
};

ECH__NAMES(ech__device_name, ech__device_kind, ECH__DEVICE_LIST)

ech_status ech__device_asked(ech_ctx *ctx, ech__device_kind *out)
{
    const char *text = getenv(ECH__DEVICE_VARIABLE);
    *out = ECH__DEVICE_CPU;
    if (!text || !*text)
        return ECH_OK;
    for (int kind = 0; kind <= ECH__DEVICE_HIDDEN; kind++) {
        if (strcmp(text, ech__device_name((ech__device_kind)kind)))
            continue;
        *out = (ech__device_kind)kind;
        return ECH_OK;
    }
    return ech__fail(ctx, ECH_E_INVALID,
                     ECH__DEVICE_VARIABLE " '%.64s': must be one of cpu|ref|ref-hidden", text);
}

bool ech__device_shards_updates(ech__device_kind kind)
{
    return tables[kind]->updates_parts && tables[kind]->memory->host_visible;
}

static ech_status check_options(ech_ctx *ctx, const ech__device_options *options)
{
    if ((size_t)options->kind >= sizeof tables / sizeof(tables[0])) /* NOLINT: pointers are meant */
        return ech__fail(ctx, ECH_E_INVALID, "there is no device of kind %d", (int)options->kind);
    if (options->threads < 0 || options->threads > 1024)
        return ech__fail(ctx, ECH_E_INVALID, "a device of %d threads: must be from 1 to 1024",
                         options->threads);
    if (options->memory_limit < 0)
        return ech__fail(ctx, ECH_E_INVALID,
                         "a device with a memory limit of %lld bytes: it must be at least 1, or 0 "
                         "for all there is",
                         (long long)options->memory_limit);
    ech__cpus usable;
    ech__cpus_read(&usable);
    for (int i = 0; i < options->ncores; i++) {
        if (!ech__cpus_has(&usable, options->cores[i]))
            return ech__fail(ctx, ECH_E_INVALID, "core %d is none that this process may use",
                             options->cores[i]);
    }
    return ECH_OK;
}

ech_status ech__device_create(ech_ctx *ctx, const ech__device_options *options, ech__device **out)
{
    *out = NULL;
    ECH_TRY(ech__isa_check(ctx));
    ECH_TRY(check_options(ctx, options));
    const int cores = ech__device_cores();
    /* Before a library is asked for anything: some crash where they get no memory. */
    ECH_TRY(ech__memory_check(ctx, "a device", 1 << 16, 1,
                              options->threads ? options->threads : cores));
    device *dev = ech__new(ctx, sizeof *dev);
    if (!dev)
        return ech__no_memory(ctx, "a device");
    dev->table = tables[options->kind];
    dev->base =
        (ech__device){.ops = &device_ops,
                      .memory = dev->table->memory,
                      .ctx = ctx,
                      .kind = dev->table->kind,
                      .threads = options->threads ? options->threads : cores,
                      .memory_limit = options->memory_limit ? options->memory_limit
                                                            : physical_memory(options->sharers)};
    for (int i = 0; i < options->ncores; i++)
        ech__cpus_add(&dev->cores, options->cores[i]);
    dev->bound = options->ncores > 0;
    dev->watches = cores > 1 && cores > options->sharers;
    pthread_mutex_init(&dev->lock, NULL);
    pthread_cond_init(&dev->changed, NULL);
    const int error = pthread_create(&dev->thread, NULL, work, dev);
    if (error) {
        release(dev);
        return ech__fail(ctx, ECH_E_NOMEM, "the device's thread did not start: %s",
                         strerror(error));
    }
    const ech_status status = device_call(&dev->base, do_open, dev);
    if (status < 0) {
        stop_worker(dev);
        release(dev);
        return status;
    }
    *out = &dev->base;
    return ECH_OK;
}

void ech__device_destroy(ech__device *base)
{
    if (!base)
        return;
    device *dev = of(base);
    device_call(base, do_close, dev);
    stop_worker(dev);
    release(dev);
}

void *ech__device_state(ech__device *base)
{
    return of(base)->state;
}

/* ---- kernels ---- */

ech_status ech__kernel_make(ech__device *base, const void *kernel, size_t bytes, ech__kernel **out)
{
    ech__kernel *made = *out = ech__new(base->ctx, bytes);
    if (!made)
        return ech__no_memory(base->ctx, "a kernel");
    memcpy(made, kernel, bytes);
    made->device = base;
    made->bytes = bytes;
    if (!made->destroy)
        made->destroy = ech__kernel_free;
    return ECH_OK;
}

void ech__kernel_free(ech__kernel *kernel)
{
    ech__delete(kernel->device->ctx, kernel, kernel->bytes);
}

ech_status ech__kernel_made(ech_status status, ech__kernel **kernel)
{
    if (status < 0) {
        (*kernel)->destroy(*kernel);
        *kernel = NULL;
    }
    return status;
}

bool ech__has_labels(const ech__kernel_desc *desc)
{
    return desc->nin == 2 && desc->operands[1].dtype == ECH_S32;
}

ech_status ech__check_labels(ech__device *base, const int32_t *labels, int64_t N, int64_t C)
{
    for (int64_t n = 0; n < N; n++) {
        if (labels[n] < 0 || labels[n] >= C)
            return ech__fail(base->ctx, ECH_E_INVALID,
                             "label %d of sample %lld is outside the %lld classes", (int)labels[n],
                             (long long)n, (long long)C);
    }
    return ECH_OK;
}
