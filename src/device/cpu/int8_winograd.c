/* Convolutions of integers with 3 x 3 kernels at stride 1, over the loops of int8_winograd.h. The weight lies as in int8.c and is
 * transformed at every run: with many images that costs little, and with few the tuning finds int8.c faster. */
#include "device/cpu/int8_winograd.h"
#include "base/size.h"
#include "device/cpu/cpu.h"
#include "device/cpu/share.h"

#include <omp.h>
#include <string.h>

enum {
    POINTS = ECH__INT8_WINO_POINTS,
    SIDE = ECH__INT8_WINO_SIDE,
    TILE = ECH__INT8_WINO_TILE,
    PANEL = 8,           /* outputs */
    WIDE = 2 * PANEL,    /* outputs of a row of M */
    V_BYTES = 256 << 10, /* of the tiles that are transformed at a time */
    MOST_TILES = 24,
};

typedef struct wino {
    ech__kernel base;
    ech__device *device;
    const ech__int8_wino_isa *isa;
    ech__int8_wino_input input;
    ech__int8_wino_output output; /* what all tiles have in common */
    int64_t N, C, H, W, O, P, Q;  /* y has P rows and Q columns */
    int64_t pad, B, outputs;
    int64_t down, across, tiles; /* tiles of an image, each way; of the batch */
    int64_t T;                   /* tiles at a time */
    const char *x;
    const int8_t *w;
    const int32_t *bias;
    const float *scale;
    char *y;
    float *biases, *scales; /* [outputs] */
    int16_t *u;
    char *own; /* V and M of each thread */
} wino;

static int64_t v_bytes(const wino *k)
{
    return ech__round_up(POINTS * k->T * k->C * (int64_t)sizeof(int16_t), 64);
}

static int64_t own_bytes(const wino *k)
{
    return v_bytes(k) + ech__round_up(POINTS * k->T * WIDE * (int64_t)sizeof(int32_t), 64);
}

/* ---- tiles ---- */

typedef struct place {
    int64_t n, row, col; /* of the first pixel of y */
} place;

static place place_of(const wino *k, int64_t tile)
{
    const int64_t each = k->down * k->across, in = tile % each;
    return (place){tile / each, in / k->across * TILE, in % k->across * TILE};
}

static void transform_tile(const wino *k, int64_t tile, int16_t *v)
{
    const place p = place_of(k, tile);
    const char *image = k->x + p.n * ceil_div(k->C, k->B) * k->H * k->W * k->B;
    ech__int8_wino_input t = k->input;
    t.v = v;
    for (int64_t point = 0; point < POINTS; point++) {
        const int64_t h = p.row - k->pad + point / SIDE, w = p.col - k->pad + point % SIDE;
        const bool inside = h >= 0 && h < k->H && w >= 0 && w < k->W;
        t.pixel[point] = inside ? image + (h * k->W + w) * k->B : NULL;
    }
    k->isa->input(&t);
}

/* One or two panels of the outputs of `count` tiles. */
static void finish_tiles(const wino *k, int64_t first, int64_t count, int64_t panel, int panels,
                         const int32_t *m)
{
    const int64_t bytes = ech__dtype_bytes(k->output.type), pixels = k->P * k->Q;
    ech__int8_wino_output t = k->output;
    for (int64_t i = 0; i < count; i++) {
        const place p = place_of(k, first + i);
        t.rows = (int)least(TILE, k->P - p.row);
        t.cols = (int)least(TILE, k->Q - p.col);
        for (int half = 0; half < panels; half++) {
            const int64_t o = (panel + half) * PANEL, block = p.n * (k->outputs / k->B) + o / k->B;
            t.m = m + i * WIDE + half * PANEL;
            t.bias = k->biases + o;
            t.scale = k->scales + o;
            t.y = k->y + ((block * pixels + p.row * k->Q + p.col) * k->B + o % k->B) * bytes;
            k->isa->output(&t);
        }
    }
}

static void run_tiles(const wino *k, int64_t first, int64_t count, char *own)
{
    int16_t *v = (int16_t *)own;
    int32_t *m = (int32_t *)(own + v_bytes(k));
    const int64_t u_panel = k->C * PANEL, u_point = k->outputs * k->C;
    for (int64_t i = 0; i < count; i++)
        transform_tile(k, first + i, v + i * k->C);
    for (int64_t panel = 0; panel < k->outputs / PANEL; panel += 2) {
        const int panels = (int)least(2, k->outputs / PANEL - panel);
        for (int64_t point = 0; point < POINTS; point++) {
            const ech__int8_wino_product t = {.v = v + point * k->T * k->C,
                                              .u = k->u + point * u_point + panel * u_panel,
                                              .rows = count,
                                              .panels = panels,
                                              .channels = k->C,
                                              .u_panel = u_panel,
                                              .m = m + point * k->T * WIDE};
            k->isa->product(&t);
        }
        finish_tiles(k, first, count, panel, panels, m);
    }
}

static void transform_weight(const wino *k)
{
    const range panels = share_of(k->outputs / PANEL);
    for (int64_t p = panels.first; p < panels.end; p++)
        k->isa->weight(k->w + p * 9 * k->C * PANEL, k->C, k->u + p * k->C * PANEL,
                       k->outputs * k->C);
}

static ech_status run(ech__kernel *base, const ech__scalars *scalars)
{
    (void)scalars;
    const wino *k = (const wino *)base;
    for (int64_t o = 0; o < k->outputs; o++) {
        k->biases[o] = o < k->O ? (float)k->bias[o] : 0;
        k->scales[o] = o < k->O ? k->scale[o] : 0;
    }
#pragma omp parallel num_threads(k->device->threads)
    {
        transform_weight(k);
#pragma omp barrier
        const range blocks = share_of(ceil_div(k->tiles, k->T));
        for (int64_t b = blocks.first; b < blocks.end; b++)
            run_tiles(k, b * k->T, least(k->T, k->tiles - b * k->T),
                      k->own + omp_get_thread_num() * own_bytes(k));
    }
    return ECH_OK;
}

static void destroy(ech__kernel *base)
{
    wino *k = (wino *)base;
    ech__delete(k->device->ctx, k, sizeof *k);
}

/* ---- offering and creating ---- */

static const ech__int8_wino_isa *isa_of(const ech__cpu *cpu)
{
#ifdef ECH_X86
    if (cpu->vec != &ech__vec_generic)
        return &ech__int8_wino_avx2;
#endif
    (void)cpu;
    return NULL;
}

static void measure(const ech__cpu *cpu, const ech__kernel_desc *desc, wino *k)
{
    const int64_t *x = desc->operands[0].layout.shape.dims;
    const int64_t *y = desc->operands[4].layout.shape.dims;
    *k = (wino){.isa = isa_of(cpu),
                .N = x[0],
                .C = x[1],
                .H = x[2],
                .W = x[3],
                .O = y[1],
                .P = y[2],
                .Q = y[3],
                .pad = desc->attrs.pad,
                .B = cpu->vec->channels};
    k->outputs = ceil_div(k->O, k->B) * k->B;
    k->down = ceil_div(k->P, TILE);
    k->across = ceil_div(k->Q, TILE);
    k->tiles = k->N * k->down * k->across;
    /* A multiple of what a product takes, where there are as many. */
    const int64_t fit = V_BYTES / (POINTS * k->C * (int64_t)sizeof(int16_t)), six = 6;
    k->T = least(k->tiles, most(six, least(MOST_TILES, fit / six * six)));
    k->input = (ech__int8_wino_input){.block = k->B,
                                      .plane = k->H * k->W * k->B,
                                      .channels = k->C,
                                      .is_signed = desc->operands[0].dtype == ECH_S8,
                                      .v_point = k->T * k->C};
    const int64_t bytes = ech__dtype_bytes(desc->attrs.dtype);
    k->output = (ech__int8_wino_output){.m_point = k->T * WIDE,
                                        .type = desc->attrs.dtype,
                                        .relu = desc->attrs.relu,
                                        .y_row = k->Q * k->B * bytes,
                                        .y_pixel = k->B * bytes};
}

/* bias and scale, U, and V and M of each thread */
static int64_t scratch_bytes(const wino *k, int threads)
{
    return 2 * ech__round_up(k->outputs * (int64_t)sizeof(float), 64) +
           ech__round_up(POINTS * k->outputs * k->C * (int64_t)sizeof(int16_t), 64) +
           threads * own_bytes(k);
}

void ech__int8_wino_offer(const ech__cpu *cpu, int threads, const ech__kernel_desc *desc,
                          const ech__candidate *like, ech__offer *offer)
{
    const ech__attrs *a = &desc->attrs;
    const int64_t channels = desc->operands[0].layout.shape.dims[1];
    if (desc->op != ECH__OP_QCONV2D || a->kernel != 3 || a->stride != 1 || channels % 16 ||
        a->bound <= 0 || a->bound >= ECH__INT8_WINO_BOUND || !isa_of(cpu))
        return;
    ech__candidate *candidate = ech__offer_add(offer, desc, "int8 winograd");
    if (!candidate)
        return;
    wino k;
    measure(cpu, desc, &k);
    candidate->layouts[1] = like->layouts[1];
    candidate->scratch_bytes = scratch_bytes(&k, threads);
}

ech_status ech__int8_wino_create(ech__device *device, const ech__kernel_desc *desc,
                                 const ech__binding *binding, ech__kernel **out)
{
    wino *k = ech__new(device->ctx, sizeof *k);
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
    void *u = k->scales + vector;
    k->u = u;
    k->own = (char *)u + ech__round_up(POINTS * k->outputs * k->C * (int64_t)sizeof(int16_t), 64);
    *out = &k->base;
    return ECH_OK;
}
