/* Batches of images, prefetched by a thread: shuffled, augmented, normalised, distributed over
 * ranks.
 *
 *     ech__loader_options o = ech__loader_defaults();
 *     o.batch = 128;  o.seed = 7;  o.augment = true;
 *     ech__loader *loader;
 *     ECH_TRY(ech__loader_create(ctx, set, &o, &loader));
 *     const ech__batch *b;  double waited;
 *     while ((s = ech__loader_next(loader, &b, &waited)) == ECH_OK && b)
 *         use(b->x, b->y, b->count);              valid until the next call
 *     ech__loader_destroy(loader);                at any time, also in the middle of an epoch
 *
 * The content of a batch is a function of the options and of (epoch, step), never of threads,
 * timing or what was loaded before. An epoch is the samples in one order, shuffled by (seed,
 * epoch). Step k of it takes the positions from k*G to (k+1)*G, G = batch * world; rank r takes the
 * r-th chunk of `batch` positions of them. So N ranks of batch B/N together see what one rank of
 * batch B sees, and the crop and flip of a sample, which depend on (seed, epoch, position), are the
 * same too. Where G is given and the ranks do not divide it, the first G%world of them take one
 * sample more.
 *
 * Every rank takes the same number of steps. Where the last T < G positions are not dropped, they
 * make one more step, split evenly: each rank takes T/world of them and the first T%world ranks one
 * more, so that some ranks have an empty batch (count 0) if T < world. Each sample occurs once in
 * an epoch.
 */
#pragma once

#include "data/images.h"

/* y = (pixel/255 - mean)/std in f32, by channel: mean and std of CIFAR-10's training set, or one half for all. */
#define ECH__NORM_LIST(X)                                                                          \
    X(CIFAR10, "cifar10", .4914f, .4822f, .4465f, .2470f, .2435f, .2616f)                          \
    X(HALF, "half", .5f, .5f, .5f, .5f, .5f, .5f)

typedef enum ech__norm {
#define ECH__NORM_ENUM(id, ...) ECH__NORM_##id,
    ECH__NORM_LIST(ECH__NORM_ENUM)
#undef ECH__NORM_ENUM
} ech__norm;

typedef struct ech__loader_options {
    int64_t batch; /* samples per rank and step */
    ech__norm norm;
    uint64_t seed;  /* of order and augmentation */
    bool shuffle;   /* else the order of the set */
    bool augment;   /* crop out of 4 black pixels all around, and flip every other time */
    bool drop_last; /* leave out the samples that do not fill a step of all ranks */
    int rank, world;
    int64_t global; /* samples of a step; batch is the most that a rank takes. 0: batch * world */
    int64_t epoch, step; /* where to start; step == steps per epoch starts the next epoch */
    int64_t epochs;      /* number of the epoch to stop before; 0: go on for ever */
    int buffers;         /* batches in memory, at least 2; 0: as many as hide the loading */
} ech__loader_options;

/* Batch 64, CIFAR-10's mean and std, shuffled, not augmented, tail dropped, rank 0 of 1. */
ech__loader_options ech__loader_defaults(void);

typedef struct ech__batch {
    float *x;             /* [count, C, H, W] */
    int32_t *y;           /* [count] labels */
    int64_t count;        /* samples; below the option's batch only in an epoch's last step */
    int64_t global_count; /* samples of all ranks in this step */
    int64_t first;        /* position in the epoch's order of x[0] */
    int64_t epoch, step;  /* both from 0 */
} ech__batch;

typedef struct ech__loader ech__loader;

/* The set is borrowed and must outlive the loader. The thread starts right away. */
ech_status ech__loader_create(ech_ctx *ctx, const ech__images *set,
                              const ech__loader_options *options, ech__loader **out);
/* Stops the thread and waits for it. NULL is fine. */
void ech__loader_destroy(ech__loader *loader);

/* Steps of every epoch, the same for every rank. */
int64_t ech__loader_steps(const ech__loader *loader);

/* The next batch, borrowed until the next call or destroy; NULL after the last epoch. waited_s (may be NULL) is
 * how long it was not ready. Fails where the thread failed, and then again with each call. */
ech_status ech__loader_next(ech__loader *loader, const ech__batch **out, double *waited_s);

/* Nanoseconds that the thread has had a core so far; 0 where it has ended. */
int64_t ech__loader_cpu(const ech__loader *loader);

/* How many batches of this size the thread loads at once, before it sleeps until as many are used up. */
int ech__loader_burst(int64_t batch);

/* The order of an epoch: order[p] is the sample at position p. */
void ech__loader_order(uint64_t seed, int64_t epoch, int64_t count, int32_t *order);

/* What augmentation does to the sample at a position: where in the padded image the crop starts (0 to 8 down and
 * right; 4 is no shift), and whether it is flipped. */
typedef struct ech__augment {
    int down, right;
    bool flip;
} ech__augment;
ech__augment ech__loader_augment(uint64_t seed, int64_t epoch, int64_t position);
