/* Points over a number: lines, series of steps, speedups beside the ideal. */
#include "report/plot/frame.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LABEL_GAP = 14, MARKED_POINTS = 60, HOVERED_POINTS = 400 };

typedef struct xy {
    const ech__plot *plot;
    ech__canvas *canvas;
    ech__area area;
    ech__plot_frame frame;
    ech__legend_entry entries[ECH__PLOT_MAX_SERIES + 1];
    size_t
        nentries; /* of the legend; 0: labels stand at the ends of lines, or there is nothing to tell */
    bool labelled;  /* at the ends of lines */
    double ceiling; /* what lies above is marked at the upper edge; HUGE_VAL: nothing */
    size_t above;
    double highest;
} xy;

/* ---- which range ---- */

typedef struct range {
    double low, high;
    bool whole; /* only whole numbers were met */
} range;

static void include(range *r, double value, bool is_log)
{
    if (isnan(value) || (is_log && value <= 0))
        return;
    r->low = fmin(r->low, value);
    r->high = fmax(r->high, value);
    r->whole &= value == rint(value);
}

static range range_of_x(const ech__plot *plot)
{
    range r = {HUGE_VAL, -HUGE_VAL, true};
    const bool is_log = plot->x.scale != ECH__SCALE_LINEAR;
    for (size_t s = 0; s < plot->nseries; s++) {
        for (size_t i = 0; i < plot->series[s].count; i++)
            include(&r, plot->series[s].points[i].x, is_log);
    }
    for (size_t i = 0; i < plot->nmarks; i++) {
        if (!plot->marks[i].along_y)
            include(&r, plot->marks[i].at, is_log);
    }
    return r;
}

static range range_of_y(const ech__plot *plot, double ceiling)
{
    range r = {HUGE_VAL, -HUGE_VAL, true};
    const bool is_log = plot->y.scale != ECH__SCALE_LINEAR;
    for (size_t s = 0; s < plot->nseries; s++) {
        for (size_t i = 0; i < plot->series[s].count; i++) {
            const ech__plot_point *p = &plot->series[s].points[i];
            if (p->y > ceiling)
                continue;
            include(&r, p->y, is_log);
            include(&r, p->low, is_log);
            include(&r, p->high, is_log);
        }
    }
    for (size_t i = 0; i < plot->nmarks; i++) {
        if (plot->marks[i].along_y)
            include(&r, plot->marks[i].at, is_log);
    }
    return r;
}

static bool in_band(const ech__plot *plot, double x)
{
    for (size_t i = 0; i < plot->nbands; i++) {
        if (x >= plot->bands[i].from && x <= plot->bands[i].to)
            return true;
    }
    return false;
}

/* A first step that takes ten times as long would press all others flat: what is above three times the mean outside of
 * bands is only marked. */
static void find_ceiling(xy *p)
{
    double sum = 0;
    size_t count = 0;
    p->ceiling = HUGE_VAL;
    if (p->plot->kind != ECH__PLOT_STEPS || p->plot->y.scale != ECH__SCALE_LINEAR)
        return;
    for (size_t s = 0; s < p->plot->nseries; s++) {
        for (size_t i = 0; i < p->plot->series[s].count; i++) {
            const ech__plot_point *q = &p->plot->series[s].points[i];
            if (!isnan(q->y) && !in_band(p->plot, q->x)) {
                sum += q->y;
                count++;
            }
        }
    }
    if (count && sum > 0)
        p->ceiling = 3 * sum / (double)count;
}

static void count_above(xy *p)
{
    for (size_t s = 0; s < p->plot->nseries; s++) {
        for (size_t i = 0; i < p->plot->series[s].count; i++) {
            const double y = p->plot->series[s].points[i].y;
            if (y > p->ceiling) {
                p->above++;
                p->highest = fmax(p->highest, y);
            }
        }
    }
    if (!p->above)
        p->ceiling = HUGE_VAL;
}

/* An end that the record gives stays where it is. */
static ech__plot_scale scale_of(const ech__plot_axis *axis, range r, int want, bool tight)
{
    if (r.low > r.high)
        r = (range){axis->scale == ECH__SCALE_LINEAR ? 0 : 1, 1, false};
    const bool fixed = !isnan(axis->min) || !isnan(axis->max);
    r.low = isnan(axis->min) ? r.low : axis->min;
    r.high = isnan(axis->max) ? r.high : axis->max;
    if (r.low > r.high)
        r.high = r.low;
    return tight || fixed ? ech__scale_between(axis->scale, r.low, r.high, want, r.whole)
                          : ech__scale_over(axis->scale, r.low, r.high, want, r.whole);
}

static double slope_of(const ech__plot *plot)
{
    return plot->ideal > 0 ? plot->ideal : 1;
}

static void find_scales(xy *p)
{
    const ech__plot *plot = p->plot;
    range x = range_of_x(plot), y = range_of_y(plot, p->ceiling);
    if (plot->kind == ECH__PLOT_SPEEDUP && x.low <= x.high) {
        include(&y, slope_of(plot), true);
        include(&y, slope_of(plot) * x.high, true);
    }
    const bool linear = plot->y.scale == ECH__SCALE_LINEAR;
    if (linear && y.low > 0 && (plot->kind != ECH__PLOT_LINES || y.low < 0.5 * y.high))
        y.low = 0;
    y.whole = false;
    const bool tight = plot->kind == ECH__PLOT_STEPS || plot->x.scale == ECH__SCALE_LOG10;
    p->frame.x = scale_of(&plot->x, x, p->area.width > 450 ? 9 : 5, tight);
    p->frame.y = scale_of(&plot->y, y, 6, false);
}

/* ---- names of series ---- */

static ech__dash dash_of(const ech__plot_series *s)
{
    return s->basis == ECH__BASIS_PREDICTED ? ECH__DASH_LONG : ECH__DASH_NONE;
}

static ech__legend_entry entry_of(const ech__plot_series *s, size_t index)
{
    const bool marked = s->count <= MARKED_POINTS;
    return (ech__legend_entry){.name = s->name,
                               .ink = ech__ink_series(index),
                               .is_line = true,
                               .dash = dash_of(s),
                               .marker = marked ? (int)index : -1,
                               .basis = s->basis};
}

static double widest_name(const ech__plot *plot)
{
    double widest = 0;
    for (size_t s = 0; s < plot->nseries; s++)
        widest = fmax(widest, ech__plot_width_of(plot->series[s].name, ECH__PLOT_FONT));
    return widest;
}

/* Names stand at the ends of lines where there is room for them, else in a legend. */
static bool fits_at_ends(const ech__plot *plot, double width)
{
    return plot->nseries > 1 && plot->nseries <= 8 && width >= 420 &&
           widest_name(plot) <= 0.26 * width;
}

static size_t make_legend(const ech__plot *plot, double width, ech__legend_entry *entries)
{
    if (plot->nseries < 2 || fits_at_ends(plot, width))
        return 0;
    for (size_t s = 0; s < plot->nseries; s++)
        entries[s] = entry_of(&plot->series[s], s);
    return plot->nseries;
}

static double body_height(double width)
{
    return fmin(fmax(0.5 * width, 200), 290);
}

double ech__plot_xy_height(const ech__plot *plot, double width)
{
    ech__legend_entry entries[ECH__PLOT_MAX_SERIES + 1];
    const size_t count = make_legend(plot, width, entries);
    return body_height(width) + ech__plot_legend_height(entries, count, width);
}

static void lay_out(xy *p)
{
    const ech__plot *plot = p->plot;
    const ech__area *a = &p->area;
    p->nentries = make_legend(plot, a->width, p->entries);
    p->labelled = fits_at_ends(plot, a->width);
    const double legend = ech__plot_legend_height(p->entries, p->nentries, a->width);
    find_ceiling(p);
    count_above(p);
    find_scales(p);
    double right = p->labelled ? widest_name(plot) + 14 : 14;
    if (plot->kind == ECH__PLOT_SPEEDUP)
        right = fmax(right, ech__plot_width_of("ideal", ECH__PLOT_FONT) + 14);
    const double left = ech__plot_tick_width(&p->frame.y) + 8;
    const double top = legend + 28;
    p->frame.inside = (ech__area){a->x + left, a->y + top, fmax(a->width - left - right, 20),
                                  fmax(a->height - top - 40, 20)};
    const ech__area *in = &p->frame.inside;
    ech__scale_place(&p->frame.x, in->x, in->x + in->width);
    ech__scale_place(&p->frame.y, in->y + in->height, in->y);
}

/* ---- bands and marks ---- */

static double limited(double value, double low, double high)
{
    return fmin(fmax(value, low), high);
}

static void draw_bands(const xy *p)
{
    const ech__area *in = &p->frame.inside;
    for (size_t i = 0; i < p->plot->nbands; i++) {
        const ech__plot_band *b = &p->plot->bands[i];
        const double right = in->x + in->width;
        const double from = limited(ech__scale_at(&p->frame.x, b->from), in->x, right);
        const double to = limited(ech__scale_at(&p->frame.x, b->to), in->x, right);
        if (!(to > from))
            continue;
        ech__canvas_rect(p->canvas, from, in->y, to - from, in->height);
        ech__canvas_paint(p->canvas, &(ech__paint){.fill = ECH__INK_SHADE});
        ech__canvas_text(
            p->canvas, from + 4, in->y + in->height - 5, b->label,
            &(ech__text_style){.size = ECH__PLOT_SMALL, .ink = ECH__INK_MUTED, .italic = true});
    }
}

/* The place of a mark on its axis; false where it lies outside of the plot. */
static bool mark_place(const xy *p, const ech__plot_mark *m, double *at)
{
    const ech__area *in = &p->frame.inside;
    const double low = m->along_y ? in->y : in->x;
    const double high = low + (m->along_y ? in->height : in->width);
    *at = ech__scale_at(m->along_y ? &p->frame.y : &p->frame.x, m->at);
    return *at >= low - 0.5 && *at <= high + 0.5;
}

static void draw_mark(const xy *p, const ech__plot_mark *m)
{
    const ech__area *in = &p->frame.inside;
    const ech__paint paint = {.stroke = ECH__INK_MUTED, .width = 1, .dash = ECH__DASH_SHORT};
    double at;
    if (!mark_place(p, m, &at))
        return;
    ech__canvas_move(p->canvas, m->along_y ? in->x : at, m->along_y ? at : in->y);
    ech__canvas_line(p->canvas, m->along_y ? in->x + in->width : at,
                     m->along_y ? at : in->y + in->height);
    ech__canvas_paint(p->canvas, &paint);
}

/* How far data stay away from a height in the left or the right third of the plot. */
static double room_at(const xy *p, double y, bool right)
{
    const ech__area *in = &p->frame.inside;
    double least = HUGE_VAL;
    for (size_t s = 0; s < p->plot->nseries; s++) {
        for (size_t i = 0; i < p->plot->series[s].count; i++) {
            const ech__plot_point *q = &p->plot->series[s].points[i];
            const double share = (ech__scale_at(&p->frame.x, q->x) - in->x) / in->width;
            const double away = fabs(ech__scale_at(&p->frame.y, q->y) - y);
            if (right ? share > 0.66 : share < 0.34)
                least = fmin(least, away);
        }
    }
    return least;
}

/* On paper of its own, so that it can be read over lines. */
static void draw_mark_label(const xy *p, const ech__plot_mark *m)
{
    const ech__area *in = &p->frame.inside;
    ech__text_style style = {.size = ECH__PLOT_SMALL, .ink = ECH__INK_MUTED};
    const double width = ech__text_width(m->label, &style);
    double at;
    if (!*m->label || !mark_place(p, m, &at))
        return;
    const bool right = m->along_y && room_at(p, at - 6, true) > room_at(p, at - 6, false);
    const bool turned = !m->along_y && at + width + 8 > in->x + in->width;
    const double x = m->along_y ? (right ? in->x + in->width - width - 2 : in->x + 4)
                                : at + (turned ? -4 - width : 4);
    const double y = m->along_y ? at - 4 : in->y + 10;
    ech__canvas_rect(p->canvas, x - 2, y - 9, width + 4, 12);
    ech__canvas_paint(p->canvas, &(ech__paint){.fill = ECH__INK_PAPER});
    ech__canvas_text(p->canvas, x, y, m->label, &style);
}

/* Where the ideal line ends: as far as both axes go. False where there is nothing of it to see. */
static bool ideal_end(const xy *p, double *from, double *to)
{
    const double slope = slope_of(p->plot);
    *from = fmax(fmax(p->frame.x.low, p->frame.y.low / slope), 0);
    *to = fmin(p->frame.x.high, p->frame.y.high / slope);
    return p->plot->kind == ECH__PLOT_SPEEDUP && *to > *from;
}

enum { IDEAL_PIECES = 48 };

static void draw_ideal(const xy *p)
{
    const double slope = slope_of(p->plot);
    double from, to;
    if (!ideal_end(p, &from, &to))
        return;
    const double x = ech__scale_at(&p->frame.x, to), y = ech__scale_at(&p->frame.y, to * slope);
    ech__canvas_move(p->canvas, ech__scale_at(&p->frame.x, from),
                     ech__scale_at(&p->frame.y, from * slope));
    /* Where only one of the axes is logarithmic, it is a curve. */
    const int pieces = p->plot->x.scale == p->plot->y.scale ? 1 : IDEAL_PIECES;
    for (int i = 1; i < pieces; i++) {
        const double at = from + (to - from) * i / pieces;
        ech__canvas_line(p->canvas, ech__scale_at(&p->frame.x, at),
                         ech__scale_at(&p->frame.y, at * slope));
    }
    ech__canvas_line(p->canvas, x, y);
    ech__canvas_paint(
        p->canvas, &(ech__paint){.stroke = ECH__INK_MUTED, .width = 1.2, .dash = ECH__DASH_SHORT});
    if (p->labelled)
        return;
    const bool inside = x < p->frame.inside.x + p->frame.inside.width - 30;
    ech__canvas_text(p->canvas, x + (inside ? 0 : 6), y + (inside ? -6 : 4), "ideal",
                     &(ech__text_style){.size = ECH__PLOT_FONT,
                                        .ink = ECH__INK_MUTED,
                                        .italic = true,
                                        .anchor = inside ? ECH__MIDDLE : ECH__START});
}

/* ---- series ---- */

/* What is too high for the plot stands at its upper edge. */
static double y_of(const xy *p, double value)
{
    return value > p->ceiling ? p->frame.inside.y + 4 : ech__scale_at(&p->frame.y, value);
}

static void draw_line(const xy *p, const ech__plot_series *s, ech__ink ink)
{
    bool drawing = false, any = false;
    for (size_t i = 0; i < s->count; i++) {
        const double x = ech__scale_at(&p->frame.x, s->points[i].x), y = y_of(p, s->points[i].y);
        if (isnan(x) || isnan(y)) {
            drawing = false;
            continue;
        }
        if (drawing)
            ech__canvas_line(p->canvas, x, y);
        else
            ech__canvas_move(p->canvas, x, y);
        drawing = any = true;
    }
    if (any)
        ech__canvas_paint(p->canvas, &(ech__paint){.stroke = ink,
                                                   .width = s->count > MARKED_POINTS ? 1.2 : 1.7,
                                                   .dash = dash_of(s)});
}

static void draw_whisker(const xy *p, const ech__plot_point *q, double x, ech__ink ink)
{
    const double low = ech__scale_at(&p->frame.y, q->low);
    const double high = ech__scale_at(&p->frame.y, q->high);
    if (isnan(low) || isnan(high))
        return;
    ech__canvas_move(p->canvas, x, low);
    ech__canvas_line(p->canvas, x, high);
    ech__canvas_move(p->canvas, x - 4, low);
    ech__canvas_line(p->canvas, x + 4, low);
    ech__canvas_move(p->canvas, x - 4, high);
    ech__canvas_line(p->canvas, x + 4, high);
    ech__canvas_paint(p->canvas, &(ech__paint){.stroke = ink, .width = 1.2});
}

static void hover_point(const xy *p, const ech__plot_series *s, const ech__plot_point *q)
{
    const ech__number_format f = {ECH__NUMBER_GENERAL, 0};
    char interval[96] = "";
    const char *unit = p->plot->y.unit;
    if (!isnan(q->low))
        snprintf(interval, sizeof interval, " (%s to %s)", ech__number_text(f, q->low).s,
                 ech__number_text(f, q->high).s);
    ech__canvas_hover(p->canvas, "%.200s: %.100s %s, %s%s%.60s%s%s%s", s->name, p->plot->x.label,
                      ech__number_text(f, q->x).s, ech__number_text(f, q->y).s, *unit ? " " : "",
                      unit, interval, q->basis ? ", " : "", ech__basis_name(q->basis));
}

static void draw_points(const xy *p, const ech__plot_series *s, size_t index)
{
    const ech__ink ink = ech__ink_series(index);
    const double radius = s->count > 20 ? 2.2 : 3.5;
    for (size_t i = 0; i < s->count && s->count <= HOVERED_POINTS; i++) {
        const ech__plot_point *q = &s->points[i];
        const double x = ech__scale_at(&p->frame.x, q->x), y = y_of(p, q->y);
        if (isnan(x) || isnan(y))
            continue;
        hover_point(p, s, q);
        draw_whisker(p, q, x, ink);
        if (q->y > p->ceiling)
            ech__plot_marker(p->canvas, x, y, 3.2, 2, ink, q->basis);
        else if (s->count <= MARKED_POINTS)
            ech__plot_marker(p->canvas, x, y, radius, (int)index, ink, q->basis);
        else
            ech__plot_marker(p->canvas, x, y, 1, 0, ink, ECH__BASIS_MEASURED);
        ech__canvas_unhover(p->canvas);
    }
}

/* ---- labels at the ends of lines ---- */

typedef struct end_label {
    double x, y; /* of the last point */
    const char *name;
    ech__ink ink;
} end_label;

/* Sorted by height. */
static void add_end(end_label *ends, size_t *count, end_label label)
{
    size_t at = (*count)++;
    for (; at > 0 && ends[at - 1].y > label.y; at--)
        ends[at] = ends[at - 1];
    ends[at] = label;
}

static size_t find_ends(const xy *p, end_label ends[ECH__PLOT_MAX_SERIES + 1])
{
    size_t count = 0;
    double from, to;
    if (ideal_end(p, &from, &to))
        add_end(ends, &count,
                (end_label){ech__scale_at(&p->frame.x, to),
                            ech__scale_at(&p->frame.y, to * slope_of(p->plot)), "ideal",
                            ECH__INK_MUTED});
    for (size_t s = 0; s < p->plot->nseries; s++) {
        const ech__plot_series *series = &p->plot->series[s];
        for (size_t i = series->count; i-- > 0;) {
            const double x = ech__scale_at(&p->frame.x, series->points[i].x);
            const double y = y_of(p, series->points[i].y);
            if (isnan(x) || isnan(y))
                continue;
            add_end(ends, &count, (end_label){x, y, series->name, ech__ink_series(s)});
            break;
        }
    }
    return count;
}

static void draw_end_labels(const xy *p)
{
    end_label ends[ECH__PLOT_MAX_SERIES + 1];
    double places[ECH__PLOT_MAX_SERIES + 1];
    const ech__area *in = &p->frame.inside;
    const size_t count = find_ends(p, ends);
    for (size_t i = 0; i < count; i++)
        places[i] = ends[i].y;
    ech__plot_spread(places, count, LABEL_GAP, in->y, in->y + in->height);
    for (size_t i = 0; i < count; i++) {
        const double x = in->x + in->width + 10;
        if (fabs(places[i] - ends[i].y) > 5 || x - ends[i].x > 24) {
            ech__canvas_move(p->canvas, ends[i].x + 6, ends[i].y);
            ech__canvas_line(p->canvas, x - 2, places[i]);
            ech__canvas_paint(p->canvas, &(ech__paint){.stroke = ECH__INK_GRID, .width = 1});
        }
        ech__canvas_text(p->canvas, x, places[i] + 4, ends[i].name,
                         &(ech__text_style){.size = ECH__PLOT_FONT, .ink = ends[i].ink});
    }
}

/* ---- all of it ---- */

static void draw_above_note(const xy *p)
{
    const ech__area *in = &p->frame.inside;
    const ech__number_format f = {ECH__NUMBER_GENERAL, 0};
    char text[160];
    if (!p->above)
        return;
    snprintf(text, sizeof text, "%zu above the edge, up to %s %.40s", p->above,
             ech__number_text(f, p->highest).s, p->plot->y.unit);
    ech__canvas_text(
        p->canvas, in->x + in->width, in->y - 12, text,
        &(ech__text_style){.size = ECH__PLOT_SMALL, .anchor = ECH__END, .ink = ECH__INK_MUTED});
}

void ech__plot_xy(const ech__plot *plot, ech__canvas *canvas, ech__area area)
{
    xy p = {.plot = plot, .canvas = canvas, .area = area};
    lay_out(&p);
    const ech__axis_title x = ech__plot_axis_title(&plot->x), y = ech__plot_axis_title(&plot->y);
    p.frame.x_title = x.s;
    p.frame.y_title = y.s;
    const ech__area *in = &p.frame.inside;
    ech__plot_legend(canvas, p.entries, p.nentries, area.x, area.y, area.width);
    draw_bands(&p);
    ech__plot_draw_y_axis(canvas, &p.frame);
    ech__plot_draw_x_axis(canvas, &p.frame);
    for (size_t i = 0; i < plot->nmarks; i++)
        draw_mark(&p, &plot->marks[i]);
    draw_ideal(&p);
    ech__canvas_clip(canvas, in->x - 6, in->y - 6, in->width + 12, in->height + 12);
    for (size_t s = 0; s < plot->nseries; s++) {
        if (plot->series[s].has_line)
            draw_line(&p, &plot->series[s], ech__ink_series(s));
    }
    for (size_t s = 0; s < plot->nseries; s++)
        draw_points(&p, &plot->series[s], s);
    ech__canvas_unclip(canvas);
    for (size_t i = 0; i < plot->nmarks; i++)
        draw_mark_label(&p, &plot->marks[i]);
    draw_above_note(&p);
    if (p.labelled)
        draw_end_labels(&p);
}
