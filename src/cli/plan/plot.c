/* The scaling curve as a picture: efficiency over devices, with the points where something changes. */
#include "cli/plan/plan.h"
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_POINTS = 128 };

static ech__plot_point point_at(const ech__price *p, double one)
{
    const double efficiency = 100 * p->samples_per_s / (one * (double)p->devices);
    return (ech__plot_point){.x = (double)p->devices,
                             .y = efficiency,
                             .low = NAN,
                             .high = NAN,
                             .basis = p->measured ? ECH__BASIS_MEASURED : ECH__BASIS_PREDICTED};
}

static ech_status price_point(const ech__plan_result *r, int64_t devices, ech__plot_point *out)
{
    const double one = r->rows[0].price.samples_per_s / r->rows[0].speedup;
    ech__price price;
    ECH_TRY(ech__pricing_at(r->pricing, devices, ech__load_of(&r->args->load, devices), &price));
    *out = point_at(&price, one);
    return ECH_OK;
}

/* Powers of two up to the most devices that were asked for, and these; of layers, which not all
 * numbers of devices can share, those that were asked for. */
static ech_status find_points(const ech__plan_result *r, ech__plot_point *points, size_t *count)
{
    const int64_t most = r->rows[r->count - 1].price.devices;
    const bool layers = ech__strategy_row_of(r->config->parallel)->cuts_model;
    *count = 0;
    for (size_t i = 0; layers && i < r->count && i < MOST_POINTS; i++)
        ECH_TRY(price_point(r, r->rows[i].price.devices, &points[(*count)++]));
    for (int64_t devices = 1; !layers && devices < most; devices *= 2)
        ECH_TRY(price_point(r, devices, &points[(*count)++]));
    return layers ? ECH_OK : price_point(r, most, &points[(*count)++]);
}

/* "resnet18, ddp: 32 samples a step on each device". */
static void print_title(const ech__plan_result *r, char *out, size_t bytes)
{
    char model[64];
    const bool global = r->args->load.global > 0;
    snprintf(out, bytes, "%s, %s: %lld samples a step%s",
             ech__plan_model(r->config, model, sizeof model),
             ech__strategy_name(r->config->parallel),
             (long long)(global ? r->args->load.global : r->args->load.batch),
             global ? "" : " on each device");
}

ech_status ech__plan_plot(ech_ctx *ctx, const ech__plan_result *r, const char *path)
{
    char title[160], names[ECH__MOST_CROSSINGS][96];
    ech__plot_point points[MOST_POINTS], crossed[ECH__MOST_CROSSINGS];
    ech__plot_mark marks[ECH__MOST_CROSSINGS];
    /* Crossings are named beside the picture, each with its point. */
    ech__plot_series series[1 + ECH__MOST_CROSSINGS] = {
        {.name = "efficiency", .basis = ECH__BASIS_PREDICTED, .has_line = true, .points = points},
    };
    ECH_TRY(find_points(r, points, &series[0].count));
    print_title(r, title, sizeof title);
    for (int i = 0; i < r->ncrossings; i++) {
        const ech__crossing *c = &r->crossings[i];
        snprintf(names[i], sizeof names[i], "%lld devices: %s", (long long)c->devices, c->what);
        ECH_TRY(price_point(r, c->devices, &crossed[i]));
        marks[i] = (ech__plot_mark){.at = (double)c->devices, .label = ""};
        series[1 + i] = (ech__plot_series){
            .name = names[i], .basis = ECH__BASIS_PREDICTED, .points = &crossed[i], .count = 1};
    }
    const ech__plot plot = {
        .kind = ECH__PLOT_LINES,
        .title = title,
        .x = {.label = "devices", .unit = "", .scale = ECH__SCALE_LOG2, .min = NAN, .max = NAN},
        .y = {.label = "efficiency", .unit = "%", .scale = ECH__SCALE_LINEAR, .min = 0, .max = 105},
        .series = series,
        .nseries = 1 + (size_t)r->ncrossings,
        .marks = marks,
        .nmarks = (size_t)r->ncrossings,
    };
    return ech__report_picture(ctx, &plot, path);
}
