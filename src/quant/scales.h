/* The scales that convert numbers of a network to integers and back: one for every value between
 * layers, and for every weight one per tensor or one per output channel. There is no zero point: u8
 * after a ReLU, s8 elsewhere.
 *
 *     ech__scales s;
 *     ECH_TRY(ech__scales_init(&s, &model));
 *     ECH_TRY(ech__scales_weights(&s, &model, &options));
 *     ECH_TRY(ech__scales_activations(&s, &model, &observed, &options));
 *     ...ech__quantize(...)
 *     ech__scales_fini(&s);
 *
 */
#pragma once

#include "quant/histogram.h"
#include "quant/model.h"

const char *ech__clip_name(ech_clip clip);

typedef struct ech__scale_options {
    ech_clip weights;
    bool per_channel;
    double weight_percentile; /* in percent */
    ech_observe activations;
    double percentile; /* in percent */
} ech__scale_options;

ech__scale_options ech__scale_defaults(void);

/* A linear layer or convolution. */
typedef struct ech__layer_scales {
    const char *name;
    ech_value weight;
    int64_t outputs;
    float *scale; /* [outputs]; all alike where one is for the whole weight */
} ech__layer_scales;

typedef struct ech__scales {
    ech_ctx *ctx;
    ech__arena arena;
    float *activation; /* [nvalues] of the model's graphs; 0: the value has none */
    size_t nvalues;
    ech__layer_scales *layers; /* in the order of the graph */
    size_t nlayers;
} ech__scales;

/* All scales 0. The model is borrowed. */
ech_status ech__scales_init(ech__scales *scales, const ech__qmodel *model);
void ech__scales_fini(ech__scales *scales);
ech__layer_scales *ech__scales_layer(const ech__scales *scales, const char *name);

/* Those of the weights. A weight that is zero all over is refused. */
ech_status ech__scales_weights(ech__scales *scales, const ech__qmodel *model,
                               const ech__scale_options *options);

/* Those of the values, from histograms by value number (NULL: none). A value that was zero on every sample is
 * refused. */
ech_status ech__scales_activations(ech__scales *scales, const ech__qmodel *model,
                                   ech__histogram *const *observed,
                                   const ech__scale_options *options);

/* Says what is wrong with scales that came from elsewhere: not finite, zero, negative, or missing. */
ech_status ech__scales_check(const ech__scales *scales, const ech__qmodel *model);

/* The scale of `count` contiguous elements of a weight; 0 if all are zero. */
float ech__clip_scale(const float *weight, int64_t count, const ech__scale_options *options);
/* A weight in units of its scale: a whole number from -127 to 127. */
float ech__whole_weight(float weight, float scale);
/* Those of a weight[outputs, each]. */
void ech__round_weight(const float *weight, int64_t outputs, int64_t each, const float *scale,
                       int8_t *out);

/* Weights in s8 and biases in s32, in units of input x weight, under the names and in the shapes of the model's
 * own. Fails where a bias does not fit. */
ech_status ech__round_parameters(const ech__qmodel *model, const ech__scales *scales,
                                 ech__tensors *whole);

/* ---- what a graph says of its values ---- */

/* Whether a value has a scale: inputs and outputs of layers, and the values between them. */
bool ech__has_scale(const ech__qmodel *model, ech_value value);
/* The value whose scale this one shares: after max-pools and flattening it is the value before
 * them. */
ech_value ech__scale_owner(const ech_graph *fused, ech_value value);
/* u8 where it cannot be below zero, else s8. */
ech_dtype ech__scale_type(const ech_graph *fused, ech_value value);
/* What people call a value: its layer, or the input. */
const char *ech__scale_name(const ech_graph *fused, ech_value value);
