/* Loss scaling, clipping, accumulation and gradients in bf16, from a trainer's point of view: which
 * bits stay, which steps are skipped, on one rank and on two. */
#include "comm/comm.h"
#include "models/internal.h"
#include "parallel/ddp/ddp.h"
#include "support/golden.h"
#include "support/ranks.h"
#include "train/step/params.h"
#include "train/step/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 24, DEPTH = 3, BATCH = 8, PARAMS = DEPTH * (DIM * DIM + DIM) };

static ech_train_options options(void)
{
    ech_train_options o = ech_train_defaults();
    o.batch = BATCH;
    o.threads = 1;
    o.tune = false;
    o.optimizer.lr = 0.1;
    o.ddp.bucket_bytes = 2048; /* several */
    return o;
}

static ech_trainer *create(ech_ctx *ctx, const ech_train_options *o)
{
    ech_graph *graph;
    ech_trainer *trainer = NULL;
    if (ech_graph_create(ctx, &graph) < 0)
        abort();
    const ech_value loss = ech__linear_stack(graph, DIM, DEPTH);
    if (ech_trainer_create(ctx, graph, loss, o, &trainer) < 0) {
        fprintf(stderr, "no trainer: %s\n", ech_ctx_error(ctx));
        abort(); /* cmocka's own checks work on one thread only */
    }
    ech_graph_destroy(graph);
    return trainer;
}

/* Samples with these numbers in a stream of them; one of them may be spoiled. */
static void write_samples(ech_trainer *t, int64_t first, int64_t count, float spoil)
{
    float *data = malloc((size_t)(first + count) * DIM * sizeof *data);
    if (!data)
        abort();
    const size_t bytes = (size_t)count * DIM * sizeof *data;
    golden_fill("x", 1, data, (first + count) * DIM);
    if (spoil != 0)
        data[first * DIM + 5] = spoil;
    if (ech_trainer_write(t, "x", data + first * DIM, bytes) < 0)
        abort();
    golden_fill("y", 1, data, (first + count) * DIM);
    if (ech_trainer_write(t, "y", data + first * DIM, bytes) < 0)
        abort();
    free(data);
}

/* ---- what a trainer holds ---- */

typedef struct memory {
    char *weights, *states;
    int64_t weight_bytes, state_bytes;
    int64_t step;
} memory;

static memory remember(const ech_trainer *t)
{
    memory m = {.step = t->scalars.step};
    const void *weights = ech__exec_block(t->exec, ECH__MEMORY_WEIGHTS, &m.weight_bytes);
    const void *states = ech__exec_block(t->exec, ECH__MEMORY_OPTIMIZER, &m.state_bytes);
    m.weights = malloc((size_t)m.weight_bytes + 1);
    m.states = malloc((size_t)m.state_bytes + 1);
    if (!m.weights || !m.states)
        abort();
    ech__device *device = t->device;
    if (device->memory->read(device, m.weights, weights, m.weight_bytes) < 0 ||
        (m.state_bytes && device->memory->read(device, m.states, states, m.state_bytes) < 0))
        abort();
    return m;
}

static bool is_as(const ech_trainer *t, const memory *m)
{
    memory now = remember(t);
    const bool same = now.step == m->step &&
                      !memcmp(now.weights, m->weights, (size_t)m->weight_bytes) &&
                      !memcmp(now.states, m->states, (size_t)m->state_bytes);
    free(now.weights);
    free(now.states);
    return same;
}

static void forget(memory *m)
{
    free(m->weights);
    free(m->states);
}

/* All parameters or their gradients one behind the other, in canonical order. */
static void read_all(const ech_trainer *t, bool gradients, float out[PARAMS])
{
    int64_t at = 0;
    for (size_t v = 0; v < t->graph->nvalues; v++) {
        if (t->graph->values[v].kind != ECH__VALUE_PARAM)
            continue;
        const ech_value read =
            gradients ? ech__graph_gradient(t->graph, (ech_value)v) : (ech_value)v;
        int64_t elems = 0;
        ech__shape_elems(&t->plan->places[v].layout.shape, &elems);
        if (ech__exec_read(t->exec, read, 0, elems, out + at) < 0)
            abort();
        at += elems;
    }
    if (at != PARAMS)
        abort();
}

static void read_gradients(const ech_trainer *t, float out[PARAMS])
{
    read_all(t, true, out);
}

static double norm_of(const float *a, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)a[i];
    return sqrt(sum);
}

/* Norm of a - factor b, by that of factor b. */
static double distance(const float *a, const float *b, double factor, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += ((double)a[i] - factor * (double)b[i]) * ((double)a[i] - factor * (double)b[i]);
    return sqrt(sum) / (factor * norm_of(b, n));
}

static void hash_after(ech_ctx *ctx, const ech_train_options *o, int steps, char out[65])
{
    ech_trainer *t = create(ctx, o);
    write_samples(t, 0, BATCH, 0);
    for (int i = 0; i < steps; i++)
        assert_int_equal(ech_trainer_step(t, NULL), ECH_OK);
    assert_int_equal(ech__trainer_hash(t, out), ECH_OK);
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

/* ---- scaling ---- */

/* In f32 a power of two leaves the digits alone, and is undone exactly. */
static void a_scale_is_undone_to_the_bit(void **state)
{
    static const ech_optimizer optimizers[] = {ECH_OPTIMIZER_SGD, ECH_OPTIMIZER_ADAM,
                                               ECH_OPTIMIZER_ADAMW};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        ech_train_options o = options();
        o.optimizer.kind = optimizers[i];
        o.optimizer.weight_decay = 0.01;
        o.optimizer.momentum = o.optimizer.kind == ECH_OPTIMIZER_SGD ? 0.9 : 0;
        char plain[65], scaled[65], other[65];
        hash_after(*state, &o, 5, plain);
        o.amp.loss_scale = 65536;
        hash_after(*state, &o, 5, scaled);
        assert_string_equal(plain, scaled);
        o.amp.loss_scale = 1000; /* the test can see a scale that is not undone exactly */
        hash_after(*state, &o, 5, other);
        assert_string_not_equal(plain, other);
    }
}

static void a_broken_step_is_skipped_and_the_next_is_as_if_it_had_not_been(void **state)
{
    ech_train_options o = options();
    o.optimizer.kind = ECH_OPTIMIZER_ADAM; /* whose steps are counted */
    o.amp.loss_scale = 1024;
    ech_trainer *t = create(*state, &o), *never = create(*state, &o);
    ech_step step;
    write_samples(t, 0, BATCH, 0);
    write_samples(never, 0, BATCH, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ech_trainer_step(t, &step), ECH_OK);
        assert_int_equal(ech_trainer_step(never, NULL), ECH_OK);
    }
    assert_true(!step.skipped && step.scale == 1024 && step.grad_norm > 0);
    assert_true(step.grad_max > 0 && step.grad_max <= step.grad_norm);
    memory before = remember(t);
    write_samples(t, 0, BATCH, 1e30f);
    assert_int_equal(ech_trainer_step(t, &step), ECH_OK);
    assert_true(step.skipped && step.scale == 1024 && !isfinite(step.grad_norm));
    assert_true(is_as(t, &before));
    assert_true(t->scaler.scale == 512 && t->scaler.skipped == 1);
    write_samples(t, 0, BATCH, 0);
    assert_int_equal(ech_trainer_step(t, &step), ECH_OK);
    assert_int_equal(ech_trainer_step(never, NULL), ECH_OK);
    assert_true(!step.skipped && step.scale == 512 && isfinite(step.grad_norm));
    memory after = remember(never);
    assert_true(is_as(t, &after));
    assert_false(is_as(t, &before)); /* it does train */
    forget(&before);
    forget(&after);
    ech_trainer_destroy(t);
    ech_trainer_destroy(never);
}

/* PyTorch clips without a scaler as well, and then does not look at what comes out. */
static void without_a_scaler_nothing_is_skipped(void **state)
{
    ech_train_options o = options();
    o.optimizer.clip_norm = 1;
    ech_trainer *t = create(*state, &o);
    ech_step step;
    write_samples(t, 0, BATCH, 1e30f);
    assert_int_equal(ech_trainer_step(t, &step), ECH_OK);
    assert_true(!step.skipped && step.scale == 1 && !isfinite(step.grad_norm));
    ech_trainer_destroy(t);
}

/* ---- two ranks ---- */

typedef struct verdicts {
    double scale[2], next[2];
    bool skipped[2], unchanged[2], trains[2];
    char sha256[2][65];
    ech_dtype grad_dtype;
} verdicts;

/* Rank 1 alone has a sample that breaks its gradients. */
static void break_one(ech__comm *comm, void *user)
{
    verdicts *v = user;
    const int rank = comm->rank;
    ech_group group = {comm, false};
    ech_train_options o = options();
    ech_step step;
    o.ddp.group = &group;
    o.optimizer.kind = ECH_OPTIMIZER_ADAM;
    o.amp.loss_scale = 4096;
    o.ddp.grad_dtype = v->grad_dtype;
    ech_trainer *t = create(comm->ctx, &o);
    write_samples(t, rank * BATCH, BATCH, 0);
    RANK_OK(ech_trainer_step(t, NULL));
    memory before = remember(t);
    write_samples(t, rank * BATCH, BATCH, rank == 1 ? 1e30f : 0);
    RANK_OK(ech_trainer_step(t, &step));
    v->skipped[rank] = step.skipped;
    v->scale[rank] = step.scale;
    v->unchanged[rank] = is_as(t, &before);
    write_samples(t, rank * BATCH, BATCH, 0);
    RANK_OK(ech_trainer_step(t, &step));
    v->next[rank] = step.scale;
    v->trains[rank] = !step.skipped && !is_as(t, &before);
    RANK_OK(ech__trainer_hash(t, v->sha256[rank]));
    forget(&before);
    ech_trainer_destroy(t);
}

static void what_one_rank_finds_all_skip(void **state)
{
    (void)state;
    static const ech_dtype types[] = {ECH_F32, ECH_BF16};
    for (int i = 0; i < 2; i++) {
        verdicts v = {.grad_dtype = types[i]};
        run_ranks(RANKS_AS_THREADS, 2, 20, break_one, &v);
        for (int rank = 0; rank < 2; rank++) {
            assert_true(v.skipped[rank] && v.unchanged[rank]);
            assert_true(v.scale[rank] == 4096 && v.next[rank] == 2048);
            assert_true(v.trains[rank]);
        }
        assert_string_equal(v.sha256[0], v.sha256[1]);
    }
}

/* ---- clipping ---- */

static void a_long_gradient_is_shortened_and_a_short_one_is_not(void **state)
{
    float gradient[PARAMS], before[PARAMS], after[PARAMS];
    static const double limits[] = {1e-3, 1e3};
    for (int i = 0; i < 2; i++) {
        ech_train_options o = options();
        o.optimizer.clip_norm = limits[i];
        o.amp.loss_scale = i ? 0 : 256; /* undone before it is clipped */
        o.optimizer.lr = 0.5;
        ech_trainer *t = create(*state, &o);
        ech_step step;
        read_all(t, false, before);
        write_samples(t, 0, BATCH, 0);
        assert_int_equal(ech_trainer_step(t, &step), ECH_OK);
        read_all(t, false, after);
        read_gradients(t, gradient);
        const double norm = norm_of(gradient, PARAMS) / (i ? 1 : 256);
        for (int k = 0; k < PARAMS; k++)
            after[k] = before[k] - after[k];
        const double moved = norm_of(after, PARAMS) / o.optimizer.lr;
        const double want = norm > limits[i] ? limits[i] : norm;
        assert_true(norm > 2e-3 && norm < 1e3);
        assert_true(fabs(step.grad_norm - norm) <= 1e-6 * norm);
        if (!(fabs(moved - want) <= 2e-3 * want)) /* 1e-6 beside the norm, and rounding */
            fail_msg("clipped to %g a gradient of %g moves by %g", limits[i], norm, moved);
        ech_trainer_destroy(t);
    }
}

/* ---- accumulation ---- */

/* The gradient of K micro-batches, each of which counts by weight. */
static void accumulate(ech_ctx *ctx, int K, double weight, float out[PARAMS])
{
    ech_train_options o = options();
    const int64_t rows = 24 / K;
    o.batch = rows;
    o.accum = K;
    o.optimizer.lr = 0;
    ech_trainer *t = create(ctx, &o);
    for (int i = 0; i < K; i++) {
        const ech__micro micro = {.index = i, .count = K, .weight = weight, .share = 1};
        const ech__variant *variant;
        assert_int_equal(ech__trainer_variant(t, rows, &micro, &variant), ECH_OK);
        write_samples(t, i * rows, rows, 0);
        if (variant != &t->variants[0])
            assert_int_equal(ech__variant_take_inputs(t, &t->variants[0], variant), ECH_OK);
        assert_int_equal(ech__variant_step(t, variant, &micro, NULL), ECH_OK);
    }
    read_gradients(t, out);
    ech_trainer_destroy(t);
}

static void micro_batches_have_the_gradient_of_the_whole(void **state)
{
    static const int counts[] = {2, 3, 4, 8, 24};
    float whole[PARAMS], parts[PARAMS], undivided[PARAMS];
    accumulate(*state, 1, 1, whole);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const int K = counts[i];
        accumulate(*state, K, 1.0 / K, parts);
        accumulate(*state, K, 1, undivided);
        const double error = distance(parts, whole, 1, PARAMS);
        if (!(error <= 1e-5))
            fail_msg("%d micro-batches: the gradient is off by %g", K, error);
        /* Who forgets to divide the loss has K times the gradient. */
        const double times = distance(undivided, whole, K, PARAMS);
        if (!(times <= 1e-5))
            fail_msg("%d micro-batches without division: off by %g from %d times the gradient", K,
                     times, K);
        assert_true(distance(undivided, whole, 1, PARAMS) > 0.9 * (K - 1));
    }
}

/* ---- gradients in bf16 ---- */

typedef struct exchanged {
    ech_dtype dtype;
    int accum;
    float gradient[2][PARAMS];
    int64_t bytes, planned, taken;
} exchanged;

static void exchange(ech__comm *comm, void *user)
{
    exchanged *e = user;
    ech_group group = {comm, false};
    ech_train_options o = options();
    o.ddp.group = &group;
    o.ddp.grad_dtype = e->dtype;
    o.accum = e->accum;
    o.ddp.sharded_update = false; /* the sums would be used up where they arise */
    o.optimizer.lr = 0;
    ech_trainer *t = create(comm->ctx, &o);
    for (int i = 0; i < e->accum; i++) {
        write_samples(t, (comm->rank * e->accum + i) * BATCH, BATCH, 0);
        RANK_OK(i + 1 < e->accum ? ech_trainer_accumulate(t) : ech_trainer_step(t, NULL));
    }
    read_gradients(t, e->gradient[comm->rank]);
    if (comm->rank == 0) {
        e->bytes = ech__ddp_count(t->graph).gradients;
        e->planned = ech_trainer_planned_memory(t);
        e->taken = ech_trainer_peak_memory(t);
    }
    ech_trainer_destroy(t);
}

/* Each rank's part is rounded to 8 bits, and their sum once more: 2^-8 of each number at most, together. */
static void gradients_that_travel_in_bf16_keep_8_bits(void **state)
{
    (void)state;
    for (int accum = 1; accum <= 3; accum += 2) {
        static exchanged f32, bf16;
        f32 = (exchanged){.dtype = ECH_F32, .accum = accum};
        bf16 = (exchanged){.dtype = ECH_BF16, .accum = accum};
        run_ranks(RANKS_AS_THREADS, 2, 20, exchange, &f32);
        run_ranks(RANKS_AS_THREADS, 2, 20, exchange, &bf16);
        assert_memory_equal(bf16.gradient[0], bf16.gradient[1], sizeof *bf16.gradient);
        const double off = distance(bf16.gradient[0], f32.gradient[0], 1, PARAMS);
        assert_true(off > 0x1p-12 && off < 0x1p-8);
        assert_int_equal(f32.bytes, PARAMS * 4);
        assert_int_equal(bf16.bytes, PARAMS * 2);
        assert_int_equal(bf16.planned, bf16.taken);
        assert_true(bf16.planned > f32.planned); /* what travels is counted */
    }
}

/* ---- steps in parts ---- */

static void refused(ech_ctx *ctx, ech_status status, const char *words)
{
    assert_int_equal(status, ECH_E_INVALID);
    if (!strstr(ech_ctx_error(ctx), words))
        fail_msg("it says: %s", ech_ctx_error(ctx));
}

static void a_step_in_parts_has_the_bits_of_a_whole_one(void **state)
{
    ech_ctx *ctx = *state;
    ech_train_options o = options();
    o.accum = 2;
    o.optimizer.momentum = 0.9;
    for (int scaled = 0; scaled < 2; scaled++) {
        char whole[65], parts[65];
        ech_step a, b;
        o.amp.loss_scale = scaled ? 64 : 0;
        ech_trainer *t = create(ctx, &o), *in_parts = create(ctx, &o);
        for (int step = 0; step < 3; step++) {
            for (int i = 0; i < 2; i++) {
                write_samples(t, i * BATCH, BATCH, 0);
                write_samples(in_parts, i * BATCH, BATCH, 0);
                assert_int_equal(i ? ech_trainer_step(t, &a) : ech_trainer_accumulate(t), ECH_OK);
                refused(ctx, ech_trainer_apply(in_parts, NULL), "a step has 2 micro-steps");
                assert_int_equal(ech_trainer_accumulate(in_parts), ECH_OK);
            }
            refused(ctx, ech_trainer_accumulate(in_parts), "ech_trainer_apply is next");
            refused(ctx, ech_trainer_step(in_parts, NULL), "ech_trainer_apply is next");
            assert_int_equal(ech_trainer_apply(in_parts, &b), ECH_OK);
            if (scaled)
                refused(ctx, ech_trainer_accumulate(in_parts), "ech_trainer_update_scale");
            assert_int_equal(ech_trainer_update_scale(in_parts), ECH_OK);
            if (scaled)
                refused(ctx, ech_trainer_update_scale(in_parts), "once");
            assert_true(a.loss == b.loss && a.grad_norm == b.grad_norm && a.scale == b.scale);
        }
        assert_int_equal(ech__trainer_hash(t, whole), ECH_OK);
        assert_int_equal(ech__trainer_hash(in_parts, parts), ECH_OK);
        assert_string_equal(whole, parts);
        ech_trainer_destroy(t);
        ech_trainer_destroy(in_parts);
    }
}

/* ---- what cannot be ---- */

static void nonsense_is_named(void **state)
{
    ech_ctx *ctx = *state;
    ech_graph *graph;
    ech_trainer *t;
    assert_int_equal(ech_graph_create(ctx, &graph), ECH_OK);
    const ech_value loss = ech__linear_stack(graph, DIM, 1);
    ech_train_options o = options();
    o.optimizer.clip_norm = -1;
    refused(ctx, ech_trainer_create(ctx, graph, loss, &o, &t), "a norm of -1");
    o = options();
    o.amp.loss_scale = 1e-6;
    refused(ctx, ech_trainer_create(ctx, graph, loss, &o, &t), "a loss scale of 1e-06");
    o.amp.loss_scale = NAN;
    refused(ctx, ech_trainer_create(ctx, graph, loss, &o, &t), "a loss scale of");
    o = options();
    o.ddp.grad_dtype = ECH_S8;
    refused(ctx, ech_trainer_create(ctx, graph, loss, &o, &t), "gradients exchanged in s8");
    o = options();
    o.amp.type = (ech_amp)7;
    refused(ctx, ech_trainer_create(ctx, graph, loss, &o, &t), "of kind 7");
    o = options();
    o.dp.devices = 2;
    o.optimizer.clip_norm = 1;
    assert_int_equal(ech_trainer_create(ctx, graph, loss, &o, &t), ECH_E_UNSUPPORTED);
    assert_non_null(strstr(ech_ctx_error(ctx), "with clipped gradients"));
    ech_graph_destroy(graph);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_scale_is_undone_to_the_bit),
        TEST(a_broken_step_is_skipped_and_the_next_is_as_if_it_had_not_been),
        TEST(without_a_scaler_nothing_is_skipped),
        TEST(what_one_rank_finds_all_skip),
        TEST(a_long_gradient_is_shortened_and_a_short_one_is_not),
        TEST(micro_batches_have_the_gradient_of_the_whole),
        TEST(gradients_that_travel_in_bf16_keep_8_bits),
        TEST(a_step_in_parts_has_the_bits_of_a_whole_one),
        TEST(nonsense_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
