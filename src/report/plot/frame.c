#include "report/plot/frame.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double ech__plot_width_of(const char *text, double size)
{
    return ech__text_width(text, &(ech__text_style){.size = size});
}

double ech__plot_widest(const char *const *texts, size_t count, double size)
{
    double widest = 0;
    for (size_t i = 0; i < count; i++)
        widest = fmax(widest, ech__plot_width_of(texts[i], size));
    return widest;
}

ech__axis_title ech__plot_axis_title(const ech__plot_axis *axis)
{
    ech__axis_title title;
    if (*axis->unit)
        snprintf(title.s, sizeof title.s, "%s (%s)", axis->label, axis->unit);
    else
        snprintf(title.s, sizeof title.s, "%s", axis->label);
    return title;
}

/* ---- marks of points ---- */

static void form_path(ech__canvas *c, double x, double y, double r, int form)
{
    switch (form % 5) {
    case 0:
        ech__canvas_circle(c, x, y, r);
        return;
    case 1:
        ech__canvas_rect(c, x - 0.88 * r, y - 0.88 * r, 1.76 * r, 1.76 * r);
        return;
    case 2:
        ech__canvas_move(c, x, y - 1.2 * r);
        ech__canvas_line(c, x + 1.1 * r, y + 0.8 * r);
        ech__canvas_line(c, x - 1.1 * r, y + 0.8 * r);
        break;
    case 3:
        ech__canvas_move(c, x, y - 1.25 * r);
        ech__canvas_line(c, x + 1.25 * r, y);
        ech__canvas_line(c, x, y + 1.25 * r);
        ech__canvas_line(c, x - 1.25 * r, y);
        break;
    default:
        ech__canvas_move(c, x, y + 1.2 * r);
        ech__canvas_line(c, x + 1.1 * r, y - 0.8 * r);
        ech__canvas_line(c, x - 1.1 * r, y - 0.8 * r);
    }
    ech__canvas_close(c);
}

void ech__plot_marker(ech__canvas *c, double x, double y, double radius, int form, ech__ink ink,
                      ech__basis basis)
{
    const bool hollow = basis == ECH__BASIS_EMULATED || basis == ECH__BASIS_PREDICTED;
    form_path(c, x, y, basis == ECH__BASIS_PREDICTED ? 0.7 * radius : radius, form);
    ech__canvas_paint(
        c, &(ech__paint){.fill = hollow ? ECH__INK_PAPER : ink, .stroke = ink, .width = 1.4});
}

/* ---- legends ---- */

enum { ENTRY_HEIGHT = 18, SWATCH = 22, SWATCH_GAP = 6, ENTRY_GAP = 18 };

/* Where entry `index` stands, from the corner of the legend; entries wrap like words. */
static void entry_place(const ech__legend_entry *entries, size_t index, double width, double *x,
                        double *y)
{
    *x = *y = 0;
    for (size_t i = 0;; i++) {
        const double own =
            SWATCH + SWATCH_GAP + ech__plot_width_of(entries[i].name, ECH__PLOT_FONT);
        if (*x > 0 && *x + own > width) {
            *x = 0;
            *y += ENTRY_HEIGHT;
        }
        if (i == index)
            return;
        *x += own + ENTRY_GAP;
    }
}

double ech__plot_legend_height(const ech__legend_entry *entries, size_t count, double width)
{
    double x, y;
    if (!count)
        return 0;
    entry_place(entries, count - 1, width, &x, &y);
    return y + ENTRY_HEIGHT + 4;
}

static void draw_swatch(ech__canvas *c, const ech__legend_entry *e, double x, double y)
{
    if (!e->is_line) {
        ech__canvas_rect(c, x + 4, y - 6, SWATCH - 6, 12);
        ech__canvas_paint(
            c, &(ech__paint){.fill = e->ink, .hatch = e->hatch, .stroke = e->ink, .width = 1});
        return;
    }
    ech__canvas_move(c, x, y);
    ech__canvas_line(c, x + SWATCH, y);
    ech__canvas_paint(c, &(ech__paint){.stroke = e->ink, .width = 1.8, .dash = e->dash});
    if (e->marker >= 0)
        ech__plot_marker(c, x + SWATCH / 2.0, y, 3.5, e->marker, e->ink, e->basis);
}

void ech__plot_legend(ech__canvas *c, const ech__legend_entry *entries, size_t count, double x,
                      double y, double width)
{
    for (size_t i = 0; i < count; i++) {
        double dx, dy;
        entry_place(entries, i, width, &dx, &dy);
        draw_swatch(c, &entries[i], x + dx, y + dy + ENTRY_HEIGHT / 2.0);
        ech__canvas_text_within(c, x + dx + SWATCH + SWATCH_GAP, y + dy + ENTRY_HEIGHT / 2.0 + 4,
                                width - dx - SWATCH - SWATCH_GAP, entries[i].name,
                                &(ech__text_style){.size = ECH__PLOT_FONT});
    }
}

/* ---- axes ---- */

double ech__plot_tick_width(const ech__plot_scale *scale)
{
    double widest = 0;
    for (size_t i = 0; i < scale->nticks; i++)
        widest = fmax(widest, ech__plot_width_of(ech__scale_tick(scale, i).s, ECH__PLOT_SMALL));
    return widest;
}

static const ech__paint grid_paint = {.stroke = ECH__INK_GRID, .width = 1};
static const ech__paint axis_paint = {.stroke = ECH__INK_AXIS, .width = 1};

void ech__plot_draw_x_axis(ech__canvas *c, const ech__plot_frame *f)
{
    const ech__area *a = &f->inside;
    const double bottom = a->y + a->height;
    const ech__text_style tick = {
        .size = ECH__PLOT_SMALL, .anchor = ECH__MIDDLE, .ink = ECH__INK_MUTED};
    const ech__text_style title = {
        .size = ECH__PLOT_FONT, .anchor = ECH__MIDDLE, .ink = ECH__INK_TEXT};
    for (size_t i = 0; i < f->x.nticks; i++) {
        const double x = ech__scale_at(&f->x, f->x.ticks[i]);
        ech__canvas_move(c, x, f->x_grid ? a->y : bottom);
        ech__canvas_line(c, x, bottom + (f->x_grid ? 0 : 4));
        ech__canvas_paint(c, f->x_grid ? &grid_paint : &axis_paint);
        ech__canvas_text(c, x, bottom + 15, ech__scale_tick(&f->x, i).s, &tick);
    }
    if (!f->x_grid) {
        ech__canvas_move(c, a->x, bottom);
        ech__canvas_line(c, a->x + a->width, bottom);
        ech__canvas_paint(c, &axis_paint);
    }
    if (f->x_title)
        ech__canvas_text_within(c, a->x + a->width / 2, bottom + 32, a->width + 40, f->x_title,
                                &title);
}

void ech__plot_draw_y_axis(ech__canvas *c, const ech__plot_frame *f)
{
    const ech__area *a = &f->inside;
    const ech__text_style tick = {
        .size = ECH__PLOT_SMALL, .anchor = ECH__END, .ink = ECH__INK_MUTED};
    const ech__text_style title = {.size = ECH__PLOT_FONT, .ink = ECH__INK_TEXT};
    double left = a->x;
    for (size_t i = 0; i < f->y.nticks; i++) {
        const double y = ech__scale_at(&f->y, f->y.ticks[i]);
        ech__canvas_move(c, a->x, y);
        ech__canvas_line(c, a->x + a->width, y);
        ech__canvas_paint(c, &grid_paint);
        ech__canvas_text(c, a->x - 7, y + 3.6, ech__scale_tick(&f->y, i).s, &tick);
    }
    left -= 7 + ech__plot_tick_width(&f->y);
    if (f->y_title)
        ech__canvas_text_within(c, left, a->y - 12, a->x + a->width - left, f->y_title, &title);
}

/* ---- labels ---- */

void ech__plot_spread(double *places, size_t count, double gap, double low, double high)
{
    for (size_t i = 0; i < count; i++) {
        places[i] = fmin(fmax(places[i], low), high);
        if (i && places[i] < places[i - 1] + gap)
            places[i] = places[i - 1] + gap;
    }
    double limit = high;
    for (size_t i = count; i-- > 0;) {
        places[i] = fmin(places[i], limit);
        limit = places[i] - gap;
    }
}
