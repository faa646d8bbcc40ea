/* Tables as CSV (RFC 4180), with full precision: a column with intervals becomes three, and one
 * whose figures say how they came about has another behind it. */
#include "base/file/dir.h"
#include "base/file/file.h"
#include "report/report.h"
#include "report/study/wording.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void field(FILE *file, const char *text)
{
    if (!strpbrk(text, ",\"\r\n") && *text != ' ') {
        fputs(text, file);
        return;
    }
    fputc('"', file);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', file);
        fputc(*text, file);
    }
    fputc('"', file);
}

/* The fewest digits that read back to the same number. */
static void number(FILE *file, double value)
{
    char text[40];
    if (!isfinite(value))
        return;
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    fputs(text, file);
}

static bool says_basis(const ech__study_table *t, size_t column)
{
    for (size_t r = 0; r < t->nrows; r++) {
        if (t->cells[r * t->ncolumns + column].basis != ECH__BASIS_UNSAID)
            return true;
    }
    return false;
}

static bool says_note(const ech__study_table *t, size_t column)
{
    for (size_t r = 0; r < t->nrows; r++) {
        if (t->cells[r * t->ncolumns + column].note)
            return true;
    }
    return false;
}

static void head_field(FILE *file, const ech__study_column *c, const char *what)
{
    char text[700];
    snprintf(text, sizeof text, "%s%s%s%s%s%s", c->name, *what ? " " : "", what,
             *c->unit ? " [" : "", c->unit, *c->unit ? "]" : "");
    field(file, text);
}

static void print_head(FILE *file, const ech__study_table *t)
{
    for (size_t i = 0; i < t->ncolumns; i++) {
        fputs(i ? "," : "", file);
        head_field(file, &t->columns[i], "");
        if (ech__column_has_intervals(t, i)) {
            fputc(',', file);
            head_field(file, &t->columns[i], "low");
            fputc(',', file);
            head_field(file, &t->columns[i], "high");
        }
        if (says_basis(t, i)) {
            fputc(',', file);
            head_field(file, &(ech__study_column){.name = t->columns[i].name, .unit = ""}, "clock");
        }
        if (says_note(t, i)) {
            fputc(',', file);
            head_field(file, &(ech__study_column){.name = t->columns[i].name, .unit = ""}, "note");
        }
    }
    fputs("\r\n", file);
}

static void print_cell(FILE *file, const ech__study_table *t, size_t row, size_t column)
{
    const ech__cell *c = &t->cells[row * t->ncolumns + column];
    fputs(column ? "," : "", file);
    if (c->kind == ECH__CELL_TEXT)
        field(file, c->text);
    else if (c->kind == ECH__CELL_NUMBER)
        number(file, c->value);
    if (ech__column_has_intervals(t, column)) {
        fputc(',', file);
        number(file, c->low);
        fputc(',', file);
        number(file, c->high);
    }
    if (says_basis(t, column))
        fprintf(file, ",%s", ech__basis_name(c->basis));
    if (says_note(t, column)) {
        fputc(',', file);
        field(file, c->note ? c->note : "");
    }
}

ech_status ech__csv_print(ech_ctx *ctx, const ech__study_table *table, char **out, size_t *bytes)
{
    *out = NULL;
    FILE *file = open_memstream(out, bytes);
    if (file) {
        print_head(file, table);
        for (size_t r = 0; r < table->nrows; r++) {
            for (size_t c = 0; c < table->ncolumns; c++)
                print_cell(file, table, r, c);
            fputs("\r\n", file);
        }
    }
    if (file && fclose(file) == 0)
        return ECH_OK;
    free(*out);
    *out = NULL;
    return ech__no_memory(ctx, "a table");
}

ech_status ech__report_csv(const ech__book *book, const char *dir, size_t *written)
{
    char path[ECH_DIR_MAX_PATH + 128], *text;
    size_t bytes;
    *written = 0;
    ECH_TRY(ech__dir_make(book->ctx, "directory for tables", dir));
    for (size_t s = 0; s < book->nstudies; s++) {
        for (size_t t = 0; t < book->studies[s].ntables; t++) {
            snprintf(path, sizeof path, "%s/%s-%zu.csv", dir, book->studies[s].id, t + 1);
            ECH_TRY(ech__csv_print(book->ctx, &book->studies[s].tables[t], &text, &bytes));
            const ech_status status = ech__file_write(book->ctx, path, text, bytes);
            free(text);
            ECH_TRY(status);
            ++*written;
        }
    }
    return ECH_OK;
}
