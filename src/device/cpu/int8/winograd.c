/* Convolutions of integers with 3 x 3 kernels, over the loops of int8_winograd.h. The weight
 * lies as in int8.c; its transform is kept. */
#include "device/cpu/int8/winograd.h"
#include "base/size.h"
#include "device/cpu/int8/layer.h"
#include "device/cpu/share.h"

#include <assert.h>
#include <omp.h>
#include <string.h>

enum {
    TILE = ECH__INT8_WINO_TILE,
    KINDS = ECH__INT8_WINO_KINDS,
    ROWS = ECH__INT8_WINO_ROWS,
    WIDE = ECH__INT8_WINO_WIDE,
    PANEL = 8,           /* outputs that are contiguous in the weight and in y */
    LINE = 64,           /* bytes */
    MOST_TILES = 48,     /* at a time; for each so many the transformed weight is read again */
    V_BYTES = 256 << 10, /* stay in the second cache, where that is enough for LEAST_TILES */
    LEAST_TILES = 24,
    M_BYTES = 256 << 10, /* of products at a time */
};

typedef struct wino {
    ech__kernel base;
    ech__int8_layer layer;
    const ech__int8_winograd_loops *loops;
    ech__int8_wino_input input;
    ech__int8_wino_output output; /* what all tiles have in common */
    int64_t down, across, tiles;  /* tiles of an image, each way; of the batch */
    int64_t points;               /* of a tile */
    int64_t T;                    /* tiles at a time */
    int64_t part;                 /* channels whose sums stay below the bound */
    int64_t groups, group;        /* of WIDE outputs: all, and at a time */
    int64_t v_point, m_point;     /* numbers from one point to the next */
    int16_t *u;
    char *own; /* V, M and sums of parts, of each thread */
} wino;

/* From point to point: whole lines, and an odd number of them, so that a tile's points do not
 * fall into few sets of the cache. */
static int64_t stride_of(int64_t numbers, int64_t bytes)
{
    return (ceil_div(numbers * bytes, LINE) | 1) * LINE / bytes;
}

static int64_t v_bytes(const wino *k)
{
    return k->points * k->v_point * (int64_t)sizeof(int16_t);
}

static int64_t m_bytes(const wino *k)
{
    return k->points * k->m_point * (int64_t)sizeof(int32_t);
}

/* Numbers of sums of a tile and a group. */
enum { SUMS = TILE * TILE * WIDE };

static int64_t own_bytes(const wino *k)
{
    const int64_t sums = k->part < k->layer.I ? k->T * k->group * SUMS : 0;
    return v_bytes(k) + m_bytes(k) + sums * (int64_t)sizeof(int32_t);
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

static void transform_tile(const wino *k, const place *p, int16_t *v)
{
    const ech__int8_layer *l = &k->layer;
    const char *image = l->x + p->n * l->I * l->H * l->W;
    ech__int8_wino_input t = k->input;
    const int64_t side = k->loops->side;
    const int64_t h = p->row * l->stride - l->pad; /* of the tile's first pixel */
    const int64_t w = p->col * l->stride - l->pad;
    t.v = v;
    t.top = (int)least(side, most(0, -h));
    t.left = (int)least(side, most(0, -w));
    t.bottom = (int)most(t.top, least(side, l->H - h));
    t.right = (int)most(t.left, least(side, l->W - w));
    t.x = image + ((h + t.top) * l->W + w + t.left) * l->B;
    k->loops->input(&t);
}

/* What a thread works on: tiles and groups of outputs. */
typedef struct work {
    place tiles[MOST_TILES];
    int64_t count;
    range groups;
    const int16_t *v;
    int32_t *m, *sums;
} work;

/* Eight outputs of each half of a group, of tile i; after the channels from c on. */
static void finish_tile(const wino *k, const work *w, int64_t i, int64_t group, int64_t c)
{
    const ech__int8_layer *l = &k->layer;
    const place *p = &w->tiles[i];
    const int64_t at = (group - w->groups.first) * k->T + i;
    ech__int8_wino_output t = k->output;
    t.rows = (int)least(TILE, l->P - p->row);
    t.cols = (int)least(TILE, l->Q - p->col);
    t.first = c == 0;
    t.last = c + k->part >= l->I;
    for (int64_t o = group * WIDE; o < least((group + 1) * WIDE, l->outputs); o += PANEL) {
        t.m = w->m + at * WIDE + o % WIDE;
        t.sums = w->sums + at * SUMS + o % WIDE * TILE * TILE;
        t.bias = l->biases + o;
        t.scale = l->scales + o;
        t.y = ech__int8_layer_result(l, p->n, o) + p->row * t.y_row + p->col * t.y_pixel;
        k->loops->output(&t);
    }
}

/* Of a point, that of its line and that of its column. Those from the last on are of one kind. */
static int64_t kind_of(const wino *k, int64_t point)
{
    const int64_t side = k->loops->side;
    return least(point / side, KINDS - 1) * KINDS + least(point % side, KINDS - 1);
}

/* The part of the outputs that the channels from c on make. */
static void run_part(const wino *k, const work *w, int64_t c)
{
    const int64_t C = k->layer.I;
    for (int64_t point = 0; point < k->points; point++) {
        const int64_t kind = kind_of(k, point);
        for (int64_t g = w->groups.first; g < w->groups.end; g++)
            k->loops->product(&(ech__int8_wino_product){
                .v = w->v + point * k->v_point + c,
                .u = k->u + ((g * KINDS * KINDS + kind) * C + c) * WIDE,
                .v_row = C,
                .rows = w->count,
                .channels = least(k->part, C - c),
                .m = w->m + point * k->m_point + (g - w->groups.first) * k->T * WIDE});
    }
    for (int64_t i = 0; i < w->count; i++) {
        for (int64_t g = w->groups.first; g < w->groups.end; g++)
            finish_tile(k, w, i, g, c);
    }
}

static void run_tiles(const wino *k, int64_t first, int64_t count, char *own)
{
    int16_t *v = (int16_t *)own;
    work w = {.count = count,
              .v = v,
              .m = (int32_t *)(own + v_bytes(k)),
              .sums = (int32_t *)(own + v_bytes(k) + m_bytes(k))};
    for (int64_t i = 0; i < count; i++) {
        w.tiles[i] = place_of(k, first + i);
        transform_tile(k, &w.tiles[i], v + i * k->layer.I);
    }
    for (int64_t g = 0; g < k->groups; g += k->group) {
        w.groups = (range){g, least(g + k->group, k->groups)};
        for (int64_t c = 0; c < k->layer.I; c += k->part)
            run_part(k, &w, c);
    }
}

static ech_status run(ech__kernel *base, const ech__scalars *scalars)
{
    (void)scalars;
    const wino *k = (const wino *)base;
#pragma omp parallel num_threads(k->base.device->threads)
    {
        const range blocks = share_of(ceil_div(k->tiles, k->T));
        for (int64_t b = blocks.first; b < blocks.end; b++)
            run_tiles(k, b * k->T, least(k->T, k->tiles - b * k->T),
                      k->own + omp_get_thread_num() * own_bytes(k));
    }
    return ECH_OK;
}

/* ---- what is kept ---- */

static int64_t u_bytes(const wino *k)
{
    return k->groups * KINDS * KINDS * k->layer.I * WIDE * (int64_t)sizeof(int16_t);
}

static ech_status prepare(ech__kernel *base)
{
    const wino *k = (const wino *)base;
    const ech__int8_layer *l = &k->layer;
    ech__int8_layer_factors(l);
    memset(k->u, 0, (size_t)u_bytes(k)); /* a half without outputs stays so */
    for (int64_t o = 0; o < l->outputs; o += PANEL)
        k->loops->weight(l->w + o * 9 * l->I, l->I,
                         k->u + o / WIDE * KINDS * KINDS * l->I * WIDE + o % WIDE * 2);
    return ECH_OK;
}

/* ---- offering and creating ---- */

/* NULL where there is none. */
static const ech__int8_winograd_loops *loops_of(const ech__cpu *cpu, const ech__attrs *attrs)
{
    const bool fits = attrs->kernel == 3 && (attrs->stride == 1 || attrs->stride == 2);
    return fits ? cpu->loops->int8_winograd[attrs->stride - 1] : NULL;
}

/* How much is done at a time, by what stays in the caches. */
static void measure_blocks(int threads, wino *k)
{
    const int64_t C = k->layer.I, v_tile = k->points * C * (int64_t)sizeof(int16_t);
    const int64_t m_tile = k->points * WIDE * (int64_t)sizeof(int32_t);
    const int64_t fit = V_BYTES / v_tile;
    const int64_t wanted = fit >= LEAST_TILES ? least(fit, MOST_TILES) : MOST_TILES;
    const int64_t blocks = ceil_div(ceil_div(k->tiles, wanted), threads) * threads;
    /* A multiple of what a product takes, where there are as many. */
    k->T = least(k->tiles, ceil_div(ceil_div(k->tiles, blocks), ROWS) * ROWS);
    k->groups = ceil_div(k->layer.outputs, WIDE);
    /* Where the tiles do not stay in the second cache, more outputs are made each time they are
     * read. */
    k->group = k->T * v_tile <= V_BYTES ? 1 : most(1, least(k->groups, M_BYTES / (k->T * m_tile)));
    k->v_point = stride_of(k->T * C, (int64_t)sizeof(int16_t));
    k->m_point = stride_of(k->group * k->T * WIDE, (int64_t)sizeof(int32_t));
}

/* The channels of a part, by the bound of so many neighbours that the operator has. 0: even they
 * may be too much. */
static int64_t part_of(const ech__int8_winograd_loops *loops, int64_t channels, int64_t bound)
{
    const int64_t worst = 9 * ECH__BOUND_CHANNELS * 255 * 128;
    const int64_t fit = (loops->bound - 1) / (bound > 0 ? bound : worst);
    if (fit == 0)
        return 0;
    const int64_t units = ceil_div(channels, ECH__BOUND_CHANNELS), parts = ceil_div(units, fit);
    return least(channels, ceil_div(units, parts) * ECH__BOUND_CHANNELS);
}

static void measure(const ech__cpu *cpu, int threads, const ech__kernel_desc *desc, wino *k)
{
    *k = (wino){.loops = loops_of(cpu, &desc->attrs), .layer = ech__int8_layer_of(cpu, desc)};
    assert(k->loops); /* or nothing was offered */
    const ech__int8_layer *l = &k->layer;
    k->down = ceil_div(l->P, TILE);
    k->across = ceil_div(l->Q, TILE);
    k->tiles = l->N * k->down * k->across;
    k->points = k->loops->side * k->loops->side;
    k->part = part_of(k->loops, l->I, desc->attrs.bound);
    measure_blocks(threads, k);
    k->input = (ech__int8_wino_input){.block = l->B,
                                      .plane = l->H * l->W * l->B,
                                      .line = l->W * l->B,
                                      .channels = l->I,
                                      .is_signed = l->is_signed,
                                      .v_point = k->v_point};
    const int64_t bytes = ech__dtype_bytes(l->type);
    k->output = (ech__int8_wino_output){.m_point = k->m_point,
                                        .type = l->type,
                                        .relu = l->relu,
                                        .y_row = l->Q * l->B * bytes,
                                        .y_pixel = l->B * bytes};
}

static ech_status create_kernel(const ech__kernel_args *args, ech__kernel **out)
{
    wino k;
    measure(ech__cpu_of(args->device), args->device->threads, args->desc, &k);
    k.base = (ech__kernel){.run = run, .prepare = prepare};
    k.u = ech__int8_layer_bind(&k.layer, args->binding);
    k.own = args->binding->scratch;
    return ech__kernel_make(args->device, &k, sizeof k, out);
}

void ech__int8_wino_offer(const ech__kernel_desc *desc, const ech__candidate *like,
                          ech__offer *offer)
{
    const ech__int8_winograd_loops *loops = loops_of(offer->cpu, &desc->attrs);
    const int64_t channels = desc->operands[0].layout.shape.dims[1];
    if (desc->op != ECH__OP_QCONV2D || !loops || channels % 16 ||
        part_of(loops, channels, desc->attrs.bound) == 0)
        return;
    ech__candidate *candidate = ech__offer_add(offer, desc, "int8 winograd", create_kernel);
    if (!candidate)
        return;
    wino k;
    measure(offer->cpu, offer->device->threads, desc, &k);
    candidate->layouts[1] = like->layouts[1];
    candidate->scratch_bytes = offer->device->threads * own_bytes(&k);
    candidate->kept_bytes = ech__int8_layer_bytes(&k.layer) + u_bytes(&k);
}
