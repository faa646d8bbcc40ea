/* The loss scale goes as PyTorch's, from tests/golden; it has a least, at which a training that cannot be saved ends. */
#include "support/golden.h"
#include "train/step/scaler.h"

#include <float.h>
#include <math.h>
#include <string.h>

static bool is_broken(const ech_json *golden, int64_t step)
{
    const ech_json *broken = ech__json_find(golden, "broken");
    for (size_t i = 0; i < ech__json_count(broken); i++) {
        int64_t at;
        assert_true(ech__json_int(ech__json_at(broken, i), &at));
        if (at == step)
            return true;
    }
    return false;
}

/* Every change of the scale, at its step, and no other. */
static void follow(ech_ctx *ctx, const ech_json *golden)
{
    const ech_json *changes = ech__json_find(golden, "changes");
    ech__scaler s = ech__scaler_start(golden_number(golden, "initial"));
    size_t next = 0;
    int64_t skipped = 0;
    for (int64_t step = 0; step <= (int64_t)golden_number(golden, "steps"); step++) {
        const double before = s.scale;
        if (step > 0)
            assert_int_equal(ech__scaler_update(ctx, &s, is_broken(golden, step)), ECH_OK);
        skipped += step > 0 && is_broken(golden, step);
        const ech_json *change = ech__json_at(changes, next);
        int64_t at = -1;
        double scale = 0;
        if (change)
            assert_true(ech__json_int(ech__json_at(change, 0), &at) &&
                        ech__json_real(ech__json_at(change, 1), &scale));
        if (at == step) {
            next++;
            if (s.scale != scale)
                fail_msg("%s: step %lld leaves a scale of %g; PyTorch has %g", golden_name(golden),
                         (long long)step, s.scale, scale);
        } else if (s.scale != before) {
            fail_msg("%s: step %lld changes the scale to %g", golden_name(golden), (long long)step,
                     s.scale);
        }
        assert_true(ech__scaler_is_sound(&s));
    }
    assert_int_equal(next, ech__json_count(changes));
    assert_true(next > 2); /* something has changed */
    assert_int_equal(s.good, (int64_t)golden_number(golden, "good"));
    assert_int_equal(s.skipped, skipped);
}

static void follows_pytorch(void **state)
{
    (void)state;
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    ech_json *doc = golden_open(ctx, "scaler.json");
    assert_true(golden_count(doc) > 0);
    for (size_t i = 0; i < golden_count(doc); i++)
        follow(ctx, golden_case(doc, i));
    ech__json_destroy(doc);
    ech_ctx_destroy(ctx);
}

static void ends_a_training_that_no_scale_helps(void **state)
{
    (void)state;
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    ech__scaler s = ech__scaler_start(4 * ECH__SCALER_LEAST);
    assert_int_equal(ech__scaler_update(ctx, &s, true), ECH_OK);
    assert_int_equal(ech__scaler_update(ctx, &s, true), ECH_OK);
    assert_true(s.scale == ECH__SCALER_LEAST);
    for (int i = 1; i < ECH__SCALER_PATIENCE; i++)
        assert_int_equal(ech__scaler_update(ctx, &s, true), ECH_OK);
    /* One good step, and its patience is as before. */
    assert_int_equal(ech__scaler_update(ctx, &s, false), ECH_OK);
    for (int i = 1; i < ECH__SCALER_PATIENCE; i++)
        assert_int_equal(ech__scaler_update(ctx, &s, true), ECH_OK);
    assert_true(s.scale == ECH__SCALER_LEAST);
    assert_int_equal(ech__scaler_update(ctx, &s, true), ECH_E_LIMIT);
    assert_non_null(strstr(ech_ctx_error(ctx), "16 consecutive steps"));
    assert_non_null(strstr(ech_ctx_error(ctx), "6.10352e-05"));
    assert_int_equal(s.skipped, 2 + 2 * ECH__SCALER_PATIENCE - 1);
    ech_ctx_destroy(ctx);
}

static void is_1_for_ever_where_it_is_off(void **state)
{
    (void)state;
    ech__scaler s = ech__scaler_start(0);
    for (int i = 0; i < 3 * ECH__SCALER_INTERVAL; i++)
        assert_int_equal(ech__scaler_update(NULL, &s, i % 2), ECH_OK);
    assert_true(!s.on && s.scale == 1 && s.skipped == 0);
}

static void knows_what_it_can_be(void **state)
{
    (void)state;
    const ech__scaler good = {.on = true, .scale = 8, .good = 3, .skipped = 5, .stuck = 0};
    assert_true(ech__scaler_is_sound(&good));
    const double scales[] = {0, -1, ECH__SCALER_LEAST / 2, 2 * (double)FLT_MAX, INFINITY, NAN};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        ech__scaler bad = good;
        bad.scale = scales[i];
        assert_false(ech__scaler_is_sound(&bad));
    }
    const struct {
        int64_t good, skipped, stuck;
    } counts[] = {{-1, 0, 0},
                  {ECH__SCALER_INTERVAL, 0, 0},
                  {0, -1, 0},
                  {0, 0, -1},
                  {0, 20, ECH__SCALER_PATIENCE}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        ech__scaler bad = good;
        bad.good = counts[i].good;
        bad.skipped = counts[i].skipped;
        bad.stuck = counts[i].stuck;
        assert_false(ech__scaler_is_sound(&bad));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_pytorch),
        cmocka_unit_test(ends_a_training_that_no_scale_helps),
        cmocka_unit_test(is_1_for_ever_where_it_is_off),
        cmocka_unit_test(knows_what_it_can_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
