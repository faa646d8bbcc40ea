/* The words in which a study tells what came out: tables, plots and answers, as docs/records.md has them.
 *
 *     static void tell(ech__sheet *s)
 *     {
 *         ech__tell_let(s, "speedup2", "fixed2", "steps[n1 time_s] / steps[n2 time_s]");
 *
 *         ech__tell_table(s, "Time per step", NULL);
 *         ech__tell_column(s, "devices", "integer");
 *         ech__tell_column(s, "time/step", "seconds");
 *         for (...) {
 *             ech__tell_row(s);
 *             ech__tell_cell(s, "%" PRId64, n);
 *             ech__tell_cell(s, "steps[n%" PRId64 " time_s]", n);
 *         }
 *
 *         ech__tell_ask(s, "Is the speedup linear?");
 *         ech__tell_say(s, "Two devices are {speedup2} times as fast as one ({speedup2.low} to {speedup2.high}).");
 *         if (ech__tell_side(s, "speedup2", 1.9) < 0)
 *             ech__tell_say(s, "That is clearly less than twice.");
 *     }
 *
 * No number is ever printed into a sentence by a study: it names a figure, the report prints it,
 * and its source is the expression. A run that failed is a missing value, and so is every figure of
 * it: a cell is a dash with a note that says why, a point or a bar is left out and named in the
 * caption, a plot with nothing else is left out and named too, and a sentence with such a figure in
 * it is replaced by "No result: run n8 failed: ...".
 *
 * A format is one of docs/records.md's, and behind a space the unit, if any: "seconds", "bytes", "fixed1 images/s".
 * Expressions are those of lab/expr.h, printf-ed. Everything said belongs to the last table, plot, series or answer
 * that was begun.
 */
#pragma once

#include "lab/expr.h"
#include "lab/study.h"

#define ECH__TELLS(text, first) __attribute__((format(printf, text, first)))

/* ---- what was asked for ---- */

bool ech__tell_quick(const ech__sheet *sheet);
int64_t ech__tell_param(ech__sheet *sheet, const char *name);
size_t ech__tell_devices(const ech__sheet *sheet);
int64_t ech__tell_device(const ech__sheet *sheet, size_t index);
int64_t ech__tell_cores(const ech__sheet *sheet);
/* Whether the run is there and finished. */
bool ech__tell_has(ech__sheet *sheet, const char *run);
/* Whether the study asked for it, or would have if another run had not failed. What is told of a
 * run that was asked for and has no result says why by itself, so a study only checks this for runs
 * that it does not always ask for. */
bool ech__tell_asked(ech__sheet *sheet, const char *run);
/* Whether images are those of CIFAR-10; false: synthetic ones, which answers must say. */
bool ech__tell_real_images(const ech__sheet *sheet);

/* ---- figures ---- */

/* Names a figure for sentences and further expressions of this study. */
ECH__TELLS(4, 5)
ech__lab_figure ech__tell_let(ech__sheet *sheet, const char *name, const char *format,
                              const char *expr, ...);
/* The same without a name, for a choice between sentences. */
ECH__TELLS(2, 3) ech__lab_figure ech__tell_value(ech__sheet *sheet, const char *expr, ...);
/* Where the interval of a named figure lies: -1 below the bound, 1 above it, 0 when it holds the
 * bound or the figure is unknown: then no difference may be claimed. */
int ech__tell_side(ech__sheet *sheet, const char *name, double bound);
/* Names a text of a record, such as a hash or the name of a rank, for sentences. */
void ech__tell_let_text(ech__sheet *sheet, const char *name, const char *run, const char *path);
/* Text of a record, such as a hash; "" where there is none. Lives as long as the sheet. */
const char *ech__tell_text(ech__sheet *sheet, const char *run, const char *path);
/* The record itself for histograms and the like; NULL where there is none. */
const ech_json *ech__tell_record(ech__sheet *sheet, const char *run);

/* ---- tables ---- */

void ech__tell_table(ech__sheet *sheet, const char *title, const char *note);
/* name may have its unit behind a comma in the format: "fixed1 ms". A text column has the format "text". */
void ech__tell_column(ech__sheet *sheet, const char *name, const char *format);
void ech__tell_row(ech__sheet *sheet);
/* The next cell of the row: an expression, with its interval where draws differ. */
ECH__TELLS(2, 3) void ech__tell_cell(ech__sheet *sheet, const char *expr, ...);
/* The same without its interval, where that is clutter. */
ECH__TELLS(2, 3) void ech__tell_plain(ech__sheet *sheet, const char *expr, ...);
ECH__TELLS(2, 3) void ech__tell_words(ech__sheet *sheet, const char *text, ...);
void ech__tell_none(ech__sheet *sheet);
/* A note at the last cell. */
ECH__TELLS(2, 3) void ech__tell_note(ech__sheet *sheet, const char *text, ...);

/* ---- plots ---- */

typedef struct ech__tell_axis {
    const char *label, *unit; /* unit NULL: none */
    const char *scale;        /* NULL: linear; "log2", "log10" */
    double min, max;          /* both 0: as the points want it */
} ech__tell_axis;

/* kind: "lines", "steps", "speedup", "bars", "stacked", "ladder", "histogram", "timeline". */
void ech__tell_plot(ech__sheet *sheet, const char *kind, const char *title, const char *caption);
void ech__tell_x(ech__sheet *sheet, ech__tell_axis axis);
void ech__tell_y(ech__sheet *sheet, ech__tell_axis axis);
/* Format of the numbers at bars: "seconds". */
void ech__tell_bar_format(ech__sheet *sheet, const char *format);
/* A category of bars; all of them before the first series. */
ECH__TELLS(2, 3) void ech__tell_category(ech__sheet *sheet, const char *name, ...);
/* Begins a series. Its clock is that of most of its figures; single points keep their own. */
ECH__TELLS(2, 3) void ech__tell_series(ech__sheet *sheet, const char *name, ...);
/* Dots without a line between them. */
void ech__tell_no_line(ech__sheet *sheet);
/* A point of the series, or the next bar (x is then passed over). Unknown figures are left out, or
 * are gaps among bars. */
ECH__TELLS(3, 4) void ech__tell_point(ech__sheet *sheet, double x, const char *expr, ...);
ECH__TELLS(2, 3) void ech__tell_bar(ech__sheet *sheet, const char *expr, ...);
/* A series of every step of a run (file "steps") or of every epoch ("epochs"), y multiplied by scale. */
typedef struct ech__tell_source {
    const char *run, *file, *x, *y; /* file NULL: steps; x NULL: step */
    double scale;                   /* 0: 1 */
} ech__tell_source;
void ech__tell_from(ech__sheet *sheet, ech__tell_source source);
void ech__tell_band(ech__sheet *sheet, double from, double to, const char *label);
/* A line across the plot; axis 'x' or 'y'. */
void ech__tell_mark(ech__sheet *sheet, char axis, double at, const char *label);
/* One step of a run's trace in a timeline. */
void ech__tell_trace(ech__sheet *sheet, const char *run, const char *label, int64_t step);
/* A panel of a histogram plot. counts is an array of numbers of a record. */
typedef struct ech__tell_panel {
    const char *name, *note; /* note may be NULL */
    double from, to;
    const ech_json *counts;
} ech__tell_panel;
void ech__tell_histogram(ech__sheet *sheet, ech__tell_panel panel);

/* ---- answers ---- */

void ech__tell_ask(ech__sheet *sheet, const char *question);
/* Adds a sentence to the answer; {name} and {name.low}, {name.high} are figures. It is no format: pass digits of
 * the study's set-up through {name} too (ech__tell_let(s, "dim", "integer", "%" PRId64, dim)). */
void ech__tell_say(ech__sheet *sheet, const char *sentence);
/* Begins a new paragraph of the answer. */
void ech__tell_paragraph(ech__sheet *sheet);

/* ---- around it ---- */

/* What a study is told with. Borrowed until destroy. */
typedef struct ech__sheet_options {
    const ech__study_card *card;
    const char *command; /* that repeats the study */
    const ech__lab_result *results;
    size_t count;
    double noise;
    bool quick, real_images;
    const int64_t *devices;
    size_t device_count;
    int64_t cores;
    int64_t (*param)(const void *user,
                     const char *name); /* -1 is never asked for what the card does not have */
    const void *user;
} ech__sheet_options;

/* Calls the card's tell and gives the study as studies/ID.json holds it; the caller destroys it. */
ech_status ech__sheet_tell(ech_ctx *ctx, const ech__sheet_options *options, ech_json **out);
