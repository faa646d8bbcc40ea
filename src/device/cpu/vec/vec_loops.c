/* The loops of vec.h. */
#include "device/cpu/vec/vec.h"
#include "device/cpu/vec/width.h"

#include <float.h>
#include <math.h>
#include <stddef.h>

static void relu(int64_t n, const float *x, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] < 0 ? 0 : x[i]; /* a NaN stays one */
}

static void relu_bwd(int64_t n, const float *dy, const float *y, float *dx)
{
    for (int64_t i = 0; i < n; i++)
        dx[i] = y[i] <= 0 ? 0 : dy[i];
}

static void add(int64_t n, const float *a, const float *b, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

static void bias_act(int64_t n, const float *b, bool act, float *y)
{
    if (b)
        add(n, y, b, y);
    if (act)
        relu(n, y, y);
}

/* Sixteen running sums, so that every vector width adds in the same order. */
enum { SUMS = 16 };

static double square_error(int64_t n, const float *a, const float *b)
{
    double lanes[SUMS] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + SUMS <= n; i += SUMS) {
        for (int k = 0; k < SUMS; k++) {
            const double e = (double)a[i + k] - (double)b[i + k];
            lanes[k] += e * e;
        }
    }
    for (int k = 0; i < n; i++, k++) {
        const double e = (double)a[i] - (double)b[i];
        lanes[k] += e * e;
    }
    for (int k = 0; k < SUMS; k++)
        sum += lanes[k];
    return sum;
}

static void scaled_difference(int64_t n, float scale, const float *a, const float *b, float *d)
{
    for (int64_t i = 0; i < n; i++)
        d[i] = scale * (a[i] - b[i]);
}

static void sgd(int64_t n, const ech__sgd_rule *rule, const float *restrict g, float *restrict p)
{
    const float factor = rule->factor, lr = rule->lr, decay = rule->weight_decay;
    if (decay == 0) {
        for (int64_t i = 0; i < n; i++)
            p[i] -= lr * (factor * g[i]);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        p[i] -= lr * (factor * g[i] + decay * p[i]);
}

static void sgd_momentum(int64_t n, const ech__sgd_rule *rule, const float *restrict g,
                         float *restrict p, float *restrict buf)
{
    const float factor = rule->factor, lr = rule->lr, decay = rule->weight_decay;
    const float momentum = rule->momentum;
    if (rule->nesterov) {
        for (int64_t i = 0; i < n; i++) {
            const float d = factor * g[i] + decay * p[i];
            buf[i] = momentum * buf[i] + d;
            p[i] -= lr * (d + momentum * buf[i]);
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        buf[i] = momentum * buf[i] + (factor * g[i] + decay * p[i]);
        p[i] -= lr * buf[i];
    }
}

static void adam(int64_t n, const ech__adam_rule *rule, const float *restrict g, float *restrict p,
                 float *restrict m, float *restrict v)
{
    const ech__adam_rule r = *rule;
    for (int64_t i = 0; i < n; i++) {
        const float start = p[i] * r.shrink;
        const float d = r.factor * g[i] + r.weight_decay * start;
        m[i] = r.beta1 * m[i] + r.rest1 * d;
        v[i] = r.beta2 * v[i] + r.rest2 * (d * d);
        p[i] = start - r.step_size * (m[i] / (sqrtf(v[i]) / r.root_correction + r.epsilon));
    }
}

/* Vectors of the compiler's own: sums in arrays would go through memory at every step. */
typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t four_bits __attribute__((vector_size(16)));
typedef double four_sums __attribute__((vector_size(32)));

enum { FOURS = SUMS / 4 };

typedef struct four_stats {
    four_sums squares;
    four largest;
    four_bits broken; /* minus how many are not finite */
} four_stats;

static inline void add_four(four x, four_stats *s)
{
    const four size = (four)((four_bits)x & 0x7fffffff);
    const four_bits larger = size > s->largest;
    const four_sums wide = __builtin_convertvector(x, four_sums);
    s->squares += wide * wide;
    s->largest = (four)(((four_bits)size & larger) | ((four_bits)s->largest & ~larger));
    s->broken += ~(four_bits)(size <= FLT_MAX);
}

static void grad_stats(int64_t n, const float *g, double out[3])
{
    four_stats all[FOURS] = {{{0}, {0}, {0}}};
    int64_t i = 0;
    for (; i + SUMS <= n; i += SUMS) {
#pragma GCC unroll 4
        for (int k = 0; k < FOURS; k++)
            add_four(*(const four *)(g + i + 4 * k), &all[k]);
    }
    float rest[SUMS] = {0}; /* zeros change nothing */
    for (int k = 0; i < n; i++, k++)
        rest[k] = g[i];
#pragma GCC unroll 4
    for (int k = 0; k < FOURS; k++)
        add_four(*(const four *)(rest + 4 * k), &all[k]);
    out[0] = out[1] = out[2] = 0;
    for (int k = 0; k < FOURS; k++) {
        for (int lane = 0; lane < 4; lane++) {
            const double most = (double)all[k].largest[lane];
            out[0] += all[k].squares[lane];
            out[1] = most > out[1] ? most : out[1];
            out[2] -= (double)all[k].broken[lane];
        }
    }
}

static void widen(ech_dtype dtype, int64_t n, const void *src, float *dst)
{
    ech__widen_here(dtype, n, src, dst);
}

static void narrow(ech_dtype dtype, int64_t n, const float *src, void *dst)
{
    ech__narrow_here(dtype, n, src, dst);
}

const ech__vec TABLE(ech__vec) = {
    .relu = relu,
    .relu_bwd = relu_bwd,
    .add = add,
    .bias_act = bias_act,
    .square_error = square_error,
    .scaled_difference = scaled_difference,
    .sgd = sgd,
    .sgd_momentum = sgd_momentum,
    .adam = adam,
    .grad_stats = grad_stats,
    .widen = widen,
    .narrow = narrow,
};
