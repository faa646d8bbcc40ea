/* What else there is in a network of integers: elementwise operators, pools and flattening, over
 * the loops of int8.h. Integers are converted to f32 in the cache where arithmetic needs it. */
#include "base/size.h"
#include "device/cpu/cpu.h"
#include "device/cpu/int8/int8.h"
#include "device/cpu/share.h"
#include "graph/op_quant.h"

#include <omp.h>
#include <string.h>

enum { PIECE = 1024 }; /* numbers that are converted at a time */

typedef struct int8_kernel int8_kernel;

struct int8_kernel {
    ech__kernel base;
    const ech__int8_loops *loops;
    void (*fn)(const int8_kernel *k);
    ech__kernel_desc desc;
    int64_t n; /* numbers of the first operand, padding included */
    int64_t B; /* channels in a block of an image */
    int64_t N, C, blocks, pixels;
    void *at[ECH__MAX_OPERANDS];
    uint8_t *scratch;
};

static ech_dtype type_of(const int8_kernel *k, int operand)
{
    return k->desc.operands[operand].dtype;
}

/* The address of number i of an operand. */
static void *number_at(const int8_kernel *k, int operand, int64_t i)
{
    return (char *)k->at[operand] + i * ech__dtype_bytes(type_of(k, operand));
}

/* Runs body for pieces [first, first + count) of n numbers; threads take neighbours. */
#define FOR_PIECES(k, body)                                                                        \
    do {                                                                                           \
        _Pragma("omp parallel for schedule(static) num_threads((k)->base.device->threads)") for (  \
            int64_t first = 0; first < (k)->n; first += PIECE)                                     \
        {                                                                                          \
            const int64_t count = least(PIECE, (k)->n - first);                                    \
            body;                                                                                  \
        }                                                                                          \
    } while (0)

/* ---- element by element ---- */

/* Pixels [first, first + count) of the image's channels from c on, up to eight, into y of a
 * block of channels. */
static void quantize_piece(const int8_kernel *k, int64_t n, int64_t c, int64_t first, int64_t count,
                           uint8_t *y)
{
    uint8_t whole[8][PIECE];
    const uint8_t *rows[8] = {NULL};
    for (int64_t i = 0; i < least(8, k->C - c); i++) {
        const float *x = (const float *)k->at[0] + (n * k->C + c + i) * k->pixels;
        float spread[PIECE];
        k->loops->divide(count, x + first, (float)k->desc.attrs.scale, spread);
        k->loops->from_f32(count, spread, type_of(k, 1), whole[i]);
        rows[i] = whole[i];
    }
    k->loops->join(count, rows, y + first * k->B, k->B);
}

/* x[N][C][pixels] in rows -> y[N][C/B][pixels][B] */
static void quantize_rows(const int8_kernel *k)
{
#pragma omp parallel for schedule(static) num_threads(k->base.device->threads)
    for (int64_t plane = 0; plane < k->N * k->blocks; plane++) {
        const int64_t n = plane / k->blocks, c0 = plane % k->blocks * k->B;
        uint8_t *y = (uint8_t *)k->at[1] + plane * k->pixels * k->B;
        for (int64_t first = 0; first < k->pixels; first += PIECE) {
            for (int64_t c = 0; c < k->B; c += 8)
                quantize_piece(k, n, c0 + c, first, least(PIECE, k->pixels - first), y + c);
        }
    }
}

static void quantize(const int8_kernel *k)
{
    const float scale = (float)k->desc.attrs.scale;
    if (!ech__layout_equal(&k->desc.operands[0].layout, &k->desc.operands[1].layout)) {
        quantize_rows(k);
        return;
    }
    FOR_PIECES(k, {
        float spread[PIECE];
        k->loops->divide(count, number_at(k, 0, first), scale, spread);
        k->loops->from_f32(count, spread, type_of(k, 1), number_at(k, 1, first));
    });
}

static void dequantize(const int8_kernel *k)
{
    const float scale = (float)k->desc.attrs.scale;
    FOR_PIECES(k, {
        float spread[PIECE];
        k->loops->to_f32(count, number_at(k, 0, first), type_of(k, 0), spread);
        k->loops->multiply(count, spread, scale, number_at(k, 1, first));
    });
}

static void qadd_bytes(const int8_kernel *k)
{
    const ech__attrs *a = &k->desc.attrs;
    FOR_PIECES(k, {
        k->loops->add_bytes(&(ech__int8_sum){.n = count,
                                             .a = number_at(k, 0, first),
                                             .b = number_at(k, 1, first),
                                             .y = number_at(k, 2, first),
                                             .a_type = type_of(k, 0),
                                             .b_type = type_of(k, 1),
                                             .y_type = type_of(k, 2),
                                             .scale = (float)a->scale,
                                             .scale2 = (float)a->scale2,
                                             .relu = a->relu});
    });
}

static void qadd(const int8_kernel *k)
{
    const ech__attrs *a = &k->desc.attrs;
    if (ech__is_int8(type_of(k, 0)) && ech__is_int8(type_of(k, 1)) && ech__is_int8(type_of(k, 2))) {
        qadd_bytes(k);
        return;
    }
    FOR_PIECES(k, {
        float x[PIECE];
        float z[PIECE];
        float sum[PIECE];
        k->loops->to_f32(count, number_at(k, 0, first), type_of(k, 0), x);
        k->loops->to_f32(count, number_at(k, 1, first), type_of(k, 1), z);
        k->loops->add(count, x, (float)a->scale, z, (float)a->scale2, a->relu, sum);
        if (type_of(k, 2) == ECH_F32) { /* whole numbers that nothing saturates */
            const float one = 1;
            k->loops->round(count, sum, &one, 1, -0x1p24f, 0x1p24f, number_at(k, 2, first));
        } else {
            k->loops->from_f32(count, sum, type_of(k, 2), number_at(k, 2, first));
        }
    });
}

/* Channels of a matrix are its columns; an image has blocks of them. */
static void round_scaled(const int8_kernel *k)
{
    const ech__attrs *a = &k->desc.attrs;
    const float *scale = k->at[1];
    const bool image = k->desc.operands[0].layout.shape.ndims == 4;
    const int64_t planes = image ? k->N * k->blocks : k->N;
    const int64_t plane = image ? k->pixels * k->B : k->C;
#pragma omp parallel for schedule(static) num_threads(k->base.device->threads)
    for (int64_t i = 0; i < planes; i++) {
        float block[16] = {0}; /* padding stays 0 */
        const int64_t c0 = image ? i % k->blocks * k->B : 0;
        for (int64_t c = 0; image && c < k->B && c0 + c < k->C; c++)
            block[c] = scale[c0 + c];
        k->loops->round(plane, number_at(k, 0, i * plane), image ? block : scale,
                        image ? k->B : k->C, (float)a->low, (float)a->high,
                        number_at(k, 2, i * plane));
    }
}

/* ---- pools: x[N][C/B][H][W][B] ---- */

/* The part of a window inside the image, along one axis. */
static range window(int64_t place, int64_t length, const ech__attrs *a)
{
    const int64_t first = place * a->stride - a->pad;
    return (range){most(first, 0), least(first + a->kernel, length)};
}

/* The average of eight channels at one place of y. */
static void average_at(const int8_kernel *k, const char *x, int64_t p, int64_t q, void *y)
{
    const ech__attrs *a = &k->desc.attrs;
    const int64_t *dims = k->desc.operands[0].layout.shape.dims;
    const range rows = window(p, dims[2], a), cols = window(q, dims[3], a);
    int32_t sums[8] = {0};
    float spread[8];
    for (int64_t h = rows.first; h < rows.end; h++)
        k->loops->sums(x + (h * dims[3] + cols.first) * k->B, type_of(k, 0), cols.end - cols.first,
                       k->B, sums);
    for (int c = 0; c < 8; c++)
        spread[c] = (float)sums[c] * (float)a->scale;
    k->loops->from_f32(8, spread, type_of(k, 1), y);
}

static void qavgpool(const int8_kernel *k)
{
    const int64_t *out = k->desc.operands[1].layout.shape.dims, places = out[2] * out[3];
#pragma omp parallel for schedule(static) num_threads(k->base.device->threads)
    for (int64_t plane = 0; plane < k->N * k->blocks; plane++) {
        const char *x = (const char *)k->at[0] + plane * k->pixels * k->B;
        char *y = (char *)k->at[1] + plane * places * k->B;
        for (int64_t i = 0; i < places; i++) {
            for (int64_t c = 0; c < k->B; c += 8)
                average_at(k, x + c, i / out[3], i % out[3], y + i * k->B + c);
        }
    }
}

/* Bytes of a line of pixels of x and one of y, in a block of channels. */
static int64_t line_bytes(const int8_kernel *k)
{
    const ech__operand *operands = k->desc.operands;
    return ech__round_up(
        (operands[0].layout.shape.dims[3] + operands[1].layout.shape.dims[3]) * k->B, 64);
}

static void qmaxpool(const int8_kernel *k)
{
    const ech__attrs *a = &k->desc.attrs;
    const int64_t *in = k->desc.operands[0].layout.shape.dims;
    const int64_t *out = k->desc.operands[1].layout.shape.dims;
#pragma omp parallel for schedule(static) num_threads(k->base.device->threads)
    for (int64_t plane = 0; plane < k->N * k->blocks; plane++)
        k->loops->maxpool(
            &(ech__int8_pool){.x = (const uint8_t *)k->at[0] + plane * k->pixels * k->B,
                              .y = (uint8_t *)k->at[1] + plane * out[2] * out[3] * k->B,
                              .lines = k->scratch + omp_get_thread_num() * line_bytes(k),
                              .H = in[2],
                              .W = in[3],
                              .P = out[2],
                              .Q = out[3],
                              .kernel = a->kernel,
                              .stride = a->stride,
                              .pad = a->pad,
                              .block = k->B,
                              .is_signed = type_of(k, 0) == ECH_S8});
}

/* x[N][C/B][pixels][B] -> rows[N][C][pixels] */
static void flatten(const int8_kernel *k)
{
#pragma omp parallel for schedule(static) num_threads(k->base.device->threads)
    for (int64_t plane = 0; plane < k->N * k->blocks; plane++) {
        const int64_t n = plane / k->blocks, c0 = plane % k->blocks * k->B;
        const uint8_t *x = (const uint8_t *)k->at[0] + plane * k->pixels * k->B;
        for (int64_t c = c0; c < least(c0 + k->B, k->C); c += 8)
            k->loops->split(k->pixels, x + c - c0, k->B, least(8, k->C - c),
                            (uint8_t *)k->at[1] + (n * k->C + c) * k->pixels, k->pixels);
    }
}

/* ---- offering and creating ---- */

static void (*const functions[ECH__OP_COUNT])(const int8_kernel *k) = {
    [ECH__OP_QUANTIZE] = quantize,   [ECH__OP_DEQUANTIZE] = dequantize,
    [ECH__OP_QADD] = qadd,           [ECH__OP_ROUND] = round_scaled,
    [ECH__OP_QMAXPOOL2D] = qmaxpool, [ECH__OP_QAVGPOOL2D] = qavgpool,
    [ECH__OP_QFLATTEN] = flatten,
};

/* Images are blocked by channels, but for one that is quantized as the program wrote it. */
static bool layouts_fit(const ech__kernel_desc *desc, int64_t B)
{
    for (int i = 0; i < desc->nin + desc->nout; i++) {
        const ech__layout *layout = &desc->operands[i].layout;
        const bool rows = layout->shape.ndims != 4 ||
                          (desc->op == ECH__OP_QUANTIZE && i == 0 && ech__layout_is_plain(layout));
        if (rows ? !ech__layout_is_plain(layout) : !ech__is_blocked(layout, B))
            return false;
    }
    return true;
}

static void measure(const ech__cpu *cpu, const ech__kernel_desc *desc, int8_kernel *k)
{
    const ech__shape *shape = &desc->operands[0].layout.shape;
    *k = (int8_kernel){.loops = cpu->loops->int8,
                       .fn = functions[desc->op],
                       .desc = *desc,
                       .B = cpu->loops->channels,
                       .N = shape->ndims ? shape->dims[0] : 1,
                       .C = shape->ndims > 1 ? shape->dims[1] : 1,
                       .pixels = shape->ndims == 4 ? shape->dims[2] * shape->dims[3] : 1};
    k->blocks = ceil_div(k->C, k->B);
    ech__layout_extent(&desc->operands[0].layout, &k->n);
}

static ech_status run(ech__kernel *base, const ech__scalars *scalars)
{
    (void)scalars;
    const int8_kernel *k = (const int8_kernel *)base;
    k->fn(k);
    return ECH_OK;
}

static ech_status create_kernel(const ech__kernel_args *args, ech__kernel **out)
{
    int8_kernel k;
    measure(ech__cpu_of(args->device), args->desc, &k);
    k.base = (ech__kernel){.run = run};
    memcpy(k.at, args->binding->operands, sizeof k.at);
    k.scratch = args->binding->scratch;
    return ech__kernel_make(args->device, &k, sizeof k, out);
}

void ech__int8_image_offer(const ech__kernel_desc *desc, ech__offer *offer)
{
    if (!functions[desc->op] || !layouts_fit(desc, offer->cpu->loops->channels))
        return;
    ech__candidate *candidate = ech__offer_add(offer, desc, "int8 loops", create_kernel);
    int8_kernel k;
    measure(offer->cpu, desc, &k);
    if (candidate && desc->op == ECH__OP_QMAXPOOL2D)
        candidate->scratch_bytes = offer->device->threads * line_bytes(&k);
}
