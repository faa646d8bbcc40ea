/* Plots: what they show, as records hold it, and how they are drawn on any canvas.
 *
 *     double height = ech__plot_height(&plot, 480);
 *     ech__plot_draw(&plot, canvas, (ech__area){0, 0, 480, height});
 *
 * A plot borrows all its strings and arrays. Drawing allocates nothing: the limits below bound what it needs.
 * Filled marks are measured, hollow ones emulated, dashed lines and outlines predicted.
 */
#pragma once

#include "report/plot/canvas.h"
#include "report/plot/figure.h"

enum {
    ECH__PLOT_MAX_SERIES = 12,
    ECH__PLOT_MAX_CATEGORIES = 64,
    ECH__PLOT_MAX_PANELS = 24,
    ECH__PLOT_MAX_MARKS = 16,
    ECH__PLOT_MAX_TRACES = 6,
    ECH__PLOT_MAX_LANES = 64, /* of a trace */
    ECH__PLOT_MAX_POINTS = 100000,
    ECH__PLOT_MAX_BINS = 1000,
};

/* Kind in records and the family that draws it. */
#define ECH__PLOT_LIST(X)                                                                          \
    X(LINES, "lines")     /* points over a number */                                               \
    X(STEPS, "steps")     /* as lines, from zero up; what is far above is marked at the edge */    \
    X(SPEEDUP, "speedup") /* as lines, beside the ideal line y = x */                              \
    X(BARS, "bars")       /* a group of bars for each category */                                  \
    X(STACKED, "stacked") /* one bar for each category, made of the series' parts */               \
    X(LADDER, "ladder")   /* a dot with its interval for each category */                          \
    X(HISTOGRAM, "histogram") /* a panel for each distribution */                                  \
    X(TIMELINE, "timeline")   /* who did what when, from traces */

typedef enum ech__plot_kind {
#define ECH__PLOT_ENUM(id, text) ECH__PLOT_##id,
    ECH__PLOT_LIST(ECH__PLOT_ENUM)
#undef ECH__PLOT_ENUM
        ECH__PLOT_COUNT
} ech__plot_kind;

const char *ech__plot_kind_name(ech__plot_kind kind);

#define ECH__SCALE_LIST(X)                                                                         \
    X(LINEAR, "linear")                                                                            \
    X(LOG2, "log2")                                                                                \
    X(LOG10, "log10")

typedef enum ech__scale_kind {
#define ECH__SCALE_ENUM(id, text) ECH__SCALE_##id,
    ECH__SCALE_LIST(ECH__SCALE_ENUM)
#undef ECH__SCALE_ENUM
        ECH__SCALE_COUNT
} ech__scale_kind;

typedef struct ech__plot_axis {
    const char *label, *unit; /* "" where there is none */
    ech__scale_kind scale;
    double min, max; /* NAN: as the data are */
} ech__plot_axis;

typedef struct ech__plot_point {
    double x, y, low, high; /* y NAN: a gap; low and high NAN: no interval */
    ech__basis basis;
} ech__plot_point;

/* Where the points of a series or the spans of a timeline are read from. */
typedef struct ech__plot_from {
    const char *run; /* id; NULL: the points stand in the record */
    bool epochs;     /* of run.json; else the lines of steps.jsonl */
    const char *x, *y;
    double scale; /* y is multiplied by it */
} ech__plot_from;

typedef struct ech__plot_series {
    const char *name;
    ech__basis basis;
    bool has_line; /* of lines and their like: points are joined */
    ech__plot_from from;
    ech__plot_point *points; /* of lines and their like */
    size_t count;
    ech__cell *values; /* [categories] of bars, stacked and ladder */
} ech__plot_series;

typedef struct ech__plot_band {
    double from, to; /* along x */
    const char *label;
} ech__plot_band;

/* A line across the plot at one place. */
typedef struct ech__plot_mark {
    bool along_y; /* at a place of the y axis */
    double at;
    const char *label;
} ech__plot_mark;

typedef struct ech__plot_panel {
    const char *name, *note; /* note may be NULL */
    double from, to;         /* ends of the range; bins are equally wide */
    double *counts;
    size_t bins;
    ech__plot_mark *marks;
    size_t nmarks;
} ech__plot_panel;

/* A bar of a timeline; times in seconds from the start of what is shown. */
typedef struct ech__plot_span {
    double start, end;
    const char *name;
    const char *category;
    int lane, level; /* level 0 is outermost */
} ech__plot_span;

typedef struct ech__plot_trace {
    const char *run, *label;
    int64_t step; /* which is shown */
    const char **lanes;
    int *levels; /* of each lane, from 1 */
    size_t nlanes;
    ech__plot_span *spans;
    size_t count;
    double seconds; /* length of the step */
} ech__plot_trace;

typedef struct ech__plot {
    ech__plot_kind kind;
    const char *title, *caption; /* caption may be NULL */
    ech__plot_axis x, y;         /* bars, stacked and ladder: y is the axis of values */
    ech__plot_series *series;
    size_t nseries;
    const char **categories;
    size_t ncategories;
    ech__number_format format; /* of values beside bars and dots */
    double ideal;              /* of speedup: the ideal line is y = ideal * x; 0 stands for 1 */
    ech__plot_band *bands;
    size_t nbands;
    ech__plot_mark *marks;
    size_t nmarks;
    ech__plot_panel *panels;
    size_t npanels;
    ech__plot_trace *traces;
    size_t ntraces;
    const char **runs; /* ids of the runs behind it */
    size_t nruns;
} ech__plot;

typedef struct ech__area {
    double x, y, width, height;
} ech__area;

/* What a plot of that width needs. */
double ech__plot_height(const ech__plot *plot, double width);
void ech__plot_draw(const ech__plot *plot, ech__canvas *canvas, ech__area area);
/* One sentence on how to tell measured, emulated and predicted apart, for what is in it; "" where all is measured or
 * nothing is said. */
const char *ech__plot_basis_text(const ech__plot *plot);
