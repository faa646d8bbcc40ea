/* Accumulation over micro-steps, as a pass: which values it makes, who reads them, and where its operators stand. */
#include "support/graph_fixture.h"

#include <stdio.h>

/* linear fc1 with ReLU, linear fc2, mse. */
static ech_value build_linear(void)
{
    const ech_value x = input("x", 3), y = input("y", 2);
    return ech_mse(g, ech_linear(g, "fc2", ech_relu(g, ech_linear(g, "fc1", x, 4, true)), 2, true),
                   y);
}

/* conv, bn, relu, conv, bn, a residual sum, linear, cross-entropy. */
static ech_value build_norms(void)
{
    const ech_value x = ech_input(g, "x", ECH_F32, 4, (int64_t[]){ECH_BATCH, 3, 4, 4});
    const ech_value labels = ech_input(g, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    const ech_conv conv = {.out_channels = 8, .kernel = 3, .pad = 1};
    ech_value h = ech_relu(g, ech_batchnorm2d(g, "bn1", ech_conv2d(g, "conv1", x, &conv)));
    h = ech_relu(g, ech_add(g, ech_batchnorm2d(g, "bn2", ech_conv2d(g, "conv2", h, &conv)), h));
    return ech_cross_entropy(g, ech_linear(g, "fc", ech_flatten(g, h), 5, true), labels);
}

static void differentiate(ech_value loss)
{
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_int_equal(ech__autodiff(g, loss), ECH_OK);
    assert_int_equal(ech__recompute(g), ECH_OK);
}

static bool touches(const ech__node *node, ech_value v)
{
    for (int i = 0; i < node->nin; i++) {
        if (node->in[i] == v)
            return true;
    }
    for (int i = 0; i < node->nout; i++) {
        if (node->out[i] == v)
            return true;
    }
    return false;
}

/* The accumulate operator of a parameter, and its place. */
static const ech__node *accumulate_of(const ech_graph *graph, ech_value param, size_t *at)
{
    const ech__node *found = NULL;
    for (size_t n = 0; n < graph->nnodes; n++) {
        const ech__node *node = &graph->nodes[n];
        if (node->op != ECH__OP_ACCUMULATE || graph->values[node->in[1]].of != param)
            continue;
        assert_null(found);
        found = node;
        *at = n;
    }
    assert_non_null(found);
    return found;
}

static void plain_accumulation_adds_each_part_right_behind_its_maker(void **state)
{
    (void)state;
    differentiate(build_linear());
    assert_string_equal(listing(g), "linear fc1, linear fc2, mse mse_5, mse_bwd mse_5, "
                                    "linear_bwd_weights fc2, linear_bwd_data fc2, relu_bwd fc1, "
                                    "linear_bwd_weights fc1");
    assert_int_equal(ech__accumulate(g, &(ech__accumulation){.onto = true}), ECH_OK);
    expect_sound(g);
    /* The bias's operator was added last, and each goes right behind the maker of both. */
    assert_string_equal(listing(g),
                        "linear fc1, linear fc2, mse mse_5, mse_bwd mse_5, linear_bwd_weights fc2, "
                        "accumulate fc2.bias, accumulate fc2.weight, linear_bwd_data fc2, "
                        "relu_bwd fc1, linear_bwd_weights fc1, accumulate fc1.bias, "
                        "accumulate fc1.weight");
    for (size_t v = 0; v < g->nvalues; v++) {
        if (g->values[v].kind != ECH__VALUE_PARAM)
            continue;
        size_t at;
        const ech_value gradient = ech__graph_gradient(g, (ech_value)v);
        const ech__node *node = accumulate_of(g, (ech_value)v, &at);
        assert_int_equal(node->nin, 2);
        assert_int_equal(node->in[0], gradient);
        assert_false(node->attrs.fresh);
        assert_int_equal(node->phase, ECH__PHASE_BACKWARD);
        assert_int_equal(g->values[node->in[1]].kind, ECH__VALUE_PART);
        assert_true(ech__shape_equal(&g->values[node->in[1]].type.shape, &g->values[v].type.shape));
        for (size_t n = 0; n < g->nnodes; n++)
            assert_true(n == at || !touches(&g->nodes[n], gradient));
    }
}

/* bn_bwd_data reads what bn_reduce made of this micro-step alone, not the sum over several. */
static void readers_in_the_backward_pass_read_the_part(void **state)
{
    (void)state;
    differentiate(build_norms());
    assert_int_equal(ech__accumulate(g, &(ech__accumulation){.onto = true}), ECH_OK);
    expect_sound(g);
    int reductions = 0, parts_read = 0;
    for (size_t n = 0; n < g->nnodes; n++) {
        const ech__node *node = &g->nodes[n];
        for (int i = 0; i < node->nin; i++)
            assert_true(node->op == ECH__OP_ACCUMULATE ||
                        g->values[node->in[i]].kind != ECH__VALUE_GRADIENT);
        if (node->op == ECH__OP_BN_REDUCE) {
            assert_int_equal(g->values[node->out[0]].kind, ECH__VALUE_PART);
            assert_int_equal(g->values[node->out[1]].kind, ECH__VALUE_PART);
            reductions++;
        }
        if (node->op != ECH__OP_BN_BWD_DATA)
            continue;
        for (int i = 0; i < node->nin; i++)
            parts_read += g->values[node->in[i]].kind == ECH__VALUE_PART;
    }
    assert_int_equal(reductions, 2);
    assert_int_equal(parts_read, 4); /* dgamma and dbeta of both */
    assert_int_equal(count_ops(g, ECH__OP_ACCUMULATE), 8);
}

/* Micro-steps 0 to 7 end in 0, 1, 0, 2, 0, 1, 0 and 3 ones; the last leaves its sum in the gradient. */
static void a_tree_adds_the_sums_below_and_leaves_its_own(void **state)
{
    (void)state;
    enum { LEVELS = 3 };
    differentiate(build_norms());
    for (int ones = 0; ones <= LEVELS; ones++) {
        ech_graph *role;
        assert_int_equal(ech__graph_clone(g, &role), ECH_OK);
        const ech__accumulation how = {.levels = LEVELS, .adds = ones, .into = ones};
        assert_int_equal(ech__accumulate(role, &how), ECH_OK);
        expect_sound(role);
        for (size_t v = 0; v < g->nvalues; v++) {
            if (g->values[v].kind != ECH__VALUE_PARAM)
                continue;
            size_t at;
            char name[96];
            const ech__node *node = accumulate_of(role, (ech_value)v, &at);
            snprintf(name, sizeof name, "%s.sum0", g->values[v].name);
            const ech_value first = ech__graph_find(role, name);
            assert_true(first >= 0);
            assert_true(node->attrs.fresh);
            assert_int_equal(node->nin, 2 + ones);
            assert_int_equal(node->in[0], ones == LEVELS ? ech__graph_gradient(role, (ech_value)v)
                                                         : first + ones);
            for (int level = 0; level < ones; level++) {
                assert_int_equal(node->in[2 + level], first + level);
                assert_int_equal(role->values[first + level].kind, ECH__VALUE_SUM);
                assert_int_equal(role->values[first + level].of, (ech_value)v);
            }
        }
        ech_graph_destroy(role);
    }
}

/* The roles of a step share memory by the numbers and names of their values. */
static void values_have_the_same_numbers_in_every_role(void **state)
{
    (void)state;
    differentiate(build_norms());
    const size_t before = g->nvalues;
    ech_graph *one, *other;
    assert_int_equal(ech__graph_clone(g, &one), ECH_OK);
    assert_int_equal(ech__graph_clone(g, &other), ECH_OK);
    assert_int_equal(ech__accumulate(one, &(ech__accumulation){.levels = 2, .adds = 0, .into = 0}),
                     ECH_OK);
    assert_int_equal(
        ech__accumulate(other, &(ech__accumulation){.levels = 2, .adds = 2, .into = 2}), ECH_OK);
    assert_int_equal(one->nvalues, other->nvalues);
    assert_int_equal(one->nvalues, before + 3 * 8); /* two sums and a part of 8 parameters */
    for (size_t v = 0; v < one->nvalues; v++) {
        assert_string_equal(one->values[v].name, other->values[v].name);
        assert_int_equal(one->values[v].kind, other->values[v].kind);
        if (v < before)
            assert_string_equal(one->values[v].name, g->values[v].name);
    }
    ech_graph_destroy(one);
    ech_graph_destroy(other);
}

static void a_tree_that_is_too_deep_is_refused(void **state)
{
    (void)state;
    differentiate(build_linear());
    const size_t nodes = g->nnodes;
    const ech__accumulation how = {.levels = 7, .adds = 7, .into = 7};
    assert_int_equal(ech__accumulate(g, &how), ECH_E_LIMIT);
    assert_string_equal(ech_ctx_error(ctx), "a tree of sums of 7 levels: at most 6");
    assert_int_equal(g->nnodes, nodes);
}

/* Convolutions and batch norms still make parts. */
static void linear_layers_add_by_themselves(void **state)
{
    (void)state;
    differentiate(build_linear());
    const int linears = count_ops(g, ECH__OP_LINEAR_BWD_WEIGHTS);
    const size_t nodes = g->nnodes;
    assert_int_equal(ech__accumulate(g, &(ech__accumulation){.onto = true, .inside = true}),
                     ECH_OK);
    expect_sound(g);
    assert_int_equal(count_ops(g, ECH__OP_LINEAR_ADD_WEIGHTS), linears);
    assert_int_equal(count_ops(g, ECH__OP_LINEAR_BWD_WEIGHTS), 0);
    assert_int_equal(g->nnodes, nodes + (size_t)count_ops(g, ECH__OP_ACCUMULATE));
    for (size_t n = 0; n < g->nnodes; n++) {
        const ech__node *node = &g->nodes[n];
        for (int i = 2; node->op == ECH__OP_LINEAR_ADD_WEIGHTS && i < node->nin; i++)
            assert_int_equal(g->values[node->in[i]].kind, ECH__VALUE_GRADIENT);
    }
}

static void without_parameters_there_is_nothing_to_add(void **state)
{
    (void)state;
    assert_true(ech_mse(g, input("x", 3), input("y", 3)) >= 0);
    assert_int_equal(ech__accumulate(g, &(ech__accumulation){.onto = true}), ECH_OK);
    assert_int_equal(g->nnodes, 1);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, graph_setup, graph_teardown)
    const struct CMUnitTest tests[] = {
        TEST(plain_accumulation_adds_each_part_right_behind_its_maker),
        TEST(readers_in_the_backward_pass_read_the_part),
        TEST(a_tree_adds_the_sums_below_and_leaves_its_own),
        TEST(values_have_the_same_numbers_in_every_role),
        TEST(a_tree_that_is_too_deep_is_refused),
        TEST(linear_layers_add_by_themselves),
        TEST(without_parameters_there_is_nothing_to_add),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
