/* What a network's values are on samples of the training set: histograms by value, for scales and for people to
 * look at.
 *
 *     ech__calibration c;
 *     ECH_TRY(ech__calibration_init(&c, &model, device, batch));
 *     ECH_TRY(ech__calibration_add(&c, x, count));          at most a batch, as often as needed
 *     c.seen[value]                                         NULL if it is not observed
 *     ech__calibration_fini(&c);
 */
#pragma once

#include "quant/histogram.h"
#include "quant/model.h"
#include "quant/network.h"

typedef struct ech__calibration {
    ech_ctx *ctx;
    const ech__qmodel *model;
    ech_graph *graph; /* every operator by itself, every value kept */
    ech__network *network;
    ech__histogram **seen; /* [nvalues] */
    float *values;         /* of one kind in a batch */
    int64_t capacity;      /* of values */
    int64_t samples;
} ech__calibration;

/* The model and the device are borrowed. */
ech_status ech__calibration_init(ech__calibration *calibration, const ech__qmodel *model,
                                 ech__device *device, int64_t batch);
ech_status ech__calibration_add(ech__calibration *calibration, const float *x, int64_t count);
void ech__calibration_fini(ech__calibration *calibration);

/* The values of a layer before and after its ReLU; -1 if there is none. */
typedef struct ech__around_relu {
    ech_value before, after;
} ech__around_relu;
ech__around_relu ech__around_relu_of(const ech__qmodel *model, const char *layer);
