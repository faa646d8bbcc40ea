/* Who did what when: one step of one or several traces, over the same axis of time. */
#include "report/plot/frame.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BAR = 14, LANE_GAP = 7, HEAD = 24, NAME_HEIGHT = 13, AXIS_HEIGHT = 42 };

/* What categories of spans look like; the last row is for all others. */
static const struct {
    const char *category, *name;
    ech__ink ink;
    ech__hatch hatch;
} kinds[] = {
    {"forward", "forward", ECH__INK_SERIES1, ECH__HATCH_FULL},
    {"backward", "backward", ECH__INK_SERIES2, ECH__HATCH_FULL},
    {"optimizer", "optimizer", ECH__INK_SERIES3, ECH__HATCH_RISING},
    {"exchange", "exchange", ECH__INK_SERIES4, ECH__HATCH_CROSS},
    {"allreduce", "all-reduce", ECH__INK_SERIES4, ECH__HATCH_FALLING},
    {"transfer", "transfer", ECH__INK_SERIES5, ECH__HATCH_FALLING},
    {"wait", "waits", ECH__INK_SERIES7, ECH__HATCH_DOTS},
    {"part", "part of the step", ECH__INK_SERIES6, ECH__HATCH_RISING},
    {"refresh", "refresh", ECH__INK_SERIES3, ECH__HATCH_DOTS},
    {"", "other", ECH__INK_SERIES7, ECH__HATCH_FULL},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

static size_t kind_of(const ech__plot_span *span)
{
    size_t k = 0;
    while (k < KINDS - 1 && strcmp(span->category, kinds[k].category) != 0)
        k++;
    return k;
}

/* ---- layout ---- */

static size_t make_legend(const ech__plot *plot, ech__legend_entry entries[KINDS])
{
    bool met[KINDS] = {false};
    size_t count = 0;
    for (size_t t = 0; t < plot->ntraces; t++) {
        for (size_t i = 0; i < plot->traces[t].count; i++)
            met[kind_of(&plot->traces[t].spans[i])] = true;
    }
    for (size_t k = 0; k < KINDS; k++) {
        if (met[k])
            entries[count++] = (ech__legend_entry){
                .name = kinds[k].name, .ink = kinds[k].ink, .hatch = kinds[k].hatch, .marker = -1};
    }
    return count;
}

static double widest_lane(const ech__plot *plot)
{
    double widest = 0;
    for (size_t t = 0; t < plot->ntraces; t++)
        widest = fmax(widest, ech__plot_widest(plot->traces[t].lanes, plot->traces[t].nlanes,
                                               ECH__PLOT_SMALL));
    return widest;
}

static bool names_above(const ech__plot *plot, double width)
{
    return widest_lane(plot) > 0.22 * width;
}

static double lane_height(const ech__plot_trace *trace, size_t lane, bool above)
{
    return (double)BAR * trace->levels[lane] + LANE_GAP + (above ? NAME_HEIGHT : 0);
}

double ech__plot_timeline_height(const ech__plot *plot, double width)
{
    ech__legend_entry entries[KINDS];
    const size_t count = make_legend(plot, entries);
    const bool above = names_above(plot, width);
    double height = ech__plot_legend_height(entries, count, width) + AXIS_HEIGHT;
    for (size_t t = 0; t < plot->ntraces; t++) {
        height += HEAD;
        for (size_t l = 0; l < plot->traces[t].nlanes; l++)
            height += lane_height(&plot->traces[t], l, above);
    }
    return height;
}

/* ---- drawing ---- */

typedef struct timeline {
    const ech__plot *plot;
    ech__canvas *canvas;
    ech__plot_frame frame;
    double unit; /* seconds to what the axis counts in */
    bool above;
} timeline;

/* Spans that follow each other without a gap that could be seen are one bar. */
typedef struct bar {
    const ech__plot_span *first, *last;
    size_t count;
    double end;
} bar;

static bool joins(const timeline *t, const bar *s, const ech__plot_span *next)
{
    const ech__plot_span *last = s->last;
    if (last->lane != next->lane || last->level != next->level || kind_of(last) != kind_of(next))
        return false;
    const double gap = ech__scale_at(&t->frame.x, next->start * t->unit) -
                       ech__scale_at(&t->frame.x, s->end * t->unit);
    const double width = ech__scale_at(&t->frame.x, next->end * t->unit) -
                         ech__scale_at(&t->frame.x, next->start * t->unit);
    return gap < 0.5 && width < 1.5;
}

static void draw_bar(const timeline *t, const bar *s, double top)
{
    const size_t k = kind_of(s->first);
    const double left = ech__scale_at(&t->frame.x, s->first->start * t->unit);
    const double right = ech__scale_at(&t->frame.x, s->end * t->unit);
    const double y = top + BAR * (double)s->first->level;
    char many[48] = "";
    if (s->count > 1)
        snprintf(many, sizeof many, " and %zu more", s->count - 1);
    ech__canvas_hover(t->canvas, "%.200s%s: %s, from %s", s->first->name, many,
                      ech__format_seconds(s->end - s->first->start).s,
                      ech__format_seconds(s->first->start).s);
    ech__canvas_rect(t->canvas, left, y, fmax(right - left, 0.4), BAR - 2);
    ech__canvas_paint(t->canvas,
                      &(ech__paint){.fill = kinds[k].ink,
                                    .hatch = kinds[k].hatch,
                                    .stroke = right - left > 3 ? ECH__INK_PAPER : ECH__INK_NONE,
                                    .width = 0.6});
    const ech__text_style style = {.size = 8.5, .ink = ECH__INK_PAPER, .anchor = ECH__MIDDLE};
    if (s->count == 1 && kinds[k].hatch == ECH__HATCH_FULL &&
        ech__text_width(s->first->name, &style) < right - left - 6)
        ech__canvas_text(t->canvas, (left + right) / 2, y + 9, s->first->name, &style);
    ech__canvas_unhover(t->canvas);
}

/* The spans of one lane, which lie one behind the other, sorted by time but not by level. */
static void draw_level(const timeline *t, const ech__plot_trace *trace, int lane, int level,
                       double top)
{
    bar s = {0};
    for (size_t i = 0; i < trace->count; i++) {
        const ech__plot_span *span = &trace->spans[i];
        if (span->lane != lane || span->level != level)
            continue;
        if (s.count && joins(t, &s, span)) {
            s.last = span;
            s.count++;
            s.end = fmax(s.end, span->end);
            continue;
        }
        if (s.count)
            draw_bar(t, &s, top);
        s = (bar){span, span, 1, span->end};
    }
    if (s.count)
        draw_bar(t, &s, top);
}

static double draw_lane(const timeline *t, const ech__plot_trace *trace, size_t lane, double y)
{
    const ech__area *in = &t->frame.inside;
    const double top = y + (t->above ? NAME_HEIGHT : 0);
    const double height = (double)BAR * trace->levels[lane] - 2;
    if (t->above)
        ech__canvas_text(t->canvas, in->x, y + 9, trace->lanes[lane],
                         &(ech__text_style){.size = ECH__PLOT_SMALL, .ink = ECH__INK_MUTED});
    else
        ech__canvas_text(t->canvas, in->x - 8, top + height / 2 + 3.6, trace->lanes[lane],
                         &(ech__text_style){.size = ECH__PLOT_SMALL, .anchor = ECH__END});
    ech__canvas_rect(t->canvas, in->x, top, in->width, height);
    ech__canvas_paint(t->canvas, &(ech__paint){.fill = ECH__INK_SHADE});
    for (int level = 0; level < trace->levels[lane]; level++)
        draw_level(t, trace, (int)lane, level, top);
    return y + lane_height(trace, lane, t->above);
}

static void draw_trace(const timeline *t, const ech__plot_trace *trace, double *y)
{
    const ech__area *in = &t->frame.inside;
    char text[480];
    snprintf(text, sizeof text, "%.300s: %s", trace->label, ech__format_seconds(trace->seconds).s);
    ech__canvas_text(t->canvas, in->x, *y + 15, text,
                     &(ech__text_style){.size = ECH__PLOT_FONT, .bold = true});
    *y += HEAD;
    const double top = *y;
    for (size_t lane = 0; lane < trace->nlanes; lane++)
        *y = draw_lane(t, trace, lane, *y);
    const double end = ech__scale_at(&t->frame.x, trace->seconds * t->unit);
    ech__canvas_move(t->canvas, end, top - 3);
    ech__canvas_line(t->canvas, end, *y - LANE_GAP + 3);
    ech__canvas_paint(t->canvas, &(ech__paint){.stroke = ECH__INK_TEXT, .width = 1});
}

void ech__plot_timeline(const ech__plot *plot, ech__canvas *canvas, ech__area area)
{
    ech__legend_entry entries[KINDS];
    const size_t count = make_legend(plot, entries);
    double longest = 0;
    for (size_t t = 0; t < plot->ntraces; t++)
        longest = fmax(longest, plot->traces[t].seconds);
    timeline t = {.plot = plot, .canvas = canvas, .above = names_above(plot, area.width)};
    const bool seconds = longest >= 2, micro = longest < 2e-3;
    t.unit = seconds ? 1 : micro ? 1e6 : 1e3;
    const double left = t.above ? 4 : widest_lane(plot) + 12;
    const double legend = ech__plot_legend_height(entries, count, area.width);
    t.frame.inside = (ech__area){area.x + left, area.y + legend, fmax(area.width - left - 8, 20),
                                 area.height - legend - AXIS_HEIGHT};
    t.frame.x_title = seconds ? "Time in the step (s)"
                      : micro ? "Time in the step (\xc2\xb5s)"
                              : "Time in the step (ms)";
    t.frame.x =
        ech__scale_between(ECH__SCALE_LINEAR, 0, longest * t.unit, area.width > 450 ? 9 : 5, false);
    ech__scale_place(&t.frame.x, t.frame.inside.x, t.frame.inside.x + t.frame.inside.width);
    ech__plot_legend(canvas, entries, count, area.x, area.y, area.width);
    ech__plot_draw_x_axis(canvas, &t.frame);
    double y = t.frame.inside.y;
    for (size_t i = 0; i < plot->ntraces; i++)
        draw_trace(&t, &plot->traces[i], &y);
}
