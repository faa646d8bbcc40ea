/* Loaders and steps over their batches, as a program of one's own uses them. */
#include "comm/comm.h"
#include "support/ranks.h"
#include "train/step/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 23, GLOBAL = 6, STEPS = 4, RUN = 2 * STEPS }; /* 3 steps of 6 and one of 5 */

typedef struct outcome {
    double losses[RUN];
    double correct, loss; /* over the test set */
    char sha256[65];
} outcome;

/* conv, pool, linear: no batch norm, so that shares make no difference. */
static ech_value build(ech_graph *g, ech_value *correct)
{
    const ech_conv conv = {.out_channels = 4, .kernel = 5, .stride = 2, .bias = true};
    const ech_value x = ech_input(g, "images", ECH_F32, 4, (int64_t[]){ECH_BATCH, 3, 32, 32});
    const ech_value y = ech_input(g, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    const ech_value h = ech_maxpool2d(g, ech_relu(g, ech_conv2d(g, "conv", x, &conv)), 2, 2);
    const ech_value logits = ech_linear(g, "out", ech_flatten(g, h), 10, true);
    *correct = ech_count_correct(g, logits, y);
    return ech_cross_entropy(g, logits, y);
}

static ech_loader_options loading(ech_group *group, bool test)
{
    ech_loader_options o = ech_loader_defaults();
    o.limit = SAMPLES;
    o.seed = 9;
    o.test = test;
    o.group = group;
    o.batch = GLOBAL / (group ? ech_group_size(group) : 1);
    return o;
}

static void evaluate(ech__comm *comm, ech_trainer *t, ech_group *group, const ech_value *values,
                     outcome *out)
{
    const ech_loader_options o = loading(group, true);
    ech_loader *loader;
    float sums[3] = {0};
    RANK_OK(ech_loader_open(comm->ctx, &o, &loader));
    RANK_CHECK(ech_loader_samples(loader) == SAMPLES);
    for (int i = 0; i < STEPS; i++) {
        ech_batch b;
        double got[2];
        RANK_OK(ech_loader_next(loader, &b));
        RANK_OK(ech_trainer_evaluate_batch(t, "images", "labels", &b, values, 2, got));
        sums[0] += (float)(got[0] * (double)b.count);
        sums[1] += (float)got[1];
        sums[2] += (float)b.count;
    }
    RANK_OK(ech_group_sum(group, sums, 3));
    RANK_CHECK(sums[2] == SAMPLES);
    out->loss = (double)sums[0] / SAMPLES;
    out->correct = (double)sums[1];
    ech_loader_close(loader);
}

static void work(ech__comm *comm, void *user)
{
    outcome mine = {.loss = 0};
    ech_group group = {comm, false};
    ech_graph *g;
    ech_trainer *t;
    ech_loader *loader;
    ech_value values[2];
    RANK_OK(ech_graph_create(comm->ctx, &g));
    values[0] = build(g, &values[1]);
    ech_train_options o = ech_train_defaults();
    const ech_loader_options l = loading(&group, false);
    o.batch = l.batch;
    o.optimizer.lr = 0.01;
    o.threads = 1;
    o.tune = false;
    o.ddp.group = &group;
    RANK_OK(ech_trainer_create(comm->ctx, g, values[0], &o, &t));
    RANK_OK(ech_loader_open(comm->ctx, &l, &loader));
    RANK_CHECK(ech_loader_steps(loader) == STEPS);
    for (int i = 0; i < RUN; i++) {
        ech_batch b;
        ech_step step;
        RANK_OK(ech_loader_next(loader, &b));
        RANK_CHECK(b.epoch == i / STEPS && b.step == i % STEPS && b.waited_s >= 0);
        RANK_CHECK(b.global_count == (b.step < STEPS - 1 ? GLOBAL : SAMPLES % GLOBAL));
        RANK_OK(ech_trainer_step_batch(t, "images", "labels", &b, &step));
        mine.losses[i] = step.loss;
    }
    ech_loader_close(loader);
    evaluate(comm, t, &group, values, &mine);
    RANK_OK(ech__trainer_hash(t, mine.sha256));
    ech_trainer_destroy(t);
    ech_graph_destroy(g);
    if (comm->rank == 0)
        *(outcome *)user = mine;
}

static outcome train(int world)
{
    outcome out = {.loss = 0};
    run_ranks(RANKS_AS_THREADS, world, 60, work, &out);
    return out;
}

static void test_ranks_see_what_one_sees(void **state)
{
    (void)state;
    const outcome one = train(1);
    assert_true(one.losses[RUN - 1] < one.losses[0]);
    for (int world = 2; world <= GLOBAL; world++) { /* with 6, the last step has none for one */
        if (GLOBAL % world)
            continue;
        const outcome many = train(world);
        for (int i = 0; i < RUN; i++)
            assert_true(fabs(one.losses[i] - many.losses[i]) <= 1e-5 * one.losses[i]);
        assert_true(one.correct == many.correct);
        assert_true(fabs(one.loss - many.loss) <= 1e-5 * one.loss);
    }
}

static void test_the_same_seed_gives_the_same_bits(void **state)
{
    (void)state;
    const outcome a = train(2), b = train(2);
    assert_string_equal(a.sha256, b.sha256);
    assert_memory_equal(a.losses, b.losses, sizeof a.losses);
}

/* ---- what is refused ---- */

static void says(ech_ctx *ctx, ech_status status, const char *words)
{
    assert_true(status < 0);
    if (!strstr(ech_ctx_error(ctx), words))
        fail_msg("'%s' does not say '%s'", ech_ctx_error(ctx), words);
}

static void test_wrong_loaders(void **state)
{
    (void)state;
    ech_ctx *ctx;
    ech_loader *loader;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    ech_loader_options o = ech_loader_defaults();
    o.batch = 0;
    says(ctx, ech_loader_open(ctx, &o, &loader), "a batch of 0 images");
    assert_null(loader);
    o.batch = 4;
    o.limit = -1;
    says(ctx, ech_loader_open(ctx, &o, &loader), "a limit of -1 samples");
    o.limit = 50001;
    says(ctx, ech_loader_open(ctx, &o, &loader), "50001");
    o.limit = 0;
    o.height = 4097;
    says(ctx, ech_loader_open(ctx, &o, &loader), "height of synthetic images: 4097");
    o.height = 0;
    o.classes = -1;
    says(ctx, ech_loader_open(ctx, &o, &loader), "classes of synthetic images: -1");
    o.classes = 0;
    o.dir = "/nonexistent";
    says(ctx, ech_loader_open(ctx, &o, &loader), "/nonexistent");
    o.width = 8;
    says(ctx, ech_loader_open(ctx, &o, &loader), "is for synthetic ones");
    o = ech_loader_defaults();
    o.size = 0;
    says(ctx, ech_loader_open(ctx, &o, &loader), "start from ech_loader_defaults()");
    o.size = sizeof o + 8;
    says(ctx, ech_loader_open(ctx, &o, &loader), "a newer one");
    ech_loader_close(NULL);
    ech_ctx_destroy(ctx);
}

/* A program that does not know the last members gets what they were. */
static void test_older_programs(void **state)
{
    (void)state;
    ech_ctx *ctx;
    ech_loader *loader;
    ech_batch b;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    ech_loader_options o = ech_loader_defaults();
    o.size = offsetof(ech_loader_options, channels);
    o.channels = o.height = o.width = o.classes = 7; /* not its own */
    assert_int_equal(ech_loader_open(ctx, &o, &loader), ECH_OK);
    assert_int_equal(ech_loader_next(loader, &b), ECH_OK);
    assert_int_equal(b.channels * b.height * b.width, 3 * 32 * 32);
    assert_int_equal(b.classes, 10);
    ech_loader_close(loader);
    ech_ctx_destroy(ctx);
}

/* Images of another shape can be learnt too. */
static void test_other_shapes(void **state)
{
    (void)state;
    enum { C = 2, H = 13, W = 10, CLASSES = 7 };
    ech_ctx *ctx;
    ech_graph *g;
    ech_trainer *t;
    ech_loader *loader;
    double first = 0, last = 0;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_int_equal(ech_graph_create(ctx, &g), ECH_OK);
    ech_value x = ech_input(g, "x", ECH_F32, 4, (int64_t[]){ECH_BATCH, C, H, W});
    ech_value y = ech_input(g, "y", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    ech_value h = ech_linear(g, "fc", ech_flatten(g, x), CLASSES, true);
    const ech_value loss = ech_cross_entropy(g, h, y);
    ech_train_options o = ech_train_defaults();
    o.tune = false;
    o.threads = 1;
    o.optimizer.lr = 0.02;
    o.optimizer.momentum = 0.9;
    ech_loader_options l = ech_loader_defaults();
    l.channels = C, l.height = H, l.width = W, l.classes = CLASSES;
    l.augment = false;
    assert_int_equal(ech_trainer_create(ctx, g, loss, &o, &t), ECH_OK);
    assert_int_equal(ech_loader_open(ctx, &l, &loader), ECH_OK);
    unsigned seen = 0;
    for (int i = 0; i < 200; i++) {
        ech_batch b;
        ech_step step;
        assert_int_equal(ech_loader_next(loader, &b), ECH_OK);
        assert_true(b.channels == C && b.height == H && b.width == W && b.classes == CLASSES);
        for (int64_t k = 0; k < b.count; k++)
            seen |= 1U << b.labels[k];
        assert_int_equal(ech_trainer_step_batch(t, "x", "y", &b, &step), ECH_OK);
        first += i < 20 ? step.loss / 20 : 0;
        last += i >= 180 ? step.loss / 20 : 0;
    }
    assert_int_equal(seen, (1U << CLASSES) - 1);
    if (!(last < 0.9 * first))
        fail_msg("the loss goes from %g to %g only", first, last);
    ech_loader_close(loader);
    ech_trainer_destroy(t);
    ech_graph_destroy(g);
    ech_ctx_destroy(ctx);
}

static void test_wrong_batches(void **state)
{
    (void)state;
    static const float images[8 * 3072];
    static const int32_t labels[8];
    ech_ctx *ctx;
    ech_graph *g;
    ech_trainer *t;
    ech_value correct;
    double got;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_int_equal(ech_graph_create(ctx, &g), ECH_OK);
    const ech_value loss = build(g, &correct);
    ech_train_options o = ech_train_defaults();
    o.batch = 4;
    o.tune = false;
    o.threads = 1;
    assert_int_equal(ech_trainer_create(ctx, g, loss, &o, &t), ECH_OK);
    ech_batch b = {.images = images,
                   .labels = labels,
                   .channels = 3,
                   .height = 32,
                   .width = 32,
                   .count = 5,
                   .global_count = 5};
    says(ctx, ech_trainer_step_batch(t, "images", "labels", &b, NULL), "created for up to 4");
    b.count = 4;
    b.global_count = 3;
    says(ctx, ech_trainer_step_batch(t, "images", "labels", &b, NULL),
         "4 samples is not possible with 3");
    b.global_count = 4;
    b.width = 0;
    says(ctx, ech_trainer_step_batch(t, "images", "labels", &b, NULL), "3x32x0");
    b.width = 32;
    says(ctx, ech_trainer_step_batch(t, "pictures", "labels", &b, NULL), "pictures");
    says(ctx, ech_trainer_evaluate_batch(t, "images", "labels", &b, &(ech_value){0}, 1, &got),
         "neither the loss nor");
    assert_int_equal(ech_trainer_step_batch(t, "images", "labels", &b, NULL), ECH_OK);
    ech_trainer_destroy(t);
    o.accum = 2;
    assert_int_equal(ech_trainer_create(ctx, g, loss, &o, &t), ECH_OK);
    says(ctx, ech_trainer_step_batch(t, "images", "labels", &b, NULL), "2 micro-steps");
    ech_trainer_destroy(t);
    ech_graph_destroy(g);
    ech_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_see_what_one_sees),
        cmocka_unit_test(test_the_same_seed_gives_the_same_bits),
        cmocka_unit_test(test_wrong_loaders),
        cmocka_unit_test(test_older_programs),
        cmocka_unit_test(test_other_shapes),
        cmocka_unit_test(test_wrong_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
