/* Figures: numbers that say how they came about, and how they are printed.
 *
 *     ech__number_format f;
 *     ECH_TRY(ech__number_format_parse(ctx, "fixed2", &f));
 *     ech__number_text(f, 1.8231).s                               "1.82"
 */
#pragma once

#include "base/format.h"
#include "base/status.h"

/* How a figure came about: id, its word in records, its mark in tables. */
#define ECH__BASIS_LIST(X)                                                                         \
    X(UNSAID, "", "")                                                                              \
    X(MEASURED, "measured", "")                                                                    \
    X(EMULATED, "emulated", "e")                                                                   \
    X(PREDICTED, "predicted", "p")

typedef enum ech__basis {
#define ECH__BASIS_ENUM(id, text, mark) ECH__BASIS_##id,
    ECH__BASIS_LIST(ECH__BASIS_ENUM)
#undef ECH__BASIS_ENUM
        ECH__BASIS_COUNT
} ech__basis;

const char *ech__basis_name(ech__basis basis);
/* "", "e" or "p". */
const char *ech__basis_mark(ech__basis basis);

/* Name and whether a digit stands behind it: fixed2, percent1. */
#define ECH__NUMBER_LIST(X)                                                                        \
    X(GENERAL, "general", false) /* four digits that count */                                      \
    X(INTEGER, "integer", false) /* 11 173 962 */                                                  \
    X(FIXED, "fixed", true)                                                                        \
    X(PERCENT, "percent", true)  /* of a share: 0.912 is 91.2 with the unit % */                   \
    X(BYTES, "bytes", false)     /* 44.7 MB */                                                     \
    X(SECONDS, "seconds", false) /* 8.71 ms */

typedef enum ech__number_kind {
#define ECH__NUMBER_ENUM(id, text, digit) ECH__NUMBER_##id,
    ECH__NUMBER_LIST(ECH__NUMBER_ENUM)
#undef ECH__NUMBER_ENUM
        ECH__NUMBER_COUNT
} ech__number_kind;

typedef struct ech__number_format {
    ech__number_kind kind;
    int digits; /* behind the point, 0 to 9; of fixed and percent */
} ech__number_format;

ech_status ech__number_format_parse(ech_ctx *ctx, const char *text, ech__number_format *out);
/* A number that is none gives a dash. */
ech__text ech__number_text(ech__number_format format, double value);

/* What a table or plot shows in one place. */
typedef enum ech__cell_kind { ECH__CELL_EMPTY, ECH__CELL_NUMBER, ECH__CELL_TEXT } ech__cell_kind;

typedef struct ech__cell {
    ech__cell_kind kind;
    double value, low, high; /* of a number; low and high are NAN where there is no interval */
    const char *text;        /* of a text */
    const char *note;        /* may be NULL */
    size_t note_number;      /* in its table, from 1; 0: it has none */
    const char *run;         /* id of the run that it comes from; may be NULL */
    ech__basis basis;
} ech__cell;

bool ech__cell_has_interval(const ech__cell *cell);
