/* Winograd convolution F(4x4, 3x3) in f32: the inner loops of winograd.c, compiled once for each
 * vector width.
 *
 * An image is cut into tiles of 4 x 4 outputs. A tile's 6 x 6 inputs, and each 3 x 3 weight, are
 * evaluated as polynomials at 6 x 6 points; there the convolution is one multiplication for each
 * point, channel and output, 36 instead of 144, and the sum over channels is a matrix product for
 * each point. The gradient of the weight is the same with the roles changed: 6 x 6 inputs, 4 x 4
 * gradients, 3 x 3 results, summed over tiles.
 *
 * Everything at the points is stored as [36][C/B][T][B]: vectors of B channels of successive tiles
 * are contiguous, so that transforms write and products read whole lines. Points are a "position
 * stride" apart.
 *
 * B  channels in a vector (8 or 16)     T  tiles     I, O  input and output channels
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    ECH__WINOGRAD_TILE = 4,
    ECH__WINOGRAD_POINTS = 36,
    ECH__WINOGRAD_TAPS = 9,      /* of a weight */
    ECH__WINOGRAD_CHANNELS = 16, /* most of a vector */
};

/* A batch of images [N][C/B][H][W][B], cut into tiles[N][tiles_h][tiles_w]. */
typedef struct ech__winograd_image {
    float *data;
    int64_t blocks, height, width; /* C/B, H, W */
    int64_t tiles_h, tiles_w;
    int64_t before; /* rows and columns of a tile before its place at a multiple of 4 */
} ech__winograd_image;

/* Tiles [first, first + count) of one block of channels. */
typedef struct ech__winograd_span {
    int64_t block, first, count;
} ech__winograd_span;

/* c[row][o] (+)= sum over depth of a[row][depth] * b[depth][o], for blocks vectors of o. */
typedef struct ech__winograd_product {
    const float *a, *b;
    float *c;
    int64_t a_block, b_block, c_block; /* strides from one block of channels to the next */
    int64_t rows, depth, blocks;
    bool add;
} ech__winograd_product;

typedef struct ech__winograd_loops {
    int channels; /* B */
    int rows;     /* of the product that are done together */
    /* Tiles of 6 x 6 of an input, zero outside the image -> v[36][count][B]. */
    void (*input)(const ech__winograd_image *x, ech__winograd_span span, float *v, int64_t stride);
    /* Tiles of 4 x 4 of an output's gradient -> v[36][count][B]. */
    void (*gradient)(const ech__winograd_image *dy, ech__winograd_span span, float *v,
                     int64_t stride);
    /* m[36][count][B] -> tiles of 4 x 4 of an output; bias[B] may be NULL. */
    void (*output)(const ech__winograd_image *y, ech__winograd_span span, const float *m,
                   int64_t stride, const float *bias, bool relu);
    /* taps[9][B][B] -> u[36][B][2B]; rotate: by 180 degrees. */
    void (*weight)(const float *taps, bool rotate, float *u, int64_t stride);
    /* m[36][B][B] -> taps[9][B][B] */
    void (*weight_gradient)(const float *m, int64_t stride, float *taps);
    /* Nine times from[B][B] -> to[B][B] with its axes exchanged. */
    void (*transpose)(const float *from, float *to);
    /* a[depth/B][rows][B], b[o/2B][depth][2B] -> c[o/B][rows][B]; depth a multiple of B. */
    void (*over_channels)(const ech__winograd_product *p);
    /* a[rows/B][depth][B], b[o/B][depth][B] -> c[o/B][rows][B]; rows a multiple of B. */
    void (*over_tiles)(const ech__winograd_product *p);
    /* Sums over all images and places of one block of channels. */
    void (*sums)(const ech__winograd_image *dy, int64_t images, int64_t block, float *out);
} ech__winograd_loops;

extern const ech__winograd_loops ech__winograd_generic, ech__winograd_avx2, ech__winograd_avx512;
