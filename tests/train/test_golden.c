/* Trainings against PyTorch's, from tests/golden: every loss and the final weights. */
#include "models/parts.h"
#include "support/golden.h"
#include "support/temp_dir.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

static const double TOLERANCE = 1e-5;

/* How a case is trained. */
typedef struct way {
    int threads;
    const char *tuning_file; /* NULL: no tuning */
} way;

static ech_value build_classifier(ech_graph *graph, const ech_json *golden)
{
    const int64_t features = (int64_t)golden_number(golden, "features");
    const int64_t hidden = (int64_t)golden_number(golden, "hidden");
    const int64_t classes = (int64_t)golden_number(golden, "classes");
    const ech_value x = ech_input(graph, "x", ECH_F32, 2, (int64_t[]){ECH_BATCH, features});
    const ech_value labels = ech_input(graph, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    const ech_value h = ech_relu(graph, ech_linear(graph, "fc1", x, hidden, true));
    return ech_cross_entropy(graph, ech_linear(graph, "fc2", h, classes, true), labels);
}

static ech_value build_model(ech_graph *graph, const ech_json *golden)
{
    if (ech__json_find(golden, "classes"))
        return build_classifier(graph, golden);
    return ech__linear_stack(graph, (int64_t)golden_number(golden, "dim"),
                             (int64_t)golden_number(golden, "depth"));
}

static void train(ech_ctx *ctx, const ech_json *golden, const way *how)
{
    const char *name = golden_name(golden);
    ech_graph *graph;
    assert_int_equal(ech_graph_create(ctx, &graph), ECH_OK);
    const ech_value loss = build_model(graph, golden);
    ech_train_options options = golden_options(golden);
    options.threads = how->threads;
    options.tune = how->tuning_file != NULL;
    options.tuning_file = how->tuning_file;
    ech_trainer *trainer;
    if (ech_trainer_create(ctx, graph, loss, &options, &trainer) < 0)
        fail_msg("%s: %s", name, ech_ctx_error(ctx));
    golden_write(ctx, trainer, golden);

    double losses[GOLDEN_STEPS], worst = 0;
    golden_losses(golden, losses);
    for (int s = 0; s < GOLDEN_STEPS; s++) {
        ech_step step;
        assert_int_equal(ech_trainer_step(trainer, &step), ECH_OK);
        const double error = fabs(step.loss - losses[s]) / fabs(losses[s]);
        if (!(error <= TOLERANCE))
            fail_msg("%s: the loss of step %d is %.9g; PyTorch has %.9g", name, s + 1, step.loss,
                     losses[s]);
        worst = error > worst ? error : worst;
    }
    const golden_errors e = golden_compare_weights(ctx, trainer, golden);
    printf("%-20s losses %.1e, weights %.1e (norm %.1e, entries %.1e)\n", name, worst, e.difference,
           e.norm, e.entry);
    if (!(e.difference <= TOLERANCE && e.norm <= TOLERANCE && e.entry <= 10 * TOLERANCE))
        fail_msg("%s: the final weights are off by %.2g (norm %.2g, entries %.2g)", name,
                 e.difference, e.norm, e.entry);
    ech_trainer_destroy(trainer);
    ech_graph_destroy(graph);
}

static void train_all(const way *how)
{
    static const char *const files[] = {"linear.json", "classifier.json"};
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        ech_json *doc = golden_open(ctx, files[f]);
        for (size_t i = 0; i < golden_count(doc); i++)
            train(ctx, golden_case(doc, i), how);
        ech__json_destroy(doc);
    }
    ech_ctx_destroy(ctx);
}

static void matches_pytorch(void **state)
{
    (void)state;
    train_all(&(way){.threads = 1});
}

static void matches_pytorch_with_two_threads(void **state)
{
    (void)state;
    train_all(&(way){.threads = 2});
}

static int make_dir(void **state)
{
    static temp_dir dir;
    dir = temp_dir_create();
    *state = &dir;
    return 0;
}

static int remove_dir(void **state)
{
    temp_dir_destroy(*state);
    return 0;
}

static void matches_pytorch_with_timed_kernels(void **state)
{
    char path[TEMP_PATH];
    temp_dir_path(*state, "tuning.json", path);
    train_all(&(way){.threads = 1, .tuning_file = path});
    assert_int_equal(access(path, R_OK), 0); /* something was timed and kept */
}

/* The cases that the golden files are there for; without them the tests above would prove little. */
static void has_every_optimizer(void **state)
{
    (void)state;
    static const char *const wanted[] = {"sgd",  "sgd momentum", "sgd nesterov decay",
                                         "adam", "adamw",        "odd shape"};
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    ech_json *doc = golden_open(ctx, "linear.json");
    assert_int_equal(golden_count(doc), sizeof wanted / sizeof *wanted);
    for (size_t i = 0; i < golden_count(doc); i++)
        assert_string_equal(golden_name(golden_case(doc, i)), wanted[i]);
    ech__json_destroy(doc);
    ech_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_every_optimizer),
        cmocka_unit_test(matches_pytorch),
        cmocka_unit_test(matches_pytorch_with_two_threads),
        cmocka_unit_test_setup_teardown(matches_pytorch_with_timed_kernels, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
