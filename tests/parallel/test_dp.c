/* DataParallel: the numbers of one device with the whole batch, the same bits in every run, and figures that add up. */
#include "parallel/dp/dp.h"
#include "models/internal.h"
#include "support/cmocka_first.h"
#include "support/golden.h"
#include "train/strategy/dp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 40, DEPTH = 3, MAX_BATCH = 16, IMAGE = 3 * 32 * 32, STEPS = 4 };

typedef enum model { LINEAR, LENET, NORMED } model;

typedef struct fixture {
    ech_ctx *ctx;
    ech_train_options options;
    ech_graph *graph;
    ech_value loss, correct;
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

static void build(fixture *f, model which)
{
    ech_graph_destroy(f->graph);
    assert_int_equal(ech_graph_create(f->ctx, &f->graph), ECH_OK);
    f->correct = -1;
    if (which == LINEAR) {
        f->loss = ech__linear_stack(f->graph, DIM, DEPTH);
        return;
    }
    ech_graph *g = f->graph;
    const ech_value x = ech_input(g, "x", ECH_F32, 4, (int64_t[]){ECH_BATCH, 3, 32, 32});
    const ech_value labels = ech_input(g, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    ech_value logits;
    if (which == LENET) {
        logits = ech__lenet(g, x);
    } else {
        const ech_conv conv = {.out_channels = 8, .kernel = 3, .stride = 2, .pad = 1};
        ech_value h = ech_relu(g, ech_batchnorm2d(g, "bn", ech_conv2d(g, "conv", x, &conv)));
        logits = ech_linear(g, "fc", ech_flatten(g, ech_avgpool2d(g, h, 4, 4)), 10, true);
    }
    f->loss = ech_cross_entropy(g, logits, labels);
    f->correct = ech_count_correct(g, logits, labels);
}

static ech_trainer *create(fixture *f, int devices, int64_t batch)
{
    ech_trainer *trainer;
    f->options.dp.devices = devices;
    f->options.batch = batch;
    if (ech_trainer_create(f->ctx, f->graph, f->loss, &f->options, &trainer) < 0)
        fail_msg("%s", ech_ctx_error(f->ctx));
    return trainer;
}

static void good(fixture *f, ech_status status)
{
    if (status < 0)
        fail_msg("%s", ech_ctx_error(f->ctx));
}

/* One step on the first samples. */
static ech_step step(fixture *f, ech_trainer *t, int64_t batch, double *correct)
{
    const ech__micro all = {.index = 0, .count = 1, .weight = 1, .share = 1};
    const ech__variant *v;
    ech_step out;
    good(f, ech__trainer_variant(t, batch, &all, &v));
    const size_t floats = f->correct < 0 ? DIM : IMAGE, rows = (size_t)batch;
    good(f, ech__variant_write(t, v, "x", f->x, rows * floats * sizeof *f->x));
    if (f->correct < 0)
        good(f, ech__variant_write(t, v, "y", f->y, rows * floats * sizeof *f->y));
    else
        good(f, ech__variant_write(t, v, "labels", f->labels, rows * sizeof *f->labels));
    good(f, ech__variant_step(t, v, &all, &out));
    *correct = 0;
    if (f->correct >= 0)
        good(f, ech__variant_scalar(t, v, f->correct, correct));
    return out;
}

typedef struct values {
    float *at;
    size_t count;
} values;

/* All parameters, or all gradients, in canonical order. */
static values read_all(const ech_trainer *t, bool gradients)
{
    const ech_graph *g = t->graph;
    values out = {malloc((size_t)ech__trainer_param_count(t) * sizeof *out.at), 0};
    assert_non_null(out.at);
    for (size_t p = 0; p < g->nvalues; p++) {
        if (g->values[p].kind != ECH__VALUE_PARAM)
            continue;
        const ech_value v = gradients ? ech__graph_gradient(g, (ech_value)p) : (ech_value)p;
        const ech__layout *layout = &t->plan->places[v].layout;
        int64_t elems = 0;
        assert_true(ech__shape_elems(&layout->shape, &elems));
        assert_int_equal(ech__exec_read(t->exec, v, 0, elems, out.at + out.count), ECH_OK);
        out.count += (size_t)elems;
    }
    return out;
}

static double distance(values a, values b)
{
    double apart = 0, size = 0;
    assert_int_equal(a.count, b.count);
    for (size_t i = 0; i < a.count; i++) {
        const double d = (double)a.at[i] - (double)b.at[i];
        apart += d * d;
        size += (double)b.at[i] * (double)b.at[i];
    }
    return sqrt(apart / size);
}

static void assert_near(const ech_trainer *t, const ech_trainer *whole, bool gradients)
{
    const values a = read_all(t, gradients), b = read_all(whole, gradients);
    const double apart = distance(a, b);
    free(a.at);
    free(b.at);
    if (!(apart < 1e-5))
        fail_msg("the %s are %g apart", gradients ? "gradients" : "parameters", apart);
}

/* ---- the numbers ---- */

static void compare(fixture *f, int devices, const int64_t *batches)
{
    ech_trainer *t = create(f, devices, batches[0]), *whole = create(f, 0, batches[0]);
    for (int s = 0; s < STEPS; s++) {
        double right, expected;
        const ech_step a = step(f, t, batches[s], &right);
        const ech_step b = step(f, whole, batches[s], &expected);
        if (fabs(a.loss - b.loss) > 1e-5 * fabs(b.loss))
            fail_msg("step %d on %d devices: loss %.9g, not %.9g", s, devices, a.loss, b.loss);
        assert_true(right == expected);
        assert_near(t, whole, true);
    }
    assert_near(t, whole, false);
    ech_trainer_destroy(t);
    ech_trainer_destroy(whole);
}

static void devices_give_what_one_gives(void **state)
{
    fixture *f = *state;
    /* Even ones, uneven ones, ones that leave a device without samples, and sizes that come and go. */
    static const int64_t batches[][STEPS] = {
        {12, 12, 12, 12}, {7, 7, 7, 7}, {5, 5, 5, 5}, {13, 6, 1, 13}, {5, 4, 9, 5}};
    for (model m = LINEAR; m <= LENET; m++) {
        build(f, m);
        for (int devices = 1; devices <= 4; devices++) {
            for (size_t i = 0; i < sizeof batches / sizeof *batches; i++)
                compare(f, devices, batches[i]);
        }
    }
}

static void timed_kernels_do_too(void **state)
{
    fixture *f = *state;
    f->options.tune = true;
    f->options.tuning_file = ""; /* in memory only */
    f->options.optimizer.kind = ECH_OPTIMIZER_ADAM;
    f->options.optimizer.momentum = 0;
    f->options.optimizer.lr = 1e-4;
    build(f, LENET);
    compare(f, 3, (const int64_t[STEPS]){8, 8, 5, 8});
}

/* Batch norms, residual sums, and weights with a copy that each device refreshes. */
static void resnets_train_too(void **state)
{
    fixture *f = *state;
    ech_graph *g;
    assert_int_equal(ech_graph_create(f->ctx, &g), ECH_OK);
    f->graph = g;
    const ech_value x = ech_input(g, "x", ECH_F32, 4, (int64_t[]){ECH_BATCH, 3, 32, 32});
    const ech_value labels = ech_input(g, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    const ech_value logits = ech__resnet_of(g, x, &(ech__resnet){16, 2, 1});
    f->loss = ech_cross_entropy(g, logits, labels);
    f->correct = ech_count_correct(g, logits, labels);
    for (int recompute = 0; recompute < 2; recompute++) {
        f->options.recompute = recompute;
        /* Two copies of one half: each part has the statistics of the whole. */
        memcpy(f->x + (size_t)4 * IMAGE, f->x, (size_t)4 * IMAGE * sizeof *f->x);
        memcpy(f->labels + 4, f->labels, 4 * sizeof *f->labels);
        compare(f, 2, (const int64_t[STEPS]){8, 8, 8, 8});
    }
}

static void every_run_gives_the_same_bits(void **state)
{
    fixture *f = *state;
    build(f, LENET);
    for (int devices = 2; devices <= 4; devices++) {
        char first[65], second[65];
        for (int again = 0; again < 2; again++) {
            ech_trainer *t = create(f, devices, 13);
            double correct;
            for (int s = 0; s < STEPS; s++)
                step(f, t, 13, &correct);
            good(f, ech__trainer_hash(t, again ? second : first));
            ech_trainer_destroy(t);
        }
        assert_string_equal(first, second);
    }
}

/* Each part is normalised by itself, and the first one is what the running statistics see. */
static void running_statistics_are_those_of_the_first_part(void **state)
{
    fixture *f = *state;
    build(f, NORMED);
    ech_trainer *t = create(f, 2, 11), *part = create(f, 0, 6);
    float a[8], b[8], before[8];
    double correct;
    for (int s = 0; s < 2; s++) {
        f->options.optimizer.lr = 0;
        ech_trainer_set_lr(t, 0);
        ech_trainer_set_lr(part, 0);
        good(f, ech_trainer_read(t, "bn.running_mean", before, sizeof before));
        step(f, t, 11, &correct);
        step(f, part, 6, &correct);
        good(f, ech_trainer_read(t, "bn.running_mean", a, sizeof a));
        good(f, ech_trainer_read(part, "bn.running_mean", b, sizeof b));
        assert_memory_not_equal(a, before, sizeof a);
        assert_memory_equal(a, b, sizeof a);
        good(f, ech_trainer_read(t, "bn.running_var", a, sizeof a));
        good(f, ech_trainer_read(part, "bn.running_var", b, sizeof b));
        assert_memory_equal(a, b, sizeof a);
    }
    ech_trainer_destroy(t);
    ech_trainer_destroy(part);
}

static void evaluation_sees_what_was_trained(void **state)
{
    fixture *f = *state;
    build(f, LENET);
    ech_trainer *t = create(f, 3, 10), *whole = create(f, 0, 10);
    double correct, a, b;
    step(f, t, 10, &correct);
    step(f, whole, 10, &correct);
    good(f, ech_trainer_evaluate(t, f->loss, &a));
    good(f, ech_trainer_evaluate(whole, f->loss, &b));
    assert_true(fabs(a - b) <= 1e-5 * fabs(b));
    good(f, ech_trainer_evaluate(t, f->correct, &a));
    good(f, ech_trainer_evaluate(whole, f->correct, &b));
    assert_true(a == b);
    const ech_step next = step(f, t, 10, &correct), expected = step(f, whole, 10, &correct);
    assert_true(fabs(next.loss - expected.loss) <= 1e-5 * fabs(expected.loss));
    ech_trainer_destroy(t);
    ech_trainer_destroy(whole);
}

/* ---- the figures ---- */

static void bytes_are_those_that_must_move(void **state)
{
    fixture *f = *state;
    build(f, LINEAR);
    const int64_t params = (int64_t)DEPTH * (DIM * DIM + DIM) * 4, row = DIM * 4;
    static const int64_t parts[][4] = {{3, 3, 3, 1}, {2, 2, 1, 0}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        int64_t batch = 0, in = 0, out = 0;
        for (int d = 0; d < 4; d++)
            batch += parts[i][d];
        ech_trainer *t = create(f, 4, batch);
        double correct;
        step(f, t, batch, &correct);
        step(f, t, batch, &correct); /* it counts one step, not all */
        ech_device_stats s;
        for (int d = 3; d >= 0; d--) {
            good(f, ech_trainer_device_stats(t, d, &s));
            assert_int_equal(s.samples, parts[i][d]);
            assert_true(parts[i][d] ? s.busy_s > 0 : s.busy_s == 0);
            if (!d)
                break;
            /* In: inputs, parameters and the gradient of the output. Out: the output and all gradients. */
            const int64_t used = parts[i][d] ? params : 0;
            assert_int_equal(s.bytes_in, used + 2 * parts[i][d] * row);
            assert_int_equal(s.bytes_out, used + parts[i][d] * row);
            in += s.bytes_out;
            out += s.bytes_in;
        }
        assert_int_equal(s.bytes_in, in);
        assert_int_equal(s.bytes_out, out);
        ech_trainer_destroy(t);
    }
}

static void memory_is_what_was_planned_for_each(void **state)
{
    fixture *f = *state;
    build(f, LINEAR);
    for (int tune = 0; tune < 2; tune++) {
        f->options.tune = tune;
        f->options.tuning_file = "";
        ech_trainer *t = create(f, 3, 12);
        double correct;
        step(f, t, 12, &correct);
        ech_device_stats s[3];
        for (int d = 0; d < 3; d++) {
            good(f, ech_trainer_device_stats(t, d, &s[d]));
            assert_int_equal(s[d].memory, s[d].weights + s[d].gradients + s[d].optimizer +
                                              s[d].inputs + s[d].activations);
            assert_int_equal(s[d].weights, s[0].weights);
            assert_int_equal(s[d].gradients, s[0].gradients);
        }
        assert_int_equal(ech_trainer_planned_memory(t), ech_trainer_peak_memory(t));
        assert_int_equal(s[0].memory, ech_trainer_peak_memory(t));
        /* Only device 0 has the optimizer and the whole batch: its inputs, and what was gathered. */
        assert_int_equal(s[0].optimizer, s[0].weights);
        assert_int_equal(s[1].optimizer, 0);
        assert_true(s[0].inputs >= s[1].inputs + 3 * 12 * DIM * 4);
        assert_int_equal(s[1].memory, s[2].memory);
        assert_int_equal(ech_trainer_device_stats(t, 3, &s[0]), ECH_E_INVALID);
        assert_int_equal(ech_trainer_device_stats(t, -1, &s[0]), ECH_E_INVALID);
        ech_trainer_destroy(t);
    }
}

static void phases_make_up_the_step(void **state)
{
    fixture *f = *state;
    build(f, LENET);
    f->options.delay_ms = 5;
    ech_trainer *t = create(f, 2, 8);
    double correct;
    const ech_step s = step(f, t, 8, &correct);
    const ech__span *phases = ech__dp_phases(ech__trainer_dp(t));
    for (int p = 0; p < ECH__DP_PHASES; p++) {
        assert_true(phases[p].end_ns >= phases[p].start_ns);
        assert_true(p == 0 || phases[p].start_ns == phases[p - 1].end_ns);
        const bool all = p == ECH__DP_FORWARD || p == ECH__DP_BACKWARD;
        for (int d = 0; d < 2; d++) {
            const ech__span *own = &ech__dp_work_of(ech__trainer_dp(t), d)->phases[p];
            if (d == 0 || all)
                assert_true(own->start_ns >= phases[p].start_ns &&
                            own->end_ns <= phases[p].end_ns && own->end_ns >= own->start_ns);
            else
                assert_true(own->start_ns == 0 && own->end_ns == 0);
        }
    }
    assert_true(fabs(s.forward_s + s.backward_s + s.comm_exposed_s + s.optimizer_s + s.wait_s +
                     s.other_s - s.time_s) < 1e-9);
    assert_true(s.backward_s >= 0.005);
    assert_string_equal(ech__dp_phase_name(ECH__DP_OPTIMIZER), "optimizer");
    ech_trainer_destroy(t);
}

/* ---- wrong use ---- */

static void assert_says(const fixture *f, const char *part)
{
    if (!strstr(ech_ctx_error(f->ctx), part))
        fail_msg("\"%s\" does not say '%s'", ech_ctx_error(f->ctx), part);
}

static void refused(fixture *f, ech_status status, const char *part)
{
    ech_trainer *t;
    assert_int_equal(ech_trainer_create(f->ctx, f->graph, f->loss, &f->options, &t), status);
    assert_null(t);
    assert_says(f, part);
}

static void what_cannot_be_cut_is_refused(void **state)
{
    fixture *f = *state;
    build(f, LINEAR);
    f->options.batch = 8;
    f->options.dp.devices = -1;
    refused(f, ECH_E_INVALID, "-1 data parallel devices");
    f->options.dp.devices = 65;
    refused(f, ECH_E_INVALID, "from 1 to 64");
    f->options.dp.devices = 2;
    f->options.accum = 2;
    refused(f, ECH_E_UNSUPPORTED, "with accumulation");
    f->options.accum = 1;
    f->options.ddp.reproducible = true;
    refused(f, ECH_E_UNSUPPORTED, "in the reproducible mode");
    f->options.ddp.reproducible = false;
    f->options.device_memory = 30000; /* enough for nothing */
    refused(f, ECH_E_LIMIT, "limit");
    f->options.device_memory = 0;
    ech_trainer *t = create(f, 2, 8); /* to the byte */
    f->options.device_memory = ech_trainer_planned_memory(t) - 1;
    ech_trainer_destroy(t);
    refused(f, ECH_E_LIMIT, "for the whole batch of 8");
    f->options.device_memory++;
    ech_trainer_destroy(create(f, 2, 8));
    f->options.device_memory = 0;
    const ech_value y = ech__graph_find(f->graph, "y"), first = f->loss;
    f->loss = ech_add(f->graph, first, first);
    refused(f, ECH_E_UNSUPPORTED, "one mse or cross_entropy");
    /* A second output that only the devices have. */
    const ech_value other =
        ech_linear(f->graph, "other", ech__graph_find(f->graph, "x"), DIM, true);
    f->loss = first;
    ech_mse(f->graph, other, y);
    refused(f, ECH_E_UNSUPPORTED, "'other.weight'");
}

static void a_step_that_fails_trains_nothing(void **state)
{
    fixture *f = *state;
    build(f, LENET);
    ech_trainer *t = create(f, 2, 6);
    char before[65], after[65];
    double correct;
    ech_step out;
    step(f, t, 6, &correct);
    good(f, ech__trainer_hash(t, before));
    const int32_t bad[6] = {0, 1, 2, 3, 4, 11}, fine[6] = {0, 1, 2, 3, 4, 5};
    good(f, ech_trainer_write(t, "labels", bad, sizeof bad));
    assert_int_equal(ech_trainer_step(t, &out), ECH_E_INVALID);
    assert_says(f, "11");
    good(f, ech__trainer_hash(t, after));
    assert_string_equal(before, after);
    good(f, ech_trainer_write(t, "labels", fine, sizeof fine));
    good(f, ech_trainer_step(t, &out));
    ech_trainer_destroy(t);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(devices_give_what_one_gives),
        TEST(timed_kernels_do_too),
        TEST(resnets_train_too),
        TEST(every_run_gives_the_same_bits),
        TEST(running_statistics_are_those_of_the_first_part),
        TEST(evaluation_sees_what_was_trained),
        TEST(bytes_are_those_that_must_move),
        TEST(memory_is_what_was_planned_for_each),
        TEST(phases_make_up_the_step),
        TEST(what_cannot_be_cut_is_refused),
        TEST(a_step_that_fails_trains_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
