/* The parts of a sheet, each written in a file of its own. Only for sheet*.c. */
#pragma once

#include "lab/facts.h"
#include "lab/sheet.h"

enum { ECH__SHEET_LINE = 300, ECH__SHEET_TEXT = 20000 }; /* bytes that a report takes of a string */

/* "fixed1 ms" taken apart. unit "" where there is none. */
typedef struct ech__sheet_format {
    const char *format, *unit;
} ech__sheet_format;

/* A figure that sentences may name. Numbers are definitions of the facts; texts are here. */
typedef struct ech__sheet_name {
    const char *name;
    ech__sheet_format format;
    bool is_text;
    const char *text;   /* NULL where the record has none */
    const char *source; /* of a text */
    const char *reason; /* why there is no text */
    ech__lab_basis basis;
} ech__sheet_name;

/* ---- tables ---- */

typedef struct ech__sheet_column {
    const char *name;
    ech__sheet_format format;
    bool is_text;
} ech__sheet_column;

typedef struct ech__sheet_cell {
    enum { ECH__SHEET_NONE, ECH__SHEET_WORDS, ECH__SHEET_FIGURE, ECH__SHEET_PLAIN } kind;
    ech__lab_figure figure;
    const char *text, *note;
} ech__sheet_cell;

typedef struct ech__sheet_table {
    const char *title, *note; /* title NULL: no table was begun */
    ech__sheet_column *columns;
    ech__sheet_cell *cells;
    size_t ncolumns, ncells, nrows, columns_capacity, cells_capacity;
} ech__sheet_table;

/* ---- plots ---- */

typedef enum ech__sheet_plot_class {
    ECH__SHEET_XY,
    ECH__SHEET_BARS,
    ECH__SHEET_PANELS,
    ECH__SHEET_TRACES,
} ech__sheet_plot_class;

typedef struct ech__sheet_point {
    double x;
    ech__lab_figure figure;
} ech__sheet_point;

typedef struct ech__sheet_series {
    const char *name;
    bool no_line, has_from, from_missing;
    ech__tell_source from;
    ech__lab_basis from_basis;
    ech__sheet_point *points;
    size_t npoints, capacity;
} ech__sheet_series;

typedef struct ech__sheet_plot {
    const char *title, *kind, *caption; /* title NULL: no plot was begun */
    ech__sheet_plot_class class;
    bool stacked;
    ech__tell_axis x, y; /* label NULL: not given */
    const char *format;
    const char **categories;
    ech__sheet_series *series;
    const char **runs;    /* ids, each once */
    const char **missing; /* why something is left out, each reason once */
    size_t ncategories, nseries, nruns, nmissing;
    size_t categories_capacity, series_capacity, runs_capacity, missing_capacity;
    ech_json *bands, *marks, *traces, *panels; /* arrays */
} ech__sheet_plot;

/* ---- answers ---- */

/* A figure of an answer. */
typedef struct ech__sheet_mention {
    const char *name;
    bool interval; /* its ends are named too */
} ech__sheet_mention;

typedef struct ech__sheet_answer {
    const char *question; /* NULL: none was begun */
    const char *text;
    bool paragraph; /* the next sentence begins one */
    ech__sheet_mention *mentions;
    const char **reasons; /* that were given */
    size_t nmentions, nreasons, mentions_capacity, reasons_capacity;
} ech__sheet_answer;

struct ech__sheet {
    ech_ctx *ctx;
    ech__arena arena;
    const ech__sheet_options *options;
    ech__lab_facts *facts;
    ech_status status; /* the first error stays, and nothing is done after it */
    ech__sheet_name *names;
    size_t nnames, names_capacity;
    ech__sheet_table table;
    ech__sheet_plot plot;
    ech__sheet_answer answer;
    ech_json *tables, *plots, *answers; /* what is finished */
    ech_json *missing;                  /* plots that are left out, and why: texts */
};

/* ---- sheet.c ---- */

/* Keeps the first error. Returns false. */
bool ech__sheet_fail(ech__sheet *sheet, ech_status status);
__attribute__((format(printf, 2, 3))) bool ech__sheet_wrong(ech__sheet *sheet, const char *fmt,
                                                            ...);
/* One more element fits behind used; else the sheet has failed. */
bool ech__sheet_grow(ech__sheet *sheet, void *array, size_t used, size_t *capacity, size_t size);
/* Text that a report takes: no control characters, at most so many bytes, the rest cut off. */
const char *ech__sheet_line(ech__sheet *sheet, const char *text, size_t most);
const char *ech__sheet_print(ech__sheet *sheet, const char *fmt, va_list args)
    __attribute__((format(printf, 2, 0)));
/* An expression, printed and computed. False where the sheet has failed. */
bool ech__sheet_eval(ech__sheet *sheet, const char *expr, va_list args, ech__lab_figure *out)
    __attribute__((format(printf, 2, 0)));
bool ech__sheet_split(ech__sheet *sheet, const char *format, ech__sheet_format *out);
/* NULL where sentences cannot name it. */
const ech__sheet_name *ech__sheet_find(const ech__sheet *sheet, const char *name, size_t length);
/* Whether the interval says something. */
bool ech__sheet_has_interval(const ech__lab_figure *figure);

/* ---- sheet_table.c, sheet_plot.c, sheet_answer.c: what was begun last is added to what is finished ---- */

void ech__sheet_end_table(ech__sheet *sheet);
void ech__sheet_end_plot(ech__sheet *sheet);
void ech__sheet_end_answer(ech__sheet *sheet);
