/* Layers, where they are put, and graphs that are cut between them. */
#include "parallel/place.h"
#include "models/models.h"
#include "support/graph_fixture.h"

#include <stdio.h>
#include <string.h>

static ech_value build(ech__model_kind kind, int64_t depth)
{
    ech__model model;
    assert_int_equal(ech__model_build(g, &(ech__model_options){kind, 8, depth}, &model), ECH_OK);
    assert_int_equal(ech__fuse(g), ECH_OK);
    return model.loss;
}

static ech__layers layers_of(void)
{
    ech__layers layers;
    assert_int_equal(ech__layers_find(g, &layers), ECH_OK);
    return layers;
}

static const char *names(const ech__layers *layers)
{
    static char text[512];
    size_t used = 0;
    for (int i = 0; i < layers->count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? " " : "",
                                 layers->at[i].name);
    return text;
}

/* ---- layers ---- */

static void a_stack_has_a_layer_for_each_linear(void **state)
{
    (void)state;
    build(ECH__MODEL_LINEAR, 4);
    const ech__layers layers = layers_of();
    assert_string_equal(names(&layers), "layers.0 layers.1 layers.2 layers.3");
    size_t operators = 0;
    for (int i = 0; i < layers.count; i++) {
        assert_int_equal(layers.at[i].params, 8 * 8 + 8);
        assert_int_equal(layers.at[i].bytes, 4 * (8 * 8 + 8));
        assert_true(layers.at[i].flops == 2 * 8 * 8);
        operators += layers.at[i].count;
    }
    assert_int_equal(operators, g->nnodes); /* the loss is in the last */
}

static void pools_belong_to_the_layer_before(void **state)
{
    (void)state;
    build(ECH__MODEL_LENET, 0);
    const ech__layers layers = layers_of();
    assert_string_equal(names(&layers), "conv1 conv2 fc1 fc2 fc3");
    assert_int_equal(g->nodes[layers.at[2].first - 1].op, ECH__OP_FLATTEN);
}

static void a_residual_block_is_one_layer(void **state)
{
    (void)state;
    build(ECH__MODEL_RESNET18, 0);
    ech__layers layers = layers_of();
    assert_string_equal(names(&layers),
                        "conv1 layer1.0 layer1.1 layer2.0 layer2.1 layer3.0 layer3.1 "
                        "layer4.0 layer4.1 linear");
    int64_t params = 0;
    for (int i = 0; i < layers.count; i++)
        params += layers.at[i].params;
    assert_int_equal(params, 11173962);
    /* The same borders when batch norms go by their running statistics. */
    ech_graph *other;
    ech__model model;
    assert_int_equal(ech_graph_create(ctx, &other), ECH_OK);
    assert_int_equal(
        ech__model_build(other, &(ech__model_options){.kind = ECH__MODEL_RESNET18}, &model),
        ECH_OK);
    assert_int_equal(ech__infer_only(other), ECH_OK);
    assert_int_equal(ech__fuse(other), ECH_OK);
    assert_int_equal(ech__layers_find(other, &layers), ECH_OK);
    assert_int_equal(layers.count, 10);
    ech_graph_destroy(other);
}

/* ---- placements ---- */

static const char *placed(const char *text, int devices, ech__layers *layers)
{
    static char out[256];
    size_t used = 0;
    const ech__placement p = {.text = text, .devices = devices, .copies = 2, .batch = 4};
    if (ech__placement_apply(ctx, &p, layers) < 0)
        return ech_ctx_error(ctx);
    for (int i = 0; i < layers->count; i++)
        used += (size_t)snprintf(out + used, sizeof out - used, "%d", layers->at[i].device);
    return out;
}

static void even_counts_differ_by_one_at_most(void **state)
{
    (void)state;
    build(ECH__MODEL_LINEAR, 20);
    ech__layers layers = layers_of();
    assert_string_equal(placed(NULL, 2, &layers), "00000000001111111111");
    assert_string_equal(placed("even", 5, &layers), "00001111222233334444");
    for (int devices = 1; devices <= 20; devices++) {
        int counts[20] = {0};
        placed("even", devices, &layers);
        assert_true(ech__layers_in_order(&layers));
        for (int i = 0; i < 20; i++) {
            assert_int_equal(layers.at[i].device, i * devices / 20);
            counts[layers.at[i].device]++;
        }
        for (int d = 0; d < devices; d++)
            assert_true(counts[d] >= 20 / devices && counts[d] <= 20 / devices + 1);
    }
}

static void half_is_the_split_of_the_classroom(void **state)
{
    (void)state;
    build(ECH__MODEL_LINEAR, 7);
    ech__layers layers = layers_of();
    assert_string_equal(placed("half", 2, &layers), "0001111");
    assert_string_equal(placed("half", 3, &layers), "placement 'half': is for 2 devices, not 3");
}

/* Every contiguous placement is tried by hand: none has a smaller maximum. */
static double worst_of(const ech__layers *layers, const int *device)
{
    double sums[4] = {0}, worst = 0;
    for (int i = 0; i < layers->count; i++)
        sums[device[i]] += layers->at[i].seconds;
    for (int d = 0; d < 4; d++)
        worst = sums[d] > worst ? sums[d] : worst;
    return worst;
}

static double best_of(const ech__layers *layers, int devices, int layer, int *device)
{
    if (layer == layers->count)
        return device[layer - 1] == devices - 1 ? worst_of(layers, device) : 1e30;
    double best = 1e30;
    const int from = layer ? device[layer - 1] : 0;
    for (int d = from; d <= from + (layer > 0) && d < devices; d++) {
        device[layer] = d;
        const double one = best_of(layers, devices, layer + 1, device);
        best = one < best ? one : best;
    }
    return best;
}

static void balanced_has_the_least_maximum(void **state)
{
    (void)state;
    build(ECH__MODEL_LINEAR, 8);
    ech__layers layers = layers_of();
    static const double seconds[][8] = {{1, 1, 1, 1, 1, 1, 1, 9}, {5, 1, 1, 1, 1, 1, 1, 5},
                                        {3, 1, 4, 1, 5, 9, 2, 6}, {1, 1, 1, 1, 1, 1, 1, 1},
                                        {8, 7, 6, 5, 4, 3, 2, 1}, {1, 100, 1, 1, 1, 100, 1, 1}};
    for (size_t k = 0; k < sizeof seconds / sizeof *seconds; k++) {
        for (int devices = 1; devices <= 4; devices++) {
            int device[8], chosen[8];
            for (int i = 0; i < 8; i++)
                layers.at[i].seconds = seconds[k][i];
            placed("balanced", devices, &layers);
            for (int i = 0; i < 8; i++)
                chosen[i] = layers.at[i].device;
            assert_true(ech__layers_in_order(&layers));
            assert_int_equal(chosen[7], devices - 1);
            assert_true(worst_of(&layers, chosen) == best_of(&layers, devices, 0, device));
        }
    }
}

static void balanced_goes_by_flops_or_memory_too(void **state)
{
    (void)state;
    build(ECH__MODEL_LENET, 0);
    ech__layers layers = layers_of();
    assert_string_equal(placed("balanced", 2, &layers), "01111"); /* conv1 has most of the flops */
    assert_string_equal(placed("balanced-memory", 2, &layers),
                        "00111"); /* fc1 has most of the weights */
}

static void lists_are_taken_as_they_are(void **state)
{
    (void)state;
    build(ECH__MODEL_LINEAR, 4);
    ech__layers layers = layers_of();
    assert_string_equal(placed("0,1,0,1", 2, &layers), "0101");
    assert_false(ech__layers_in_order(&layers));
    assert_string_equal(placed("0,0,1,2", 3, &layers), "0012");
}

static void wrong_placements_are_named(void **state)
{
    (void)state;
    build(ECH__MODEL_LINEAR, 3);
    ech__layers layers = layers_of();
    assert_string_equal(
        placed("even", 4, &layers),
        "4 model-parallel devices for a model of 3 layers: each needs one at least");
    assert_string_equal(placed("even", 0, &layers),
                        "0 model-parallel devices: from 1 to 64 are possible");
    assert_string_equal(placed("0,1", 2, &layers),
                        "placement '0,1': has a device for 2 layers, and the model has 3");
    assert_string_equal(placed("0,1,1,1", 2, &layers),
                        "placement '0,1,1,1': has a device for 4 layers, and the model has 3");
    assert_string_equal(placed("0,1,2", 2, &layers),
                        "placement '0,1,2': there is no device 2; there are 2, from 0 on");
    assert_string_equal(placed("0,0,0", 2, &layers),
                        "placement '0,0,0': device 1 of 2 gets no layer");
    for (size_t i = 0; i < 4; i++) {
        static const char *const wrong[] = {"evenly", "0,,1", "0 1 1", ""};
        assert_non_null(strstr(placed(wrong[i], 2, &layers), "a device for each layer"));
    }
}

/* ---- transfers and parts ---- */

static void train(ech_value loss, const char *text, int devices)
{
    ech__layers layers = layers_of();
    placed(text, devices, &layers);
    assert_int_equal(ech__place_layers(g, &layers), ECH_OK);
    assert_int_equal(ech__autodiff(g, loss), ECH_OK);
    assert_int_equal(ech__recompute(g), ECH_OK);
    expect_sound(g);
}

static void check_moves(int devices, int expected)
{
    ech__move moves[32];
    const int count = ech__moves_count(g);
    int back = 0;
    assert_int_equal(count, 2 * expected);
    ech__moves_of(g, moves);
    for (int i = 0; i < count; i++) {
        back += moves[i].backward;
        assert_int_equal(moves[i].to - moves[i].from, moves[i].backward ? -1 : 1);
        assert_true(moves[i].to >= 0 && moves[i].to < devices);
        assert_true(moves[i].bytes > 0);
    }
    assert_int_equal(back, expected);
}

/* A part makes all it uses, but what is written or received; all parts together are the graph. */
static void check_parts(int devices)
{
    size_t operators = 0, ends = 0;
    for (int d = 0; d < devices; d++) {
        ech_graph *part;
        assert_int_equal(ech__cut(g, d, ctx, &part), ECH_OK);
        expect_sound(part);
        for (size_t n = 0; n < part->nnodes; n++) {
            const ech__node *node = &part->nodes[n];
            const bool end = node->op == ECH__OP_SEND || node->op == ECH__OP_RECV;
            assert_int_not_equal(node->op, ECH__OP_TRANSFER);
            ends += end;
            operators += !end;
            if (node->op == ECH__OP_SEND)
                assert_true(part->values[node->in[0]].kept && node->attrs.from == d);
            if (node->op == ECH__OP_RECV)
                assert_int_equal(node->attrs.to, d);
        }
        for (size_t v = 0; v < part->nvalues; v++) { /* a parameter is on one device */
            if (part->values[v].kind == ECH__VALUE_PARAM)
                assert_true(ech__graph_gradient(part, (ech_value)v) >= 0);
        }
        ech_graph_destroy(part);
    }
    const size_t moves = (size_t)ech__moves_count(g);
    assert_int_equal(ends, 2 * moves);
    assert_int_equal(operators, g->nnodes - moves);
}

static void data_moves_between_devices_and_not_between_layers(void **state)
{
    (void)state;
    const ech_value loss = build(ECH__MODEL_LINEAR, 20);
    train(loss, "even", 2);
    check_moves(2, 1);
    check_parts(2);
    ech__move moves[2];
    ech__moves_of(g, moves);
    assert_string_equal(moves[0].after, "layers.9");
    assert_int_equal(moves[0].op, ECH__OP_LINEAR);
    assert_int_equal(moves[0].bytes, 8 * 4);
    assert_string_equal(moves[1].after, "layers.10");
    assert_int_equal(moves[1].op, ECH__OP_LINEAR_BWD_DATA);
}

static void gradients_are_sent_before_those_of_weights(void **state)
{
    (void)state;
    train(build(ECH__MODEL_RESNET18, 0), "even", 2);
    ech_graph *part;
    assert_int_equal(ech__cut(g, 1, ctx, &part), ECH_OK);
    size_t at = 0;
    while (part->nodes[at].op != ECH__OP_SEND)
        at++;
    assert_int_equal(at + 2, part->nnodes);
    assert_int_equal(part->nodes[at + 1].op, ECH__OP_CONV2D_BWD_WEIGHTS);
    expect_sound(part);
    ech_graph_destroy(part);
}

static void five_devices_move_four_times(void **state)
{
    (void)state;
    train(build(ECH__MODEL_LINEAR, 20), "even", 5);
    check_moves(5, 4);
    check_parts(5);
}

static void blocks_are_cut_at_their_borders(void **state)
{
    (void)state;
    train(build(ECH__MODEL_RESNET18, 0), "even", 10);
    check_moves(10, 9);
    check_parts(10);
}

/* Back and forth: what a device gets twice are two values. */
static void a_list_may_come_back(void **state)
{
    (void)state;
    train(build(ECH__MODEL_LENET, 0), "0,1,0,1,0", 2);
    assert_int_equal(ech__moves_count(g), 8);
    check_parts(2);
}

static void one_device_has_the_whole_graph(void **state)
{
    (void)state;
    train(build(ECH__MODEL_LENET, 0), "even", 1);
    assert_int_equal(ech__moves_count(g), 0);
    ech_graph *part;
    assert_int_equal(ech__cut(g, 0, ctx, &part), ECH_OK);
    assert_int_equal(part->nnodes, g->nnodes);
    ech_graph_destroy(part);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, graph_setup, graph_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_stack_has_a_layer_for_each_linear),
        TEST(pools_belong_to_the_layer_before),
        TEST(a_residual_block_is_one_layer),
        TEST(even_counts_differ_by_one_at_most),
        TEST(half_is_the_split_of_the_classroom),
        TEST(balanced_has_the_least_maximum),
        TEST(balanced_goes_by_flops_or_memory_too),
        TEST(lists_are_taken_as_they_are),
        TEST(wrong_placements_are_named),
        TEST(data_moves_between_devices_and_not_between_layers),
        TEST(gradients_are_sent_before_those_of_weights),
        TEST(five_devices_move_four_times),
        TEST(blocks_are_cut_at_their_borders),
        TEST(a_list_may_come_back),
        TEST(one_device_has_the_whole_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
