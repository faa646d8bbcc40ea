/* The loops of reduce.h.
 *
 * An array is processed in blocks that stay in the first-level cache. A block is reduced in the
 * order of the tree: leaves are widened to the type in which they are added (16-bit types to
 * f32), halves are joined, and the result is divided, narrowed and written to every destination.
 * Everything is element by element, so a destination may be one of the sources. */
#define GENERIC_LANES 4
#include "comm/collective/reduce.h"
#include "price/tree.h"
#include "device/cpu/vec/width.h"
#include "tensor/half.h"

#include <string.h>

enum {
    BLOCK = 512, /* elements */
    DEPTH = 16   /* of a tree over ECH__MAX_TERMS */
};

/* ---- loops over a block, for one type of sums ---- */

static inline float larger_f32(float a, float b)
{
    return (a > b) | (a != a) ? a : b;
}

static inline double larger_f64(double a, double b)
{
    return (a > b) | (a != a) ? a : b;
}

static inline int32_t larger_s32(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static inline float plus_f32(float a, float b)
{
    return a + b;
}

static inline double plus_f64(double a, double b)
{
    return a + b;
}

/* Wraps around. */
static inline int32_t plus_s32(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}

/* z may be x or y. */
#define JOIN(type, name)                                                                           \
    static void sum_##name(int64_t n, const type *x, const type *y, type *z)                       \
    {                                                                                              \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) z[i] = plus_##name(x[i], y[i]);       \
    }                                                                                              \
    static void max_##name(int64_t n, const type *x, const type *y, type *z)                       \
    {                                                                                              \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) z[i] = larger_##name(x[i], y[i]);     \
    }                                                                                              \
    static void join_##name(ech__reduction op, int64_t n, const void *x, const void *y, void *z)   \
    {                                                                                              \
        if (op == ECH__REDUCTION_MAX)                                                              \
            max_##name(n, x, y, z);                                                                \
        else                                                                                       \
            sum_##name(n, x, y, z);                                                                \
    }
JOIN(float, f32)
JOIN(double, f64)
JOIN(int32_t, s32)
#undef JOIN

static bool power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

/* Dividing by a power of two is multiplying by its inverse, to the bit. */
static void divide_f32(int64_t n, int divisor, float *x)
{
    const float d = (float)divisor, inverse = 1 / d;
    if (power_of_two(divisor))
        for (int64_t i = 0; i < n; i++)
            x[i] *= inverse;
    else
        for (int64_t i = 0; i < n; i++)
            x[i] /= d;
}

static void divide_f64(int64_t n, int divisor, double *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] /= divisor;
}

/* ---- the tree over one block ---- */

typedef union block {
    _Alignas(64) float f32[BLOCK];
    double f64[BLOCK];
    int32_t s32[BLOCK];
} block;

typedef struct walk {
    const ech__reduce_task *task;
    int64_t first, n;    /* the block's elements */
    bool narrow;         /* 16-bit */
    block levels[DEPTH]; /* right halves, until they are joined */
} walk;

static void join(const walk *w, const void *x, const void *y, void *z)
{
    const ech__reduction op = w->task->reduction;
    if (w->task->dtype == ECH_F64)
        join_f64(op, w->n, x, y, z);
    else if (w->task->dtype == ECH_S32)
        join_s32(op, w->n, x, y, z);
    else
        join_f32(op, w->n, x, y, z);
}

/* A source as it is added up: in its own memory, or widened into `scratch`. */
static const void *leaf(walk *w, int index, block *scratch)
{
    const char *src = w->task->src[index];
    const ech_dtype dtype = w->task->dtype;
    const int64_t bytes = w->narrow ? 2 : dtype == ECH_F64 ? 8 : 4;
    if (!w->narrow)
        return src + w->first * bytes;
    ech__widen_here(dtype, w->n, (const uint16_t *)(const void *)src + w->first, scratch->f32);
    return scratch->f32;
}

/* Reduces sources [from, from + n) and gives where the result is: in `out`, or the only source
 * itself. */
static const void *descend(walk *w, int from, int n, int depth, block *out)
{
    if (n == 1)
        return leaf(w, from, out);
    const int half = ech__tree_split(n);
    const void *left = descend(w, from, half, depth + 1, out);
    const void *right = descend(w, from + half, n - half, depth + 1, &w->levels[depth]);
    join(w, left, right, out);
    return out;
}

static void write_out(const walk *w, const void *result)
{
    const ech__reduce_task *t = w->task;
    const int64_t bytes = w->narrow ? 2 : t->dtype == ECH_F64 ? 8 : 4;
    uint16_t narrowed[BLOCK];
    if (w->narrow) {
        ech__narrow_here(t->dtype, w->n, result, narrowed);
        result = narrowed;
    }
    for (int k = 0; k < t->ndst; k++) {
        char *dst = (char *)t->dst[k] + w->first * bytes;
        if (dst != result)
            memcpy(dst, result, (size_t)(w->n * bytes));
    }
}

static void run_block(walk *w, block *out)
{
    const ech__reduce_task *t = w->task;
    const void *result = descend(w, 0, t->nsrc, 0, out);
    if (t->divisor > 1) {
        if (result != (const void *)out) /* a single source is not changed before the end */
            memcpy(out, result, (size_t)w->n * (t->dtype == ECH_F64 ? 8 : 4));
        if (t->dtype == ECH_F64)
            divide_f64(w->n, t->divisor, out->f64);
        else
            divide_f32(w->n, t->divisor, out->f32);
        result = out;
    }
    write_out(w, result);
}

static void run_tree(const ech__reduce_task *task)
{
    walk w; /* most of it is scratch, which needs no initial value */
    block out;
    w.task = task;
    w.narrow = task->dtype == ECH_BF16 || task->dtype == ECH_F16;
    for (w.first = 0; w.first < task->count; w.first += BLOCK) {
        w.n = task->count - w.first < BLOCK ? task->count - w.first : BLOCK;
        run_block(&w, &out);
    }
}

/* ---- two ranks, f32: the most common exchange of gradients ---- */

/* Sums of four vectors stay in registers until all of them are loaded: a store whose address has
 * the same low 12 bits as a later load would delay that load. b may be NULL. */
INLINE void sum_run(float scale, const float *x, const float *y, float *a, float *b)
{
    const vec_unaligned *p = (const vec_unaligned *)x, *q = (const vec_unaligned *)y;
    const vec s0 = (p[0] + q[0]) * scale, s1 = (p[1] + q[1]) * scale;
    const vec s2 = (p[2] + q[2]) * scale, s3 = (p[3] + q[3]) * scale;
    vec_unaligned *to = (vec_unaligned *)a;
    to[0] = s0, to[1] = s1, to[2] = s2, to[3] = s3;
    if (b) {
        to = (vec_unaligned *)b;
        to[0] = s0, to[1] = s1, to[2] = s2, to[3] = s3;
    }
}

static void sum_two(int64_t n, float scale, const float *x, const float *y, float *a, float *b)
{
    int64_t i = 0;
    if (b)
        for (; i + 4 * LANES <= n; i += 4 * LANES)
            sum_run(scale, x + i, y + i, a + i, b + i);
    else
        for (; i + 4 * LANES <= n; i += 4 * LANES)
            sum_run(scale, x + i, y + i, a + i, NULL);
    for (; i < n; i++) {
        const float sum = (x[i] + y[i]) * scale;
        a[i] = sum;
        if (b)
            b[i] = sum;
    }
}

/* The C library copies by string instructions at these sizes, which are several times slower
 * where the two addresses are close to each other modulo a page. */
static void copy(void *dst, const void *src, int64_t bytes)
{
    typedef float vec_bytes __attribute__((vector_size(4 * LANES), aligned(1), may_alias));
    enum { STEP = 4 * sizeof(vec_bytes) };
    const char *from = src;
    char *to = dst;
    for (; bytes >= STEP; bytes -= STEP, from += STEP, to += STEP) {
        const vec_bytes *p = (const vec_bytes *)(const void *)from;
        const vec v0 = p[0], v1 = p[1], v2 = p[2], v3 = p[3];
        vec_bytes *q = (vec_bytes *)(void *)to;
        q[0] = v0, q[1] = v1, q[2] = v2, q[3] = v3;
    }
    if (bytes > 0)
        memcpy(to, from, (size_t)bytes);
}

static void run(const ech__reduce_task *t)
{
    if (t->dtype != ECH_F32 || t->reduction == ECH__REDUCTION_MAX || t->nsrc != 2 || t->ndst > 2 ||
        !power_of_two(t->divisor)) {
        run_tree(t);
        return;
    }
    const float scale = 1 / (float)t->divisor;
    if (t->ndst > 0)
        sum_two(t->count, scale, t->src[0], t->src[1], t->dst[0], t->ndst == 2 ? t->dst[1] : NULL);
}

const ech__reduce_loops TABLE(ech__reduce) = {.run = run, .copy = copy};
