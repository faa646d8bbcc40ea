/* Linear layers and convolutions of integers, over the tiles of int8.h.
 *
 * A few images at a time are widened to s16 with their channels innermost and a black border around, as many as stay
 * in the cache; then every output panel goes over their pixels. A linear layer is a convolution of images with one pixel. The
 * weight lies in panels of 8 outputs and pairs of inputs, in bytes. */
#include "device/cpu/int8.h"
#include "base/size.h"
#include "device/cpu/cpu.h"
#include "device/cpu/share.h"
#include "graph/op_quant.h"

#include <omp.h>
#include <string.h>

enum {
    Q = ECH__INT8_OUTPUTS,
    PAIR = ECH__INT8_PAIR,
    STAGED_BYTES = 96 << 10, /* of images that are widened at a time */
    CHUNK = 96,              /* rows that a thread takes at a time */
    SLACK = 16,              /* numbers behind an image that vectors may touch */
};

typedef struct product {
    ech__kernel base;
    ech__device *device;
    const ech__int8_isa *isa;
    bool image; /* a convolution: x and y are blocked by channels */
    bool is_signed, relu;
    ech_dtype type; /* of y */
    int64_t N, I, H, W, O;
    int64_t K, stride, pad, rows, cols; /* of the kernel; rows and cols: of y */
    int64_t B;                          /* channels in a block */
    int64_t outputs;                    /* O filled up */
    int64_t staged_row, staged_image;   /* numbers of s16 */
    int64_t group;                      /* images that are widened at a time */
    int64_t length;                     /* pairs of a run */
    const char *x;
    const int8_t *w;
    const int32_t *bias;
    const float *scale;
    char *y;
    float *biases, *scales; /* [outputs], in scratch */
    int16_t *staged;
} product;

/* ---- widening ---- */

/* One row of pixels from blocks of channels to channels innermost. */
static void widen_pixels(const product *k, const char *x, int64_t plane, int16_t *to)
{
    for (int64_t c = 0; c < k->I; c += 8) {
        const char *from = x + c / k->B * plane + c % k->B;
        /* With one block only, what a vector writes too much is written again by the next pixel. */
        if (c + 8 <= k->I || k->I < 8) {
            k->isa->widen(from, k->is_signed, k->W, k->B, k->I, to + c);
            continue;
        }
        for (int64_t i = 0; i < k->W; i++) {
            for (int64_t j = 0; j < k->I - c; j++) {
                const char *at = from + i * k->B + j;
                to[i * k->I + c + j] =
                    (int16_t)(k->is_signed ? *(const int8_t *)at : *(const uint8_t *)at);
            }
        }
    }
}

static void widen_image(const product *k, int64_t n, int16_t *to)
{
    const int64_t plane = k->H * k->W * k->B, blocks = ceil_div(k->I, k->B);
    const size_t side = (size_t)(k->pad * k->I) * sizeof *to;
    const char *x = k->x + n * blocks * plane;
    for (int64_t h = -k->pad; h < k->H + k->pad; h++, to += k->staged_row) {
        if (h < 0 || h >= k->H) {
            memset(to, 0, (size_t)k->staged_row * sizeof *to);
            continue;
        }
        memset(to, 0, side);
        widen_pixels(k, x + h * k->W * k->B, plane, to + k->pad * k->I);
        memset(to + k->staged_row - k->pad * k->I, 0, side);
    }
    memset(to, 0, SLACK * sizeof *to);
}

static void widen_sample(const product *k, int64_t n, int16_t *to)
{
    const char *x = k->x + n * k->I;
    const int64_t whole = k->I / 8 * 8;
    k->isa->widen(x, k->is_signed, whole / 8, 8, 8, to);
    for (int64_t i = whole; i < k->I; i++)
        to[i] = (int16_t)(k->is_signed ? ((const int8_t *)x)[i] : ((const uint8_t *)x)[i]);
    memset(to + k->I, 0, SLACK * sizeof *to);
}

/* ---- tiles ---- */

/* A row of tiles: a pixel of y, in the images that are widened and in the batch. Rows are gone through one by one, because a
 * division for each would take as long as its products. */
typedef struct cursor {
    int64_t row, col, image; /* image: among those that are widened */
    const int16_t *x;
    char *y;
} cursor;

/* Where image n of the batch has its first result of a panel. */
static char *result_at(const product *k, int64_t n, int64_t panel)
{
    const int64_t bytes = ech__dtype_bytes(k->type), first = panel * Q;
    if (!k->image)
        return k->y + (n * k->O + first) * bytes;
    const int64_t block = n * (k->outputs / k->B) + first / k->B;
    return k->y + (block * k->rows * k->cols * k->B + first % k->B) * bytes;
}

/* Row number `row` of the images from n on. */
static cursor cursor_at(const product *k, int64_t n, int64_t row, int64_t panel)
{
    const int64_t pixels = k->rows * k->cols, bytes = ech__dtype_bytes(k->type);
    cursor c = {.image = row / pixels, .row = row % pixels / k->cols, .col = row % k->cols};
    c.x = k->staged + c.image * k->staged_image + c.row * k->stride * k->staged_row +
          c.col * k->stride * k->I;
    c.y = result_at(k, n + c.image, panel) + row % pixels * k->B * bytes;
    return c;
}

static void advance(const product *k, int64_t n, int64_t panel, cursor *c)
{
    c->x += k->stride * k->I;
    c->y += k->B * ech__dtype_bytes(k->type);
    if (++c->col < k->cols)
        return;
    c->col = 0;
    if (++c->row == k->rows) {
        c->row = 0;
        c->image++;
        c->y = result_at(k, n + c->image, panel);
    }
    c->x = k->staged + c->image * k->staged_image + c->row * k->stride * k->staged_row;
}

static int valid_of(const product *k, int64_t panel)
{
    return k->image ? Q : (int)most(0, least(Q, k->O - panel * Q));
}

/* Rows [rows.first, rows.end) of the images from n on, for one or two panels. */
static void run_panels(const product *k, int64_t n, range rows, int64_t panel, int panels)
{
    const int64_t run = k->length * PAIR * Q, pixels = k->rows * k->cols;
    ech__int8_tile t = {.panels = panels,
                        .w = k->w + panel * k->K * run,
                        .w_panel = k->K * run,
                        .runs = k->K,
                        .length = k->length,
                        .x_run = k->staged_row,
                        .bias = k->biases + panel * Q,
                        .scale = k->scales + panel * Q,
                        .type = k->type,
                        .relu = k->relu,
                        /* Pairs of panels start at even ones: with blocks of 16 both are in one. */
                        .y_panel = k->image && k->B == Q ? pixels * Q : Q,
                        .valid = {valid_of(k, panel), valid_of(k, panel + 1)}};
    const int tall = k->isa->rows[panels - 1];
    cursor c = cursor_at(k, n, rows.first, panel);
    for (int64_t row = rows.first; row < rows.end; row += tall) {
        t.rows = (int)least(tall, rows.end - row);
        for (int r = 0; r < t.rows; r++, advance(k, n, panel, &c)) {
            t.x[r] = c.x;
            t.y[r] = c.y;
        }
        k->isa->tile(&t);
    }
}

/* The thread's share of all panels over the pixels of `count` images from n on. */
static void run_group(const product *k, int64_t n, int64_t count)
{
    const range images = share_of(count);
    for (int64_t i = images.first; i < images.end; i++) {
        int16_t *to = k->staged + i * k->staged_image;
        if (k->image)
            widen_image(k, n + i, to);
        else
            widen_sample(k, n + i, to);
    }
#pragma omp barrier
    const int64_t rows = count * k->rows * k->cols, chunks = ceil_div(rows, CHUNK);
    const int64_t used = k->image ? k->outputs / Q : ceil_div(k->O, Q);
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
    for (int64_t o = 0; o < k->outputs; o++) {
        k->biases[o] = o < k->O ? (float)k->bias[o] : 0;
        k->scales[o] = o < k->O ? k->scale[o] : 0;
    }
#pragma omp parallel num_threads(k->device->threads)
    for (int64_t n = 0; n < k->N; n += k->group)
        run_group(k, n, least(k->group, k->N - n));
    return ECH_OK;
}

static void destroy(ech__kernel *base)
{
    product *k = (product *)base;
    ech__delete(k->device->ctx, k, sizeof *k);
}

/* ---- offering and creating ---- */

static const ech__int8_isa *isa_of(const ech__cpu *cpu)
{
#ifdef ECH_X86
    if (cpu->vec != &ech__vec_generic)
        return &ech__int8_avx2;
#endif
    (void)cpu;
    return &ech__int8_generic;
}

/* The sizes; false where they are beyond what 32-bit sums or a scratch can take. */
static bool measure(const ech__cpu *cpu, const ech__kernel_desc *desc, product *k)
{
    const int64_t *x = desc->operands[0].layout.shape.dims;
    const int64_t *y = desc->operands[4].layout.shape.dims;
    const ech__attrs *a = &desc->attrs;
    *k = (product){.isa = isa_of(cpu),
                   .image = desc->op == ECH__OP_QCONV2D,
                   .is_signed = desc->operands[0].dtype == ECH_S8,
                   .relu = a->relu,
                   .type = a->dtype,
                   .N = x[0],
                   .I = x[1],
                   .H = 1,
                   .W = 1,
                   .O = desc->operands[1].layout.shape.dims[0],
                   .K = 1,
                   .stride = 1,
                   .rows = 1,
                   .cols = 1,
                   .B = cpu->vec->channels};
    if (k->image) {
        k->H = x[2];
        k->W = x[3];
        k->K = a->kernel;
        k->stride = a->stride;
        k->pad = a->pad;
        k->rows = y[2];
        k->cols = y[3];
    }
    k->outputs = ceil_div(k->O, k->B) * k->B;
    k->length = ceil_div(k->K * k->I, PAIR);
    k->staged_row = (k->W + 2 * k->pad) * k->I;
    k->staged_image = ech__round_up((k->H + 2 * k->pad) * k->staged_row + SLACK, SLACK);
    const int64_t fit = STAGED_BYTES / (k->staged_image * (int64_t)sizeof(int16_t));
    k->group = most(1, least(k->N, fit));
    return k->K * k->K * k->I <= INT32_MAX / (255 * 128);
}

/* The weight in panels of 8 outputs and pairs of what is innermost: [O, I] or [O, K, K * I]. */
static ech__layout weight_layout(const ech__shape *shape, int64_t block)
{
    const int last = shape->ndims - 1;
    const int64_t pairs = ceil_div(shape->dims[last], PAIR);
    ech__layout layout = {
        .shape = *shape, .nblocks = 2, .block_axis = {0, last}, .block_size = {Q, PAIR}};
    layout.padded[0] = ceil_div(shape->dims[0], block) * block;
    layout.padded[last] = pairs * PAIR;
    layout.strides[last] = Q * PAIR;
    int64_t stride = pairs * Q * PAIR;
    if (last == 2) {
        layout.padded[1] = shape->dims[1];
        layout.strides[1] = stride;
        stride *= shape->dims[1];
    }
    layout.strides[0] = stride;
    return layout;
}

static int64_t scratch_bytes(const product *k)
{
    return 2 * ech__round_up(k->outputs * (int64_t)sizeof(float), 64) +
           k->group * k->staged_image * (int64_t)sizeof(int16_t);
}

void ech__int8_offer(const ech__cpu *cpu, int threads, const ech__kernel_desc *desc,
                     ech__offer *offer)
{
    product k;
    if (!measure(cpu, desc, &k))
        return;
    const ech__layout weight = weight_layout(&desc->operands[1].layout.shape, k.B);
    if (!desc->operands[1].free && !ech__layout_equal(&desc->operands[1].layout, &weight))
        return;
    for (int i = 0; i < 5; i += 4) { /* x and y */
        const ech__layout *layout = &desc->operands[i].layout;
        const ech__layout wanted = k.image ? ech__layout_blocked_channels(&layout->shape, k.B)
                                           : ech__layout_plain(&layout->shape);
        if (!ech__layout_equal(layout, &wanted))
            return;
    }
    ech__candidate *candidate = ech__offer_add(offer, desc, "int8");
    if (!candidate)
        return;
    candidate->layouts[1] = weight;
    candidate->scratch_bytes = scratch_bytes(&k);
    ech__int8_wino_offer(cpu, threads, desc, candidate, offer);
}

ech_status ech__int8_create(ech__device *device, const ech__kernel_desc *desc,
                            const ech__binding *binding, ech__kernel **out)
{
    product *k = ech__new(device->ctx, sizeof *k);
    if (!k)
        return ech__fail(device->ctx, ECH_E_NOMEM, "no memory for a kernel");
    measure(ech__device_state(device), desc, k);
    k->base = (ech__kernel){.run = run, .destroy = destroy};
    k->device = device;
    k->x = binding->operands[0];
    k->w = binding->operands[1];
    k->bias = binding->operands[2];
    k->scale = binding->operands[3];
    k->y = binding->operands[4];
    const int64_t vector = ech__round_up(k->outputs, 64 / (int64_t)sizeof(float));
    k->biases = binding->scratch;
    k->scales = k->biases + vector;
    void *staged = k->scales + vector;
    k->staged = staged;
    *out = &k->base;
    return ECH_OK;
}
