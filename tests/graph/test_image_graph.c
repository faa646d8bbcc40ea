/* Graphs of images: shapes, fusion, evaluation and backward operators, and the sentences for what does not fit. */
#include "support/graph_fixture.h"

#include <stdio.h>
#include <string.h>

/* ---- shapes of images ---- */

static ech_value picture(const char *name, int64_t channels, int64_t height, int64_t width)
{
    return ech_input(g, name, ECH_F32, 4, (int64_t[]){ECH_BATCH, channels, height, width});
}

static ech_value conv(const char *name, ech_value x, int64_t channels, int64_t kernel)
{
    return ech_conv2d(g, name, x,
                      &(ech_conv){.out_channels = channels, .kernel = kernel, .pad = kernel / 2});
}

static void expect_shape(ech_value value, const char *shape)
{
    assert_true(value >= 0);
    assert_string_equal(ech__shape_format(&g->values[value].type.shape).s, shape);
}

static void shapes_of_images(void **state)
{
    (void)state;
    const ech_value x = picture("x", 3, 9, 8);
    const ech_conv apart = {.out_channels = 5, .kernel = 3, .stride = 2, .pad = 1, .bias = true};
    const ech_value h = ech_conv2d(g, "apart", x, &apart);
    expect_shape(conv("conv", x, 6, 3), "[N, 6, 9, 8]");
    expect_shape(h, "[N, 5, 5, 4]");
    expect_shape(ech__graph_find(g, "apart.weight"), "[5, 3, 3, 3]");
    expect_shape(ech__graph_find(g, "apart.bias"), "[5]");
    expect_shape(ech_batchnorm2d(g, "bn", h), "[N, 5, 5, 4]");
    expect_shape(ech__graph_find(g, "bn.weight"), "[5]");
    expect_shape(ech__graph_find(g, "bn.running_var"), "[5]");
    const ech_value y = ech_maxpool2d(g, h, 2, 2);
    expect_shape(y, "[N, 5, 2, 2]"); /* a last row is left out */
    expect_shape(y + 1, "[N, 5, 2, 2]");
    assert_int_equal(g->values[y + 1].type.dtype, ECH_U8);
    expect_shape(ech_avgpool2d(g, h, 4, 1), "[N, 5, 2, 1]");
    expect_shape(ech_flatten(g, h), "[N, 100]");
    expect_sound(g);
}

/* Kaiming's bound over channels and window, as PyTorch has it; batch norm starts as the identity. */
static void starts_of_images(void **state)
{
    (void)state;
    ech_batchnorm2d(g, "bn", conv("conv", picture("x", 4, 5, 5), 2, 1));
    assert_true(g->values[ech__graph_find(g, "conv.weight")].init.high == 0.5);
    const struct {
        const char *name;
        ech__value_kind kind;
        double value;
    } want[] = {{"bn.weight", ECH__VALUE_PARAM, 1},
                {"bn.bias", ECH__VALUE_PARAM, 0},
                {"bn.running_mean", ECH__VALUE_BUFFER, 0},
                {"bn.running_var", ECH__VALUE_BUFFER, 1}};
    for (int k = 0; k < 4; k++) {
        const ech__value *v = &g->values[ech__graph_find(g, want[k].name)];
        assert_int_equal(v->kind, want[k].kind);
        assert_true(v->init.low == want[k].value && v->init.high == want[k].value);
    }
}

static void images_that_are_none(void **state)
{
    (void)state;
    const ech_value x = input("x", 8);
    expect_refused(conv("conv", x, 4, 3), "conv2d 'conv' on [N, 8]: x must have 4 dimensions");
    expect_refused(ech_batchnorm2d(g, "bn", x),
                   "batchnorm2d 'bn' on [N, 8]: x must have 4 dimensions");
    expect_refused(ech_flatten(g, x), "flatten 'flatten_0' on f32 [N, 8]: the input must have the "
                                      "dimensions [N, C, H, W]");
    expect_refused(ech_maxpool2d(g, x, 2, 2), "maxpool2d 'maxpool2d_0' on f32 [N, 8]: the input "
                                              "must have the dimensions [N, C, H, W]");
    assert_int_equal(ech__graph_find(g, "conv.weight"), -1);
}

static void windows_that_do_not_fit(void **state)
{
    (void)state;
    const ech_value x = picture("x", 3, 4, 20);
    expect_refused(ech_conv2d(g, "a", x, &(ech_conv){.out_channels = 2, .kernel = 5}),
                   "conv2d 'a' on f32 [N, 3, 4, 20], f32 [2, 3, 5, 5]: the kernel is larger than "
                   "the padded image");
    expect_refused(ech_avgpool2d(g, x, 5, 5), "avgpool2d 'avgpool2d_0' on f32 [N, 3, 4, 20]: the "
                                              "window is larger than the padded image");
    const char *const rule =
        "kernel and stride must be at least 1, and the padding below the kernel";
    char sentence[256];
    snprintf(sentence, sizeof sentence, "maxpool2d 'maxpool2d_0' on f32 [N, 3, 4, 20]: %s", rule);
    expect_refused(ech_maxpool2d(g, x, 0, 1), sentence);
    expect_refused(ech_maxpool2d(g, x, 2, 0), sentence);
}

static void padding_as_wide_as_the_kernel(void **state)
{
    (void)state;
    const ech_conv wide = {.out_channels = 2, .kernel = 3, .pad = 3};
    expect_refused(ech_conv2d(g, "conv", picture("x", 3, 4, 4), &wide),
                   "conv2d 'conv' on f32 [N, 3, 4, 4], f32 [2, 3, 3, 3]: kernel and stride must be "
                   "at least 1, and the padding below the kernel");
}

static void convolutions_that_cannot_be(void **state)
{
    (void)state;
    const ech_value x = picture("x", 3, 8, 8);
    const char *const rule = "at least 1 channel and a kernel from 1 to 1024 are needed";
    char sentence[256];
    snprintf(sentence, sizeof sentence, "conv2d 'c' to 0 channels with a kernel of 3: %s", rule);
    expect_refused(conv("c", x, 0, 3), sentence);
    snprintf(sentence, sizeof sentence, "conv2d 'c' to 2 channels with a kernel of 0: %s", rule);
    expect_refused(conv("c", x, 2, 0), sentence);
    snprintf(sentence, sizeof sentence, "conv2d 'c' to 2 channels with a kernel of 1025: %s", rule);
    expect_refused(conv("c", x, 2, 1025), sentence);
}

/* Places of the largest are bytes. */
static void a_window_too_large_for_its_places(void **state)
{
    (void)state;
    const ech_value x = picture("x", 3, 20, 20);
    assert_true(ech_maxpool2d(g, x, 15, 1) >= 0);
    expect_refused(ech_maxpool2d(g, x, 16, 1), "maxpool2d 'maxpool2d_1' on f32 [N, 3, 20, 20]: a "
                                               "window of at most 15 x 15 is possible");
}

static void norms_of_other_shapes(void **state)
{
    (void)state;
    const ech_value x = picture("x", 3, 4, 4), small = picture("small", 3, 4, 2);
    const ech_value v = ech_input(g, "v", ECH_F32, 1, (int64_t[]){3});
    const ech_value longer = ech_input(g, "longer", ECH_F32, 1, (int64_t[]){4});
    expect_refused(
        ech__graph_add(g,
                       &(ech__node){.op = ECH__OP_BN_APPLY, .nin = 5, .in = {x, v, v, v, longer}}),
        "bn_apply 'bn_apply_0' on f32 [N, 3, 4, 4], f32 [3], f32 [3], f32 [3], f32 [4]: a vector "
        "must be as long as x has channels");
    expect_refused(
        ech__graph_add(
            g, &(ech__node){.op = ECH__OP_BN_APPLY, .nin = 6, .in = {x, v, v, v, v, small}}),
        "bn_apply 'bn_apply_0' on f32 [N, 3, 4, 4], f32 [3], f32 [3], f32 [3], f32 [3], f32 [N, 3, "
        "4, 2]: images must have the shape of x");
    expect_refused(
        ech__graph_add(
            g, &(ech__node){.op = ECH__OP_BN_RUNNING, .nin = 5, .in = {v, v, v, longer, x}}),
        "bn_running 'bn_running_0' on f32 [3], f32 [3], f32 [3], f32 [4], f32 [N, 3, 4, 4]: a "
        "vector must be as long as x has channels");
}

static void backward_operators_of_other_shapes(void **state)
{
    (void)state;
    const ech_value x = picture("x", 3, 6, 6), dy = picture("dy", 4, 6, 6);
    const ech_value w = ech_input(g, "w", ECH_F32, 4, (int64_t[]){4, 3, 3, 3});
    const ech_value rows = input("rows", 100);
    const ech__attrs window = {.kernel = 3, .stride = 1, .pad = 1, .height = 6, .width = 6};
    ech__attrs wrong = window;
    wrong.height = 7;
    assert_true(ech__graph_add(g, &(ech__node){.op = ECH__OP_CONV2D_BWD_DATA,
                                               .attrs = window,
                                               .nin = 2,
                                               .in = {dy, w}}) >= 0);
    const ech__node nodes[] = {
        {.op = ECH__OP_CONV2D_BWD_DATA, .attrs = wrong, .nin = 2, .in = {dy, w}},
        {.op = ECH__OP_CONV2D_BWD_DATA, .attrs = window, .nin = 2, .in = {x, w}},
        {.op = ECH__OP_CONV2D_BWD_WEIGHTS, .attrs = window, .nin = 2, .in = {x, w}},
        {.op = ECH__OP_AVGPOOL2D_BWD, .attrs = wrong, .nin = 1, .in = {dy}},
        {.op = ECH__OP_MAXPOOL2D_BWD, .attrs = window, .nin = 2, .in = {dy, dy}},
        {.op = ECH__OP_UNFLATTEN,
         .attrs = {.channels = 4, .height = 5, .width = 6},
         .nin = 1,
         .in = {rows}},
    };
    for (size_t k = 0; k < sizeof nodes / sizeof *nodes; k++)
        assert_int_equal(ech__graph_add(g, &nodes[k]), ECH_E_INVALID);
}

/* ---- fusion of images ---- */

/* conv-norm-relu-conv-norm plus a shortcut, then relu. */
static ech_value block(ech_value x, int64_t channels, bool norm_first)
{
    ech_value h = ech_relu(g, ech_batchnorm2d(g, "bn1", conv("conv1", x, channels, 3)));
    h = ech_batchnorm2d(g, "bn2", conv("conv2", h, channels, 3));
    return ech_relu(g, norm_first ? ech_add(g, h, x) : ech_add(g, x, h));
}

static void fusion_of_relu_into_images(void **state)
{
    (void)state;
    ech_value h = ech_relu(g, conv("conv", picture("x", 3, 4, 4), 2, 3));
    h = ech_relu(g, ech_batchnorm2d(g, "bn", h));
    ech_relu(g, ech_maxpool2d(g, h, 2, 2));
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_string_equal(listing(g), "conv2d conv, bn_stats bn, bn_running bn, bn_apply bn, "
                                    "maxpool2d maxpool2d_6, relu relu_7");
    assert_true(g->nodes[0].attrs.relu && g->nodes[3].attrs.relu);
    assert_int_equal(g->nodes[4].in[0], g->nodes[3].out[0]);
    expect_sound(g);
}

static void fusion_keeps_a_convolution_used_twice(void **state)
{
    (void)state;
    const ech_value y = conv("conv", picture("x", 3, 4, 4), 3, 3);
    ech_add(g, ech_relu(g, y), y);
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_string_equal(listing(g), "conv2d conv, relu relu_1, add add_2");
    assert_false(g->nodes[0].attrs.relu);
}

/* The sum's other side may be made after the normalisation, so the fused operator stands where the sum stood. */
static void fusion_of_a_residual(void **state)
{
    (void)state;
    const ech_value x = picture("x", 3, 4, 4);
    const ech_value h = ech_batchnorm2d(g, "bn", conv("conv", x, 2, 3));
    const ech_value side = conv("side", x, 2, 1), sum = ech_add(g, h, side);
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_string_equal(listing(g),
                        "conv2d conv, bn_stats bn, bn_running bn, conv2d side, bn_apply bn");
    const ech__node *fused = &g->nodes[4];
    assert_int_equal(fused->nin, 6);
    assert_int_equal(fused->in[5], side);
    assert_int_equal(fused->out[0], sum);
    assert_false(fused->attrs.relu);
    expect_sound(g);
}

static void expect_fused_block(bool norm_first)
{
    const ech_value y = block(picture("x", 3, 4, 4), 3, norm_first);
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_string_equal(listing(g), "conv2d conv1, bn_stats bn1, bn_running bn1, bn_apply bn1, "
                                    "conv2d conv2, bn_stats bn2, bn_running bn2, bn_apply bn2");
    const ech__node *last = &g->nodes[7];
    assert_true(last->attrs.relu && last->nin == 6);
    assert_int_equal(last->in[5], ech__graph_find(g, "x"));
    assert_int_equal(last->out[0], y);
    assert_int_equal(g->nodes[3].nin, 5);
    expect_sound(g);
}

static void fusion_of_a_block(void **state)
{
    (void)state;
    expect_fused_block(true);
}

static void fusion_of_a_block_with_the_sum_turned(void **state)
{
    (void)state;
    expect_fused_block(false);
}

/* Both sides are normalised: one takes the other in. */
static void fusion_of_two_norms(void **state)
{
    (void)state;
    const ech_value x = picture("x", 3, 4, 4);
    const ech_value a = ech_batchnorm2d(g, "a", x), b = ech_batchnorm2d(g, "b", x);
    ech_add(g, a, b);
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_string_equal(listing(g),
                        "bn_stats a, bn_running a, bn_stats b, bn_running b, bn_apply b, "
                        "bn_apply a");
    assert_int_equal(g->nodes[5].in[5], b);
    assert_int_equal(g->nodes[4].nin, 5);
    expect_sound(g);
}

static void fusion_keeps_what_is_normalised_for_two(void **state)
{
    (void)state;
    const ech_value x = picture("x", 3, 4, 4), h = ech_batchnorm2d(g, "bn", x);
    ech_mse(g, ech_add(g, h, x), h);
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_string_equal(listing(g),
                        "bn_stats bn, bn_running bn, bn_apply bn, add add_3, mse mse_4");
    expect_sound(g);
}

static void fusion_keeps_a_norm_plus_itself(void **state)
{
    (void)state;
    const ech_value h = ech_batchnorm2d(g, "bn", picture("x", 3, 4, 4));
    ech_add(g, h, h);
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_string_equal(listing(g), "bn_stats bn, bn_running bn, bn_apply bn, add add_3");
}

/* A relu between them must come before the sum. */
static void fusion_keeps_a_sum_behind_a_relu(void **state)
{
    (void)state;
    const ech_value x = picture("x", 3, 4, 4);
    ech_add(g, ech_relu(g, ech_batchnorm2d(g, "bn", x)), x);
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_string_equal(listing(g), "bn_stats bn, bn_running bn, bn_apply bn, add add_4");
    assert_true(g->nodes[2].attrs.relu && g->nodes[2].nin == 5);
    assert_int_equal(ech__fuse(g), ECH_OK); /* nor does a second pass change that */
    assert_int_equal(g->nodes[2].nin, 5);
}

/* ---- evaluation ---- */

static void evaluation_takes_running_statistics(void **state)
{
    (void)state;
    const ech_value x = picture("x", 3, 4, 4);
    block(x, 3, true);
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_int_equal(ech__infer_only(g), ECH_OK);
    assert_string_equal(listing(g), "conv2d conv1, bn_apply bn1, conv2d conv2, bn_apply bn2");
    const char *const names[] = {"bn1.running_mean", "bn1.running_var", "bn2.running_mean",
                                 "bn2.running_var"};
    for (int k = 0; k < 4; k++)
        assert_int_equal(g->nodes[1 + k / 2 * 2].in[1 + k % 2], ech__graph_find(g, names[k]));
    expect_sound(g);
    assert_int_equal(ech__infer_only(g), ECH_OK); /* there is nothing left to do */
    assert_int_equal(g->nnodes, 4);
}

/* At the very start, and one right behind the other. */
static void evaluation_of_norms_alone(void **state)
{
    (void)state;
    ech_batchnorm2d(g, "b", ech_batchnorm2d(g, "a", picture("x", 3, 4, 4)));
    assert_int_equal(ech__infer_only(g), ECH_OK);
    assert_string_equal(listing(g), "bn_apply a, bn_apply b");
    expect_sound(g);
}

static void evaluation_changes_nothing_else(void **state)
{
    (void)state;
    const ech_value h = ech_maxpool2d(g, conv("conv", picture("x", 3, 4, 4), 2, 3), 2, 2);
    ech_linear(g, "fc", ech_flatten(g, h), 2, true);
    char before[256];
    snprintf(before, sizeof before, "%s", listing(g));
    assert_int_equal(ech__infer_only(g), ECH_OK);
    assert_string_equal(listing(g), before);
}

/* ---- autodiff ---- */

/* The masked gradient goes both ways; the convolution of the input gives no gradient of it. */
static void autodiff_of_a_block(void **state)
{
    (void)state;
    const ech_value h = conv("conv", picture("x", 1, 4, 4), 2, 3);
    const ech_value y = ech_flatten(g, ech_maxpool2d(g, block(h, 2, true), 2, 2));
    const ech_value loss = ech_mse(g, y, input("t", 8));
    assert_int_equal(ech__fuse(g), ECH_OK);
    const size_t forward = g->nnodes;
    assert_int_equal(ech__autodiff(g, loss), ECH_OK);
    expect_sound(g);
    const char *const tail = listing(g), *back = strstr(tail, "mse_bwd");
    assert_int_equal(g->nodes[forward].op, ECH__OP_MSE_BWD);
    assert_non_null(back);
    assert_string_equal(
        strchr(back, ',') + 2,
        "unflatten flatten_13, maxpool2d_bwd maxpool2d_12, relu_bwd bn2, bn_reduce bn2, "
        "bn_bwd_data bn2, conv2d_bwd_weights conv2, conv2d_bwd_data conv2, bn_reduce bn1, "
        "bn_bwd_data bn1, conv2d_bwd_weights conv1, conv2d_bwd_data conv1, add conv, "
        "conv2d_bwd_weights conv");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, graph_setup, graph_teardown)
    const struct CMUnitTest tests[] = {
        TEST(shapes_of_images),
        TEST(starts_of_images),
        TEST(images_that_are_none),
        TEST(windows_that_do_not_fit),
        TEST(padding_as_wide_as_the_kernel),
        TEST(convolutions_that_cannot_be),
        TEST(a_window_too_large_for_its_places),
        TEST(norms_of_other_shapes),
        TEST(backward_operators_of_other_shapes),
        TEST(fusion_of_relu_into_images),
        TEST(fusion_keeps_a_convolution_used_twice),
        TEST(fusion_of_a_residual),
        TEST(fusion_of_a_block),
        TEST(fusion_of_a_block_with_the_sum_turned),
        TEST(fusion_of_two_norms),
        TEST(fusion_keeps_what_is_normalised_for_two),
        TEST(fusion_keeps_a_norm_plus_itself),
        TEST(fusion_keeps_a_sum_behind_a_relu),
        TEST(evaluation_takes_running_statistics),
        TEST(evaluation_of_norms_alone),
        TEST(evaluation_changes_nothing_else),
        TEST(autodiff_of_a_block),
    };
    return cmocka_run_group_tests_name("image_graph", tests, NULL, NULL);
}
