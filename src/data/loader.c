#include "data/loader.h"
#include "base/rng.h"
#include "base/size.h"
#include "base/system/clock.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PAD = 4, /* black pixels on each side before a crop */
    MAX_BUFFERS = 64,
    SAMPLES_AHEAD = 256, /* what the pool of buffers holds where nothing else was asked for */
    ALIGN = 64,
};

struct ech__loader {
    ech_ctx *ctx;
    const ech__images *set;
    ech__loader_options options;
    int64_t global;      /* samples of a full step over all ranks */
    int64_t steps;       /* of an epoch */
    float table[3][256]; /* pixel -> normalised, by channel */

    /* Of the thread alone. */
    int32_t *order; /* of epoch `ordered`; NULL: not shuffled */
    int64_t ordered;
    uint8_t *scratch;   /* one image */
    ech_ctx thread_ctx; /* for error messages: the caller's context is the caller's */

    ech__batch batches[MAX_BUFFERS];
    float *x; /* memory of all batches */
    int32_t *y;
    int buffers;

    pthread_t thread;
    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t filled, emptied;
    int64_t made;  /* batches loaded so far; number i is in buffer i % buffers */
    int64_t taken; /* handed out so far; the last of them is still in use */
    bool asleep;   /* the thread waits for buffers */
    bool waiting;  /* the caller waits for a batch */
    bool ended, stop;
    ech_status failed;
};

ech__loader_options ech__loader_defaults(void)
{
    return (ech__loader_options){.batch = 64, .shuffle = true, .drop_last = true, .world = 1};
}

/* ---- what chance decides, as functions of (seed, epoch, position) ---- */

static uint64_t place(int64_t epoch, int64_t position)
{
    return (uint64_t)epoch << 32 | (uint64_t)position;
}

void ech__loader_order(uint64_t seed, int64_t epoch, int64_t count, int32_t *order)
{
    const uint64_t stream = ech__rng_stream("data.shuffle");
    for (int64_t i = 0; i < count; i++)
        order[i] = (int32_t)i;
    for (int64_t i = count - 1; i > 0; i--) {
        uint32_t w[4];
        ech__rng_block(seed, stream, place(epoch, i), w);
        /* 64 random bits make a choice among i + 1 that is uniform to one part in 2^32 at least. */
        const uint64_t bits = (uint64_t)w[1] << 32 | w[0];
        const int64_t j = (int64_t)((unsigned __int128)bits * (uint64_t)(i + 1) >> 64);
        const int32_t swapped = order[i];
        order[i] = order[j];
        order[j] = swapped;
    }
}

ech__augment ech__loader_augment(uint64_t seed, int64_t epoch, int64_t position)
{
    uint32_t w[4];
    ech__rng_block(seed, ech__rng_stream("data.augment"), place(epoch, position), w);
    return (ech__augment){.down = (int)((uint64_t)w[0] * (2 * PAD + 1) >> 32),
                          .right = (int)((uint64_t)w[1] * (2 * PAD + 1) >> 32),
                          .flip = w[2] >> 31};
}

/* ---- one image: u8 [C, H, W] -> f32 [C, H, W] ---- */

static void make_table(ech__norm norm, float table[3][256])
{
#define NORM_ROW(id, text, ...) {__VA_ARGS__},
    static const float rows[][6] = {ECH__NORM_LIST(NORM_ROW)};
#undef NORM_ROW
    /* In f32 and in this order, as PyTorch has it. */
    for (int c = 0; c < 3; c++)
        for (int p = 0; p < 256; p++)
            table[c][p] = ((float)p / 255.0f - rows[norm][c]) / rows[norm][3 + c];
}

static void fill(float *dst, int count, float value)
{
    for (int x = 0; x < count; x++)
        dst[x] = value;
}

/* One row of a crop: pixels from `left` on, black where the image has none. */
static void convert_row(const float *table, const uint8_t *src, int width, int left, bool flip,
                        float *dst)
{
    const int first = left < 0 ? -left : 0;
    const int end = left > 0 ? width - left : width;
    if (!flip) {
        fill(dst, first, table[0]);
        for (int x = first; x < end; x++)
            dst[x] = table[src[x + left]];
        fill(dst + end, width - end, table[0]);
        return;
    }
    fill(dst, width - end, table[0]);
    float *last = dst + width - 1;
    for (int x = first; x < end; x++)
        last[-x] = table[src[x + left]];
    fill(dst + width - first, first, table[0]);
}

static void convert(const ech__loader *l, const uint8_t *src, ech__augment a, float *dst)
{
    const int height = l->set->height, width = l->set->width;
    for (int c = 0; c < l->set->channels; c++) {
        const float *table = l->table[c % 3];
        for (int y = 0; y < height; y++, dst += width) {
            const int from = y + a.down - PAD;
            if (from < 0 || from >= height)
                fill(dst, width, table[0]);
            else
                convert_row(table, src + (int64_t)from * width, width, a.right - PAD, a.flip, dst);
        }
        src += (int64_t)height * width;
    }
}

/* ---- one batch ---- */

/* Which positions of the epoch this rank takes in a step. */
static void share_out(const ech__loader *l, int64_t step, ech__batch *batch)
{
    const int64_t start = step * l->global, left = l->set->count - start;
    batch->global_count = left < l->global ? left : l->global;
    const ech__part mine = ech__part_of(batch->global_count, l->options.rank, l->options.world);
    batch->count = mine.count;
    batch->first = start + mine.first;
}

static ech_status load(ech__loader *l, int64_t epoch, int64_t step, ech__batch *batch)
{
    const ech__loader_options *o = &l->options;
    if (l->order && l->ordered != epoch) {
        ech__loader_order(o->seed, epoch, l->set->count, l->order);
        l->ordered = epoch;
    }
    batch->epoch = epoch;
    batch->step = step;
    share_out(l, step, batch);
    const int64_t size = (int64_t)ech__images_bytes(l->set);
    for (int64_t i = 0; i < batch->count; i++) {
        const int64_t position = batch->first + i;
        const int64_t sample = l->order ? l->order[position] : position;
        const ech__augment a = o->augment ? ech__loader_augment(o->seed, epoch, position)
                                          : (ech__augment){.down = PAD, .right = PAD};
        const uint8_t *pixels;
        ECH_TRY(ech__images_read(&l->thread_ctx, l->set, sample, l->scratch, &pixels));
        convert(l, pixels, a, batch->x + i * size);
        batch->y[i] = l->set->labels[sample];
    }
    return ECH_OK;
}

/* ---- the thread ---- */

/* With the lock. The buffer of the last batch that was handed out is still in use. */
static int64_t free_buffers(const ech__loader *l)
{
    return l->buffers - (l->made - l->taken) - (l->taken > 0);
}

/* With the lock: sleeps when all buffers are full, and until half of them are empty, so that small batches do
 * not wake the thread one by one. False when the loader stops. */
static bool wait_for_buffer(ech__loader *l)
{
    if (!l->stop && free_buffers(l) == 0) {
        l->asleep = true;
        while (!l->stop && l->asleep)
            pthread_cond_wait(&l->emptied, &l->lock);
    }
    return !l->stop;
}

static void *load_ahead(void *user)
{
    ech__loader *l = user;
    int64_t epoch = l->options.epoch, step = l->options.step;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        if (step == l->steps) {
            epoch++;
            step = 0;
        }
        if (l->options.epochs && epoch >= l->options.epochs)
            break;
        if (!wait_for_buffer(l))
            break;
        ech__batch *batch = &l->batches[l->made % l->buffers];
        pthread_mutex_unlock(&l->lock);
        const ech_status status = load(l, epoch, step, batch);
        pthread_mutex_lock(&l->lock);
        if (status < 0) {
            l->failed = status;
            break;
        }
        l->made++;
        step++;
        if (l->waiting)
            pthread_cond_signal(&l->filled);
    }
    l->ended = true;
    pthread_cond_signal(&l->filled);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

ech_status ech__loader_next(ech__loader *l, const ech__batch **out, double *waited_s)
{
    int64_t waited = 0;
    *out = NULL;
    pthread_mutex_lock(&l->lock);
    if (l->made == l->taken && !l->ended) {
        const int64_t start = ech__clock_wall();
        l->waiting = true;
        while (l->made == l->taken && !l->ended)
            pthread_cond_wait(&l->filled, &l->lock);
        l->waiting = false;
        waited = ech__clock_wall() - start;
    }
    const bool ready = l->made > l->taken;
    if (ready) {
        *out = &l->batches[l->taken % l->buffers];
        l->taken++;
    }
    if (l->asleep && free_buffers(l) * 2 >= l->buffers - 1) {
        l->asleep = false;
        pthread_cond_signal(&l->emptied);
    }
    const ech_status failed = l->failed;
    pthread_mutex_unlock(&l->lock);
    if (waited_s)
        *waited_s = ech__seconds(waited);
    if (!ready && failed < 0)
        return ech__fail(l->ctx, failed, "%s", l->thread_ctx.error);
    return ECH_OK;
}

int64_t ech__loader_cpu(const ech__loader *l)
{
    clockid_t clock;
    struct timespec t;
    if (pthread_getcpuclockid(l->thread, &clock) != 0 || clock_gettime(clock, &t) != 0)
        return 0;
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- create and destroy ---- */

int64_t ech__loader_steps(const ech__loader *loader)
{
    return loader->steps;
}

static ech_status check(ech_ctx *ctx, const ech__images *set, const ech__loader_options *o)
{
    int64_t global;
    assert(set->channels >= 1 && o->world >= 1 && o->rank >= 0 && o->rank < o->world);
    assert(!o->global || o->batch == ech__part_of(o->global, 0, o->world).count);
    assert(set->count <= INT32_MAX && o->epoch >= 0 && o->step >= 0 &&
           (o->buffers == 0 || o->buffers >= 2));
    if (o->batch < 1)
        return ech__fail(ctx, ECH_E_INVALID, "a batch of %lld images: it must have at least 1",
                         (long long)o->batch);
    if (!ech__mul(o->batch, o->world, &global) ||
        (o->drop_last && (o->global ? o->global : global) > set->count))
        return ech__fail(ctx, ECH_E_INVALID,
                         "a batch of %lld on %d devices is more than the %lld images of the set",
                         (long long)o->batch, o->world, (long long)set->count);
    if (set->count < 1)
        return ech__fail(ctx, ECH_E_INVALID, "the set has no images");
    return ECH_OK;
}

static int buffers_for(int64_t batch)
{
    const int64_t wanted = SAMPLES_AHEAD / batch;
    return wanted < 3 ? 3 : wanted > MAX_BUFFERS ? MAX_BUFFERS : (int)wanted;
}

int ech__loader_burst(int64_t batch)
{
    return buffers_for(batch) / 2; /* see ech__loader_next */
}

static int count_buffers(const ech__loader_options *o)
{
    if (o->buffers)
        return o->buffers < MAX_BUFFERS ? o->buffers : MAX_BUFFERS;
    return buffers_for(o->batch);
}

/* No batch has more samples than the set. */
static ech_status allocate(ech__loader *l)
{
    const int64_t count = l->set->count, size = (int64_t)ech__images_bytes(l->set);
    const int64_t batch = l->options.batch < count ? l->options.batch : count;
    /* Whole cache lines, so that every batch starts at one. */
    const int64_t xs = ech__round_up(batch * size, ALIGN / sizeof(float));
    const int64_t ys = ech__round_up(batch, ALIGN / sizeof(int32_t));
    l->x = aligned_alloc(ALIGN, (size_t)(xs * l->buffers) * sizeof *l->x);
    l->y = aligned_alloc(ALIGN, (size_t)(ys * l->buffers) * sizeof *l->y);
    l->scratch = malloc((size_t)size);
    if (l->options.shuffle)
        l->order = malloc((size_t)count * sizeof *l->order);
    if (!l->x || !l->y || !l->scratch || (l->options.shuffle && !l->order))
        return ech__no_memory(l->ctx, "%d batches of %lld images", l->buffers, (long long)batch);
    for (int b = 0; b < l->buffers; b++)
        l->batches[b] = (ech__batch){.x = l->x + b * xs, .y = l->y + b * ys};
    return ECH_OK;
}

static void release(ech__loader *l)
{
    free(l->x);
    free(l->y);
    free(l->scratch);
    free(l->order);
    pthread_cond_destroy(&l->filled);
    pthread_cond_destroy(&l->emptied);
    pthread_mutex_destroy(&l->lock);
    ech__delete(l->ctx, l, sizeof *l);
}

ech_status ech__loader_create(ech_ctx *ctx, const ech__images *set,
                              const ech__loader_options *options, ech__loader **out)
{
    *out = NULL;
    ECH_TRY(check(ctx, set, options));
    ech__loader *l = ech__new(ctx, sizeof *l);
    if (!l)
        return ech__no_memory(ctx, "a loader of images");
    l->ctx = ctx;
    l->set = set;
    l->options = *options;
    l->ordered = -1;
    l->buffers = count_buffers(options);
    l->global = options->global ? options->global : options->batch * options->world;
    l->steps = options->drop_last ? set->count / l->global : (set->count - 1) / l->global + 1;
    /* Means are known of three channels; others are normalised alike. */
    make_table(set->channels == 3 ? options->norm : ECH__NORM_HALF, l->table);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->filled, NULL);
    pthread_cond_init(&l->emptied, NULL);
    ech_status status = allocate(l);
    if (status == ECH_OK && options->step > l->steps)
        status = ech__fail(ctx, ECH_E_INVALID, "cannot start at step %lld of an epoch of %lld",
                           (long long)options->step, (long long)l->steps);
    if (status == ECH_OK) {
        const int error = pthread_create(&l->thread, NULL, load_ahead, l);
        if (error)
            status = ech__fail(ctx, ECH_E_INTERNAL, "cannot create the loading thread: %s",
                               strerror(error));
    }
    if (status < 0) {
        release(l);
        return status;
    }
    *out = l;
    return ECH_OK;
}

void ech__loader_destroy(ech__loader *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->emptied);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    release(l);
}
