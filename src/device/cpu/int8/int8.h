/* Products of integers, exact: the inner loops of int8.c, compiled once for each instruction set.
 *
 * Numbers of x are widened to s16 before, and those of the weight on their way into a register;
 * then a multiplication of pairs (x0 * w0 + x1 * w1) in s32 cannot overflow, where the one that
 * takes bytes would saturate. So every instruction set gives the bits of the reference.
 *
 * A tile is rows x panels * 8 results: a row is a pixel or a sample, a panel is 8 outputs. What a
 * row reads is a few runs of neighbours: the rows of a kernel, with channels innermost.
 */
#pragma once

#include "echelon/echelon.h"

enum {
    ECH__INT8_OUTPUTS = 8, /* of a panel */
    ECH__INT8_PAIR = 2,    /* inputs that are multiplied at a time */
    ECH__INT8_ROWS = 8,    /* most of a tile */
    ECH__INT8_PANELS = 2,  /* most of a tile */
};

typedef struct ech__int8_tile {
    int rows, panels;
    const int16_t *x[ECH__INT8_ROWS];
    const int8_t *w; /* [runs][length][8][2], the next panel at w_panel */
    int64_t w_panel;
    int64_t runs, length;      /* length: pairs of a run */
    int64_t x_run;             /* numbers from one run of x to the next */
    const float *bias, *scale; /* [panels * 8] */
    ech_dtype type;            /* of the results: s8, u8 or f32 */
    bool relu;
    void *y[ECH__INT8_ROWS];     /* the first result of each row */
    int64_t y_panel;             /* results from one panel to the next */
    int valid[ECH__INT8_PANELS]; /* results of a panel that are stored */
} ech__int8_tile;

/* Sums that a library made, of eight neighbouring outputs: rows of pixels or samples. */
typedef struct ech__int8_sums {
    const int32_t *acc;
    int64_t acc_step;          /* numbers from one row to the next */
    const int32_t *shift;      /* [8] is added to them */
    const float *bias, *scale; /* [8] */
    ech_dtype type;
    bool relu;
    int valid;  /* outputs that there are; the factors of others are zero */
    bool fills; /* the others are written too: zeros */
    int64_t rows;
    void *y;
    int64_t y_step; /* bytes from one row to the next */
} ech__int8_sums;

typedef struct ech__int8_products {
    int rows[ECH__INT8_PANELS]; /* most, with one panel and with two */
    void (*tile)(const ech__int8_tile *t);
    /* Eight bytes of each of `count` places to s16, 8 written at each place of dst, one place
     * after the other. */
    void (*widen)(const void *src, bool is_signed, int64_t count, int64_t src_step,
                  int64_t dst_step, int16_t *dst);
    void (*finish)(const ech__int8_sums *t);
} ech__int8_products;

/* y[P][Q] = the largest of x[H][W] under a window, for `block` contiguous channels, a multiple
 * of 8. */
typedef struct ech__int8_pool {
    const uint8_t *x;
    uint8_t *y;
    uint8_t *lines; /* [(W + Q) * block] of scratch */
    int64_t H, W, P, Q;
    int64_t kernel, stride, pad, block;
    bool is_signed;
} ech__int8_pool;

/* a * scale + b * scale2, rounded: n numbers of s8 or u8. */
typedef struct ech__int8_sum {
    int64_t n;
    const void *a, *b;
    void *y;
    ech_dtype a_type, b_type, y_type;
    float scale, scale2;
    bool relu;
} ech__int8_sum;

/* Loops that memory bounds, on arrays: whole numbers of an integer type, or in f32. */
typedef struct ech__int8_loops {
    void (*to_f32)(int64_t n, const void *src, ech_dtype type, float *dst);
    /* Rounds half to even and saturates; f32 is copied. */
    void (*from_f32)(int64_t n, const float *src, ech_dtype type, void *dst);
    void (*divide)(int64_t n, const float *src, float by, float *dst);
    void (*multiply)(int64_t n, const float *src, float by, float *dst);
    /* a * scale + b * scale2, or 0 where that is less */
    void (*add)(int64_t n, const float *a, float scale, const float *b, float scale2, bool relu,
                float *dst);
    void (*add_bytes)(const ech__int8_sum *s);
    /* x[n] * scale[n] as a whole number within the limits; scale is as long as a period, which
     * divides n. */
    void (*round)(int64_t n, const float *x, const float *scale, int64_t period, float low,
                  float high, float *dst);
    /* y[i * step + c] = x[c][i] for eight channels; those that are NULL are zero */
    void (*join)(int64_t n, const uint8_t *const x[8], uint8_t *y, int64_t step);
    /* y[c * row + i] = x[i * step + c] for up to eight channels */
    void (*split)(int64_t n, const uint8_t *x, int64_t step, int64_t channels, uint8_t *y,
                  int64_t row);
    void (*maxpool)(const ech__int8_pool *p);
    /* sums[8] += count times 8 numbers */
    void (*sums)(const void *src, ech_dtype type, int64_t count, int64_t step, int32_t *sums);
} ech__int8_loops;

extern const ech__int8_products ech__int8_products_generic, ech__int8_products_avx2;
extern const ech__int8_loops ech__int8_loops_generic, ech__int8_loops_avx2, ech__int8_loops_avx512;
