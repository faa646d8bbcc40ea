/* Trainings in mixed precision: they come to the loss that f32 comes to, with the same bits in
 * every run and half of the memory for activations, in every way that a training can be cut up. */
#include "support/cmocka_first.h"
#include "support/golden.h"
#include "support/kind.h"
#include "train/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static ech__run_config config_of(ech__model_kind model, ech_amp amp)
{
    ech__run_config c = ech__run_defaults();
    c.model = (ech__model_options){.kind = model, .dim = 40, .depth = 3};
    c.train.batch = on_cpu() ? 32 : 4;
    c.train.threads = 1;
    c.train.tune = false;
    c.train.seed = 3;
    c.train.amp.type = amp;
    c.steps = 12;
    c.warmup = 0;
    return c;
}

typedef struct outcome {
    double loss; /* mean of the last steps */
    int skipped;
    char sha256[65];
} outcome;

typedef struct watcher {
    outcome out;
    int64_t last; /* steps of the mean */
} watcher;

static void watch(void *user, const ech__run *run, const ech__run_step *step)
{
    watcher *w = user;
    w->out.skipped += step->result.skipped;
    if (step->step > run->config.steps - w->last)
        w->out.loss += step->result.loss / (double)w->last;
}

static outcome train_all(const ech__run_config *config, int64_t last)
{
    ech_ctx *ctx;
    ech__run *run;
    watcher w = {.last = last};
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    if (ech__run_create(ctx, config, &run) < 0 ||
        ech__run_steps(run, &(ech__run_events){.on_step = watch, .user = &w}) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    memcpy(w.out.sha256, run->summary.params_sha256, sizeof w.out.sha256);
    ech__run_destroy(run);
    ech_ctx_destroy(ctx);
    return w.out;
}

/* ---- against f32 ---- */

/* On CIFAR-10 where ECH_CIFAR names its directory, else on the made-up set. */
static ech__run_config lenet_config(ech_amp amp)
{
    ech__run_config c = config_of(ECH__MODEL_LENET, amp);
    if (getenv("ECH_CIFAR")) {
        c.data = "cifar10";
        c.data_dir = getenv("ECH_CIFAR");
    }
    c.train.optimizer.lr = 0.05;
    c.train.optimizer.momentum = 0.9;
    c.steps = 200;
    return c;
}

static void lenet_comes_to_the_loss_of_f32(void **state)
{
    (void)state;
    if (!on_cpu()) /* 200 steps take a minute, and the others show what memory has to do with it */
        skip();
    ech__run_config c = lenet_config(ECH_AMP_OFF);
    const outcome wide = train_all(&c, 20);
    print_message("lenet, 200 steps: f32 %.4f\n", wide.loss);
    /* It has learned something: chance is ln 10, which is 2.30. Real images are harder than made-up ones. */
    assert_true(wide.loss < (getenv("ECH_CIFAR") ? 2.2 : 2));
    for (ech_amp amp = ECH_AMP_BF16; amp <= ECH_AMP_FP16; amp++) {
        c = lenet_config(amp);
        const outcome low = train_all(&c, 20);
        print_message("lenet, 200 steps: %s %.4f, %d skipped\n", ech__amp_name(amp), low.loss,
                      low.skipped);
        assert_true(fabs(low.loss - wide.loss) <= 0.02 * wide.loss);
        assert_string_not_equal(low.sha256, wide.sha256); /* it did compute in the other type */
    }
}

/* Every loss of PyTorch's trainings in f64. The first is a mean over roundings of the type; later
 * ones, whose ReLUs have fallen on other sides of zero here and there, are within a hundredth. */
static void check_golden(ech_ctx *ctx, const ech_json *golden, ech_amp amp, double first)
{
    ech_graph *graph;
    assert_int_equal(ech_graph_create(ctx, &graph), ECH_OK);
    const ech_value loss = golden_build(ctx, graph, golden);
    ech_train_options options = golden_options(golden);
    options.amp.type = amp;
    ech_trainer *trainer;
    if (ech_trainer_create(ctx, graph, loss, &options, &trainer) < 0)
        fail_msg("%s: %s", golden_name(golden), ech_ctx_error(ctx));
    golden_write(ctx, trainer, golden);
    double losses[GOLDEN_STEPS], worst = 0;
    const int steps = golden_losses(golden, losses);
    for (int s = 0; s < steps; s++) {
        ech_step step;
        assert_int_equal(ech_trainer_step(trainer, &step), ECH_OK);
        assert_false(step.skipped);
        worst = fmax(worst, fabs(step.loss - losses[s]) / losses[s]);
        if (s == 0 && worst > first)
            fail_msg("%s, %s: the first loss is off by %.1e", golden_name(golden),
                     ech__amp_name(amp), worst);
    }
    print_message("%-20s %s: losses off by %.1e\n", golden_name(golden), ech__amp_name(amp), worst);
    assert_true(worst <= 0.01);
    assert_true(worst > 1e-7); /* else nothing was rounded */
    ech_trainer_destroy(trainer);
    ech_graph_destroy(graph);
}

static void losses_are_near_pytorch(void **state)
{
    (void)state;
    static const char *const files[] = {"linear.json", "classifier.json", "lenet.json",
                                        "resnet.json"};
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        ech_json *doc = golden_open(ctx, files[f]);
        for (size_t i = 0; i < golden_count(doc); i++) {
            const ech_json *golden = golden_case(doc, i);
            const bool large = strcmp(golden_name(golden), "resnet18") == 0; /* takes its seconds */
            if (!large || on_cpu())
                check_golden(ctx, golden, ECH_AMP_BF16, 0x1p-8);
            if (!large)
                check_golden(ctx, golden, ECH_AMP_FP16, 0x1p-11);
        }
        ech__json_destroy(doc);
    }
    ech_ctx_destroy(ctx);
}

/* ---- equal bits ---- */

static void the_same_seed_gives_the_same_bits(void **state)
{
    (void)state;
    const ech__model_kind models[] = {ECH__MODEL_LINEAR, ECH__MODEL_LENET, ECH__MODEL_RESNET8};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        for (ech_amp amp = ECH_AMP_BF16; amp <= ECH_AMP_FP16; amp++) {
            ech__run_config c = config_of(models[m], amp);
            outcome a, b;
            c.steps = 3;
            for (int threads = 2; threads >= 1; threads--) {
                c.train.threads = threads;
                a = train_all(&c, 1);
                b = train_all(&c, 1);
                assert_string_equal(a.sha256, b.sha256);
                assert_true(isfinite(a.loss));
            }
            c.train.seed = 4;
            b = train_all(&c, 1);
            assert_string_not_equal(a.sha256, b.sha256);
        }
    }
}

/* ---- memory ---- */

static void memory_of(const ech__run_config *config, int64_t out[ECH__MEMORY_COUNT])
{
    ech_ctx *ctx;
    ech_graph *graph;
    ech__model model;
    ech_trainer *trainer;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_int_equal(ech_graph_create(ctx, &graph), ECH_OK);
    if (ech__model_build(graph, &config->model, &model) < 0 ||
        ech__trainer_plan(ctx, graph, model.loss, &config->train, &trainer) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    memcpy(out, trainer->plan->memory, ECH__MEMORY_COUNT * sizeof *out);
    ech_trainer_destroy(trainer);
    ech_graph_destroy(graph);
    ech_ctx_destroy(ctx);
}

static void activations_take_half(void **state)
{
    (void)state;
    const struct {
        ech__model_options model;
        int64_t batch;
        bool recompute;
    } cases[] = {
        {{.kind = ECH__MODEL_LINEAR, .dim = 1024, .depth = 2}, 64, true},
        {{.kind = ECH__MODEL_LINEAR, .dim = 2048, .depth = 4}, 32, true},
        {{.kind = ECH__MODEL_LENET, .dim = 1, .depth = 1}, 64, true},
        {{.kind = ECH__MODEL_RESNET18, .dim = 1, .depth = 1}, 32, true},
        {{.kind = ECH__MODEL_RESNET18, .dim = 1, .depth = 1}, 32, false},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        ech__run_config c = config_of(cases[k].model.kind, ECH_AMP_OFF);
        int64_t wide[ECH__MEMORY_COUNT], low[ECH__MEMORY_COUNT];
        c.model = cases[k].model;
        c.train.batch = cases[k].batch;
        c.train.recompute = cases[k].recompute;
        memory_of(&c, wide);
        for (ech_amp amp = ECH_AMP_BF16; amp <= ECH_AMP_FP16; amp++) {
            c.train.amp.type = amp;
            memory_of(&c, low);
            const double ratio =
                (double)low[ECH__MEMORY_ACTIVATIONS] / (double)wide[ECH__MEMORY_ACTIVATIONS];
            print_message("%s %s: activations %.1f %%\n", ech__model_name(c.model.kind),
                          ech__amp_name(amp), 100 * ratio);
            assert_true(ratio <= 0.55);
            assert_true(low[ECH__MEMORY_COPIES] > 0);
            assert_int_equal(low[ECH__MEMORY_WEIGHTS] > 0, 1);
            /* Master weights, their gradients and the optimizer's states are f32 as before. */
            assert_int_equal(low[ECH__MEMORY_OPTIMIZER], wide[ECH__MEMORY_OPTIMIZER]);
        }
    }
}

/* ---- however the training is cut up ---- */

/* Near the loss of f32, cut up in the same way. */
static void expect_near(ech__run_config c, const char *what)
{
    c.train.amp.type = ECH_AMP_OFF;
    const outcome wide = train_all(&c, 3);
    /* Where devices of one process use gradients at once, there is no loss to be scaled, and so no fp16. */
    const ech_amp last = c.train.dp.devices ? ECH_AMP_BF16 : ECH_AMP_FP16;
    for (ech_amp amp = ECH_AMP_BF16; amp <= last; amp++) {
        c.train.amp.type = amp;
        c.train.amp.loss_scale = amp == ECH_AMP_FP16 ? 1024 : 0;
        const outcome low = train_all(&c, 3);
        if (!(fabs(low.loss - wide.loss) <= 0.03 * wide.loss))
            fail_msg("%s, %s: loss %g, and %g in f32", what, ech__amp_name(amp), low.loss,
                     wide.loss);
        assert_string_not_equal(low.sha256, wide.sha256);
        assert_int_equal(low.skipped, 0);
    }
}

static void micro_steps(void **state)
{
    (void)state;
    ech__run_config c = config_of(ECH__MODEL_LENET, ECH_AMP_OFF);
    c.train.batch /= 4;
    c.train.accum = 4;
    expect_near(c, "four micro-steps");
    c.train.accum = 1;
    c.train.batch = 0;
    c.global_batch = on_cpu() ? 32 : 8; /* one sample for each slot */
    c.train.ddp.reproducible = true;
    expect_near(c, "slots");
}

/* The last batch of an epoch is shorter, and an epoch ends with an evaluation. */
static void epochs(void **state)
{
    (void)state;
    ech__run_config c = config_of(ECH__MODEL_LENET, ECH_AMP_OFF);
    c.limit = on_cpu() ? 150 : 14;
    c.steps = 0;
    c.epochs = 2;
    expect_near(c, "epochs");
}

static void batch_norms(void **state)
{
    (void)state;
    ech__run_config c = config_of(ECH__MODEL_RESNET8, ECH_AMP_OFF);
    c.steps = 6;
    expect_near(c, "batch norms computed again");
    c.train.recompute = false;
    c.train.threads = 2;
    expect_near(c, "batch norms kept");
}

static void several_devices_of_one_process(void **state)
{
    (void)state;
    ech__run_config c = config_of(ECH__MODEL_LENET, ECH_AMP_OFF);
    c.train.dp.devices = 2;
    expect_near(c, "two devices");
}

static void timed_kernels(void **state)
{
    (void)state;
    ech__run_config c = config_of(ECH__MODEL_LENET, ECH_AMP_OFF);
    c.train.tune = true;
    c.train.tuning_file = "";
    expect_near(c, "timed kernels");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet_comes_to_the_loss_of_f32),
        cmocka_unit_test(losses_are_near_pytorch),
        cmocka_unit_test(the_same_seed_gives_the_same_bits),
        cmocka_unit_test(activations_take_half),
        cmocka_unit_test(micro_steps),
        cmocka_unit_test(epochs),
        cmocka_unit_test(batch_norms),
        cmocka_unit_test(several_devices_of_one_process),
        cmocka_unit_test(timed_kernels),
    };
    return cmocka_run_group_tests_name("amp", tests, NULL, NULL);
}
