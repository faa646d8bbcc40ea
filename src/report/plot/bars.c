/* Bars for categories, which lie on their side so that names can be read: beside each other, or as parts of a whole. */
#include "report/plot/frame.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { THIN = 13, THICK = 18, ROW_GAP = 11, NAME_HEIGHT = 15, AXIS_HEIGHT = 42 };

typedef struct bars {
    const ech__plot *plot;
    ech__canvas *canvas;
    ech__plot_frame frame;
    bool above;  /* names stand above the bars, because they are long */
    double step; /* from row to row */
} bars;

static bool is_stacked(const ech__plot *plot)
{
    return plot->kind == ECH__PLOT_STACKED;
}

/* The basis of a whole row: what is least real in it. */
static ech__basis row_basis(const ech__plot *plot, size_t category)
{
    ech__basis basis = ECH__BASIS_UNSAID;
    for (size_t s = 0; s < plot->nseries; s++) {
        const ech__cell *v = &plot->series[s].values[category];
        if (v->kind == ECH__CELL_NUMBER && v->basis > basis)
            basis = v->basis;
    }
    return basis;
}

/* "4 devices (emulated)": a stack cannot be hollow. */
static void row_name(const ech__plot *plot, size_t category, char out[400])
{
    const ech__basis basis = is_stacked(plot) ? row_basis(plot, category) : ECH__BASIS_UNSAID;
    const bool said = basis == ECH__BASIS_EMULATED || basis == ECH__BASIS_PREDICTED;
    snprintf(out, 400, "%.300s%s%s%s", plot->categories[category], said ? " (" : "",
             said ? ech__basis_name(basis) : "", said ? ")" : "");
}

static double widest_row_name(const ech__plot *plot)
{
    double widest = 0;
    char name[400];
    for (size_t c = 0; c < plot->ncategories; c++) {
        row_name(plot, c, name);
        widest = fmax(widest, ech__plot_width_of(name, ECH__PLOT_FONT));
    }
    return widest;
}

/* ---- layout ---- */

static size_t make_legend(const ech__plot *plot, ech__legend_entry *entries)
{
    if (plot->nseries < 2)
        return 0;
    for (size_t s = 0; s < plot->nseries; s++)
        entries[s] = (ech__legend_entry){.name = plot->series[s].name,
                                         .ink = ech__ink_series(s),
                                         .hatch = (ech__hatch)(s % ECH__HATCH_COUNT),
                                         .marker = -1};
    return plot->nseries;
}

static bool names_above(const ech__plot *plot, double width)
{
    return widest_row_name(plot) > 0.34 * width;
}

static double row_step(const ech__plot *plot, double width)
{
    const double body = is_stacked(plot) ? THICK : THIN * (double)plot->nseries;
    return body + ROW_GAP + (names_above(plot, width) ? NAME_HEIGHT : 0);
}

double ech__plot_bars_height(const ech__plot *plot, double width)
{
    ech__legend_entry entries[ECH__PLOT_MAX_SERIES];
    const size_t count = make_legend(plot, entries);
    return ech__plot_legend_height(entries, count, width) + 4 +
           row_step(plot, width) * (double)plot->ncategories + AXIS_HEIGHT;
}

static double row_total(const ech__plot *plot, size_t category)
{
    double total = 0;
    for (size_t s = 0; s < plot->nseries; s++) {
        const ech__cell *v = &plot->series[s].values[category];
        if (v->kind == ECH__CELL_NUMBER && !isnan(v->value))
            total += v->value;
    }
    return total;
}

static void find_range(const ech__plot *plot, double *low, double *high)
{
    *low = *high = 0;
    for (size_t c = 0; c < plot->ncategories; c++) {
        if (is_stacked(plot))
            *high = fmax(*high, row_total(plot, c));
        for (size_t s = 0; s < plot->nseries && !is_stacked(plot); s++) {
            const ech__cell *v = &plot->series[s].values[c];
            if (v->kind != ECH__CELL_NUMBER || isnan(v->value))
                continue;
            *low = fmin(*low, fmin(v->value, isnan(v->low) ? v->value : v->low));
            *high = fmax(*high, fmax(v->value, isnan(v->high) ? v->value : v->high));
        }
    }
    for (size_t i = 0; i < plot->nmarks; i++) {
        *low = fmin(*low, plot->marks[i].at);
        *high = fmax(*high, plot->marks[i].at);
    }
    *low = isnan(plot->y.min) ? *low : plot->y.min;
    *high = isnan(plot->y.max) ? *high : plot->y.max;
}

/* The widest figure at the end of a bar. */
static double widest_value(const ech__plot *plot)
{
    double widest = 0;
    for (size_t c = 0; c < plot->ncategories; c++) {
        if (is_stacked(plot))
            widest = fmax(widest,
                          ech__plot_width_of(ech__number_text(plot->format, row_total(plot, c)).s,
                                             ECH__PLOT_SMALL));
        for (size_t s = 0; s < plot->nseries && !is_stacked(plot); s++)
            widest =
                fmax(widest, ech__plot_width_of(
                                 ech__number_text(plot->format, plot->series[s].values[c].value).s,
                                 ECH__PLOT_SMALL));
    }
    return widest;
}

static void lay_out(bars *b, ech__area area, double legend)
{
    double low, high;
    b->above = names_above(b->plot, area.width);
    b->step = row_step(b->plot, area.width);
    const double left = b->above ? 2 : widest_row_name(b->plot) + 10;
    const double right = widest_value(b->plot) + 12;
    b->frame.inside =
        (ech__area){area.x + left, area.y + legend + 4, fmax(area.width - left - right, 20),
                    b->step * (double)b->plot->ncategories};
    find_range(b->plot, &low, &high);
    const int want = b->frame.inside.width > 300 ? 7 : 4;
    const bool fixed = !isnan(b->plot->y.min) || !isnan(b->plot->y.max);
    b->frame.x = fixed ? ech__scale_between(ECH__SCALE_LINEAR, low, fmax(low, high), want, false)
                       : ech__scale_over(ECH__SCALE_LINEAR, low, high, want, false);
    ech__scale_place(&b->frame.x, b->frame.inside.x, b->frame.inside.x + b->frame.inside.width);
    b->frame.x_grid = true;
}

/* ---- drawing ---- */

static ech__paint paint_of(const bars *b, size_t series, ech__basis basis)
{
    const ech__ink ink = ech__ink_series(series);
    const bool hollow =
        !is_stacked(b->plot) && (basis == ECH__BASIS_EMULATED || basis == ECH__BASIS_PREDICTED);
    return (ech__paint){.fill = hollow ? ECH__INK_PAPER : ink,
                        .hatch = hollow ? ECH__HATCH_FULL : (ech__hatch)(series % ECH__HATCH_COUNT),
                        .stroke = ink,
                        .width = 1.2,
                        .dash = hollow && basis == ECH__BASIS_PREDICTED ? ECH__DASH_LONG
                                                                        : ECH__DASH_NONE};
}

static void hover_bar(const bars *b, size_t category, size_t series)
{
    const ech__cell *v = &b->plot->series[series].values[category];
    char interval[80] = "";
    if (ech__cell_has_interval(v))
        snprintf(interval, sizeof interval, " (%s to %s)",
                 ech__number_text(b->plot->format, v->low).s,
                 ech__number_text(b->plot->format, v->high).s);
    ech__canvas_hover(b->canvas, "%.150s, %.150s: %s%s%.60s%s%s%s%s%.200s",
                      b->plot->categories[category], b->plot->series[series].name,
                      ech__number_text(b->plot->format, v->value).s, *b->plot->y.unit ? " " : "",
                      b->plot->y.unit, interval, v->basis ? ", " : "", ech__basis_name(v->basis),
                      v->note ? ", " : "", v->note ? v->note : "");
}

static void draw_rect(const bars *b, double from, double to, double y, double height,
                      const ech__paint *paint)
{
    const ech__area *in = &b->frame.inside;
    const double left = fmin(fmax(fmin(from, to), in->x), in->x + in->width);
    const double right = fmin(fmax(fmax(from, to), in->x), in->x + in->width);
    if (right - left < 0.05)
        return;
    ech__canvas_rect(b->canvas, left, y, right - left, height);
    ech__canvas_paint(b->canvas, paint);
}

static void draw_whisker(const bars *b, const ech__cell *v, double y)
{
    const double low = ech__scale_at(&b->frame.x, v->low);
    const double high = ech__scale_at(&b->frame.x, v->high);
    ech__canvas_move(b->canvas, low, y);
    ech__canvas_line(b->canvas, high, y);
    ech__canvas_move(b->canvas, low, y - 3);
    ech__canvas_line(b->canvas, low, y + 3);
    ech__canvas_move(b->canvas, high, y - 3);
    ech__canvas_line(b->canvas, high, y + 3);
    ech__canvas_paint(b->canvas, &(ech__paint){.stroke = ECH__INK_TEXT, .width = 1.2});
}

static void draw_value(const bars *b, double x, double y, double value)
{
    ech__canvas_text(b->canvas, x + 6, y + 3.6, ech__number_text(b->plot->format, value).s,
                     &(ech__text_style){.size = ECH__PLOT_SMALL, .ink = ECH__INK_TEXT});
}

static void draw_group(const bars *b, size_t category, double y)
{
    const double zero = ech__scale_at(&b->frame.x, fmax(b->frame.x.low, 0));
    for (size_t s = 0; s < b->plot->nseries; s++) {
        const ech__cell *v = &b->plot->series[s].values[category];
        const double top = y + THIN * (double)s, middle = top + (THIN - 2) / 2.0;
        if (v->kind != ECH__CELL_NUMBER || isnan(v->value)) {
            ech__canvas_text(
                b->canvas, zero + 6, middle + 3.6, v->note ? v->note : "\xe2\x80\x93",
                &(ech__text_style){.size = ECH__PLOT_SMALL, .ink = ECH__INK_MUTED, .italic = true});
            continue;
        }
        const double end = ech__scale_at(&b->frame.x, v->value);
        const ech__paint paint = paint_of(b, s, v->basis);
        hover_bar(b, category, s);
        draw_rect(b, zero, end, top, THIN - 2, &paint);
        if (ech__cell_has_interval(v))
            draw_whisker(b, v, middle);
        ech__canvas_unhover(b->canvas);
        const double outer =
            ech__cell_has_interval(v) ? fmax(end, ech__scale_at(&b->frame.x, v->high)) : end;
        draw_value(b, fmax(outer, zero), middle, v->value);
    }
}

static void draw_stack(const bars *b, size_t category, double y)
{
    double sum = 0;
    for (size_t s = 0; s < b->plot->nseries; s++) {
        const ech__cell *v = &b->plot->series[s].values[category];
        if (v->kind != ECH__CELL_NUMBER || isnan(v->value))
            continue;
        const ech__paint paint = paint_of(b, s, v->basis);
        hover_bar(b, category, s);
        draw_rect(b, ech__scale_at(&b->frame.x, sum), ech__scale_at(&b->frame.x, sum + v->value), y,
                  THICK, &paint);
        ech__canvas_unhover(b->canvas);
        sum += v->value;
    }
    draw_value(b, ech__scale_at(&b->frame.x, sum), y + THICK / 2.0, sum);
}

static void draw_row(const bars *b, size_t category)
{
    const ech__area *in = &b->frame.inside;
    char name[400];
    const double top = in->y + b->step * (double)category + ROW_GAP / 2.0;
    const double y = top + (b->above ? NAME_HEIGHT : 0);
    const double middle = (y + top + b->step - ROW_GAP) / 2;
    row_name(b->plot, category, name);
    if (b->above)
        ech__canvas_text_within(b->canvas, in->x, top + 10, in->width, name,
                                &(ech__text_style){.size = ECH__PLOT_FONT});
    else
        ech__canvas_text(b->canvas, in->x - 8, middle + 4, name,
                         &(ech__text_style){.size = ECH__PLOT_FONT, .anchor = ECH__END});
    if (is_stacked(b->plot))
        draw_stack(b, category, y);
    else
        draw_group(b, category, y);
}

static void draw_mark(const bars *b, const ech__plot_mark *m)
{
    const ech__area *in = &b->frame.inside;
    const double x = ech__scale_at(&b->frame.x, m->at);
    if (!(x >= in->x - 0.5 && x <= in->x + in->width + 0.5))
        return;
    ech__canvas_move(b->canvas, x, in->y);
    ech__canvas_line(b->canvas, x, in->y + in->height);
    ech__canvas_paint(b->canvas,
                      &(ech__paint){.stroke = ECH__INK_MUTED, .width = 1, .dash = ECH__DASH_SHORT});
    const bool turned = x > in->x + 0.6 * in->width;
    ech__canvas_text(b->canvas, x + (turned ? -4 : 4), in->y + 3, m->label,
                     &(ech__text_style){.size = ECH__PLOT_SMALL,
                                        .ink = ECH__INK_MUTED,
                                        .anchor = turned ? ECH__END : ECH__START});
}

void ech__plot_bars(const ech__plot *plot, ech__canvas *canvas, ech__area area)
{
    ech__legend_entry entries[ECH__PLOT_MAX_SERIES];
    const size_t count = make_legend(plot, entries);
    const ech__axis_title title = ech__plot_axis_title(&plot->y);
    bars b = {.plot = plot, .canvas = canvas, .frame = {.x_title = title.s}};
    ech__plot_legend(canvas, entries, count, area.x, area.y, area.width);
    lay_out(&b, area, ech__plot_legend_height(entries, count, area.width));
    ech__plot_draw_x_axis(canvas, &b.frame);
    for (size_t i = 0; i < plot->nmarks; i++)
        draw_mark(&b, &plot->marks[i]);
    for (size_t c = 0; c < plot->ncategories; c++)
        draw_row(&b, c);
}
