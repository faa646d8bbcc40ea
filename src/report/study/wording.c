#include "report/study/wording.h"

#include <stdio.h>
#include <string.h>

/* ---- cells ---- */

ech__cell_words ech__cell_print(const ech__study_column *column, const ech__cell *cell)
{
    ech__cell_words words = {.mark = ""};
    if (cell->kind == ECH__CELL_TEXT) {
        snprintf(words.main, sizeof words.main, "%s", cell->text);
    } else if (cell->kind == ECH__CELL_NUMBER) {
        snprintf(words.main, sizeof words.main, "%s",
                 ech__number_text(column->format, cell->value).s);
        words.mark = ech__basis_mark(cell->basis);
        if (ech__cell_has_interval(cell))
            snprintf(words.aside, sizeof words.aside, "%s\xe2\x80\x93%s",
                     ech__number_text(column->format, cell->low).s,
                     ech__number_text(column->format, cell->high).s);
    }
    return words;
}

bool ech__column_has_intervals(const ech__study_table *table, size_t column)
{
    for (size_t r = 0; r < table->nrows; r++) {
        if (ech__cell_has_interval(&table->cells[r * table->ncolumns + column]))
            return true;
    }
    return false;
}

const char *ech__table_legend(const ech__study_table *t)
{
#define INTERVALS "Small figures: 95 % interval."
#define EMULATED "e: emulated, computed for real and timed on a virtual clock."
#define PREDICTED "p: predicted, not run."
    static const char *const texts[2][2][2] = {
        {{"", PREDICTED}, {EMULATED, EMULATED " " PREDICTED}},
        {{INTERVALS, INTERVALS " " PREDICTED},
         {INTERVALS " " EMULATED, INTERVALS " " EMULATED " " PREDICTED}},
    };
#undef INTERVALS
#undef EMULATED
#undef PREDICTED
    bool interval = false, emulated = false, predicted = false;
    for (size_t i = 0; i < t->nrows * t->ncolumns; i++) {
        const ech__cell *c = &t->cells[i];
        interval |= ech__cell_has_interval(c);
        emulated |= c->kind == ECH__CELL_NUMBER && c->basis == ECH__BASIS_EMULATED;
        predicted |= c->kind == ECH__CELL_NUMBER && c->basis == ECH__BASIS_PREDICTED;
    }
    return texts[interval][emulated][predicted];
}

/* ---- facts of the report ---- */

/* "2026-11-16T02:10:00Z" to the minute; whatever else was given as it is. */
static void date_print(const char *date, char *out, size_t bytes)
{
    const size_t length = strlen(date);
    if (length == 20 && date[10] == 'T' && date[16] == ':' && date[19] == 'Z')
        snprintf(out, bytes, "%.10s %.5s UTC", date, date + 11);
    else
        snprintf(out, bytes, "%s", date);
}

void ech__book_line(const ech__book *b, char *out, size_t bytes)
{
    char date[320];
    date_print(b->date, date, sizeof date);
    snprintf(out, bytes, "%s \xc2\xb7 %s profile%s%s", date, b->profile,
             b->version ? " \xc2\xb7 Echelon " : "", b->version ? b->version : "");
}

void ech__seeds_print(const ech__book *book, char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < book->nseeds && used < bytes; i++)
        used += (size_t)snprintf(out + used, bytes - used, "%s%lld", i ? ", " : "",
                                 (long long)book->seeds[i]);
}

void ech__figure_print(const ech__figure *f, char *out, size_t bytes)
{
    const char *space = *f->unit ? "\xc2\xa0" : "";
    if (f->cell.kind == ECH__CELL_TEXT)
        snprintf(out, bytes, "%s", f->cell.text);
    else if (ech__cell_has_interval(&f->cell))
        snprintf(out, bytes, "%s%s%s (%s to %s)", ech__number_text(f->format, f->cell.value).s,
                 space, f->unit, ech__number_text(f->format, f->cell.low).s,
                 ech__number_text(f->format, f->cell.high).s);
    else
        snprintf(out, bytes, "%s%s%s", ech__number_text(f->format, f->cell.value).s, space,
                 f->unit);
}
