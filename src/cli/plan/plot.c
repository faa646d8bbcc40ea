/* The scaling curve as a picture: samples per second over devices, both axes logarithmic, with the ideal line. */
#include "cli/plan/plan.h"
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void find_points(const ech__plan_result *r, ech__plot_point *points)
{
    for (size_t i = 0; i < r->count; i++) {
        const ech__price *p = &r->rows[i].price;
        points[i] =
            (ech__plot_point){.x = (double)p->devices,
                              .y = p->samples_per_s,
                              .low = NAN,
                              .high = NAN,
                              .basis = p->measured ? ECH__BASIS_MEASURED : ECH__BASIS_PREDICTED};
    }
}

/* "resnet18, ddp: 32 samples a step on each device". */
static void print_title(const ech__plan_result *r, char *out, size_t bytes)
{
    char model[64];
    const bool global = r->load.global > 0;
    snprintf(out, bytes, "%s, %s: %lld samples a step%s",
             ech__plan_model(r->config, model, sizeof model), ech__strategy_name(r->strategy),
             (long long)(global ? r->load.global : r->load.batch), global ? "" : " on each device");
}

ech_status ech__plan_plot(ech_ctx *ctx, const ech__plan_result *r, const char *path)
{
    char title[160];
    ech__plot_point *points = calloc(r->count + 1, sizeof *points);
    if (!points)
        return ech__no_memory(ctx, "the picture %s", path);
    find_points(r, points);
    print_title(r, title, sizeof title);
    ech__plot_series series = {.name = "predicted",
                               .basis = ECH__BASIS_PREDICTED,
                               .has_line = true,
                               .points = points,
                               .count = r->count};
    const double one = r->count ? r->rows[0].price.samples_per_s / r->rows[0].speedup : 1;
    const ech__plot plot = {
        .kind = ECH__PLOT_SPEEDUP,
        .title = title,
        .x = {.label = "devices", .unit = "", .scale = ECH__SCALE_LOG2, .min = NAN, .max = NAN},
        .y = {.label = "samples per second",
              .unit = "",
              .scale = ECH__SCALE_LOG10,
              .min = NAN,
              .max = NAN},
        .series = &series,
        .nseries = 1,
        .ideal = one,
    };
    const ech_status status = ech__report_picture(ctx, &plot, path);
    free(points);
    return status;
}
