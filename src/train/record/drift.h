/* How much the running statistics of batch norms differ between ranks that train on different
 * samples: a record at the end of each epoch, for ranks whose buffers are not broadcast.
 *
 *     ECH_TRY(ech__drift_init(&record, trainer, epochs, &arena));       allocates; empty if there is nothing to compare
 *     ECH_TRY(ech__drift_measure(&record, trainer, epoch, &all));
 *     ech__drift_layers(&record, epoch)[k]                      of layer k, named record.names[k]
 *
 * Every statistic is compared with its mean over the ranks: a running mean relative to the standard
 * deviation of its channel, a running variance relative to itself. */
#pragma once

#include "base/arena.h"
#include "echelon/echelon.h"

/* Over the channels of a layer, or of all layers, and over the ranks. */
typedef struct ech__drift {
    int ranks; /* that were compared; 0: none were */
    double mean_largest, mean_rms;
    double variance_largest, variance_rms;
} ech__drift;

/* mean[world][stride] and variance[world][stride], the first `channels` of each rank. */
ech__drift ech__drift_of(const float *mean, const float *variance, int world, int64_t stride,
                         int64_t channels);

typedef struct ech__drift_record {
    ech_ctx *ctx;
    int world;
    size_t nlayers;     /* 0: there is nothing to compare */
    const char **names; /* [nlayers]: "layer1.0.bn1" */
    int64_t *channels;  /* [nlayers] */
    int64_t total;      /* channels of all layers */
    int64_t epochs;
    ech__drift *rows;  /* [epochs][nlayers] */
    float *mine, *all; /* means of all layers, then variances: [2*total] and [world][2*total] */
} ech__drift_record;

/* epochs: how many there will be. */
ech_status ech__drift_init(ech__drift_record *record, const ech_trainer *trainer, int64_t epochs,
                           ech__arena *arena);
/* Compares the ranks after epoch number `epoch`, from 0. Collective. out: over all layers. */
ech_status ech__drift_measure(ech__drift_record *record, ech_trainer *trainer, int64_t epoch,
                              ech__drift *out);
/* NULL where the epoch was not compared by this process. */
const ech__drift *ech__drift_layers(const ech__drift_record *record, int64_t epoch);
/* The layer of an epoch whose means or variances differ most. */
size_t ech__drift_worst(const ech__drift_record *record, int64_t epoch);
