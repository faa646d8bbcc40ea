/* Where a run's batches come from: one fixed batch of vectors, or a loader of images.
 *
 *     ECH_TRY(ech__feed_open(ctx, &options, &feed));        what a step is follows from the data
 *     ECH_TRY(ech__feed_start(&feed, &options));            loading begins
 *     ECH_TRY(ech__feed_next(&feed));                       the samples of the next optimizer step
 *     for (int i = 0; i < feed.now.micros; i++) {
 *         ECH_TRY(ech__feed_micro(&feed, trainer, i, &micro, &variant));
 *         ECH_TRY(ech__variant_step(trainer, variant, &micro, &step));
 *     }
 *
 * The samples of a step are split evenly over the ranks, and those of a rank evenly over its
 * micro-steps. Every rank takes as many micro-steps; one that has no sample left for it computes on
 * a black one that does not count. */
#pragma once

#include "data/loader.h"
#include "data/vectors.h"
#include "models/models.h"
#include "train/record/epoch.h"
#include "train/step/trainer.h"

typedef struct ech__feed_options {
    ech__model_options model;
    const char *data;     /* NULL: synthetic; "cifar10"; else a safetensors file with x and y */
    const char *data_dir; /* of cifar10 */
    int64_t limit;        /* training samples; 0: all */
    int64_t batch;        /* samples of a micro-step of one rank; 0: as global says */
    /* Samples of a step over all ranks; 0: batch of each, or the rows of the file. */
    int64_t global;
    int rank, world;
    int sharers;    /* ranks on this machine; 0: one */
    int micros;     /* micro-steps of a step */
    bool undivided; /* losses of micro-steps are added up instead of averaged */
    bool drop_last; /* leaves out what does not fill a step at the end of an epoch */
    bool shuffle, augment;
    bool checkpointed; /* images are hashed, which takes a second for a large set */
    uint64_t seed;
    int64_t epoch, step; /* where to start */
} ech__feed_options;

typedef struct ech__feed {
    ech_ctx *ctx;
    int rank, world, micros;
    bool undivided;
    int64_t global;    /* samples of a full step, over all ranks */
    int64_t batch;     /* most samples of a micro-step */
    int64_t per_epoch; /* steps */
    char sha256[65]; /* of a file's vectors, or of the labels of images; "" for synthetic vectors */
    char pixels_sha256[65]; /* of the images of a run with checkpoints; "" for others */
    /* vectors */
    ech__vectors vectors;
    bool written; /* the device has the one batch */
    /* images */
    ech__images *train, *test;
    ech__loader *loader;
    ech__norm norm;
    float *nothing; /* a black sample */
    /* the step under way */
    struct {
        int64_t global;           /* samples over all ranks */
        int micros;               /* micro-steps */
        const ech__batch *images; /* of this rank */
    } now;
} ech__feed;

/* Opens and checks the data; loading starts with ech__feed_start. */
ech_status ech__feed_open(ech_ctx *ctx, const ech__feed_options *options, ech__feed *out);
ech_status ech__feed_start(ech__feed *feed, const ech__feed_options *options);
void ech__feed_close(ech__feed *feed);

/* Waits for the samples of the next step. */
ech_status ech__feed_next(ech__feed *feed);
/* Puts those of its micro-step `index` into the variant for their number. */
ech_status ech__feed_micro(ech__feed *feed, ech_trainer *trainer, int index, ech__micro *micro,
                           const ech__variant **variant);

/* Over the test set, each rank its share, or nothing (samples 0) where there is none.
 * Collective. */
ech_status ech__feed_evaluate(ech__feed *feed, ech_trainer *trainer, const ech__model *model,
                              ech__evaluation *out);
