/* Linear layers and convolutions of integers, over the tiles of int8.h.
 *
 * A few images at a time are widened to s16 with their channels innermost and a black border
 * around, as many as stay in the cache; then every output panel goes over their pixels. A linear
 * layer is a convolution of images with one pixel. The weight is stored in panels of 8 outputs and
 * pairs of inputs, in bytes. */
#include "device/cpu/int8/int8.h"
#include "base/size.h"
#include "device/cpu/int8/layer.h"
#include "device/cpu/share.h"

#include <omp.h>
#include <string.h>

enum {
    EIGHT = ECH__INT8_OUTPUTS,
    PAIR = ECH__INT8_PAIR,
    STAGED_BYTES = 96 << 10, /* of images that are widened at a time */
    CHUNK = 192,             /* rows that a thread takes at a time */
    SLACK = 16,              /* numbers after an image that vectors may touch */
};

typedef struct product {
    ech__kernel base;
    ech__int8_layer layer;
    const ech__int8_products *loops;
    int64_t staged_row, staged_image; /* numbers of s16 */
    int64_t group;                    /* images that are widened at a time */
    int64_t length;                   /* pairs of a run */
    int16_t *staged;
} product;

/* ---- widening ---- */

/* One row of pixels from blocks of channels to channels innermost. */
static void widen_pixels(const product *k, const char *x, int64_t plane, int16_t *to)
{
    const ech__int8_layer *l = &k->layer;
    for (int64_t c = 0; c < l->I; c += 8) {
        const char *from = x + c / l->B * plane + c % l->B;
        /* With one block only, what a vector writes too much is written again by the next pixel. */
        if (c + 8 <= l->I || l->I < 8) {
            k->loops->widen(from, l->is_signed, l->W, l->B, l->I, to + c);
            continue;
        }
        for (int64_t i = 0; i < l->W; i++) {
            for (int64_t j = 0; j < l->I - c; j++) {
                const char *at = from + i * l->B + j;
                to[i * l->I + c + j] =
                    (int16_t)(l->is_signed ? *(const int8_t *)at : *(const uint8_t *)at);
            }
        }
    }
}

static void widen_image(const product *k, int64_t n, int16_t *to)
{
    const ech__int8_layer *l = &k->layer;
    const int64_t plane = l->H * l->W * l->B, blocks = ceil_div(l->I, l->B);
    const size_t side = (size_t)(l->pad * l->I) * sizeof *to;
    const char *x = l->x + n * blocks * plane;
    for (int64_t h = -l->pad; h < l->H + l->pad; h++, to += k->staged_row) {
        if (h < 0 || h >= l->H) {
            memset(to, 0, (size_t)k->staged_row * sizeof *to);
            continue;
        }
        memset(to, 0, side);
        widen_pixels(k, x + h * l->W * l->B, plane, to + l->pad * l->I);
        memset(to + k->staged_row - l->pad * l->I, 0, side);
    }
    memset(to, 0, SLACK * sizeof *to);
}

static void widen_sample(const product *k, int64_t n, int16_t *to)
{
    const ech__int8_layer *l = &k->layer;
    const char *x = l->x + n * l->I;
    const int64_t whole = l->I / 8 * 8;
    k->loops->widen(x, l->is_signed, whole / 8, 8, 8, to);
    for (int64_t i = whole; i < l->I; i++)
        to[i] = (int16_t)(l->is_signed ? ((const int8_t *)x)[i] : ((const uint8_t *)x)[i]);
    memset(to + l->I, 0, SLACK * sizeof *to);
}

/* ---- tiles ---- */

/* A row of tiles: a pixel of y, in the images that are widened and in the batch. Rows are gone
 * through line by line, because a division for each would take as long as its products. */
typedef struct cursor {
    int64_t row, col, image; /* image: among those that are widened */
    const int16_t *x;
    char *y;
} cursor;

/* Row number `row` of the images from n on. */
static cursor cursor_at(const product *k, int64_t n, int64_t row, int64_t panel)
{
    const ech__int8_layer *l = &k->layer;
    const int64_t pixels = l->P * l->Q, bytes = ech__dtype_bytes(l->type);
    cursor c = {.image = row / pixels, .row = row % pixels / l->Q, .col = row % l->Q};
    c.x = k->staged + c.image * k->staged_image + c.row * l->stride * k->staged_row +
          c.col * l->stride * l->I;
    c.y = ech__int8_layer_result(l, n + c.image, panel * EIGHT) + row % pixels * l->B * bytes;
    return c;
}

/* The next rows of a tile, up to `rows`; returns how many: those up to the end of the line of
 * pixels. */
static int take_line(const product *k, int64_t n, int64_t panel, int rows, cursor *c,
                     const int16_t **x, void **y)
{
    const ech__int8_layer *l = &k->layer;
    const int64_t x_step = l->stride * l->I, y_step = l->B * ech__dtype_bytes(l->type);
    const int count = (int)least(rows, l->Q - c->col);
    for (int r = 0; r < count; r++) {
        x[r] = c->x + r * x_step;
        y[r] = c->y + r * y_step;
    }
    c->x += count * x_step;
    c->y += count * y_step;
    c->col += count;
    if (c->col < l->Q)
        return count;
    c->col = 0;
    if (++c->row == l->P) {
        c->row = 0;
        c->image++;
        c->y = ech__int8_layer_result(l, n + c->image, panel * EIGHT);
    }
    c->x = k->staged + c->image * k->staged_image + c->row * l->stride * k->staged_row;
    return count;
}

static int valid_of(const ech__int8_layer *l, int64_t panel)
{
    return l->image ? EIGHT : (int)most(0, least(EIGHT, l->O - panel * EIGHT));
}

/* Rows [rows.first, rows.end) of the images from n on, for one or two panels. */
static void run_panels(const product *k, int64_t n, range rows, int64_t panel, int panels)
{
    const ech__int8_layer *l = &k->layer;
    const int64_t run = k->length * PAIR * EIGHT, pixels = l->P * l->Q;
    ech__int8_tile t = {.panels = panels,
                        .w = l->w + panel * l->K * run,
                        .w_panel = l->K * run,
                        .runs = l->K,
                        .length = k->length,
                        .x_run = k->staged_row,
                        .bias = l->biases + panel * EIGHT,
                        .scale = l->scales + panel * EIGHT,
                        .type = l->type,
                        .relu = l->relu,
                        /* Pairs of panels start at even ones: with blocks of 16 both are in one. */
                        .y_panel = l->image && l->B == EIGHT ? pixels * EIGHT : EIGHT,
                        .valid = {valid_of(l, panel), valid_of(l, panel + 1)}};
    const int tall = k->loops->rows[panels - 1];
    cursor c = cursor_at(k, n, rows.first, panel);
    for (int64_t row = rows.first; row < rows.end; row += tall) {
        t.rows = (int)least(tall, rows.end - row);
        for (int r = 0; r < t.rows;)
            r += take_line(k, n, panel, t.rows - r, &c, t.x + r, t.y + r);
        k->loops->tile(&t);
    }
}

/* The thread's share of all panels over the pixels of `count` images from n on. */
static void run_group(const product *k, int64_t n, int64_t count)
{
    const ech__int8_layer *l = &k->layer;
    const range images = share_of(count);
    for (int64_t i = images.first; i < images.end; i++) {
        int16_t *to = k->staged + i * k->staged_image;
        if (l->image)
            widen_image(k, n + i, to);
        else
            widen_sample(k, n + i, to);
    }
#pragma omp barrier
    const int64_t rows = count * l->P * l->Q, chunks = ceil_div(rows, CHUNK);
    const int64_t used = l->image ? l->outputs / EIGHT : ceil_div(l->O, EIGHT);
    const range mine = share_of(ceil_div(used, 2) * chunks);
    for (int64_t unit = mine.first; unit < mine.end; unit++) {
        const int64_t panel = unit / chunks * 2, first = unit % chunks * CHUNK;
        run_panels(k, n, (range){first, least(first + CHUNK, rows)}, panel,
                   (int)least(2, used - panel));
    }
#pragma omp barrier
}

static ech_status run(ech__kernel *base, const ech__scalars *scalars)
{
    (void)scalars;
    const product *k = (const product *)base;
#pragma omp parallel num_threads(k->base.device->threads)
    for (int64_t n = 0; n < k->layer.N; n += k->group)
        run_group(k, n, least(k->group, k->layer.N - n));
    return ECH_OK;
}

static ech_status prepare(ech__kernel *base)
{
    ech__int8_layer_factors(&((const product *)base)->layer);
    return ECH_OK;
}

/* ---- offering and creating ---- */

static void measure(const ech__cpu *cpu, const ech__kernel_desc *desc, product *k)
{
    *k = (product){.loops = cpu->loops->int8_products, .layer = ech__int8_layer_of(cpu, desc)};
    const ech__int8_layer *l = &k->layer;
    k->length = ceil_div(l->K * l->I, PAIR);
    k->staged_row = (l->W + 2 * l->pad) * l->I;
    k->staged_image = ech__round_up((l->H + 2 * l->pad) * k->staged_row + SLACK, SLACK);
    const int64_t fit = STAGED_BYTES / (k->staged_image * (int64_t)sizeof(int16_t));
    k->group = most(1, least(l->N, fit));
}

/* The weight in panels of 8 outputs and pairs of what is innermost: [O, I] or [O, K, K * I]. */
static ech__layout weight_layout(const ech__shape *shape, int64_t block)
{
    const int last = shape->ndims - 1;
    const int64_t pairs = ceil_div(shape->dims[last], PAIR);
    ech__layout layout = {
        .shape = *shape, .nblocks = 2, .block_axis = {0, last}, .block_size = {EIGHT, PAIR}};
    layout.padded[0] = ceil_div(shape->dims[0], block) * block;
    layout.padded[last] = pairs * PAIR;
    layout.strides[last] = EIGHT * PAIR;
    int64_t stride = pairs * EIGHT * PAIR;
    if (last == 2) {
        layout.padded[1] = shape->dims[1];
        layout.strides[1] = stride;
        stride *= shape->dims[1];
    }
    layout.strides[0] = stride;
    return layout;
}

static ech_status create_kernel(const ech__kernel_args *args, ech__kernel **out)
{
    product k;
    measure(ech__cpu_of(args->device), args->desc, &k);
    k.base = (ech__kernel){.run = run, .prepare = prepare};
    ech__int8_layer_bind(&k.layer, args->binding);
    k.staged = args->binding->scratch;
    return ech__kernel_make(args->device, &k, sizeof k, out);
}

void ech__int8_offer(const ech__kernel_desc *desc, ech__offer *offer)
{
    product k;
    measure(offer->cpu, desc, &k);
    const ech__layout weight = weight_layout(&desc->operands[1].layout.shape, k.layer.B);
    if (!ech__int8_layer_fits(&k.layer, desc) ||
        (!desc->operands[1].free && !ech__layout_equal(&desc->operands[1].layout, &weight)))
        return;
    ech__candidate *candidate = ech__offer_add(offer, desc, "int8", create_kernel);
    if (!candidate)
        return;
    candidate->layouts[1] = weight;
    candidate->scratch_bytes = k.group * k.staged_image * (int64_t)sizeof(int16_t);
    candidate->kept_bytes = ech__int8_layer_bytes(&k.layer);
    ech__int8_wino_offer(desc, candidate, offer);
}
