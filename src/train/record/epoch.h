/* What is recorded of an epoch. */
#pragma once

#include "train/record/drift.h"

#include <stdint.h>

typedef struct ech__evaluation {
    double loss, accuracy; /* means over the test set */
    int64_t samples;       /* 0: not evaluated */
} ech__evaluation;

/* Losses and counts are those of all ranks, each sample weighing alike. Times are rank 0's, but for
 * data_s. On the virtual clock they are its times; loading is then the core's own work and never
 * hidden. */
typedef struct ech__run_epoch {
    int64_t epoch; /* from 1 */
    int64_t samples;
    double time_s; /* of training: steps, waiting for data, and what is done around them */
    /* Of it, steps: forward to optimizer, the exchange with other ranks included. */
    double compute_s;
    double data_s; /* of it, waiting for samples and handing them over; of the rank with most */
    double evaluation_s;         /* after time_s */
    double loss, train_accuracy; /* means over the samples, as they were trained on */
    ech__evaluation test;
    ech__drift drift; /* of running statistics between ranks, where they are not broadcast */
} ech__run_epoch;

/* Of time_s, what is neither computing nor waiting for data. */
double ech__epoch_overhead(const ech__run_epoch *epoch);

/* Sums over the steps of an epoch that is in progress. */
typedef struct ech__epoch_sums {
    int64_t samples;
    double loss, correct; /* each step's loss weighs as many times as it has samples */
    double time_s, compute_s, data_s;
} ech__epoch_sums;
