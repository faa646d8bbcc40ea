/* Ranks that train together: the gradient of N ranks is that of one with the whole batch, for every step of an epoch and
 * however it is cut into micro-steps; and what they end with has the same bits on every rank and in every run.
 *
 * Ranks are threads here, each with a context, a comm and a trainer of its own. With a learning rate of 0 every step has
 * the gradient at the initial parameters. */
#include "comm/comm.h"
#include "support/kind.h"
#include "support/ranks.h"
#include "train/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In f32, norm-wise, for all parameters together. */
static const double TOLERANCE = 1e-5;

enum { MOST_STEPS = 8, MOST_RANKS = 8 };

/* What the steps of one run gave on rank 0. */
typedef struct outcome {
    int steps;
    float *gradients[MOST_STEPS]; /* of all parameters one behind the other, in canonical order */
    int64_t length;
    double losses[MOST_STEPS];
    int64_t samples[MOST_STEPS];
} outcome;

typedef struct job {
    ech__run_config config;
    outcome *out;                /* NULL: gradients are not wanted */
    char sha256[MOST_RANKS][65]; /* of the parameters that each rank ended with */
    float *buffers[MOST_RANKS];  /* running statistics, where they are wanted */
    const char *wanted;          /* name of such a buffer; NULL: none */
    int64_t wanted_length;
} job;

static ech__run_config small_config(ech__model_kind model, int64_t global, int accum)
{
    ech__run_config c = ech__run_defaults();
    c.model = (ech__model_options){.kind = model, .dim = 24, .depth = 3};
    c.global_batch = global;
    c.warmup = 0;
    c.train.accum = accum;
    c.train.threads = 1;
    c.train.tune = false;
    c.train.ddp.bucket_bytes = 4096;
    c.train.seed = 5;
    return c;
}

/* ---- gradients ---- */

static int64_t param_elems(const ech_trainer *t, size_t v)
{
    int64_t elems = 0;
    ech__shape_elems(&t->plan->places[v].layout.shape, &elems);
    return elems;
}

static void keep_gradients(void *user, const ech__run *run, const ech__run_step *step)
{
    outcome *out = user;
    const ech_trainer *t = run->trainer;
    if (!out || out->steps == MOST_STEPS)
        return;
    out->length = ech__trainer_param_count(t);
    float *at = malloc((size_t)out->length * sizeof *at);
    if (!at)
        abort();
    out->losses[out->steps] = step->result.loss;
    out->samples[out->steps] = step->samples;
    out->gradients[out->steps++] = at;
    for (size_t v = 0; v < t->graph->nvalues; v++) {
        if (t->graph->values[v].kind != ECH__VALUE_PARAM)
            continue;
        const ech_value gradient = ech__graph_gradient(t->graph, (ech_value)v);
        const int64_t elems = param_elems(t, v);
        if (ech__exec_read(t->exec, gradient, 0, elems, at) < 0)
            abort();
        at += elems;
    }
}

static void outcome_destroy(outcome *o)
{
    for (int i = 0; i < o->steps; i++)
        free(o->gradients[i]);
}

/* ---- runs ---- */

static void train(ech__comm *comm, void *user)
{
    job *j = user;
    ech_group group = {comm, false};
    ech__run_config c = j->config;
    ech__run *run;
    c.train.ddp.group = &group;
    const ech__run_events events = {.on_step = j->out ? keep_gradients : NULL, .user = j->out};
    RANK_OK(ech__run_create(comm->ctx, &c, &run));
    RANK_OK(ech__run_steps(run, &events));
    memcpy(j->sha256[comm->rank], run->summary.params_sha256, 65);
    if (j->wanted)
        RANK_OK(ech_trainer_read(run->trainer, j->wanted, j->buffers[comm->rank],
                                 (size_t)j->wanted_length * sizeof(float)));
    ech__run_destroy(run);
}

static outcome gradients_of(const ech__run_config *config, int world)
{
    outcome out = {0};
    job j = {.config = *config, .out = &out};
    j.config.train.optimizer.lr = 0;
    j.config.train.ddp.sharded_update = false; /* the sums would be used up where they arise */
    run_ranks(RANKS_AS_THREADS, world, 60, train, &j);
    return out;
}

static double distance(const float *a, const float *b, int64_t length)
{
    double apart = 0, norm = 0;
    for (int64_t i = 0; i < length; i++) {
        apart += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    assert_true(norm > 1e-12); /* else nothing is compared */
    return sqrt(apart / norm);
}

static double expect_equal(const outcome *got, const outcome *want, const char *what)
{
    double worst = 0;
    assert_int_equal(got->steps, want->steps);
    assert_int_equal(got->length, want->length);
    for (int i = 0; i < want->steps; i++) {
        const double error = distance(got->gradients[i], want->gradients[i], want->length);
        if (!(error <= TOLERANCE))
            fail_msg("%s: the gradient of step %d is off by %g", what, i + 1, error);
        if (!(fabs(got->losses[i] - want->losses[i]) <= 1e-5 * fabs(want->losses[i])))
            fail_msg("%s: the loss of step %d is %.9g, not %.9g", what, i + 1, got->losses[i],
                     want->losses[i]);
        assert_int_equal(got->samples[i], want->samples[i]);
        worst = fmax(worst, error);
    }
    return worst;
}

/* Every world and every way to accumulate, against one rank that takes the whole batch at once. */
static void compare_worlds(ech__run_config (*config_of)(int64_t global, int accum), int64_t global)
{
    ech__run_config c = config_of(global, 1);
    outcome whole = gradients_of(&c, 1);
    double worst = 0;
    for (int world = 1; world <= 4; world++) {
        for (int accum = 1; accum <= 3; accum++) {
            char what[96];
            snprintf(what, sizeof what, "batch %lld on %d ranks with %d micro-steps",
                     (long long)global, world, accum);
            c = config_of(global, accum);
            outcome got = gradients_of(&c, world);
            worst = fmax(worst, expect_equal(&got, &whole, what));
            outcome_destroy(&got);
        }
    }
    print_message("    batch of %lld: off by %.2g at most, in %d steps\n", (long long)global, worst,
                  whole.steps);
    outcome_destroy(&whole);
}

static ech__run_config linear_config(int64_t global, int accum)
{
    ech__run_config c = small_config(ECH__MODEL_LINEAR, global, accum);
    c.steps = 2; /* the second after an update by 0 */
    return c;
}

/* 53 images: with 12 a step the last has 5, with 13 it has 1, which all but one rank go without, with 50 it has 3. */
static ech__run_config lenet_config(int64_t global, int accum)
{
    ech__run_config c = small_config(ECH__MODEL_LENET, global, accum);
    c.limit = 53;
    c.steps = (53 - 1) / global + 1;
    return c;
}

static void linear_gradients_do_not_depend_on_the_ranks(void **state)
{
    (void)state;
    compare_worlds(linear_config, 12);
    compare_worlds(linear_config, 13);
    compare_worlds(linear_config, 50);
}

static void lenet_gradients_do_not_depend_on_the_ranks(void **state)
{
    (void)state;
    compare_worlds(lenet_config, 12);
    compare_worlds(lenet_config, 13);
    compare_worlds(lenet_config, 50);
}

/* The weights of a step add up to 1 and its samples come once, so a wrong one would be seen in the test above; here it is
 * made sure that the test can see it. */
static void other_samples_give_another_gradient(void **state)
{
    (void)state;
    const ech__run_config twelve = lenet_config(12, 1), thirteen = lenet_config(13, 1);
    outcome a = gradients_of(&twelve, 1), b = gradients_of(&thirteen, 1);
    assert_true(distance(a.gradients[0], b.gradients[0], a.length) > 100 * TOLERANCE);
    outcome_destroy(&a);
    outcome_destroy(&b);
}

/* ---- bits ---- */

static void train_bits(const ech__run_config *config, int world, char out[65])
{
    job j = {.config = *config};
    run_ranks(RANKS_AS_THREADS, world, 60, train, &j);
    assert_int_equal(strlen(j.sha256[0]), 64);
    for (int rank = 1; rank < world; rank++)
        assert_string_equal(j.sha256[rank], j.sha256[0]);
    memcpy(out, j.sha256[0], 65);
}

static void equal_worlds_give_equal_bits(void **state)
{
    (void)state;
    ech__run_config configs[] = {linear_config(13, 2), lenet_config(13, 1),
                                 small_config(ECH__MODEL_RESNET8, 7, 1)};
    configs[0].steps = configs[1].steps = 8;
    configs[2].steps = 2;
    configs[2].limit = 20;
    char seen[3][2][65];
    for (int i = 0; i < 3; i++) {
        configs[i].train.optimizer.lr = 0.05;
        configs[i].train.optimizer.momentum = 0.9;
        for (int world = 2; world <= 3; world++) {
            char again[65];
            train_bits(&configs[i], world, seen[i][world - 2]);
            train_bits(&configs[i], world, again);
            assert_string_equal(again, seen[i][world - 2]);
            /* Gradients are added up element by element, whatever they travel with. */
            configs[i].train.ddp.bucket_bytes =
                configs[i].train.ddp.bucket_bytes == 1 ? 25 << 20 : 1;
            train_bits(&configs[i], world, again);
            assert_string_equal(again, seen[i][world - 2]);
            /* Whoever updates, it is by the same sums. */
            configs[i].train.ddp.sharded_update ^= true;
            train_bits(&configs[i], world, again);
            assert_string_equal(again, seen[i][world - 2]);
        }
        /* Another world rounds otherwise: what is compared is no constant. */
        assert_string_not_equal(seen[i][0], seen[i][1]);
    }
}

/* ---- buffers ---- */

enum { CHANNELS = 16 };

static void read_buffers(bool broadcast, bool sync_bn, float out[3][CHANNELS])
{
    job j = {.config = small_config(ECH__MODEL_RESNET8, 7, 1),
             .wanted = "bn1.running_var",
             .wanted_length = CHANNELS,
             .buffers = {out[0], out[1], out[2]}};
    j.config.limit = 22;
    j.config.steps = 4; /* the last has one sample for three ranks */
    j.config.train.ddp.broadcast_buffers = broadcast;
    j.config.train.ddp.sync_bn = sync_bn;
    run_ranks(RANKS_AS_THREADS, 3, 60, train, &j);
}

static void running_statistics_are_rank_0s_unless_each_keeps_its_own(void **state)
{
    (void)state;
    float shared[3][CHANNELS], own[3][CHANNELS], synced[3][CHANNELS];
    read_buffers(true, false, shared);
    read_buffers(false, false, own);
    read_buffers(false, true, synced);
    for (int rank = 1; rank < 3; rank++) {
        assert_memory_equal(shared[rank], shared[0], sizeof *shared);
        assert_memory_not_equal(own[rank], own[0], sizeof *own);
        /* Each corrects for bias by its own count first. */
        assert_true(distance(synced[rank], synced[0], CHANNELS) < 1e-6);
    }
    assert_memory_not_equal(shared[0], synced[0], sizeof *shared);
}

/* ---- a program of one's own ---- */

enum { N = 4, D = 3 };

static ech_value build_own(ech_graph *g)
{
    const ech_value x = ech_input(g, "x", ECH_F32, 2, (int64_t[]){ECH_BATCH, D});
    const ech_value y = ech_input(g, "y", ECH_F32, 2, (int64_t[]){ECH_BATCH, D});
    return ech_mse(g, ech_linear(g, "fc", x, D, true), y);
}

/* Two ranks with two micro-steps of N samples each, by the public calls; the rows are those of one batch of 4N. */
static void own_program(ech__comm *comm, void *user)
{
    float *out = user, data[D * D];
    ech_group group = {comm, false};
    ech_graph *g;
    ech_trainer *t;
    ech_train_options o = ech_train_defaults();
    const int micros = comm->world == 1 ? 1 : 2, rows = 4 * N / (comm->world * micros);
    o.batch = rows;
    o.accum = micros;
    o.ddp.group = &group;
    o.threads = 1;
    o.tune = false;
    o.optimizer.lr = 0.5;
    RANK_OK(ech_graph_create(comm->ctx, &g));
    RANK_OK(ech_trainer_create(comm->ctx, g, build_own(g), &o, &t));
    float *x = malloc((size_t)rows * D * sizeof *x);
    RANK_CHECK(x != NULL);
    for (int micro = 0; micro < micros; micro++) {
        const int first = (comm->rank * micros + micro) * rows * D;
        for (int i = 0; i < rows * D; i++)
            x[i] = (float)((first + i) * 37 % 101) / 50 - 1;
        RANK_OK(ech_trainer_write(t, "x", x, (size_t)rows * D * sizeof *x));
        RANK_OK(ech_trainer_write(t, "y", x, (size_t)rows * D * sizeof *x));
        if (micro + 1 < micros) {
            RANK_REFUSED(ech_trainer_step(t, NULL), "a step has 2 micro-steps");
            RANK_OK(ech_trainer_accumulate(t));
        }
    }
    RANK_OK(ech_trainer_step(t, NULL));
    RANK_OK(ech_trainer_read(t, "fc.weight", data, D * D * sizeof *data));
    if (comm->rank == 0)
        memcpy(out, data, D * D * sizeof *data);
    free(x);
    ech_trainer_destroy(t);
    ech_graph_destroy(g);
}

static void a_program_of_ones_own_takes_micro_steps(void **state)
{
    (void)state;
    float one[D * D], two[D * D];
    run_ranks(RANKS_AS_THREADS, 2, 20, own_program, two);
    run_ranks(RANKS_AS_THREADS, 1, 20, own_program, one);
    assert_true(distance(two, one, D * D) < 1e-6);
}

/* ---- limits and disagreement ---- */

static void too_many_buckets(ech__comm *comm, void *user)
{
    (void)user;
    ech_group group = {comm, false};
    ech__run_config c = small_config(ECH__MODEL_LINEAR, 2, 1);
    ech__run *run;
    c.model.dim = 1;
    c.model.depth = 600;
    c.train.ddp.bucket_bytes = 1;
    c.train.ddp.group = &group;
    RANK_REFUSED(ech__run_create(comm->ctx, &c, &run),
                 "1025 buckets of gradients: at most 1024 are possible; make them larger");
}

static void more_buckets_than_can_be_under_way_are_refused(void **state)
{
    (void)state;
    run_ranks(RANKS_AS_THREADS, 2, 20, too_many_buckets, NULL);
}

/* Each differs from rank 0 in one thing, which the sentence names. */
static void differ(ech__comm *comm, void *user)
{
    const char *what = user;
    ech_group group = {comm, false};
    ech__run_config c = small_config(ECH__MODEL_LINEAR, 8, 1);
    ech__run *run;
    c.train.ddp.group = &group;
    if (comm->rank == 1) {
        c.model.depth += !strcmp(what, "--depth");
        c.train.optimizer.lr += !strcmp(what, "--lr");
        c.train.seed += !strcmp(what, "--seed");
        c.steps += !strcmp(what, "--steps");
        c.train.ddp.bucket_bytes += !strcmp(what, "--bucket-mb");
        c.train.ddp.broadcast_buffers ^= !strcmp(what, "--no-broadcast-buffers");
    }
    RANK_REFUSED(ech__run_create(comm->ctx, &c, &run), what);
    RANK_CHECK(strstr(ech_ctx_error(comm->ctx), "rank 0"));
    RANK_CHECK(strstr(ech_ctx_error(comm->ctx), "rank 1"));
}

static void ranks_that_disagree_are_refused_and_named(void **state)
{
    (void)state;
    static const char *const things[] = {"--depth", "--lr",        "--seed",
                                         "--steps", "--bucket-mb", "--no-broadcast-buffers"};
    for (size_t i = 0; i < sizeof things / sizeof *things; i++)
        run_ranks(RANKS_AS_THREADS, 2, 20, differ, (void *)things[i]);
}

/* ---- a step that fails half-way ---- */

static ech_trainer *own_trainer(ech__comm *comm, ech_group *group)
{
    ech_graph *graph;
    ech_trainer *trainer;
    RANK_OK(ech_graph_create(comm->ctx, &graph));
    ech_value x = ech_input(graph, "x", ECH_F32, 2, (int64_t[]){ECH_BATCH, D});
    ech_value y = ech_input(graph, "y", ECH_F32, 2, (int64_t[]){ECH_BATCH, D});
    ech_value h = ech_linear(graph, "a", x, D, true);
    ech_value loss = ech_mse(graph, ech_linear(graph, "b", h, D, true), y);
    ech_train_options o = ech_train_defaults();
    o.batch = 4;
    o.threads = 1;
    o.tune = false;
    o.ddp.group = group;
    o.ddp.bucket_bytes = 64; /* several of them, so that one can have been used and another not */
    RANK_OK(ech_trainer_create(comm->ctx, graph, loss, &o, &trainer));
    ech_graph_destroy(graph);
    const float data[4 * D] = {1, 2, 3};
    RANK_OK(ech_trainer_write(trainer, "x", data, sizeof data));
    RANK_OK(ech_trainer_write(trainer, "y", data, sizeof data));
    return trainer;
}

/* Rank 1 does not come to the second step, in which ranks update parameters for each other. */
static void one_stays_away(ech__comm *comm, void *user)
{
    const char *path = user;
    ech_group group = {comm, false};
    ech_trainer *trainer = own_trainer(comm, &group);
    float weights[D * D];
    RANK_OK(ech_trainer_step(trainer, NULL));
    if (comm->rank == 0) {
        static const char WHY[] = "may be those of two steps and cannot be used: step 2 failed: ";
        RANK_OK(ech_trainer_save(trainer, path));
        RANK_OK(ech_trainer_read(trainer, "a.weight", weights, sizeof weights));
        RANK_REFUSED(ech_trainer_step(trainer, NULL), "rank 1");
        RANK_REFUSED(ech_trainer_save(trainer, path), WHY);
        RANK_REFUSED(ech_trainer_save(trainer, path), "rank 1");
        RANK_REFUSED(ech_trainer_read(trainer, "a.weight", weights, sizeof weights), WHY);
        RANK_REFUSED(ech_trainer_step(trainer, NULL), WHY);
        RANK_REFUSED(ech_trainer_evaluate(trainer, trainer->graph->loss, &(double){0}), WHY);
    }
    ech_trainer_destroy(trainer);
}

static void parameters_of_two_steps_are_refused(void **state)
{
    (void)state;
    if (!ech__device_shards_updates(asked_kind()))
        skip();
    char path[] = "/tmp/echelon-test-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    run_ranks(RANKS_AS_THREADS, 2, 1, one_stays_away, path);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_gradients_do_not_depend_on_the_ranks),
        cmocka_unit_test(lenet_gradients_do_not_depend_on_the_ranks),
        cmocka_unit_test(other_samples_give_another_gradient),
        cmocka_unit_test(equal_worlds_give_equal_bits),
        cmocka_unit_test(running_statistics_are_rank_0s_unless_each_keeps_its_own),
        cmocka_unit_test(a_program_of_ones_own_takes_micro_steps),
        cmocka_unit_test(more_buckets_than_can_be_under_way_are_refused),
        cmocka_unit_test(ranks_that_disagree_are_refused_and_named),
        cmocka_unit_test(parameters_of_two_steps_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
