/* Trainings against PyTorch's, from tests/golden: every loss and the final weights. */
#include "support/golden.h"
#include "support/kind.h"
#include "support/temp_dir.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Relative, of losses and of final tensors. Cases whose many ReLUs let rounding decide some signs have their own,
 * but a first loss has seen no gradient yet. */
static const double TOLERANCE = 1e-5;

/* How a case is trained. */
typedef struct way {
    int threads;
    const char *tuning_file; /* NULL: no tuning */
} way;

static double tolerance(const ech_json *golden, const char *field)
{
    return ech__json_find(golden, field) ? golden_number(golden, field) : TOLERANCE;
}

static double check_losses(ech_trainer *trainer, const ech_json *golden)
{
    const double later = tolerance(golden, "loss_tolerance");
    double losses[GOLDEN_STEPS], worst = 0;
    const int steps = golden_losses(golden, losses);
    for (int s = 0; s < steps; s++) {
        ech_step step;
        assert_int_equal(ech_trainer_step(trainer, &step), ECH_OK);
        const double error = fabs(step.loss - losses[s]) / fabs(losses[s]);
        if (!(error <= (s ? later : TOLERANCE)))
            fail_msg("%s: the loss of step %d is %.9g; PyTorch has %.9g", golden_name(golden),
                     s + 1, step.loss, losses[s]);
        worst = error > worst ? error : worst;
    }
    return worst;
}

static void train(ech_ctx *ctx, const ech_json *golden, const way *how)
{
    const char *name = golden_name(golden);
    ech_graph *graph;
    assert_int_equal(ech_graph_create(ctx, &graph), ECH_OK);
    const ech_value loss = golden_build(ctx, graph, golden);
    ech_train_options options = golden_options(golden);
    options.threads = how->threads;
    options.tune = how->tuning_file != NULL;
    options.tuning_file = how->tuning_file;
    ech_trainer *trainer;
    if (ech_trainer_create(ctx, graph, loss, &options, &trainer) < 0)
        fail_msg("%s: %s", name, ech_ctx_error(ctx));
    golden_write(ctx, trainer, golden);
    const double losses = check_losses(trainer, golden);
    const golden_errors e = golden_compare_weights(ctx, trainer, golden);
    printf("%-20s losses %.1e, weights %.1e (norm %.1e, entries %.1e)\n", name, losses,
           e.difference, e.norm, e.entry);
    const double most = tolerance(golden, "weight_tolerance");
    if (!(e.difference <= most && e.norm <= most && e.entry <= 10 * most))
        fail_msg("%s: the final weights are off by %.2g (norm %.2g, entries %.2g)", name,
                 e.difference, e.norm, e.entry);
    ech_trainer_destroy(trainer);
    ech_graph_destroy(graph);
}

/* ResNet-18 is trained in one way only, which takes its seconds; test_gradient_error has the others. On
 * the reference device it would take minutes. */
static void train_all(const way *how, bool large)
{
    static const char *const files[] = {"linear.json", "classifier.json", "lenet.json",
                                        "resnet.json", "clipped.json"};
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        ech_json *doc = golden_open(ctx, files[f]);
        for (size_t i = 0; i < golden_count(doc); i++) {
            const ech_json *golden = golden_case(doc, i);
            if (large || strcmp(golden_name(golden), "resnet18") != 0)
                train(ctx, golden, how);
        }
        ech__json_destroy(doc);
    }
    ech_ctx_destroy(ctx);
}

static void matches_pytorch(void **state)
{
    (void)state;
    train_all(&(way){.threads = 1}, on_cpu());
}

static void matches_pytorch_with_two_threads(void **state)
{
    (void)state;
    train_all(&(way){.threads = 2}, false);
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
    train_all(&(way){.threads = 1, .tuning_file = path}, false);
    assert_int_equal(access(path, R_OK), 0); /* something was timed and kept */
}

static void check_names(const char *file, const char *const *wanted, size_t count)
{
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    ech_json *doc = golden_open(ctx, file);
    assert_int_equal(golden_count(doc), count);
    for (size_t i = 0; i < count; i++)
        assert_string_equal(golden_name(golden_case(doc, i)), wanted[i]);
    ech__json_destroy(doc);
    ech_ctx_destroy(ctx);
}

/* The cases that the golden files are there for; without them the tests above would prove little. */
static void has_every_optimizer_and_model(void **state)
{
    (void)state;
    static const char *const linear[] = {"sgd",  "sgd momentum", "sgd nesterov decay",
                                         "adam", "adamw",        "odd shape"};
    static const char *const lenet[] = {"lenet"}, *const resnet[] = {"resnet8", "resnet18"};
    check_names("linear.json", linear, sizeof linear / sizeof *linear);
    check_names("lenet.json", lenet, 1);
    check_names("resnet.json", resnet, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_every_optimizer_and_model),
        cmocka_unit_test(matches_pytorch),
        cmocka_unit_test(matches_pytorch_with_two_threads),
        cmocka_unit_test_setup_teardown(matches_pytorch_with_timed_kernels, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
