/* Where a run's batches come from: one fixed batch of vectors, or a loader of images. */
#ifndef ECH_TRAIN_FEED_H
#define ECH_TRAIN_FEED_H

#include "data/loader.h"
#include "data/vectors.h"
#include "models/models.h"
#include "train/epoch.h"
#include "train/trainer.h"

typedef struct ech__feed_options {
    ech__model_options model;
    const char *data;     /* NULL: synthetic; "cifar10"; else a safetensors file with x and y */
    const char *data_dir; /* of cifar10 */
    int64_t limit;        /* training samples; 0: all */
    int64_t batch;        /* 0: the rows of the file, or 64 */
    bool shuffle, augment;
    uint64_t seed;
    int64_t epoch, step; /* where to start */
} ech__feed_options;

typedef struct ech__feed {
    ech_ctx *ctx;
    int64_t batch;     /* samples of a full step */
    int64_t per_epoch; /* steps */
    char sha256[65]; /* of a file's vectors, or of the labels of images; "" for synthetic vectors */
    /* vectors */
    ech__vectors vectors;
    bool written; /* the device has the one batch */
    /* images */
    ech__images *train, *test;
    ech__loader *loader;
    ech__norm norm;
} ech__feed;

/* Opens and checks the data; loading starts with ech__feed_start. */
ech_status ech__feed_open(ech_ctx *ctx, const ech__feed_options *options, ech__feed *out);
ech_status ech__feed_start(ech__feed *feed, const ech__feed_options *options);
void ech__feed_close(ech__feed *feed);

/* Puts the next batch into the variant for its size. */
ech_status ech__feed_next(ech__feed *feed, ech_trainer *trainer, const ech__variant **variant);

/* Over the test set, or nothing (samples 0) where there is none. */
ech_status ech__feed_evaluate(ech__feed *feed, ech_trainer *trainer, const ech__model *model,
                              ech__evaluation *out);

#endif
