/* Learning rates as functions of the step: against PyTorch's schedulers, and what the scaling rule
 * and the warm-up make of batches and epochs. */
#include "support/golden.h"
#include "train/step/schedule.h"

#include <math.h>
#include <string.h>

static ech__lr_schedule_kind kind_of(const ech_json *golden)
{
    const char *name;
    assert_true(ech__json_string(ech__json_find(golden, "kind"), &name));
    for (int kind = 0; kind <= ECH__SCHEDULE_LINEAR; kind++) {
        if (!strcmp(ech__lr_schedule_name((ech__lr_schedule_kind)kind), name))
            return (ech__lr_schedule_kind)kind;
    }
    fail_msg("there is no schedule %s", name);
    return ECH__SCHEDULE_CONSTANT;
}

static void test_rates_are_pytorchs(void **state)
{
    (void)state;
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    ech_json *doc = golden_open(ctx, "schedules.json");
    assert_true(golden_count(doc) >= 8);
    for (size_t i = 0; i < golden_count(doc); i++) {
        const ech_json *c = golden_case(doc, i);
        const ech_json *rates = ech__json_find(c, "rates");
        const ech__lr_schedule s = {.kind = kind_of(c),
                                    .lr = golden_number(c, "lr"),
                                    .steps = (int64_t)golden_number(c, "steps"),
                                    .interval = (int64_t)golden_number(c, "interval"),
                                    .gamma = golden_number(c, "gamma"),
                                    .warmup = (int64_t)golden_number(c, "warmup"),
                                    .warmup_from = golden_number(c, "from")};
        assert_int_equal(ech__json_count(rates), s.steps);
        for (int64_t step = 0; step < s.steps; step++) {
            double want;
            assert_true(ech__json_real(ech__json_at(rates, (size_t)step), &want));
            const double got = ech__lr_schedule_lr(&s, step);
            if (!(fabs(got - want) <= 1e-9 * s.lr))
                fail_msg("%s: step %lld has the rate %.12g, not %.12g", golden_name(c),
                         (long long)step, got, want);
        }
    }
    ech__json_destroy(doc);
    ech_ctx_destroy(ctx);
}

static void test_the_rate_grows_with_the_batch(void **state)
{
    (void)state;
    assert_true(ech__lr_schedule_scale(0.1, 128, 128) == 0.1);
    assert_true(ech__lr_schedule_scale(0.5, 8192, 128) == 32);
    assert_true(ech__lr_schedule_scale(0.5, 64, 128) == 0.25);
}

static void test_epochs_of_a_warmup_are_steps(void **state)
{
    (void)state;
    assert_int_equal(ech__lr_schedule_warmup(0, 391), 0);
    assert_int_equal(ech__lr_schedule_warmup(5, 391), 1955);
    assert_int_equal(ech__lr_schedule_warmup(0.25, 391), 98);
    assert_int_equal(ech__lr_schedule_warmup(1e-6, 391), 1); /* asked for, so not nothing */
    assert_true(ech__lr_schedule_warmup(1e5, INT32_MAX) > 0);
}

/* "We start from a learning rate of eta and increment it by a constant amount at each iteration such that it reaches
 * k eta." */
static void test_a_warmup_goes_from_the_unscaled_rate_to_the_scaled_one(void **state)
{
    (void)state;
    ech__lr_schedule s = {.kind = ECH__SCHEDULE_CONSTANT, .lr = 3.2, .steps = 100, .warmup = 31};
    s.warmup_from = ech__lr_schedule_warmup_from(0.1, s.lr, s.warmup);
    assert_true(ech__lr_schedule_lr(&s, 0) == 0.1);
    assert_true(ech__lr_schedule_lr(&s, 31) == 3.2);
    for (int64_t step = 0; step < 31; step++)
        assert_true(fabs(ech__lr_schedule_lr(&s, step + 1) - ech__lr_schedule_lr(&s, step) - 0.1) <
                    1e-12);
}

static void test_without_scaling_it_begins_one_step_above_nothing(void **state)
{
    (void)state;
    ech__lr_schedule s = {.kind = ECH__SCHEDULE_LINEAR, .lr = 0.5, .steps = 30, .warmup = 4};
    s.warmup_from = ech__lr_schedule_warmup_from(0.5, s.lr, s.warmup);
    for (int64_t step = 0; step <= 4; step++)
        assert_true(fabs(ech__lr_schedule_lr(&s, step) - 0.1 * (double)(step + 1)) < 1e-12);
    assert_true(ech__lr_schedule_lr(&s, 29) > 0 && ech__lr_schedule_lr(&s, 30) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates_are_pytorchs),
        cmocka_unit_test(test_the_rate_grows_with_the_batch),
        cmocka_unit_test(test_epochs_of_a_warmup_are_steps),
        cmocka_unit_test(test_a_warmup_goes_from_the_unscaled_rate_to_the_scaled_one),
        cmocka_unit_test(test_without_scaling_it_begins_one_step_above_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
