#include "report/plot/plot.h"
#include "report/plot/frame.h"

typedef struct family {
    double (*height)(const ech__plot *plot, double width);
    void (*draw)(const ech__plot *plot, ech__canvas *canvas, ech__area area);
} family;

static const family *family_of(ech__plot_kind kind)
{
    static const family families[ECH__PLOT_COUNT] = {
        [ECH__PLOT_LINES] = {ech__plot_xy_height, ech__plot_xy},
        [ECH__PLOT_STEPS] = {ech__plot_xy_height, ech__plot_xy},
        [ECH__PLOT_SPEEDUP] = {ech__plot_xy_height, ech__plot_xy},
        [ECH__PLOT_BARS] = {ech__plot_bars_height, ech__plot_bars},
        [ECH__PLOT_STACKED] = {ech__plot_bars_height, ech__plot_bars},
        [ECH__PLOT_LADDER] = {ech__plot_ladder_height, ech__plot_ladder},
        [ECH__PLOT_HISTOGRAM] = {ech__plot_histogram_height, ech__plot_histogram},
        [ECH__PLOT_TIMELINE] = {ech__plot_timeline_height, ech__plot_timeline},
    };
    return &families[kind];
}

double ech__plot_height(const ech__plot *plot, double width)
{
    return family_of(plot->kind)->height(plot, width);
}

void ech__plot_draw(const ech__plot *plot, ech__canvas *canvas, ech__area area)
{
    family_of(plot->kind)->draw(plot, canvas, area);
}

/* ---- what is measured and what is not ---- */

static void note_basis(ech__basis basis, bool *emulated, bool *predicted)
{
    *emulated |= basis == ECH__BASIS_EMULATED;
    *predicted |= basis == ECH__BASIS_PREDICTED;
}

static void find_bases(const ech__plot *plot, bool *emulated, bool *predicted)
{
    for (size_t i = 0; i < plot->nseries; i++) {
        const ech__plot_series *s = &plot->series[i];
        note_basis(s->basis, emulated, predicted);
        for (size_t p = 0; p < s->count; p++)
            note_basis(s->points[p].basis, emulated, predicted);
        for (size_t c = 0; s->values && c < plot->ncategories; c++)
            note_basis(s->values[c].basis, emulated, predicted);
    }
}

const char *ech__plot_basis_text(const ech__plot *plot)
{
    static const char *const texts[3][2][2] = {
        {{"", "Dashed lines and small hollow marks are predicted, filled marks measured."},
         {"Hollow marks are emulated: computed for real, timed on a virtual clock.",
          "Hollow marks are emulated (computed for real, timed on a virtual clock), dashed lines "
          "and small hollow marks predicted; all else is measured."}},
        {{"", "Hollow bars with a dashed outline are predicted."},
         {"Hollow bars are emulated: computed for real, timed on a virtual clock.",
          "Hollow bars are emulated (computed for real, timed on a virtual clock), dashed ones "
          "predicted; filled ones are measured."}},
        {{"", "Bars that say so are predicted."},
         {"Bars that say so are emulated: computed for real, timed on a virtual clock.",
          "Bars that say so are emulated (computed for real, timed on a virtual clock) or "
          "predicted; all else is measured."}},
    };
    bool emulated = false, predicted = false;
    find_bases(plot, &emulated, &predicted);
    const int form = plot->kind == ECH__PLOT_BARS ? 1 : plot->kind == ECH__PLOT_STACKED ? 2 : 0;
    return texts[form][emulated][predicted];
}
