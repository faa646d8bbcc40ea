/* What is recorded of an epoch. */
#ifndef ECH_TRAIN_EPOCH_H
#define ECH_TRAIN_EPOCH_H

#include <stdint.h>

typedef struct ech__evaluation {
    double loss, accuracy; /* means over the test set */
    int64_t samples;       /* 0: not evaluated */
} ech__evaluation;

typedef struct ech__run_epoch {
    int64_t epoch; /* from 1 */
    double time_s; /* training, waiting for data included */
    double compute_s;
    double loss, train_accuracy; /* means over the samples, as they were trained on */
    ech__evaluation test;
} ech__run_epoch;

/* Sums over the steps of an epoch that is under way. */
typedef struct ech__epoch_sums {
    int64_t samples;
    double loss, correct; /* each step's loss weighs as many times as it has samples */
    double time_s, compute_s;
} ech__epoch_sums;

#endif
