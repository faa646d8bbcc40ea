/* Direct convolution in f32 of images with few channels: the inner loops of direct.c, compiled once
 * for each vector width.
 *
 * A vector holds one pixel of B channels of the result (or of dy, for the gradient of a weight);
 * numbers of the other image are splat over a vector one by one. What is not a constant here is a
 * stride, so that images may be row-major or blocked by channels, and the weight is mostly used
 * without packing.
 *
 * B  channels in a vector (8 or 16)
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    ECH__DIRECT_CHANNELS = 16, /* most of a vector */
    ECH__DIRECT_WIDTH = 14,    /* most pixels, or taps, side by side in a tile */
};

/* One term of a sum, from the first number of the tile's x and from its weight. A list of them
 * takes the place of nested loops over the kernel and the channels, which are too short to be
 * fast. */
typedef struct ech__direct_term {
    int32_t x, w;
} ech__direct_term;

/* y[blocks][rows][pixels][B] = bias + sum over the terms of x * w, and so on for count tiles
 * side by side. With add it is added to what is in y. */
typedef struct ech__direct_tile {
    const float *x, *w;
    const float *bias; /* [blocks][B], or NULL */
    float *y;
    int rows, pixels, blocks;
    int64_t count;
    int64_t x_pixel, x_row; /* from one to the next of the tile */
    int64_t w_block, y_block, y_row, y_pixel;
    const ech__direct_term *terms;
    int64_t nterms;
    bool relu, add;
} ech__direct_tile;

/* dw[blocks][lines][taps][B] += sum over rows and pixels of x * dy. */
typedef struct ech__direct_sum {
    const float *x, *dy;
    float *dw;
    int lines, taps, blocks;
    int64_t x_line; /* from one to the next of the tile; from tap to tap it is 1 */
    int64_t dw_line, dw_tap, dw_block;
    int64_t rows, pixels;
    int64_t x_row, x_pixel, dy_row, dy_block; /* dy goes on by B from pixel to pixel */
} ech__direct_sum;

/* What fits into the registers: lines (rows) times taps (pixels) times blocks accumulators. */
typedef struct ech__direct_loops {
    int channels;        /* B */
    int accumulators[2]; /* with one and two blocks */
    int width[2];        /* most pixels, or taps, with one and two blocks */
    void (*tile)(const ech__direct_tile *t);
    void (*sum)(const ech__direct_sum *s);
    /* out[B] += count vectors */
    void (*add_pixels)(const float *dy, int64_t count, float *out);
    /* from[B][B] -> to[B][B] with its axes exchanged */
    void (*transpose)(const float *from, float *to);
} ech__direct_loops;

extern const ech__direct_loops ech__direct_generic, ech__direct_avx2, ech__direct_avx512;
