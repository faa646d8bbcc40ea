/* The pictures of echelon quantize, as SVG and PNG: histograms with the range that the integers cover marked, and the
 * ladder. */
#include "base/file/dir.h"
#include "cli/quantize/quantize.h"
#include "report/cairo.h"
#include "report/report.h"

#include <math.h>
#include <stdio.h>

enum { BINS = 128, PANELS = ECH__PLOT_MAX_PANELS };

/* A picture under construction: panels and what they borrow. */
typedef struct sheet {
    ech__plot_panel panels[PANELS];
    double counts[PANELS][BINS];
    ech__plot_mark marks[PANELS][2];
    char names[PANELS][96], notes[PANELS][96];
    size_t count;
} sheet;

/* Both forms of a picture, as far as this build can draw them. */
static ech_status save(const ech__quantization *q, const ech__plot *plot, const char *name)
{
    static const char *const ends[] = {"svg", "png"};
    for (int i = 0; i < (ech__can_print ? 2 : 1); i++) {
        char path[ECH_DIR_MAX_PATH + 64];
        snprintf(path, sizeof path, "%s/%s.%s", q->config.out, name, ends[i]);
        ECH_TRY(ech__report_picture(q->ctx, plot, path));
    }
    return ECH_OK;
}

/* ---- histograms ---- */

/* Where the integers end: below and above, or above only. */
static size_t mark_ends(const ech__quantization *q, const ech__seen *seen, size_t i,
                        ech__plot_mark *out)
{
    double most = 0, low = -127;
    if (seen->value < 0) {
        const ech__layer_scales *layer = &q->scales.layers[i];
        for (int64_t o = 0; o < layer->outputs; o++)
            most = fmax(most, (double)layer->scale[o]);
    } else if (ech__has_scale(&q->model, seen->value)) {
        most = (double)q->scales.activation[seen->value];
        low = ech__scale_type(q->model.fused, seen->value) == ECH_U8 ? 0 : -128;
    } else {
        return 0;
    }
    out[0] = (ech__plot_mark){.at = (low < 0 ? 127 : 255) * most, .label = low < 0 ? "127" : "255"};
    out[1] = (ech__plot_mark){.at = low * most, .label = low < -127 ? "-128" : "-127"};
    return low < 0 ? 2 : 1;
}

static void add_panel(const ech__quantization *q, const ech__seen *seen, size_t i, sheet *s)
{
    const size_t k = s->count++;
    const ech__histogram_stats spread = ech__histogram_stats_of(seen->histogram);
    const ech__bars bars = ech__histogram_bars(seen->histogram);
    for (int b = 0; b < bars.count; b++)
        s->counts[k][b] = (double)bars.height[b];
    /* Half of what leaves a ReLU is zero: the note says so, and the rest would look flat next to it. */
    s->counts[k][bars.zero] -= (double)seen->histogram->zeros;
    snprintf(s->names[k], sizeof s->names[k], "%s %s", seen->layer, seen->what);
    snprintf(s->notes[k], sizeof s->notes[k], "%.3g to %.3g, %.0f %% zeros", spread.min, spread.max,
             100 * spread.zeros);
    s->panels[k] = (ech__plot_panel){.name = s->names[k],
                                     .note = s->notes[k],
                                     .from = bars.low,
                                     .to = bars.low + bars.count * bars.width,
                                     .counts = s->counts[k],
                                     .bins = (size_t)bars.count,
                                     .marks = s->marks[k],
                                     .nmarks = mark_ends(q, seen, i, s->marks[k])};
}

static ech_status save_sheet(const ech__quantization *q, sheet *s, const char *what, int number)
{
    char name[64], title[128];
    if (!s->count)
        return ECH_OK;
    snprintf(name, sizeof name, "%s-%d", what, number);
    snprintf(title, sizeof title, "%s of %s; marks are where the integers end",
             *what == 'w' ? "Weights" : "Activations", ech__model_name(q->config.model.kind));
    const ech__plot plot = {
        .kind = ECH__PLOT_HISTOGRAM,
        .title = title,
        .x = {.label = "value, without zeros", .unit = "", .min = NAN, .max = NAN},
        .y = {.label = "count", .unit = "", .min = NAN, .max = NAN},
        .panels = s->panels,
        .npanels = s->count};
    s->count = 0;
    return save(q, &plot, name);
}

/* Weights, or activations: as many pictures as their panels need. */
static ech_status plot_histograms(const ech__quantization *q, bool weights, sheet *s)
{
    const char *what = weights ? "weights" : "activations";
    ech__seen seen;
    int number = 1;
    s->count = 0;
    for (size_t i = 0; ech__quantize_seen(q, i, &seen); i++) {
        if (!seen.histogram || seen.histogram->range <= 0 || (seen.value < 0) != weights)
            continue;
        add_panel(q, &seen, i, s);
        if (s->count == PANELS)
            ECH_TRY(save_sheet(q, s, what, number++));
    }
    return save_sheet(q, s, what, number);
}

/* ---- the ladder ---- */

static ech_status plot_ladder(const ech__quantization *q)
{
    const ech__ladder *l = &q->ladder;
    const char *categories[ECH__RUNG_COUNT];
    ech__cell cells[ECH__RUNG_COUNT];
    char title[128];
    for (int i = 0; i < l->count; i++) {
        const ech__share *a = &l->rungs[i].accuracy;
        categories[i] = ech__rung_name(l->rungs[i].kind);
        cells[i] = (ech__cell){.kind = ECH__CELL_NUMBER,
                               .value = 100 * a->share,
                               .low = 100 * a->low,
                               .high = 100 * a->high};
    }
    snprintf(title, sizeof title, "Accuracy of %s from f32 to int8, with 95 %% intervals",
             ech__model_name(q->config.model.kind));
    ech__plot_series series = {.name = "accuracy", .values = cells};
    const ech__plot plot = {
        .kind = ECH__PLOT_LADDER,
        .title = title,
        .x = {.label = "", .unit = "", .min = NAN, .max = NAN},
        .y = {.label = "accuracy", .unit = "%", .min = NAN, .max = NAN},
        .series = &series,
        .nseries = 1,
        .categories = categories,
        .ncategories = (size_t)l->count,
        .format = {ECH__NUMBER_FIXED, 2},
    };
    return save(q, &plot, "ladder");
}

ech_status ech__quantize_plot(const ech__quantization *q)
{
    sheet *s = ech__new(q->ctx, sizeof *s);
    if (!s)
        return ech__no_memory(q->ctx, "pictures");
    ech_status status = plot_histograms(q, true, s);
    if (status == ECH_OK)
        status = plot_histograms(q, false, s);
    ech__delete(q->ctx, s, sizeof *s);
    return status < 0 ? status : plot_ladder(q);
}
