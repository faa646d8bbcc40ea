/* Direct convolutions, made for images with few channels, over the loops of direct.h. With more
 * they only stand in where no other kernel is: without oneDNN, or beyond what it can address.
 *
 *   forward            y  = x * w      a vector of outputs of each pixel; x one number at a time
 *   backward data      dx = dy * w     a vector of inputs, column by column of the kernel
 *   backward weights   dw = x * dy     a vector of outputs of each tap
 *
 * An x that needs padding is copied sample by sample into a buffer with zeros around it. Rows of
 * zeros are left out of the sums, so only columns of them cost something. Backward data sums over a
 * column of the kernel in registers and adds that to dx at the column's place: it needs no padding,
 * and no zeros between strides.
 *
 * Threads take rows of all samples. Backward weights sums those of one sample in registers, those
 * of a thread in an array of its own, and adds up the arrays in the order of the threads.
 *
 * N samples   I, O channels of x and y   K kernel   B channels in a vector
 */
#include "base/size.h"
#include "device/cpu/conv/direct.h"
#include "device/cpu/cpu.h"
#include "device/cpu/share.h"

#include <omp.h>
#include <string.h>

enum {
    FEW_CHANNELS = 64,    /* with more, the other kernels have enough to do for every vector */
    MAX_SIDE = 1024,      /* of an image and a kernel */
    MAX_FLOATS = 1 << 30, /* of a sample with padding, or a weight: terms have 32-bit distances */
    LINE = 16,            /* floats in a line of the cache */
};

/* An image, row-major or blocked: a group is one channel or B of them. Strides in floats. */
typedef struct image {
    float *data;
    int64_t channels, height, width;
    int64_t groups, depth; /* of channels, and how many of each are more than padding */
    int64_t sample, group, row, pixel;
} image;

/* The offset of element (o, i, h, w) of a weight: o / B * o_block + o % B * o_lane, and so on. */
typedef struct weight {
    float *data;
    int64_t o_block, o_lane, i_block, i_lane, h, w;
} weight;

typedef struct direct_kernel {
    ech__kernel base;
    const ech__direct_loops *loops;
    ech__op op;
    bool relu, has_bias;
    int64_t n, o, i, kernel;
    image from; /* x; backward data: dy */
    image to;   /* y or dx; backward weights: dy */
    int64_t stride, pad;
    image seen; /* from as the loops see it: a padded copy of one sample, or from itself */
    bool copies;
    ech__layout layout;  /* of the weight or its gradient */
    weight given;        /* that, in its own layout */
    weight used;         /* what the loops read or add to: given, or in scratch */
    bool in_place;       /* used is given */
    int64_t used_floats; /* of it */
    int64_t row_terms;   /* terms of a result in one row of the kernel */
    const float *b;
    float *db;
    ech__direct_term *terms;            /* scratch */
    float *own, *bias, *sums, *buffers; /* scratch */
} direct_kernel;

/* Rows [first, end) of one sample. */
typedef struct band {
    int64_t sample, first, end;
} band;

/* The next piece of some rows of all samples: of one sample. */
static band next_band(range *rows, int64_t height)
{
    const int64_t sample = rows->first / height, first = rows->first % height;
    const int64_t end = least(height, first + rows->end - rows->first);
    rows->first += end - first;
    return (band){sample, first, end};
}

/* ---- weights ---- */

/* The weight that is given; for backward data with its channels exchanged. */
static weight forward_weight(const direct_kernel *k)
{
    weight w = k->given;
    if (k->op == ECH__OP_CONV2D_BWD_DATA) {
        w.o_block = k->given.i_block;
        w.o_lane = k->given.i_lane;
        w.i_block = k->given.o_block;
        w.i_lane = k->given.o_lane;
    }
    return w;
}

/* From one group of the image's channels to the next, where they are evenly spaced. */
static int64_t group_step(const direct_kernel *k, const weight *w)
{
    return k->from.pixel == 1 ? w->i_lane : w->i_block;
}

static float *weight_at(const weight *w, int64_t B, int64_t o, int64_t i, int64_t h, int64_t v)
{
    return w->data + o / B * w->o_block + o % B * w->o_lane + i / B * w->i_block +
           i % B * w->i_lane + h * w->h + v * w->w;
}

/* Copies vectors of outputs of the given weight into the one that is used; both seen as by a
 * forward one. */
static void pack(const direct_kernel *k, const weight *from, const weight *to, range vectors)
{
    const int64_t B = k->loops->channels, K = k->kernel;
    const int64_t outputs = k->to.channels, inputs = k->from.channels;
    const bool whole_blocks =
        from->o_lane == B && from->i_lane == 1 && k->from.pixel == B && k->layout.nblocks == 2;
    for (int64_t q = vectors.first; q < vectors.end; q++) {
        for (int64_t i = 0; i < inputs; i += whole_blocks ? B : 1) {
            for (int64_t tap = 0; tap < K * K; tap++) {
                const float *src = weight_at(from, B, q * B, i, tap / K, tap % K);
                float *dst = weight_at(to, B, q * B, i, tap / K, tap % K);
                if (whole_blocks) {
                    k->loops->transpose(src, dst);
                    continue;
                }
                const int64_t lanes = least(B, outputs - q * B);
                for (int64_t lane = 0; lane < lanes; lane++)
                    dst[lane] = src[lane * from->o_lane];
            }
        }
    }
}

/* The gradient as it was added up, into the layout that is asked for. */
static void store_gradient(const direct_kernel *k, range vectors)
{
    const int64_t B = k->loops->channels, K = k->kernel;
    const int64_t outputs = k->layout.padded[0], inputs = k->layout.padded[1];
    for (int64_t q = vectors.first; q < vectors.end; q++) {
        const int64_t lanes = least(B, outputs - q * B);
        for (int64_t i = 0; i < inputs; i++) {
            for (int64_t tap = 0; tap < K * K; tap++) {
                const float *src =
                    weight_at(&k->used, B, q * B, least(i, k->i - 1), tap / K, tap % K);
                float *dst = weight_at(&k->given, B, q * B, i, tap / K, tap % K);
                for (int64_t lane = 0; lane < lanes; lane++)
                    dst[lane * k->given.o_lane] = i < k->i ? src[lane] : 0;
            }
        }
    }
}

/* ---- images ---- */

/* One sample of the image that is walked over, as k->seen describes it: the buffer holds its
 * zeros already. */
static image sample_of(const direct_kernel *k, int64_t sample, float *buffer)
{
    const image x = k->from;
    image seen = k->seen;
    seen.data = x.data + sample * x.sample;
    if (!k->copies)
        return seen;
    const int64_t rows = least(x.height, seen.height - k->pad);
    const int64_t columns = least(x.width, seen.width - k->pad);
    for (int64_t g = 0; g < x.groups; g++) {
        for (int64_t h = 0; h < rows; h++)
            memcpy(buffer + g * seen.group + (h + k->pad) * seen.row + k->pad * seen.pixel,
                   seen.data + g * x.group + h * x.row,
                   (size_t)(columns * x.pixel) * sizeof *buffer);
    }
    seen.data = buffer;
    return seen;
}

/* The rows of the padded image that hold more than zeros. */
static range real_rows(const direct_kernel *k)
{
    return (range){k->pad, k->pad + k->from.height};
}

/* ---- forward ---- */

/* The terms of one result, row after row of the kernel. */
static void list_terms(const direct_kernel *k)
{
    const int64_t B = k->loops->channels;
    const image *x = &k->seen;
    const weight *w = &k->used;
    const bool data = k->op == ECH__OP_CONV2D_BWD_DATA;
    /* Backward data goes through its rows in steps of the stride, upwards in dy, and has columns
     * of its own. */
    const int64_t rows = data ? ceil_div(k->kernel, k->stride) : k->kernel;
    const int64_t columns = data ? 1 : k->kernel;
    const int64_t x_row = data ? -x->row : x->row, w_row = data ? k->stride * w->h : w->h;
    ech__direct_term *to = k->terms;
    for (int64_t h = 0; h < rows; h++) {
        for (int64_t g = 0; g < x->groups; g++) {
            for (int64_t v = 0; v < columns; v++) {
                for (int64_t c = 0; c < x->depth; c++) {
                    const int64_t channel = g * x->pixel + c;
                    const int64_t x_at = h * x_row + g * x->group + v * x->pixel + c;
                    const int64_t w_at =
                        h * w_row + v * w->w + channel / B * w->i_block + channel % B * w->i_lane;
                    *to++ = (ech__direct_term){(int32_t)x_at, (int32_t)w_at};
                }
            }
        }
    }
}

/* Tiles of some pixels each over a row, and one of what is left. */
static void run_tiles(const direct_kernel *k, ech__direct_tile t, int64_t width, int64_t pixels)
{
    t.pixels = (int)pixels;
    t.count = width / pixels;
    k->loops->tile(&t);
    t.x += t.count * pixels * t.x_pixel;
    t.y += t.count * pixels * t.y_pixel;
    t.pixels = (int)(width % pixels);
    t.count = 1;
    if (t.pixels)
        k->loops->tile(&t);
}

/* Rows of one sample of the result, for one or two blocks of its channels. */
static void convolve(const direct_kernel *k, const image *x, band rows, int64_t block, int blocks)
{
    const int64_t B = k->loops->channels, most_pixels = k->loops->width[blocks - 1];
    const int64_t width = k->to.width;
    const int64_t pixels = ceil_div(width, ceil_div(width, most_pixels));
    const int together = 2 * pixels * blocks <= k->loops->accumulators[blocks - 1] ? 2 : 1;
    const range real = real_rows(k);
    ech__direct_tile t = {.w = k->used.data + block * k->used.o_block,
                          .bias = k->has_bias ? k->bias + block * B : NULL,
                          .blocks = blocks,
                          .x_pixel = k->stride * x->pixel,
                          .x_row = k->stride * x->row,
                          .w_block = k->used.o_block,
                          .y_block = k->to.group,
                          .y_row = k->to.row,
                          .y_pixel = k->to.pixel,
                          .relu = k->relu};
    for (int64_t row = rows.first; row < rows.end; row += t.rows) {
        t.rows = (int)least(together, rows.end - row);
        const int64_t top = row * k->stride, last = (row + t.rows - 1) * k->stride;
        const int64_t end = most(0, least(k->kernel, real.end - top));
        const int64_t first = least(end, most(0, real.first - last));
        t.terms = k->terms + first * k->row_terms;
        t.nterms = (end - first) * k->row_terms;
        t.x = x->data + top * x->row;
        t.y = k->to.data + rows.sample * k->to.sample + block * k->to.group + row * k->to.row;
        run_tiles(k, t, width, pixels);
    }
}

static void convolutions(const direct_kernel *k, float *buffer)
{
    range rows = share_of(k->n * k->to.height);
    while (rows.first < rows.end) {
        const band part = next_band(&rows, k->to.height);
        const image x = sample_of(k, part.sample, buffer);
        for (int64_t block = 0; block < k->to.groups; block += 2)
            convolve(k, &x, part, block, (int)least(2, k->to.groups - block));
    }
}

/* ---- backward data ---- */

/* Places [first, end) of dy that meet a place of a row of dx, of this length, at one tap. */
static range places_of(int64_t tap, int64_t pad, int64_t stride, int64_t length, int64_t places)
{
    const int64_t first = ceil_div(most(0, pad - tap), stride);
    const int64_t end = ceil_div(most(0, length + pad - tap), stride);
    return (range){first, least(places, end)};
}

/* Adds what column w of the kernel gives for a row of dx. */
static void add_column(const direct_kernel *k, const ech__direct_tile *row, int64_t w)
{
    const int64_t s = k->stride;
    const range columns = places_of(w, k->pad, s, k->to.width, k->from.width);
    const int64_t width = columns.end - columns.first;
    if (width <= 0)
        return;
    const int64_t pixels = ceil_div(width, ceil_div(width, k->loops->width[row->blocks - 1]));
    ech__direct_tile t = *row;
    t.w += w * k->used.w;
    t.x += columns.first * t.x_pixel;
    t.y += (columns.first * s + w - k->pad) * k->to.pixel;
    run_tiles(k, t, width, pixels);
}

/* One row of dx, for one or two blocks of its channels. */
static void scatter(const direct_kernel *k, const image *dy, int64_t sample, int64_t row,
                    int64_t block, int blocks)
{
    const image *dx = &k->to;
    const int64_t s = k->stride, K = k->kernel;
    ech__direct_tile t = {.rows = 1,
                          .blocks = blocks,
                          .x_pixel = dy->pixel,
                          .w_block = k->used.o_block,
                          .y_block = dx->group,
                          .y_pixel = s * dx->pixel,
                          .terms = k->terms,
                          .add = true};
    t.y = dx->data + sample * dx->sample + block * dx->group + row * dx->row;
    for (int b = 0; b < blocks; b++)
        memset(t.y + b * dx->group, 0, (size_t)dx->row * sizeof *t.y);
    /* The kernel's rows first, first + s, ... meet rows of dy, the last one first. */
    const int64_t low = row + k->pad - (dy->height - 1) * s;
    const int64_t first = low > 0 ? low : (row + k->pad) % s, end = least(K, row + k->pad + 1);
    if (first >= end)
        return;
    t.nterms = ceil_div(end - first, s) * k->row_terms;
    t.x = dy->data + (row + k->pad - first) / s * dy->row;
    t.w = k->used.data + block * k->used.o_block + first * k->used.h;
    for (int64_t w = 0; w < K; w++)
        add_column(k, &t, w);
}

static void scatters(const direct_kernel *k, float *buffer)
{
    range rows = share_of(k->n * k->to.height);
    while (rows.first < rows.end) {
        const band part = next_band(&rows, k->to.height);
        const image dy = sample_of(k, part.sample, buffer);
        for (int64_t row = part.first; row < part.end; row++) {
            for (int64_t block = 0; block < k->to.groups; block += 2)
                scatter(k, &dy, part.sample, row, block, (int)least(2, k->to.groups - block));
        }
    }
}

/* ---- backward weights ---- */

/* A line is a run of taps that are contiguous in x: a row of the kernel, or the channels of one of
 * its places. */
typedef struct tap_line {
    int64_t h;
    const float *x;
    float *dw;
} tap_line;

static tap_line line_at(const direct_kernel *k, const image *x, float *dw, int64_t line)
{
    const int64_t K = k->kernel, columns = x->pixel == 1 ? 1 : K;
    const int64_t group = line / (K * columns), h = line / columns % K, w = line % columns;
    return (tap_line){.h = h,
                      .x = x->data + group * x->group + h * x->row + w * x->pixel,
                      .dw = dw + group * group_step(k, &k->used) + h * k->used.h + w * k->used.w};
}

/* Adds the sums over rows of one sample, for one or two blocks of outputs. */
static void add_taps(const direct_kernel *k, const image *x, band rows, int64_t block, int blocks,
                     float *dw)
{
    const int64_t K = k->kernel, s = k->stride;
    const bool plain = x->pixel == 1;
    const int64_t length = plain ? K : x->depth, lines = x->groups * K * (plain ? 1 : K);
    const int64_t taps = ceil_div(length, ceil_div(length, k->loops->width[blocks - 1]));
    const int together = 2 * taps * blocks <= k->loops->accumulators[blocks - 1] ? 2 : 1;
    const range real = real_rows(k);
    const float *dy = k->to.data + rows.sample * k->to.sample + block * k->to.group;
    ech__direct_sum t = {.blocks = blocks,
                         .dw_tap = plain ? k->used.w : k->used.i_lane,
                         .dw_block = k->used.o_block,
                         .pixels = k->to.width,
                         .x_row = s * x->row,
                         .x_pixel = s * x->pixel,
                         .dy_row = k->to.row,
                         .dy_block = k->to.group};
    dw += block * k->used.o_block;
    for (int64_t line = 0; line < lines; line += t.lines) {
        t.lines = (int)least(together, lines - line);
        const tap_line one = line_at(k, x, dw, line);
        const tap_line two = line_at(k, x, dw, line + t.lines - 1);
        const int64_t low = least(one.h, two.h), high = most(one.h, two.h);
        const int64_t first = most(rows.first, ceil_div(most(0, real.first - high), s));
        const int64_t end = least(rows.end, ceil_div(most(0, real.end - low), s));
        if (first >= end)
            continue;
        t.rows = end - first;
        t.dy = dy + first * k->to.row;
        t.x_line = two.x - one.x;
        t.dw_line = two.dw - one.dw;
        for (int64_t tap = 0; tap < length; tap += t.taps) {
            t.taps = (int)least(taps, length - tap);
            t.x = one.x + first * t.x_row + tap;
            t.dw = one.dw + tap * t.dw_tap;
            k->loops->sum(&t);
        }
    }
}

/* This thread's part of the gradients, in dw and db. */
static void gradients(const direct_kernel *k, float *buffer, float *dw, float *db)
{
    const int64_t B = k->loops->channels, blocks = k->to.groups;
    memset(dw, 0, (size_t)k->used_floats * sizeof *dw);
    memset(db, 0, (size_t)(blocks * B) * sizeof *db);
    range rows = share_of(k->n * k->to.height);
    while (rows.first < rows.end) {
        const band part = next_band(&rows, k->to.height);
        const image x = sample_of(k, part.sample, buffer);
        for (int64_t block = 0; block < blocks; block += 2)
            add_taps(k, &x, part, block, (int)least(2, blocks - block), dw);
        for (int64_t block = 0; block < blocks && k->db; block++) {
            const float *dy = k->to.data + part.sample * k->to.sample + block * k->to.group;
            k->loops->add_pixels(dy + part.first * k->to.row, (part.end - part.first) * k->to.width,
                                 db + block * B);
        }
    }
}

/* The parts of all threads, in their order. */
static void combine(const direct_kernel *k, float *first)
{
    const int64_t threads = omp_get_num_threads(), width = k->to.groups * k->loops->channels;
    const range floats = share_of(k->used_floats);
    for (int64_t t = 1; t < threads; t++) {
        const float *part = k->own + (t - k->in_place) * k->used_floats;
        for (int64_t e = floats.first; e < floats.end; e++)
            first[e] += part[e];
    }
#pragma omp barrier
    if (!k->in_place)
        store_gradient(k, share_of(k->to.groups));
    const range outputs = share_of(k->db ? k->o : 0);
    for (int64_t o = outputs.first; o < outputs.end; o++) {
        float sum = k->sums[o];
        for (int64_t t = 1; t < threads; t++)
            sum += k->sums[t * width + o];
        k->db[o] = sum;
    }
}

/* ---- kernel ---- */

static void prepare(const direct_kernel *k)
{
    const range vectors = share_of(k->to.groups);
    const int64_t B = k->loops->channels;
    if (!k->in_place) {
        const weight from = forward_weight(k);
        memset(k->own + vectors.first * k->used.o_block, 0,
               (size_t)((vectors.end - vectors.first) * k->used.o_block) * sizeof(float));
        pack(k, &from, &k->used, vectors);
    }
    if (omp_get_thread_num() == 0)
        list_terms(k);
    for (int64_t o = vectors.first * B; k->has_bias && o < vectors.end * B; o++)
        k->bias[o] = o < k->o ? k->b[o] : 0; /* so that the padding of y stays zero */
#pragma omp barrier
}

static ech_status run(ech__kernel *base, const ech__scalars *scalars)
{
    (void)scalars;
    const direct_kernel *k = (const direct_kernel *)base;
#pragma omp parallel num_threads(k->base.device->threads)
    {
        const int64_t me = omp_get_thread_num();
        float *buffer = k->buffers + me * k->seen.sample;
        if (k->copies)
            memset(buffer, 0, (size_t)k->seen.sample * sizeof *buffer);
        if (k->op != ECH__OP_CONV2D_BWD_WEIGHTS) {
            prepare(k);
            if (k->op == ECH__OP_CONV2D)
                convolutions(k, buffer);
            else
                scatters(k, buffer);
        } else {
            float *dw = k->in_place && me == 0 ? k->given.data
                                               : k->own + (me - k->in_place) * k->used_floats;
            gradients(k, buffer, dw, k->sums + me * k->to.groups * k->loops->channels);
#pragma omp barrier
            combine(k, k->in_place ? k->given.data : k->own);
        }
    }
    return ECH_OK;
}

/* ---- sizes ---- */

/* pixel: 1 for a row-major image, B for a blocked one. */
static image image_of(int64_t channels, int64_t height, int64_t width, int64_t pixel)
{
    image x = {.channels = channels, .height = height, .width = width, .pixel = pixel};
    x.groups = ceil_div(channels, pixel);
    x.depth = least(channels, pixel);
    x.row = width * pixel;
    x.group = height * x.row;
    x.sample = x.groups * x.group;
    return x;
}

static image image_from(const ech__layout *layout, int64_t B)
{
    const int64_t *dims = layout->shape.dims;
    return image_of(dims[1], dims[2], dims[3], ech__is_blocked(layout, B) ? B : 1);
}

static weight weight_from(const ech__layout *layout, int64_t B)
{
    weight w = {.o_block = B * layout->strides[0],
                .o_lane = layout->strides[0],
                .i_block = B * layout->strides[1],
                .i_lane = layout->strides[1],
                .h = layout->strides[2],
                .w = layout->strides[3]};
    int64_t lane = 1;
    for (int b = layout->nblocks - 1; b >= 0; b--, lane *= B) {
        const bool output = layout->block_axis[b] == 0;
        *(output ? &w.o_block : &w.i_block) = layout->strides[output ? 0 : 1];
        *(output ? &w.o_lane : &w.i_lane) = lane;
    }
    return w;
}

/* A weight of our own: the taps in the order of the loops, each a vector of outputs. */
static weight own_weight(const direct_kernel *k, int64_t *floats)
{
    const int64_t B = k->loops->channels, K = k->kernel;
    weight w = {.o_lane = 1};
    if (k->from.pixel == 1) {
        w.w = B;
        w.h = K * B;
        w.i_lane = K * K * B;
        w.i_block = B * w.i_lane;
        w.o_block = k->from.groups * w.i_lane;
    } else {
        w.i_lane = B;
        w.w = B * B;
        w.h = K * B * B;
        w.i_block = K * K * B * B;
        w.o_block = k->from.groups * w.i_block;
    }
    *floats = k->to.groups * w.o_block;
    return w;
}

/* The weight is used without packing when its outputs are vectors, and its inputs are there as
 * those of the image: with those that fill up the last block of a blocked one, and evenly spaced
 * for the gradient of a row-major one. */
static void choose_weight(direct_kernel *k)
{
    const int64_t B = k->loops->channels;
    k->given = weight_from(&k->layout, B);
    k->used = forward_weight(k);
    const int axis = k->op == ECH__OP_CONV2D_BWD_DATA ? 0 : 1;
    const bool even = k->used.i_block == B * k->used.i_lane;
    const bool fits =
        k->from.channels <= B || (k->seen.pixel == 1 ? even || k->op != ECH__OP_CONV2D_BWD_WEIGHTS
                                                     : k->layout.padded[axis] % B == 0);
    k->in_place = k->used.o_lane == 1 && k->layout.padded[1 - axis] % B == 0 && fits;
    if (!k->in_place)
        k->used = own_weight(k, &k->used_floats);
    else
        ech__layout_extent(&k->layout, &k->used_floats);
}

static void choose_view(direct_kernel *k)
{
    const int64_t more = k->kernel - k->stride; /* so much is seen beyond the strides */
    k->copies = k->op != ECH__OP_CONV2D_BWD_DATA && k->pad > 0;
    k->seen = k->from;
    if (k->copies)
        k->seen = image_of(k->from.channels, k->to.height * k->stride + more,
                           k->to.width * k->stride + more, k->from.pixel);
}

/* With the weight in this layout. */
static direct_kernel sizes_of(const ech__cpu *cpu, const ech__kernel_desc *desc,
                              const ech__layout *layout)
{
    const ech__attrs *a = &desc->attrs;
    const bool data = desc->op == ECH__OP_CONV2D_BWD_DATA;
    const bool weights = desc->op == ECH__OP_CONV2D_BWD_WEIGHTS;
    direct_kernel k = {.op = desc->op,
                       .loops = cpu->loops->direct,
                       .relu = desc->op == ECH__OP_CONV2D && a->relu,
                       .has_bias = desc->op == ECH__OP_CONV2D && desc->nin == 3,
                       .n = desc->operands[0].layout.shape.dims[0],
                       .o = layout->shape.dims[0],
                       .i = layout->shape.dims[1],
                       .kernel = a->kernel,
                       .stride = a->stride,
                       .pad = a->pad,
                       .layout = *layout};
    const int64_t B = k.loops->channels;
    k.from = image_from(&desc->operands[0].layout, B);
    k.to = image_from(&desc->operands[weights ? 1 : desc->nin].layout, B);
    choose_view(&k);
    choose_weight(&k);
    k.row_terms = k.seen.groups * k.seen.depth * (data ? 1 : k.kernel);
    return k;
}

/* Cuts up the scratch; returns its floats. */
static int64_t lay_out(direct_kernel *k, int threads, float *scratch)
{
    const bool weights = k->op == ECH__OP_CONV2D_BWD_WEIGHTS;
    const int64_t parts = weights ? threads - k->in_place : !k->in_place;
    const int64_t width = k->to.groups * k->loops->channels;
    int64_t floats = 0;
    k->own = scratch;
    floats += ech__round_up(parts * k->used_floats, LINE);
    k->bias = k->sums = scratch ? scratch + floats : NULL;
    floats += ech__round_up(weights ? threads * width : k->has_bias ? width : 0, LINE);
    k->terms = scratch ? (ech__direct_term *)(void *)(scratch + floats) : NULL;
    floats += weights ? 0 : ech__round_up(2 * k->kernel * k->row_terms, LINE);
    k->seen.sample = ech__round_up(k->seen.sample, LINE);
    k->buffers = scratch ? scratch + floats : NULL;
    floats += k->copies ? threads * k->seen.sample : 0;
    return floats;
}

/* ---- what is offered ---- */

ech__layout ech__weight_layout(const ech__shape *shape, ech__weight_order order, int64_t B)
{
    if (order == ECH__ROW_MAJOR)
        return ech__layout_plain(shape);
    const int64_t K = shape->dims[2], outputs = ech__round_up(shape->dims[0], B);
    if (order == ECH__BLOCKED_OUTPUTS) {
        const int64_t I = shape->dims[1];
        return (ech__layout){.shape = *shape,
                             .padded = {outputs, I, K, K},
                             .strides = {K * K * I * B, B, K * I * B, I * B},
                             .nblocks = 1,
                             .block_axis = {0},
                             .block_size = {B}};
    }
    const int64_t inputs = ech__round_up(shape->dims[1], B);
    const int inner = order == ECH__OUTPUTS_INNER ? 0 : 1;
    return (ech__layout){.shape = *shape,
                         .padded = {outputs, inputs, K, K},
                         .strides = {inputs * K * K * B, K * K * B * B, K * B * B, B * B},
                         .nblocks = 2,
                         .block_axis = {1 - inner, inner},
                         .block_size = {B, B}};
}

bool ech__weight_order_of(const ech__layout *layout, int64_t B, ech__weight_order *out)
{
    for (int order = 0; order <= ECH__BLOCKED_OUTPUTS; order++) {
        const ech__layout known = ech__weight_layout(&layout->shape, order, B);
        *out = order;
        if (ech__layout_equal(layout, &known))
            return true;
    }
    return false;
}

static bool is_image(const ech__operand *operand, int64_t B, bool may_be_plain)
{
    if (operand->dtype != ECH_F32 || operand->layout.shape.ndims != 4 || operand->free)
        return false;
    return ech__is_blocked(&operand->layout, B) ||
           (may_be_plain && ech__layout_is_plain(&operand->layout));
}

/* w: [O,I,K,K], x: [N,C,H,W] with C one of O and I. Sides are below MAX_SIDE. */
static bool distances_fit(const int64_t *w, const int64_t *x, int64_t B)
{
    const int64_t most_channels = ceil_div(w[0] > w[1] ? w[0] : w[1], B) * B;
    const int64_t padded = (x[2] + 2 * w[2]) * (x[3] + 2 * w[2]);
    int64_t floats;
    return ech__mul(most_channels, padded, &floats) && floats <= MAX_FLOATS &&
           ech__mul(most_channels, most_channels * w[2] * w[2], &floats) && floats <= MAX_FLOATS;
}

static bool is_possible(const ech__cpu *cpu, const ech__kernel_desc *desc)
{
    const bool data = desc->op == ECH__OP_CONV2D_BWD_DATA;
    const bool weights = desc->op == ECH__OP_CONV2D_BWD_WEIGHTS;
    if (!ech__is_conv(desc->op))
        return false;
    const ech__operand *w = &desc->operands[ech__weight_operand(desc->op)];
    const int64_t *dims = w->layout.shape.dims, B = cpu->loops->channels;
    const int64_t *sides = desc->operands[0].layout.shape.dims;
    return w->dtype == ECH_F32 && sides[2] < MAX_SIDE && sides[3] < MAX_SIDE &&
           dims[2] < MAX_SIDE && distances_fit(dims, sides, B) &&
           desc->attrs.pad < desc->attrs.kernel && is_image(&desc->operands[0], B, !data) &&
           is_image(&desc->operands[weights ? 1 : desc->nin], B, false);
}

static ech_status create_kernel(const ech__kernel_args *args, ech__kernel **out)
{
    const int at = ech__weight_operand(args->desc->op);
    direct_kernel k =
        sizes_of(ech__cpu_of(args->device), args->desc, &args->candidate->layouts[at]);
    k.base = (ech__kernel){.run = run};
    lay_out(&k, args->device->threads, args->binding->scratch);
    void *const *operands = args->binding->operands;
    const bool weights = args->desc->op == ECH__OP_CONV2D_BWD_WEIGHTS;
    k.from.data = operands[0];
    k.to.data = operands[weights ? 1 : args->desc->nin];
    k.given.data = operands[at];
    k.used.data = k.in_place ? forward_weight(&k).data : k.own;
    if (k.has_bias)
        k.b = operands[2];
    if (weights && args->desc->attrs.bias)
        k.db = operands[3];
    return ech__kernel_make(args->device, &k, sizeof k, out);
}

static void offer_order(const ech__kernel_desc *desc, const ech__layout *layout, ech__offer *offer)
{
    ech__candidate *candidate = ech__offer_add(offer, desc, "direct", create_kernel);
    if (!candidate)
        return;
    direct_kernel k = sizes_of(offer->cpu, desc, layout);
    candidate->layouts[ech__weight_operand(desc->op)] = *layout;
    candidate->scratch_bytes = lay_out(&k, offer->device->threads, NULL) * (int64_t)sizeof(float);
    candidate->stands_in = k.o > FEW_CHANNELS || k.i > FEW_CHANNELS;
}

void ech__direct_offer(const ech__kernel_desc *desc, ech__offer *offer)
{
    if (!is_possible(offer->cpu, desc))
        return;
    const ech__operand *w = &desc->operands[ech__weight_operand(desc->op)];
    const int64_t B = offer->cpu->loops->channels;
    if (!w->free) {
        ech__weight_order order;
        if (ech__weight_order_of(&w->layout, B, &order))
            offer_order(desc, &w->layout, offer);
        return;
    }
    const bool plain = image_from(&desc->operands[0].layout, B).pixel == 1;
    const ech__weight_order first = plain ? ECH__BLOCKED_OUTPUTS : ECH__OUTPUTS_INNER;
    const ech__weight_order last = plain ? ECH__BLOCKED_OUTPUTS : ECH__INPUTS_INNER;
    for (int order = first; order <= (int)last; order++) {
        const ech__layout layout = ech__weight_layout(&w->layout.shape, order, B);
        offer_order(desc, &layout, offer);
    }
}
