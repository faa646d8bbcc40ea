/* Words that the page, the PDF and the CSV files share: cells as they are printed, notes, what marks mean. */
#pragma once

#include "report/study/study.h"

typedef struct ech__cell_words {
    char main[304];
    char aside[96];   /* "8.60 – 8.91": the interval; "" where there is none */
    const char *mark; /* "", "e" or "p" */
} ech__cell_words;

ech__cell_words ech__cell_print(const ech__study_column *column, const ech__cell *cell);

/* What the marks in a table mean, and intervals; "" where there are none. */
const char *ech__table_legend(const ech__study_table *table);
bool ech__column_has_intervals(const ech__study_table *table, size_t column);

/* "2026-11-16 02:10 UTC · quick profile · Echelon 0.4.0" */
void ech__book_line(const ech__book *book, char *out, size_t bytes);
/* "0, 1" */
void ech__seeds_print(const ech__book *book, char *out, size_t bytes);
/* "1.8 % (1.2 to 2.4)" */
void ech__figure_print(const ech__figure *figure, char *out, size_t bytes);
