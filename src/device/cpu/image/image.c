/* Batch norm, pools and flattening of images, over the loops of image.h. All are bound by
 * memory: each operand is read or written once. Images may be of 16 bits: they are computed in
 * f32, a piece at a time that the nearest caches hold. Sums are taken over units of a fixed
 * number of pixels and then over the units in their order, so the bits do not depend on the
 * number of threads. */
#include "device/cpu/image/image.h"
#include "base/size.h"
#include "device/cpu/cpu.h"
#include "device/cpu/port.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { BLOCK = ECH__IMAGE_BLOCK, UNIT = ECH__IMAGE_UNIT, PIECE = 128 };

typedef struct image_kernel image_kernel;

struct image_kernel {
    ech__kernel base;
    const ech__image_loops *loops;
    void (*fn)(const image_kernel *k);
    ech__attrs attrs;
    int nin;
    int64_t N, C, blocks; /* blocks of B channels */
    ech__windows windows; /* H, W: of the image; the rest: of a pool */
    int64_t groups;       /* units of each block */
    void *at[ECH__MAX_OPERANDS];
    ech__ports ports;
    void *scratch;
};

/* count numbers of an operand from number `at` on, as f32. */
#define IN(i, at, count) ech__port_in(&k->ports, i, at, count)
#define OUT(i, at) ech__port_out(&k->ports, i, at)
#define DONE(i, at, count) ech__port_done(&k->ports, i, at, count)

/* Channels of a block that are not padding. */
static int valid_of(const image_kernel *k, int64_t block)
{
    const int64_t left = k->C - block * k->loops->channels;
    return (int)(left < k->loops->channels ? left : k->loops->channels);
}

static int64_t pixels_of(const image_kernel *k)
{
    return k->windows.H * k->windows.W;
}

/* ---- units: a part of one plane where planes are large, else several planes of one block ---- */

static int64_t samples_of_unit(int64_t pixels)
{
    return pixels < UNIT ? UNIT / pixels : 1;
}

static int64_t parts_of_plane(int64_t pixels)
{
    return (pixels + UNIT - 1) / UNIT;
}

static int64_t groups_of(int64_t N, int64_t pixels)
{
    const int64_t samples = samples_of_unit(pixels);
    return (N + samples - 1) / samples * parts_of_plane(pixels);
}

/* Where a unit starts in the image, and the pixels it has. */
static int64_t unit_of(const image_kernel *k, int64_t group, int64_t block, ech__runs *runs)
{
    const int64_t pixels = pixels_of(k), plane = pixels * k->loops->channels;
    const int64_t samples = samples_of_unit(pixels), parts = parts_of_plane(pixels);
    const int64_t sample = group / parts * samples, first = group % parts * UNIT;
    const int64_t samples_left = k->N - sample, pixels_left = pixels - first;
    *runs = (ech__runs){.count = samples_left < samples ? samples_left : samples,
                        .pixels = pixels_left < UNIT ? pixels_left : UNIT,
                        .step = k->blocks * plane};
    return (sample * k->blocks + block) * plane + first * k->loops->channels;
}

/* The pixels of a unit, as f32. */
static const float *take_runs(const image_kernel *k, int operand, int64_t start,
                              const ech__runs *runs)
{
    const ech__ports *p = &k->ports;
    if (p->slot[operand] < 0)
        return (const float *)p->at[operand] + start;
    const int64_t count = runs->pixels * k->loops->channels;
    float *slot = ech__port_slot(p, operand);
    for (int64_t run = 0; run < runs->count; run++)
        p->vec->widen(p->dtype[operand], count,
                      (const uint16_t *)p->at[operand] + start + run * runs->step,
                      slot + run * count);
    return slot;
}

/* Their strides there. */
static ech__runs taken_runs(const image_kernel *k, int operand, const ech__runs *runs)
{
    ech__runs taken = *runs;
    if (k->ports.slot[operand] >= 0)
        taken.step = runs->pixels * k->loops->channels;
    return taken;
}

static int64_t unit_pixels(const image_kernel *k, int64_t group)
{
    ech__runs runs;
    unit_of(k, group, 0, &runs);
    return runs.count * runs.pixels;
}

/* The sums of one unit in scratch, [2][B]; units of one group are contiguous. */
static double *unit_sums(const image_kernel *k, int64_t group, int64_t block)
{
    return (double *)k->scratch + (group * k->blocks + block) * 2 * k->loops->channels;
}

/* Behind the sums: vectors of each block, [blocks][count][B]. */
static float *vectors_of(const image_kernel *k, int64_t block, int count)
{
    void *first = unit_sums(k, k->groups, 0);
    return (float *)first + block * count * k->loops->channels;
}

/* Runs body for each unit; threads take neighbours. */
#define FOR_UNITS(k, body)                                                                         \
    do {                                                                                           \
        const int64_t total_ = (k)->groups * (k)->blocks;                                          \
        _Pragma("omp parallel for schedule(static) num_threads((k)->base.device->threads)") for (  \
            int64_t unit_ = 0; unit_ < total_; unit_++)                                            \
        {                                                                                          \
            const int64_t group = unit_ / (k)->blocks, block = unit_ % (k)->blocks;                \
            ech__runs runs;                                                                        \
            const int64_t start = unit_of(k, group, block, &runs);                                 \
            body;                                                                                  \
        }                                                                                          \
    } while (0)

/* Runs body for each plane, in their order in memory. */
#define FOR_PLANES(k, body)                                                                        \
    do {                                                                                           \
        const int64_t total_ = (k)->N * (k)->blocks;                                               \
        _Pragma("omp parallel for schedule(static) num_threads((k)->base.device->threads)") for (  \
            int64_t plane = 0; plane < total_; plane++)                                            \
        {                                                                                          \
            const int64_t block = plane % (k)->blocks;                                             \
            body;                                                                                  \
        }                                                                                          \
    } while (0)

/* The same in pieces of at most PIECE pixels, so that all operands of one are in the nearest
 * cache at a time: count of them from number `at` on. */
#define FOR_PIECES(k, pixels_, body)                                                               \
    FOR_PLANES(k, {                                                                                \
        for (int64_t first_ = 0; first_ < (pixels_); first_ += PIECE) {                            \
            const int64_t left_ = (pixels_)-first_;                                                \
            const int64_t count = left_ < PIECE ? left_ : PIECE;                                   \
            const int64_t at = (plane * (pixels_) + first_) * (k)->loops->channels;                \
            body;                                                                                  \
        }                                                                                          \
    })

/* ---- batch norm, over the M = N * H * W pixels of a channel ---- */

static double count_of(const image_kernel *k)
{
    return (double)(k->N * pixels_of(k));
}

/* x -> mean[C] variance[C] */
static void bn_stats(const image_kernel *k)
{
    float *mean = k->at[1], *variance = k->at[2];
    const int B = k->loops->channels;
    FOR_UNITS(k, {
        const ech__runs taken = taken_runs(k, 0, &runs);
        k->loops->moments(&taken, take_runs(k, 0, start, &runs), unit_sums(k, group, block));
    });
    const double M = count_of(k);
#pragma omp parallel for schedule(static) num_threads(k->base.device->threads)
    for (int64_t block = 0; block < k->blocks; block++) {
        double means[BLOCK] = {0}, squares[BLOCK] = {0};
        for (int64_t group = 0; group < k->groups; group++)
            k->loops->add((double)unit_pixels(k, group) / M, unit_sums(k, group, block), means);
        for (int64_t group = 0; group < k->groups; group++) {
            const double *sums = unit_sums(k, group, block);
            k->loops->add_squares((double)unit_pixels(k, group), sums, sums + B, means, squares);
        }
        for (int c = 0; c < valid_of(k, block); c++) {
            mean[block * B + c] = (float)means[c];
            variance[block * B + c] = (float)(squares[c] / M);
        }
    }
}

/* *running_mean[C] *running_var[C] mean[C] variance[C] x */
static void bn_running(const image_kernel *k)
{
    float *running_mean = k->at[0], *running_var = k->at[1];
    const float *mean = k->at[2], *variance = k->at[3];
    const double M = count_of(k), m = k->attrs.momentum, unbiased = M > 1 ? M / (M - 1) : 1;
    for (int64_t c = 0; c < k->C; c++) {
        running_mean[c] = (float)((1 - m) * (double)running_mean[c] + m * (double)mean[c]);
        running_var[c] =
            (float)((1 - m) * (double)running_var[c] + m * (double)variance[c] * unbiased);
    }
}

static double inverse_deviation(const image_kernel *k, const float *variance, int64_t c)
{
    return 1 / sqrt((double)variance[c] + k->attrs.epsilon);
}

/* The place of channel c in the first of count vectors; the others are B further each. Padding
 * is cleared. */
static float *channel_of(const image_kernel *k, int64_t c, int count)
{
    const int64_t B = k->loops->channels;
    float *vectors = vectors_of(k, c / B, count);
    if (c % B == 0)
        memset(vectors, 0, (size_t)(count * B) * sizeof *vectors);
    return vectors + c % B;
}

/* x mean variance gamma beta (residual) -> y */
static void bn_apply(const image_kernel *k)
{
    const float *mean = k->at[1], *variance = k->at[2], *gamma = k->at[3], *beta = k->at[4];
    const bool residual = k->nin == 6;
    const int64_t B = k->loops->channels, pixels = pixels_of(k);
    for (int64_t c = 0; c < k->C; c++) {
        float *v = channel_of(k, c, 3);
        v[0] = mean[c];
        v[B] = (float)((double)gamma[c] * inverse_deviation(k, variance, c));
        v[2 * B] = beta[c];
    }
    FOR_PIECES(k, pixels, {
        const float *other = residual ? IN(5, at, count * B) : NULL;
        k->loops->normalise(count, vectors_of(k, block, 3), IN(0, at, count * B), other,
                            k->attrs.relu, OUT(k->nin, at));
        DONE(k->nin, at, count * B);
    });
}

/* x dy mean variance (y) -> dgamma[C] dbeta[C] */
static void bn_reduce(const image_kernel *k)
{
    const float *mean = k->at[2], *variance = k->at[3];
    const bool mask = k->attrs.relu;
    float *dgamma = k->at[k->nin], *dbeta = k->at[k->nin + 1];
    const int64_t B = k->loops->channels;
    for (int64_t c = 0; c < k->C; c++)
        *channel_of(k, c, 1) = mean[c];
    FOR_UNITS(k, {
        const ech__runs taken = taken_runs(k, 0, &runs);
        const float *y = mask ? take_runs(k, 4, start, &runs) : NULL;
        k->loops->products(&taken, take_runs(k, 0, start, &runs), take_runs(k, 1, start, &runs), y,
                           vectors_of(k, block, 1), unit_sums(k, group, block));
    });
#pragma omp parallel for schedule(static) num_threads(k->base.device->threads)
    for (int64_t block = 0; block < k->blocks; block++) {
        double sums[BLOCK] = {0}, products[BLOCK] = {0};
        for (int64_t group = 0; group < k->groups; group++) {
            k->loops->add(1, unit_sums(k, group, block), sums);
            k->loops->add(1, unit_sums(k, group, block) + B, products);
        }
        for (int i = 0; i < valid_of(k, block); i++) {
            const int64_t c = block * B + i;
            dgamma[c] = (float)(products[i] * inverse_deviation(k, variance, c));
            dbeta[c] = (float)sums[i];
        }
    }
}

/* x dy mean variance gamma dgamma dbeta (y) -> dx, which may be dy */
static void bn_bwd_data(const image_kernel *k)
{
    const float *mean = k->at[2], *variance = k->at[3];
    const float *gamma = k->at[4], *dgamma = k->at[5], *dbeta = k->at[6];
    const bool mask = k->attrs.relu;
    const int64_t B = k->loops->channels, pixels = pixels_of(k);
    const double M = count_of(k);
    for (int64_t c = 0; c < k->C; c++) {
        float *v = channel_of(k, c, 4);
        const double inverse = inverse_deviation(k, variance, c);
        v[0] = mean[c];
        v[B] = (float)((double)dbeta[c] / M);
        v[2 * B] = (float)((double)dgamma[c] * inverse / M);
        v[3 * B] = (float)((double)gamma[c] * inverse);
    }
    FOR_PIECES(k, pixels, {
        const float *y = mask ? IN(7, at, count * B) : NULL;
        k->loops->normalise_bwd(count, vectors_of(k, block, 4), IN(0, at, count * B),
                                IN(1, at, count * B), y, OUT(k->nin, at));
        DONE(k->nin, at, count * B);
    });
}

/* ---- pools: planes of x have H x W pixels, those of y P x Q ---- */

static int64_t x_plane(const image_kernel *k)
{
    return pixels_of(k) * k->loops->channels;
}

static int64_t y_plane(const image_kernel *k)
{
    return k->windows.P * k->windows.Q * k->loops->channels;
}

static void maxpool2d(const image_kernel *k)
{
    uint8_t *place = k->at[2];
    const int64_t xs = x_plane(k), ys = y_plane(k);
    FOR_PLANES(k, {
        k->loops->maxpool(&k->windows, valid_of(k, block), IN(0, plane * xs, xs),
                          OUT(1, plane * ys), place + plane * ys);
        DONE(1, plane * ys, ys);
    });
}

static void maxpool2d_bwd(const image_kernel *k)
{
    const uint8_t *place = k->at[1];
    const int64_t xs = x_plane(k), ys = y_plane(k);
    FOR_PLANES(k, {
        (void)block;
        k->loops->maxpool_bwd(&k->windows, IN(0, plane * ys, ys), place + plane * ys,
                              OUT(2, plane * xs));
        DONE(2, plane * xs, xs);
    });
}

static void avgpool2d(const image_kernel *k)
{
    const int64_t xs = x_plane(k), ys = y_plane(k);
    FOR_PLANES(k, {
        (void)block;
        k->loops->avgpool(&k->windows, IN(0, plane * xs, xs), OUT(1, plane * ys));
        DONE(1, plane * ys, ys);
    });
}

static void avgpool2d_bwd(const image_kernel *k)
{
    const int64_t xs = x_plane(k), ys = y_plane(k);
    FOR_PLANES(k, {
        (void)block;
        k->loops->avgpool_bwd(&k->windows, IN(0, plane * ys, ys), OUT(1, plane * xs));
        DONE(1, plane * xs, xs);
    });
}

/* ---- flatten: x[N][C/B][H*W][B] and rows[N][C][H*W] ---- */

static int64_t row_offset(const image_kernel *k, int64_t plane, int64_t block)
{
    return (plane / k->blocks * k->C + block * k->loops->channels) * pixels_of(k);
}

/* Flattening where both sides lie alike. */
static void copy_all(const image_kernel *k)
{
    const int64_t bytes = ech__dtype_bytes(k->ports.dtype[0]);
    memcpy(k->at[1], k->at[0], (size_t)(k->N * k->C * pixels_of(k) * bytes));
}

static void flatten(const image_kernel *k)
{
    const int64_t xs = x_plane(k), pixels = pixels_of(k);
    FOR_PLANES(k, {
        const int64_t to = row_offset(k, plane, block);
        k->loops->flatten(pixels, valid_of(k, block), IN(0, plane * xs, xs), OUT(1, to));
        DONE(1, to, valid_of(k, block) * pixels);
    });
}

static void unflatten(const image_kernel *k)
{
    const int64_t xs = x_plane(k), pixels = pixels_of(k);
    FOR_PLANES(k, {
        const int64_t from = row_offset(k, plane, block);
        k->loops->unflatten(pixels, valid_of(k, block), IN(0, from, valid_of(k, block) * pixels),
                            OUT(1, plane * xs));
        DONE(1, plane * xs, xs);
    });
}

/* ---- offering and creating ---- */

/* One row for each operator: what it does, and what of scratch it needs. */
typedef struct image_row {
    void (*fn)(const image_kernel *k);
    int image;   /* the operand with the H x W image; -1: the first output */
    bool sums;   /* of each unit */
    int vectors; /* of each block */
} image_row;

static const image_row table[ECH__OP_COUNT] = {
    [ECH__OP_BN_STATS] = {bn_stats, .sums = true},
    [ECH__OP_BN_RUNNING] = {bn_running, .image = 4},
    [ECH__OP_BN_APPLY] = {bn_apply, .vectors = 3},
    [ECH__OP_BN_REDUCE] = {bn_reduce, .sums = true, .vectors = 1},
    [ECH__OP_BN_BWD_DATA] = {bn_bwd_data, .vectors = 4},
    [ECH__OP_MAXPOOL2D] = {maxpool2d},
    [ECH__OP_MAXPOOL2D_BWD] = {maxpool2d_bwd, .image = -1},
    [ECH__OP_AVGPOOL2D] = {avgpool2d},
    [ECH__OP_AVGPOOL2D_BWD] = {avgpool2d_bwd, .image = -1},
    [ECH__OP_FLATTEN] = {flatten},
    [ECH__OP_UNFLATTEN] = {unflatten, .image = -1},
};

static const ech__operand *image_operand(const ech__kernel_desc *desc)
{
    const int at = table[desc->op].image;
    return &desc->operands[at < 0 ? desc->nin : at];
}

static bool is_flattening(ech__op op)
{
    return op == ECH__OP_FLATTEN || op == ECH__OP_UNFLATTEN;
}

/* Images in blocks of B channels, all else row-major; a row-major image can be flattened too. */
static bool layouts_fit(const ech__kernel_desc *desc, int64_t B)
{
    for (int i = 0; i < desc->nin + desc->nout; i++) {
        const ech__layout *layout = &desc->operands[i].layout;
        if (desc->operands[i].free || (desc->op == ECH__OP_BN_RUNNING && i == 4))
            continue;
        if (layout->shape.ndims != 4 || is_flattening(desc->op)) {
            if (ech__layout_is_plain(layout))
                continue;
            if (layout->shape.ndims != 4)
                return false;
        }
        if (!ech__is_blocked(layout, B))
            return false;
    }
    return true;
}

/* What is summed or goes pixel by pixel; else a plane, of the image or of what a pool makes of
 * it. */
static int64_t largest_piece(const image_kernel *k, ech__op op)
{
    if (op == ECH__OP_BN_RUNNING) /* it only asks how many pixels there are */
        return 0;
    if (op == ECH__OP_BN_APPLY || op == ECH__OP_BN_BWD_DATA)
        return (int64_t)PIECE * k->loops->channels;
    if (op == ECH__OP_BN_STATS || op == ECH__OP_BN_REDUCE)
        return (int64_t)UNIT * k->loops->channels;
    return x_plane(k) > y_plane(k) ? x_plane(k) : y_plane(k);
}

static void measure(image_kernel *k, const ech__vec *vec, const ech__kernel_desc *desc)
{
    const ech__operand *image = image_operand(desc);
    const int64_t *x = image->layout.shape.dims;
    k->attrs = desc->attrs;
    k->nin = desc->nin;
    k->N = x[0];
    k->C = x[1];
    k->blocks = (k->C + k->loops->channels - 1) / k->loops->channels;
    k->windows = (ech__windows){.kernel = desc->attrs.kernel,
                                .stride = desc->attrs.stride,
                                .pad = desc->attrs.pad,
                                .H = x[2],
                                .W = x[3]};
    const ech__shape *y = &desc->operands[image == desc->operands ? desc->nin : 0].layout.shape;
    if (y->ndims == 4) {
        k->windows.P = y->dims[2];
        k->windows.Q = y->dims[3];
    }
    const bool alike = ech__layout_is_plain(&image->layout) ||
                       (x[2] * x[3] == 1 && k->C % k->loops->channels == 0);
    k->fn = alike && is_flattening(desc->op) ? copy_all : table[desc->op].fn;
    k->groups = table[desc->op].sums ? groups_of(k->N, pixels_of(k)) : 0;
    k->ports = ech__ports_of(vec, desc, largest_piece(k, desc->op));
}

/* Sums of the units, vectors of the blocks, then slots. */
static int64_t sums_bytes(const image_kernel *k, ech__op op)
{
    const int64_t B = k->loops->channels;
    return ech__round_up(k->groups * k->blocks * 2 * B * (int64_t)sizeof(double) +
                             k->blocks * table[op].vectors * B * (int64_t)sizeof(float),
                         64);
}

/* The image, and all that has its type: f32, or 16 bits. */
static bool types_fit(const ech__kernel_desc *desc)
{
    const ech_dtype dtype = image_operand(desc)->dtype;
    return dtype == ECH_F32 || ech__dtype_is_low(dtype);
}

static ech_status run(ech__kernel *base, const ech__scalars *scalars)
{
    (void)scalars;
    const image_kernel *k = (const image_kernel *)base;
    k->fn(k);
    return ECH_OK;
}

static ech_status create_kernel(const ech__kernel_args *args, ech__kernel **out)
{
    const ech__loops *loops = ech__cpu_of(args->device)->loops;
    image_kernel k = {
        .base = {.run = run}, .loops = loops->image, .scratch = args->binding->scratch};
    measure(&k, loops->vec, args->desc);
    ech__ports_bind(&k.ports, args->desc, args->binding,
                    (char *)args->binding->scratch + sums_bytes(&k, args->desc->op));
    memcpy(k.at, args->binding->operands, sizeof k.at);
    return ech__kernel_make(args->device, &k, sizeof k, out);
}

void ech__image_offer(const ech__kernel_desc *desc, ech__offer *offer)
{
    if (!table[desc->op].fn || !types_fit(desc) || !layouts_fit(desc, offer->cpu->loops->channels))
        return;
    ech__candidate *candidate = ech__offer_add(offer, desc, "image", create_kernel);
    if (!candidate)
        return;
    image_kernel k = {.loops = offer->cpu->loops->image};
    measure(&k, offer->cpu->loops->vec, desc);
    candidate->scratch_bytes =
        sums_bytes(&k, desc->op) + ech__ports_bytes(&k.ports, offer->device->threads);
}
