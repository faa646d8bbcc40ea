/* Convolutions and linear layers on the reference's loops in the layouts of the cpu device, against sums in f64; and changes of
 * layout by walking. */
#include "support/conv_bench.h"
#include "support/op_harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

static const conv_variant VARIANTS[] = {
    {ECH__OP_CONV2D, false, false},
    {ECH__OP_CONV2D, true, true},
    {ECH__OP_CONV2D_BWD_DATA, false, false},
    {ECH__OP_CONV2D_BWD_WEIGHTS, false, false},
    {ECH__OP_CONV2D_BWD_WEIGHTS, true, false},
};

static void check(conv_bench *b, const conv *c, const conv_variant *v, bool blocked_weight)
{
    conv_data d = conv_inputs(c);
    conv_expect(&d);
    ech__kernel_desc desc = conv_describe(b, c, v);
    ech__operand *weight = &desc.operands[ech__weight_operand(v->op)];
    const ech__layout layout = blocked_weight
                                   ? ech__layout_blocked_channels(&weight->layout.shape, 8)
                                   : ech__layout_plain(&weight->layout.shape);
    const ech__candidate plain = conv_only_offer(b, &desc, &layout);
    assert_true(plain.is_fallback);
    conv_run r;
    conv_run_init(&r, b, &desc, &plain, &d);
    conv_run_check(&r);
    double *right = conv_right(&r);
    for (int64_t k = 0; k < r.data.elems[desc.nin]; k++) {
        if (fabs(r.data.at[desc.nin][k] - right[k]) > 1e-5 * (1 + fabs(right[k])))
            fail_msg("%s: element %d is %g, not %g", ech__op_name(v->op), (int)k,
                     r.data.at[desc.nin][k], right[k]);
    }
    free(right);
    conv_run_fini(&r);
    conv_data_fini(&d);
}

/* Padding as wide as the kernel and wider, which the other kernels of our own do not take, among others. */
static void convolutions(void **state)
{
    static const conv cases[] = {
        {2, 3, 5, 6, 7, 3, 2, 1, true},
        {1, 9, 17, 5, 5, 1, 1, 1, false},
        {2, 20, 4, 4, 6, 3, 1, 4, false},
        {1, 5, 6, 9, 9, 7, 3, 3, false},
    };
    for (int i = 0; i < LENGTH(cases); i++) {
        for (int v = 0; v < LENGTH(VARIANTS); v++) {
            check(*state, &cases[i], &VARIANTS[v], false);
            check(*state, &cases[i], &VARIANTS[v], true);
        }
    }
}

/* What the device offers for padding as wide as the kernel, whatever the build has. */
static void every_convolution_has_a_kernel(void **state)
{
    conv_bench *b = *state;
    for (int v = 0; v < LENGTH(VARIANTS); v++) {
        const ech__kernel_desc desc =
            conv_describe(b, &(conv){1, 9, 17, 5, 5, 1, 1, 1, false}, &VARIANTS[v]);
        ech__candidate found[ECH__MAX_CANDIDATES];
        assert_true(conv_all_offers(b, &desc, found) > 0);
    }
}

/* ---- linear layers ---- */

static void check_linear(harness *h, const ech__node *node, const ech__type *in, int weight)
{
    op_case c = harness_case(h, node, in, 0);
    c.desc.operands[weight].layout = ech__panel_layout(&c.desc.operands[weight].layout.shape);
    ech__candidate plain[1];
    ech__offer offer = {.items = plain};
    ech__plain_offer(&c.desc, &offer);
    assert_int_equal(offer.count, 1);
    op_data data = op_data_create(&c, DATA_EXACT, 7), expected = op_data_copy(&data);
    harness_expect(h, &c, &expected);
    assert_int_equal(harness_run(h, h->device, &c, plain, false, &data), ECH_OK);
    for (int i = 0; i < c.desc.nin + c.desc.nout; i++) {
        for (int64_t k = 0; k < data.elems[i]; k++)
            assert_true(data.at[i][k] == expected.at[i][k]);
    }
    op_data_destroy(&data);
    op_data_destroy(&expected);
    h->runs++;
}

/* Weights and their gradients in panels, with outputs that fill no panel. */
static void linear_layers(void **state)
{
    const ech__type x = harness_type(ECH_F32, 2, (int64_t[]){5, 7}),
                    w = harness_type(ECH_F32, 2, (int64_t[]){19, 7}),
                    b = harness_type(ECH_F32, 1, (int64_t[]){19}),
                    dy = harness_type(ECH_F32, 2, (int64_t[]){5, 19});
    check_linear(*state, &(ech__node){.op = ECH__OP_LINEAR, .nin = 3, .attrs.relu = true},
                 (ech__type[]){x, w, b}, 1);
    check_linear(*state, &(ech__node){.op = ECH__OP_LINEAR_BWD_DATA, .nin = 2},
                 (ech__type[]){dy, w}, 1);
    check_linear(*state, &(ech__node){.op = ECH__OP_LINEAR_BWD_WEIGHTS, .nin = 2},
                 (ech__type[]){x, dy}, 2);
    /* Pipelines plan a fast kernel and an addition where no kernel adds to a gradient. */
    const op_case adds =
        harness_case(*state, &(ech__node){.op = ECH__OP_LINEAR_ADD_WEIGHTS, .nin = 3},
                     (ech__type[]){x, dy, w}, 0);
    ech__candidate found[1];
    ech__offer offer = {.items = found};
    ech__plain_offer(&adds.desc, &offer);
    assert_int_equal(offer.count, 0);
}

/* ---- changes of layout ---- */

typedef struct walk {
    ech__device *device;
    ech__kernel_desc desc;
    float *from, *to;
} walk;

static ech_status run_walk(void *arg)
{
    const walk *w = arg;
    ech__candidate found[1];
    ech__offer offer = {.items = found};
    ech__cast_offer(&w->desc, &offer);
    assert_int_equal(offer.count, 1);
    assert_string_equal(found[0].name, "walk");
    const ech__binding binding = {.operands = {w->from, w->to}};
    ech__kernel *kernel;
    ECH_TRY(found[0].create(&(ech__kernel_args){w->device, &w->desc, found, &binding}, &kernel));
    const ech_status status = kernel->run(kernel, &(ech__scalars){.lr = 0});
    kernel->destroy(kernel);
    return status;
}

/* Padding becomes zero, whatever was in the memory before. */
static void layouts_change(void **state)
{
    conv_bench *b = *state;
    const ech__shape shape = {4, {2, 5, 3, 3}};
    const ech__layout rows = ech__layout_plain(&shape),
                      blocked = ech__layout_blocked_channels(&shape, 8);
    int64_t elems, extent;
    assert_true(ech__shape_elems(&shape, &elems) && ech__layout_extent(&blocked, &extent));
    float *from = malloc((size_t)elems * sizeof *from), *to = malloc((size_t)extent * sizeof *to);
    assert_true(from && to);
    for (int64_t i = 0; i < elems; i++)
        from[i] = (float)(i + 1);
    for (int64_t i = 0; i < extent; i++)
        to[i] = NAN;
    walk w = {.device = b->device, .from = from, .to = to};
    w.desc = (ech__kernel_desc){.op = ECH__OP_REORDER,
                                .nin = 1,
                                .nout = 1,
                                .operands = {{ECH_F32, rows, false}, {ECH_F32, blocked, false}}};
    assert_int_equal(b->device->ops->call(b->device, run_walk, &w), ECH_OK);
    double sum = 0;
    for (int64_t i = 0; i < extent; i++)
        sum += (double)to[i]; /* not a number where padding was left as it was */
    assert_true(sum == (double)(elems * (elems + 1) / 2));
    assert_true(to[0] == from[0] && to[1] == from[9]);
    free(from);
    free(to);
}

int main(void)
{
    static conv_setting one = {ech__plain_offer, 1, false}, two = {ech__plain_offer, 2, false};
    static harness_target cpu = {ECH__DEVICE_CPU, 2};
    const struct CMUnitTest tests[] = {
        {"linear layers", linear_layers, harness_setup, harness_teardown, &cpu},
        {"convolutions", convolutions, conv_bench_setup, conv_bench_teardown, &one},
        {"convolutions, two threads", convolutions, conv_bench_setup, conv_bench_teardown, &two},
        {"every convolution has a kernel", every_convolution_has_a_kernel, conv_bench_setup,
         conv_bench_teardown, &one},
        {"layouts change", layouts_change, conv_bench_setup, conv_bench_teardown, &two},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
