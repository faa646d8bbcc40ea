/* Operators on integers, on every kind of device: bit for bit what the reference gives. */
#include "support/op_harness.h"
#include "support/levels.h"
#include "base/rng.h"
#include "device/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

static ech__type matrix(ech_dtype dtype, int64_t rows, int64_t cols)
{
    return harness_type(dtype, 2, (int64_t[]){rows, cols});
}

static ech__type vector(ech_dtype dtype, int64_t length)
{
    return harness_type(dtype, 1, (int64_t[]){length});
}

static ech__type image(ech_dtype dtype, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return harness_type(dtype, 4, (int64_t[]){n, c, h, w});
}

/* The parameter of a product has the layout that the device chooses. */
enum { FREE_WEIGHT = 1u << 1 };

static void check_product(harness *h, const op_case *c)
{
    harness_forget(h);
    harness_collect(h, c);
    harness_check(h, c);
    harness_repeat(h, c);
}

static const ech_dtype INPUTS[] = {ECH_U8, ECH_S8};
static const ech_dtype RESULTS[] = {ECH_U8, ECH_S8, ECH_F32};

/* ---- products ---- */

static void check_linear(harness *h, int64_t N, int64_t I, int64_t O, int variant)
{
    const ech_dtype x = INPUTS[variant % 2];
    const ech__node node = {.op = ECH__OP_QLINEAR,
                            .nin = 4,
                            .attrs = {.dtype = RESULTS[variant % 3], .relu = variant % 4 >= 2}};
    const op_case c = harness_case(h, &node,
                                   (ech__type[]){matrix(x, N, I), matrix(ECH_S8, O, I),
                                                 vector(ECH_S32, O), vector(ECH_F32, O)},
                                   FREE_WEIGHT);
    check_product(h, &c);
}

static void linear(void **state)
{
    static const int64_t sizes[][3] = {{1, 1, 1},   {1, 2, 8},    {3, 5, 7},     {6, 16, 16},
                                       {7, 33, 17}, {64, 130, 9}, {13, 400, 24}, {5, 257, 130}};
    for (int i = 0; i < LENGTH(sizes); i++) {
        for (int variant = 0; variant < 12; variant++)
            check_linear(*state, sizes[i][0], sizes[i][1], sizes[i][2], variant);
    }
    check_linear(*state, 128, 400, 120, 0); /* lenet's */
}

typedef struct conv {
    int64_t N, I, H, W, O, K, stride, pad;
} conv;

/* What the attributes leave open comes from the sizes. */
static op_case conv_case(harness *h, const conv *c, const ech__attrs *attrs, ech_dtype x)
{
    ech__node node = {.op = ECH__OP_QCONV2D, .nin = 4, .attrs = *attrs};
    node.attrs.kernel = c->K;
    node.attrs.stride = c->stride;
    node.attrs.pad = c->pad;
    const int64_t w[] = {c->O, c->K, c->K * c->I};
    return harness_case(h, &node,
                        (ech__type[]){image(x, c->N, c->I, c->H, c->W), harness_type(ECH_S8, 3, w),
                                      vector(ECH_S32, c->O), vector(ECH_F32, c->O)},
                        FREE_WEIGHT);
}

static void check_conv(harness *h, const conv *c, int64_t bound, int variant)
{
    const ech__attrs attrs = {
        .dtype = RESULTS[variant % 3], .relu = variant % 4 >= 2, .bound = bound};
    const op_case one = conv_case(h, c, &attrs, INPUTS[variant % 2]);
    check_product(h, &one);
}

static void convolutions(void **state)
{
    static const conv shapes[] = {
        {1, 1, 1, 1, 1, 1, 1, 0},   {2, 3, 9, 7, 6, 5, 1, 0},   {1, 6, 14, 14, 16, 5, 1, 0},
        {3, 8, 5, 5, 8, 3, 1, 1},   {2, 16, 8, 8, 24, 3, 1, 1}, {1, 9, 7, 6, 11, 3, 2, 1},
        {2, 17, 4, 4, 40, 1, 2, 0}, {1, 32, 6, 6, 20, 3, 1, 2}, {4, 5, 4, 11, 3, 4, 3, 2},
    };
    for (int i = 0; i < LENGTH(shapes); i++) {
        for (int variant = 0; variant < 12; variant++)
            check_conv(*state, &shapes[i], 0, variant);
    }
    const conv wide = {1,  64, 10, 10,
                       64, 3,  1,  1}; /* more than one group of pixels, several panels */
    check_conv(*state, &wide, 0, 0);
}

/* By Winograd's way: channels of 16, odd sizes, tiles that hang over, more tiles than are computed at a time; and sums in one part, in
 * several, in as many as there are without a bound, and with a last part that is smaller. What is given as a bound is far above the
 * sums of these numbers. */
static void winograd(void **state)
{
    static const conv shapes[] = {
        {1, 16, 4, 4, 8, 3, 1, 1},    {2, 16, 5, 7, 24, 3, 1, 1},   {1, 32, 6, 6, 40, 3, 1, 0},
        {3, 48, 9, 10, 16, 3, 1, 2},  {1, 64, 32, 32, 32, 3, 1, 1}, {7, 112, 4, 4, 20, 3, 1, 1},
        {2, 336, 6, 5, 24, 3, 1, 1},  {50, 256, 4, 4, 40, 3, 1, 1}, {1, 16, 8, 8, 8, 3, 2, 1},
        {2, 16, 9, 7, 24, 3, 2, 1},   {1, 32, 11, 17, 40, 3, 2, 0}, {2, 48, 4, 4, 16, 3, 2, 2},
        {3, 64, 32, 32, 32, 3, 2, 1}, {60, 336, 8, 8, 24, 3, 2, 1},
    };
    static const int64_t bounds[] = {0, 15 << 20, 10 << 20, 4 << 20};
    for (int i = 0; i < LENGTH(shapes); i++) {
        for (int variant = 0; variant < (shapes[i].I < 64 ? 12 : 4); variant++)
            check_conv(*state, &shapes[i], bounds[variant % LENGTH(bounds)], variant);
    }
}

/* Every kernel, with inputs of 255 and weights of 127 and -128 in turns: each result has `terms` products. */
static void check_extremes(harness *h, const op_case *c, double terms)
{
    ech__candidate all[ECH__MAX_CANDIDATES];
    int count;
    assert_int_equal(h->device->ops->candidates(h->device, &c->desc, all, &count), ECH_OK);
    assert_true(count > 0);
    for (int k = 0; k < count; k++) {
        op_case fixed = *c;
        fixed.desc.operands[1] = (ech__operand){ECH_S8, all[k].layouts[1], false};
        op_data data = op_data_create(&fixed, DATA_EXACT, 1);
        const int64_t O = data.elems[2], pixels = data.elems[4] / O;
        for (int64_t i = 0; i < data.elems[0]; i++)
            data.at[0][i] = 255;
        for (int64_t i = 0; i < data.elems[1]; i++)
            data.at[1][i] = i / (data.elems[1] / O) % 2 ? -128 : 127;
        for (int64_t o = 0; o < O; o++) {
            data.at[2][o] = 0;
            data.at[3][o] = 1;
        }
        assert_int_equal(harness_run(h, h->device, &fixed, &all[k], false, &data), ECH_OK);
        for (int64_t i = 0; i < data.elems[4]; i++)
            assert_true(data.at[4][i] == (i / pixels % 2 ? -128.0 : 127.0) * 255 * terms);
        op_data_destroy(&data);
    }
}

/* The largest sums there are: all weights and numbers at their ends must not wrap around. */
static void extremes(void **state)
{
    harness *h = *state;
    const int64_t I = 512, O = 8;
    const ech__node node = {.op = ECH__OP_QLINEAR, .nin = 4, .attrs = {.dtype = ECH_F32}};
    const op_case linear = harness_case(h, &node,
                                        (ech__type[]){matrix(ECH_U8, 1, I), matrix(ECH_S8, O, I),
                                                      vector(ECH_S32, O), vector(ECH_F32, O)},
                                        FREE_WEIGHT);
    check_extremes(h, &linear, (double)I);
    for (int i = 0; i < 4; i++) { /* a bound is not known, or just right */
        const ech__attrs attrs = {.dtype = ECH_F32, .bound = i % 2 ? 9 * 64 * 255 * 128 : 0};
        const op_case image =
            conv_case(h, &(conv){1, I, 13, 12, O, 3, 1 + i / 2, 0}, &attrs, ECH_U8);
        check_extremes(h, &image, 9.0 * (double)I);
    }
}

/* ---- oneDNN's sums ---- */

/* The device offers them only where the processor has VNNI: there every operator must have one, and weights have all 8 bits. With
 * weights of 7 bits no other processor's sums can saturate either, so what oneDNN has there is asked for directly. */
typedef struct question {
    harness *h;
    const op_case *c;
    ech__candidate answer[ECH__MAX_CANDIDATES];
    int count;
} question;

static ech_status ask(void *arg)
{
    question *q = arg;
    ech__device *device = q->h->device;
    ech__offer offer = {device, ech__cpu_of(device), q->answer, 0};
    ech__onednn_offer_int8(&q->c->desc, &offer);
    q->count = offer.count;
    return ECH_OK;
}

static void check_onednn(harness *h, const ech__node *node, const ech__type *in)
{
    op_case c = harness_case(h, node, in, 0);
    question q = {.h = h, .c = &c};
    assert_int_equal(h->device->ops->call(h->device, ask, &q), ECH_OK);
    char text[OP_TEXT];
    const bool vnni = ech__onednn_has_vnni();
    if (q.count != 1 && vnni)
        fail_msg("%s: %d kernels of oneDNN", op_describe(&c.desc, NULL, text), q.count);
    for (int kind = 0; kind < DATA_KINDS && q.count; kind++) {
        op_data data = op_data_create(&c, (data_kind)kind, 7);
        for (int64_t i = 0; !vnni && i < data.elems[1]; i++)
            data.at[1][i] = data.at[1][i] < 0 ? ceil(data.at[1][i] / 2) : floor(data.at[1][i] / 2);
        op_data expected = op_data_copy(&data);
        harness_expect(h, &c, &expected);
        assert_int_equal(harness_run(h, h->device, &c, &q.answer[0], false, &data), ECH_OK);
        for (int64_t i = 0; i < data.elems[4]; i++) {
            if (data.at[4][i] != expected.at[4][i])
                fail_msg("%s: element %lld is %g, not %g", op_describe(&c.desc, q.answer, text),
                         (long long)i, data.at[4][i], expected.at[4][i]);
        }
        op_data_destroy(&data);
        op_data_destroy(&expected);
    }
}

static void onednn(void **state)
{
    static const conv shapes[] = {
        {2, 16, 8, 8, 24, 3, 1, 1}, {1, 9, 7, 6, 11, 3, 2, 1},  {3, 3, 12, 12, 6, 5, 1, 0},
        {4, 32, 6, 6, 20, 1, 2, 0}, {2, 40, 5, 9, 17, 3, 1, 2}, {37, 16, 32, 32, 16, 3, 1, 1},
    };
    static const int64_t sizes[][3] = {{1, 16, 8}, {5, 33, 17}, {64, 400, 120}};
    harness *h = *state;
    for (int variant = 0; variant < 12; variant++) {
        const ech_dtype x = INPUTS[variant % 2];
        ech__node node = {.op = ECH__OP_QLINEAR,
                          .nin = 4,
                          .attrs = {.dtype = RESULTS[variant % 3], .relu = variant % 4 >= 2}};
        for (int i = 0; i < LENGTH(sizes); i++) {
            const int64_t N = sizes[i][0], I = sizes[i][1], O = sizes[i][2];
            check_onednn(*state, &node,
                         (ech__type[]){matrix(x, N, I), matrix(ECH_S8, O, I), vector(ECH_S32, O),
                                       vector(ECH_F32, O)});
        }
        node.op = ECH__OP_QCONV2D;
        for (int i = 0; i < LENGTH(shapes) - (variant > 1); i++) {
            const conv *c = &shapes[i];
            node.attrs.kernel = c->K;
            node.attrs.stride = c->stride;
            node.attrs.pad = c->pad;
            check_onednn(
                *state, &node,
                (ech__type[]){image(x, c->N, c->I, c->H, c->W),
                              harness_type(ECH_S8, 3, (int64_t[]){c->O, c->K, c->K * c->I}),
                              vector(ECH_S32, c->O), vector(ECH_F32, c->O)});
        }
    }
    if (h->runs)
        return;
    h->runs++; /* the teardown would take it for a test that forgot to run something */
    print_message(
        "oneDNN has no sums of integers in this build, or none at this level of instructions\n");
}

/* ---- all else ---- */

static void elementwise(void **state)
{
    harness *h = *state;
    const ech__type inputs[] = {matrix(ECH_F32, 3, 1100), image(ECH_F32, 2, 5, 3, 7),
                                image(ECH_F32, 1, 16, 4, 4)};
    for (int i = 0; i < LENGTH(inputs); i++) {
        for (int t = 0; t < 2; t++) {
            const ech__attrs attrs = {.dtype = INPUTS[t], .scale = i ? 0.0071 : 0.25};
            ech__type x = inputs[i];
            harness_check_node(h, &(ech__node){.op = ECH__OP_QUANTIZE, .nin = 1, .attrs = attrs},
                               &x);
            x.dtype = INPUTS[t];
            harness_check_node(h, &(ech__node){.op = ECH__OP_DEQUANTIZE, .nin = 1, .attrs = attrs},
                               &x);
        }
    }
}

/* An image that the program wrote is row-major. */
static void quantize_rows(void **state)
{
    harness *h = *state;
    const ech__type x = image(ECH_F32, 3, 3, 33, 32);
    const ech__node node = {
        .op = ECH__OP_QUANTIZE, .nin = 1, .attrs = {.dtype = ECH_S8, .scale = 0.0078}};
    op_case c = harness_case(h, &node, &x, 0);
    c.desc.operands[0].layout = ech__layout_plain(&x.shape);
    harness_check(h, &c);
}

static void sums(void **state)
{
    static const ech_dtype types[] = {ECH_U8, ECH_S8, ECH_F32};
    for (int a = 0; a < 3; a++) {
        for (int b = 0; b < 3; b++) {
            for (int y = 0; y < 3; y++) {
                const ech__attrs attrs = {
                    .dtype = types[y], .scale = 0.5, .scale2 = 0.77, .relu = (a + b + y) % 2 == 0};
                harness_check_node(
                    *state, &(ech__node){.op = ECH__OP_QADD, .nin = 2, .attrs = attrs},
                    (ech__type[]){image(types[a], 2, 11, 5, 6), image(types[b], 2, 11, 5, 6)});
            }
        }
    }
}

static void pools(void **state)
{
    static const int64_t windows[][3] = {{2, 2, 0}, {3, 2, 1}, {3, 1, 0}, {4, 4, 0}};
    for (int i = 0; i < LENGTH(windows); i++) {
        for (int t = 0; t < 2; t++) {
            const ech__type x = image(INPUTS[t], 2, 6 + 5 * i, 8, 9);
            const ech__attrs attrs = {.kernel = windows[i][0],
                                      .stride = windows[i][1],
                                      .pad = windows[i][2],
                                      .dtype = INPUTS[t],
                                      .scale = 0.11};
            harness_check_node(
                *state, &(ech__node){.op = ECH__OP_QMAXPOOL2D, .nin = 1, .attrs = attrs}, &x);
            harness_check_node(
                *state, &(ech__node){.op = ECH__OP_QAVGPOOL2D, .nin = 1, .attrs = attrs}, &x);
        }
    }
}

static void flatten(void **state)
{
    const int64_t channels[] = {1, 6, 16, 24};
    for (int i = 0; i < LENGTH(channels); i++) {
        const ech__type x = image(INPUTS[i % 2], 3, channels[i], 1 + i, 5);
        harness_check_node(*state, &(ech__node){.op = ECH__OP_QFLATTEN, .nin = 1}, &x);
    }
}

static void rounding(void **state)
{
    const ech__node node = {.op = ECH__OP_ROUND, .nin = 2, .attrs = {.low = -128, .high = 127}};
    const ech__node positive = {.op = ECH__OP_ROUND, .nin = 2, .attrs = {.low = 0, .high = 255}};
    harness_check_node(*state, &node, (ech__type[]){matrix(ECH_F32, 5, 13), vector(ECH_F32, 13)});
    harness_check_node(*state, &positive,
                       (ech__type[]){image(ECH_F32, 2, 11, 3, 4), vector(ECH_F32, 11)});
}

/* ---- performance ---- */

/* The layers of resnet18 at batch 32: 3x3 at stride 1, at the start of a stage, and beside it. */
static void performance(void **state)
{
    static const conv shapes[] = {
        {32, 3, 32, 32, 64, 3, 1, 1},    {32, 64, 32, 32, 64, 3, 1, 1},
        {32, 64, 32, 32, 128, 3, 2, 1},  {32, 64, 32, 32, 128, 1, 2, 0},
        {32, 128, 16, 16, 128, 3, 1, 1}, {32, 128, 16, 16, 256, 3, 2, 1},
        {32, 256, 8, 8, 256, 3, 1, 1},   {32, 256, 8, 8, 512, 3, 2, 1},
        {32, 512, 4, 4, 512, 3, 1, 1},
    };
    harness *h = *state;
    if (!getenv("ECH_PERF")) {
        h->runs++;
        skip();
    }
    for (int i = 0; i < LENGTH(shapes); i++) {
        op_case c = conv_case(h, &shapes[i], &(ech__attrs){.dtype = ECH_U8, .relu = true}, ECH_U8);
        harness_forget(h);
        harness_collect(h, &c);
        harness_measure(h, &c);
    }
    const ech__type sum[] = {image(ECH_S8, 32, 64, 32, 32), image(ECH_U8, 32, 64, 32, 32)};
    const ech__node add = {.op = ECH__OP_QADD,
                           .nin = 2,
                           .attrs = {.dtype = ECH_U8, .relu = true, .scale = 0.7, .scale2 = 0.3}};
    const op_case c = harness_case(h, &add, sum, 0);
    harness_measure(h, &c);
}

/* ---- the loops in plain C give the bits of those with vectors, which the device prefers ---- */

#ifdef ECH_X86
enum { LONG = 40 };

/* A tile of made-up numbers, through one set of loops. */
static void run_tile(const ech__int8_products *products, int rows, int panels, ech_dtype type,
                     char *out)
{
    static int16_t x[ECH__INT8_ROWS][3 * LONG];
    static int8_t w[2 * 3 * LONG / 2 * 16];
    static float bias[16], scale[16];
    for (int i = 0; i < ECH__INT8_ROWS * 3 * LONG; i++)
        x[i / (3 * LONG)][i % (3 * LONG)] =
            (int16_t)(255 * ech__rng_uniform(1, 0, (uint64_t)i) - (type == ECH_S8 ? 128 : 0));
    for (int i = 0; i < (int)sizeof w; i++)
        w[i] = (int8_t)(255 * ech__rng_uniform(2, 0, (uint64_t)i) - 128);
    for (int i = 0; i < 16; i++) {
        bias[i] = 4000 * ech__rng_uniform(3, 0, (uint64_t)i) - 2000;
        scale[i] = 0.004f * ech__rng_uniform(4, 0, (uint64_t)i);
    }
    ech__int8_tile t = {.rows = rows,
                        .panels = panels,
                        .w = w,
                        .w_panel = (int64_t)sizeof w / 2,
                        .runs = 3,
                        .length = LONG / 2,
                        .x_run = LONG,
                        .bias = bias,
                        .scale = scale,
                        .type = type,
                        .relu = rows % 2 == 0,
                        .y_panel = 8,
                        .valid = {8, 5}};
    for (int r = 0; r < rows; r++) {
        t.x[r] = x[r];
        t.y[r] = out + r * 16 * 4;
    }
    products->tile(&t);
}

static void plain_tiles(void **state)
{
    (void)state;
    for (int panels = 1; panels <= 2; panels++) {
        for (int rows = 1; rows <= ech__int8_products_generic.rows[panels - 1]; rows++) {
            for (int type = 0; type < 3; type++) {
                char a[ECH__INT8_ROWS * 64] = {0}, b[ECH__INT8_ROWS * 64] = {0};
                run_tile(&ech__int8_products_generic, rows, panels, RESULTS[type], a);
                run_tile(&ech__int8_products_avx2, rows, panels, RESULTS[type], b);
                assert_memory_equal(a, b, sizeof a);
                assert_true(a[0] || a[1] || a[2] || a[3] || a[4] || a[5] || a[6] || a[7]);
            }
        }
    }
}

static void plain_sums(void **state)
{
    (void)state;
    enum { ROWS = 7, STEP = 11 };
    int32_t acc[ROWS * STEP], shift[8];
    float bias[8], scale[8];
    for (int i = 0; i < ROWS * STEP; i++)
        acc[i] = (int32_t)(60000 * ech__rng_uniform(6, 0, (uint64_t)i)) - 30000;
    for (int i = 0; i < 8; i++) {
        shift[i] = 100 * i;
        bias[i] = (float)(i - 4) * 1000;
        scale[i] = 0.01f;
    }
    for (int valid = 1; valid <= 8; valid++) {
        for (int variant = 0; variant < 12; variant++) {
            char y[2][ROWS * 64] = {{0}};
            ech__int8_sums t = {.acc = acc,
                                .acc_step = STEP,
                                .shift = shift,
                                .bias = bias,
                                .scale = scale,
                                .type = RESULTS[variant % 3],
                                .relu = variant % 4 >= 2,
                                .valid = valid,
                                .fills = variant % 2 && valid == 8,
                                .rows = ROWS,
                                .y_step = 64};
            t.y = y[0];
            ech__int8_products_generic.finish(&t);
            t.y = y[1];
            ech__int8_products_avx2.finish(&t);
            assert_memory_equal(y[0], y[1], sizeof y[0]);
        }
    }
}

/* Processors with longer vectors keep 16 channels together: Winograd's transform of a tile is the same, inside of the image and at
 * each of its borders. */
static void winograd_blocks(void **state)
{
    enum { SIZE = 11, CHANNELS = 32, MOST = 81 };
    const ech__int8_winograd_loops *const *strides = ech__loops_for(ECH__ISA_AVX2)->int8_winograd;
    static uint8_t apart[CHANNELS * SIZE * SIZE], together[CHANNELS * SIZE * SIZE];
    static int16_t v[2][MOST * CHANNELS];
    (void)state;
    for (int c = 0; c < CHANNELS; c++) {
        for (int i = 0; i < SIZE * SIZE; i++) {
            const uint8_t number = (uint8_t)(256 * ech__rng_uniform(5, (uint64_t)c, (uint64_t)i));
            apart[(c / 8 * SIZE * SIZE + i) * 8 + c % 8] = number;
            together[(c / 16 * SIZE * SIZE + i) * 16 + c % 16] = number;
        }
    }
    for (int k = 0; k < 2 * 9 * 2; k++) {
        const ech__int8_winograd_loops *loops = strides[k % 2];
        const int row = k / 2 % 3, col = k / 6 % 3; /* before, within and behind */
        const int h = row == 0 ? -1 : row == 1 ? 1 : SIZE + 1 - loops->side;
        const int w = col == 0 ? -1 : col == 1 ? 1 : SIZE + 1 - loops->side;
        ech__int8_wino_input t = {.top = h < 0,
                                  .left =
                                      w<0, .bottom = h + loops->side> SIZE ? SIZE - h : loops->side,
                                  .right = w + loops->side > SIZE ? SIZE - w : loops->side,
                                  .channels = CHANNELS,
                                  .is_signed = k >= 18,
                                  .v_point = CHANNELS};
        for (int wide = 0; wide < 2; wide++) {
            t.block = wide ? 16 : 8;
            t.line = SIZE * t.block;
            t.plane = SIZE * t.line;
            t.x = (const char *)(wide ? together : apart) + (h + t.top) * t.line +
                  (w + t.left) * t.block;
            t.v = v[wide];
            loops->input(&t);
        }
        assert_memory_equal(v[0], v[1], sizeof v[0]);
    }
}

static void check_loops(const ech__int8_loops *vectors)
{
    enum { N = 1000 };
    const ech__int8_loops *all[] = {&ech__int8_loops_generic, vectors};
    float x[N], wide[2][N];
    uint8_t whole[2][N];
    uint8_t joined[2][8 * N], apart[2][8 * N], pooled[2][9 * 8], lines[8 * 8];
    for (int i = 0; i < N; i++)
        x[i] = i % 7 ? 600 * ech__rng_uniform(5, 0, (uint64_t)i) - 300 : (float)(i / 7) + 0.5f;
    x[3] = 1e20f;
    x[4] = -1e20f;
    for (int type = 0; type < 2; type++) {
        for (int k = 0; k < 2; k++) {
            memset(apart[k], 0, sizeof apart[k]);
            all[k]->from_f32(N, x, INPUTS[type], whole[k]);
            all[k]->to_f32(N, whole[k], INPUTS[type], wide[k]);
            const uint8_t *const rows[8] = {whole[k], NULL, whole[k] + 1, whole[k] + 2};
            all[k]->join(N - 2, rows, joined[k], 8);
            all[k]->split(N - 2, joined[k], 8, 7, apart[k], N);
            all[k]->maxpool(&(ech__int8_pool){.x = whole[k],
                                              .y = pooled[k],
                                              .lines = lines,
                                              .H = 5,
                                              .W = 5,
                                              .P = 3,
                                              .Q = 3,
                                              .kernel = 3,
                                              .stride = 2,
                                              .pad = 1,
                                              .block = 8,
                                              .is_signed = type == 1});
        }
        assert_memory_equal(whole[0], whole[1], sizeof whole[0]);
        assert_memory_equal(wide[0], wide[1], sizeof wide[0]);
        assert_memory_equal(joined[0], joined[1], (N - 2) * 8);
        assert_memory_equal(apart[0], apart[1], sizeof apart[0]);
        assert_memory_equal(pooled[0], pooled[1], sizeof pooled[0]);
        for (int i = 0; i < N - 2; i++) {
            assert_int_equal(joined[0][8 * i + 1], 0);
            assert_int_equal(joined[0][8 * i + 3], whole[0][i + 2]);
            assert_int_equal(apart[0][2 * N + i], whole[0][i + 1]);
        }
        assert_int_equal(whole[0][3], type ? 127 : 255);
        assert_int_equal(whole[0][4], type ? 128 : 0);
    }
}

static void plain_loops(void **state)
{
    (void)state;
    check_loops(&ech__int8_loops_avx2);
    if (ech__isa_of_processor() >= ECH__ISA_AVX512)
        check_loops(&ech__int8_loops_avx512);
}
#endif

int main(void)
{
    static harness_target targets[] = {{ECH__DEVICE_CPU, 1}, {ECH__DEVICE_CPU, 3}};
#define TEST(f, i, more)                                                                           \
    {                                                                                              \
#f more, f, harness_setup, harness_teardown, &targets[i]                                   \
    }
#define ON_CPU(f) TEST(f, 0, ""), TEST(f, 1, ", three threads")
    const struct CMUnitTest tests[] = {
#ifdef ECH_X86
        cmocka_unit_test(plain_tiles),
        cmocka_unit_test(plain_sums),
        cmocka_unit_test(winograd_blocks),
        cmocka_unit_test(plain_loops),
#endif
        ON_CPU(linear),
        ON_CPU(convolutions),
        ON_CPU(winograd),
#ifdef ECH_X86
        ON_CPU(onednn),
#endif
        ON_CPU(extremes),
        ON_CPU(elementwise),
        ON_CPU(quantize_rows),
        ON_CPU(sums),
        ON_CPU(pools),
        ON_CPU(flatten),
        ON_CPU(rounding),
        TEST(performance, 0, ""),
    };
    return run_kernel_tests("int8", tests);
}
