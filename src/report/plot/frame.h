/* What the plots share: axes, legends, marks, labels at the ends of lines. Only for plot*.c. */
#pragma once

#include "report/plot/scale.h"

/* Sizes of text. */
#define ECH__PLOT_FONT 11.0
#define ECH__PLOT_SMALL 10.0

/* "Time per step (ms)". */
typedef struct ech__axis_title {
    char s[640];
} ech__axis_title;
ech__axis_title ech__plot_axis_title(const ech__plot_axis *axis);

/* How an entry of a legend looks. */
typedef struct ech__legend_entry {
    const char *name;
    ech__ink ink;
    ech__hatch hatch;
    bool is_line; /* else a filled square */
    ech__dash dash;
    int marker; /* of a line: as in ech__plot_marker; -1: none */
    ech__basis basis;
} ech__legend_entry;

/* Rows of a legend as high as this, in a width; count may be 0. */
double ech__plot_legend_height(const ech__legend_entry *entries, size_t count, double width);
void ech__plot_legend(ech__canvas *canvas, const ech__legend_entry *entries, size_t count, double x,
                      double y, double width);

/* The mark of a point: its form by number, filled, hollow or small by basis. */
void ech__plot_marker(ech__canvas *canvas, double x, double y, double radius, int form,
                      ech__ink ink, ech__basis basis);

/* Grid lines, ticks and titles around a frame. The title of y stands above its axis, that of x below. */
typedef struct ech__plot_frame {
    ech__area inside;
    ech__plot_scale x, y;
    const char *x_title, *y_title;
    bool y_grid, x_grid;
} ech__plot_frame;

/* The widest label of a scale's ticks. */
double ech__plot_tick_width(const ech__plot_scale *scale);
/* Grid and numbers along x, at the bottom. */
void ech__plot_draw_x_axis(ech__canvas *canvas, const ech__plot_frame *frame);
void ech__plot_draw_y_axis(ech__canvas *canvas, const ech__plot_frame *frame);

/* Moves labels, sorted by place, apart so that they are at least `gap` from each other and stay between the ends. */
void ech__plot_spread(double *places, size_t count, double gap, double low, double high);

/* The widest of some texts. */
double ech__plot_widest(const char *const *texts, size_t count, double size);
double ech__plot_width_of(const char *text, double size);

/* ---- the families ---- */

double ech__plot_xy_height(const ech__plot *plot, double width);
void ech__plot_xy(const ech__plot *plot, ech__canvas *canvas, ech__area area);
double ech__plot_bars_height(const ech__plot *plot, double width);
void ech__plot_bars(const ech__plot *plot, ech__canvas *canvas, ech__area area);
double ech__plot_ladder_height(const ech__plot *plot, double width);
void ech__plot_ladder(const ech__plot *plot, ech__canvas *canvas, ech__area area);
double ech__plot_histogram_height(const ech__plot *plot, double width);
void ech__plot_histogram(const ech__plot *plot, ech__canvas *canvas, ech__area area);
double ech__plot_timeline_height(const ech__plot *plot, double width);
void ech__plot_timeline(const ech__plot *plot, ech__canvas *canvas, ech__area area);
