/* Recomputation keeps less and changes no bit. */
#include "support/cmocka_first.h"

#include "graph/graph.h"
#include "train/step/trainer.h"

#include <string.h>

enum { N = 4, C = 3, SIDE = 8, CLASSES = 5 };

/* conv, bn, relu, and two residual sums of a conv and bn each: the first batch norm can be
 * recomputed. The second cannot, because its residual is then not there any more; so the third can,
 * whose residual is the second. */
static ech_value build(ech_graph *g)
{
    const ech_value x = ech_input(g, "x", ECH_F32, 4, (int64_t[]){ECH_BATCH, C, SIDE, SIDE});
    const ech_value y = ech_input(g, "y", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    const ech_conv conv = {.out_channels = 8, .kernel = 3, .pad = 1};
    ech_value h = ech_relu(g, ech_batchnorm2d(g, "bn1", ech_conv2d(g, "conv1", x, &conv)));
    ech_value r = ech_batchnorm2d(g, "bn2", ech_conv2d(g, "conv2", h, &conv));
    h = ech_relu(g, ech_add(g, r, h));
    r = ech_batchnorm2d(g, "bn3", ech_conv2d(g, "conv3", h, &conv));
    h = ech_relu(g, ech_add(g, r, h));
    return ech_cross_entropy(g, ech_linear(g, "fc", ech_flatten(g, h), CLASSES, true), y);
}

/* Values of a batch norm in the forward pass, and of the same again. */
static void find_outputs(const ech_graph *g, const char *norm, ech_value *forward, ech_value *again)
{
    *forward = *again = -1;
    for (size_t n = 0; n < g->nnodes; n++) {
        const ech__node *node = &g->nodes[n];
        if (node->op == ECH__OP_BN_APPLY && !strcmp(node->name, norm))
            *(node->phase == ECH__PHASE_FORWARD ? forward : again) = node->out[0];
    }
}

static bool is_kept(const ech_graph *g, ech_value value)
{
    for (size_t n = 0; n < g->nnodes; n++) {
        for (int i = 0; g->nodes[n].phase == ECH__PHASE_BACKWARD && i < g->nodes[n].nin; i++) {
            if (g->nodes[n].in[i] == value)
                return true;
        }
    }
    return false;
}

static void norms_come_again_where_their_inputs_are_there(void **state)
{
    (void)state;
    ech_ctx *ctx;
    ech_graph *g;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_int_equal(ech_graph_create(ctx, &g), ECH_OK);
    const ech_value loss = build(g);
    assert_int_equal(ech__fuse(g), ECH_OK);
    assert_int_equal(ech__autodiff(g, loss), ECH_OK);
    const size_t before = g->nnodes;
    assert_int_equal(ech__recompute(g), ECH_OK);
    assert_int_equal(ech__graph_check(g), ECH_OK);
    assert_int_equal(g->nnodes, before + 2);
    static const struct {
        const char *norm;
        bool again;
    } cases[] = {{"bn1", true}, {"bn2", false}, {"bn3", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_value forward, again;
        find_outputs(g, cases[i].norm, &forward, &again);
        assert_true(forward >= 0 && (again >= 0) == cases[i].again && forward != again);
        assert_true(is_kept(g, forward) != cases[i].again);
    }
    ech_graph_destroy(g);
    ech_ctx_destroy(ctx);
}

/* Trains some steps; returns the bytes it needed. */
static int64_t train(bool recompute, float weights[8 * C * 9])
{
    ech_ctx *ctx;
    ech_graph *g;
    ech_trainer *t;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_int_equal(ech_graph_create(ctx, &g), ECH_OK);
    ech_train_options o = ech_train_defaults();
    o.batch = N;
    o.threads = 1;
    o.tune = false;
    o.recompute = recompute;
    assert_int_equal(ech_trainer_create(ctx, g, build(g), &o, &t), ECH_OK);
    float x[N * C * SIDE * SIDE];
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = (float)(i * 7919 % 1000) / 500 - 1;
    const int32_t y[N] = {0, 1, 2, 3};
    assert_int_equal(ech_trainer_write(t, "x", x, sizeof x), ECH_OK);
    assert_int_equal(ech_trainer_write(t, "y", y, sizeof y), ECH_OK);
    for (int i = 0; i < 5; i++)
        assert_int_equal(ech_trainer_step(t, NULL), ECH_OK);
    assert_int_equal(ech_trainer_read(t, "conv1.weight", weights, sizeof(float[8 * C * 9])),
                     ECH_OK);
    const int64_t bytes = ech_trainer_planned_memory(t);
    assert_int_equal(bytes, ech_trainer_peak_memory(t));
    ech_trainer_destroy(t);
    ech_graph_destroy(g);
    ech_ctx_destroy(ctx);
    return bytes;
}

static void it_takes_less_memory_and_gives_the_same_bits(void **state)
{
    (void)state;
    float kept[8 * C * 9], again[8 * C * 9];
    const int64_t more = train(false, kept), less = train(true, again);
    assert_true(less < more);
    assert_memory_equal(kept, again, sizeof kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_come_again_where_their_inputs_are_there),
        cmocka_unit_test(it_takes_less_memory_and_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
