/* Every operator on every kind of device, through the harness of support/op_harness.h. */
#include "support/op_cases.h"
#include "support/levels.h"
#include "base/system/clock.h"
#include "base/size.h"
#include "device/cpu/loops.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- the operators of a linear layer ---- */

static const int64_t BATCHES[] = {1, 3, 7, 64};

/* Inputs and outputs of a layer: each odd size on each side, next to a small and a large one. */
static const int64_t FEATURES[][2] = {
    {1, 1},   {1, 17},   {3, 5},   {5, 3},    {5, 257}, {17, 1},    {17, 64},   {64, 17},
    {64, 64}, {64, 130}, {130, 3}, {130, 64}, {257, 5}, {130, 257}, {257, 130}, {257, 257}};

static ech__type matrix(int64_t rows, int64_t cols)
{
    return harness_type(ECH_F32, 2, (int64_t[]){rows, cols});
}

static ech__type vector(int64_t length)
{
    return harness_type(ECH_F32, 1, (int64_t[]){length});
}

static void layer_cases(harness *h, int64_t N, int64_t I, int64_t O, op_case *out)
{
    op_row rows[OP_ROWS];
    row_cases(h, rows, layer_rows(ECH_F32, N, I, O, rows), false, out);
}

static void check_layer(harness *h, int64_t N, int64_t I, int64_t O)
{
    op_case cases[LAYER_ROWS];
    layer_cases(h, N, I, O, cases);
    harness_forget(h);
    for (int i = 0; i < LAYER_ROWS; i++)
        harness_collect(h, &cases[i]);
    /* A plan needs one layout of the weights for all directions. */
    assert_true(harness_shares_layout(h, cases, LAYER_ROWS));
    for (int i = 0; i < LAYER_ROWS; i++)
        harness_check(h, &cases[i]);
}

static void linear(void **state)
{
    for (int f = 0; f < LENGTH(FEATURES); f++)
        check_layer(*state, BATCHES[f % LENGTH(BATCHES)], FEATURES[f][0], FEATURES[f][1]);
    for (int b = 0; b < LENGTH(BATCHES); b++) {
        check_layer(*state, BATCHES[b], 5, 17);
        check_layer(*state, BATCHES[b], 130, 64);
    }
}

static void linear_few_shapes(void **state)
{
    check_layer(*state, 1, 17, 5);
    check_layer(*state, 7, 257, 130);
    check_layer(*state, 64, 64, 257);
}

/* ---- element by element ---- */

static const int64_t SIZES[] = {1, 3, 5, 17, 64, 130, 257};

static void for_each_size(harness *h, void (*check)(harness *h, int64_t N, int64_t C))
{
    for (int b = 0; b < LENGTH(BATCHES); b++) {
        for (int f = 0; f < LENGTH(SIZES); f++)
            check(h, BATCHES[b], SIZES[f]);
    }
}

static void check_add(harness *h, int64_t N, int64_t C)
{
    const ech__node node = {.op = ECH__OP_ADD, .nin = 2};
    harness_check_node(h, &node, (ech__type[]){matrix(N, C), matrix(N, C)});
    harness_check_node(h, &node, (ech__type[]){matrix(N, C), vector(C)});
    harness_check_node(h, &node, (ech__type[]){vector(C), vector(C)});
    const ech__type cube = harness_type(ECH_F32, 3, (int64_t[]){N, 2, C});
    harness_check_node(h, &node, (ech__type[]){cube, vector(C)});
}

static void add(void **state)
{
    for_each_size(*state, check_add);
    const ech__type scalar = harness_type(ECH_F32, 0, NULL);
    harness_check_node(*state, &(ech__node){.op = ECH__OP_ADD, .nin = 2},
                       (ech__type[]){scalar, scalar});
}

static void check_sum_rows(harness *h, int64_t N, int64_t C)
{
    const ech__node node = {.op = ECH__OP_SUM_ROWS, .nin = 1};
    harness_check_node(h, &node, (ech__type[]){matrix(N, C)});
    harness_check_node(h, &node, (ech__type[]){harness_type(ECH_F32, 3, (int64_t[]){N, 2, C})});
}

static void sum_rows(void **state)
{
    for_each_size(*state, check_sum_rows);
}

static void check_relu(harness *h, int64_t N, int64_t C)
{
    harness_check_node(h, &(ech__node){.op = ECH__OP_RELU, .nin = 1}, (ech__type[]){matrix(N, C)});
    harness_check_node(h, &(ech__node){.op = ECH__OP_RELU_BWD, .nin = 2},
                       (ech__type[]){matrix(N, C), matrix(N, C)});
}

static void relu(void **state)
{
    for_each_size(*state, check_relu);
}

/* ---- losses ---- */

static void check_scales(harness *h, const ech__node *node, const ech__type *in)
{
    op_case c = harness_case(h, node, in, 0);
    harness_check(h, &c);
    c.scalars.loss_scale = 1024;
    harness_check(h, &c);
}

static void check_mse(harness *h, int64_t N, int64_t C)
{
    const ech__type in[] = {matrix(N, C), matrix(N, C)};
    harness_check_node(h, &(ech__node){.op = ECH__OP_MSE, .nin = 2}, in);
    check_scales(h, &(ech__node){.op = ECH__OP_MSE_BWD, .nin = 2}, in);
}

static void mse(void **state)
{
    for_each_size(*state, check_mse);
}

static void check_cross_entropy(harness *h, int64_t N, int64_t C)
{
    const ech__type in[] = {matrix(N, C), harness_type(ECH_S32, 1, &N)};
    harness_check_node(h, &(ech__node){.op = ECH__OP_CROSS_ENTROPY, .nin = 2}, in);
    check_scales(h, &(ech__node){.op = ECH__OP_CROSS_ENTROPY_BWD, .nin = 2}, in);
    harness_check_node(h, &(ech__node){.op = ECH__OP_COUNT_CORRECT, .nin = 2}, in);
}

static void cross_entropy(void **state)
{
    for_each_size(*state, check_cross_entropy);
}

typedef struct loss_case {
    op_case c;
    ech__candidate candidate;
    op_data data;
} loss_case;

/* Logits[2,3] and labels[2]. */
static loss_case small_loss(harness *h, ech__op op, const double *logits, const double *labels)
{
    const ech__type in[] = {matrix(2, 3), harness_type(ECH_S32, 1, (int64_t[]){2})};
    loss_case l = {.c = harness_case(h, &(ech__node){.op = op, .nin = 2}, in, 0)};
    ech__candidate all[ECH__MAX_CANDIDATES];
    int count;
    assert_int_equal(h->device->ops->candidates(h->device, &l.c.desc, all, &count), ECH_OK);
    assert_true(count > 0);
    l.candidate = all[0];
    l.data = op_data_create(&l.c, DATA_RANDOM, 1);
    memcpy(l.data.at[0], logits, 6 * sizeof *logits);
    memcpy(l.data.at[1], labels, 2 * sizeof *labels);
    return l;
}

/* exp of such logits is infinite or zero; the loss is neither. */
static void cross_entropy_far_logits(void **state)
{
    harness *h = *state;
    const double logits[] = {1000, -1000, 998, -500, -500, -500}, labels[] = {2, 0};
    loss_case l = small_loss(h, ECH__OP_CROSS_ENTROPY, logits, labels);
    assert_int_equal(harness_run(h, h->device, &l.c, &l.candidate, false, &l.data), ECH_OK);
    const double want = (2 + log1p(exp(-2)) + log(3)) / 2;
    assert_true(fabs(l.data.at[2][0] - want) < 1e-6 * want);
    op_data_destroy(&l.data);
    l = small_loss(h, ECH__OP_CROSS_ENTROPY_BWD, logits, labels);
    assert_int_equal(harness_run(h, h->device, &l.c, &l.candidate, false, &l.data), ECH_OK);
    const double p = 1 / (1 + exp(-2));
    const double grad[] = {p / 2, 0, -p / 2, -1.0 / 3, 1.0 / 6, 1.0 / 6};
    for (int k = 0; k < 6; k++)
        assert_true(fabs(l.data.at[2][k] - grad[k]) < 1e-6);
    op_data_destroy(&l.data);
}

static void cross_entropy_bad_labels(void **state)
{
    harness *h = *state;
    const double logits[6] = {0};
    const double bad[] = {-1, 3, INT32_MIN, INT32_MAX};
    for (int k = 0; k < LENGTH(bad); k++) {
        for (ech__op op = ECH__OP_CROSS_ENTROPY; op <= ECH__OP_COUNT_CORRECT; op++) {
            loss_case l = small_loss(h, op, logits, (double[]){2, bad[k]});
            assert_int_equal(harness_run(h, h->device, &l.c, &l.candidate, false, &l.data),
                             ECH_E_INVALID);
            char label[64];
            snprintf(label, sizeof label, "label %d of sample 1", (int)bad[k]);
            assert_non_null(strstr(ech_ctx_error(h->ctx), label));
            assert_non_null(strstr(ech_ctx_error(h->ctx), "3 classes"));
            op_data_destroy(&l.data);
        }
    }
}

/* ---- optimizers, on the layouts of weights too ---- */

/* AB16b64a */
static ech__layout blocks_of_16_64(int64_t O, int64_t I)
{
    const int64_t rows = ech__round_up(O, 64), cols = ech__round_up(I, 16);
    return (ech__layout){.shape = {2, {O, I}},
                         .padded = {rows, cols},
                         .strides = {64 * cols, 64 * 16},
                         .nblocks = 2,
                         .block_axis = {1, 0},
                         .block_size = {16, 64}};
}

static void check_updates(harness *h, int64_t O, int64_t I)
{
    const ech__type w = matrix(O, I);
    op_case layer[LAYER_ROWS];
    layer_cases(h, 7, I, O, layer);
    harness_forget(h);
    for (int i = 0; i < LAYER_ROWS; i++)
        harness_collect(h, &layer[i]);
    const ech__layout blocked = blocks_of_16_64(O, I); /* which not every processor would choose */
    harness_remember(h, &blocked);
    const ech__attrs sgd[] = {{.momentum = 0},
                              {.weight_decay = 0.01},
                              {.momentum = 0.9, .weight_decay = 0.01},
                              {.momentum = 0.9, .weight_decay = 0.01, .nesterov = true}};
    for (int k = 0; k < LENGTH(sgd); k++)
        harness_check_node(
            h, &(ech__node){.op = ECH__OP_SGD, .nin = sgd[k].momentum > 0 ? 3 : 2, .attrs = sgd[k]},
            (ech__type[]){w, w, w});
    ech__attrs adam = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01};
    for (int decoupled = 0; decoupled < 2; decoupled++) {
        adam.decoupled = decoupled;
        harness_check_node(h, &(ech__node){.op = ECH__OP_ADAM, .nin = 4, .attrs = adam},
                           (ech__type[]){w, w, w, w});
    }
    for (int nin = 2; nin <= 5; nin++) {
        for (int fresh = nin > 2; fresh < 2; fresh++)
            harness_check_node(
                h, &(ech__node){.op = ECH__OP_ACCUMULATE, .nin = nin, .attrs = {.fresh = fresh}},
                (ech__type[]){w, w, w, w, w});
    }
}

/* Gradients as they are looked at and as they travel, on the layouts of weights too. */
static void check_gradients(harness *h, int64_t O, int64_t I)
{
    const ech__type w = matrix(O, I), sent = harness_type(ECH_BF16, 2, (int64_t[]){O, I});
    op_case layer[LAYER_ROWS];
    layer_cases(h, 7, I, O, layer);
    harness_forget(h);
    for (int i = 0; i < LAYER_ROWS; i++)
        harness_collect(h, &layer[i]);
    const ech__layout blocked = blocks_of_16_64(O, I);
    harness_remember(h, &blocked);
    harness_check_node(h, &(ech__node){.op = ECH__OP_GRAD_STATS, .nin = 1}, (ech__type[]){w});
    harness_check_node(h, &(ech__node){.op = ECH__OP_CONVERT, .nin = 2}, (ech__type[]){sent, w});
    harness_check_node(h, &(ech__node){.op = ECH__OP_CONVERT, .nin = 2}, (ech__type[]){w, sent});
}

static void gradients(void **state)
{
    for (int f = 0; f < LENGTH(FEATURES); f++)
        check_gradients(*state, FEATURES[f][1], FEATURES[f][0]);
    check_gradients(*state, 300, 200); /* several blocks of a sum */
}

/* One operator over the given first input, or, of convert, the second. */
static void run_on(harness *h, const ech__node *node, const ech__type *types, const double *in,
                   op_data *data)
{
    const op_case c = harness_case(h, node, types, 0);
    const int at = node->nin - 1;
    ech__candidate all[ECH__MAX_CANDIDATES];
    int count;
    assert_int_equal(h->device->ops->candidates(h->device, &c.desc, all, &count), ECH_OK);
    assert_true(count > 0);
    *data = op_data_create(&c, DATA_RANDOM, 1);
    memcpy(data->at[at], in, (size_t)data->elems[at] * sizeof *in);
    assert_int_equal(harness_run(h, h->device, &c, &all[0], false, data), ECH_OK);
}

/* With any number of threads and in every width of vectors: ranks of different machines decide by these figures. */
static void stats_have_the_same_bits(void **state)
{
    enum { LENGTH_OF = 5 * ECH__SUM_BLOCK + 13 };
    const ech__type type = vector(LENGTH_OF);
    const ech__node node = {.op = ECH__OP_GRAD_STATS, .nin = 1};
    static double in[LENGTH_OF];
    static float block[LENGTH_OF];
    op_data one, three;
    harness other;
    harness_init(&other, ECH__DEVICE_CPU, 3);
    for (int k = 0; k < LENGTH_OF; k++)
        in[k] = (double)(block[k] = (float)sin(k) * 0x1p-20f);
    run_on(*state, &node, &type, in, &one);
    run_on(&other, &node, &type, in, &three);
    assert_memory_equal(one.at[1], three.at[1], ECH__GRAD_STATS * sizeof(double));
    op_data_destroy(&one);
    op_data_destroy(&three);
    harness_fini(&other);
    double narrow[ECH__GRAD_STATS], wide[ECH__GRAD_STATS];
    ech__loops_for(ECH__ISA_GENERIC)->vec->grad_stats(ECH__SUM_BLOCK - 3, block, narrow);
    ech__loops_for(ech__isa_level())->vec->grad_stats(ECH__SUM_BLOCK - 3, block, wide);
    assert_memory_equal(narrow, wide, sizeof wide);
}

enum { ODD = 37 };

/* What is not finite is counted, wherever it stands, and does not hide what is largest beside it. */
static void broken_gradients(void **state)
{
    const ech__type type = vector(ODD);
    const double bad[] = {(double)INFINITY, (double)-INFINITY, (double)NAN};
    double in[ODD];
    op_data data;
    for (int at = 0; at < ODD; at++) {
        for (int k = 0; k < ODD; k++)
            in[k] = k == at ? bad[at % 3] : k == (at + 1) % ODD ? -3 : 0.5;
        run_on(*state, &(ech__node){.op = ECH__OP_GRAD_STATS, .nin = 1}, &type, in, &data);
        assert_true(data.at[1][ECH__GRAD_BROKEN] == 1);
        assert_false(isfinite(data.at[1][ECH__GRAD_SQUARES]));
        assert_true(data.at[1][ECH__GRAD_LARGEST] == (at % 3 == 2 ? 3 : (double)INFINITY));
        op_data_destroy(&data);
    }
    for (int k = 0; k < ODD; k++)
        in[k] = (double)FLT_MAX; /* whose square is no number of f32 */
    run_on(*state, &(ech__node){.op = ECH__OP_GRAD_STATS, .nin = 1}, &type, in, &data);
    assert_true(data.at[1][ECH__GRAD_BROKEN] == 0);
    assert_true(fabs(data.at[1][ECH__GRAD_SQUARES] / (ODD * (double)FLT_MAX * (double)FLT_MAX) -
                     1) < 1e-12);
    op_data_destroy(&data);
}

/* Halves of the last bit go to the even side; the largest go to infinity, and what is no number stays none. */
static void rounding_to_bf16(void **state)
{
    static const struct {
        double from, to;
    } cases[] = {{1, 1},
                 {1 + 0x1p-8, 1},
                 {1 + 0x3p-8, 1 + 0x4p-8},
                 {1 + 0x1p-8 + 0x1p-20, 1 + 0x1p-7},
                 {-1 - 0x3p-8, -1 - 0x4p-8},
                 {0x1p-133, 0x1p-133},
                 {0x1p-134, 0},
                 {0x3p-134, 0x2p-133},
                 {0x1.fep127, 0x1.fep127},
                 {0x1.fefp127, 0x1.fep127},
                 {0x1.ffp127, INFINITY},
                 {-0x1.fffffep127, -INFINITY},
                 {INFINITY, INFINITY},
                 {-INFINITY, -INFINITY},
                 {NAN, NAN},
                 {-0.0, -0.0}};
    enum { COUNT = LENGTH(cases) };
    const int64_t length = COUNT;
    const ech__type types[] = {harness_type(ECH_BF16, 1, &length),
                               harness_type(ECH_F32, 1, &length)};
    double in[COUNT];
    op_data data;
    for (int k = 0; k < COUNT; k++)
        in[k] = cases[k].from;
    run_on(*state, &(ech__node){.op = ECH__OP_CONVERT, .nin = 2}, types, in, &data);
    for (int k = 0; k < COUNT; k++) {
        const double got = data.at[0][k], want = cases[k].to;
        if (!(isnan(want) ? isnan(got) : got == want && signbit(got) == signbit(want)))
            fail_msg("%a becomes %a, not %a", cases[k].from, got, want);
    }
    op_data_destroy(&data);
}

static void updates(void **state)
{
    for (int f = 0; f < LENGTH(FEATURES); f++)
        check_updates(*state, FEATURES[f][1], FEATURES[f][0]);
}

/* ---- idling ---- */

static void delay(void **state)
{
    harness *h = *state;
    const ech__node node = {.op = ECH__OP_DELAY, .attrs = {.seconds = 0.02}};
    const op_case c = harness_case(h, &node, NULL, 0);
    ech__candidate all[ECH__MAX_CANDIDATES];
    int count;
    assert_int_equal(h->device->ops->candidates(h->device, &c.desc, all, &count), ECH_OK);
    assert_true(count > 0);
    op_data nothing = op_data_create(&c, DATA_RANDOM, 1);
    const int64_t start = ech__clock_wall();
    assert_int_equal(harness_run(h, h->device, &c, &all[0], false, &nothing), ECH_OK);
    const double seconds = ech__seconds(ech__clock_wall() - start);
    assert_true(seconds >= 0.02);
    assert_true(seconds < 5); /* seconds, not milliseconds, are the unit */
}

/* ---- bitwise repeat ---- */

static void repeat(void **state)
{
    harness *h = *state;
    const int64_t shapes[][3] = {{3, 17, 5}, {64, 257, 130}, {64, 512, 256}};
    for (int s = 0; s < LENGTH(shapes); s++) {
        op_case cases[LAYER_ROWS];
        const int64_t N = shapes[s][0], C = shapes[s][2];
        layer_cases(h, N, shapes[s][1], C, cases);
        harness_forget(h);
        for (int i = 0; i < LAYER_ROWS; i++)
            harness_collect(h, &cases[i]);
        for (int i = 0; i < LAYER_ROWS; i++)
            harness_repeat(h, &cases[i]);
        const ech__type pair[] = {matrix(N, C), matrix(N, C)};
        const ech__type labelled[] = {matrix(N, C), harness_type(ECH_S32, 1, &N)};
        harness_repeat_node(h, &(ech__node){.op = ECH__OP_ADD, .nin = 2}, pair);
        harness_repeat_node(h, &(ech__node){.op = ECH__OP_SUM_ROWS, .nin = 1}, pair);
        harness_repeat_node(h, &(ech__node){.op = ECH__OP_RELU, .nin = 1}, pair);
        harness_repeat_node(h, &(ech__node){.op = ECH__OP_RELU_BWD, .nin = 2}, pair);
        harness_repeat_node(h, &(ech__node){.op = ECH__OP_MSE, .nin = 2}, pair);
        harness_repeat_node(h, &(ech__node){.op = ECH__OP_GRAD_STATS, .nin = 1}, pair);
        harness_repeat_node(h, &(ech__node){.op = ECH__OP_MSE_BWD, .nin = 2}, pair);
        harness_repeat_node(h, &(ech__node){.op = ECH__OP_CROSS_ENTROPY, .nin = 2}, labelled);
        harness_repeat_node(h, &(ech__node){.op = ECH__OP_CROSS_ENTROPY_BWD, .nin = 2}, labelled);
    }
}

/* ---- performance ---- */

static void performance(void **state)
{
    harness *h = *state;
    if (!getenv("ECH_PERF")) {
        h->runs++;
        skip();
    }
    const int64_t N = 64, sizes[] = {1024, 4096};
    const int count = h->kind == ECH__DEVICE_REFERENCE ? 1 : LENGTH(sizes);
    for (int s = 0; s < count; s++) {
        const int64_t F = sizes[s];
        op_case cases[LAYER_ROWS];
        layer_cases(h, N, F, F, cases);
        harness_forget(h);
        for (int i = 0; i < LAYER_ROWS; i++)
            harness_collect(h, &cases[i]);
        for (int i = 0; i < LAYER_ROWS; i++)
            harness_measure(h, &cases[i]);
        const ech__type pair[] = {matrix(N, F), matrix(N, F)}, bias[] = {matrix(N, F), vector(F)};
        const ech__type w[] = {matrix(F, F), matrix(F, F), matrix(F, F), matrix(F, F)};
        const ech__type labelled[] = {matrix(N, F), harness_type(ECH_S32, 1, &N)};
        const struct {
            ech__node node;
            const ech__type *in;
        } rest[] = {
            {{.op = ECH__OP_ADD, .nin = 2}, pair},
            {{.op = ECH__OP_ADD, .nin = 2}, bias},
            {{.op = ECH__OP_SUM_ROWS, .nin = 1}, pair},
            {{.op = ECH__OP_RELU, .nin = 1}, pair},
            {{.op = ECH__OP_RELU_BWD, .nin = 2}, pair},
            {{.op = ECH__OP_MSE, .nin = 2}, pair},
            {{.op = ECH__OP_MSE_BWD, .nin = 2}, pair},
            {{.op = ECH__OP_CROSS_ENTROPY, .nin = 2}, labelled},
            {{.op = ECH__OP_CROSS_ENTROPY_BWD, .nin = 2}, labelled},
            {{.op = ECH__OP_SGD, .nin = 2}, w},
            {{.op = ECH__OP_SGD, .nin = 3, .attrs = {.momentum = 0.9}}, w},
            {{.op = ECH__OP_ADAM,
              .nin = 4,
              .attrs = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8}},
             w},
            {{.op = ECH__OP_GRAD_STATS, .nin = 1}, w},
        };
        for (int k = 0; k < LENGTH(rest); k++) {
            const op_case c = harness_case(h, &rest[k].node, rest[k].in, 0);
            harness_measure(h, &c);
        }
    }
}

/* ---- the reference against numbers worked out by hand ---- */

/* Runs an operator in f64 over in[0..nin) and compares its outputs, one after the other, with want. */
static void by_hand(harness *h, const ech__node *node, const ech__type *types,
                    const double *const *in, const double *want)
{
    const op_case c = harness_case(h, node, types, 0);
    op_data data = op_data_create(&c, DATA_RANDOM, 1);
    for (int i = 0; i < node->nin; i++)
        memcpy(data.at[i], in[i], (size_t)data.elems[i] * sizeof(double));
    harness_expect(h, &c, &data);
    for (int i = node->nin; i < data.count; i++) {
        for (int64_t k = 0; k < data.elems[i]; k++, want++) {
            if (!(fabs(data.at[i][k] - *want) <= 4 * DBL_EPSILON * fabs(*want)))
                fail_msg("%s: output %d at %lld is %.17g, not %.17g", ech__op_name(node->op), i,
                         (long long)k, data.at[i][k], *want);
        }
    }
    op_data_destroy(&data);
}

#define OF(...) ((const double[]){__VA_ARGS__})
#define BY_HAND(types, in, want, ...)                                                              \
    by_hand(h, &(ech__node){__VA_ARGS__}, types, (const double *const[]){in}, want)
#define BOTH(a, b) a, b

static void worked_out(void **state)
{
    harness *h = *state;
    /* x = [[1,2,3],[4,5,6]], w = [[1,0,-1],[2,1,0]], b = [10,-20] */
    const double x[] = {1, 2, 3, 4, 5, 6}, w[] = {1, 0, -1, 2, 1, 0}, b[] = {10, -20};
    const double dy[] = {1, 2, 3, 4}, zero_labels[] = {0, 1};
    const ech__type forward[] = {matrix(2, 3), matrix(2, 3), vector(2)};
    const ech__type data[] = {matrix(2, 2), matrix(2, 3)};
    const ech__type weights[] = {matrix(2, 3), matrix(2, 2)};
    const ech__type pair[] = {matrix(2, 2), matrix(2, 2)}, row[] = {matrix(2, 2), vector(2)};
    const ech__type labelled[] = {matrix(2, 2), harness_type(ECH_S32, 1, (int64_t[]){2})};
    BY_HAND(forward, BOTH(x, w), OF(-2, 4, -2, 13), .op = ECH__OP_LINEAR, .nin = 2);
    const double *const biased[] = {x, w, b};
    by_hand(h, &(ech__node){.op = ECH__OP_LINEAR, .nin = 3}, forward, biased, OF(8, -16, 8, -7));
    by_hand(h, &(ech__node){.op = ECH__OP_LINEAR, .nin = 3, .attrs = {.relu = true}}, forward,
            biased, OF(8, 0, 8, 0));
    BY_HAND(data, BOTH(dy, w), OF(5, 2, -1, 11, 4, -3), .op = ECH__OP_LINEAR_BWD_DATA, .nin = 2);
    BY_HAND(weights, BOTH(x, dy), OF(13, 17, 21, 18, 24, 30, 4, 6),
            .op = ECH__OP_LINEAR_BWD_WEIGHTS, .nin = 2, .attrs = {.bias = true});
    BY_HAND(pair, BOTH(dy, w), OF(2, 2, 2, 6), .op = ECH__OP_ADD, .nin = 2);
    BY_HAND(row, BOTH(dy, b), OF(11, -18, 13, -16), .op = ECH__OP_ADD, .nin = 2);
    BY_HAND(pair, dy, OF(4, 6), .op = ECH__OP_SUM_ROWS, .nin = 1);
    BY_HAND(pair, w, OF(1, 0, 0, 2), .op = ECH__OP_RELU, .nin = 1);
    BY_HAND(pair, BOTH(dy, w), OF(1, 0, 0, 4), .op = ECH__OP_RELU_BWD, .nin = 2);
    BY_HAND(pair, BOTH(dy, w), OF(6), .op = ECH__OP_MSE, .nin = 2); /* (0 + 4 + 16 + 4) / 4 */
    BY_HAND(pair, BOTH(dy, w), OF(0, 1, 2, 1), .op = ECH__OP_MSE_BWD, .nin = 2);
    const double odds[] = {log(3), 0, 0, log(4)}; /* softmax 3/4 1/4, 1/5 4/5 */
    BY_HAND(labelled, BOTH(odds, zero_labels), OF((log(4.0 / 3) + log(5.0 / 4)) / 2),
            .op = ECH__OP_CROSS_ENTROPY, .nin = 2);
    BY_HAND(labelled, BOTH(odds, zero_labels), OF(-0.125, 0.125, 0.1, -0.1),
            .op = ECH__OP_CROSS_ENTROPY_BWD, .nin = 2);
    BY_HAND(labelled, BOTH(odds, zero_labels), OF(2), .op = ECH__OP_COUNT_CORRECT, .nin = 2);
    const double equal[] = {5, 5, 5, 5}; /* the first of them counts */
    BY_HAND(labelled, BOTH(equal, zero_labels), OF(1), .op = ECH__OP_COUNT_CORRECT, .nin = 2);
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
        TEST(reference, worked_out),
        ON_EACH_KIND(linear),
        TEST(cpu_2, linear_few_shapes),
        ON_EACH_KIND(add),
        ON_EACH_KIND(sum_rows),
        ON_EACH_KIND(relu),
        ON_EACH_KIND(mse),
        ON_EACH_KIND(cross_entropy),
        ON_EACH_KIND(cross_entropy_far_logits),
        ON_EACH_KIND(cross_entropy_bad_labels),
        ON_EACH_KIND(updates),
        ON_EACH_KIND(gradients),
        TEST(cpu_2, gradients),
        TEST(cpu, stats_have_the_same_bits),
        ON_EACH_KIND(broken_gradients),
        ON_EACH_KIND(rounding_to_bf16),
        ON_EACH_KIND(delay),
        ON_EACH_KIND(repeat),
        TEST(cpu_2, repeat),
        ON_EACH_KIND(performance),
    };
    return run_kernel_tests("ops", tests);
}
