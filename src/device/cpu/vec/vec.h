/* Loops over arrays of f32, and between these and 16 bits, compiled once for each vector width and
 * chosen when a device opens.
 *
 * The arithmetic is the same in every width, down to the order of the sums, so the bits are too.
 * Ranges may be split anywhere between threads, but for the sums, which are taken over whole blocks
 * of ECH__SUM_BLOCK.
 */
#pragma once

#include "tensor/half.h"

#include <stdbool.h>
#include <stdint.h>

enum { ECH__SUM_BLOCK = 4096 };

/* factor: on the gradient, before anything else; 1 leaves its bits. */
typedef struct ech__sgd_rule {
    float factor, lr, momentum, weight_decay;
    bool nesterov;
} ech__sgd_rule;

typedef struct ech__adam_rule {
    float factor;
    float step_size;                  /* lr / (1 - beta1^t) */
    float root_correction;            /* sqrt(1 - beta2^t) */
    float shrink;                     /* 1 - lr * weight_decay, or 1 */
    float beta1, beta2, rest1, rest2; /* rest = 1 - beta */
    float epsilon, weight_decay;
} ech__adam_rule;

typedef struct ech__vec {
    void (*relu)(int64_t n, const float *x, float *y);
    void (*relu_bwd)(int64_t n, const float *dy, const float *y, float *dx);
    void (*add)(int64_t n, const float *a, const float *b, float *y);
    /* y = max(y + b, 0), or y + b; b may be NULL */
    void (*bias_act)(int64_t n, const float *b, bool relu, float *y);
    /* sum of (a - b)^2 over at most ECH__SUM_BLOCK elements */
    double (*square_error)(int64_t n, const float *a, const float *b);
    /* d = scale * (a - b) */
    void (*scaled_difference)(int64_t n, float scale, const float *a, const float *b, float *d);
    void (*sgd)(int64_t n, const ech__sgd_rule *rule, const float *g, float *p);
    void (*sgd_momentum)(int64_t n, const ech__sgd_rule *rule, const float *g, float *p,
                         float *buf);
    void (*adam)(int64_t n, const ech__adam_rule *rule, const float *g, float *p, float *m,
                 float *v);
    /* Over at most ECH__SUM_BLOCK elements: the sum of squares, the largest magnitude, and how
     * many are not finite. */
    void (*grad_stats)(int64_t n, const float *g, double out[3]);
    /* Numbers of 16 bits (bf16, f16) to f32, and back to the nearest, ties to even; a NaN stays
     * one. */
    void (*widen)(ech_dtype dtype, int64_t n, const void *src, float *dst);
    void (*narrow)(ech_dtype dtype, int64_t n, const float *src, void *dst);
} ech__vec;

extern const ech__vec ech__vec_generic, ech__vec_avx2, ech__vec_avx512;
