/* Building graphs, and the passes of src/graph: what they give, and what they refuse with which sentence. */
#include "support/graph_fixture.h"

#include <stdio.h>
#include <string.h>

/* ---- shapes ---- */

static void shapes_of_outputs(void **state)
{
    (void)state;
    const ech_value x = input("x", 16), h = ech_linear(g, "fc", x, 3, true);
    const ech_value labels = ech_input(g, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    assert_string_equal(ech__shape_format(&g->values[h].type.shape).s, "[N, 3]");
    assert_string_equal(ech__shape_format(&g->values[ech_relu(g, h)].type.shape).s, "[N, 3]");
    assert_int_equal(g->values[ech_mse(g, h, h)].type.shape.ndims, 0);
    assert_int_equal(g->values[ech_cross_entropy(g, h, labels)].type.shape.ndims, 0);
    const ech_value w = ech__graph_find(g, "fc.weight"), b = ech__graph_find(g, "fc.bias");
    assert_string_equal(ech__shape_format(&g->values[w].type.shape).s, "[3, 16]");
    assert_string_equal(ech__shape_format(&g->values[b].type.shape).s, "[3]");
    assert_true(g->values[w].init.high == 0.25 && g->values[b].init.low == -0.25);
    assert_int_equal(g->values[w].kind, ECH__VALUE_PARAM);
    assert_int_equal(ech_graph_status(g), ECH_OK);
    expect_sound(g);
}

static void mse_of_two_widths(void **state)
{
    (void)state;
    expect_refused(ech_mse(g, input("x", 3), input("t", 4)),
                   "mse 'mse_0' on f32 [N, 3], f32 [N, 4]: shapes must be equal");
}

static void add_of_two_shapes(void **state)
{
    (void)state;
    const ech_value b = ech_input(g, "b", ECH_F32, 1, (int64_t[]){4});
    expect_refused(
        ech_add(g, input("x", 3), b),
        "add 'add_0' on f32 [N, 3], f32 [4]: shapes must be equal, or b a vector as long "
        "as a's last dimension");
}

static void add_of_two_types(void **state)
{
    (void)state;
    const ech_value d = ech_input(g, "d", ECH_F64, 2, (int64_t[]){ECH_BATCH, 3});
    expect_refused(ech_add(g, input("x", 3), d),
                   "add 'add_0' on f32 [N, 3], f64 [N, 3]: all must be f32, or all f64");
}

static void relu_of_labels(void **state)
{
    (void)state;
    const ech_value labels = ech_input(g, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    expect_refused(ech_relu(g, labels), "relu 'relu_0' on s32 [N]: all must be f32, or all f64");
}

static void cross_entropy_without_labels(void **state)
{
    (void)state;
    const ech_value x = input("x", 3);
    expect_refused(
        ech_cross_entropy(g, x, x),
        "cross_entropy 'cross_entropy_0' on f32 [N, 3], f32 [N, 3]: logits must be f32 or "
        "f64 and labels s32");
}

static void cross_entropy_with_a_matrix_of_labels(void **state)
{
    (void)state;
    const ech_value labels = ech_input(g, "labels", ECH_S32, 2, (int64_t[]){ECH_BATCH, 3});
    expect_refused(ech_cross_entropy(g, input("x", 3), labels),
                   "cross_entropy 'cross_entropy_0' on f32 [N, 3], s32 [N, 3]: labels must be a "
                   "vector with one entry per row of logits");
}

static void linear_of_a_vector(void **state)
{
    (void)state;
    const ech_value v = ech_input(g, "v", ECH_F32, 1, (int64_t[]){8});
    expect_refused(ech_linear(g, "fc", v, 4, true), "linear 'fc' on [8]: x must have 2 dimensions");
}

static void linear_to_nothing(void **state)
{
    (void)state;
    expect_refused(ech_linear(g, "fc", input("x", 8), 0, true),
                   "linear 'fc' from [N, 8] to 0 features: at least 1 is needed");
}

static void linear_weight_of_another_width(void **state)
{
    (void)state;
    const ech__node node = {
        .op = ECH__OP_LINEAR, .name = "fc", .nin = 2, .in = {input("x", 8), input("w", 7)}};
    expect_refused(
        ech__graph_add(g, &node),
        "linear 'fc' on f32 [N, 8], f32 [N, 7]: the last dimension of x and of weight must "
        "be equal");
}

static void too_few_inputs(void **state)
{
    (void)state;
    const ech__node node = {.op = ECH__OP_MSE, .nin = 1, .in = {input("x", 8)}};
    expect_refused(ech__graph_add(g, &node), "mse takes 2 to 2 inputs, not 1");
}

static void inputs_that_cannot_be(void **state)
{
    (void)state;
    expect_refused(ech_input(g, "x", ECH_F32, 7, (int64_t[]){1, 1, 1, 1, 1, 1, 1}),
                   "input 'x' has 7 dimensions; at most 6 are possible");
    expect_refused(ech_input(g, "x", ECH_F32, 2, (int64_t[]){3, 0}),
                   "dimension 1 of input 'x' is 0; it must be at least 1");
    /* The batch is the first dimension or none. */
    expect_refused(ech_input(g, "x", ECH_F32, 2, (int64_t[]){3, ECH_BATCH}),
                   "dimension 1 of input 'x' is -1; it must be at least 1");
    assert_int_equal(ech__graph_find(g, "x"), -1);
}

/* ---- names and chains ---- */

static void a_name_is_taken_once(void **state)
{
    (void)state;
    const ech_value x = input("x", 3);
    assert_true(x >= 0);
    expect_refused(input("x", 4), "the graph has a value named 'x' already");
}

static void a_layer_is_taken_once(void **state)
{
    (void)state;
    const ech_value h = ech_linear(g, "fc", input("x", 3), 3, true);
    assert_true(h >= 0);
    expect_refused(ech_linear(g, "fc", h, 3, true),
                   "the graph has a value named 'fc.weight' already");
}

/* One check at the end of a chain is enough: the first failure and its sentence stay. */
static void a_failure_goes_through_a_chain(void **state)
{
    (void)state;
    const ech_value x = input("x", 3), bad = ech_mse(g, x, input("t", 4));
    char first[256];
    snprintf(first, sizeof first, "%s", ech_ctx_error(ctx));
    const size_t nodes = g->nnodes;
    const ech_value h = ech_relu(g, ech_linear(g, "fc", bad, 8, true));
    const ech_value end = ech_add(g, x, ech_cross_entropy(g, ech_mse(g, h, x), bad));
    expect_refused(end, first);
    assert_int_equal(g->nnodes, nodes);
    assert_int_equal(ech__graph_find(g, "fc.weight"), -1);
    assert_int_equal(ech__fuse(g), ECH_E_INVALID);
    assert_int_equal(ech__autodiff(g, 0), ECH_E_INVALID);
    assert_int_equal(ech__insert_delay(g, 1), ECH_E_INVALID);
    assert_string_equal(ech_ctx_error(ctx), first);
}

static void a_value_of_no_graph(void **state)
{
    (void)state;
    expect_refused(ech_relu(g, 5), "input 0 of relu is not a value of this graph");
    expect_refused(ech_linear(g, "fc", 5, 3, true), "linear 'fc': x is not a value of this graph");
}

static void a_negative_value_without_a_failure(void **state)
{
    (void)state;
    expect_refused(ech_relu(g, -3), "input 0 of relu is not a value of this graph");
}

/* ---- fusion ---- */

static ech_value stack(void)
{
    const ech_value h = ech_relu(g, ech_linear(g, "fc1", input("x", 4), 5, true));
    return ech_mse(g, ech_linear(g, "fc2", h, 2, false), input("t", 2));
}

static void fusion(void **state)
{
    (void)state;
    stack();
    assert_string_equal(listing(g), "linear fc1, add fc1, relu relu_2, linear fc2, mse mse_4");
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_string_equal(listing(g), "linear fc1, linear fc2, mse mse_4");
    const ech__node *first = &g->nodes[0], *second = &g->nodes[1];
    assert_true(first->attrs.relu && first->nin == 3);
    assert_int_equal(first->in[2], ech__graph_find(g, "fc1.bias"));
    assert_int_equal(second->in[0], first->out[0]);
    assert_true(!second->attrs.relu && second->nin == 2);
    expect_sound(g);
}

static void fusion_twice(void **state)
{
    (void)state;
    stack();
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_string_equal(listing(g), "linear fc1, linear fc2, mse mse_4");
    expect_sound(g);
}

static void fusion_of_relu_without_bias(void **state)
{
    (void)state;
    ech_relu(g, ech_linear(g, "fc", input("x", 4), 5, false));
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_string_equal(listing(g), "linear fc");
    assert_true(g->nodes[0].attrs.relu && g->nodes[0].nin == 2);
}

/* What others use must stay. */
static void fusion_keeps_what_is_used_twice(void **state)
{
    (void)state;
    const ech_value y = ech_linear(g, "fc", input("x", 4), 5, true);
    ech_add(g, ech_relu(g, y), y);
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_string_equal(listing(g), "linear fc, relu relu_2, add add_3");
    assert_true(g->nodes[0].nin == 3 && !g->nodes[0].attrs.relu);
    expect_sound(g);
}

/* The relu comes last among the users, and still is not the only one. */
static void fusion_keeps_what_an_earlier_node_uses(void **state)
{
    (void)state;
    const ech_value y = ech_linear(g, "fc", input("x", 5), 5, false);
    const ech_value sum = ech_add(g, y, ech__graph_find(g, "x"));
    ech_mse(g, ech_relu(g, y), sum);
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_string_equal(listing(g), "linear fc, add add_1, relu relu_2, mse mse_3");
    expect_sound(g);
}

static void fusion_keeps_a_plain_addition(void **state)
{
    (void)state;
    const ech_value x = input("x", 4), row = ech_input(g, "row", ECH_F32, 1, (int64_t[]){4});
    ech_add(g, ech_linear(g, "a", x, 4, false), x);
    ech_add(g, ech_linear(g, "b", x, 4, false), row); /* a vector, but no parameter */
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_string_equal(listing(g), "linear a, add add_1, linear b, add add_3");
}

/* A relu that is already inside stays inside: a second one is none of the linear's business. */
static void fusion_of_two_relus(void **state)
{
    (void)state;
    const ech_value y = ech_relu(g, ech_relu(g, ech_linear(g, "fc", input("x", 4), 5, true)));
    ech_mse(g, y, input("t", 5));
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_string_equal(listing(g), "linear fc, relu relu_3, mse mse_4");
    assert_int_equal(g->nodes[1].out[0], y);
    expect_sound(g);
}

/* ---- autodiff ---- */

static void autodiff_of_a_stack(void **state)
{
    (void)state;
    const ech_value loss = stack();
    assert_int_equal(ech__autodiff(g, loss), ECH_OK);
    /* Weights before data, no linear_bwd_data for fc1. */
    assert_string_equal(
        listing(g), "linear fc1, add fc1, relu relu_2, linear fc2, mse mse_4, mse_bwd mse_4, "
                    "linear_bwd_weights fc2, linear_bwd_data fc2, relu_bwd relu_2, sum_rows fc1, "
                    "linear_bwd_weights fc1");
    assert_int_equal(g->loss, loss);
    for (size_t n = 0; n < g->nnodes; n++)
        assert_int_equal(g->nodes[n].phase, n < 5 ? ECH__PHASE_FORWARD : ECH__PHASE_BACKWARD);
    expect_sound(g);
}

static void autodiff_of_a_fused_stack(void **state)
{
    (void)state;
    const ech_value loss = stack();
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_int_equal(ech__autodiff(g, loss), ECH_OK);
    assert_string_equal(listing(g), "linear fc1, linear fc2, mse mse_4, mse_bwd mse_4, "
                                    "linear_bwd_weights fc2, linear_bwd_data fc2, relu_bwd fc1, "
                                    "linear_bwd_weights fc1");
    assert_true(g->nodes[g->nnodes - 1].attrs.bias);
    expect_sound(g);
}

static void gradients_have_names(void **state)
{
    (void)state;
    const ech_value loss = stack();
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_int_equal(ech__autodiff(g, loss), ECH_OK);
    const char *const params[] = {"fc1.weight", "fc1.bias", "fc2.weight"};
    for (int k = 0; k < 3; k++) {
        const ech_value param = ech__graph_find(g, params[k]);
        const ech_value grad = ech__graph_gradient(g, param);
        assert_true(grad >= 0);
        char name[32];
        snprintf(name, sizeof name, "%s.grad", params[k]);
        assert_string_equal(g->values[grad].name, name);
        assert_int_equal(ech__graph_find(g, name), grad);
        assert_int_equal(g->values[grad].of, param);
        assert_true(ech__shape_equal(&g->values[grad].type.shape, &g->values[param].type.shape));
    }
    assert_int_equal(ech__graph_gradient(g, ech__graph_find(g, "x")), -1);
}

/* A branch that leads to no parameter gets nothing, nor does one that does not lead to the loss. */
static void autodiff_prunes(void **state)
{
    (void)state;
    const ech_value x = input("x", 4), side = ech_relu(g, input("s", 4));
    ech_relu(g, ech_linear(g, "unused", x, 4, true));
    const ech_value sum = ech_add(g, side, ech_linear(g, "fc", x, 4, false));
    assert_int_equal(ech__autodiff(g, ech_mse(g, sum, side)), ECH_OK);
    assert_int_equal(count_ops(g, ECH__OP_RELU_BWD), 0);
    assert_int_equal(count_ops(g, ECH__OP_LINEAR_BWD_DATA), 0);
    assert_int_equal(count_ops(g, ECH__OP_LINEAR_BWD_WEIGHTS), 1);
    assert_true(ech__graph_gradient(g, ech__graph_find(g, "fc.weight")) >= 0);
    assert_int_equal(ech__graph_gradient(g, ech__graph_find(g, "unused.weight")), -1);
    assert_int_equal(ech__graph_gradient(g, ech__graph_find(g, "unused.bias")), -1);
    expect_sound(g);
}

static void autodiff_adds_up_fan_out(void **state)
{
    (void)state;
    const ech_value h = ech_linear(g, "fc1", input("x", 4), 4, false);
    const ech_value sum = ech_add(g, ech_linear(g, "fc2", h, 4, false), h);
    assert_int_equal(ech__autodiff(g, ech_mse(g, sum, input("t", 4))), ECH_OK);
    assert_int_equal(count_ops(g, ECH__OP_ADD),
                     2); /* one forward, one for the two gradients of h */
    expect_sound(g);
}

static void expect_no_autodiff(ech_value loss, ech_status code, const char *sentence)
{
    assert_int_equal(ech__autodiff(g, loss), code);
    assert_string_equal(ech_ctx_error(ctx), sentence);
}

static void no_autodiff_without_parameters(void **state)
{
    (void)state;
    const ech_value x = input("x", 4);
    expect_no_autodiff(ech_mse(g, x, x), ECH_E_INVALID, "the loss depends on no parameter");
}

static void no_autodiff_of_a_matrix(void **state)
{
    (void)state;
    expect_no_autodiff(ech_linear(g, "fc", input("x", 4), 4, false), ECH_E_INVALID,
                       "the loss has shape [N, 4]; it must be a scalar");
}

static void no_autodiff_of_nothing(void **state)
{
    (void)state;
    expect_no_autodiff(0, ECH_E_INVALID, "the loss is not a value of this graph");
    expect_no_autodiff(-1, ECH_E_INVALID, "the loss is not a value of this graph");
}

static void no_autodiff_through_a_target(void **state)
{
    (void)state;
    const ech_value x = input("x", 4);
    expect_no_autodiff(ech_mse(g, x, ech_linear(g, "fc", x, 4, false)), ECH_E_UNSUPPORTED,
                       "the target of mse 'mse_1' depends on a parameter");
}

static void no_autodiff_behind_a_loss(void **state)
{
    (void)state;
    const ech_value loss = stack();
    expect_no_autodiff(
        ech_relu(g, loss), ECH_E_UNSUPPORTED,
        "the loss is made by relu 'relu_5'; it must be made by mse or cross_entropy, or "
        "be a sum of such");
}

/* Its gradient would have to count double. */
static void no_autodiff_of_a_loss_counted_twice(void **state)
{
    (void)state;
    const ech_value loss = stack();
    expect_no_autodiff(ech_add(g, loss, loss), ECH_E_UNSUPPORTED,
                       "the loss 'mse_4' is used more than once");
}

static void no_autodiff_of_a_loss_of_a_loss(void **state)
{
    (void)state;
    const ech_value one = stack(), x = ech__graph_find(g, "x");
    const ech_value two = ech_mse(g, ech_linear(g, "fc3", x, 4, false), x);
    const ech_value scalar = ech_input(g, "scalar", ECH_F32, 0, NULL);
    const ech_value sum = ech_add(g, one, two), far = ech_mse(g, one, scalar);
    expect_no_autodiff(ech_add(g, sum, far), ECH_E_UNSUPPORTED,
                       "the loss 'mse_4' is used more than once");
}

static void no_second_autodiff(void **state)
{
    (void)state;
    const ech_value loss = stack();
    assert_int_equal(ech__autodiff(g, loss), ECH_OK);
    const size_t nodes = g->nnodes;
    expect_no_autodiff(loss, ECH_E_INVALID, "the graph has its backward operators already");
    assert_int_equal(g->nnodes, nodes);
}

/* ---- delay ---- */

static void delay_stands_before_the_backward_pass(void **state)
{
    (void)state;
    const ech_value loss = stack();
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_int_equal(ech__autodiff(g, loss), ECH_OK);
    assert_int_equal(ech__insert_delay(g, 0.25), ECH_OK);
    assert_string_equal(listing(g),
                        "linear fc1, linear fc2, mse mse_4, delay delay, mse_bwd mse_4, "
                        "linear_bwd_weights fc2, linear_bwd_data fc2, relu_bwd fc1, "
                        "linear_bwd_weights fc1");
    assert_true(g->nodes[3].attrs.seconds == 0.25);
    assert_int_equal(g->nodes[3].phase, ECH__PHASE_BACKWARD);
    expect_sound(g);
}

static void delay_without_a_backward_pass(void **state)
{
    (void)state;
    stack();
    assert_int_equal(ech__insert_delay(g, 0.25), ECH_OK);
    assert_int_equal(g->nodes[g->nnodes - 1].op, ECH__OP_DELAY);
    assert_int_equal(g->phase, ECH__PHASE_FORWARD);
}

/* ---- copies and checks ---- */

static void a_copy_stands_alone(void **state)
{
    (void)state;
    const ech_value loss = stack();
    char before[256];
    snprintf(before, sizeof before, "%s", listing(g));
    const size_t values = g->nvalues;
    ech_graph *copy;
    assert_int_equal(ech__graph_clone(g, &copy), ECH_OK);
    assert_string_equal(listing(copy), before);
    assert_int_equal(copy->phase, g->phase);
    assert_int_equal(ech__fuse(copy), ECH_OK);
    assert_int_equal(ech__autodiff(copy, loss), ECH_OK);
    assert_string_equal(listing(g), before);
    assert_int_equal(g->nvalues, values);
    assert_int_equal(g->loss, -1);
    assert_int_equal(g->phase, ECH__PHASE_FORWARD);
    /* The copy must not read the memory of the original, nor share its names. */
    ech_graph_destroy(g);
    expect_sound(copy);
    assert_true(ech__graph_gradient(copy, ech__graph_find(copy, "fc1.weight")) >= 0);
    assert_string_equal(listing(copy), "linear fc1, linear fc2, mse mse_4, mse_bwd mse_4, "
                                       "linear_bwd_weights fc2, linear_bwd_data fc2, relu_bwd fc1, "
                                       "linear_bwd_weights fc1");
    g = copy;
}

static void a_copy_of_nothing(void **state)
{
    (void)state;
    ech_graph *copy;
    assert_int_equal(ech__graph_clone(g, &copy), ECH_OK);
    assert_int_equal(copy->nvalues + copy->nnodes, 0);
    assert_true(ech_input(copy, "x", ECH_F32, 0, NULL) >= 0);
    assert_int_equal(g->nvalues, 0);
    ech_graph_destroy(copy);
}

static void a_copy_of_a_failure(void **state)
{
    (void)state;
    ech_mse(g, input("x", 3), input("t", 4));
    ech_graph *copy;
    assert_int_equal(ech__graph_clone(g, &copy), ECH_OK);
    assert_int_equal(ech_graph_status(copy), ECH_E_INVALID);
    ech_graph_destroy(copy);
}

static void a_check_finds_a_wrong_order(void **state)
{
    (void)state;
    stack();
    expect_sound(g);
    const ech__node first = g->nodes[0];
    g->nodes[0] = g->nodes[1];
    g->nodes[1] = first;
    assert_int_equal(ech__graph_check(g), ECH_E_INTERNAL);
    assert_string_equal(ech_ctx_error(ctx), "'fc1' is used before it is made");
}

static void a_check_finds_a_value_made_twice(void **state)
{
    (void)state;
    stack();
    g->nodes[3].out[0] = g->nodes[1].out[0];
    assert_int_equal(ech__graph_check(g), ECH_E_INTERNAL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, graph_setup, graph_teardown)
    const struct CMUnitTest tests[] = {
        TEST(shapes_of_outputs),
        TEST(mse_of_two_widths),
        TEST(add_of_two_shapes),
        TEST(add_of_two_types),
        TEST(relu_of_labels),
        TEST(cross_entropy_without_labels),
        TEST(cross_entropy_with_a_matrix_of_labels),
        TEST(linear_of_a_vector),
        TEST(linear_to_nothing),
        TEST(linear_weight_of_another_width),
        TEST(too_few_inputs),
        TEST(inputs_that_cannot_be),
        TEST(a_name_is_taken_once),
        TEST(a_layer_is_taken_once),
        TEST(a_failure_goes_through_a_chain),
        TEST(a_value_of_no_graph),
        TEST(a_negative_value_without_a_failure),
        TEST(fusion),
        TEST(fusion_twice),
        TEST(fusion_of_relu_without_bias),
        TEST(fusion_keeps_what_is_used_twice),
        TEST(fusion_keeps_what_an_earlier_node_uses),
        TEST(fusion_keeps_a_plain_addition),
        TEST(fusion_of_two_relus),
        TEST(autodiff_of_a_stack),
        TEST(autodiff_of_a_fused_stack),
        TEST(gradients_have_names),
        TEST(autodiff_prunes),
        TEST(autodiff_adds_up_fan_out),
        TEST(no_autodiff_without_parameters),
        TEST(no_autodiff_of_a_matrix),
        TEST(no_autodiff_of_nothing),
        TEST(no_autodiff_through_a_target),
        TEST(no_autodiff_behind_a_loss),
        TEST(no_autodiff_of_a_loss_counted_twice),
        TEST(no_autodiff_of_a_loss_of_a_loss),
        TEST(no_second_autodiff),
        TEST(delay_stands_before_the_backward_pass),
        TEST(delay_without_a_backward_pass),
        TEST(a_copy_stands_alone),
        TEST(a_copy_of_nothing),
        TEST(a_copy_of_a_failure),
        TEST(a_check_finds_a_wrong_order),
        TEST(a_check_finds_a_value_made_twice),
    };
    return cmocka_run_group_tests_name("graph", tests, NULL, NULL);
}
