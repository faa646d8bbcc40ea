/* What is not finite stays so: a NaN or an infinity in any input of any operator comes out of every
 * kernel, on every layout and in every type, wherever the reference has one. The reference in turn
 * has what PyTorch has, by the table in as_pytorch. An operator that loses a NaN hides that a
 * training run has diverged. */
#include "support/op_cases.h"

#include <math.h>
#include <string.h>

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))
#define N_ ((double)NAN)
#define I_ ((double)INFINITY)

static const ech_dtype TYPES[] = {ECH_F32, ECH_BF16, ECH_F16};

/* ---- the reference, by PyTorch's rules ---- */

typedef struct rule {
    ech__node node;
    ech__type types[2];
    double in[2][4];
    int nwant;
    double want[8]; /* of all outputs, one after the other */
} rule;

static bool is_same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b;
}

static void check_rule(harness *h, const rule *r)
{
    const op_case c = harness_case(h, &r->node, r->types, 0);
    op_data data = op_data_create(&c, DATA_RANDOM, 1);
    for (int i = 0; i < r->node.nin; i++)
        memcpy(data.at[i], r->in[i], (size_t)data.elems[i] * sizeof(double));
    harness_expect(h, &c, &data);
    int at = 0;
    for (int i = r->node.nin; i < data.count; i++) {
        for (int64_t k = 0; k < data.elems[i]; k++, at++) {
            assert_in_range(at, 0, r->nwant - 1);
            if (!is_same(data.at[i][k], r->want[at]))
                fail_msg("%s: output %d at %lld is %g, not %g", ech__op_name(r->node.op), i,
                         (long long)k, data.at[i][k], r->want[at]);
        }
    }
    assert_int_equal(at, r->nwant);
    op_data_destroy(&data);
}

/* relu(x), threshold_backward(dy, y, 0), max_pool2d with its indices, mse_loss, cross_entropy, argmax. */
static void as_pytorch(void **state)
{
    const ech__type four = matrix_of(ECH_F32, 1, 4), square = image_of(ECH_F32, 1, 1, 2, 2);
    const ech__type label = harness_type(ECH_S32, 1, (int64_t[]){1});
    const ech__attrs pool = {.kernel = 2, .stride = 2};
    const ech__node relu = {.op = ECH__OP_RELU, .nin = 1};
    const ech__node relu_bwd = {.op = ECH__OP_RELU_BWD, .nin = 2};
    const ech__node maxpool = {.op = ECH__OP_MAXPOOL2D, .nin = 1, .attrs = pool};
    const ech__node mse = {.op = ECH__OP_MSE, .nin = 2};
    const ech__node entropy = {.op = ECH__OP_CROSS_ENTROPY, .nin = 2};
    const ech__node correct = {.op = ECH__OP_COUNT_CORRECT, .nin = 2};
    const rule rules[] = {
        {relu, {four}, {{N_, I_, -I_, -1}}, 4, {N_, I_, 0, 0}},
        {relu_bwd, {four, four}, {{1, 2, 3, 4}, {N_, I_, 0, 1}}, 4, {1, 2, 0, 4}},
        {relu_bwd, {four, four}, {{N_, I_, N_, 4}, {1, 1, 0, 0}}, 4, {N_, I_, 0, 0}},
        {maxpool, {square}, {{1, N_, 3, 2}}, 2, {N_, 1}},
        {maxpool, {square}, {{1, N_, N_, 2}}, 2, {N_, 2}}, /* the last of several */
        {maxpool, {square}, {{1, 2, I_, 2}}, 2, {I_, 2}},
        {maxpool, {square}, {{-I_, -I_, -I_, -I_}}, 2, {-I_, 0}},
        {mse, {four, four}, {{1, N_, 3, 4}, {0}}, 1, {N_}},
        {mse, {four, four}, {{1, I_, 3, 4}, {0}}, 1, {I_}},
        {entropy, {four, label}, {{0, 0, N_, 0}, {0}}, 1, {N_}},
        {entropy, {four, label}, {{0, I_, 0, 0}, {0}}, 1, {N_}},
        {entropy, {four, label}, {{-I_, 0, 0, 0}, {0}}, 1, {I_}},
        {correct, {four, label}, {{9, 0, N_, 0}, {2}}, 1, {1}},
        {correct, {four, label}, {{9, 0, N_, N_}, {3}}, 1, {0}}, /* the first of several */
        {correct, {four, label}, {{9, 0, N_, 0}, {0}}, 1, {0}},
    };
    for (int i = 0; i < LENGTH(rules); i++)
        check_rule(*state, &rules[i]);
}

/* ---- operators with a weight ---- */

/* All of them first say which layouts they like. */
static void break_all(harness *h, const op_row *rows, int count, bool plain_input)
{
    op_case cases[OP_ROWS];
    harness_forget(h);
    row_cases(h, rows, count, plain_input, cases);
    for (int i = 0; i < count; i++)
        harness_collect(h, &cases[i]);
    for (int i = 0; i < count; i++)
        harness_nonfinite(h, &cases[i]);
}

static void break_layer(harness *h, ech_dtype t, int64_t N, int64_t I, int64_t O)
{
    op_row rows[OP_ROWS];
    break_all(h, rows, layer_rows(t, N, I, O, rows), false);
}

static void linear(void **state)
{
    for (int t = 0; t < LENGTH(TYPES); t++) {
        break_layer(*state, TYPES[t], 3, 5, 17);
        break_layer(*state, TYPES[t], 7, 130, 64);
    }
}

/* Enough of them for two threads to share. */
static void linear_of_many_samples(void **state)
{
    break_layer(*state, ECH_F32, 40, 5, 64);
}

static const conv_shape CONVS[] = {
    {1, 3, 12, 12, 6, 5, 1, 0}, /* few channels, blocks in part empty */
    {2, 16, 6, 6, 32, 1, 2, 0}, /* the shortcut of a residual block */
    {1, 17, 7, 7, 24, 3, 2, 1},
    {1, 32, 6, 5, 16, 3, 1, 1}, /* the blocks of a residual net */
};

static void break_conv(harness *h, ech_dtype t, const conv_shape *v)
{
    op_row rows[OP_ROWS];
    break_all(h, rows, conv_rows(t, v, rows), false);
    if (v->I == 3) /* what a program writes */
        break_all(h, rows, CONV_BWD_DATA, true);
}

static void convolutions(void **state)
{
    for (int t = 0; t < LENGTH(TYPES); t++) {
        for (int i = 0; i < LENGTH(CONVS); i++)
            break_conv(*state, TYPES[t], &CONVS[i]);
    }
}

/* ---- everything else ---- */

static void images(void **state)
{
    const int64_t dims[][4] = {{3, 6, 4, 7}, {3, 17, 6, 8}, {2, 16, 8, 8}};
    const int64_t windows[][3] = {{2, 2, 0}, {3, 2, 1}};
    for (int t = 0; t < LENGTH(TYPES); t++) {
        for (int i = 0; i < LENGTH(dims); i++) {
            op_row rows[OP_ROWS];
            for_each_row(*state, rows, norm_rows(TYPES[t], dims[i], rows), harness_nonfinite_node);
            for_each_row(*state, rows, shape_rows(TYPES[t], dims[i], rows), harness_nonfinite_node);
            for (int w = 0; w < LENGTH(windows); w++)
                for_each_row(*state, rows, pool_rows(TYPES[t], dims[i], windows[w], rows),
                             harness_nonfinite_node);
        }
    }
}

/* From integers to f32, by scales that are not finite: with a ReLU after it, too. */
static void integers(void **state)
{
    const int64_t O = 24, kernel[] = {O, 3, 3 * 16};
    const ech_dtype inputs[] = {ECH_U8, ECH_S8};
    for (int k = 0; k < 4; k++) {
        const ech_dtype x = inputs[k % 2];
        const ech__attrs linear = {.dtype = ECH_F32, .relu = k > 1};
        ech__attrs square = linear;
        square.kernel = 3;
        square.stride = square.pad = 1;
        const ech__type bias = harness_type(ECH_S32, 1, &O);
        const op_row rows[] = {
            {{.op = ECH__OP_QLINEAR, .nin = 4, .attrs = linear},
             1u << 1,
             {matrix_of(x, 7, 16), matrix_of(ECH_S8, O, 16), bias, vector_of(O)}},
            {{.op = ECH__OP_QCONV2D, .nin = 4, .attrs = square},
             1u << 1,
             {image_of(x, 2, 16, 6, 5), harness_type(ECH_S8, 3, kernel), bias, vector_of(O)}},
        };
        break_all(*state, rows, LENGTH(rows), false);
    }
}

static void losses(void **state)
{
    for (int t = 0; t < LENGTH(TYPES); t++) {
        const ech__type x = matrix_of(TYPES[t], 7, 37);
        const ech__type pair[] = {x, matrix_of(ECH_F32, 7, 37)};
        const ech__type labelled[] = {x, harness_type(ECH_S32, 1, (int64_t[]){7})};
        harness_nonfinite_node(*state, &(ech__node){.op = ECH__OP_MSE, .nin = 2}, pair);
        harness_nonfinite_node(*state, &(ech__node){.op = ECH__OP_MSE_BWD, .nin = 2}, pair);
        harness_nonfinite_node(*state, &(ech__node){.op = ECH__OP_CROSS_ENTROPY, .nin = 2},
                               labelled);
        harness_nonfinite_node(*state, &(ech__node){.op = ECH__OP_CROSS_ENTROPY_BWD, .nin = 2},
                               labelled);
    }
}

static void updates(void **state)
{
    const ech__type p = matrix_of(ECH_F32, 7, 37), four[] = {p, p, p, p};
    const ech__attrs adam = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.1};
    const ech__node nodes[] = {
        {.op = ECH__OP_SGD, .nin = 2},
        {.op = ECH__OP_SGD, .nin = 3, .attrs = {.momentum = 0.9, .weight_decay = 0.1}},
        {.op = ECH__OP_SGD,
         .nin = 3,
         .attrs = {.momentum = 0.9, .weight_decay = 0.1, .nesterov = true}},
        {.op = ECH__OP_ADAM, .nin = 4, .attrs = adam},
        {.op = ECH__OP_ACCUMULATE, .nin = 2},
    };
    harness_forget(*state);
    for (int i = 0; i < LENGTH(nodes); i++)
        harness_nonfinite_node(*state, &nodes[i], four);
}

static harness_target cpu = {ECH__DEVICE_CPU, 1}, cpu_2 = {ECH__DEVICE_CPU, 2};
static harness_target reference = {ECH__DEVICE_REFERENCE, 1};

#define TEST(where, test)                                                                          \
    {                                                                                              \
#test " on " #where, test, harness_setup, harness_teardown, &where                         \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reference, as_pytorch), TEST(cpu, linear),        TEST(cpu_2, linear_of_many_samples),
        TEST(cpu, convolutions),     TEST(cpu, images),        TEST(reference, images),
        TEST(cpu, integers),         TEST(cpu, losses),        TEST(reference, losses),
        TEST(cpu, updates),          TEST(reference, updates),
    };
    return cmocka_run_group_tests_name("nonfinite", tests, NULL, NULL);
}
