/* A tour of Echelon, to be read from top to bottom: a graph, its plan, a step on one device, on two ranks,
 * on two devices of one process and through a pipeline, a checkpoint, and the network in int8. However a
 * batch is split, one step makes the same parameters of it. */
#include "graph/graph.h"
#include "support/cmocka_first.h"
#include "support/golden.h"
#include "support/ranks.h"
#include "support/temp_dir.h"
#include "train/step/trainer.h"

#include <math.h>
#include <string.h>

enum { N = 12, FEATURES = 8, HIDDEN = 16, CLASSES = 3 };

typedef struct parameters {
    float w1[HIDDEN * FEATURES], b1[HIDDEN], w2[CLASSES * HIDDEN], b2[CLASSES];
} parameters;

/* x[N,8] -> linear, ReLU, linear -> logits[N,3], and their loss */
static ech_value build(ech_graph *g, ech_value *logits)
{
    const ech_value x = ech_input(g, "x", ECH_F32, 2, (int64_t[]){ECH_BATCH, FEATURES});
    const ech_value labels = ech_input(g, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    const ech_value h = ech_relu(g, ech_linear(g, "fc1", x, HIDDEN, true));
    *logits = ech_linear(g, "fc2", h, CLASSES, true);
    return ech_cross_entropy(g, *logits, labels);
}

static ech_train_options options_of(int64_t batch)
{
    ech_train_options o = ech_train_defaults();
    o.batch = batch;
    o.threads = 1;
    o.tune = false;
    o.optimizer.lr = 0.5;
    return o;
}

/* A trainer with samples first to first + o->batch of the N in its inputs; NULL: it failed. */
static ech_trainer *create(ech_ctx *ctx, const ech_train_options *o, int64_t first)
{
    float x[N * FEATURES];
    int32_t labels[N];
    ech_graph *g;
    ech_value logits;
    ech_trainer *t = NULL;
    golden_fill("x", 1, x, N * FEATURES);
    for (int n = 0; n < N; n++)
        labels[n] = x[n * FEATURES] < 0 ? 0 : 1 + (x[n * FEATURES + 1] < 0);
    if (ech_graph_create(ctx, &g) < 0)
        return NULL;
    const ech_value loss = build(g, &logits);
    const size_t count = (size_t)o->batch;
    if (ech_trainer_create(ctx, g, loss, o, &t) == ECH_OK &&
        (ech_trainer_write(t, "x", x + first * FEATURES, count * FEATURES * sizeof *x) < 0 ||
         ech_trainer_write(t, "labels", labels + first, count * sizeof *labels) < 0)) {
        ech_trainer_destroy(t);
        t = NULL;
    }
    ech_graph_destroy(g);
    return t;
}

static ech_status read_parameters(ech_trainer *t, parameters *p)
{
    ECH_TRY(ech_trainer_read(t, "fc1.weight", p->w1, sizeof p->w1));
    ECH_TRY(ech_trainer_read(t, "fc1.bias", p->b1, sizeof p->b1));
    ECH_TRY(ech_trainer_read(t, "fc2.weight", p->w2, sizeof p->w2));
    return ech_trainer_read(t, "fc2.bias", p->b2, sizeof p->b2);
}

static bool are_near(const parameters *a, const parameters *b)
{
    const float *x = a->w1, *y = b->w1; /* all of them, one after the other */
    for (size_t i = 0; i < sizeof *a / sizeof *x; i++) {
        if (!(fabsf(x[i] - y[i]) <= 1e-6f))
            return false;
    }
    return true;
}

/* Trains with these options and gives the parameters and the loss of the last step. */
static double train(ech_ctx *ctx, const ech_train_options *o, int steps, parameters *out)
{
    ech_trainer *t = create(ctx, o, 0);
    if (!t)
        fail_msg("%s", ech_ctx_error(ctx));
    ech_step step = {.loss = 0};
    for (int s = 0; s < steps; s++)
        assert_int_equal(ech_trainer_step(t, &step), ECH_OK);
    assert_int_equal(read_parameters(t, out), ECH_OK);
    ech_trainer_destroy(t);
    return step.loss;
}

static void a_graph_infers_its_shapes(void **state)
{
    ech_graph *g;
    ech_value logits;
    assert_int_equal(ech_graph_create(*state, &g), ECH_OK);
    assert_true(build(g, &logits) >= 0 && ech_graph_status(g) == ECH_OK);
    const ech__shape *shape = &g->values[logits].type.shape;
    assert_true(shape->ndims == 2 && shape->dims[0] == ECH_BATCH && shape->dims[1] == CLASSES);
    ech_graph_destroy(g);
}

static void a_plan_counts_every_byte_before_it_runs(void **state)
{
    const ech_train_options o = options_of(N);
    ech_trainer *t = create(*state, &o, 0);
    assert_non_null(t);
    assert_int_equal(ech_trainer_step(t, NULL), ECH_OK);
    assert_true(ech_trainer_planned_memory(t) > (int64_t)(2 * sizeof(parameters)));
    assert_int_equal(ech_trainer_planned_memory(t), ech_trainer_peak_memory(t));
    ech_trainer_destroy(t);
}

static void steps_learn(void **state)
{
    const ech_train_options o = options_of(N);
    parameters p;
    assert_true(train(*state, &o, 200, &p) < 0.1 * train(*state, &o, 1, &p));
}

typedef struct shared {
    parameters one, rank[2];
} shared;

/* Each rank has half of the batch; gradients are averaged over both. */
static void half(ech__comm *comm, void *user)
{
    shared *s = user;
    ech_group group = {comm, false};
    ech_train_options o = options_of(N / 2);
    o.ddp.group = &group;
    ech_trainer *t = create(comm->ctx, &o, comm->rank * N / 2);
    RANK_CHECK(t);
    RANK_OK(ech_trainer_step(t, NULL));
    RANK_OK(read_parameters(t, &s->rank[comm->rank]));
    ech_trainer_destroy(t);
}

static void two_ranks_step_as_one_device(void **state)
{
    shared s;
    const ech_train_options o = options_of(N);
    train(*state, &o, 1, &s.one);
    run_ranks(RANKS_AS_THREADS, 2, 20, half, &s);
    assert_memory_equal(&s.rank[0], &s.rank[1], sizeof s.rank[0]);
    assert_true(are_near(&s.rank[0], &s.one));
}

static void so_do_two_devices_of_one_process(void **state)
{
    parameters one, two;
    ech_train_options o = options_of(N);
    train(*state, &o, 1, &one);
    o.dp.devices = 2;
    train(*state, &o, 1, &two);
    assert_true(are_near(&one, &two));
}

static void so_does_a_pipeline(void **state)
{
    parameters one, two;
    ech_layer layer[2];
    ech_train_options o = options_of(N);
    train(*state, &o, 1, &one);
    o.pipeline.devices = 2;
    o.pipeline.micro_batches = 3;
    train(*state, &o, 1, &two);
    assert_true(are_near(&one, &two));
    ech_trainer *t = create(*state, &o, 0);
    assert_non_null(t);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ech_trainer_layer(t, i, &layer[i]), ECH_OK);
    assert_true(!strcmp(layer[0].name, "fc1") && layer[0].device == 0);
    assert_int_equal(layer[1].device, 1);
    ech_trainer_destroy(t);
}

static void saved_parameters_go_on(void **state)
{
    temp_dir dir = temp_dir_create();
    char path[TEMP_PATH];
    temp_dir_path(&dir, "model.safetensors", path);
    ech_train_options o = options_of(N);
    ech_step on, again;
    ech_trainer *t = create(*state, &o, 0);
    assert_int_equal(ech_trainer_step(t, NULL), ECH_OK);
    assert_int_equal(ech_trainer_save(t, path), ECH_OK);
    assert_int_equal(ech_trainer_step(t, &on), ECH_OK);
    ech_trainer_destroy(t);
    o.init = path;
    t = create(*state, &o, 0);
    assert_int_equal(ech_trainer_step(t, &again), ECH_OK);
    assert_true(on.loss == again.loss); /* to the bit */
    ech_trainer_destroy(t);
    temp_dir_destroy(&dir);
}

static void int8_classifies_as_f32_does(void **state)
{
    float x[N * FEATURES], y[N * CLASSES];
    ech_graph *g;
    ech_value logits;
    golden_fill("x", 1, x, N * FEATURES);
    const ech_train_options o = options_of(N);
    ech_trainer *t = create(*state, &o, 0);
    for (int s = 0; s < 200; s++)
        assert_int_equal(ech_trainer_step(t, NULL), ECH_OK);
    assert_int_equal(ech_graph_create(*state, &g), ECH_OK);
    build(g, &logits); /* for the handle of its logits */
    const ech_int8_options q = ech_int8_defaults();
    ech_int8 *net;
    if (ech_int8_create(t, logits, x, N, &q, &net) < 0)
        fail_msg("%s", ech_ctx_error(*state));
    assert_int_equal(ech_int8_run(net, x, N, y), ECH_OK);
    for (int n = 0; n < N; n++) { /* by now f32 has all of them right */
        const float *row = y + n * CLASSES;
        const int label = x[n * FEATURES] < 0 ? 0 : 1 + (x[n * FEATURES + 1] < 0);
        for (int c = 0; c < CLASSES; c++)
            assert_true(row[label] >= row[c]);
    }
    ech_int8_destroy(net);
    ech_graph_destroy(g);
    ech_trainer_destroy(t);
}

static int set_up(void **state)
{
    return ech_ctx_create(NULL, (ech_ctx **)state);
}

static int tear_down(void **state)
{
    ech_ctx_destroy(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_infers_its_shapes),
        cmocka_unit_test(a_plan_counts_every_byte_before_it_runs),
        cmocka_unit_test(steps_learn),
        cmocka_unit_test(two_ranks_step_as_one_device),
        cmocka_unit_test(so_do_two_devices_of_one_process),
        cmocka_unit_test(so_does_a_pipeline),
        cmocka_unit_test(saved_parameters_go_on),
        cmocka_unit_test(int8_classifies_as_f32_does),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
