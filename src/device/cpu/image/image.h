/* Loops over f32 images with blocked channels, compiled once for each vector width: the
 * inner loops of image.c.
 *
 * An image is stored as [N][C/B][H][W][B]. A plane is the [H][W][B] of one sample and one block of
 * channels; a pixel is B neighbours, one vector. The channels that fill up the last block hold
 * zeros. Each channel is summed in an order that depends on no vector width.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    ECH__IMAGE_BLOCK = 16, /* most channels of a block */
    ECH__IMAGE_UNIT = 512, /* most pixels that are summed in float: what the nearest caches hold */
};

/* Pixels of one block of channels: count runs of neighbours, step numbers from one run to the
 * next. */
typedef struct ech__runs {
    int64_t count, pixels, step;
} ech__runs;

/* Windows over an H x W plane, in P x Q places. */
typedef struct ech__windows {
    int64_t kernel, stride, pad;
    int64_t H, W, P, Q;
} ech__windows;

typedef struct ech__image_loops {
    int channels; /* B */

    /* ---- sums over at most ECH__IMAGE_UNIT pixels, as out[2][B] ---- */

    /* Mean of x; sum of squares of what differs from it. */
    void (*moments)(const ech__runs *runs, const float *x, double *out);
    /* Sums of g and of g * (x - mean[B]), where g is dy, but 0 where y <= 0; y may be NULL. */
    void (*products)(const ech__runs *runs, const float *x, const float *dy, const float *y,
                     const float *mean, double *out);
    /* total[B] += factor * part[B] */
    void (*add)(double factor, const double *part, double *total);
    /* total[B] += squares[B] + factor * (part[B] - centre[B])^2 */
    void (*add_squares)(double factor, const double *part, const double *squares,
                        const double *centre, double *total);

    /* ---- pixel by pixel ---- */

    /* y = (x - mean) * scale + shift (+ residual), then max(., 0); vectors are mean scale shift. */
    void (*normalise)(int64_t pixels, const float *vectors, const float *x, const float *residual,
                      bool relu, float *y);
    /* dx = ((g - centre) - (x - mean) * slope) * scale, g as in products; vectors are mean
     * centre slope scale. dx may be dy. */
    void (*normalise_bwd)(int64_t pixels, const float *vectors, const float *x, const float *dy,
                          const float *y, float *dx);

    /* ---- windows over one plane ---- */

    /* place: kernel row * kernel + column of the largest, 0 from channel valid on */
    void (*maxpool)(const ech__windows *windows, int valid, const float *x, float *y,
                    uint8_t *place);
    void (*maxpool_bwd)(const ech__windows *windows, const float *dy, const uint8_t *place,
                        float *dx);
    void (*avgpool)(const ech__windows *windows, const float *x, float *y);
    void (*avgpool_bwd)(const ech__windows *windows, const float *dy, float *dx);

    /* ---- one plane and its valid channels in row-major order ---- */

    void (*flatten)(int64_t pixels, int valid, const float *x, float *rows);
    void (*unflatten)(int64_t pixels, int valid, const float *rows, float *x);
} ech__image_loops;

extern const ech__image_loops ech__image_generic, ech__image_avx2, ech__image_avx512;
