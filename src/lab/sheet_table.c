#include "lab/sheet_internal.h"

#include <math.h>
#include <string.h>

void ech__tell_table(ech__sheet *sheet, const char *title, const char *note)
{
    ech__sheet_end_table(sheet);
    if (sheet->status < 0)
        return;
    sheet->table =
        (ech__sheet_table){.title = ech__sheet_line(sheet, title, ECH__SHEET_LINE),
                           .note = note ? ech__sheet_line(sheet, note, ECH__SHEET_TEXT) : NULL};
}

/* Whether the table that was begun is open for words of this kind. */
static bool in_table(ech__sheet *sheet)
{
    if (sheet->status < 0)
        return false;
    return sheet->table.title || ech__sheet_wrong(sheet, "a table must be begun before its parts");
}

static size_t cells_of_row(const ech__sheet_table *t)
{
    return t->nrows ? t->ncells - (t->nrows - 1) * t->ncolumns : 0;
}

static bool row_is_full(ech__sheet *sheet)
{
    const ech__sheet_table *t = &sheet->table;
    return !t->nrows || cells_of_row(t) == t->ncolumns ||
           ech__sheet_wrong(sheet, "table '%.80s': row %zu has %zu cells for %zu columns", t->title,
                            t->nrows, cells_of_row(t), t->ncolumns);
}

void ech__tell_column(ech__sheet *sheet, const char *name, const char *format)
{
    ech__sheet_table *t = &sheet->table;
    ech__sheet_column column = {.is_text = !strcmp(format, "text"), .format = {"general", ""}};
    if (!in_table(sheet) || (!column.is_text && !ech__sheet_split(sheet, format, &column.format)))
        return;
    if (t->nrows) {
        ech__sheet_wrong(sheet, "table '%.80s': column %.80s comes after its first row", t->title,
                         name);
        return;
    }
    column.name = ech__sheet_line(sheet, name, ECH__SHEET_LINE);
    if (sheet->status == ECH_OK &&
        ech__sheet_grow(sheet, &t->columns, t->ncolumns, &t->columns_capacity, sizeof *t->columns))
        t->columns[t->ncolumns++] = column;
}

void ech__tell_row(ech__sheet *sheet)
{
    if (in_table(sheet) && row_is_full(sheet))
        sheet->table.nrows++;
}

/* ---- cells ---- */

static void add_cell(ech__sheet *sheet, ech__sheet_cell cell)
{
    ech__sheet_table *t = &sheet->table;
    if (!in_table(sheet))
        return;
    if (!t->nrows || cells_of_row(t) == t->ncolumns) {
        ech__sheet_wrong(sheet, "table '%.80s': a cell beyond the %zu columns of row %zu", t->title,
                         t->ncolumns, t->nrows);
        return;
    }
    if (ech__sheet_grow(sheet, &t->cells, t->ncells, &t->cells_capacity, sizeof *t->cells))
        t->cells[t->ncells++] = cell;
}

/* A figure that is not known, or has no interval where one is shown, says why. */
static void tell_figure(ech__sheet *sheet, ech__sheet_cell cell, const char *expr, va_list args)
{
    const ech__lab_figure *f = &cell.figure;
    if (!ech__sheet_eval(sheet, expr, args, &cell.figure))
        return;
    if (f->reason && (!f->known || cell.kind == ECH__SHEET_FIGURE))
        cell.note = ech__sheet_line(sheet, f->reason, ECH__SHEET_LINE);
    add_cell(sheet, cell);
}

void ech__tell_cell(ech__sheet *sheet, const char *expr, ...)
{
    va_list args;
    va_start(args, expr);
    tell_figure(sheet, (ech__sheet_cell){.kind = ECH__SHEET_FIGURE}, expr, args);
    va_end(args);
}

void ech__tell_plain(ech__sheet *sheet, const char *expr, ...)
{
    va_list args;
    va_start(args, expr);
    tell_figure(sheet, (ech__sheet_cell){.kind = ECH__SHEET_PLAIN}, expr, args);
    va_end(args);
}

void ech__tell_words(ech__sheet *sheet, const char *text, ...)
{
    if (sheet->status < 0)
        return;
    va_list args;
    va_start(args, text);
    const char *words = ech__sheet_print(sheet, text, args);
    va_end(args);
    add_cell(sheet, (ech__sheet_cell){.kind = ECH__SHEET_WORDS,
                                      .text = ech__sheet_line(sheet, words, ECH__SHEET_LINE)});
}

void ech__tell_none(ech__sheet *sheet)
{
    add_cell(sheet, (ech__sheet_cell){.kind = ECH__SHEET_NONE});
}

void ech__tell_note(ech__sheet *sheet, const char *text, ...)
{
    ech__sheet_table *t = &sheet->table;
    if (!in_table(sheet))
        return;
    if (!t->ncells) {
        ech__sheet_wrong(sheet, "table '%.80s': a note before its first cell", t->title);
        return;
    }
    ech__sheet_cell *cell = &t->cells[t->ncells - 1];
    va_list args;
    va_start(args, text);
    const char *words = ech__sheet_print(sheet, text, args);
    va_end(args);
    const char *both =
        cell->note ? ech__arena_printf(&sheet->arena, "%s; %s", cell->note, words) : words;
    cell->note = ech__sheet_line(sheet, both ? both : words, ECH__SHEET_LINE);
}

/* ---- as records have it ---- */

static ech_json *figure_cell(const ech__sheet_cell *cell)
{
    const ech__lab_figure *f = &cell->figure;
    ech_json *json = ech__json_object();
    ech__json_set_real(&json, "value", f->value);
    if (cell->kind == ECH__SHEET_FIGURE && ech__sheet_has_interval(f)) {
        ech__json_set_real(&json, "low", f->low);
        ech__json_set_real(&json, "high", f->high);
    }
    if (f->run && f->known)
        ech__json_set_string(&json, "clock", ech__lab_basis_name(f->basis));
    if (cell->note)
        ech__json_set_string(&json, "note", cell->note);
    if (f->run)
        ech__json_set_string(&json, "run", f->run);
    return json;
}

static void append_cell(ech_json **row, const ech__sheet_cell *cell)
{
    const bool figure = cell->kind == ECH__SHEET_FIGURE || cell->kind == ECH__SHEET_PLAIN;
    if (figure && (cell->figure.run || cell->note)) {
        ech__json_append(row, figure_cell(cell));
    } else if (figure) {
        ech__json_append_real(row, cell->figure.value);
    } else if (!cell->note && cell->kind == ECH__SHEET_WORDS) {
        ech__json_append_string(row, cell->text);
    } else if (!cell->note) {
        ech__json_append_real(row, NAN);
    } else {
        ech_json *json = ech__json_object();
        ech__json_set_string(&json, "value", cell->kind == ECH__SHEET_WORDS ? cell->text : NULL);
        ech__json_set_string(&json, "note", cell->note);
        ech__json_append(row, json);
    }
}

static ech_json *columns_of(const ech__sheet_table *t)
{
    ech_json *list = ech__json_array();
    for (size_t i = 0; i < t->ncolumns; i++) {
        const ech__sheet_column *c = &t->columns[i];
        ech_json *column = ech__json_object();
        ech__json_set_string(&column, "name", c->name);
        if (c->is_text)
            ech__json_set_string(&column, "align", "left");
        else
            ech__json_set_string(&column, "format", c->format.format);
        if (*c->format.unit)
            ech__json_set_string(&column, "unit", c->format.unit);
        ech__json_append(&list, column);
    }
    return list;
}

static ech_json *rows_of(const ech__sheet_table *t)
{
    ech_json *list = ech__json_array();
    for (size_t r = 0; r < t->nrows; r++) {
        ech_json *row = ech__json_array();
        for (size_t c = 0; c < t->ncolumns; c++)
            append_cell(&row, &t->cells[r * t->ncolumns + c]);
        ech__json_append(&list, row);
    }
    return list;
}

void ech__sheet_end_table(ech__sheet *sheet)
{
    const ech__sheet_table *t = &sheet->table;
    if (sheet->status < 0 || !t->title)
        return;
    if (!t->ncolumns) {
        ech__sheet_wrong(sheet, "table '%.80s' has no column", t->title);
        return;
    }
    if (!row_is_full(sheet))
        return;
    ech_json *table = ech__json_object();
    ech__json_set_string(&table, "title", t->title);
    if (t->note)
        ech__json_set_string(&table, "note", t->note);
    ech__json_set(&table, "columns", columns_of(t));
    ech__json_set(&table, "rows", rows_of(t));
    ech__json_append(&sheet->tables, table);
    sheet->table = (ech__sheet_table){0};
}
