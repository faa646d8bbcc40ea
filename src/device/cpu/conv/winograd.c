/* Winograd convolutions of 3 x 3 kernels at stride 1, over the loops of winograd.h.
 *
 *   forward            y  = x * w          images of x, weights, images of y
 *   backward data      dx = dy * w'        the same with w rotated and its channels exchanged
 *   backward weights   dw = x * dy         images of x and dy, summed over tiles, weights
 *
 * One side of the products is kept whole at its points in the scratch of the plan, the other and
 * the results go through it in chunks, so that what is transformed is used while it is in a cache.
 * Which side is kept follows from the sizes: large images have many tiles and few channels, small
 * ones the opposite. Threads take chunks, or parts of one; no split changes the order of a sum.
 *
 * N images   I, O channels of x and y   B channels in a vector   T tiles of all images
 */
#include "base/size.h"
#include "device/cpu/conv/winograd.h"
#include "device/cpu/cpu.h"
#include "device/cpu/share.h"

#include <omp.h>
#include <string.h>

enum {
    POINTS = ECH__WINOGRAD_POINTS,
    TAPS = ECH__WINOGRAD_TAPS,
    TILE = ECH__WINOGRAD_TILE,
    MOST = ECH__WINOGRAD_CHANNELS,
    LINE = 16, /* floats in a line of the cache */
    CHUNK_BYTES =
        3 << 17, /* of inputs and results of the products at a time, to stay near in the caches */
    LEAST_TILES = 24, /* of a chunk nevertheless: each reads the transformed weight again */
    DEPTH = 128,      /* tiles of a sum over tiles at a time */
};

typedef struct wino_kernel {
    ech__kernel base;
    const ech__winograd_loops *loops;
    ech__op op;
    bool relu;
    ech__weight_order order;  /* of the weight, or of its gradient: not blocked by outputs only */
    int64_t n, i, o;          /* images, channels of x, channels of y */
    ech__winograd_image from; /* what the tiles of 6 x 6 are cut from: x; backward data: dy */
    ech__winograd_image to;   /* y or dx; backward weights: dy */
    int64_t tiles;
    bool keep_images; /* whole at their points; else the weight, or its gradient */
    int64_t chunk;    /* tiles; or, when the images are kept, vectors of channels of the result */
    bool biased;
    const float *w, *b;
    float *dw, *db;
    float *kept, *pieces, *bias;                         /* scratch */
    int64_t kept_stride, piece_a_stride, piece_b_stride; /* from point to point */
    int64_t piece_size, pieces_size;                     /* of one thread, of all */
} wino_kernel;

/* ---- weights ---- */

/* Block (o, i) of the weight as taps[9][depth][lanes], in place or in the buffer. */
static const float *taps_of(const wino_kernel *k, int64_t o, int64_t i, bool outputs_inner,
                            float *buffer)
{
    const int64_t B = k->loops->channels;
    if (k->order != ECH__ROW_MAJOR) {
        const float *taps = k->w + (o * ceil_div(k->i, B) + i) * TAPS * B * B;
        if ((k->order == ECH__OUTPUTS_INNER) == outputs_inner)
            return taps;
        k->loops->transpose(taps, buffer);
        return buffer;
    }
    memset(buffer, 0, (size_t)(TAPS * B * B) * sizeof *buffer);
    const int64_t outputs = least(B, k->o - o * B), inputs = least(B, k->i - i * B);
    for (int64_t q = 0; q < outputs; q++) {
        for (int64_t c = 0; c < inputs; c++) {
            const float *from = k->w + ((o * B + q) * k->i + i * B + c) * TAPS;
            float *to = buffer + (outputs_inner ? c * B + q : q * B + c);
            for (int tap = 0; tap < TAPS; tap++)
                to[tap * B * B] = from[tap];
        }
    }
    return buffer;
}

/* Vectors [first, end) of the result's channels -> u[36][vectors/2][depth][2B]. */
static void transform_weight(const wino_kernel *k, range vectors, float *u, int64_t stride)
{
    float buffer[TAPS * MOST * MOST] __attribute__((aligned(64)));
    const int64_t B = k->loops->channels, depth = k->from.blocks;
    const bool forward = k->op == ECH__OP_CONV2D;
    for (int64_t d = 0; d < depth; d++) {
        for (int64_t v = vectors.first; v < vectors.end; v++) {
            const float *taps =
                forward ? taps_of(k, v, d, true, buffer) : taps_of(k, d, v, false, buffer);
            const int64_t at = v - vectors.first;
            k->loops->weight(taps, !forward, u + (at / 2 * depth + d) * B * 2 * B + at % 2 * B,
                             stride);
        }
    }
}

/* m[36][O/B][I][B] of these vectors of outputs -> dw */
static void store_weight_gradient(const wino_kernel *k, range vectors, const float *m,
                                  int64_t stride)
{
    float buffer[2][TAPS * MOST * MOST] __attribute__((aligned(64)));
    const int64_t B = k->loops->channels, blocks = k->from.blocks;
    for (int64_t o = vectors.first; o < vectors.end; o++) {
        for (int64_t i = 0; i < blocks; i++, m += B * B) {
            float *to = k->dw + (o * blocks + i) * TAPS * B * B;
            k->loops->weight_gradient(m, stride, k->order == ECH__OUTPUTS_INNER ? to : buffer[0]);
            if (k->order == ECH__INPUTS_INNER)
                k->loops->transpose(buffer[0], to);
            if (k->order != ECH__ROW_MAJOR)
                continue;
            const int64_t outputs = least(B, k->o - o * B), inputs = least(B, k->i - i * B);
            for (int64_t q = 0; q < outputs; q++) {
                for (int64_t c = 0; c < inputs; c++) {
                    float *row = k->dw + ((o * B + q) * k->i + i * B + c) * TAPS;
                    for (int tap = 0; tap < TAPS; tap++)
                        row[tap] = buffer[0][(tap * B + c) * B + q];
                }
            }
        }
    }
}

/* ---- forward and backward data ---- */

/* Tiles and vectors of the result from both sides at their points. */
static void products(const wino_kernel *k, range tiles, range vectors, const float *v,
                     int64_t v_stride, const float *u, int64_t u_stride, float *m, int64_t m_stride)
{
    const int64_t B = k->loops->channels, count = tiles.end - tiles.first;
    const int64_t depth = k->from.blocks * B;
    for (int p = 0; p < POINTS; p++)
        k->loops->over_channels(&(ech__winograd_product){.a = v + p * v_stride,
                                                         .b = u + p * u_stride,
                                                         .c = m + p * m_stride,
                                                         .a_block = count * B,
                                                         .b_block = depth * 2 * B,
                                                         .c_block = count * B,
                                                         .rows = count,
                                                         .depth = depth,
                                                         .blocks = vectors.end - vectors.first});
    for (int64_t q = vectors.first; q < vectors.end; q++, m += count * B)
        k->loops->output(&k->to, (ech__winograd_span){q, tiles.first, count}, m, m_stride,
                         k->b ? k->bias + q * B : NULL, k->relu);
}

/* Tiles of the input's blocks -> v[36][blocks][tiles][B] */
static void transform_input(const wino_kernel *k, range blocks, range tiles, float *v,
                            int64_t stride)
{
    const int64_t count = tiles.end - tiles.first;
    for (int64_t block = blocks.first; block < blocks.end; block++)
        k->loops->input(&k->from, (ech__winograd_span){block, tiles.first, count},
                        v + block * count * k->loops->channels, stride);
}

/* The weight is kept: chunks of tiles. */
static void convolve_by_tiles(const wino_kernel *k, float *piece)
{
    const int64_t B = k->loops->channels, pairs = ceil_div(k->to.blocks, 2);
    const range all = {0, k->to.blocks}, mine = share_of(pairs);
    transform_weight(k, (range){mine.first * 2, least(mine.end * 2, k->to.blocks)},
                     k->kept + mine.first * k->from.blocks * B * 2 * B, k->kept_stride);
#pragma omp barrier
    float *m = piece + POINTS * k->piece_a_stride;
    const range chunks = share_of(ceil_div(k->tiles, k->chunk));
    for (int64_t c = chunks.first; c < chunks.end; c++) {
        const range tiles = {c * k->chunk, least((c + 1) * k->chunk, k->tiles)};
        transform_input(k, (range){0, k->from.blocks}, tiles, piece, k->piece_a_stride);
        products(k, tiles, all, piece, k->piece_a_stride, k->kept, k->kept_stride, m,
                 k->piece_b_stride);
    }
}

/* ---- backward weights ---- */

static void bias_gradient(const wino_kernel *k)
{
    const int64_t B = k->loops->channels;
    const range blocks = share_of(k->to.blocks);
    for (int64_t q = blocks.first; q < blocks.end; q++) {
        float sums[MOST];
        k->loops->sums(&k->to, k->n, q, sums);
        memcpy(k->db + q * B, sums, (size_t)least(B, k->o - q * B) * sizeof *sums);
    }
}

/* Sums over count tiles, both sides at their points, for some vectors of outputs. */
static void tile_products(const wino_kernel *k, int64_t count, int64_t vectors, bool add,
                          const float *x, int64_t x_stride, const float *dy, int64_t dy_stride,
                          float *m, int64_t m_stride, range points)
{
    const int64_t B = k->loops->channels, inputs = k->from.blocks * B;
    for (int64_t p = points.first; p < points.end; p++)
        k->loops->over_tiles(&(ech__winograd_product){.a = x + p * x_stride,
                                                      .b = dy + p * dy_stride,
                                                      .c = m + p * m_stride,
                                                      .a_block = count * B,
                                                      .b_block = count * B,
                                                      .c_block = inputs * B,
                                                      .rows = inputs,
                                                      .depth = count,
                                                      .blocks = vectors,
                                                      .add = add});
}

static void transform_gradient(const wino_kernel *k, range blocks, range tiles, float *v,
                               int64_t stride)
{
    const int64_t count = tiles.end - tiles.first;
    for (int64_t q = blocks.first; q < blocks.end; q++, v += count * k->loops->channels)
        k->loops->gradient(&k->to, (ech__winograd_span){q, tiles.first, count}, v, stride);
}

/* The gradient of the weight is kept: chunks of tiles, on which all threads work together. */
static void weights_by_tiles(const wino_kernel *k)
{
    const int64_t B = k->loops->channels, inputs = k->from.blocks * B;
    float *x = k->pieces, *dy = k->pieces + POINTS * k->piece_a_stride;
    const range outputs = share_of(k->to.blocks);
    for (int64_t first = 0; first < k->tiles; first += k->chunk) {
        const range tiles = {first, least(first + k->chunk, k->tiles)};
        const int64_t count = tiles.end - first;
        transform_input(k, share_of(k->from.blocks), tiles, x, k->piece_a_stride);
        transform_gradient(k, outputs, tiles, dy + outputs.first * count * B, k->piece_b_stride);
#pragma omp barrier
        tile_products(k, count, k->to.blocks, first > 0, x, k->piece_a_stride, dy,
                      k->piece_b_stride, k->kept, k->kept_stride, share_of(POINTS));
#pragma omp barrier
    }
    store_weight_gradient(k, outputs, k->kept + outputs.first * inputs * B, k->kept_stride);
}

/* ---- any direction ---- */

/* The images are kept: chunks of the result's channels, or of outputs. */
static void by_channels(const wino_kernel *k, float *piece)
{
    const range all = {0, k->tiles};
    transform_input(k, share_of(k->from.blocks), all, k->kept, k->kept_stride);
#pragma omp barrier
    float *m = piece + POINTS * k->piece_a_stride;
    const range chunks = share_of(ceil_div(k->to.blocks, k->chunk));
    for (int64_t c = chunks.first; c < chunks.end; c++) {
        const range vectors = {c * k->chunk, least((c + 1) * k->chunk, k->to.blocks)};
        if (k->op != ECH__OP_CONV2D_BWD_WEIGHTS) {
            transform_weight(k, vectors, piece, k->piece_a_stride);
            products(k, all, vectors, k->kept, k->kept_stride, piece, k->piece_a_stride, m,
                     k->piece_b_stride);
            continue;
        }
        transform_gradient(k, vectors, all, piece, k->piece_a_stride);
        tile_products(k, k->tiles, vectors.end - vectors.first, false, k->kept, k->kept_stride,
                      piece, k->piece_a_stride, m, k->piece_b_stride, (range){0, POINTS});
        store_weight_gradient(k, vectors, m, k->piece_b_stride);
    }
}

/* ---- kernel ---- */

static ech_status run(ech__kernel *base, const ech__scalars *scalars)
{
    (void)scalars;
    const wino_kernel *k = (const wino_kernel *)base;
    if (k->b) { /* filled up with zeros, so that the padding of y stays zero */
        memset(k->bias, 0, (size_t)(k->to.blocks * k->loops->channels) * sizeof *k->bias);
        memcpy(k->bias, k->b, (size_t)k->o * sizeof *k->bias);
    }
#pragma omp parallel num_threads(k->base.device->threads)
    {
        float *piece = k->pieces + omp_get_thread_num() * k->piece_size;
        if (k->keep_images)
            by_channels(k, piece);
        else if (k->op != ECH__OP_CONV2D_BWD_WEIGHTS)
            convolve_by_tiles(k, piece);
        else
            weights_by_tiles(k);
        if (k->db)
            bias_gradient(k);
    }
    return ECH_OK;
}

/* ---- sizes ---- */

/* The image that the result of the products is, or dy. */
static int result_operand(const ech__kernel_desc *desc)
{
    return desc->op == ECH__OP_CONV2D_BWD_WEIGHTS ? 1 : desc->nin;
}

/* From point to point: whole lines, and an odd number of them, so that a tile's points do not
 * fall into few sets of the cache. */
static int64_t stride_of(int64_t floats)
{
    return (ceil_div(floats, LINE) | 1) * LINE;
}

static ech__winograd_image image_of(const ech__operand *operand, int64_t B)
{
    const int64_t *dims = operand->layout.shape.dims;
    return (ech__winograd_image){
        .blocks = ceil_div(dims[1], B), .height = dims[2], .width = dims[3]};
}

/* Tiles of 4 x 4 of the result, or of dy: both images are walked by them. */
static void cut(wino_kernel *k, int64_t before)
{
    k->from.tiles_h = k->to.tiles_h = ceil_div(k->to.height, TILE);
    k->from.tiles_w = k->to.tiles_w = ceil_div(k->to.width, TILE);
    k->from.before = before;
    k->tiles = k->n * k->to.tiles_h * k->to.tiles_w;
}

/* Tiles of a chunk: as many as the caches hold, in equal parts for the threads. */
static int64_t chunk_of_tiles(const wino_kernel *k, int threads)
{
    const int64_t B = k->loops->channels, rows = k->loops->rows;
    const int64_t bytes = POINTS * (k->from.blocks + k->to.blocks) * B * 4;
    const int64_t size = most(CHUNK_BYTES / bytes, LEAST_TILES);
    const int64_t chunks = ceil_div(ceil_div(k->tiles, size), threads) * threads;
    return ceil_div(ceil_div(k->tiles, chunks), rows) * rows;
}

/* Which side is kept, the chunks and the strides; returns the floats of scratch. */
static int64_t lay_out(wino_kernel *k, int threads)
{
    const int64_t B = k->loops->channels, in = k->from.blocks * B, out = k->to.blocks * B;
    const int64_t whole_weight = in * ech__round_up(out, 2 * B);
    const bool weights = k->op == ECH__OP_CONV2D_BWD_WEIGHTS;
    /* The smaller side; and no sum over tiles is cut before it is long. */
    k->keep_images = k->tiles <= (weights ? most(out, DEPTH) : out);
    int64_t pieces = threads;
    if (k->keep_images) {
        k->chunk = 2;
        k->kept_stride = stride_of(k->tiles * in);
        k->piece_a_stride = stride_of(k->chunk * B * (weights ? k->tiles : in));
        k->piece_b_stride = stride_of(k->chunk * B * (weights ? in : k->tiles));
    } else {
        k->chunk = weights ? least(DEPTH, k->tiles) : chunk_of_tiles(k, threads);
        k->kept_stride = stride_of(whole_weight);
        k->piece_a_stride = stride_of(k->chunk * in);
        k->piece_b_stride = stride_of(k->chunk * out);
        pieces = weights ? 1 : threads;
    }
    k->piece_size = POINTS * (k->piece_a_stride + k->piece_b_stride);
    k->pieces_size = pieces * k->piece_size;
    return POINTS * k->kept_stride + k->pieces_size + (k->biased ? out : 0);
}

static wino_kernel sizes_of(const ech__winograd_loops *loops, const ech__kernel_desc *desc)
{
    const int64_t pad = desc->attrs.pad;
    const int64_t *weight = desc->operands[ech__weight_operand(desc->op)].layout.shape.dims;
    wino_kernel k = {.op = desc->op,
                     .loops = loops,
                     .relu = desc->op == ECH__OP_CONV2D && desc->attrs.relu,
                     .biased = desc->op == ECH__OP_CONV2D && desc->nin == 3,
                     .n = desc->operands[0].layout.shape.dims[0],
                     .o = weight[0],
                     .i = weight[1]};
    const int64_t B = loops->channels;
    k.from = image_of(&desc->operands[0], B);
    k.to = image_of(&desc->operands[result_operand(desc)], B);
    cut(&k, desc->op == ECH__OP_CONV2D_BWD_DATA ? 2 - pad : pad);
    return k;
}

/* ---- what is offered ---- */

static bool is_blocked_image(const ech__operand *operand, int64_t B)
{
    return operand->dtype == ECH_F32 && !operand->free && ech__is_blocked(&operand->layout, B);
}

static bool is_possible(const ech__winograd_loops *loops, const ech__kernel_desc *desc)
{
    const ech__attrs *a = &desc->attrs;
    if (!ech__is_conv(desc->op) || a->kernel != 3 || a->stride != 1 || a->pad > 2)
        return false;
    const int64_t B = loops->channels;
    return desc->operands[ech__weight_operand(desc->op)].dtype == ECH_F32 &&
           is_blocked_image(&desc->operands[0], B) &&
           is_blocked_image(&desc->operands[result_operand(desc)], B);
}

static ech_status create_kernel(const ech__kernel_args *args, ech__kernel **out)
{
    const ech__loops *loops = ech__cpu_of(args->device)->loops;
    wino_kernel k = sizes_of(loops->winograd, args->desc);
    k.base = (ech__kernel){.run = run};
    void *const *at = args->binding->operands;
    const int weight = ech__weight_operand(args->desc->op);
    ech__weight_order_of(&args->candidate->layouts[weight], k.loops->channels, &k.order);
    k.from.data = at[0];
    k.to.data = at[result_operand(args->desc)];
    if (args->desc->op == ECH__OP_CONV2D_BWD_WEIGHTS) {
        k.dw = at[weight];
        k.db = args->desc->attrs.bias ? at[weight + 1] : NULL;
    } else {
        k.w = at[weight];
        k.b = k.biased ? at[2] : NULL;
    }
    lay_out(&k, args->device->threads);
    k.kept = args->binding->scratch;
    k.pieces = k.kept + POINTS * k.kept_stride;
    k.bias = k.pieces + k.pieces_size;
    return ech__kernel_make(args->device, &k, sizeof k, out);
}

void ech__winograd_offer(const ech__kernel_desc *desc, ech__offer *offer)
{
    const ech__winograd_loops *loops = offer->cpu->loops->winograd;
    if (!is_possible(loops, desc))
        return;
    const int at = ech__weight_operand(desc->op);
    const ech__operand *weight = &desc->operands[at];
    wino_kernel k = sizes_of(loops, desc);
    const int64_t B = loops->channels;
    ech__weight_order first = ECH__OUTPUTS_INNER, last = ECH__INPUTS_INNER;
    if (!weight->free) {
        if (!ech__weight_order_of(&weight->layout, B, &first) || first == ECH__BLOCKED_OUTPUTS)
            return;
        last = first;
    }
    const int64_t floats = lay_out(&k, offer->device->threads);
    for (int order = first; order <= (int)last; order++) {
        ech__candidate *candidate = ech__offer_add(offer, desc, "winograd", create_kernel);
        if (!candidate)
            return;
        candidate->layouts[at] = ech__weight_layout(&weight->layout.shape, order, B);
        candidate->scratch_bytes = floats * (int64_t)sizeof(float);
        candidate->only_timed = true;
    }
}
