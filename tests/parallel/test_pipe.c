/* Layers on several devices: the bits of one device, micro-batches that add up to it, memory as planned, and failures. */
#include "parallel/pipe/pipe.h"
#include "models/models.h"
#include "support/cmocka_first.h"
#include "support/golden.h"
#include "support/kind.h"
#include "train/strategy/pipe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 24, DEPTH = 6, MAX_BATCH = 16, IMAGE = 3 * 32 * 32, STEPS = 3 };

typedef struct fixture {
    ech_ctx *ctx;
    ech_train_options options;
    ech_graph *graph;
    ech__model model;
    bool images;
    float *x, *y; /* [MAX_BATCH, IMAGE] */
    int32_t labels[MAX_BATCH];
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(ech_ctx_create(NULL, &f->ctx), ECH_OK);
    f->x = malloc(MAX_BATCH * IMAGE * sizeof *f->x);
    f->y = malloc(MAX_BATCH * IMAGE * sizeof *f->y);
    assert_true(f->x && f->y);
    golden_fill("x", 1, f->x, (int64_t)MAX_BATCH * IMAGE);
    golden_fill("y", 1, f->y, (int64_t)MAX_BATCH * IMAGE);
    for (int n = 0; n < MAX_BATCH; n++)
        f->labels[n] = n * 7 % 10;
    f->options = ech_train_defaults();
    f->options.threads = 1;
    f->options.tune = false;
    f->options.optimizer.lr = 0.05;
    f->options.optimizer.momentum = 0.9;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ech_graph_destroy(f->graph);
    ech_ctx_destroy(f->ctx);
    free(f->x);
    free(f->y);
    free(f);
    return 0;
}

static void build(fixture *f, ech__model_kind kind)
{
    ech_graph_destroy(f->graph);
    f->graph = NULL;
    assert_int_equal(ech_graph_create(f->ctx, &f->graph), ECH_OK);
    assert_int_equal(ech__model_build(f->graph, &(ech__model_options){kind, DIM, DEPTH}, &f->model),
                     ECH_OK);
    f->images = ech__model_takes_images(kind);
}

static ech_trainer *create(fixture *f, int devices, int micros, int64_t batch)
{
    ech_trainer *trainer;
    f->options.pipeline.devices = devices;
    f->options.pipeline.micro_batches = micros;
    f->options.batch = batch;
    if (ech_trainer_create(f->ctx, f->graph, f->model.loss, &f->options, &trainer) < 0)
        fail_msg("%s", ech_ctx_error(f->ctx));
    return trainer;
}

static void good(fixture *f, ech_status status)
{
    if (status < 0)
        fail_msg("%s", ech_ctx_error(f->ctx));
}

static void write_inputs(fixture *f, ech_trainer *t, const ech__variant *v)
{
    const size_t floats = f->images ? IMAGE : DIM, rows = (size_t)v->batch;
    good(f, ech__variant_write(t, v, "x", f->x, rows * floats * sizeof *f->x));
    if (f->images)
        good(f, ech__variant_write(t, v, "labels", f->labels, rows * sizeof *f->labels));
    else
        good(f, ech__variant_write(t, v, "y", f->y, rows * floats * sizeof *f->y));
}

/* One step on the first samples. */
static ech_step step(fixture *f, ech_trainer *t, int64_t batch, double *correct)
{
    const ech__micro all = {.index = 0, .count = 1, .weight = 1, .share = 1};
    const ech__variant *v;
    ech_step out;
    good(f, ech__trainer_variant(t, batch, &all, &v));
    write_inputs(f, t, v);
    good(f, ech__variant_step(t, v, &all, &out));
    *correct = 0;
    if (f->images)
        good(f, ech__variant_scalar(t, v, f->model.correct, correct));
    return out;
}

/* ---- the numbers ---- */

static void same_bits(fixture *f, int devices, const int64_t *batches)
{
    ech_trainer *t = create(f, devices, 1, batches[0]), *one = create(f, 0, 0, batches[0]);
    char ours[65], theirs[65];
    for (int s = 0; s < STEPS; s++) {
        double right, expected;
        const ech_step a = step(f, t, batches[s], &right), b = step(f, one, batches[s], &expected);
        if (a.loss != b.loss)
            fail_msg("step %d on %d devices: loss %.17g, not %.17g", s, devices, a.loss, b.loss);
        assert_true(right == expected);
        good(f, ech__trainer_hash(t, ours));
        good(f, ech__trainer_hash(one, theirs));
        assert_string_equal(ours, theirs);
    }
    assert_int_equal(ech__trainer_param_count(t), ech__trainer_param_count(one));
    ech_trainer_destroy(t);
    ech_trainer_destroy(one);
}

static void devices_give_the_bits_of_one(void **state)
{
    fixture *f = *state;
    static const int64_t batches[][STEPS] = {{8, 8, 8}, {13, 5, 13}};
    static const ech__model_kind kinds[] = {ECH__MODEL_LINEAR, ECH__MODEL_LENET,
                                            ECH__MODEL_RESNET8};
    for (size_t k = 0; k < 3; k++) {
        build(f, kinds[k]);
        for (int devices = 1; devices <= 5; devices += devices < 3 ? 1 : 2)
            same_bits(f, devices, batches[k != 2]);
    }
}

static void resnet18_does_too(void **state)
{
    if (!on_cpu()) /* minutes on the reference device, and no other operators than ResNet-8 */
        skip();
    fixture *f = *state;
    build(f, ECH__MODEL_RESNET18);
    same_bits(f, 3, (const int64_t[STEPS]){4, 4, 4});
    f->options.recompute = false;
    same_bits(f, 2, (const int64_t[STEPS]){4, 4, 4});
}

static void so_do_timed_kernels_and_other_rules(void **state)
{
    fixture *f = *state;
    f->options.tuning_file = ""; /* in memory only: each training times for itself */
    f->options.optimizer.kind = ECH_OPTIMIZER_ADAMW;
    f->options.optimizer.momentum = 0;
    f->options.optimizer.weight_decay = 0.01;
    build(f, ECH__MODEL_LENET);
    same_bits(f, 2, (const int64_t[STEPS]){8, 8, 8});
    f->options.pipeline.placement = "0,1,0,1,1";
    same_bits(f, 2, (const int64_t[STEPS]){8, 8, 8});
    f->options.tune = true;
    f->options.pipeline.placement = "balanced";
    ech_trainer *t = create(f, 2, 1, 8);
    double correct;
    assert_true(isfinite(step(f, t, 8, &correct).loss));
    ech_trainer_destroy(t);
}

/* All parameters in canonical order. */
static float *read_all(fixture *f, ech_trainer *t, size_t *count)
{
    const ech_graph *g = t->graph;
    float *all = malloc((size_t)ech__trainer_param_count(t) * sizeof *all);
    assert_non_null(all);
    *count = 0;
    for (size_t p = 0; p < g->nvalues; p++) {
        int64_t elems = 0;
        if (g->values[p].kind != ECH__VALUE_PARAM)
            continue;
        ech__shape_elems(&g->values[p].type.shape, &elems);
        good(f, ech_trainer_read(t, g->values[p].name, all + *count, (size_t)elems * sizeof *all));
        *count += (size_t)elems;
    }
    return all;
}

static void near(fixture *f, int devices, int micros, const int64_t *batches)
{
    ech_trainer *t = create(f, devices, micros, batches[0]), *one = create(f, 0, 0, batches[0]);
    for (int s = 0; s < STEPS; s++) {
        double right, expected;
        const ech_step a = step(f, t, batches[s], &right), b = step(f, one, batches[s], &expected);
        if (fabs(a.loss - b.loss) > 1e-5 * fabs(b.loss))
            fail_msg("step %d, %d devices, %d micro-batches: loss %.9g, not %.9g", s, devices,
                     micros, a.loss, b.loss);
        assert_true(right == expected);
    }
    size_t count, other;
    float *ours = read_all(f, t, &count), *theirs = read_all(f, one, &other);
    double apart = 0, size = 0;
    assert_int_equal(count, other);
    for (size_t i = 0; i < count; i++) {
        const double d = (double)ours[i] - (double)theirs[i];
        apart += d * d;
        size += (double)theirs[i] * (double)theirs[i];
    }
    if (!(sqrt(apart / size) < 1e-5))
        fail_msg("%d devices, %d micro-batches: parameters are %g apart", devices, micros,
                 sqrt(apart / size));
    free(ours);
    free(theirs);
    ech_trainer_destroy(t);
    ech_trainer_destroy(one);
}

/* Also a rest that does not divide evenly, and one with fewer samples than micro-batches. */
static void micro_batches_add_up_to_the_batch(void **state)
{
    fixture *f = *state;
    for (int order = 0; order <= ECH_PIPELINE_ONE_F_ONE_B; order++) {
        f->options.pipeline.schedule = (ech_pipeline)order;
        const int last = on_cpu() ? ECH__MODEL_LENET : ECH__MODEL_LINEAR;
        for (int kind = ECH__MODEL_LINEAR; kind <= last; kind++) {
            build(f, (ech__model_kind)kind);
            near(f, 1, 4, (const int64_t[STEPS]){16, 16, 16});
            near(f, 2, 8, (const int64_t[STEPS]){16, 11, 3});
            near(f, 3, 2, (const int64_t[STEPS]){16, 16, 7});
            near(f, 5, 16, (const int64_t[STEPS]){16, 5, 16});
        }
    }
}

static void every_run_gives_the_same_bits(void **state)
{
    fixture *f = *state;
    build(f, ECH__MODEL_RESNET8);
    char first[65], again[65];
    for (int order = 0; order <= ECH_PIPELINE_ONE_F_ONE_B; order++) {
        for (int run = 0; run < 2; run++) {
            f->options.pipeline.schedule = (ech_pipeline)order;
            ech_trainer *t = create(f, 3, 4, 8);
            double correct;
            for (int s = 0; s < STEPS; s++)
                step(f, t, 8, &correct);
            good(f, ech__trainer_hash(t, order || run ? again : first));
            if (order || run) /* and both orders add up alike */
                assert_string_equal(first, again);
            ech_trainer_destroy(t);
        }
    }
}

static void evaluation_goes_through_the_devices(void **state)
{
    fixture *f = *state;
    build(f, ECH__MODEL_RESNET8);
    ech_trainer *t = create(f, 3, 1, 10), *one = create(f, 0, 0, 10);
    double correct, a, b;
    step(f, t, 10, &correct);
    step(f, one, 10, &correct);
    good(f, ech_trainer_evaluate(t, f->model.loss, &a));
    good(f, ech_trainer_evaluate(one, f->model.loss, &b));
    assert_true(a == b);
    good(f, ech_trainer_evaluate(t, f->model.correct, &a));
    good(f, ech_trainer_evaluate(one, f->model.correct, &b));
    assert_true(a == b);
    const ech_step next = step(f, t, 10, &correct), expected = step(f, one, 10, &correct);
    assert_true(next.loss == expected.loss);
    ech_trainer_destroy(t);
    /* More micro-batches than a device has memory for at a time. */
    t = create(f, 2, 5, 10);
    good(f, ech_trainer_evaluate(one, f->model.loss, &b));
    ech_trainer_destroy(one);
    one = create(f, 0, 0, 10);
    write_inputs(f, t, &t->variants[0]);
    write_inputs(f, one, &one->variants[0]);
    good(f, ech_trainer_evaluate(t, f->model.loss, &a));
    good(f, ech_trainer_evaluate(one, f->model.loss, &b));
    assert_true(fabs(a - b) <= 1e-5 * fabs(b));
    ech_trainer_destroy(t);
    ech_trainer_destroy(one);
}

static void parameters_are_read_and_written_by_name(void **state)
{
    fixture *f = *state;
    build(f, ECH__MODEL_LINEAR);
    ech_trainer *t = create(f, 3, 2, 4);
    float bias[DIM], back[DIM], x[4 * DIM];
    for (int i = 0; i < DIM; i++)
        bias[i] = (float)i;
    for (int k = 0; k < DEPTH; k++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%d.bias", k);
        bias[0] = (float)k;
        good(f, ech_trainer_write(t, name, bias, sizeof bias));
        good(f, ech_trainer_read(t, name, back, sizeof back));
        assert_memory_equal(bias, back, sizeof bias);
    }
    good(f, ech_trainer_write(t, "x", f->x, sizeof x));
    good(f, ech_trainer_read(t, "x", x, sizeof x));
    assert_memory_equal(x, f->x, sizeof x);
    assert_int_equal(ech_trainer_write(t, "x", f->x, 4), ECH_E_INVALID);
    assert_int_equal(ech_trainer_write(t, "z", f->x, 4), ECH_E_INVALID);
    assert_int_equal(ech_trainer_write(t, "layers.0.bias", bias, 4), ECH_E_INVALID);
    ech_trainer_destroy(t);
}

/* ---- the figures ---- */

static void memory_is_what_was_planned_for_each(void **state)
{
    fixture *f = *state;
    static const ech__model_kind kinds[] = {ECH__MODEL_LINEAR, ECH__MODEL_RESNET8};
    for (int k = 0; k < 2; k++) {
        build(f, kinds[k]);
        for (int order = 0; order <= ECH_PIPELINE_ONE_F_ONE_B; order++) {
            f->options.pipeline.schedule = (ech_pipeline)order;
            ech_trainer *t = create(f, 3, 4, 8);
            double correct, loss;
            for (int s = 0; s < 2; s++)
                step(f, t, s ? 5 : 8, &correct);
            step(f, t, 8, &correct);
            good(f, ech_trainer_evaluate(t, f->model.loss, &loss));
            for (int d = 0; d < 3; d++) {
                ech_device_stats s;
                good(f, ech_trainer_device_stats(t, d, &s));
                assert_int_equal(s.memory, ech__pipe_planned(ech__trainer_pipe(t), d));
                assert_int_equal(s.memory,
                                 s.weights + s.gradients + s.optimizer + s.inputs + s.activations);
                assert_true(s.busy_s > 0);
                /* GPipe holds all micro-batches, 1F1B as many as devices come from here on. */
                assert_int_equal(ech__pipe_stage(ech__trainer_pipe(t), d)->slots,
                                 order == ECH_PIPELINE_GPIPE ? 4 : 3 - d);
            }
            ech_trainer_destroy(t);
        }
    }
}

/* Parameters, gradients and states are divided; activations are each device's own. */
static void even_devices_have_their_share(void **state)
{
    fixture *f = *state;
    build(f, ECH__MODEL_LINEAR);
    ech_trainer *t = create(f, 3, 1, 4), *one = create(f, 0, 0, 4);
    ech_device_stats whole, s;
    good(f, ech_trainer_device_stats(one, 0, &whole));
    const double share = (double)(whole.weights + whole.gradients + whole.optimizer) / 3;
    for (int d = 0; d < 3; d++) {
        good(f, ech_trainer_device_stats(t, d, &s));
        assert_true((double)(s.memory - s.inputs - s.activations) <= 1.05 * share);
        assert_true(s.activations < whole.activations);
    }
    assert_int_equal(ech_trainer_device_stats(t, 3, &s), ECH_E_INVALID);
    assert_true(ech_trainer_peak_memory(t) == ech_trainer_planned_memory(t));
    ech_trainer_destroy(t);
    ech_trainer_destroy(one);
}

static void bytes_are_those_that_cross(void **state)
{
    fixture *f = *state;
    build(f, ECH__MODEL_LINEAR);
    for (int micros = 1; micros <= 4; micros += 3) {
        ech_trainer *t = create(f, 3, micros, 8);
        double correct;
        const int64_t all = 8 * DIM * 4;
        for (int s = 0; s < 2; s++) /* it counts one step, not all */
            step(f, t, 8, &correct);
        for (int d = 0; d < 3; d++) {
            ech_device_stats s;
            good(f, ech_trainer_device_stats(t, d, &s));
            assert_int_equal(s.bytes_in, d == 1 ? 2 * all : all);
            assert_int_equal(s.bytes_out, s.bytes_in);
            assert_int_equal(ech__pipe_stage(ech__trainer_pipe(t), d)->work.moves_in,
                             micros * (d == 1 ? 2 : 1));
        }
        int moves;
        assert_int_equal(ech__pipe_input_bytes(ech__trainer_pipe(t), &moves), 2 * all);
        assert_int_equal(moves, 2); /* x to the first, y to the last */
        ech_trainer_destroy(t);
    }
}

/* On virtual clocks: 5 devices on any machine, and a delay that takes no time. */
static void virtual_clocks_pass_the_baton(void **state)
{
    fixture *f = *state;
    build(f, ECH__MODEL_LINEAR);
    f->options.delay_ms = 1000;
    f->options.batch = 8;
    for (int micros = 1; micros <= 4; micros += 3) {
        ech__emulation links = {.cluster = ech__cluster_defaults()};
        links.cluster.inside = (ech__link){.bytes_per_s = 1e12, .latency_s = 10};
        f->options.pipeline.devices = 5;
        f->options.pipeline.micro_batches = micros;
        const ech__trainer_options o = {.train = &f->options, .emulation = &links};
        ech_trainer *t;
        double correct;
        good(f, ech__trainer_create(f->ctx, f->graph, f->model.loss, &o, &t));
        /* Kernels take no time beside links of 10 s and the idle second before each backward pass of the last device. */
        ech__stage_time stages[5];
        ech__pipe_times times;
        for (int d = 0; d < 5; d++)
            stages[d] = (ech__stage_time){.backward_s = d == 4, .send_s = 10, .send_back_s = 10};
        good(f,
             ech__pipe_simulate(f->ctx, f->options.pipeline.schedule, 5, micros, stages, &times));
        assert_true(micros > 1 || times.step_s == 8 * 10 + 1); /* there and back over 4 links */
        for (int s = 0; s < 2; s++) {
            const ech_step one = step(f, t, 8, &correct);
            const double expected = times.step_s;
            if (!(one.time_s >= expected && one.time_s < expected + 0.5))
                fail_msg("%d micro-batches: %g s, not %g", micros, one.time_s, expected);
        }
        ech_trainer_destroy(t);
    }
}

/* ---- wrong use ---- */

static void refused(fixture *f, ech_status status, const char *part)
{
    ech_trainer *t;
    assert_int_equal(ech_trainer_create(f->ctx, f->graph, f->model.loss, &f->options, &t), status);
    assert_null(t);
    if (!strstr(ech_ctx_error(f->ctx), part))
        fail_msg("\"%s\" does not say '%s'", ech_ctx_error(f->ctx), part);
}

static void what_cannot_be_spread_is_refused(void **state)
{
    fixture *f = *state;
    build(f, ECH__MODEL_LINEAR);
    f->options.batch = 8;
    f->options.pipeline.devices = -1;
    refused(f, ECH_E_INVALID, "-1 model-parallel devices");
    f->options.pipeline.devices = 65;
    refused(f, ECH_E_INVALID, "from 1 to 64");
    f->options.pipeline.devices = 7;
    refused(f, ECH_E_INVALID, "7 model-parallel devices for a model of 6 layers");
    f->options.pipeline.devices = 2;
    f->options.pipeline.micro_batches = 3;
    refused(f, ECH_E_INVALID, "a batch of 8 samples in 3 micro-batches");
    f->options.pipeline.micro_batches = 2;
    f->options.pipeline.placement = "0,1,0,1,0,1";
    refused(f, ECH_E_INVALID, "in the order of the devices");
    f->options.pipeline.placement = "0,1";
    refused(f, ECH_E_INVALID, "for 2 layers");
    f->options.pipeline.placement = NULL;
    f->options.ddp.reproducible = true;
    refused(f, ECH_E_UNSUPPORTED, "in the reproducible mode");
}

/* To the byte, and the device is named. */
static void a_device_that_lacks_memory_is_named(void **state)
{
    fixture *f = *state;
    build(f, ECH__MODEL_LENET);
    f->options.pipeline.placement = "0,1,1,1,1"; /* the second has most of the parameters */
    f->options.pipeline.schedule = ECH_PIPELINE_GPIPE;
    ech_trainer *t = create(f, 2, 4, 8);
    const int64_t first = ech__pipe_planned(ech__trainer_pipe(t), 0),
                  second = ech__pipe_planned(ech__trainer_pipe(t), 1);
    ech_trainer_destroy(t);
    const int largest = first > second ? 0 : 1;
    char name[32];
    snprintf(name, sizeof name, "device %d: needs", largest);
    f->options.device_memory = (first > second ? first : second) - 1;
    refused(f, ECH_E_LIMIT, name);
    f->options.device_memory++;
    ech_trainer_destroy(create(f, 2, 4, 8));
    f->options.device_memory = 4000;
    refused(f, ECH_E_LIMIT, "device 0: a batch of 2 needs");
}

static void a_step_that_fails_trains_nothing(void **state)
{
    fixture *f = *state;
    build(f, ECH__MODEL_LENET);
    for (int micros = 1; micros <= 3; micros += 2) {
        ech_trainer *t = create(f, 3, micros, 6);
        char before[65], after[65];
        double correct;
        ech_step out;
        step(f, t, 6, &correct);
        good(f, ech__trainer_hash(t, before));
        const int32_t bad[6] = {0, 1, 2, 3, 11, 4}, fine[6] = {0, 1, 2, 3, 4, 5};
        good(f, ech_trainer_write(t, "labels", bad, sizeof bad));
        assert_int_equal(ech_trainer_step(t, &out), ECH_E_INVALID);
        assert_non_null(strstr(ech_ctx_error(f->ctx), "device 2: cross_entropy"));
        assert_non_null(strstr(ech_ctx_error(f->ctx), "11"));
        good(f, ech__trainer_hash(t, after));
        assert_string_equal(before, after);
        good(f, ech_trainer_write(t, "labels", fine, sizeof fine));
        good(f, ech_trainer_step(t, &out));
        good(f, ech__trainer_hash(t, after));
        assert_string_not_equal(before, after);
        ech_trainer_destroy(t);
    }
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(devices_give_the_bits_of_one),
        TEST(resnet18_does_too),
        TEST(so_do_timed_kernels_and_other_rules),
        TEST(micro_batches_add_up_to_the_batch),
        TEST(every_run_gives_the_same_bits),
        TEST(evaluation_goes_through_the_devices),
        TEST(parameters_are_read_and_written_by_name),
        TEST(memory_is_what_was_planned_for_each),
        TEST(even_devices_have_their_share),
        TEST(bytes_are_those_that_cross),
        TEST(virtual_clocks_pass_the_baton),
        TEST(what_cannot_be_spread_is_refused),
        TEST(a_device_that_lacks_memory_is_named),
        TEST(a_step_that_fails_trains_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
