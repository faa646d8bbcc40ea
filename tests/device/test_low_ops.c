/* Every operator that works on 16 bits, in bf16 and f16, on every kind of device, against the f64 reference: what is computed in
 * f32 has the bounds of f32 (support/op_harness.c has them, by the length of the sums), and rounding it to the type adds half
 * a unit in its last place: 2^-8 of the number in bf16, 2^-11 in f16. */
#include "device/cpu/cpu.h"
#include "support/op_cases.h"
#include "support/levels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

static const ech_dtype TYPES[] = {ECH_BF16, ECH_F16};

/* With several threads only the last of the sizes counts: the others have nothing to share out. */
static int first_of(const harness *h, int count)
{
    return h->device->threads > 1 ? count - 1 : 0;
}

/* ---- operators with a weight ---- */

/* Layouts are those that the device would choose for each operand apart: a plan has copies of 16-bit weights. */
static void check_apart(harness *h, const op_case *cases, int count)
{
    for (int i = 0; i < count; i++) {
        harness_forget(h);
        harness_collect(h, &cases[i]);
        harness_check(h, &cases[i]);
    }
}

static void layer_cases(harness *h, ech_dtype low, int64_t N, int64_t I, int64_t O, op_case *out)
{
    op_row rows[OP_ROWS];
    row_cases(h, rows, layer_rows(low, N, I, O, rows), false, out);
}

static const int64_t LAYERS[][3] = {{1, 1, 1},    {3, 5, 17},    {7, 130, 64},
                                    {64, 64, 17}, {5, 257, 130}, {17, 270, 290}};

static void linear(void **state)
{
    for (int t = 0; t < LENGTH(TYPES); t++) {
        for (int s = first_of(*state, LENGTH(LAYERS)); s < LENGTH(LAYERS); s++) {
            /* Gradients of later micro-batches are added to those of the first, which stay f32. */
            op_case cases[LAYER_ROWS];
            layer_cases(*state, TYPES[t], LAYERS[s][0], LAYERS[s][1], LAYERS[s][2], cases);
            check_apart(*state, cases, LAYER_ROWS);
        }
    }
}

/* A weight that has no copy yet stays f32. */
static void linear_with_an_f32_weight(void **state)
{
    harness *h = *state;
    for (int t = 0; t < LENGTH(TYPES); t++) {
        const ech__type in[] = {matrix_of(TYPES[t], 7, 33), matrix_of(ECH_F32, 20, 33),
                                vector_of(20)};
        harness_check_node(h, &(ech__node){.op = ECH__OP_LINEAR, .nin = 3}, in);
    }
}

static const conv_shape CONVS[] = {
    {1, 1, 1, 1, 1, 1, 1, 0},                               /* one pixel of one channel */
    {1, 3, 12, 12, 6, 5, 1, 0},                             /* LeNet's first, on less */
    {3, 16, 8, 8, 32, 1, 2, 0},                             /* the shortcut of a residual block */
    {2, 17, 8, 8, 24, 3, 2, 1}, {2, 32, 9, 6, 16, 3, 1, 1}, /* the blocks of a residual net */
};

/* input: x is the cast of what a program writes, in row-major order. */
static void conv_cases(harness *h, ech_dtype low, const conv_shape *v, bool input, op_case *out)
{
    op_row rows[OP_ROWS];
    row_cases(h, rows, conv_rows(low, v, rows), input, out);
}

static void convolutions(void **state)
{
    for (int t = 0; t < LENGTH(TYPES); t++) {
        for (int s = first_of(*state, LENGTH(CONVS)); s < LENGTH(CONVS); s++) {
            op_case cases[LAYER_ROWS];
            conv_cases(*state, TYPES[t], &CONVS[s], CONVS[s].I == 3, cases);
            check_apart(*state, cases, CONV_ROWS);
        }
    }
}

/* ---- everything else that flows ---- */

static void image_nodes(harness *h, ech_dtype low, const int64_t *dims, node_fn visit)
{
    op_row rows[OP_ROWS];
    for_each_row(h, rows, norm_rows(low, dims, rows), visit);
    for_each_row(h, rows, shape_rows(low, dims, rows), visit);
}

static void pool_nodes(harness *h, ech_dtype low, const int64_t *dims, const int64_t *window,
                       node_fn visit)
{
    op_row rows[OP_ROWS];
    for_each_row(h, rows, pool_rows(low, dims, window, rows), visit);
}

static const int64_t IMAGES[][4] = {{1, 1, 1, 1},  {1, 3, 5, 5},   {3, 17, 2, 3},
                                    {40, 5, 4, 4}, {600, 3, 1, 1}, {2, 17, 24, 25}};
static const int64_t WINDOWS[][3] = {{2, 2, 0}, {3, 2, 1}, {4, 4, 0}};

static void for_each_image_of(harness *h, node_fn visit)
{
    for (int t = 0; t < LENGTH(TYPES); t++) {
        for (int i = first_of(h, LENGTH(IMAGES)); i < LENGTH(IMAGES); i++) {
            image_nodes(h, TYPES[t], IMAGES[i], visit);
            for (int w = 0; w < LENGTH(WINDOWS); w++)
                pool_nodes(h, TYPES[t], IMAGES[i], WINDOWS[w], visit);
        }
    }
}

static void images(void **state)
{
    for_each_image_of(*state, harness_check_node);
}

static void matrix_nodes(harness *h, ech_dtype low, int64_t N, int64_t C, node_fn visit)
{
    const ech__type x = matrix_of(low, N, C), wide = matrix_of(ECH_F32, N, C);
    const ech__type labels = harness_type(ECH_S32, 1, &N);
    visit(h, &(ech__node){.op = ECH__OP_ADD, .nin = 2}, (ech__type[]){x, x});
    visit(h, &(ech__node){.op = ECH__OP_ADD, .nin = 2}, (ech__type[]){x, vector_of(C)});
    visit(h, &(ech__node){.op = ECH__OP_SUM_ROWS, .nin = 1}, &x);
    visit(h, &(ech__node){.op = ECH__OP_RELU, .nin = 1}, &x);
    visit(h, &(ech__node){.op = ECH__OP_RELU_BWD, .nin = 2}, (ech__type[]){x, x});
    visit(h, &(ech__node){.op = ECH__OP_MSE, .nin = 2}, (ech__type[]){x, wide});
    visit(h, &(ech__node){.op = ECH__OP_MSE_BWD, .nin = 2}, (ech__type[]){x, wide});
    for (ech__op op = ECH__OP_CROSS_ENTROPY; op <= ECH__OP_COUNT_CORRECT; op++)
        visit(h, &(ech__node){.op = op, .nin = 2}, (ech__type[]){x, labels});
}

static const int64_t MATRICES[][2] = {{1, 1}, {3, 5}, {64, 10}, {7, 257}, {33, 515}};

static void for_each_matrix_of(harness *h, node_fn visit)
{
    for (int t = 0; t < LENGTH(TYPES); t++) {
        for (int i = first_of(h, LENGTH(MATRICES)); i < LENGTH(MATRICES); i++)
            matrix_nodes(h, TYPES[t], MATRICES[i][0], MATRICES[i][1], visit);
    }
}

static void matrices(void **state)
{
    for_each_matrix_of(*state, harness_check_node);
}

/* ---- casts ---- */

static void check_move(harness *h, ech__op op, const ech__type *from, ech_dtype to,
                       const ech__layout *layout)
{
    op_case c = harness_case(h, &(ech__node){.op = op, .nin = 1, .attrs = {.dtype = to}}, from, 0);
    c.desc.operands[0].layout = ech__layout_plain(&from->shape);
    c.desc.operands[1].layout = *layout;
    harness_check(h, &c);
    ech__operand *o = c.desc.operands;
    const ech__layout plain = o[0].layout; /* and the other way round */
    o[0].layout = o[1].layout;
    o[1].layout = plain;
    harness_check(h, &c);
}

/* f32 to 16 bits and back, and 16 bits to themselves, from row-major to a layout and from that to row-major. */
static void check_moves(harness *h, const ech__shape *shape, const ech__layout *layout)
{
    for (int t = 0; t < LENGTH(TYPES); t++) {
        const ech__type wide = {ECH_F32, *shape}, low = {TYPES[t], *shape};
        check_move(h, ECH__OP_CAST, &wide, TYPES[t], layout);
        check_move(h, ECH__OP_CAST, &low, ECH_F32, layout);
        if (!ech__layout_is_plain(layout))
            check_move(h, ECH__OP_REORDER, &low, TYPES[t], layout);
    }
}

static void casts(void **state)
{
    harness *h = *state;
    const int64_t sizes[][2] = {{1, 1}, {17, 5}, {130, 70}, {64, 1000}};
    for (int s = first_of(h, LENGTH(sizes)); s < LENGTH(sizes); s++) {
        const ech__shape shape = {2, {sizes[s][0], sizes[s][1]}};
        const ech__layout plain = ech__layout_plain(&shape);
        const ech__layout columns = ech__layout_transposed(&shape);
        const ech__layout panels = ech__panel_layout(&shape);
        check_moves(h, &shape, &plain);
        if (h->kind != ECH__DEVICE_CPU) /* the reference knows one layout only */
            continue;
        check_moves(h, &shape, &columns);
        check_moves(h, &shape, &panels);
    }
    const ech__shape picture = {4, {3, 17, 5, 7}};
    const ech__layout blocked = ech__layout_blocked_channels(&picture, 8);
    if (h->kind == ECH__DEVICE_CPU)
        check_moves(h, &picture, &blocked);
}

/* Every vector width gives the bits of the plain loops, at every length and alignment. */
static void check_conversions(const ech__vec *vec)
{
    enum { COUNT = 70000 };
    float *wide = malloc(COUNT * sizeof *wide), *back = malloc(COUNT * sizeof *back);
    uint16_t *low = malloc(COUNT * sizeof *low), *want = malloc(COUNT * sizeof *want);
    assert_true(wide && back && low && want);
    for (int t = 0; t < LENGTH(TYPES); t++) {
        for (uint32_t k = 0; k < COUNT; k++) { /* all exponents, NaN and infinity among them */
            uint32_t bits = k * 61379u + (k << 17);
            if (k % 4 == 0) /* half way between two numbers of bf16 */
                bits = (bits & 0xffff0000) | 0x8000;
            else if (k % 4 == 1) /* of f16 */
                bits = (bits & 0xffffe000) | 0x1000;
            wide[k] = ech__float_of_bits(bits);
        }
        for (int64_t n = 0; n <= COUNT; n = n < 40 ? n + 1 : n * 7) {
            const int64_t shift = n % 3 <= COUNT - n ? n % 3 : 0;
            vec->narrow(TYPES[t], n, wide + shift, low);
            ech__narrow(TYPES[t], n, wide + shift, want);
            assert_memory_equal(low, want, (size_t)n * sizeof *low);
        }
        for (uint32_t k = 0; k < 0x10000; k++)
            low[k] = (uint16_t)k;
        vec->widen(TYPES[t], 0x10000, low, wide);
        ech__widen(TYPES[t], 0x10000, low, back);
        assert_memory_equal(wide, back, 0x10000 * sizeof *wide);
    }
    free(wide);
    free(back);
    free(low);
    free(want);
}

static void conversions(void **state)
{
    harness *h = *state;
    check_conversions(ech__loops_for(ECH__ISA_GENERIC)->vec);
    check_conversions(ech__loops_for(ech__isa_level())->vec);
    h->runs++;
}

/* ---- bitwise repeat ---- */

static void repeat(void **state)
{
    harness *h = *state;
    for (int t = 0; t < LENGTH(TYPES); t++) {
        op_case cases[LAYER_ROWS];
        layer_cases(h, TYPES[t], 20, 257, 130, cases);
        for (int i = 3; i < LAYER_ROWS_LOW; i++) {
            harness_forget(h);
            harness_repeat(h, &cases[i]);
        }
        conv_cases(h, TYPES[t], &CONVS[4], false, cases);
        for (int i = 3; i < LAYER_ROWS_LOW; i++) {
            harness_forget(h);
            harness_collect(h, &cases[i]);
            harness_repeat(h, &cases[i]);
        }
        image_nodes(h, TYPES[t], IMAGES[5], harness_repeat_node);
        matrix_nodes(h, TYPES[t], 33, 515, harness_repeat_node);
    }
}

/* ---- what is offered ---- */

/* A linear layer that reads its 16-bit weight as it lies is among the offers, and so is every kernel for f32. */
static void every_f32_kernel_is_offered(void **state)
{
    harness *h = *state;
    op_case low[LAYER_ROWS];
    layer_cases(h, ECH_BF16, 32, 64, 64, low);
    for (int i = 0; i < LAYER_ROWS_LOW; i++) {
        op_case wide = low[i];
        for (int k = 0; k < op_operands(&wide.desc); k++)
            wide.desc.operands[k].dtype = ECH_F32;
        ech__candidate a[ECH__MAX_CANDIDATES], b[ECH__MAX_CANDIDATES];
        int na, nb, direct = 0;
        assert_int_equal(h->device->ops->candidates(h->device, &low[i].desc, a, &na), ECH_OK);
        assert_int_equal(h->device->ops->candidates(h->device, &wide.desc, b, &nb), ECH_OK);
        for (int k = 0; k < nb; k++) {
            bool found = false;
            for (int n = 0; n < na; n++)
                found |= !strncmp(a[n].name, "f32:", 4) &&
                         !strncmp(a[n].name + 4, b[k].name, sizeof a[n].name - 5) &&
                         a[n].scratch_bytes > b[k].scratch_bytes;
            assert_true(found);
        }
        for (int n = 0; n < na; n++)
            direct += !strcmp(a[n].name, "w16:panels");
        assert_int_equal(direct, low[i].desc.op != ECH__OP_LINEAR_BWD_WEIGHTS);
    }
    h->runs++;
}

/* ---- performance ---- */

static void performance(void **state)
{
    harness *h = *state;
    if (!getenv("ECH_PERF")) {
        h->runs++;
        skip();
    }
    for (int t = 0; t < LENGTH(TYPES); t++) {
        op_case cases[LAYER_ROWS];
        layer_cases(h, TYPES[t], 32, 2048, 2048, cases);
        for (int i = 2; i < LAYER_ROWS_LOW; i++) {
            harness_forget(h);
            harness_collect(h, &cases[i]);
            harness_measure(h, &cases[i]);
        }
        const conv_shape block = {32, 64, 32, 32, 64, 3, 1, 1};
        conv_cases(h, TYPES[t], &block, false, cases);
        for (int i = 0; i < LAYER_ROWS_LOW; i++) {
            harness_forget(h);
            harness_collect(h, &cases[i]);
            harness_measure(h, &cases[i]);
        }
        const ech__type x = image_of(TYPES[t], 32, 64, 32, 32), v = vector_of(64);
        op_case c = harness_case(h, &(ech__node){.op = ECH__OP_BN_STATS, .nin = 1}, &x, 0);
        harness_measure(h, &c);
        c = harness_case(h,
                         &(ech__node){.op = ECH__OP_BN_APPLY, .nin = 5, .attrs = {.epsilon = 1e-5}},
                         (ech__type[]){x, v, v, v, v}, 0);
        harness_measure(h, &c);
        const ech__type w = matrix_of(ECH_F32, 2048, 2048);
        c = harness_case(
            h, &(ech__node){.op = ECH__OP_CAST, .nin = 1, .attrs = {.dtype = TYPES[t]}}, &w, 0);
        harness_measure(h, &c);
    }
}

static harness_target cpu = {ECH__DEVICE_CPU, 1}, cpu_2 = {ECH__DEVICE_CPU, 2};
static harness_target reference = {ECH__DEVICE_REFERENCE, 1};

#define TEST(where, test)                                                                          \
    {                                                                                              \
#test " on " #where, test, harness_setup, harness_teardown, &where                         \
    }
#define ON_EACH_KIND(test) TEST(cpu, test), TEST(reference, test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_EACH_KIND(linear),
        TEST(cpu_2, linear),
        ON_EACH_KIND(linear_with_an_f32_weight),
        ON_EACH_KIND(convolutions),
        TEST(cpu_2, convolutions),
        ON_EACH_KIND(images),
        TEST(cpu_2, images),
        ON_EACH_KIND(matrices),
        TEST(cpu_2, matrices),
        ON_EACH_KIND(casts),
        TEST(cpu_2, casts),
        TEST(cpu, conversions),
        ON_EACH_KIND(repeat),
        TEST(cpu_2, repeat),
        TEST(cpu, every_f32_kernel_is_offered),
        TEST(cpu, performance),
    };
    return run_kernel_tests("low_ops", tests);
}
