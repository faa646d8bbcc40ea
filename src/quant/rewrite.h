/* The rewrite of an evaluation graph to integers, and fake quantization for comparison.
 *
 *     ech__tensors whole;
 *     ech__tensors_init(ctx, &whole);
 *     ECH_TRY(ech__round_parameters(&model, &scales, &whole));
 *     ech__rewritten r;
 *     ECH_TRY(ech__quantize(&model, &scales, &whole, NULL, &r));  int8, every layer
 *     ech__network_create(r.graph, r.output, &r.weights, ...);
 *     ech__rewritten_fini(&r);
 *
 * Parameters of the result: NAME.weight in s8, NAME.bias in s32 in units of input x weight, and NAME.scale in f32,
 * which takes a sum to the unit of the output.
 */
#pragma once

#include "quant/scales.h"

typedef struct ech__rewritten {
    ech_graph *graph;
    ech_value output;
    ech__tensors weights;
} ech__rewritten;

void ech__rewritten_fini(ech__rewritten *rewritten);

/* layers[scales->nlayers] says which layers become integers, and all else stays f32. NULL: all of them, and what lies
 * between them. whole: from ech__round_parameters, or from a file. */
ech_status ech__quantize(const ech__qmodel *model, const ech__scales *scales,
                         const ech__tensors *whole, const bool *layers, ech__rewritten *out);

/* ---- fake.c: float arithmetic on whole numbers ---- */

/* What becomes of the biases. */
#define ECH__FAKE_BIAS_LIST(X)                                                                     \
    X(WHOLE, "whole") /* in units of input x weight, rounded: as the integer network has them */   \
    X(REAL, "real")   /* in the same units, not rounded */                                         \
    X(UNSCALED, "unscaled") /* as they were trained: a mistake that is often made */

typedef enum ech__fake_bias {
#define ECH__FAKE_BIAS_ENUM(id, text) ECH__FAKE_##id,
    ECH__FAKE_BIAS_LIST(ECH__FAKE_BIAS_ENUM)
#undef ECH__FAKE_BIAS_ENUM
} ech__fake_bias;

typedef struct ech__fake_options {
    ech__fake_bias bias;
    bool clamp_at_127; /* also what has the scale of 255 steps: another mistake */
} ech__fake_options;
ech_status ech__fake_quantize(const ech__qmodel *model, const ech__scales *scales,
                              const ech__fake_options *options, ech__rewritten *out);

/* The model itself with the weights of its layers rounded to their integers and back, all else in f32. */
ech_status ech__round_weights(const ech__qmodel *model, const ech__scales *scales,
                              ech__rewritten *out);
