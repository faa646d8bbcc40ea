/* Figures of samples: shares, differences of shares, means of repetitions, arrays of a record. */
#include "lab/expr.h"
#include "quant/ladder.h"

#include "support/cmocka_first.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct fixture {
    ech_ctx *ctx;
    char dir[64], path[96];
    ech__lab_result result;
    ech__lab_facts *facts;
} fixture;

static const char record[] = "{\"clock\":\"measured\",\"hits\":540,\"count\":1000,\"gained\":12,"
                             "\"lost\":20,\"times\":[3,1,2,5,4],\"others\":[30,10,20,50,40],"
                             "\"a\":0.50,\"b\":0.52,\"c\":0.54,\"words\":[\"x\"]}";

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(ech_ctx_create(NULL, &f->ctx), ECH_OK);
    strcpy(f->dir, "/tmp/ech-samples-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/result.json", f->dir);
    FILE *file = fopen(f->path, "w");
    assert_non_null(file);
    fputs(record, file);
    fclose(file);
    f->result =
        (ech__lab_result){.id = "q", .command = "echelon quantize", .dir = f->dir, .record = "q"};
    assert_int_equal(ech__lab_facts_create(f->ctx, &f->result, 1, 0.1, &f->facts), ECH_OK);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    ech__lab_facts_destroy(f->facts);
    unlink(f->path);
    rmdir(f->dir);
    ech_ctx_destroy(f->ctx);
    free(f);
    return 0;
}

static ech__lab_figure eval(void **state, const char *expr)
{
    fixture *f = *state;
    ech__lab_figure figure;
    if (ech__lab_eval(f->facts, expr, &figure) < 0)
        fail_msg("%s", ech_ctx_error(f->ctx));
    return figure;
}

static void near(double value, double expected, double within)
{
    if (!(fabs(value - expected) <= within))
        fail_msg("%.6g is not within %g of %.6g", value, within, expected);
}

/* A thousand draws place an end of the interval to about a twentieth of its width. */
static void shares_have_wilsons_interval(void **state)
{
    const ech__lab_figure f = eval(state, "share([q hits], [q count])");
    const ech__share exact = ech__share_of(540, 1000);
    near(f.value, 0.54, 1e-12);
    near(f.low, exact.low, 0.004);
    near(f.high, exact.high, 0.004);
    near(eval(state, "share(0, 50)").value, 0, 0);
    assert_true(eval(state, "share(0, 50)").low >= 0);
    assert_true(eval(state, "share(0, 50)").high > 0.03);
    assert_true(eval(state, "share(50, 50)").high <= 1);
}

static void differences_count_what_differs(void **state)
{
    const ech__lab_figure f = eval(state, "paired([q gained], [q lost], [q count])"),
                          alike = eval(state, "paired(7, 7, [q count])");
    near(f.value, -0.008, 1e-12);
    near(f.high - f.low, 2 * 1.96 * sqrt(32) / 1000, 0.004);
    near(alike.value, 0, 1e-12);
    assert_true(alike.low < -0.002 && alike.high > 0.002);
}

/* t of two degrees of freedom is 4.303 at 97.5 %; s is 0.02. */
static void means_have_students_interval(void **state)
{
    const ech__lab_figure f = eval(state, "average([q a], [q b], [q c])"),
                          one = eval(state, "average([q a])");
    near(f.value, 0.52, 1e-12);
    near(f.high - f.value, 4.303 * 0.02 / sqrt(3), 0.015);
    near(f.value - f.low, 4.303 * 0.02 / sqrt(3), 0.015);
    near(one.value, 0.5, 1e-12);
    near(one.high, one.low, 0);
}

static void same_samples_draw_the_same(void **state)
{
    const ech__lab_figure none =
        eval(state, "share([q hits], [q count]) - share([q hits], [q count])");
    near(none.low, 0, 0);
    near(none.high, 0, 0);
    const ech__lab_figure some = eval(state, "share([q hits], [q count]) - share(540, 1000)");
    assert_true(some.low < -0.02 && some.high > 0.02);
}

static void what_is_no_sample_is_not_known(void **state)
{
    assert_false(eval(state, "share(3, 2)").known);
    assert_false(eval(state, "share(1, 0)").known);
    assert_false(eval(state, "share(-1, 5)").known);
    assert_false(eval(state, "paired(3, 4, 5)").known);
    ech__lab_figure figure;
    assert_true(ech__lab_eval(((fixture *)*state)->facts, "share(1)", &figure) < 0);
}

static void arrays_have_statistics(void **state)
{
    const ech__lab_figure f = eval(state, "steps[q times]");
    near(f.value, 3, 0);
    assert_true(f.low < 3 && f.high > 3);
    near(eval(state, "lowest[q times]").value, 1, 0);
    near(eval(state, "total[q times]").value, 15, 1e-12);
    /* Elements of arrays of the same length are drawn together. */
    const ech__lab_figure ratio = eval(state, "steps[q others] / steps[q times]");
    near(ratio.low, 10, 1e-9);
    near(ratio.high, 10, 1e-9);
    assert_false(eval(state, "steps[q hits]").known);
    assert_false(eval(state, "steps[q nothing]").known);
    assert_false(eval(state, "steps[q words]").known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(shares_have_wilsons_interval, setup, teardown),
        cmocka_unit_test_setup_teardown(differences_count_what_differs, setup, teardown),
        cmocka_unit_test_setup_teardown(means_have_students_interval, setup, teardown),
        cmocka_unit_test_setup_teardown(same_samples_draw_the_same, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_no_sample_is_not_known, setup, teardown),
        cmocka_unit_test_setup_teardown(arrays_have_statistics, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
