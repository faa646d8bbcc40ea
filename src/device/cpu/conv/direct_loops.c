/* The loops of direct.h. */
#include "device/cpu/conv/direct.h"
#include "device/cpu/vec/width.h"

#include <stddef.h>

/* What the compiler knows to be the same again it keeps in a register, and here none is free. */
#define HIDE_POINTER(p) __asm__("" : "+r"(p))

enum {
    B = LANES, /* channels in a vector */
    /* Accumulators of a tile with one block of channels and with two. AVX2 has 16 registers for
     * them, a vector of each block and a splat number; AVX-512 has 32, and splats a number as it
     * multiplies. */
    ONE_BLOCK = PER_WIDTH(6, 14, 28),
    TWO_BLOCKS = PER_WIDTH(6, 12, 28),
    MOST = ECH__DIRECT_WIDTH,
    WIDTH_1 = ONE_BLOCK < MOST ? ONE_BLOCK : MOST,
    WIDTH_2 = TWO_BLOCKS / 2 < MOST ? TWO_BLOCKS / 2 : MOST
};

/* All loops over the places of a tile unroll, as their ends are constants. */
#define EACH_ROW _Pragma("GCC unroll 2") for (int r = 0; r < rows; r++)
#define EACH_PLACE _Pragma("GCC unroll 14") for (int p = 0; p < places; p++)
#define EACH_BLOCK _Pragma("GCC unroll 2") for (int b = 0; b < blocks; b++)

/* One body for each size, so that the accumulators stay in registers. */
#define SIZE(body, given, rows, places, blocks, ...)                                               \
    case (rows)*MOST + (places):                                                                   \
        if ((rows) * (places) * (blocks) <= ((blocks) == 1 ? ONE_BLOCK : TWO_BLOCKS))              \
            body(given, rows, places, blocks, ##__VA_ARGS__);                                      \
        break;
#define SIZES(body, given, rows, blocks, ...)                                                      \
    SIZE(body, given, rows, 1, blocks, ##__VA_ARGS__)                                              \
    SIZE(body, given, rows, 2, blocks, ##__VA_ARGS__)                                              \
    SIZE(body, given, rows, 3, blocks, ##__VA_ARGS__)                                              \
    SIZE(body, given, rows, 4, blocks, ##__VA_ARGS__)                                              \
    SIZE(body, given, rows, 5, blocks, ##__VA_ARGS__)                                              \
    SIZE(body, given, rows, 6, blocks, ##__VA_ARGS__)                                              \
    SIZE(body, given, rows, 7, blocks, ##__VA_ARGS__)                                              \
    SIZE(body, given, rows, 8, blocks, ##__VA_ARGS__)                                              \
    SIZE(body, given, rows, 9, blocks, ##__VA_ARGS__)                                              \
    SIZE(body, given, rows, 10, blocks, ##__VA_ARGS__)                                             \
    SIZE(body, given, rows, 11, blocks, ##__VA_ARGS__)                                             \
    SIZE(body, given, rows, 12, blocks, ##__VA_ARGS__)                                             \
    SIZE(body, given, rows, 13, blocks, ##__VA_ARGS__)                                             \
    SIZE(body, given, rows, 14, blocks, ##__VA_ARGS__)

/* ---- forward and backward data ---- */

static const float no_bias[2 * B];

INLINE void tile_of(const ech__direct_tile *given, const int rows, const int places,
                    const int blocks, const int64_t x_pixel)
{
    const ech__direct_tile t = *given; /* a copy: stores to y cannot change it */
    const float *x_first = t.x, *bias = t.bias ? t.bias : no_bias;
    float *y = t.y;
    for (int64_t n = 0; n < t.count; n++, x_first += places * x_pixel, y += places * t.y_pixel) {
        vec acc[2][MOST][2];
        EACH_BLOCK
        {
            const vec start = LOAD(bias + b * B);
            EACH_ROW
            {
                EACH_PLACE acc[r][p][b] = start;
            }
        }
        for (int64_t k = 0; k < t.nterms; k++) {
            const float *one = x_first + t.terms[k].x, *w = t.w + t.terms[k].w;
            const float *x[2] = {one, one + (rows - 1) * t.x_row};
            vec wv[2];
            EACH_BLOCK wv[b] = LOAD(w + b * t.w_block);
            EACH_ROW
            {
                HIDE_POINTER(x[r]);
                EACH_PLACE
                {
                    const vec xv = SPLAT(x[r] + p * x_pixel);
                    EACH_BLOCK acc[r][p][b] = FMA(xv, wv[b], acc[r][p][b]);
                }
            }
        }
        if (t.relu) {
            vec zero = ZERO;
            HIDE(zero);
            EACH_ROW
            {
                EACH_PLACE
                {
                    EACH_BLOCK acc[r][p][b] = MAX(zero, acc[r][p][b]);
                }
            }
        }
        EACH_ROW
        {
            EACH_PLACE
            {
                EACH_BLOCK
                {
                    float *to = y + b * t.y_block + r * t.y_row + p * t.y_pixel;
                    STORE(to, t.add ? LOAD(to) + acc[r][p][b] : acc[r][p][b]);
                }
            }
        }
    }
}

/* The pixels' distance is a constant where it can be, and part of the addresses then. */
#define TILE(name, x_pixel)                                                                        \
    static void name(const ech__direct_tile *t)                                                    \
    {                                                                                              \
        if (t->blocks == 1) {                                                                      \
            switch (t->rows * MOST + t->pixels) {                                                  \
                SIZES(tile_of, t, 1, 1, x_pixel)                                                   \
                SIZES(tile_of, t, 2, 1, x_pixel)                                                   \
            }                                                                                      \
        } else {                                                                                   \
            switch (t->rows * MOST + t->pixels) {                                                  \
                SIZES(tile_of, t, 1, 2, x_pixel)                                                   \
                SIZES(tile_of, t, 2, 2, x_pixel)                                                   \
            }                                                                                      \
        }                                                                                          \
    }

TILE(tile_plain, 1)
TILE(tile_blocked, B)
TILE(tile_any, t->x_pixel)

static void tile(const ech__direct_tile *t)
{
    if (t->x_pixel == 1)
        tile_plain(t);
    else if (t->x_pixel == B)
        tile_blocked(t);
    else
        tile_any(t);
}

/* ---- backward weights ---- */

INLINE void sum_of(const ech__direct_sum *given, const int rows, const int places, const int blocks)
{
    const ech__direct_sum s = *given;
    vec acc[2][MOST][2];
    EACH_ROW
    {
        EACH_PLACE
        {
            EACH_BLOCK acc[r][p][b] = ZERO;
        }
    }
    for (int64_t row = 0; row < s.rows; row++) {
        const float *one = s.x + row * s.x_row, *dy = s.dy + row * s.dy_row;
        const float *x[2] = {one, one + (rows - 1) * s.x_line};
        for (int64_t pixel = 0; pixel < s.pixels; pixel++, dy += B) {
            vec dv[2];
            EACH_BLOCK dv[b] = LOAD(dy + b * s.dy_block);
            EACH_ROW
            {
                EACH_PLACE
                {
                    const vec xv = SPLAT(x[r] + p);
                    EACH_BLOCK acc[r][p][b] = FMA(xv, dv[b], acc[r][p][b]);
                }
                x[r] += s.x_pixel;
            }
        }
    }
    EACH_ROW
    {
        EACH_PLACE
        {
            EACH_BLOCK
            {
                float *dw = s.dw + b * s.dw_block + r * s.dw_line + p * s.dw_tap;
                STORE(dw, LOAD(dw) + acc[r][p][b]);
            }
        }
    }
}

static void sum(const ech__direct_sum *s)
{
    if (s->blocks == 1) {
        switch (s->lines * MOST + s->taps) {
            SIZES(sum_of, s, 1, 1)
            SIZES(sum_of, s, 2, 1)
        }
    } else {
        switch (s->lines * MOST + s->taps) {
            SIZES(sum_of, s, 1, 2)
            SIZES(sum_of, s, 2, 2)
        }
    }
}

static void add_pixels(const float *dy, int64_t count, float *out)
{
    vec acc[4] = {LOAD(out), ZERO, ZERO, ZERO};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
            acc[k] += LOAD(dy + (i + k) * B);
    }
    for (; i < count; i++)
        acc[0] += LOAD(dy + i * B);
    STORE(out, (acc[0] + acc[1]) + (acc[2] + acc[3]));
}

static void transpose(const float *from, float *to)
{
    for (int i = 0; i < B; i++) {
        for (int j = 0; j < B; j++)
            to[i * B + j] = from[j * B + i];
    }
}

const ech__direct_loops TABLE(ech__direct) = {.channels = B,
                                              .accumulators = {ONE_BLOCK, TWO_BLOCKS},
                                              .width = {WIDTH_1, WIDTH_2},
                                              .tile = tile,
                                              .sum = sum,
                                              .add_pixels = add_pixels,
                                              .transpose = transpose};
