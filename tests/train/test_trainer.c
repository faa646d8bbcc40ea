/* What a trainer promises: equal bits, the memory it said, limits that help, and errors that name the thing. */
#include "models/internal.h"
#include "support/cmocka_first.h"
#include "support/golden.h"
#include "train/step/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 48, DEPTH = 3, BATCH = 20, STEPS = 6 };

typedef struct fixture {
    ech_ctx *ctx;
    ech_graph *graph; /* a linear stack */
    ech_value loss;
    ech_train_options options;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(ech_ctx_create(NULL, &f->ctx), ECH_OK);
    assert_int_equal(ech_graph_create(f->ctx, &f->graph), ECH_OK);
    f->loss = ech__linear_stack(f->graph, DIM, DEPTH);
    f->options = ech_train_defaults();
    f->options.batch = BATCH;
    f->options.threads = 1;
    f->options.tune = false;
    f->options.optimizer.lr = 1;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ech_graph_destroy(f->graph);
    ech_ctx_destroy(f->ctx);
    free(f);
    return 0;
}

static ech_trainer *create(fixture *f)
{
    ech_trainer *trainer;
    if (ech_trainer_create(f->ctx, f->graph, f->loss, &f->options, &trainer) < 0)
        fail_msg("%s", ech_ctx_error(f->ctx));
    return trainer;
}

static void write_batch(ech_trainer *trainer, int64_t batch)
{
    const size_t count = (size_t)batch * DIM;
    float *data = malloc(count * sizeof *data);
    assert_non_null(data);
    golden_fill("x", 1, data, (int64_t)count);
    assert_int_equal(ech_trainer_write(trainer, "x", data, count * sizeof *data), ECH_OK);
    golden_fill("y", 1, data, (int64_t)count);
    assert_int_equal(ech_trainer_write(trainer, "y", data, count * sizeof *data), ECH_OK);
    free(data);
}

/* ---- equal bits ---- */

enum { PARAMS = DEPTH * (DIM * DIM + DIM) };

typedef struct result {
    double losses[STEPS];
    float params[PARAMS];
} result;

static void read_params(ech_trainer *trainer, float *out)
{
    for (int k = 0; k < DEPTH; k++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%d.weight", k);
        assert_int_equal(ech_trainer_read(trainer, name, out, DIM * DIM * sizeof *out), ECH_OK);
        out += DIM * DIM;
        snprintf(name, sizeof name, "layers.%d.bias", k);
        assert_int_equal(ech_trainer_read(trainer, name, out, DIM * sizeof *out), ECH_OK);
        out += DIM;
    }
}

static void run(fixture *f, result *out)
{
    memset(out, 0, sizeof *out);
    ech_trainer *trainer = create(f);
    write_batch(trainer, BATCH);
    for (int s = 0; s < STEPS; s++) {
        ech_step step;
        assert_int_equal(ech_trainer_step(trainer, &step), ECH_OK);
        out->losses[s] = step.loss;
    }
    read_params(trainer, out->params);
    ech_trainer_destroy(trainer);
}

static void the_same_seed_gives_the_same_bits(void **state)
{
    fixture *f = *state;
    result *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    assert_true(a && b);
    for (int optimizer = ECH_OPTIMIZER_SGD; optimizer <= ECH_OPTIMIZER_ADAMW; optimizer++) {
        for (int threads = 1; threads <= 2; threads++) {
            f->options.optimizer.kind = (ech_optimizer)optimizer;
            f->options.optimizer.lr = optimizer == ECH_OPTIMIZER_SGD ? 1 : 0.01;
            f->options.threads = threads;
            f->options.seed = 7;
            run(f, a);
            run(f, b);
            assert_memory_equal(a, b, sizeof *a);
            assert_true(a->losses[STEPS - 1] < a->losses[0]);
            f->options.seed = 8;
            run(f, b);
            assert_true(a->losses[0] != b->losses[0]);
            assert_memory_not_equal(a->params, b->params, sizeof a->params);
        }
    }
    free(a);
    free(b);
}

static void the_hash_is_of_the_parameters(void **state)
{
    fixture *f = *state;
    ech_trainer *one = create(f), *two = create(f);
    char first[65], second[65];
    assert_int_equal(ech__trainer_hash(one, first), ECH_OK);
    assert_int_equal(ech__trainer_hash(two, second), ECH_OK);
    assert_string_equal(first, second);
    float bias[DIM];
    assert_int_equal(ech_trainer_read(two, "layers.2.bias", bias, sizeof bias), ECH_OK);
    bias[DIM - 1] += 1;
    assert_int_equal(ech_trainer_write(two, "layers.2.bias", bias, sizeof bias), ECH_OK);
    assert_int_equal(ech__trainer_hash(two, second), ECH_OK);
    assert_string_not_equal(first, second);
    assert_int_equal(ech__trainer_param_count(one), PARAMS);
    ech_trainer_destroy(one);
    ech_trainer_destroy(two);
}

static void a_learning_rate_of_zero_changes_nothing(void **state)
{
    fixture *f = *state;
    float *before = malloc(PARAMS * sizeof *before), *after = malloc(PARAMS * sizeof *after);
    assert_true(before && after);
    for (int optimizer = ECH_OPTIMIZER_SGD; optimizer <= ECH_OPTIMIZER_ADAMW; optimizer++) {
        f->options.optimizer.kind = (ech_optimizer)optimizer;
        f->options.optimizer.lr = 0;
        f->options.optimizer.momentum = 0.9;
        f->options.optimizer.weight_decay = 0.1;
        ech_trainer *trainer = create(f);
        write_batch(trainer, BATCH);
        read_params(trainer, before);
        ech_step first, last;
        assert_int_equal(ech_trainer_step(trainer, &first), ECH_OK);
        assert_int_equal(ech_trainer_step(trainer, &last), ECH_OK);
        read_params(trainer, after);
        assert_memory_equal(before, after, PARAMS * sizeof *before);
        assert_true(first.loss == last.loss);
        ech_trainer_set_lr(trainer, 0.1);
        assert_int_equal(ech_trainer_step(trainer, NULL), ECH_OK);
        read_params(trainer, after);
        assert_memory_not_equal(before, after, PARAMS * sizeof *before);
        ech_trainer_destroy(trainer);
    }
    free(before);
    free(after);
}

/* ---- memory ---- */

static void planned_memory_is_what_it_takes(void **state)
{
    fixture *f = *state;
    for (int optimizer = ECH_OPTIMIZER_SGD; optimizer <= ECH_OPTIMIZER_ADAMW; optimizer++) {
        for (int tune = 0; tune < 2; tune++) {
            f->options.optimizer.kind = (ech_optimizer)optimizer;
            f->options.tune = tune;
            f->options.tuning_file = ""; /* in memory only */
            ech_trainer *trainer = create(f);
            write_batch(trainer, BATCH);
            assert_int_equal(ech_trainer_step(trainer, NULL), ECH_OK);
            const int64_t planned = ech_trainer_planned_memory(trainer);
            assert_int_equal(ech_trainer_peak_memory(trainer), planned);
            /* Parameters, their gradients and what the optimizer keeps are the least that it can be. */
            const int copies = optimizer == ECH_OPTIMIZER_SGD ? 2 : 4;
            assert_true(planned > (int64_t)(copies * PARAMS * sizeof(float)));
            ech_trainer_destroy(trainer);
        }
    }
}

static ech_status try_batch(fixture *f, int64_t batch)
{
    f->options.batch = batch;
    ech_trainer *trainer;
    const ech_status status = ech_trainer_create(f->ctx, f->graph, f->loss, &f->options, &trainer);
    if (status == ECH_OK) {
        write_batch(trainer, batch);
        assert_int_equal(ech_trainer_step(trainer, NULL), ECH_OK);
        assert_true(ech_trainer_peak_memory(trainer) <= f->options.device_memory);
        ech_trainer_destroy(trainer);
    } else {
        assert_null(trainer);
    }
    return status;
}

static void assert_says(const fixture *f, const char *part)
{
    if (!strstr(ech_ctx_error(f->ctx), part))
        fail_msg("\"%s\" does not say '%s'", ech_ctx_error(f->ctx), part);
}

/* The number behind a piece of the last sentence. */
static long long number_behind(const fixture *f, const char *words)
{
    const char *at = strstr(ech_ctx_error(f->ctx), words);
    long long number = -1;
    if (!at || sscanf(at + strlen(words), "%lld", &number) != 1)
        fail_msg("\"%s\" has no number behind '%s'", ech_ctx_error(f->ctx), words);
    return number;
}

static void a_limit_says_what_would_fit(void **state)
{
    fixture *f = *state;
    ech_trainer *trainer = create(f);
    const int64_t need = ech_trainer_planned_memory(trainer);
    ech_trainer_destroy(trainer);
    for (int tune = 0; tune < 2; tune++) {
        f->options.tune = tune;
        f->options.tuning_file = "";
        f->options.device_memory = need - 1;
        assert_int_equal(try_batch(f, BATCH), ECH_E_LIMIT);
        static const char *const parts[] = {"a batch of 20 needs",
                                            "limit is",
                                            "weights",
                                            "gradients",
                                            "optimizer",
                                            "inputs",
                                            "activations",
                                            "workspace",
                                            "KB",
                                            "the largest batch that fits is"};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            assert_says(f, parts[i]);
        const long long largest = number_behind(f, "the largest batch that fits is ");
        assert_in_range(largest, 1, BATCH - 1);
        assert_int_equal(try_batch(f, largest), ECH_OK);
        assert_int_equal(try_batch(f, largest + 1), ECH_E_LIMIT);
        assert_int_equal(number_behind(f, "the largest batch that fits is "), largest);
        f->options.device_memory = need; /* to the byte */
        assert_int_equal(try_batch(f, BATCH), ECH_OK);
    }
}

static void a_limit_below_one_sample_says_so(void **state)
{
    fixture *f = *state;
    f->options.device_memory = 4096;
    assert_int_equal(try_batch(f, BATCH), ECH_E_LIMIT);
    assert_says(f, "not even a batch of 1 fits");
}

/* Here the operands of one operator, each in a place of its own as when it is timed, take more than the whole
 * plan, in which the gradient of the logits takes the logits' place. */
static void a_tight_limit_does_not_stop_tuning(void **state)
{
    fixture *f = *state;
    enum { N = 512, C = 700 };
    ech_graph *graph;
    assert_int_equal(ech_graph_create(f->ctx, &graph), ECH_OK);
    const ech_value x = ech_input(graph, "x", ECH_F32, 2, (int64_t[]){ECH_BATCH, 1});
    const ech_value labels = ech_input(graph, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    const ech_value loss = ech_cross_entropy(graph, ech_linear(graph, "fc", x, C, false), labels);
    f->options.batch = N;
    ech_trainer *trainer;
    assert_int_equal(ech_trainer_create(f->ctx, graph, loss, &f->options, &trainer), ECH_OK);
    f->options.device_memory = ech_trainer_planned_memory(trainer);
    ech_trainer_destroy(trainer);
    f->options.tune = true;
    f->options.tuning_file = "";
    if (ech_trainer_create(f->ctx, graph, loss, &f->options, &trainer) < 0)
        fail_msg("%s", ech_ctx_error(f->ctx));
    assert_true(ech_trainer_peak_memory(trainer) <= f->options.device_memory);
    ech_trainer_destroy(trainer);
    ech_graph_destroy(graph);
}

/* ---- wrong use ---- */

static void wrong_names_and_sizes_are_named(void **state)
{
    fixture *f = *state;
    ech_trainer *trainer = create(f);
    float data[DIM * DIM + 1] = {0};
    const size_t weight = DIM * DIM * sizeof(float);
    assert_int_equal(ech_trainer_write(trainer, "z", data, 4), ECH_E_INVALID);
    assert_says(f, "'z'");
    assert_int_equal(ech_trainer_read(trainer, "layers.3.weight", data, weight), ECH_E_INVALID);
    assert_says(f, "'layers.3.weight'");
    for (int wrong = -1; wrong <= 1; wrong += 2) {
        const size_t bytes = weight + (size_t)(wrong * 4);
        char text[32];
        snprintf(text, sizeof text, "%zu", bytes);
        assert_int_equal(ech_trainer_write(trainer, "layers.0.weight", data, bytes), ECH_E_INVALID);
        assert_says(f, "'layers.0.weight'");
        assert_says(f, "9216 bytes");
        assert_says(f, text);
        assert_int_equal(ech_trainer_read(trainer, "layers.0.weight", data, bytes), ECH_E_INVALID);
        assert_says(f, text);
    }
    assert_int_equal(ech_trainer_write(trainer, "", data, 4), ECH_E_INVALID);
    ech_trainer_destroy(trainer);
}

static void labels_out_of_range_are_named(void **state)
{
    fixture *f = *state;
    enum { N = 3, CLASSES = 4 };
    ech_graph *graph;
    assert_int_equal(ech_graph_create(f->ctx, &graph), ECH_OK);
    const ech_value x = ech_input(graph, "x", ECH_F32, 2, (int64_t[]){ECH_BATCH, 2});
    const ech_value labels = ech_input(graph, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    const ech_value loss =
        ech_cross_entropy(graph, ech_linear(graph, "fc", x, CLASSES, true), labels);
    f->options.batch = N;
    ech_trainer *trainer;
    assert_int_equal(ech_trainer_create(f->ctx, graph, loss, &f->options, &trainer), ECH_OK);
    const float xs[N * 2] = {1, 2, 3, 4, 5, 6};
    assert_int_equal(ech_trainer_write(trainer, "x", xs, sizeof xs), ECH_OK);
    char before[65], after[65];
    assert_int_equal(ech__trainer_hash(trainer, before), ECH_OK);
    static const int32_t wrong[] = {CLASSES, -1, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const int32_t bad[N] = {0, CLASSES - 1, wrong[i]};
        assert_int_equal(ech_trainer_write(trainer, "labels", bad, sizeof bad), ECH_OK);
        ech_step step;
        assert_int_equal(ech_trainer_step(trainer, &step), ECH_E_INVALID);
        char text[32];
        snprintf(text, sizeof text, "%d", wrong[i]);
        assert_says(f, text);
    }
    assert_int_equal(ech__trainer_hash(trainer, after), ECH_OK);
    assert_string_equal(before, after); /* a step that failed trained nothing */
    const int32_t good[N] = {0, CLASSES - 1, 1};
    assert_int_equal(ech_trainer_write(trainer, "labels", good, sizeof good), ECH_OK);
    assert_int_equal(ech_trainer_step(trainer, NULL), ECH_OK);
    ech_trainer_destroy(trainer);
    ech_graph_destroy(graph);
}

static void refused(fixture *f, const ech_train_options *options, const char *part)
{
    ech_trainer *trainer;
    assert_int_equal(ech_trainer_create(f->ctx, f->graph, f->loss, options, &trainer),
                     ECH_E_INVALID);
    assert_null(trainer);
    assert_says(f, part);
}

static void wrong_options_are_named(void **state)
{
    fixture *f = *state;
    ech_train_options o;
#define REFUSED(field, value, part)                                                                \
    o = f->options;                                                                                \
    o.field = value;                                                                               \
    refused(f, &o, part)
    REFUSED(batch, 0, "batch of 0");
    REFUSED(batch, -5, "batch of -5");
    REFUSED(optimizer.lr, -1, "learning rate -1");
    REFUSED(optimizer.lr, 0.0 / 0.0, "learning rate");
    REFUSED(optimizer.momentum, 1, "momentum 1");
    REFUSED(optimizer.momentum, -0.5, "momentum -0.5");
    REFUSED(optimizer.weight_decay, -1, "weight decay -1");
    REFUSED(optimizer.beta1, 1, "beta1 1");
    REFUSED(optimizer.nesterov, true, "nesterov");
    REFUSED(threads, -1, "-1 threads");
    REFUSED(device_memory, -1, "device memory of -1");
    REFUSED(delay_ms, -1, "delay of -1");
#undef REFUSED
}

/* ---- time ---- */

static void delay_comes_before_the_backward_pass(void **state)
{
    fixture *f = *state;
    f->options.delay_ms = 30;
    ech_trainer *trainer = create(f);
    write_batch(trainer, BATCH);
    for (int s = 0; s < 3; s++) {
        ech_step step;
        assert_int_equal(ech_trainer_step(trainer, &step), ECH_OK);
        assert_true(step.backward_s >= 0.030);
        assert_true(step.forward_s > 0 && step.optimizer_s > 0);
        const double parts =
            step.forward_s + step.backward_s + step.optimizer_s + step.wait_s + step.other_s;
        assert_true(parts > step.time_s - 1e-9 && parts < step.time_s + 1e-9);
    }
    ech_trainer_destroy(trainer);
}

/* The numbers of a run do not depend on how long it takes. */
static void delay_changes_no_bit(void **state)
{
    fixture *f = *state;
    result *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    assert_true(a && b);
    run(f, a);
    f->options.delay_ms = 1;
    run(f, b);
    assert_memory_equal(a, b, sizeof *a);
    free(a);
    free(b);
}

/* Images of many channels lie in blocks of them; micro-steps and evaluations see them as they were written. */
static void images_are_the_same_in_every_plan(void **state)
{
    fixture *f = *state;
    enum { IMAGES = 4, CHANNELS = 20, SIDE = 5, COUNT = IMAGES * CHANNELS * SIDE * SIDE };
    static const int32_t labels[IMAGES] = {0, 1, 2, 1};
    static float images[COUNT];
    ech_graph *g;
    assert_int_equal(ech_graph_create(f->ctx, &g), ECH_OK);
    const ech_value x = ech_input(g, "x", ECH_F32, 4, (int64_t[]){ECH_BATCH, CHANNELS, SIDE, SIDE});
    const ech_value y = ech_input(g, "y", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    const ech_conv conv = {.out_channels = 24, .kernel = 3, .pad = 1};
    const ech_value h = ech_flatten(g, ech_relu(g, ech_conv2d(g, "conv", x, &conv)));
    const ech_value loss = ech_cross_entropy(g, ech_linear(g, "fc", h, 3, true), y);
    golden_fill("x", 1, images, COUNT);
    f->options.batch = IMAGES;
    f->options.optimizer.lr = 0;
    double losses[2];
    for (int accum = 1; accum <= 2; accum++) {
        ech_trainer *t;
        ech_step step;
        double evaluated;
        f->options.accum = accum;
        assert_int_equal(ech_trainer_create(f->ctx, g, loss, &f->options, &t), ECH_OK);
        assert_int_equal(ech_trainer_write(t, "x", images, sizeof images), ECH_OK);
        assert_int_equal(ech_trainer_write(t, "y", labels, sizeof labels), ECH_OK);
        assert_int_equal(ech_trainer_evaluate(t, loss, &evaluated), ECH_OK);
        for (int i = 1; i < accum; i++) /* the same samples in each */
            assert_int_equal(ech_trainer_accumulate(t), ECH_OK);
        assert_int_equal(ech_trainer_step(t, &step), ECH_OK);
        losses[accum - 1] = step.loss;
        assert_true(evaluated == step.loss);
        assert_int_equal(ech_trainer_peak_memory(t), ech_trainer_planned_memory(t));
        ech_trainer_destroy(t);
    }
    assert_true(losses[0] == losses[1] && losses[0] > 0.1);
    ech_graph_destroy(g);
}

/* ---- what is not finite ---- */

static void poison(ech_trainer *trainer, const char *name, int count)
{
    float *data = malloc((size_t)count * sizeof *data);
    assert_non_null(data);
    assert_int_equal(ech_trainer_read(trainer, name, data, (size_t)count * sizeof *data), ECH_OK);
    data[count / 2] = NAN;
    assert_int_equal(ech_trainer_write(trainer, name, data, (size_t)count * sizeof *data), ECH_OK);
    free(data);
}

static void expect_blame(fixture *f, const char *poisoned, int count, const char *what)
{
    ech_trainer *trainer = create(f);
    const ech__value *broken;
    ech_step step;
    write_batch(trainer, BATCH);
    assert_int_equal(ech_trainer_step(trainer, &step), ECH_OK);
    assert_true(isfinite(step.loss));
    assert_string_equal(trainer->cause.what, "");
    assert_int_equal(ech__trainer_nonfinite(trainer, &broken), ECH_OK);
    assert_null(broken);
    if (poisoned)
        poison(trainer, poisoned, count);
    assert_int_equal(ech_trainer_step(trainer, &step), ECH_OK);
    assert_false(isfinite(step.loss));
    assert_false(isnan(step.loss) && signbit(step.loss)); /* it would print as -nan */
    assert_string_equal(trainer->cause.what, what);
    assert_int_equal(ech__trainer_nonfinite(trainer, &broken), ECH_OK);
    assert_non_null(broken);
    ech_trainer_destroy(trainer);
}

static void the_first_that_is_not_finite_is_named(void **state)
{
    fixture *f = *state;
    expect_blame(f, "layers.1.weight", DIM * DIM, "parameter 'layers.1.weight'");
    expect_blame(f, "layers.2.bias", DIM, "parameter 'layers.2.bias'");
    expect_blame(f, "x", BATCH * DIM, "input 'x'");
    expect_blame(f, "y", BATCH * DIM, "input 'y'");
    f->options.optimizer.lr = 1e30; /* finite parameters, too large for the first product of two */
    expect_blame(f, NULL, 0, "linear 'layers.1'");
    f->options.optimizer.lr = 1;
    f->options.pipeline.devices = 2;
    f->options.pipeline.placement = "even";
    expect_blame(f, "layers.2.weight", DIM * DIM, "parameter 'layers.2.weight'");
    expect_blame(f, "layers.0.weight", DIM * DIM, "what device 0 sends ('layers.1')");
}

/* The forward pass that is run once more leaves everything as it was: an update by errors of 2^70,
 * whose squares are infinite, and a learning rate of 2^-70 has the bits of one by 2^50 and 2^-50. */
static void looking_for_it_changes_nothing(void **state)
{
    fixture *f = *state;
    float *params[2] = {malloc(PARAMS * sizeof(float)), malloc(PARAMS * sizeof(float))};
    assert_true(params[0] && params[1]);
    for (int k = 0; k < 2; k++) {
        ech_trainer *trainer = create(f);
        write_batch(trainer, BATCH);
        const float huge = k ? 0x1p70f : 0x1p50f;
        float *y = malloc(BATCH * DIM * sizeof *y);
        assert_non_null(y);
        for (int i = 0; i < BATCH * DIM; i++)
            y[i] = huge;
        assert_int_equal(ech_trainer_write(trainer, "y", y, BATCH * DIM * sizeof *y), ECH_OK);
        ech_trainer_set_lr(trainer, 1 / (double)huge);
        ech_step step;
        assert_int_equal(ech_trainer_step(trainer, &step), ECH_OK);
        assert_int_equal(isfinite(step.loss) != 0, k == 0);
        read_params(trainer, params[k]);
        ech_trainer_destroy(trainer);
        free(y);
    }
    assert_memory_equal(params[0], params[1], PARAMS * sizeof(float));
    free(params[0]);
    free(params[1]);
}

static void test_sizes_of_options(void **state)
{
    fixture *f = *state;
    ech_trainer *trainer;
    ech_int8 *net;
    f->options.size = 0;
    assert_int_equal(ech_trainer_create(f->ctx, f->graph, f->loss, &f->options, &trainer),
                     ECH_E_INVALID);
    assert_says(f, "start from ech_train_defaults()");
    f->options.size = sizeof f->options + 1;
    assert_int_equal(ech_trainer_create(f->ctx, f->graph, f->loss, &f->options, &trainer),
                     ECH_E_INVALID);
    assert_says(f, "compiled for a newer one");
    /* A program that does not know the last member gets its default. */
    f->options.size = offsetof(ech_train_options, pipeline);
    f->options.pipeline.devices = -5;
    trainer = create(f);
    ech_int8_options o = ech_int8_defaults();
    o.size = 0;
    assert_int_equal(ech_int8_create(trainer, f->loss, NULL, 0, &o, &net), ECH_E_INVALID);
    assert_says(f, "start from ech_int8_defaults()");
    ech_trainer_destroy(trainer);
}

static void test_layers(void **state)
{
    fixture *f = *state;
    ech_layer layer;
    assert_true(ech_device_count() >= 1);
    for (int devices = 0; devices <= 2; devices += 2) {
        f->options.pipeline.devices = devices;
        ech_trainer *trainer = create(f);
        assert_int_equal(ech_trainer_layer_count(trainer), DEPTH);
        for (int i = 0; i < DEPTH; i++) {
            char name[32];
            snprintf(name, sizeof name, "layers.%d", i);
            assert_int_equal(ech_trainer_layer(trainer, i, &layer), ECH_OK);
            assert_string_equal(layer.name, name);
            assert_int_equal(layer.device, i * devices / DEPTH);
            assert_int_equal(layer.params, DIM * DIM + DIM);
        }
        assert_int_equal(ech_trainer_layer(trainer, DEPTH, &layer), ECH_E_INVALID);
        assert_null(layer.name);
        assert_int_equal(ech_trainer_layer(trainer, -1, &layer), ECH_E_INVALID);
        ech_trainer_destroy(trainer);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_sizes_of_options),
        TEST(test_layers),
        TEST(the_same_seed_gives_the_same_bits),
        TEST(the_hash_is_of_the_parameters),
        TEST(a_learning_rate_of_zero_changes_nothing),
        TEST(planned_memory_is_what_it_takes),
        TEST(a_limit_says_what_would_fit),
        TEST(a_limit_below_one_sample_says_so),
        TEST(a_tight_limit_does_not_stop_tuning),
        TEST(wrong_names_and_sizes_are_named),
        TEST(labels_out_of_range_are_named),
        TEST(wrong_options_are_named),
        TEST(delay_comes_before_the_backward_pass),
        TEST(delay_changes_no_bit),
        TEST(images_are_the_same_in_every_plan),
        TEST(the_first_that_is_not_finite_is_named),
        TEST(looking_for_it_changes_nothing),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
