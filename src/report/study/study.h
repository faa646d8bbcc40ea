/* A report as its record files tell it: lab.json, studies/ID.json, and what plots take from run directories.
 *
 *     ech__book *book;
 *     ECH_TRY(ech__book_load(ctx, "reports/quick", &book));
 *     for (size_t i = 0; i < book->nstudies; i++) show(&book->studies[i]);
 *     ech__book_destroy(book);
 *
 * docs/records.md describes the files. In lab.json and the studies a field that is not known is refused, because it is
 * a slip of the writer; in run.json, steps.jsonl and trace.json it is passed over, because they serve others too.
 * Everything belongs to the book.
 */
#pragma once

#include "base/arena.h"
#include "report/plot/plot.h"

enum {
    ECH__BOOK_FORMAT = 1, /* of both files; others are refused */
    ECH__BOOK_MAX_STUDIES = 100,
    ECH__STUDY_MAX_BYTES = 16 << 20, /* of a file */
    ECH__STUDY_MAX_RUNS = 1000,
    ECH__STUDY_MAX_TABLES = 32,
    ECH__STUDY_MAX_COLUMNS = 24,
    ECH__STUDY_MAX_ROWS = 2000,
    ECH__STUDY_MAX_NOTES = 100, /* different ones of a table */
    ECH__STUDY_MAX_PLOTS = 32,
    ECH__STUDY_MAX_ANSWERS = 32,
    ECH__STUDY_MAX_FIGURES = 64,
};

/* A name and what goes with it. */
typedef struct ech__fact {
    const char *name, *value;
} ech__fact;

/* A number of prose, and where it comes from. */
typedef struct ech__figure {
    const char *name;
    ech__cell cell;
    const char *unit; /* "" where there is none */
    ech__number_format format;
    const char *source; /* may be NULL */
} ech__figure;

/* What became of a run. */
#define ECH__RUN_STATUS_LIST(X)                                                                    \
    X(DONE, "done")                                                                                \
    X(REUSED, "reused") /* finished earlier, and taken as it was */                                \
    X(FAILED, "failed")                                                                            \
    X(SKIPPED, "skipped") /* known beforehand not to work: too large, too few devices */

typedef enum ech__run_status {
#define ECH__RUN_STATUS_ENUM(id, text) ECH__RUN_STATUS_##id,
    ECH__RUN_STATUS_LIST(ECH__RUN_STATUS_ENUM)
#undef ECH__RUN_STATUS_ENUM
        ECH__RUN_STATUS_COUNT
} ech__run_status;

const char *ech__run_status_name(ech__run_status status);

typedef struct ech__study_run {
    const char *id, *command;
    const char *record; /* its run directory, from the report's own; NULL: it has none */
    ech__basis basis;
    ech__run_status status;
    const char *reason; /* of one that failed or was skipped, else NULL */
} ech__study_run;

typedef enum ech__align { ECH__ALIGN_LEFT, ECH__ALIGN_CENTER, ECH__ALIGN_RIGHT } ech__align;

typedef struct ech__study_column {
    const char *name, *unit; /* unit "" where there is none */
    ech__align align;
    ech__number_format format;
} ech__study_column;

typedef struct ech__study_table {
    const char *title, *note; /* note may be NULL */
    ech__study_column *columns;
    size_t ncolumns;
    ech__cell *cells; /* [nrows][ncolumns] */
    size_t nrows;
    const char **notes; /* of its cells, each once */
    size_t nnotes;
} ech__study_table;

/* A part of an answer: words, or a figure as it is printed. */
typedef struct ech__answer_piece {
    const char *text;
    const ech__figure *figure; /* NULL: words */
} ech__answer_piece;

typedef struct ech__answer {
    const char *question;
    ech__answer_piece *pieces;
    size_t npieces;
    ech__figure *figures;
    size_t nfigures;
} ech__answer;

typedef struct ech__study {
    const char *id, *title, *about, *command;
    char group;          /* 'A' to 'E' */
    const char *problem; /* what of its records cannot be shown, and why; NULL: all is there */
    bool
        torn; /* its file cannot be read: there is nothing but id, title, about, command and problem */
    ech__study_run *runs;
    size_t nruns;
    ech__study_table *tables;
    size_t ntables;
    ech__plot *plots;
    size_t nplots;
    ech__answer *answers;
    size_t nanswers;
} ech__study;

typedef struct ech__book {
    ech_ctx *ctx;
    ech__arena arena;
    const char *title, *profile, *date, *command, *version;
    ech__fact *machine;
    size_t nmachine;
    int64_t *seeds;
    size_t nseeds;
    ech__figure *noise;
    size_t nnoise;
    const char **order; /* ids of the studies */
    ech__study *studies;
    size_t nstudies;
    const char **problems; /* what of the studies could not be read; they say so themselves too */
    size_t nproblems, problems_room;
} ech__book;

/* Reads lab.json, every study that it names, and the records that their plots are made from. A
 * study whose file cannot be read, and a plot whose records cannot, become a problem, and all
 * others stand. */
ech_status ech__book_load(ech_ctx *ctx, const char *dir, ech__book **out);
void ech__book_destroy(ech__book *book);

/* "Data-parallel benchmark" for 'A'. */
const char *ech__group_title(char group);
/* NULL where the study has no such run. */
const ech__study_run *ech__study_find_run(const ech__study *study, const char *id);

/* ---- texts that are in memory already; what names them in sentences ---- */

ech_status ech__book_create(ech_ctx *ctx, ech__book **out);
ech_status ech__book_parse(ech__book *book, const char *what, const char *text, size_t bytes);
/* Into a study of the book; its id must be the one given. */
ech_status ech__study_parse(ech__book *book, const char *what, const char *text, size_t bytes,
                            const char *id, ech__study *out);
