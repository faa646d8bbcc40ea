/* A set of labelled images, whatever it comes from.
 *
 *     ech__images_options o = ech__images_defaults();
 *     o.source = ECH__IMAGES_CIFAR10;  o.dir = "cifar";  o.split = ECH__SPLIT_TRAIN;  o.limit = 5000;
 *     ech__images *set;
 *     ECH_TRY(ech__images_open(ctx, &o, &set));
 *     const uint8_t *pixels;                         [C, H, W]
 *     ECH_TRY(ech__images_read(ctx, set, i, scratch, &pixels));       its label is set->labels[i]
 *     ech__images_close(set);
 *
 * An open set never changes: any number of threads may read it. A loader (data/loader.h) makes batches of it.
 */
#pragma once

#include "base/status.h"

/* synthetic: 50,000 and 10,000 generated images, in the shape of CIFAR-10 (10 classes, 3x32x32)
 * or in another, the same on every machine and with every seed. A class is a smooth pattern that each of
 * its images shows shifted and faded, under a pattern that has no class and under noise. An image
 * is made when it is read: the set takes no memory. */
#define ECH__IMAGES_SOURCE_LIST(X)                                                                 \
    X(SYNTHETIC, "synthetic")                                                                      \
    X(CIFAR10, "cifar10")

typedef enum ech__images_source {
#define ECH__IMAGES_SOURCE_ENUM(id, text) ECH__IMAGES_##id,
    ECH__IMAGES_SOURCE_LIST(ECH__IMAGES_SOURCE_ENUM)
#undef ECH__IMAGES_SOURCE_ENUM
} ech__images_source;

const char *ech__images_source_name(ech__images_source source);

typedef enum ech__split { ECH__SPLIT_TRAIN, ECH__SPLIT_TEST } ech__split;

typedef struct ech__images ech__images;

/* Where images come from. read points *pixels at stored image number `stored`: in memory of the source, or in
 * scratch, which has room for one image. It is called from several threads at a time. */
typedef struct ech__image_source {
    ech_status (*read)(ech_ctx *ctx, const ech__images *set, int64_t stored, uint8_t *scratch,
                       const uint8_t **pixels);
    void (*close)(ech_ctx *ctx, void *state); /* may be NULL */
} ech__image_source;

struct ech__images {
    ech_ctx *ctx;
    const char *name;            /* "cifar10", for people */
    int64_t count;               /* N, after the limit */
    int channels, height, width; /* C, H, W */
    int classes;
    uint8_t *labels; /* [N], each below classes */
    int32_t *stored; /* [N]: which stored image sample i is; NULL: number i */
    const ech__image_source *source;
    void *state; /* of the source */
};

typedef struct ech__images_options {
    ech__images_source source;
    ech__split split;
    const char *dir; /* of CIFAR-10's binary files */
    /* Samples to keep, 0: all. Every class keeps the first limit/classes of its images in the order of the files,
     * and the first limit%classes classes one more. */
    int64_t limit;
    /* Of synthetic images; 0: CIFAR-10's. */
    int channels, height, width, classes;
    int sharers; /* processes of this machine that open a set of their own; 0: one */
} ech__images_options;

/* All of the synthetic training set. */
ech__images_options ech__images_defaults(void);

ech_status ech__images_open(ech_ctx *ctx, const ech__images_options *options, ech__images **out);
/* After every loader of it. NULL is fine. */
void ech__images_close(ech__images *set);

/* Bytes of one image. */
static inline size_t ech__images_bytes(const ech__images *set)
{
    return (size_t)set->channels * (size_t)set->height * (size_t)set->width;
}

/* Points *pixels at sample i, [C, H, W]: in memory of the set, or in scratch (ech__images_bytes of room). */
static inline ech_status ech__images_read(ech_ctx *ctx, const ech__images *set, int64_t i,
                                          uint8_t *scratch, const uint8_t **pixels)
{
    return set->source->read(ctx, set, set->stored ? set->stored[i] : i, scratch, pixels);
}

/* Narrows a set to limit samples as the option does; sources use it too. */
ech_status ech__images_limit(ech__images *set, int64_t limit);

/* The synthetic set, for images.c. Fills count, labels, source and state of a set whose shapes are set. The caller
 * closes it, also on failure. */
ech_status ech__synthetic_open(ech__images *set, ech__split split);
