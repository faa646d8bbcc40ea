/* Shape rules of the operators on integers, which only evaluation has: rows of the table in op.c.
 *
 * What they compute, in f32 and in this order, rounding half to even and then saturating:
 *
 *     quantize             x / scale
 *     dequantize           x * scale
 *     qlinear, qconv2d     (sum of products, exact in s32, + bias) * scale of the output, then relu
 *     qadd                 a * scale + b * scale2, then relu
 *     qavgpool2d           (exact sum under the window) * scale
 *     round                x * scale of the channel, within [low, high]
 *
 * Integers are s8 or u8 around zero; qadd takes whole numbers in f32 too, and gives them where type
 * says so. Results of qlinear and qconv2d of type f32 are not rounded. The weight of qconv2d is [O,
 * K, K * I]: a row of the kernel is one run of pixels, channels innermost, as the pixels of an
 * image lie when their channels do.
 */
#pragma once

#include "graph/op_image.h"

ECH__INFER(quantize);
ECH__INFER(dequantize);
ECH__INFER(qlinear);
ECH__INFER(qconv2d);
ECH__INFER(qadd);
ECH__INFER(qmaxpool2d);
ECH__INFER(qavgpool2d);
ECH__INFER(qflatten);
ECH__INFER(round);

/* Whether values of the type are quantized activations. */
static inline bool ech__is_int8(ech_dtype dtype)
{
    return dtype == ECH_S8 || dtype == ECH_U8;
}

/* The limits of an integer type; those of f32 are of no use. */
static inline float ech__int8_low(ech_dtype dtype)
{
    return dtype == ECH_S8 ? -128.0f : 0.0f;
}

static inline float ech__int8_high(ech_dtype dtype)
{
    return dtype == ECH_S8 ? 127.0f : 255.0f;
}
