/* What plots draw. */
#include "report/plot/plot.h"

#include "report/plot/canvas.h"
#include "support/cmocka_first.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Straight pieces of all paths of a speedup on axes of these scales. */
static int pieces(ech_ctx *ctx, ech__scale_kind x, ech__scale_kind y)
{
    ech__plot_point points[] = {{.x = 1, .y = 1, .low = NAN, .high = NAN},
                                {.x = 4, .y = 3, .low = NAN, .high = NAN}};
    ech__plot_series series = {.name = "s", .points = points, .count = 2};
    const ech__plot plot = {.kind = ECH__PLOT_SPEEDUP,
                            .title = "t",
                            .x = {"devices", "", x, NAN, NAN},
                            .y = {"speedup", "", y, NAN, NAN},
                            .series = &series,
                            .nseries = 1};
    ech__canvas *canvas;
    char *text;
    size_t bytes;
    int count = 0;
    const ech__svg_options options = {.width = 480, .height = 300};
    assert_int_equal(ech__svg_create(ctx, &options, &canvas), ECH_OK);
    ech__plot_draw(&plot, canvas, (ech__area){0, 0, 480, 300});
    assert_int_equal(ech__svg_finish(canvas, &text, &bytes), ECH_OK);
    for (const char *at = text; (at = strstr(at, " d=\"")) != NULL;) {
        for (at += 4; *at != '"'; at++)
            count += *at == 'L';
    }
    free(text);
    return count;
}

static void the_ideal_is_a_curve_where_one_axis_is_logarithmic(void **state)
{
    ech_ctx *ctx;
    (void)state;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    const int linear = pieces(ctx, ECH__SCALE_LINEAR, ECH__SCALE_LINEAR);
    assert_true(linear > 0);
    assert_in_range(pieces(ctx, ECH__SCALE_LOG2, ECH__SCALE_LOG2), 1, linear + 10);
    assert_in_range(pieces(ctx, ECH__SCALE_LOG2, ECH__SCALE_LINEAR), linear + 30, linear + 100);
    ech_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ideal_is_a_curve_where_one_axis_is_logarithmic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
