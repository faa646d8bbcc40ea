/* Histograms as small panels beside each other, each with a range and marks of its own. */
#include "report/plot/frame.h"

#include <math.h>
#include <stdio.h>

enum {
    PANEL_WIDTH = 155,
    PANEL_HEIGHT = 142,
    GAP = 18,
    HEAD = 44,
    FOOT = 22,
    TITLE = 20,
    EDGE = 10
};

static size_t columns_of(const ech__plot *plot, double width)
{
    const size_t fit = (size_t)fmax(1, floor((width + GAP) / (PANEL_WIDTH + GAP)));
    return fit < plot->npanels ? fit : plot->npanels;
}

double ech__plot_histogram_height(const ech__plot *plot, double width)
{
    const size_t columns = columns_of(plot, width);
    const size_t rows = (plot->npanels + columns - 1) / columns;
    return (double)rows * PANEL_HEIGHT + TITLE;
}

typedef struct panel {
    const ech__plot *plot;
    const ech__plot_panel *data;
    ech__canvas *canvas;
    ech__plot_frame frame;
    double most; /* of the counts */
} panel;

static void draw_bins(const panel *p)
{
    const ech__number_format f = {ECH__NUMBER_GENERAL, 0};
    const ech__number_format whole = {ECH__NUMBER_INTEGER, 0};
    const double width = (p->data->to - p->data->from) / (double)p->data->bins;
    const double bottom = p->frame.inside.y + p->frame.inside.height;
    for (size_t i = 0; i < p->data->bins; i++) {
        const double from = p->data->from + width * (double)i, to = from + width;
        const double left = ech__scale_at(&p->frame.x, from);
        const double right = ech__scale_at(&p->frame.x, to);
        const double top = ech__scale_at(&p->frame.y, p->data->counts[i]);
        if (p->data->counts[i] <= 0)
            continue;
        ech__canvas_hover(p->canvas, "%.150s: %s from %s to %s", p->data->name,
                          ech__number_text(whole, p->data->counts[i]).s,
                          ech__number_text(f, from).s, ech__number_text(f, to).s);
        const double gap = right - left > 3 ? 0.6 : 0, height = fmax(bottom - top, 0.8);
        ech__canvas_rect(p->canvas, left, bottom - height, right - left - gap, height);
        ech__canvas_paint(p->canvas, &(ech__paint){.fill = ECH__INK_SERIES1});
        ech__canvas_unhover(p->canvas);
    }
}

static void draw_marks(const panel *p)
{
    const ech__area *in = &p->frame.inside;
    for (size_t i = 0; i < p->data->nmarks; i++) {
        const double x = ech__scale_at(&p->frame.x, p->data->marks[i].at);
        if (!(x >= in->x - 0.5 && x <= in->x + in->width + 0.5))
            continue;
        ech__canvas_move(p->canvas, x, in->y);
        ech__canvas_line(p->canvas, x, in->y + in->height);
        ech__canvas_paint(
            p->canvas,
            &(ech__paint){.stroke = ECH__INK_SERIES2, .width = 1.2, .dash = ECH__DASH_LONG});
        const double middle = in->x + in->width / 2;
        ech__canvas_text(p->canvas, x + (x > middle ? 3 : -3), in->y + 8, p->data->marks[i].label,
                         &(ech__text_style){.size = 9,
                                            .ink = ECH__INK_SERIES2,
                                            .anchor = x > middle ? ECH__START : ECH__END});
    }
}

static void draw_panel(panel *p, ech__area area)
{
    const ech__number_format whole = {ECH__NUMBER_INTEGER, 0};
    p->frame.inside =
        (ech__area){area.x + EDGE, area.y + HEAD, area.width - 2 * EDGE, area.height - HEAD - FOOT};
    const ech__area *in = &p->frame.inside;
    p->frame.x = ech__scale_between(ECH__SCALE_LINEAR, p->data->from, p->data->to, 4, false);
    p->frame.y = ech__scale_between(ECH__SCALE_LINEAR, 0, p->most * 1.04, 1, false);
    ech__scale_place(&p->frame.x, in->x, in->x + in->width);
    ech__scale_place(&p->frame.y, in->y + in->height, in->y);
    ech__canvas_text_within(p->canvas, area.x, area.y + 12, area.width, p->data->name,
                            &(ech__text_style){.size = ECH__PLOT_FONT, .bold = true});
    if (p->data->note)
        ech__canvas_text_within(p->canvas, area.x, area.y + 25, area.width, p->data->note,
                                &(ech__text_style){.size = 9.5, .ink = ECH__INK_MUTED});
    char most[64];
    snprintf(most, sizeof most, "up to %s", ech__number_text(whole, p->most).s);
    ech__canvas_text(p->canvas, in->x, in->y - 4, most,
                     &(ech__text_style){.size = 9, .ink = ECH__INK_MUTED});
    draw_bins(p);
    ech__plot_draw_x_axis(p->canvas, &p->frame);
    draw_marks(p);
}

void ech__plot_histogram(const ech__plot *plot, ech__canvas *canvas, ech__area area)
{
    const size_t columns = columns_of(plot, area.width);
    const double width = (area.width + GAP) / (double)columns - GAP;
    const ech__axis_title x = ech__plot_axis_title(&plot->x), y = ech__plot_axis_title(&plot->y);
    for (size_t i = 0; i < plot->npanels; i++) {
        const size_t row = i / columns, column = i % columns;
        panel p = {.plot = plot, .data = &plot->panels[i], .canvas = canvas};
        for (size_t b = 0; b < p.data->bins; b++)
            p.most = fmax(p.most, p.data->counts[b]);
        draw_panel(&p, (ech__area){area.x + (double)column * (width + GAP),
                                   area.y + (double)row * PANEL_HEIGHT, width, PANEL_HEIGHT - 8});
    }
    char title[1400];
    snprintf(title, sizeof title, "Across: %s.  Up: %s.", x.s, y.s);
    ech__canvas_text_within(canvas, area.x, area.y + area.height - 4, area.width, title,
                            &(ech__text_style){.size = ECH__PLOT_SMALL, .ink = ECH__INK_MUTED});
}
