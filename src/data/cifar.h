/* CIFAR-10 in its binary form: files of exactly 10,000 records, each a label byte and 3x32x32 pixels.
 *
 *     ech__cifar cifar;
 *     ECH_TRY(ech__cifar_open(ctx, "cifar", ECH__SPLIT_TEST, &cifar));     reads and checks the split's files
 *     ... ech__cifar_label(&cifar, i), ech__cifar_pixels(&cifar, i) ...
 *     ech__cifar_fini(&cifar);
 *
 * The training split is data_batch_1.bin to data_batch_5.bin, the test split is test_batch.bin; only the files
 * of the split must be there, in the directory or in cifar-10-batches-bin below it, as the archive unpacks.
 */
#pragma once

#include "data/images.h"

enum {
    ECH__CIFAR_CLASSES = 10,
    ECH__CIFAR_CHANNELS = 3,
    ECH__CIFAR_SIDE = 32,
    ECH__CIFAR_PIXELS = 3072,
    ECH__CIFAR_RECORD = 3073,   /* bytes: label, red plane, green plane, blue plane */
    ECH__CIFAR_RECORDS = 10000, /* in a file */
    ECH__CIFAR_FILE = ECH__CIFAR_RECORD * ECH__CIFAR_RECORDS,
    ECH__CIFAR_FILES = 6, /* five of the training split, then one of the test split */
    ECH__CIFAR_TRAIN_FILES = 5,
};

typedef struct ech__cifar {
    int64_t count;
    uint8_t *records; /* [count, 3073], owned */
} ech__cifar;

ech_status ech__cifar_open(ech_ctx *ctx, const char *dir, ech__split split, ech__cifar *out);
void ech__cifar_fini(ech__cifar *cifar);

static inline uint8_t ech__cifar_label(const ech__cifar *cifar, int64_t i)
{
    return cifar->records[i * ECH__CIFAR_RECORD];
}

/* [3, 32, 32] */
static inline const uint8_t *ech__cifar_pixels(const ech__cifar *cifar, int64_t i)
{
    return cifar->records + i * ECH__CIFAR_RECORD + 1;
}

/* "data_batch_1.bin" and so on, "test_batch.bin" last. */
const char *ech__cifar_file_name(int file);

/* Reads one file, of exactly ECH__CIFAR_FILE bytes, into records and checks it. */
ech_status ech__cifar_read(ech_ctx *ctx, const char *path, uint8_t *records);

/* Adds the files up: what a whole set must come out as. */
typedef struct ech__cifar_tally {
    int64_t count;
    int64_t labels[ECH__CIFAR_CLASSES];
    int64_t sums[ECH__CIFAR_CHANNELS]; /* of pixels */
} ech__cifar_tally;
void ech__cifar_add(ech__cifar_tally *tally, const uint8_t *records, int64_t count);
/* Mean of a channel in units of the brightest pixel. */
double ech__cifar_mean(const ech__cifar_tally *tally, int channel);
