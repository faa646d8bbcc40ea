/* The loops of image.h. Each image_*.c defines IMAGE_TABLE and B, the channels of a block, and includes this
 * file once. Vectors are the compiler's own, so that every width is the same text. */
#include "device/cpu/image.h"

#include <stddef.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* A pixel. Planes start at multiples of its size. */
typedef float vf __attribute__((vector_size(4 * B), may_alias));
typedef int32_t vi __attribute__((vector_size(4 * B), may_alias));
typedef uint8_t vb __attribute__((vector_size(B), may_alias));

#define AT(p) (*(vf *)(p))
#define FROM(p) (*(const vf *)(p))
/* a where the mask is set, else b */
#define SELECT(mask, a, b) ((vf)(((vi)(a) & (mask)) | ((vi)(b) & ~(mask))))
/* a, but 0 where the mask is set */
#define UNLESS(mask, a) ((vf)((vi)(a) & ~(mask)))

/* ---- sums ---- */

/* Independent sums, so that additions need not wait for each other. */
enum { SUMS = 4 };

INLINE void to_double(const vf *sums, double *out)
{
    const vf sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (int c = 0; c < B; c++)
        out[c] = (double)sum[c];
}

/* sums[k] += x of every SUMS-th pixel */
INLINE void sum_run(int64_t pixels, const float *x, vf *sums)
{
    int64_t i = 0;
    for (; i + SUMS <= pixels; i += SUMS) {
        for (int k = 0; k < SUMS; k++)
            sums[k] += FROM(x + (i + k) * B);
    }
    for (; i < pixels; i++)
        sums[0] += FROM(x + i * B);
}

INLINE void square_run(int64_t pixels, const float *x, const vf *pivot, vf *sums, vf *squares)
{
    int64_t i = 0;
    for (; i + SUMS <= pixels; i += SUMS) {
        for (int k = 0; k < SUMS; k++) {
            const vf d = FROM(x + (i + k) * B) - *pivot;
            sums[k] += d;
            squares[k] += d * d;
        }
    }
    for (; i < pixels; i++) {
        const vf d = FROM(x + i * B) - *pivot;
        sums[0] += d;
        squares[0] += d * d;
    }
}

/* The first sum only finds a number near the mean. The second, of what differs from it, is exact enough, and
 * comes from a near cache. */
static void moments(const ech__runs *runs, const float *x, double *out)
{
    vf sums[SUMS] = {{0}}, differences[SUMS] = {{0}}, squares[SUMS] = {{0}};
    const double count = (double)(runs->count * runs->pixels);
    for (int64_t r = 0; r < runs->count; r++)
        sum_run(runs->pixels, x + r * runs->step, sums);
    const vf pivot = ((sums[0] + sums[1]) + (sums[2] + sums[3])) * (float)(1 / count);
    for (int64_t r = 0; r < runs->count; r++)
        square_run(runs->pixels, x + r * runs->step, &pivot, differences, squares);
    double difference[B], square[B];
    to_double(differences, difference);
    to_double(squares, square);
    for (int c = 0; c < B; c++) {
        const double shift = difference[c] / count, rest = square[c] - difference[c] * shift;
        out[c] = (double)pivot[c] + shift;
        out[B + c] = rest < 0 ? 0 : rest; /* by rounding only; NaN stays */
    }
}

/* dy, but 0 where y <= 0; y may be NULL. */
#define MASKED(dy, y, at)                                                                          \
    ((y) ? UNLESS(FROM((y) + (at)) <= 0, FROM((dy) + (at))) : FROM((dy) + (at)))

INLINE void product_run(int64_t pixels, const float *x, const float *dy, const float *y,
                        const vf *mean, vf *sums, vf *products)
{
    int64_t i = 0;
    for (; i + SUMS <= pixels; i += SUMS) {
        for (int k = 0; k < SUMS; k++) {
            const int64_t at = (i + k) * B;
            const vf g = MASKED(dy, y, at);
            sums[k] += g;
            products[k] += g * (FROM(x + at) - *mean);
        }
    }
    for (; i < pixels; i++) {
        const vf g = MASKED(dy, y, i * B);
        sums[0] += g;
        products[0] += g * (FROM(x + i * B) - *mean);
    }
}

static void products(const ech__runs *runs, const float *x, const float *dy, const float *y,
                     const float *mean, double *out)
{
    vf sums[SUMS] = {{0}}, products_[SUMS] = {{0}};
    const vf centre = FROM(mean);
    for (int64_t r = 0; r < runs->count; r++) {
        const int64_t at = r * runs->step;
        if (y)
            product_run(runs->pixels, x + at, dy + at, y + at, &centre, sums, products_);
        else
            product_run(runs->pixels, x + at, dy + at, NULL, &centre, sums, products_);
    }
    to_double(sums, out);
    to_double(products_, out + B);
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
    const vf mean = FROM(vectors), scale = FROM(vectors + B), shift = FROM(vectors + 2 * B);
    for (int64_t i = 0; i < pixels * B; i += B) {
        vf value = (FROM(x + i) - mean) * scale + shift;
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
    const vf mean = FROM(vectors), centre = FROM(vectors + B);
    const vf slope = FROM(vectors + 2 * B), scale = FROM(vectors + 3 * B);
    for (int64_t i = 0; i < pixels * B; i += B) {
        const vf g = MASKED(dy, y, i);
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

/* The part of a window's rows (or columns) that lies over the image: first to end, the first over start. */
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

/* Both parts of the window in one place, and where its first pixel lies in the plane. */
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
INLINE void largest(const ech__windows *w, const spot *s, const float *x, vf *max, vi *place)
{
    const float *row = x + s->pixel * B;
    *max = FROM(row);
    *place = (vi){0} + (int32_t)(s->rows.first * w->kernel + s->cols.first);
    for (int64_t r = s->rows.first; r < s->rows.end; r++, row += w->W * B) {
        for (int64_t c = s->cols.first; c < s->cols.end; c++) {
            const vf value = FROM(row + (c - s->cols.first) * B);
            const vi better = (value > *max) | (value != value);
            *max = SELECT(better, value, *max);
            *place = (better & (int32_t)(r * w->kernel + c)) | (~better & *place);
        }
    }
}

INLINE void maxpool_plane(const ech__windows *w, int valid, const float *x, float *y,
                          uint8_t *place)
{
    vi keep;
    for (int c = 0; c < B; c++)
        keep[c] = c < valid ? -1 : 0;
    for (int64_t p = 0, at = 0; p < w->P; p++) {
        for (int64_t q = 0; q < w->Q; q++, at += B) {
            const spot s = spot_of(w, p, q);
            vi found;
            vf max;
            largest(w, &s, x, &max, &found);
            AT(y + at) = max;
            *(vb *)(place + at) = __builtin_convertvector(found & keep, vb);
        }
    }
}

/* Whether windows lie side by side over all of the plane; the compiler then knows their size, too. */
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
            const vf g = FROM(dy + at);
            const vi found = __builtin_convertvector(*(const vb *)(place + at), vi);
            float *row = dx + s.pixel * B;
            for (int64_t r = s.rows.first; r < s.rows.end; r++, row += w->W * B) {
                for (int64_t c = s.cols.first; c < s.cols.end; c++) {
                    const vf share = UNLESS(found != (int32_t)(r * w->kernel + c), g);
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
            vf sum = {0};
            for (int64_t r = s.rows.first; r < s.rows.end; r++, row += w->W * B) {
                for (int64_t c = 0; c < s.cols.end - s.cols.first; c++)
                    sum += FROM(row + c * B);
            }
            AT(y + at) = sum / area;
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
            const vf share = FROM(dy + at) / area;
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

const ech__image_isa IMAGE_TABLE = {
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
