/* The ladder from f32 to int8: what each step costs in accuracy, and gains in size and time.
 *
 *     ech__ladder ladder;
 *     ECH_TRY(ech__ladder_init(&ladder, &model, &scales, &whole, &options));
 *     ECH_TRY(ech__ladder_climb(&ladder));            ladder.rungs, ladder.count
 *     ECH_TRY(ech__ladder_layers(&ladder, 1000));     ladder.layers: each layer alone in int8
 *     ech__ladder_fini(&ladder);
 */
#pragma once

#include "data/loader.h"
#include "quant/network.h"
#include "quant/rewrite.h"

/* Samples in the order of their set, normalised as the network was trained. */
typedef struct ech__samples {
    const ech__images *set;
    ech__norm norm;
    int64_t limit; /* the first so many; 0: all */
} ech__samples;

typedef struct ech__ladder_options {
    ech__device *device;
    ech__tuning *tuning; /* NULL: the device's preferred kernels */
    int64_t batch;
    ech__samples test;
    /* Told of each rung when it is there; may be NULL. */
    void (*progress)(void *user, const char *what);
    void *user;
} ech__ladder_options;

/* id, name, what it is */
#define ECH__RUNG_LIST(X)                                                                          \
    X(F32, "f32", "as it was trained")                                                             \
    X(WEIGHTS, "weights", "weights rounded to s8, all else f32")                                   \
    X(ACTIVATIONS, "weights + activations", "and activations to u8 and s8, biases real")           \
    X(INT8, "weights + activations + bias", "int8 arithmetic, biases in s32")                      \
    X(FAKE, "the same in float arithmetic", "whole numbers in f32: fake quantization")             \
    X(UNSCALED, "mistake: biases not scaled", "added to integer sums as they were trained")        \
    X(CLAMPED, "mistake: clamped at 127", "upper half of the activations cut off")

typedef enum ech__rung_kind {
#define ECH__RUNG_ENUM(id, text, what) ECH__RUNG_##id,
    ECH__RUNG_LIST(ECH__RUNG_ENUM)
#undef ECH__RUNG_ENUM
        ECH__RUNG_COUNT
} ech__rung_kind;

const char *ech__rung_name(ech__rung_kind kind);
const char *ech__rung_what(ech__rung_kind kind);

/* A share with its 95 % interval (Wilson's). */
typedef struct ech__share {
    int64_t hits, count;
    double share, low, high;
} ech__share;
ech__share ech__share_of(int64_t hits, int64_t count);

typedef struct ech__rung {
    ech__rung_kind kind;
    ech__share accuracy;
    ech__share agreement; /* samples with the prediction of f32 */
    /* Samples that f32 has right and this rung wrong, and the other way round: what a difference between the two is
     * made of, and what its interval follows from, because both have seen the same samples. */
    int64_t lost, gained;
    int64_t bytes;  /* of parameters; 0 if they would not be stored in this form */
    double image_s; /* median over full batches, divided by the batch */
} ech__rung;

/* One layer in int8, the rest in f32. */
typedef struct ech__layer_rung {
    const char *name;
    ech__share accuracy, agreement;
} ech__layer_rung;

typedef struct ech__ladder {
    ech_ctx *ctx;
    ech__arena arena;
    const ech__qmodel *model;
    const ech__scales *scales;
    const ech__tensors *whole;
    ech__ladder_options options;
    int32_t *f32,
        *int8; /* [count of the test set] predictions; f32 is what others are compared with */
    ech__rung rungs[ECH__RUNG_COUNT];
    int count;
    ech__layer_rung *layers; /* [scales->nlayers] */
    ech__share layers_f32;   /* f32 on the samples that they were tried on */
    int64_t layer_samples;
} ech__ladder;

/* Model, scales, whole (of ech__round_parameters) and what options name are borrowed. */
ech_status ech__ladder_init(ech__ladder *ladder, const ech__qmodel *model,
                            const ech__scales *scales, const ech__tensors *whole,
                            const ech__ladder_options *options);
void ech__ladder_fini(ech__ladder *ladder);

/* Every rung, f32 first. */
ech_status ech__ladder_climb(ech__ladder *ladder);
/* int8 alone, where nothing else is there. */
ech_status ech__ladder_int8(ech__ladder *ladder);
/* Each layer alone in int8, on the first so many samples. After the climb. */
ech_status ech__ladder_layers(ech__ladder *ladder, int64_t samples);

/* ---- evaluation ---- */

/* Predictions of a network for samples, and its time. */
typedef struct ech__scored {
    int64_t samples, correct;
    /* Where expected was given: the same prediction, right there and wrong here, wrong there and right here. */
    int64_t agree, lost, gained;
    double batch_s; /* median of the full batches; 0 where there was none */
} ech__scored;

/* predicted[] is written where it is not NULL, expected[] compared with. */
ech_status ech__score(ech__network *network, const ech__samples *samples, int32_t *predicted,
                      const int32_t *expected, ech__scored *out);
