/* What a run keeps of its steps is bounded, exact where the steps are few and close where they are many. */
#include "train/run.h"

#include "support/cmocka_first.h"
#include <math.h>
#include <stdlib.h>

/* ---- memory ---- */

typedef struct counter {
    size_t now, most;
} counter;

static void *count_alloc(void *user, size_t bytes, size_t align)
{
    counter *c = user;
    void *memory = NULL;
    c->now += bytes;
    c->most = c->now > c->most ? c->now : c->most;
    return posix_memalign(&memory, align < sizeof(void *) ? sizeof(void *) : align, bytes + 1)
               ? NULL
               : memory;
}

static void count_free(void *user, void *ptr, size_t bytes)
{
    counter *c = user;
    c->now -= ptr ? bytes : 0;
    free(ptr);
}

/* Bytes that the descriptions of a run take, its steps among them. */
static size_t bytes_of(ech__model_kind model, int64_t steps)
{
    counter c = {0};
    ech_ctx *ctx;
    ech__run *run;
    ech__run_config config = ech__run_defaults();
    config.model = (ech__model_options){.kind = model, .dim = 4, .depth = 1};
    config.limit = model == ECH__MODEL_LINEAR ? 0 : 2;
    config.train.batch = 2; /* with a limit of 2 each step is an epoch */
    config.train.threads = 1;
    config.train.tune = false;
    config.steps = steps;
    const ech_ctx_options options = {.alloc = {count_alloc, count_free, &c}};
    assert_int_equal(ech_ctx_create(&options, &ctx), ECH_OK);
    if (ech__run_create(ctx, &config, &run) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    ech__run_destroy(run);
    assert_true(ech_ctx_error(ctx)[0] == 0);
    ech_ctx_destroy(ctx);
    return c.most;
}

static void memory_does_not_grow_with_the_steps(void **state)
{
    (void)state;
    const ech__model_kind models[] = {ECH__MODEL_LINEAR, ECH__MODEL_LENET};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        const size_t few = bytes_of(models[m], 1000), many = bytes_of(models[m], 1000000),
                     most = bytes_of(models[m], 100000000);
        assert_true(few < many);
        assert_int_equal(many, most);
        assert_true(most < few + (64 << 20));
    }
}

static void more_steps_are_refused(void **state)
{
    (void)state;
    ech_ctx *ctx;
    ech__run *run;
    ech__run_config config = ech__run_defaults();
    config.steps = 100000001;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_true(ech__run_create(ctx, &config, &run) < 0);
    assert_string_equal(ech_ctx_error(ctx), "100000001 steps: must be from 1 to 100000000");
    ech_ctx_destroy(ctx);
}

/* ---- figures ---- */

/* Times from 1 to 2 in an order without a rhythm; step 1 takes longest, step 2 is the shortest. */
static ech__run_step step_of(int64_t step)
{
    double time = 1 + fmod((double)step * 0.6180339887498949, 1);
    time = step == 1 ? 5 : step == 2 ? 0.5 : time;
    return (ech__run_step){
        .step = step,
        .kernels_s = time / 2,
        .result = {.loss = 1 / (double)step, .time_s = time, .forward_s = time / 4}};
}

static double forward_of(const ech__run_step *step)
{
    return step->result.forward_s;
}

static ech__history history_of(ech_ctx *ctx, int64_t steps)
{
    ech__history h;
    assert_int_equal(ech__history_init(ctx, &h, 0, steps), ECH_OK);
    for (int64_t i = 1; i <= steps; i++) {
        const ech__run_step step = step_of(i);
        ech__history_add(&h, &step, true);
    }
    return h;
}

static void figures_are_right(ech_ctx *ctx, int64_t steps, double tolerance)
{
    ech__history h = history_of(ctx, steps);
    double *all = malloc((size_t)steps * sizeof *all),
           *samples = malloc((size_t)steps * sizeof *all);
    assert_non_null(all);
    assert_non_null(samples);
    double sum = 0;
    for (int64_t i = 0; i < steps; i++)
        sum += all[i] = step_of(i + 1).result.time_s;
    const ech__stats want = ech__stats_of(all, (size_t)steps);
    const ech__stats got = ech__history_times(&h, samples);
    const double forward = ech__history_median(&h, forward_of, samples);
    assert_int_equal(h.timed.seen, steps);
    assert_true(fabs(got.median - want.median) <= tolerance);
    assert_true(fabs(got.p95 - want.p95) <= tolerance);
    assert_true(fabs(forward - want.median / 4) <= tolerance);
    assert_true(fabs(got.mean - want.mean) <= (tolerance > 0 ? 1e-9 : 0));
    assert_true(fabs(got.std - want.std) <= (tolerance > 0 ? 1e-9 : 0));
    assert_true(got.min == want.min && got.max == want.max);
    assert_true(h.time_s == sum && h.kernels_s == sum / 2);
    free(samples);
    free(all);
    ech__history_fini(&h);
}

/* Bit for bit while all steps are kept; then quantiles within a few standard errors of 50,000 samples or more. */
static void figures_of_few_and_of_many_steps(void **state)
{
    (void)state;
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    figures_are_right(ctx, 1, 0);
    figures_are_right(ctx, 777, 0);
    figures_are_right(ctx, ECH__HISTORY_STEPS, 0);
    figures_are_right(ctx, ECH__HISTORY_STEPS + 1, 0.01);
    figures_are_right(ctx, 5 * ECH__HISTORY_STEPS + 3, 0.01);
    ech_ctx_destroy(ctx);
}

/* The hash is of every loss, also of those that are not kept. */
static void losses_are_all_hashed(void **state)
{
    (void)state;
    const int64_t steps = ECH__HISTORY_STEPS + 5;
    ech_ctx *ctx;
    ech__sha256 sha;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    ech__history h = history_of(ctx, steps);
    ech__sha256_init(&sha);
    for (int64_t i = 1; i <= steps; i++) {
        const double loss = step_of(i).result.loss;
        ech__sha256_update(&sha, &loss, sizeof loss);
    }
    const ech__sha256_text want = ech__sha256_final(&sha), got = ech__sha256_final(&h.losses);
    assert_string_equal(got.s, want.s);
    ech__history_fini(&h);
    ech_ctx_destroy(ctx);
}

/* The table of steps has the first and the last, and others evenly between them. */
static void rows_of_the_table(void **state)
{
    (void)state;
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    ech__history three = history_of(ctx, 3), many = history_of(ctx, 100);
    assert_int_equal(three.nrows, 3);
    assert_int_equal(many.nrows, ECH__HISTORY_ROWS);
    for (int i = 0; i < 3; i++)
        assert_int_equal(three.rows[i].step, i + 1);
    for (int i = 0; i < ECH__HISTORY_ROWS; i++)
        assert_int_equal(many.rows[i].step, 1 + 11 * i);
    ech__history_fini(&many);
    ech__history_fini(&three);
    ech_ctx_destroy(ctx);
}

/* Every step is broken and has a scale of its own: the lists end, the counts do not. */
static void events_are_bounded(void **state)
{
    (void)state;
    ech_ctx *ctx;
    ech__stability s = {.steps = 0};
    ech__arena arena;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    ech__arena_init(&arena, ctx->alloc);
    assert_int_equal(ech__stability_init(&s, ctx, &arena), ECH_OK);
    for (int64_t i = 1; i <= ECH__STABILITY_EVENTS + 7; i++) {
        const ech__run_step step = {.step = i, .result = {.scale = (double)i, .skipped = true}};
        ech__stability_add(&s, NULL, &step);
    }
    assert_int_equal(s.broken, ECH__STABILITY_EVENTS + 7);
    assert_int_equal(s.nchanges, ECH__STABILITY_EVENTS + 7);
    assert_int_equal(s.events[ECH__STABILITY_EVENTS - 1], ECH__STABILITY_EVENTS);
    assert_int_equal(s.changes[ECH__STABILITY_EVENTS - 1].step, ECH__STABILITY_EVENTS);
    assert_true(s.least == 1 && s.most == ECH__STABILITY_EVENTS + 7);
    ech__arena_fini(&arena);
    ech_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_does_not_grow_with_the_steps),
        cmocka_unit_test(more_steps_are_refused),
        cmocka_unit_test(figures_of_few_and_of_many_steps),
        cmocka_unit_test(losses_are_all_hashed),
        cmocka_unit_test(rows_of_the_table),
        cmocka_unit_test(events_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
