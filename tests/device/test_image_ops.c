/* Every operator on images on every kind of device, through the harness of support/op_harness.h. */
#include "support/op_cases.h"
#include "support/levels.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

static ech__type image(int64_t n, int64_t c, int64_t h, int64_t w)
{
    return image_of(ECH_F32, n, c, h, w);
}

/* Samples, channels, height and width. Blocks of 8 and of 16 channels are empty in part, full, or one of
 * several. */
static const int64_t IMAGES[][4] = {
    {1, 1, 1, 1}, {1, 3, 5, 5},  {3, 6, 4, 7},   {1, 16, 1, 1}, {3, 17, 2, 3},   {3, 16, 5, 5},
    {2, 8, 9, 1}, {1, 24, 3, 3}, {600, 3, 1, 1}, {40, 5, 4, 4}, {2, 17, 24, 25},
};

/* ---- convolutions ---- */

static const conv_shape CONVS[] = {
    {1, 1, 1, 1, 1, 1, 1, 0},   /* one pixel of one channel */
    {1, 3, 5, 5, 6, 3, 1, 1},   /* few channels */
    {3, 6, 7, 5, 16, 3, 2, 1},  /* stride */
    {3, 16, 5, 5, 17, 5, 1, 0}, /* one pixel is left */
    {2, 17, 4, 4, 3, 1, 1, 0},  /* a product for each pixel */
    {3, 16, 8, 8, 32, 1, 2, 0}, /* the shortcut of a residual block */
    {1, 3, 12, 12, 6, 5, 1, 0}, /* LeNet's first, on less */
    {3, 6, 9, 9, 16, 5, 1, 0},  /* and its second */
    {2, 32, 9, 6, 16, 3, 1, 1}, /* the blocks of a residual net */
    {1, 64, 4, 4, 64, 3, 1, 1}, {2, 16, 8, 8, 32, 3, 2, 1},
    {1, 17, 6, 6, 6, 3, 3, 2}, /* windows with nothing but padding in their first rows */
};

/* input: x is what a program writes, in row-major order. */
static void conv_cases(harness *h, const conv_shape *v, bool input, op_case *out)
{
    op_row rows[OP_ROWS];
    row_cases(h, rows, conv_rows(ECH_F32, v, rows), input, out);
}

static void collect_conv(harness *h, const op_case *cases)
{
    harness_forget(h);
    for (int i = 0; i < CONV_ROWS; i++)
        harness_collect(h, &cases[i]);
    /* A plan keeps one layout for the weights and their gradient; the backward pass may have a copy. */
    op_case shared[CONV_ROWS - 1];
    memcpy(shared, cases, CONV_BWD_DATA * sizeof *cases);
    memcpy(shared + CONV_BWD_DATA, cases + CONV_BWD_DATA + 1,
           (CONV_ROWS - 1 - CONV_BWD_DATA) * sizeof *cases);
    assert_true(harness_shares_layout(h, shared, CONV_ROWS - 1));
}

static void check_conv(harness *h, const conv_shape *v)
{
    for (int input = 0; input < 2; input++) {
        op_case cases[CONV_ROWS];
        conv_cases(h, v, input, cases);
        collect_conv(h, cases);
        for (int i = 0; i < CONV_ROWS; i++) {
            if (!input || i != CONV_BWD_DATA)
                harness_check(h, &cases[i]);
        }
    }
}

static void convolutions(void **state)
{
    for (int i = 0; i < LENGTH(CONVS); i++)
        check_conv(*state, &CONVS[i]);
}

/* ---- batch norm ---- */

static const ech__attrs RUNNING = {.momentum = 0.1};

static void norm_nodes(harness *h, const int64_t *dims, node_fn visit)
{
    op_row rows[OP_ROWS];
    for_each_row(h, rows, norm_rows(ECH_F32, dims, rows), visit);
}

static void batch_norm(void **state)
{
    for (int i = 0; i < LENGTH(IMAGES); i++)
        norm_nodes(*state, IMAGES[i], harness_check_node);
}

/* Statistics of numbers far from zero, but for one pixel: squares of them would lose all digits. */
static void far_from_zero(void **state)
{
    harness *h = *state;
    const ech__type x = image(3, 6, 24, 24);
    const op_case c = harness_case(h, &(ech__node){.op = ECH__OP_BN_STATS, .nin = 1}, &x, 0);
    ech__candidate all[ECH__MAX_CANDIDATES];
    int count;
    assert_int_equal(h->device->ops->candidates(h->device, &c.desc, all, &count), ECH_OK);
    assert_true(count > 0);
    op_data got = op_data_create(&c, DATA_RANDOM, 1);
    for (int64_t k = 0; k < got.elems[0]; k++)
        got.at[0][k] = (double)(float)(1000 + got.at[0][k]);
    op_data want = op_data_copy(&got);
    harness_expect(h, &c, &want);
    assert_int_equal(harness_run(h, h->device, &c, &all[0], false, &got), ECH_OK);
    for (int64_t k = 0; k < 6; k++) {
        assert_true(fabs(got.at[1][k] - want.at[1][k]) <= (double)FLT_EPSILON * 1000);
        assert_true(fabs(got.at[2][k] - want.at[2][k]) <= 8 * (double)FLT_EPSILON);
    }
    op_data_destroy(&got);
    op_data_destroy(&want);
}

/* ---- pools ---- */

/* Kernel, stride, padding. */
static const int64_t WINDOWS[][3] = {{1, 1, 0}, {2, 2, 0}, {3, 2, 0}, {3, 2, 1},
                                     {3, 1, 1}, {2, 3, 1}, {4, 4, 0}, {5, 2, 4}};

static void pool_nodes(harness *h, const int64_t *dims, const int64_t *window, node_fn visit)
{
    op_row rows[OP_ROWS];
    for_each_row(h, rows, pool_rows(ECH_F32, dims, window, rows), visit);
}

static void pools(void **state)
{
    for (int i = 0; i < LENGTH(IMAGES); i++) {
        for (int k = 0; k < LENGTH(WINDOWS); k++)
            pool_nodes(*state, IMAGES[i], WINDOWS[k], harness_check_node);
    }
    pool_nodes(*state, (int64_t[]){3, 6, 28, 28}, WINDOWS[1], harness_check_node);
}

/* A number that is none must not be lost, or a run would look sound that is not. */
static void a_nan_is_the_largest(void **state)
{
    harness *h = *state;
    const ech__type x = image(1, 3, 2, 2);
    const ech__node node = {.op = ECH__OP_MAXPOOL2D, .nin = 1, .attrs = {.kernel = 2, .stride = 2}};
    const op_case c = harness_case(h, &node, &x, 0);
    ech__candidate all[ECH__MAX_CANDIDATES];
    int count;
    assert_int_equal(h->device->ops->candidates(h->device, &c.desc, all, &count), ECH_OK);
    for (int k = 0; k < 4; k++) {
        op_data data = op_data_create(&c, DATA_RANDOM, 1);
        data.at[0][4 + k] = (double)NAN; /* in the second channel */
        assert_int_equal(harness_run(h, h->device, &c, &all[0], false, &data), ECH_OK);
        assert_true(!isnan(data.at[1][0]) && isnan(data.at[1][1]) && !isnan(data.at[1][2]));
        assert_true(data.at[2][1] == k);
        op_data_destroy(&data);
    }
}

/* ---- sums, ReLUs, flattening ---- */

static void shape_nodes(harness *h, const int64_t *dims, node_fn visit)
{
    op_row rows[OP_ROWS];
    for_each_row(h, rows, shape_rows(ECH_F32, dims, rows), visit);
}

static void shapes(void **state)
{
    harness *h = *state;
    for (int i = 0; i < LENGTH(IMAGES); i++)
        shape_nodes(h, IMAGES[i], harness_check_node);
    /* Of what a program writes, too. */
    const ech__type x = image(3, 6, 4, 7);
    op_case c = harness_case(h, &(ech__node){.op = ECH__OP_FLATTEN, .nin = 1}, &x, 0);
    c.desc.operands[0].layout = ech__layout_plain(&x.shape);
    harness_check(h, &c);
}

/* ---- second orders of weights ---- */

static void reorders(void **state)
{
    harness *h = *state;
    const conv_shape some[] = {CONVS[1], CONVS[3], CONVS[9]};
    for (int i = 0; i < LENGTH(some); i++) {
        op_case cases[CONV_ROWS];
        conv_cases(h, &some[i], false, cases);
        collect_conv(h, cases);
        const ech__type w = image(some[i].O, some[i].I, some[i].kernel, some[i].kernel);
        for (int from = 0; from <= h->nlayouts; from++) {
            op_case c = harness_case(h, &(ech__node){.op = ECH__OP_REORDER, .nin = 1}, &w, 1u << 1);
            c.desc.operands[0].layout =
                from < h->nlayouts ? h->layouts[from] : ech__layout_plain(&w.shape);
            harness_check(h, &c);
        }
    }
}

/* ---- bitwise repeat ---- */

static void repeat(void **state)
{
    harness *h = *state;
    const int64_t dims[][4] = {{3, 17, 2, 3}, {40, 16, 4, 4}, {2, 17, 24, 25}};
    for (int i = 0; i < LENGTH(dims); i++) {
        norm_nodes(h, dims[i], harness_repeat_node);
        pool_nodes(h, dims[i], WINDOWS[3], harness_repeat_node);
        shape_nodes(h, dims[i], harness_repeat_node);
    }
    const conv_shape some[] = {CONVS[2], CONVS[7], CONVS[8]};
    for (int i = 0; i < LENGTH(some); i++) {
        op_case cases[CONV_ROWS];
        conv_cases(h, &some[i], false, cases);
        collect_conv(h, cases);
        for (int k = 0; k < CONV_ROWS; k++)
            harness_repeat(h, &cases[k]);
    }
}

/* ---- performance ---- */

static void measure_node(harness *h, const ech__node *node, const ech__type *in)
{
    const op_case c = harness_case(h, node, in, 0);
    harness_measure(h, &c);
}

/* The images of ResNet-18 and LeNet at a batch of 64. */
static void performance(void **state)
{
    harness *h = *state;
    if (!getenv("ECH_PERF")) {
        h->runs++;
        skip();
    }
    const int64_t dims[][4] = {
        {64, 64, 32, 32}, {64, 128, 16, 16}, {64, 256, 8, 8}, {64, 512, 4, 4}};
    for (int i = 0; i < LENGTH(dims); i++)
        norm_nodes(h, dims[i], measure_node);
    pool_nodes(h, (int64_t[]){64, 6, 28, 28}, WINDOWS[1], measure_node);
    pool_nodes(h, (int64_t[]){64, 16, 10, 10}, WINDOWS[1], measure_node);
    pool_nodes(h, (int64_t[]){64, 512, 4, 4}, WINDOWS[6], measure_node);
    shape_nodes(h, (int64_t[]){64, 16, 5, 5}, measure_node);
    shape_nodes(h, (int64_t[]){64, 512, 1, 1}, measure_node);
}

/* ---- the reference against numbers worked out by hand ---- */

typedef struct worked {
    ech__node node;
    ech__type types[ECH__MAX_IN];
    const double *in[ECH__MAX_IN];
    const double *want; /* the outputs, or what was changed, one after the other */
} worked;

#define OF(...) ((const double[]){__VA_ARGS__})

static void by_hand(harness *h, const worked *w)
{
    const op_case c = harness_case(h, &w->node, w->types, 0);
    op_data data = op_data_create(&c, DATA_RANDOM, 1);
    const unsigned changes = ech__op_info(w->node.op)->changes;
    const double *want = w->want;
    for (int i = 0; i < w->node.nin; i++)
        memcpy(data.at[i], w->in[i], (size_t)data.elems[i] * sizeof(double));
    harness_expect(h, &c, &data);
    for (int i = 0; i < data.count; i++) {
        if (i < w->node.nin && !(changes >> i & 1))
            continue;
        for (int64_t k = 0; k < data.elems[i]; k++, want++) {
            if (!(fabs(data.at[i][k] - *want) <= 8 * DBL_EPSILON * fmax(1, fabs(*want))))
                fail_msg("%s: operand %d at %lld is %.17g, not %.17g", ech__op_name(w->node.op), i,
                         (long long)k, data.at[i][k], *want);
        }
    }
    op_data_destroy(&data);
}

#define WINDOW(k, s, p) .kernel = k, .stride = s, .pad = p, .height = 3, .width = 3

static void worked_convolutions(void **state)
{
    const double x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, w[] = {1, 2, 3, 4}, dy[] = {1, 2, 3, 4};
    const double b[] = {-50};
    const ech__type x3 = image(1, 1, 3, 3), y2 = image(1, 1, 2, 2), v1 = vector_of(1);
    const ech__attrs near = {WINDOW(2, 1, 0)}, apart = {WINDOW(2, 2, 1)};
    const ech__attrs relu = {WINDOW(2, 1, 0), .relu = true}, bias = {WINDOW(2, 1, 0), .bias = true};
    const worked all[] = {
        {{.op = ECH__OP_CONV2D, .nin = 2, .attrs = near}, {x3, y2}, {x, w}, OF(37, 47, 67, 77)},
        {{.op = ECH__OP_CONV2D, .nin = 2, .attrs = apart}, {x3, y2}, {x, w}, OF(4, 18, 36, 77)},
        {{.op = ECH__OP_CONV2D, .nin = 3, .attrs = near},
         {x3, y2, v1},
         {x, w, b},
         OF(-13, -3, 17, 27)},
        {{.op = ECH__OP_CONV2D, .nin = 3, .attrs = relu},
         {x3, y2, v1},
         {x, w, b},
         OF(0, 0, 17, 27)},
        {{.op = ECH__OP_CONV2D_BWD_DATA, .nin = 2, .attrs = near},
         {y2, y2},
         {dy, w},
         OF(1, 4, 4, 6, 20, 16, 9, 24, 16)},
        {{.op = ECH__OP_CONV2D_BWD_DATA, .nin = 2, .attrs = apart},
         {y2, y2},
         {dy, w},
         OF(4, 6, 8, 6, 4, 8, 12, 12, 16)},
        {{.op = ECH__OP_CONV2D_BWD_WEIGHTS, .nin = 2, .attrs = bias},
         {x3, y2},
         {x, dy},
         OF(37, 47, 67, 77, 10)},
    };
    for (int i = 0; i < LENGTH(all); i++)
        by_hand(*state, &all[i]);
}

/* Two samples of one pixel and two channels: means 2 and 4, variances 1 and 4. */
static void worked_batch_norm(void **state)
{
    const double x[] = {1, 2, 3, 6}, mean[] = {2, 4}, variance[] = {1, 4};
    const double gamma[] = {2, 3}, beta[] = {10, 0}, residual[] = {1, 1, -20, 1};
    const double dy[] = {1, 2, 3, 4}, dgamma[] = {4, 2}, dbeta[] = {2, 0}, y[] = {1, 0, 1, -1};
    const double old_mean[] = {0, 10}, old_variance[] = {1, 1};
    const ech__type i2 = image(2, 2, 1, 1), i1 = image(1, 2, 1, 1), v = vector_of(2);
    const ech__attrs none = {0}, relu = {.relu = true};
    const worked all[] = {
        {{.op = ECH__OP_BN_STATS, .nin = 1}, {i2}, {x}, OF(2, 4, 1, 4)},
        {{.op = ECH__OP_BN_RUNNING, .nin = 5, .attrs = RUNNING},
         {v, v, v, v, i2},
         {old_mean, old_variance, mean, variance, x},
         OF(0.2, 9.4, 1.1, 1.7)}, /* the unbiased variances are 2 and 8 */
        {{.op = ECH__OP_BN_RUNNING, .nin = 5, .attrs = RUNNING},
         {v, v, v, v, i1},
         {old_mean, old_variance, mean, variance, x},
         OF(0.2, 9.4, 1, 1.3)}, /* there is none of one number */
        {{.op = ECH__OP_BN_APPLY, .nin = 5, .attrs = none},
         {i2, v, v, v, v},
         {x, mean, variance, gamma, beta},
         OF(8, -3, 12, 3)},
        {{.op = ECH__OP_BN_APPLY, .nin = 6, .attrs = relu},
         {i2, v, v, v, v, i2},
         {x, mean, variance, gamma, beta, residual},
         OF(9, 0, 0, 4)},
        {{.op = ECH__OP_BN_REDUCE, .nin = 4, .attrs = none},
         {i2, i2, v, v},
         {x, dy, mean, variance},
         OF(2, 2, 4, 6)},
        {{.op = ECH__OP_BN_REDUCE, .nin = 5, .attrs = relu},
         {i2, i2, v, v, i2},
         {x, dy, mean, variance, y},
         OF(2, 0, 4, 0)},
        {{.op = ECH__OP_BN_BWD_DATA, .nin = 7, .attrs = none},
         {i2, i2, v, v, v, v, v},
         {x, dy, mean, variance, gamma, dgamma, dbeta},
         OF(4, 4.5, 0, 4.5)},
        {{.op = ECH__OP_BN_BWD_DATA, .nin = 8, .attrs = relu},
         {i2, i2, v, v, v, v, v, i2},
         {x, dy, mean, variance, gamma, dgamma, dbeta, y},
         OF(4, 1.5, 0, -1.5)},
    };
    for (int i = 0; i < LENGTH(all); i++)
        by_hand(*state, &all[i]);
}

static void worked_pools(void **state)
{
    const double x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, dy[] = {4, 8, 12, 16};
    const double below[] = {-1, -2, -3, -4, -5, -6, -7, -8, -9}, equal[9] = {0};
    const double centre[] = {3, 2, 1, 0}; /* the places that see it in each of four windows */
    const ech__type x3 = image(1, 1, 3, 3), y2 = image(1, 1, 2, 2),
                    p2 = image_of(ECH_U8, 1, 1, 2, 2);
    const ech__attrs near = {WINDOW(2, 1, 0)}, apart = {WINDOW(2, 2, 1)};
    const ech__attrs shape = {.channels = 1, .height = 3, .width = 3};
    const ech__type row = harness_type(ECH_F32, 2, (int64_t[]){1, 9});
    const worked all[] = {
        {{.op = ECH__OP_MAXPOOL2D, .nin = 1, .attrs = near}, {x3}, {x}, OF(5, 6, 8, 9, 3, 3, 3, 3)},
        {{.op = ECH__OP_MAXPOOL2D, .nin = 1, .attrs = near},
         {x3},
         {equal},
         OF(0, 0, 0, 0, 0, 0, 0, 0)},
        {{.op = ECH__OP_MAXPOOL2D, .nin = 1, .attrs = apart}, /* the padding is no candidate */
         {x3},
         {below},
         OF(-1, -2, -4, -5, 3, 2, 1, 0)},
        {{.op = ECH__OP_MAXPOOL2D_BWD, .nin = 2, .attrs = near},
         {y2, p2},
         {dy, centre},
         OF(0, 0, 0, 0, 40, 0, 0, 0, 0)},
        {{.op = ECH__OP_AVGPOOL2D, .nin = 1, .attrs = apart}, {x3}, {x}, OF(0.25, 1.25, 2.75, 7)},
        {{.op = ECH__OP_AVGPOOL2D_BWD, .nin = 1, .attrs = near},
         {y2},
         {dy},
         OF(1, 3, 2, 4, 10, 6, 3, 7, 4)},
        {{.op = ECH__OP_FLATTEN, .nin = 1}, {x3}, {x}, x},
        {{.op = ECH__OP_UNFLATTEN, .nin = 1, .attrs = shape}, {row}, {x}, x},
    };
    for (int i = 0; i < LENGTH(all); i++)
        by_hand(*state, &all[i]);
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
        TEST(reference, worked_convolutions),
        TEST(reference, worked_batch_norm),
        TEST(reference, worked_pools),
        ON_EACH_KIND(batch_norm),
        ON_EACH_KIND(far_from_zero),
        ON_EACH_KIND(pools),
        ON_EACH_KIND(a_nan_is_the_largest),
        ON_EACH_KIND(shapes),
        ON_EACH_KIND(convolutions),
        TEST(cpu, reorders),
        ON_EACH_KIND(repeat),
        TEST(cpu_2, repeat),
        TEST(cpu, performance),
    };
    return run_kernel_tests("image_ops", tests);
}
