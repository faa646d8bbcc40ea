/* The loops of image.h. */
#include "device/cpu/image/image.h"
#include "device/cpu/vec/width.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { B = LANES /* channels of a pixel, which is one vector */ };

typedef double vec_f64 __attribute__((vector_size(8 * B), may_alias, aligned(64)));
typedef uint8_t vec_u8 __attribute__((vector_size(B), may_alias));

/* Planes start at multiples of a pixel's size. */
#define AT(p) (*(vec_aligned *)(p))
#define FROM(p) ((vec) * (const vec_aligned *)(p))
/* a where the mask is set, else b */
#define SELECT(mask, a, b) ((vec)(((vec_s32)(a) & (mask)) | ((vec_s32)(b) & ~(mask))))
/* a, but 0 where the mask is set */
#define UNLESS(mask, a) ((vec)((vec_s32)(a) & ~(mask)))

/* ---- sums ---- */

/* SUMS independent sums in float, so that additions need not wait for each other, and none gets
 * long: after SHORT pixels they go into a sum in double. */
enum { SUMS = 4, SHORT = 64 };

typedef struct sum {
    vec parts[SUMS];
    vec_f64 total;
} sum;

INLINE void gather(sum *s)
{
    const vec all = (s->parts[0] + s->parts[1]) + (s->parts[2] + s->parts[3]);
    s->total += __builtin_convertvector(all, vec_f64);
    for (int k = 0; k < SUMS; k++)
        s->parts[k] = (vec){0};
}

/* Goes over runs in pieces of at most SHORT pixels. */
typedef struct walk {
    int64_t run, first; /* of the next piece */
    int64_t taken;      /* pixels since sums were gathered */
    int64_t at, pixels; /* of this piece */
    bool gather;        /* the sums before this piece */
} walk;

INLINE bool next_piece(const ech__runs *runs, walk *w)
{
    if (w->run == runs->count)
        return false;
    const int64_t left = runs->pixels - w->first;
    w->pixels = left < SHORT ? left : SHORT;
    w->at = w->run * runs->step + w->first * B;
    w->gather = w->taken + w->pixels > SHORT;
    w->taken = w->pixels + (w->gather ? 0 : w->taken);
    w->first += w->pixels;
    if (w->first == runs->pixels) {
        w->first = 0;
        w->run++;
    }
    return true;
}

INLINE void sum_piece(int64_t pixels, const float *x, sum *s)
{
    int64_t i = 0;
    for (; i + SUMS <= pixels; i += SUMS) {
        for (int k = 0; k < SUMS; k++)
            s->parts[k] += FROM(x + (i + k) * B);
    }
    for (; i < pixels; i++)
        s->parts[0] += FROM(x + i * B);
}

INLINE void square_piece(int64_t pixels, const float *x, const vec *pivot, sum *s, sum *squares)
{
    int64_t i = 0;
    for (; i + SUMS <= pixels; i += SUMS) {
        for (int k = 0; k < SUMS; k++) {
            const vec d = FROM(x + (i + k) * B) - *pivot;
            s->parts[k] += d;
            squares->parts[k] += d * d;
        }
    }
    for (; i < pixels; i++) {
        const vec d = FROM(x + i * B) - *pivot;
        s->parts[0] += d;
        squares->parts[0] += d * d;
    }
}

/* The mean of the first few pixels is near that of all: by no more than their share of the
 * variance allows. Sums of what differs from it lose no digits. */
static void moments(const ech__runs *runs, const float *x, double *out)
{
    const double count = (double)(runs->count * runs->pixels);
    sum near = {0}, differences = {0}, squares = {0};
    int64_t few = 0;
    for (walk w = {0}; next_piece(runs, &w) && !w.gather; few = w.taken)
        sum_piece(w.pixels, x + w.at, &near);
    gather(&near);
    const vec pivot = __builtin_convertvector(near.total / (double)few, vec);
    for (walk w = {0}; next_piece(runs, &w);) {
        if (w.gather) {
            gather(&differences);
            gather(&squares);
        }
        square_piece(w.pixels, x + w.at, &pivot, &differences, &squares);
    }
    gather(&differences);
    gather(&squares);
    const vec_f64 shift = differences.total / count;
    const vec_f64 rest = squares.total - differences.total * shift;
    *(vec_f64 *)out = __builtin_convertvector(pivot, vec_f64) + shift;
    for (int c = 0; c < B; c++)
        out[B + c] = rest[c] < 0 ? 0 : rest[c]; /* by rounding only; NaN stays */
}

/* dy, but 0 where y <= 0; y may be NULL. */
#define MASKED(dy, y, at)                                                                          \
    ((y) ? UNLESS(FROM((y) + (at)) <= 0, FROM((dy) + (at))) : FROM((dy) + (at)))

INLINE void product_piece(int64_t pixels, const float *x, const float *dy, const float *y,
                          const vec *mean, sum *s, sum *products)
{
    int64_t i = 0;
    for (; i + SUMS <= pixels; i += SUMS) {
        for (int k = 0; k < SUMS; k++) {
            const vec g = MASKED(dy, y, (i + k) * B);
            s->parts[k] += g;
            products->parts[k] += g * (FROM(x + (i + k) * B) - *mean);
        }
    }
    for (; i < pixels; i++) {
        const vec g = MASKED(dy, y, i * B);
        s->parts[0] += g;
        products->parts[0] += g * (FROM(x + i * B) - *mean);
    }
}

INLINE void sum_products(const ech__runs *runs, const float *x, const float *dy, const float *y,
                         const float *mean, double *out)
{
    const vec centre = FROM(mean);
    sum s = {0}, products = {0};
    for (walk w = {0}; next_piece(runs, &w);) {
        if (w.gather) {
            gather(&s);
            gather(&products);
        }
        product_piece(w.pixels, x + w.at, dy + w.at, y ? y + w.at : NULL, &centre, &s, &products);
    }
    gather(&s);
    gather(&products);
    *(vec_f64 *)out = s.total;
    *(vec_f64 *)(out + B) = products.total;
}

static void products(const ech__runs *runs, const float *x, const float *dy, const float *y,
                     const float *mean, double *out)
{
    if (y)
        sum_products(runs, x, dy, y, mean, out);
    else
        sum_products(runs, x, dy, NULL, mean, out);
}

static void add(double factor, const double *restrict part, double *restrict total)
{
    for (int c = 0; c < B; c++)
        total[c] += factor * part[c];
}

static void add_squares(double factor, const double *part, const double *squares,
                        const double *centre, double *restrict total)
{
    for (int c = 0; c < B; c++) {
        const double d = part[c] - centre[c];
        total[c] += squares[c] + factor * (d * d);
    }
}

/* ---- pixel by pixel ---- */

INLINE void normalise_plane(int64_t pixels, const float *vectors, const float *x,
                            const float *residual, bool relu, float *y)
{
    const vec mean = FROM(vectors), scale = FROM(vectors + B), shift = FROM(vectors + 2 * B);
    for (int64_t i = 0; i < pixels * B; i += B) {
        vec value = (FROM(x + i) - mean) * scale + shift;
        if (residual)
            value += FROM(residual + i);
        AT(y + i) = relu ? UNLESS(value < 0, value) : value;
    }
}

static void normalise(int64_t pixels, const float *vectors, const float *x, const float *residual,
                      bool relu, float *y)
{
    if (residual && relu)
        normalise_plane(pixels, vectors, x, residual, true, y);
    else if (residual)
        normalise_plane(pixels, vectors, x, residual, false, y);
    else if (relu)
        normalise_plane(pixels, vectors, x, NULL, true, y);
    else
        normalise_plane(pixels, vectors, x, NULL, false, y);
}

INLINE void normalise_bwd_plane(int64_t pixels, const float *vectors, const float *x,
                                const float *dy, const float *y, float *dx)
{
    const vec mean = FROM(vectors), centre = FROM(vectors + B);
    const vec slope = FROM(vectors + 2 * B), scale = FROM(vectors + 3 * B);
    for (int64_t i = 0; i < pixels * B; i += B) {
        const vec g = MASKED(dy, y, i);
        AT(dx + i) = ((g - centre) - (FROM(x + i) - mean) * slope) * scale;
    }
}

static void normalise_bwd(int64_t pixels, const float *vectors, const float *x, const float *dy,
                          const float *y, float *dx)
{
    if (y)
        normalise_bwd_plane(pixels, vectors, x, dy, y, dx);
    else
        normalise_bwd_plane(pixels, vectors, x, dy, NULL, dx);
}

/* ---- windows ---- */

/* The part of a window's rows (or columns) that is inside the image: first to end, the first
 * over start. */
typedef struct part {
    int64_t first, end, start;
} part;

INLINE part part_over(int64_t place, int64_t kernel, int64_t stride, int64_t pad, int64_t length)
{
    const int64_t start = place * stride - pad;
    if (pad == 0) /* then all of it does */
        return (part){0, kernel, start};
    const int64_t first = start < 0 ? -start : 0;
    const int64_t end = start + kernel > length ? length - start : kernel;
    return (part){first, end, start + first};
}

/* Both parts of the window in one place, and the index of its first pixel in the plane. */
typedef struct spot {
    part rows, cols;
    int64_t pixel;
} spot;

INLINE spot spot_of(const ech__windows *w, int64_t p, int64_t q)
{
    const part rows = part_over(p, w->kernel, w->stride, w->pad, w->H);
    const part cols = part_over(q, w->kernel, w->stride, w->pad, w->W);
    return (spot){rows, cols, rows.start * w->W + cols.start};
}

/* The first of equals wins, but a NaN before all. */
INLINE void largest(const ech__windows *w, const spot *s, const float *x, vec *max, vec_s32 *place)
{
    const float *row = x + s->pixel * B;
    *max = FROM(row);
    *place = (vec_s32){0} + (int32_t)(s->rows.first * w->kernel + s->cols.first);
    for (int64_t r = s->rows.first; r < s->rows.end; r++, row += w->W * B) {
        for (int64_t c = s->cols.first; c < s->cols.end; c++) {
            const vec value = FROM(row + (c - s->cols.first) * B);
            const vec_s32 number = value <= INFINITY, better = (value > *max) | ~number;
            *max = SELECT(better, value, *max);
            *place = (better & (int32_t)(r * w->kernel + c)) | (~better & *place);
        }
    }
}

INLINE void maxpool_plane(const ech__windows *w, int valid, const float *x, float *y,
                          uint8_t *place)
{
    vec_s32 keep = {0};
    for (int c = 0; c < B; c++)
        keep[c] = -(c < valid);
    for (int64_t p = 0, at = 0; p < w->P; p++) {
        for (int64_t q = 0; q < w->Q; q++, at += B) {
            const spot s = spot_of(w, p, q);
            vec_s32 found;
            vec max;
            largest(w, &s, x, &max, &found);
            AT(y + at) = max;
            *(vec_u8 *)(place + at) = __builtin_convertvector(found & keep, vec_u8);
        }
    }
}

/* Whether windows cover the plane without overlap; the compiler then knows their size, too. */
static bool halves(const ech__windows *w)
{
    return w->kernel == 2 && w->stride == 2 && w->pad == 0 && w->H == 2 * w->P && w->W == 2 * w->Q;
}

INLINE ech__windows halving(const ech__windows *w)
{
    return (ech__windows){2, 2, 0, 2 * w->P, 2 * w->Q, w->P, w->Q};
}

static void maxpool(const ech__windows *w, int valid, const float *x, float *y, uint8_t *place)
{
    const ech__windows half = halving(w);
    if (halves(w))
        maxpool_plane(&half, valid, x, y, place);
    else
        maxpool_plane(w, valid, x, y, place);
}

/* Every pixel of dx belongs to one window, or else dx holds zeros and windows add to it. */
INLINE void maxpool_bwd_plane(const ech__windows *w, bool alone, const float *dy,
                              const uint8_t *place, float *dx)
{
    for (int64_t p = 0, at = 0; p < w->P; p++) {
        for (int64_t q = 0; q < w->Q; q++, at += B) {
            const spot s = spot_of(w, p, q);
            const vec g = FROM(dy + at);
            const vec_s32 found = __builtin_convertvector(*(const vec_u8 *)(place + at), vec_s32);
            float *row = dx + s.pixel * B;
            for (int64_t r = s.rows.first; r < s.rows.end; r++, row += w->W * B) {
                for (int64_t c = s.cols.first; c < s.cols.end; c++) {
                    const vec share = UNLESS(found != (int32_t)(r * w->kernel + c), g);
                    float *to = row + (c - s.cols.first) * B;
                    if (alone)
                        AT(to) = share;
                    else
                        AT(to) += share;
                }
            }
        }
    }
}

static void clear(const ech__windows *w, float *dx)
{
    memset(dx, 0, (size_t)(w->H * w->W * B) * sizeof *dx);
}

static void maxpool_bwd(const ech__windows *w, const float *dy, const uint8_t *place, float *dx)
{
    const ech__windows half = halving(w);
    if (halves(w)) {
        maxpool_bwd_plane(&half, true, dy, place, dx);
        return;
    }
    clear(w, dx);
    maxpool_bwd_plane(w, false, dy, place, dx);
}

static void avgpool(const ech__windows *w, const float *x, float *y)
{
    const float area = (float)(w->kernel * w->kernel);
    for (int64_t p = 0, at = 0; p < w->P; p++) {
        for (int64_t q = 0; q < w->Q; q++, at += B) {
            const spot s = spot_of(w, p, q);
            const float *row = x + s.pixel * B;
            vec acc = {0};
            for (int64_t r = s.rows.first; r < s.rows.end; r++, row += w->W * B) {
                for (int64_t c = 0; c < s.cols.end - s.cols.first; c++)
                    acc += FROM(row + c * B);
            }
            AT(y + at) = acc / area;
        }
    }
}

static void avgpool_bwd(const ech__windows *w, const float *dy, float *dx)
{
    const float area = (float)(w->kernel * w->kernel);
    clear(w, dx);
    for (int64_t p = 0, at = 0; p < w->P; p++) {
        for (int64_t q = 0; q < w->Q; q++, at += B) {
            const spot s = spot_of(w, p, q);
            const vec share = FROM(dy + at) / area;
            float *row = dx + s.pixel * B;
            for (int64_t r = s.rows.first; r < s.rows.end; r++, row += w->W * B) {
                for (int64_t c = 0; c < s.cols.end - s.cols.first; c++)
                    AT(row + c * B) += share;
            }
        }
    }
}

/* ---- row-major planes ---- */

static void flatten(int64_t pixels, int valid, const float *restrict x, float *restrict rows)
{
    for (int c = 0; c < valid; c++) {
        for (int64_t i = 0; i < pixels; i++)
            rows[c * pixels + i] = x[i * B + c];
    }
}

static void unflatten(int64_t pixels, int valid, const float *restrict rows, float *restrict x)
{
    if (valid < B)
        memset(x, 0, (size_t)(pixels * B) * sizeof *x);
    for (int c = 0; c < valid; c++) {
        for (int64_t i = 0; i < pixels; i++)
            x[i * B + c] = rows[c * pixels + i];
    }
}

const ech__image_loops TABLE(ech__image) = {
    .channels = B,
    .moments = moments,
    .products = products,
    .add = add,
    .add_squares = add_squares,
    .normalise = normalise,
    .normalise_bwd = normalise_bwd,
    .maxpool = maxpool,
    .maxpool_bwd = maxpool_bwd,
    .avgpool = avgpool,
    .avgpool_bwd = avgpool_bwd,
    .flatten = flatten,
    .unflatten = unflatten,
};
