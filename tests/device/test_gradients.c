/* Autodiff and the backward operators together: gradients of whole graphs against central differences of the
 * loss, in f64 on the reference device. */
#include "support/interpreter.h"
#include "support/levels.h"

#include <math.h>

enum { CLASSES = 3 };

typedef ech_value (*build_fn)(ech_graph *g);

static ech_value features(ech_graph *g)
{
    return ech_input(g, "x", ECH_F64, 2, (int64_t[]){ECH_BATCH, 4});
}

static ech_value target(ech_graph *g, int64_t width)
{
    return ech_input(g, "t", ECH_F64, 2, (int64_t[]){ECH_BATCH, width});
}

static ech_value labels(ech_graph *g)
{
    return ech_input(g, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
}

/* ---- graphs ---- */

static ech_value one_layer(ech_graph *g)
{
    return ech_mse(g, ech_linear(g, "fc", features(g), 3, false), target(g, 3));
}

static ech_value one_unit(ech_graph *g)
{
    return ech_mse(g, ech_linear(g, "fc", features(g), 1, true), target(g, 1));
}

static ech_value stack(ech_graph *g)
{
    ech_value h = ech_relu(g, ech_linear(g, "fc1", features(g), 5, true));
    h = ech_relu(g, ech_linear(g, "fc2", h, 7, true));
    return ech_linear(g, "fc3", h, CLASSES, true);
}

static ech_value stack_mse(ech_graph *g)
{
    return ech_mse(g, stack(g), target(g, CLASSES));
}

static ech_value stack_cross_entropy(ech_graph *g)
{
    return ech_cross_entropy(g, stack(g), labels(g));
}

static ech_value no_bias(ech_graph *g)
{
    const ech_value h = ech_relu(g, ech_linear(g, "fc1", features(g), 6, false));
    return ech_mse(g, ech_linear(g, "fc2", h, 2, false), target(g, 2));
}

static ech_value relu_at_the_end(ech_graph *g)
{
    return ech_mse(g, ech_relu(g, ech_linear(g, "fc", features(g), 6, true)), target(g, 6));
}

/* h goes two ways. */
static ech_value residual(ech_graph *g)
{
    const ech_value h = ech_relu(g, ech_linear(g, "fc1", features(g), 5, true));
    const ech_value sum = ech_add(g, ech_linear(g, "fc2", h, 5, true), h);
    return ech_mse(g, ech_relu(g, sum), target(g, 5));
}

/* The linear output is used before and after its relu, so that nothing may be fused. */
static ech_value before_and_after(ech_graph *g)
{
    const ech_value y = ech_linear(g, "fc1", features(g), 5, true);
    return ech_mse(g, ech_add(g, ech_relu(g, y), y), target(g, 5));
}

static ech_value after_and_before(ech_graph *g)
{
    const ech_value x = features(g), y = ech_linear(g, "fc1", x, 4, true);
    const ech_value sum = ech_add(g, y, x);
    return ech_mse(g, ech_add(g, ech_relu(g, y), sum), target(g, 4));
}

static ech_value twice_in_one_node(ech_graph *g)
{
    const ech_value h = ech_linear(g, "fc1", features(g), 5, true);
    return ech_mse(g, ech_add(g, h, h), target(g, 5));
}

static ech_value three_ways(ech_graph *g)
{
    const ech_value h = ech_relu(g, ech_linear(g, "fc1", features(g), 4, true));
    const ech_value a = ech_linear(g, "a", h, 2, true), b = ech_linear(g, "b", h, 2, false);
    const ech_value c = ech_linear(g, "c", h, 2, true);
    return ech_mse(g, ech_add(g, a, ech_add(g, b, c)), target(g, 2));
}

/* An input vector is added to each row; it needs no gradient. */
static ech_value input_row(ech_graph *g)
{
    const ech_value row = ech_input(g, "row", ECH_F64, 1, (int64_t[]){5});
    const ech_value h = ech_add(g, ech_linear(g, "fc1", features(g), 5, false), row);
    return ech_mse(g, ech_relu(g, h), target(g, 5));
}

static ech_value two_losses(ech_graph *g)
{
    const ech_value h = ech_relu(g, ech_linear(g, "fc1", features(g), 6, true));
    const ech_value fit = ech_mse(g, ech_linear(g, "fit", h, 2, true), target(g, 2));
    const ech_value sort = ech_cross_entropy(g, ech_linear(g, "sort", h, CLASSES, true), labels(g));
    return ech_add(g, fit, sort);
}

static ech_value three_losses(ech_graph *g)
{
    const ech_value x = features(g), h = ech_linear(g, "fc1", x, 4, true);
    const ech_value one = ech_mse(g, h, x);
    const ech_value two = ech_mse(g, ech_relu(g, ech_linear(g, "fc2", h, 2, true)), target(g, 2));
    const ech_value three =
        ech_cross_entropy(g, ech_linear(g, "fc3", h, CLASSES, false), labels(g));
    return ech_add(g, one, ech_add(g, two, three));
}

/* ---- graphs of images ---- */

static ech_value picture(ech_graph *g, int64_t channels, int64_t height, int64_t width)
{
    return ech_input(g, "x", ECH_F64, 4, (int64_t[]){ECH_BATCH, channels, height, width});
}

/* The mean of squares between an image and one of the same shape. */
static ech_value image_loss(ech_graph *g, ech_value y)
{
    if (y < 0)
        return y;
    const ech__shape shape = g->values[y].type.shape;
    return ech_mse(g, y, ech_input(g, "t", ECH_F64, 4, shape.dims));
}

static ech_value conv(ech_graph *g, const char *name, ech_value x, int64_t channels, int64_t kernel)
{
    return ech_conv2d(g, name, x,
                      &(ech_conv){.out_channels = channels, .kernel = kernel, .pad = kernel / 2});
}

static ech_value one_convolution(ech_graph *g)
{
    return image_loss(g, conv(g, "conv", picture(g, 2, 3, 4), 3, 3));
}

/* The second needs the gradient of its input. Strides leave pixels out at the edge. */
static ech_value strided_convolutions(ech_graph *g)
{
    const ech_conv first = {.out_channels = 3, .kernel = 3, .stride = 2, .pad = 1, .bias = true};
    const ech_conv second = {.out_channels = 2, .kernel = 2, .stride = 2, .bias = true};
    const ech_value h = ech_relu(g, ech_conv2d(g, "conv1", picture(g, 2, 6, 5), &first));
    return image_loss(g, ech_relu(g, ech_conv2d(g, "conv2", h, &second)));
}

static ech_value windows_apart(ech_graph *g)
{
    const ech_conv first = {.out_channels = 2, .kernel = 3, .stride = 1, .pad = 2};
    const ech_conv second = {.out_channels = 2, .kernel = 1, .stride = 3, .bias = true};
    return image_loss(
        g, ech_conv2d(g, "conv2", ech_conv2d(g, "conv1", picture(g, 1, 3, 4), &first), &second));
}

static ech_value one_pixel_is_left(ech_graph *g)
{
    const ech_conv whole = {.out_channels = 3, .kernel = 4, .bias = true};
    const ech_value h = conv(g, "conv1", picture(g, 2, 4, 4), 2, 3);
    return image_loss(g, ech_relu(g, ech_conv2d(g, "conv2", h, &whole)));
}

static ech_value convolution_twice_used(ech_graph *g)
{
    const ech_value y = conv(g, "conv", picture(g, 2, 3, 3), 2, 3);
    return image_loss(g, ech_add(g, ech_relu(g, y), y));
}

static ech_value norm(ech_graph *g)
{
    return image_loss(g, ech_batchnorm2d(g, "bn", conv(g, "conv", picture(g, 2, 3, 4), 3, 3)));
}

static ech_value norm_of_the_input(ech_graph *g)
{
    return image_loss(g, ech_batchnorm2d(g, "bn", picture(g, 3, 2, 2)));
}

static ech_value norm_relu(ech_graph *g)
{
    const ech_value h = ech_batchnorm2d(g, "bn", conv(g, "conv1", picture(g, 2, 3, 4), 3, 3));
    return image_loss(g, conv(g, "conv2", ech_relu(g, h), 2, 1));
}

/* The residual leads to a parameter, too. */
static ech_value normed_plus(ech_graph *g, bool norm_first)
{
    const ech_value x = picture(g, 2, 3, 4), other = conv(g, "other", x, 3, 1);
    const ech_value h = ech_batchnorm2d(g, "bn", conv(g, "conv", x, 3, 3));
    return norm_first ? ech_add(g, h, other) : ech_add(g, other, h);
}

static ech_value norm_residual(ech_graph *g)
{
    return image_loss(g, normed_plus(g, true));
}

static ech_value norm_residual_relu(ech_graph *g)
{
    return image_loss(g, ech_relu(g, normed_plus(g, true)));
}

static ech_value residual_norm_relu(ech_graph *g)
{
    return image_loss(g, conv(g, "last", ech_relu(g, normed_plus(g, false)), 2, 1));
}

static ech_value norm_plus_the_input(ech_graph *g)
{
    const ech_value x = picture(g, 2, 3, 4);
    const ech_value h = ech_batchnorm2d(g, "bn", conv(g, "conv", x, 2, 3));
    return image_loss(g, ech_relu(g, ech_add(g, x, h)));
}

static ech_value norm_plus_itself(ech_graph *g)
{
    const ech_value h = ech_batchnorm2d(g, "bn", conv(g, "conv", picture(g, 2, 3, 3), 2, 3));
    return image_loss(g, ech_relu(g, ech_add(g, h, h)));
}

static ech_value block(ech_graph *g, ech_value x, int64_t channels, int64_t stride)
{
    const ech_conv first = {.out_channels = channels, .kernel = 3, .stride = stride, .pad = 1};
    const ech_conv shortcut = {.out_channels = channels, .kernel = 1, .stride = stride};
    ech_value h = ech_relu(g, ech_batchnorm2d(g, "bn1", ech_conv2d(g, "conv1", x, &first)));
    h = ech_batchnorm2d(g, "bn2", conv(g, "conv2", h, channels, 3));
    if (stride != 1)
        x = ech_batchnorm2d(g, "shortcut.1", ech_conv2d(g, "shortcut.0", x, &shortcut));
    return ech_relu(g, ech_add(g, h, x));
}

static ech_value residual_block(ech_graph *g)
{
    const ech_value x = ech_relu(g, conv(g, "conv", picture(g, 1, 3, 4), 2, 3));
    const ech_value h = ech_avgpool2d(g, block(g, x, 2, 1), 3, 1);
    return ech_cross_entropy(g, ech_linear(g, "linear", ech_flatten(g, h), CLASSES, true),
                             labels(g));
}

static ech_value residual_block_with_stride(ech_graph *g)
{
    const ech_value x = ech_relu(g, conv(g, "conv", picture(g, 1, 4, 4), 2, 3));
    const ech_value h = ech_avgpool2d(g, block(g, x, 3, 2), 2, 2);
    return ech_cross_entropy(g, ech_linear(g, "linear", ech_flatten(g, h), CLASSES, true),
                             labels(g));
}

static ech_value pooled(ech_graph *g, ech__op op, int64_t kernel, int64_t stride, int64_t pad)
{
    const ech_value h = conv(g, "conv", picture(g, 1, 5, 4), 2, 3);
    return image_loss(
        g, ech__graph_add(g, &(ech__node){.op = op,
                                          .attrs = {.kernel = kernel, .stride = stride, .pad = pad},
                                          .nin = 1,
                                          .in = {h}}));
}

static ech_value max_pool(ech_graph *g)
{
    return pooled(g, ECH__OP_MAXPOOL2D, 2, 2, 0);
}

static ech_value max_pool_overlapping(ech_graph *g)
{
    return pooled(g, ECH__OP_MAXPOOL2D, 3, 1, 1);
}

static ech_value max_pool_padded(ech_graph *g)
{
    return pooled(g, ECH__OP_MAXPOOL2D, 3, 2, 2);
}

static ech_value average_pool(ech_graph *g)
{
    return pooled(g, ECH__OP_AVGPOOL2D, 2, 2, 0);
}

static ech_value average_pool_overlapping(ech_graph *g)
{
    return pooled(g, ECH__OP_AVGPOOL2D, 3, 1, 1);
}

static ech_value flattened(ech_graph *g)
{
    const ech_value rows = ech_flatten(g, conv(g, "conv", picture(g, 2, 2, 3), 2, 1));
    return ech_mse(g, ech_linear(g, "fc", rows, 2, true), target(g, 2));
}

static ech_value lenet(ech_graph *g)
{
    const ech_conv first = {.out_channels = 2, .kernel = 3, .bias = true};
    const ech_conv second = {.out_channels = 3, .kernel = 2, .bias = true};
    ech_value h = ech_relu(g, ech_conv2d(g, "conv1", picture(g, 1, 8, 8), &first));
    h = ech_relu(g, ech_conv2d(g, "conv2", ech_maxpool2d(g, h, 2, 2), &second));
    h = ech_flatten(g, ech_maxpool2d(g, h, 2, 2));
    h = ech_relu(g, ech_linear(g, "fc1", h, 5, true));
    return ech_cross_entropy(g, ech_linear(g, "fc2", h, CLASSES, true), labels(g));
}

/* ---- checks ---- */

typedef struct world {
    ech_ctx *ctx;
    ech__device *device;
} world;

static int setup(void **state)
{
    static world w;
    assert_int_equal(ech_ctx_create(NULL, &w.ctx), ECH_OK);
    const ech__device_options options = {.kind = ECH__DEVICE_REFERENCE, .threads = 1};
    assert_int_equal(ech__device_create(w.ctx, &options, &w.device), ECH_OK);
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    world *w = *state;
    ech__device_destroy(w->device);
    ech_ctx_destroy(w->ctx);
    return 0;
}

static ech_graph *build(world *w, build_fn fn, bool fuse)
{
    ech_graph *g;
    assert_int_equal(ech_graph_create(w->ctx, &g), ECH_OK);
    const ech_value loss = fn(g);
    if ((fuse && ech__fuse(g) < 0) || ech__autodiff(g, loss) < 0 || ech__graph_check(g) < 0)
        fail_msg("%s", ech_ctx_error(w->ctx));
    return g;
}

/* Returns the loss. */
static double check(world *w, build_fn fn, bool fuse, int64_t batch)
{
    ech_graph *g = build(w, fn, fuse);
    interpreter it;
    interpreter_init(&it, g, batch, w->device);
    interpreter_fill(&it, 7, CLASSES);
    assert_true(interpreter_check_gradients(&it) > 0);
    interpreter_run(&it, ECH__PHASE_FORWARD);
    const double loss = interpreter_get(&it, g->loss, 0);
    interpreter_fini(&it);
    ech_graph_destroy(g);
    return loss;
}

static void check_all(world *w, build_fn fn)
{
    const int64_t batches[] = {2, 3, 7};
    for (int k = 0; k < 3; k++) {
        const double loss = check(w, fn, false, batches[k]), fused = check(w, fn, true, batches[k]);
        assert_true(fabs(loss - fused) <= 1e-14 * loss); /* fusion changes no numbers */
    }
}

#define GRAPHS(X)                                                                                  \
    X(one_layer)                                                                                   \
    X(one_unit)                                                                                    \
    X(stack_mse)                                                                                   \
    X(stack_cross_entropy)                                                                         \
    X(no_bias)                                                                                     \
    X(relu_at_the_end)                                                                             \
    X(residual)                                                                                    \
    X(before_and_after)                                                                            \
    X(after_and_before)                                                                            \
    X(twice_in_one_node)                                                                           \
    X(three_ways)                                                                                  \
    X(input_row)                                                                                   \
    X(two_losses)                                                                                  \
    X(three_losses)                                                                                \
    X(one_convolution)                                                                             \
    X(strided_convolutions)                                                                        \
    X(windows_apart)                                                                               \
    X(one_pixel_is_left)                                                                           \
    X(convolution_twice_used)                                                                      \
    X(norm)                                                                                        \
    X(norm_of_the_input)                                                                           \
    X(norm_relu)                                                                                   \
    X(norm_residual)                                                                               \
    X(norm_residual_relu)                                                                          \
    X(residual_norm_relu)                                                                          \
    X(norm_plus_the_input)                                                                         \
    X(norm_plus_itself)                                                                            \
    X(residual_block)                                                                              \
    X(residual_block_with_stride)                                                                  \
    X(max_pool)                                                                                    \
    X(max_pool_overlapping)                                                                        \
    X(max_pool_padded)                                                                             \
    X(average_pool)                                                                                \
    X(average_pool_overlapping)                                                                    \
    X(flattened)                                                                                   \
    X(lenet)

#define DEFINE(name)                                                                               \
    static void gradient_of_##name(void **state)                                                   \
    {                                                                                              \
        check_all(*state, name);                                                                   \
    }
GRAPHS(DEFINE)

/* The factor reaches every gradient once, also where losses are summed. A power of two changes no digit. */
static void loss_scale(void **state)
{
    world *w = *state;
    ech_graph *g = build(w, three_losses, true);
    interpreter one, scaled;
    interpreter_init(&one, g, 3, w->device);
    interpreter_init(&scaled, g, 3, w->device);
    scaled.scalars.loss_scale = 1024;
    interpreter_fill(&one, 7, CLASSES);
    interpreter_fill(&scaled, 7, CLASSES);
    interpreter_run(&one, ECH__PHASE_BACKWARD);
    interpreter_run(&scaled, ECH__PHASE_BACKWARD);
    assert_true(interpreter_get(&one, g->loss, 0) == interpreter_get(&scaled, g->loss, 0));
    int compared = 0;
    for (size_t v = 0; v < g->nvalues; v++) {
        if (g->values[v].kind != ECH__VALUE_GRADIENT)
            continue;
        for (int64_t k = 0; k < one.elems[v]; k++, compared++) {
            const double small = interpreter_get(&one, (ech_value)v, k);
            assert_true(interpreter_get(&scaled, (ech_value)v, k) == 1024 * small);
        }
    }
    assert_true(compared > 0);
    interpreter_fini(&one);
    interpreter_fini(&scaled);
    ech_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define LIST(name) cmocka_unit_test_setup_teardown(gradient_of_##name, setup, teardown),
        GRAPHS(LIST) cmocka_unit_test_setup_teardown(loss_scale, setup, teardown),
    };
    return run_kernel_tests("gradients", tests);
}
