/* Mixed precision as a rewrite: which values become 16-bit, how many casts and copies there are,
 * and what it refuses. */
#include "models/internal.h"
#include "support/graph_fixture.h"
#include "train/step/optimizer.h"

#include <string.h>

static ech_dtype type_of(ech_value v)
{
    return g->values[v].type.dtype;
}

static const ech__node *find_node(ech__op op, const char *name, ech__phase phase)
{
    for (size_t n = 0; n < g->nnodes; n++) {
        const ech__node *node = &g->nodes[n];
        if (node->op == op && node->phase == phase && !strcmp(node->name, name))
            return node;
    }
    fail_msg("there is no %s '%s' in '%s'", ech__op_name(op), name, listing(g));
    return NULL;
}

static int count_kind(ech__value_kind kind)
{
    int count = 0;
    for (size_t v = 0; v < g->nvalues; v++)
        count += g->values[v].kind == kind;
    return count;
}

/* All passes that a trainer of one rank runs. */
static void rewrite(ech_value loss, ech_dtype dtype)
{
    ech_train_options options = ech_train_defaults();
    if (ech__fuse(g) < 0 || ech__autodiff(g, loss) < 0 || ech__recompute(g) < 0 ||
        ech__autocast(g, dtype) < 0 || ech__optimize(g, &options) < 0 || ech__copy_weights(g) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    expect_sound(g);
}

/* Every node still fits its operator's rule for types, and what that rule gives is what stands there. */
static void expect_types(void)
{
    for (size_t n = 0; n < g->nnodes; n++) {
        ech__node node = g->nodes[n];
        ech__type in[ECH__MAX_IN], out[ECH__MAX_OUT];
        for (int i = 0; i < node.nin; i++)
            in[i] = g->values[node.in[i]].type;
        if (ech__op_infer(ctx, &node, in, out) < 0)
            fail_msg("%s", ech_ctx_error(ctx));
        for (int i = 0; i < node.nout; i++)
            assert_int_equal(type_of(node.out[i]), out[i].dtype);
    }
    for (size_t v = 0; v < g->nvalues; v++) {
        const ech__value *value = &g->values[v];
        if (value->kind != ECH__VALUE_ACTIVATION && value->kind != ECH__VALUE_COPY &&
            value->kind != ECH__VALUE_INPUT)
            assert_false(ech__dtype_is_low(value->type.dtype));
    }
}

static void linear_stack(void **state)
{
    (void)state;
    const ech_value loss = ech__linear_stack(g, 8, 2);
    rewrite(loss, ECH_BF16);
    expect_types();
    assert_string_equal(
        listing(g),
        "cast x, linear layers.0, linear layers.1, mse mse_6, mse_bwd mse_6, "
        "relu_bwd layers.1, linear_bwd_weights layers.1, linear_bwd_data layers.1, "
        "relu_bwd layers.0, cast x, linear_bwd_weights layers.0, sgd layers.0.weight, "
        "sgd layers.0.bias, sgd layers.1.weight, sgd layers.1.bias, cast layers.0.weight, "
        "cast layers.1.weight, reorder layers.1.weight.bf16");
    assert_int_equal(type_of(loss), ECH_F32);
    const ech__node *first = find_node(ECH__OP_LINEAR, "layers.0", ECH__PHASE_FORWARD);
    assert_int_equal(type_of(first->in[0]), ECH_BF16);
    assert_int_equal(type_of(first->in[1]), ECH_BF16);
    assert_int_equal(type_of(first->in[2]), ECH_F32); /* the bias */
    assert_int_equal(type_of(first->out[0]), ECH_BF16);
    const ech__node *mse = find_node(ECH__OP_MSE_BWD, "mse_6", ECH__PHASE_BACKWARD);
    assert_int_equal(type_of(mse->in[0]), ECH_BF16);
    assert_int_equal(type_of(mse->in[1]), ECH_F32); /* the target, as the program wrote it */
    assert_int_equal(type_of(mse->out[0]), ECH_BF16);
    const ech__node *weights =
        find_node(ECH__OP_LINEAR_BWD_WEIGHTS, "layers.1", ECH__PHASE_BACKWARD);
    assert_int_equal(type_of(weights->out[0]), ECH_F32);
    assert_int_equal(type_of(weights->out[1]), ECH_F32);
    /* The input is cast again for the backward pass: its first cast is nobody's any more. */
    const ech__node *last = find_node(ECH__OP_LINEAR_BWD_WEIGHTS, "layers.0", ECH__PHASE_BACKWARD);
    assert_int_not_equal(last->in[0], first->in[0]);
}

/* One copy of each weight for its type, and one for the order of backward data, where there is such. */
static void weights_have_copies(void **state)
{
    (void)state;
    rewrite(ech__linear_stack(g, 8, 3), ECH_F16);
    assert_int_equal(count_kind(ECH__VALUE_COPY), 3 + 2);
    const ech_value weight = ech__graph_find(g, "layers.1.weight");
    const ech_value low = ech__graph_find(g, "layers.1.weight.f16");
    const ech_value back = ech__graph_find(g, "layers.1.weight.f16.copy");
    assert_true(weight >= 0 && low >= 0 && back >= 0);
    assert_int_equal(g->values[low].of, weight);
    assert_int_equal(g->values[back].of, low);
    assert_int_equal(find_node(ECH__OP_LINEAR, "layers.1", ECH__PHASE_FORWARD)->in[1], low);
    assert_int_equal(find_node(ECH__OP_LINEAR_BWD_DATA, "layers.1", ECH__PHASE_BACKWARD)->in[1],
                     back);
    for (size_t n = 0; n < g->nnodes; n++) { /* refreshed after the optimizer, and in their order */
        if (g->nodes[n].phase == ECH__PHASE_REFRESH)
            assert_true(n + 5 >= g->nnodes);
    }
    const size_t nvalues = g->nvalues, nnodes = g->nnodes;
    assert_int_equal(ech__copy_weights(g), ECH_OK); /* there is nothing left to copy */
    assert_true(g->nvalues == nvalues && g->nnodes == nnodes);
}

static void build_lenet(ech_value *loss)
{
    const ech_value x = ech_input(g, "x", ECH_F32, 4, (int64_t[]){ECH_BATCH, 3, 32, 32});
    const ech_value labels = ech_input(g, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    const ech_value logits = ech__lenet(g, x);
    *loss = ech_cross_entropy(g, logits, labels);
    ech_count_correct(g, logits, labels);
}

static void lenet(void **state)
{
    (void)state;
    ech_value loss;
    build_lenet(&loss);
    rewrite(loss, ECH_F16);
    expect_types();
    /* Of the input in both passes, and of five weights. */
    assert_int_equal(count_ops(g, ECH__OP_CAST), 2 + 5);
    for (size_t n = 0; n < g->nnodes; n++) {
        const ech__node *node = &g->nodes[n];
        if (node->op == ECH__OP_MAXPOOL2D) {
            assert_int_equal(type_of(node->out[0]), ECH_F16);
            assert_int_equal(type_of(node->out[1]), ECH_U8);
        }
        if (node->op == ECH__OP_COUNT_CORRECT) {
            assert_int_equal(type_of(node->in[0]), ECH_F16);
            assert_int_equal(type_of(node->out[0]), ECH_F32);
        }
    }
}

/* Residual sums, batch norms that are computed again, and statistics that stay f32. */
static void residual_net(void **state)
{
    (void)state;
    const ech_value x = ech_input(g, "x", ECH_F32, 4, (int64_t[]){ECH_BATCH, 3, 32, 32});
    const ech_value labels = ech_input(g, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    const ech__resnet shape = {.width = 8, .stages = 2, .blocks = 1};
    rewrite(ech_cross_entropy(g, ech__resnet_of(g, x, &shape), labels), ECH_BF16);
    expect_types();
    int convolutions = 0, layers = 0;
    for (size_t n = 0; n < g->nnodes; n++) {
        const ech__node *node = &g->nodes[n];
        convolutions += node->op == ECH__OP_CONV2D;
        layers += node->op == ECH__OP_LINEAR;
        if (node->op == ECH__OP_BN_STATS || node->op == ECH__OP_BN_REDUCE) {
            assert_int_equal(type_of(node->in[0]), ECH_BF16);
            assert_int_equal(type_of(node->out[0]), ECH_F32);
            assert_int_equal(type_of(node->out[1]), ECH_F32);
        }
        if (node->op == ECH__OP_BN_APPLY || node->op == ECH__OP_BN_BWD_DATA)
            assert_int_equal(type_of(node->out[0]), ECH_BF16);
    }
    assert_int_equal(count_ops(g, ECH__OP_CAST), 2 + convolutions + layers);
    assert_int_equal(count_ops(g, ECH__OP_REORDER), convolutions - 1 + layers);
}

static void evaluation_is_cast_too(void **state)
{
    (void)state;
    ech_value loss;
    build_lenet(&loss);
    assert_int_equal(ech__infer_only(g), ECH_OK);
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_int_equal(ech__autocast(g, ECH_BF16), ECH_OK);
    assert_int_equal(ech__copy_weights(g), ECH_OK);
    expect_sound(g);
    expect_types();
    assert_int_equal(count_ops(g, ECH__OP_CAST), 1 + 5);
    assert_int_equal(count_kind(ECH__VALUE_COPY), 5);
}

/* Somebody outside reads it as f32: it keeps its number and type, and what operators pass on is another value. */
static void kept_values_stay_f32(void **state)
{
    (void)state;
    const ech_value x = input("x", 6), y = input("y", 4);
    const ech_value h = ech_linear(g, "fc1", x, 4, false);
    const ech_value prediction = ech_linear(g, "fc2", ech_relu(g, h), 4, false);
    ech__graph_keep(g, prediction);
    const ech_value loss = ech_mse(g, prediction, y);
    rewrite(loss, ECH_BF16);
    expect_types();
    assert_int_equal(type_of(prediction), ECH_F32);
    const ech__node *fc2 = find_node(ECH__OP_LINEAR, "fc2", ECH__PHASE_FORWARD);
    assert_int_not_equal(fc2->out[0], prediction);
    assert_int_equal(fc2[1].op, ECH__OP_CAST);
    assert_int_equal(fc2[1].out[0], prediction);
}

/* The gradient of the prediction comes from outside, as where a batch is cut into parts. */
static void gradients_from_outside_are_cast(void **state)
{
    (void)state;
    const ech_value x = input("x", 6), y = ech_linear(g, "fc", x, 4, true);
    ech__graph_keep(g, y);
    const ech_value dy = input("dy", 4);
    assert_int_equal(ech__fuse(g), ECH_OK);
    const ech_value prediction = g->nodes[0].out[0];
    assert_int_equal(ech__autodiff_from(g, prediction, dy), ECH_OK);
    assert_int_equal(ech__autocast(g, ECH_BF16), ECH_OK);
    expect_sound(g);
    expect_types();
    assert_string_equal(listing(g), "cast x, linear fc, cast fc, cast x, cast dy, "
                                    "linear_bwd_weights fc");
    assert_int_equal(type_of(prediction), ECH_F32);
}

/* A residual from the input, a sum of losses, and a layer after which f32 goes on. */
static void where_f32_comes_in(void **state)
{
    (void)state;
    const ech_value x = input("x", 6), y = input("y", 6);
    const ech_value pre = ech_relu(g, x); /* nothing is behind it that computes in 16 bits */
    const ech_value h = ech_add(g, ech_linear(g, "fc", pre, 6, true), x);
    const ech_value loss = ech_add(g, ech_mse(g, h, y), ech_mse(g, h, x));
    rewrite(loss, ECH_BF16);
    expect_types();
    assert_int_equal(type_of(pre), ECH_F32);
    assert_int_equal(type_of(h), ECH_BF16);
    assert_int_equal(type_of(loss), ECH_F32);
    /* pre and x forward; pre is kept, for only inputs are cast again. */
    assert_int_equal(count_ops(g, ECH__OP_CAST), 2 + 1);
}

static void other_types_are_left_alone(void **state)
{
    (void)state;
    const ech_value x = ech_input(g, "x", ECH_F64, 2, (int64_t[]){ECH_BATCH, 6});
    const ech_value y = ech_input(g, "y", ECH_F64, 2, (int64_t[]){ECH_BATCH, 4});
    rewrite(ech_mse(g, ech_linear(g, "fc", x, 4, true), y), ECH_BF16);
    assert_int_equal(count_ops(g, ECH__OP_CAST), 0);
    assert_int_equal(count_kind(ECH__VALUE_COPY), 0);
}

/* A program's own 16-bit input needs no pass: parameters are f32, and their copies are not. */
static void low_inputs_flow_as_they_are(void **state)
{
    (void)state;
    const ech_value x = ech_input(g, "x", ECH_BF16, 2, (int64_t[]){ECH_BATCH, 6});
    const ech_value y = input("y", 4);
    const ech_value h = ech_linear(g, "fc", x, 4, true);
    assert_int_equal(type_of(h), ECH_BF16);
    assert_int_equal(type_of(ech__graph_find(g, "fc.weight")), ECH_F32);
    rewrite(ech_mse(g, h, y), ECH_BF16);
    expect_types();
    assert_int_equal(count_ops(g, ECH__OP_CAST), 1);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    assert_int_equal(ech__autocast(g, ECH_F64), ECH_E_INVALID);
    assert_string_equal(ech_ctx_error(ctx), "mixed precision in f64: bf16 and f16 are possible");
    const ech_value a = ech_input(g, "a", ECH_BF16, 1, (int64_t[]){3});
    const ech_value b = ech_input(g, "b", ECH_F16, 1, (int64_t[]){3});
    expect_refused(ech_add(g, a, b),
                   "add 'add_0' on bf16 [3], f16 [3]: what flows must be all bf16 or all f16, and "
                   "parameters and sums f32");
}

static void casts_between_other_types_are_refused(void **state)
{
    (void)state;
    const ech_value a = ech_input(g, "a", ECH_F32, 1, (int64_t[]){3});
    expect_refused(
        ech__graph_add(
            g, &(ech__node){.op = ECH__OP_CAST, .attrs = {.dtype = ECH_F32}, .nin = 1, .in = {a}}),
        "cast 'cast_0' on f32 [3]: only f32 becomes bf16 or f16, and these f32");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, graph_setup, graph_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(linear_stack),
        TEST(weights_have_copies),
        TEST(lenet),
        TEST(residual_net),
        TEST(evaluation_is_cast_too),
        TEST(kept_values_stay_f32),
        TEST(gradients_from_outside_are_cast),
        TEST(where_f32_comes_in),
        TEST(other_types_are_left_alone),
        TEST(low_inputs_flow_as_they_are),
        TEST(nonsense_is_refused),
        TEST(casts_between_other_types_are_refused),
    };
    return cmocka_run_group_tests_name("autocast", tests, NULL, NULL);
}
