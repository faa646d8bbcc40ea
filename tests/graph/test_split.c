/* A model cut at its prediction: two graphs that together are the model, with its numbers. */
#include "graph/graph.h"
#include "support/cmocka_first.h"

#include <stdlib.h>
#include <string.h>

typedef struct fixture {
    ech_ctx *ctx;
    ech_graph *g;
    ech_value x, labels, logits, loss, correct;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(ech_ctx_create(NULL, &f->ctx), ECH_OK);
    assert_int_equal(ech_graph_create(f->ctx, &f->g), ECH_OK);
    ech_graph *g = f->g;
    const ech_conv conv = {.out_channels = 8, .kernel = 3, .pad = 1};
    f->x = ech_input(g, "x", ECH_F32, 4, (int64_t[]){ECH_BATCH, 3, 8, 8});
    f->labels = ech_input(g, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    const ech_value h = ech_relu(g, ech_batchnorm2d(g, "bn", ech_conv2d(g, "conv", f->x, &conv)));
    f->logits = ech_linear(g, "fc", ech_flatten(g, h), 5, true);
    f->loss = ech_cross_entropy(g, f->logits, f->labels);
    f->correct = ech_count_correct(g, f->logits, f->labels);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ech_graph_destroy(f->g);
    ech_ctx_destroy(f->ctx);
    free(f);
    return 0;
}

static int count_of(const ech_graph *g, ech__op op)
{
    int count = 0;
    for (size_t n = 0; n < g->nnodes; n++)
        count += g->nodes[n].op == op;
    return count;
}

static void the_halves_are_the_model(void **state)
{
    fixture *f = *state;
    ech__split_model h;
    assert_int_equal(ech__split_loss(f->g, f->loss, &h), ECH_OK);
    assert_int_equal(h.prediction, f->logits);
    assert_int_equal(ech__graph_check(h.body), ECH_OK);
    assert_int_equal(ech__graph_check(h.head), ECH_OK);
    /* The head: the loss, the count, and the gradient of the loss. The running statistics stay in the body. */
    assert_int_equal(h.head->nnodes, 3);
    assert_int_equal(count_of(h.head, ECH__OP_CROSS_ENTROPY_BWD), 1);
    assert_int_equal(count_of(h.body, ECH__OP_BN_RUNNING), 1);
    assert_int_equal(h.body->nnodes + 2, f->g->nnodes);
    assert_int_equal(h.head->loss, f->loss);
    assert_true(h.head->values[f->correct].kept);
    /* Also x, which the head does not use: the whole batch is there. */
    assert_true(h.head->values[f->x].kept && h.head->values[f->labels].kept);
    assert_int_equal(h.head->values[h.prediction].kind, ECH__VALUE_INPUT);
    assert_int_equal(h.head->values[h.grad_out].kind, ECH__VALUE_ACTIVATION);
    assert_int_equal(h.body->values[h.grad_in].kind, ECH__VALUE_INPUT);
    assert_true(h.body->values[h.prediction].kept && h.head->values[h.grad_out].kept);
    assert_true(ech__shape_equal(&h.head->values[h.grad_out].type.shape,
                                 &h.body->values[h.grad_in].type.shape));
    ech_graph_destroy(h.body);
    ech_graph_destroy(h.head);
}

/* The same backward operators as those of the whole graph, but for the loss's. */
static void the_body_has_the_same_gradients(void **state)
{
    fixture *f = *state;
    ech__split_model h;
    assert_int_equal(ech__split_loss(f->g, f->loss, &h), ECH_OK);
    assert_int_equal(ech__fuse(h.body), ECH_OK);
    assert_int_equal(ech__autodiff_from(h.body, h.prediction, h.grad_in), ECH_OK);
    assert_int_equal(ech__graph_check(h.body), ECH_OK);
    assert_int_equal(ech__fuse(f->g), ECH_OK);
    assert_int_equal(ech__autodiff(f->g, f->loss), ECH_OK);
    for (int op = 0; op < ECH__OP_COUNT; op++) {
        const int both = count_of(h.body, (ech__op)op) + count_of(h.head, (ech__op)op);
        assert_int_equal(both, count_of(f->g, (ech__op)op));
    }
    for (size_t v = 0; v < f->g->nvalues; v++) {
        if (f->g->values[v].kind == ECH__VALUE_PARAM)
            assert_true(ech__graph_gradient(h.body, (ech_value)v) >= 0);
    }
    ech_graph_destroy(h.body);
    ech_graph_destroy(h.head);
}

static void refused(fixture *f, ech_value loss, ech_status status, const char *part)
{
    ech__split_model h;
    assert_int_equal(ech__split_loss(f->g, loss, &h), status);
    assert_null(h.body);
    assert_null(h.head);
    if (!strstr(ech_ctx_error(f->ctx), part))
        fail_msg("\"%s\" does not say '%s'", ech_ctx_error(f->ctx), part);
}

static void what_has_no_such_cut_is_named(void **state)
{
    fixture *f = *state;
    refused(f, -1, ECH_E_INVALID, "not a value");
    refused(f, f->logits, ECH_E_UNSUPPORTED, "one mse or cross_entropy");
    refused(f, ech_add(f->g, f->loss, f->loss), ECH_E_UNSUPPORTED, "made by add");
    const ech_value other = ech_linear(f->g, "other", ech_flatten(f->g, f->x), 5, true);
    refused(f, f->loss, ECH_E_UNSUPPORTED, "'other.weight'");
    (void)other;
    const ech_value input = ech_input(f->g, "given", ECH_F32, 2, (int64_t[]){ECH_BATCH, 5});
    refused(f, ech_cross_entropy(f->g, input, f->labels), ECH_E_UNSUPPORTED, "'given'");
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_halves_are_the_model),
        TEST(the_body_has_the_same_gradients),
        TEST(what_has_no_such_cut_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
