/* Convolutions of integers with 3 x 3 kernels using Winograd, exact: the inner loops of winograd.c.
 *
 * A tile of 4 x 4 results of a channel takes 144 products. At stride 1, F(4x4, 3x3) takes 36. With
 * its rows scaled to whole numbers, the transform of the weight fits into 14 bits and that of the
 * image into 16:
 *
 *     G =  6  0  0      B' =  4  0 -5  0  1  0      A' =  1  4  4  1  1  0   / 24
 *         -1 -1 -1            0 -4 -4  1  1  0            0  2 -2  1 -1  0   / 12
 *         -1  1 -1            0  4 -4 -1  1  0            0  1  1  1  1  0   / 6
 *          1  2  4            0 -2 -1  2  1  0            0  1 -1  2 -2  1   / 6
 *          1 -2  4            0  2 -1 -2  1  0
 *          0  0  6            0  4  0 -5  0  1
 *
 * At stride 2 the outer two weights of a line only meet even pixels, which is F(4, 2), and the
 * middle one only odd ones: 9 x 9 products.
 *
 *     G =  3  0  0      B' =  2  0 -1  0 -2  0  1  0  0      A' =  1  1  1  1  0  1  0  0  0   / 6
 *         -3  0 -3            0  0 -2  0 -1  0  1  0  0            0  1 -1  2  0  0  1  0  0   / 6
 *         -1  0  1            0  0  2  0 -3  0  1  0  0            0  1  1  4  0  0  0  1  0   / 6
 *          1  0  2            0  0 -1  0  0  0  1  0  0            0  1 -1  8  1  0  0  0  1   / 6
 *          0  0  6            0  0  2  0 -1  0 -2  0  1
 *          0  6  0, 4 times   and the four odd pixels
 *
 * The last four rows of this G are the same, so either way a line has 6 kinds of points, and U the
 * 36 pairs of them.
 *
 * Sums may wrap around in 32 bits. What comes out is a multiple of up to 9 * 64 of the true sum, or
 * of 9 * 4 at stride 2, and modulo 2^32 a division by 9 is a multiplication; then a shift leaves
 * the true sum, wherever that is below 2^25, or 2^29. Where it might not be, it is made in parts,
 * each of some of the channels: what the parts give is added up in 32 bits.
 *
 * U of the weight [O/16][36][C/2][16][2], V of the image [points][T][C], both s16; M = products
 * [points][T][16], s32; T tiles at a time
 */
#pragma once

#include "echelon/echelon.h"

enum {
    ECH__INT8_WINO_TILE = 4,  /* pixels of y that a tile makes, each way */
    ECH__INT8_WINO_KINDS = 6, /* of points, each way */
    ECH__INT8_WINO_ROWS = 6,  /* tiles of a product, in registers */
    ECH__INT8_WINO_WIDE = 16, /* outputs of a product */
};

/* A tile of x; pixels outside the image are zero. */
typedef struct ech__int8_wino_input {
    const char *x;                /* the first pixel that is inside */
    int top, bottom, left, right; /* lines [top, bottom) and columns [left, right) are inside */
    int64_t line;                 /* bytes from a line of pixels to the next */
    int64_t block;                /* channels that are contiguous: 8 or 16 */
    int64_t plane;                /* bytes from a block of channels to the next */
    int64_t channels;
    bool is_signed;
    int16_t *v;
    int64_t v_point; /* numbers from one point to the next */
} ech__int8_wino_input;

/* m[rows][16] = v[rows][C] u[C/2][16][2] */
typedef struct ech__int8_wino_product {
    const int16_t *v, *u;
    int64_t v_row; /* numbers from one row to the next */
    int64_t rows, channels;
    int32_t *m;
} ech__int8_wino_product;

/* Eight outputs of a tile of y. */
typedef struct ech__int8_wino_output {
    const int32_t *m;
    int64_t m_point;  /* numbers from one point to the next */
    int32_t *sums;    /* [16 pixels][8] that parts leave to those after them */
    bool first, last; /* part: all but the first add what is there, all but the last leave it */
    const float *bias, *scale;
    ech_dtype type;
    bool relu;
    int rows, cols; /* of the tile that are in the image */
    char *y;
    int64_t y_row, y_pixel; /* bytes */
} ech__int8_wino_output;

typedef struct ech__int8_winograd_loops {
    int side;      /* pixels of x that a tile reads, each way, and points that it has */
    int64_t bound; /* true sums are below it */
    /* w[3][3 * C/2][8][2] of 8 outputs -> their half of u[36][C/2][16][2] */
    void (*weight)(const int8_t *w, int64_t channels, int16_t *u);
    void (*input)(const ech__int8_wino_input *t);
    void (*product)(const ech__int8_wino_product *t);
    void (*output)(const ech__int8_wino_output *t);
} ech__int8_winograd_loops;

extern const ech__int8_winograd_loops ech__int8_winograd_stride1_avx2,
    ech__int8_winograd_stride2_avx2;
