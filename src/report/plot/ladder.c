/* A ladder: one dot with its interval for each rung, figures in a column at the right. */
#include "report/plot/frame.h"

#include <math.h>
#include <stdio.h>

enum { RUNG = 26, AXIS_HEIGHT = 42, TOP = 14 };

static bool names_above(const ech__plot *plot, double width)
{
    return ech__plot_widest(plot->categories, plot->ncategories, ECH__PLOT_FONT) > 0.42 * width;
}

static double rung_height(const ech__plot *plot, double width)
{
    return names_above(plot, width) ? RUNG + 12 : RUNG;
}

double ech__plot_ladder_height(const ech__plot *plot, double width)
{
    return TOP + rung_height(plot, width) * (double)plot->ncategories + AXIS_HEIGHT;
}

static void find_range(const ech__plot *plot, double *low, double *high)
{
    *low = HUGE_VAL;
    *high = -HUGE_VAL;
    for (size_t c = 0; c < plot->ncategories; c++) {
        const ech__cell *v = &plot->series[0].values[c];
        if (v->kind != ECH__CELL_NUMBER || isnan(v->value))
            continue;
        *low = fmin(*low, ech__cell_has_interval(v) ? fmin(v->low, v->value) : v->value);
        *high = fmax(*high, ech__cell_has_interval(v) ? fmax(v->high, v->value) : v->value);
    }
    for (size_t i = 0; i < plot->nmarks; i++) {
        *low = fmin(*low, plot->marks[i].at);
        *high = fmax(*high, plot->marks[i].at);
    }
    if (*low > *high)
        *low = *high = 0;
    *low = isnan(plot->y.min) ? *low : plot->y.min;
    *high = fmax(*low, isnan(plot->y.max) ? *high : plot->y.max);
}

/* "53.17 (52.2 to 54.1)" where there is room, else the value alone. */
static void rung_text(const ech__plot *plot, size_t category, bool wide, char out[120])
{
    const ech__cell *v = &plot->series[0].values[category];
    if (v->kind != ECH__CELL_NUMBER)
        snprintf(out, 120, "\xe2\x80\x93");
    else if (wide && ech__cell_has_interval(v))
        snprintf(out, 120, "%s  (%s \xe2\x80\x93 %s)", ech__number_text(plot->format, v->value).s,
                 ech__number_text(plot->format, v->low).s,
                 ech__number_text(plot->format, v->high).s);
    else
        snprintf(out, 120, "%s", ech__number_text(plot->format, v->value).s);
}

static double widest_text(const ech__plot *plot, bool wide)
{
    char text[120];
    double widest = 0;
    for (size_t c = 0; c < plot->ncategories; c++) {
        rung_text(plot, c, wide, text);
        widest = fmax(widest, ech__plot_width_of(text, ECH__PLOT_SMALL));
    }
    return widest;
}

typedef struct ladder {
    const ech__plot *plot;
    ech__canvas *canvas;
    ech__plot_frame frame;
    double rung, right; /* where figures begin */
    bool above, wide;
} ladder;

static void draw_dot(const ladder *l, size_t category, double y)
{
    const ech__cell *v = &l->plot->series[0].values[category];
    const double x = ech__scale_at(&l->frame.x, v->value);
    if (v->kind != ECH__CELL_NUMBER || isnan(x))
        return;
    ech__canvas_hover(l->canvas, "%.200s: %s%s%.60s%s%s%s%.200s", l->plot->categories[category],
                      ech__number_text(l->plot->format, v->value).s, *l->plot->y.unit ? " " : "",
                      l->plot->y.unit, v->basis ? ", " : "", ech__basis_name(v->basis),
                      v->note ? ", " : "", v->note ? v->note : "");
    if (ech__cell_has_interval(v)) {
        const double low = ech__scale_at(&l->frame.x, v->low);
        const double high = ech__scale_at(&l->frame.x, v->high);
        ech__canvas_move(l->canvas, low, y);
        ech__canvas_line(l->canvas, high, y);
        ech__canvas_move(l->canvas, low, y - 4);
        ech__canvas_line(l->canvas, low, y + 4);
        ech__canvas_move(l->canvas, high, y - 4);
        ech__canvas_line(l->canvas, high, y + 4);
        ech__canvas_paint(l->canvas, &(ech__paint){.stroke = ECH__INK_SERIES1, .width = 1.6});
    }
    ech__plot_marker(l->canvas, x, y, 4.5, 0, ECH__INK_SERIES1, v->basis);
    ech__canvas_unhover(l->canvas);
}

static void draw_rung(const ladder *l, size_t category)
{
    const ech__area *in = &l->frame.inside;
    const double bottom = in->y + l->rung * (double)(category + 1);
    const double y = bottom - RUNG / 2.0;
    char text[120];
    if (l->above)
        ech__canvas_text_within(l->canvas, in->x, bottom - RUNG + 1, in->width,
                                l->plot->categories[category],
                                &(ech__text_style){.size = ECH__PLOT_FONT});
    else
        ech__canvas_text(l->canvas, in->x - 10, y + 4, l->plot->categories[category],
                         &(ech__text_style){.size = ECH__PLOT_FONT, .anchor = ECH__END});
    rung_text(l->plot, category, l->wide, text);
    ech__canvas_text(l->canvas, l->right, y + 3.6, text,
                     &(ech__text_style){.size = ECH__PLOT_SMALL});
    draw_dot(l, category, y);
}

static void draw_marks(const ladder *l)
{
    const ech__area *in = &l->frame.inside;
    for (size_t i = 0; i < l->plot->nmarks; i++) {
        const double x = ech__scale_at(&l->frame.x, l->plot->marks[i].at);
        if (!(x >= in->x - 0.5 && x <= in->x + in->width + 0.5))
            continue;
        const bool turned = x > in->x + in->width / 2;
        ech__canvas_move(l->canvas, x, in->y);
        ech__canvas_line(l->canvas, x, in->y + in->height);
        ech__canvas_paint(
            l->canvas,
            &(ech__paint){.stroke = ECH__INK_MUTED, .width = 1, .dash = ECH__DASH_SHORT});
        ech__canvas_text(l->canvas, x, in->y - 3, l->plot->marks[i].label,
                         &(ech__text_style){.size = ECH__PLOT_SMALL,
                                            .ink = ECH__INK_MUTED,
                                            .anchor = turned ? ECH__END : ECH__START});
    }
}

void ech__plot_ladder(const ech__plot *plot, ech__canvas *canvas, ech__area area)
{
    const ech__axis_title title = ech__plot_axis_title(&plot->y);
    double low, high;
    ladder l = {.plot = plot,
                .canvas = canvas,
                .frame = {.x_title = title.s, .x_grid = true},
                .rung = rung_height(plot, area.width),
                .above = names_above(plot, area.width),
                .wide = area.width >= 420};
    const double names = ech__plot_widest(plot->categories, plot->ncategories, ECH__PLOT_FONT);
    const double left = l.above ? 6 : names + 14;
    const double right = widest_text(plot, l.wide) + 14;
    l.frame.inside = (ech__area){area.x + left, area.y + TOP, fmax(area.width - left - right, 20),
                                 l.rung * (double)plot->ncategories};
    l.right = l.frame.inside.x + l.frame.inside.width + 14;
    find_range(plot, &low, &high);
    const int want = l.frame.inside.width > 260 ? 6 : 3;
    const bool fixed = !isnan(plot->y.min) || !isnan(plot->y.max);
    l.frame.x = fixed ? ech__scale_between(ECH__SCALE_LINEAR, low, high, want, false)
                      : ech__scale_over(ECH__SCALE_LINEAR, low, high, want, false);
    ech__scale_place(&l.frame.x, l.frame.inside.x, l.frame.inside.x + l.frame.inside.width);
    ech__plot_draw_x_axis(canvas, &l.frame);
    draw_marks(&l);
    for (size_t c = 0; c < plot->ncategories; c++)
        draw_rung(&l, c);
}
