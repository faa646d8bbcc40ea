/* What the kernels of qlinear and qconv2d have in common: sizes, operands, and the factors of their
 * outputs.
 *
 *     ech__int8_layer layer = ech__int8_layer_of(cpu, desc);   the sizes
 *     ech__int8_layer_bind(&layer, binding);                   addresses; kept: factors first
 *     ech__int8_layer_factors(&layer);                         when the weights have been written
 *
 * A linear layer is a convolution of images with one pixel.
 */
#pragma once

#include "device/cpu/cpu.h"
#include "device/cpu/int8/int8.h"

typedef struct ech__int8_layer {
    bool image; /* a convolution: x and y are blocked by channels */
    bool is_signed, relu;
    ech_dtype type;         /* of y */
    int64_t N, I, H, W;     /* of x */
    int64_t O, P, Q;        /* of y: channels, rows, columns */
    int64_t K, stride, pad; /* of the kernel */
    int64_t B;              /* channels in a block of an image */
    int64_t outputs;        /* O filled up to whole blocks */
    const char *x;
    const int8_t *w;
    const int32_t *bias;
    const float *scale;
    char *y;
    float *biases, *scales; /* [outputs] in f32, zero from O on */
} ech__int8_layer;

ech__int8_layer ech__int8_layer_of(const ech__cpu *cpu, const ech__kernel_desc *desc);

/* Whether x and y have the layouts that these kernels take, and no sum of products can leave 32
 * bits. */
bool ech__int8_layer_fits(const ech__int8_layer *layer, const ech__kernel_desc *desc);

/* Bytes of the factors, a multiple of 64. */
int64_t ech__int8_layer_bytes(const ech__int8_layer *layer);
/* Returns what follows the factors in the kept memory. */
void *ech__int8_layer_bind(ech__int8_layer *layer, const ech__binding *binding);
void ech__int8_layer_factors(const ech__int8_layer *layer);

/* Where image n of the batch has its first result of the channels from o on; o is a multiple of
 * 8. */
char *ech__int8_layer_result(const ech__int8_layer *layer, int64_t n, int64_t o);
