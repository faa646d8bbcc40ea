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

#include <math.h>

ech__infer_rule ech__infer_quantize, ech__infer_dequantize, ech__infer_qlinear, ech__infer_qconv2d,
    ech__infer_qadd, ech__infer_qmaxpool2d, ech__infer_qavgpool2d, ech__infer_qflatten,
    ech__infer_round;

/* Whether values of the type are quantized activations. */
static inline bool ech__is_int8(ech_dtype dtype)
{
    return dtype == ECH_S8 || dtype == ECH_U8;
}

/* What is not a number becomes the lower limit, as the vector instructions have it. */
static inline float ech__round_within(float value, float low, float high)
{
    value = value > low ? value : low;
    return rintf(value < high ? value : high);
}
