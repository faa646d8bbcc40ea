/* Cells, tables, figures and answers of a study record. */
#include "report/study/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

ech_status ech__read_basis(const ech__reader *r, const ech_json *object, ech__basis *out)
{
    int basis;
    ECH_TRY(ech__reader_choice(r, object, "clock", " measured emulated predicted", 0, &basis));
    *out = (ech__basis)basis;
    return ECH_OK;
}

ech_status ech__read_format(const ech__reader *r, const ech_json *object, ech__number_format *out)
{
    const char *text;
    *out = (ech__number_format){ECH__NUMBER_GENERAL, 0};
    ECH_TRY(ech__reader_text_or(r, object, "format", 32, NULL, &text));
    return text ? ech__number_format_parse(r->ctx, text, out) : ECH_OK;
}

/* ---- cells ---- */

static ech_status read_value(const ech__reader *r, const ech_json *value, ech__cell *out)
{
    const char *text;
    if (ech__json_kind_of(value) == ECH_JSON_NULL || (ech__json_string(value, &text) && !*text))
        return ECH_OK;
    if (ech__json_kind_of(value) == ECH_JSON_STRING) {
        out->kind = ECH__CELL_TEXT;
        return ech__reader_string(r, value, "a text", ECH__READER_LINE, &out->text);
    }
    out->kind = ECH__CELL_NUMBER;
    return ech__reader_number(r, value, "a value", &out->value);
}

ech_status ech__read_cell_fields(const ech__reader *r, const ech_json *object, ech__cell *out)
{
    *out = (ech__cell){.low = NAN, .high = NAN};
    const ech_json *value = ech__json_find(object, "value");
    if (!value)
        return ech__fail(r->ctx, ECH_E_FORMAT, "\"value\" is missing");
    ECH_TRY(read_value(r, value, out));
    ECH_TRY(ech__reader_real_or(r, object, "low", NAN, &out->low));
    ECH_TRY(ech__reader_real_or(r, object, "high", NAN, &out->high));
    if (isnan(out->low) != isnan(out->high) || out->low > out->high)
        return ech__fail(r->ctx, ECH_E_FORMAT,
                         "\"low\" and \"high\" must both be there, in this order");
    return ech__read_basis(r, object, &out->basis);
}

ech_status ech__read_cell(const ech__reader *r, const ech_json *value, ech__cell *out)
{
    *out = (ech__cell){.low = NAN, .high = NAN};
    if (ech__json_kind_of(value) != ECH_JSON_OBJECT)
        return read_value(r, value, out);
    ECH_TRY(ech__reader_fields(r, value, "value low high clock note run"));
    ECH_TRY(ech__read_cell_fields(r, value, out));
    ECH_TRY(ech__reader_text_or(r, value, "note", ECH__READER_LINE, NULL, &out->note));
    if (ech__json_find(value, "run"))
        ECH_TRY(ech__reader_id(r, value, "run", &out->run));
    return ECH_OK;
}

/* ---- tables ---- */

static ech_status read_column(const ech__reader *r, const ech_json *json, ech__study_column *out)
{
    int align;
    ECH_TRY(ech__reader_fields(r, json, "name unit align format"));
    ECH_TRY(ech__reader_text(r, json, "name", ECH__READER_LINE, &out->name));
    ECH_TRY(ech__reader_text_or(r, json, "unit", ECH__READER_LINE, "", &out->unit));
    ECH_TRY(ech__reader_choice(r, json, "align", "left center right", ECH__ALIGN_RIGHT, &align));
    out->align = (ech__align)align;
    return ech__read_format(r, json, &out->format);
}

static ech_status read_columns(const ech__reader *r, const ech_json *json, ech__study_table *out)
{
    const ech_json *list;
    ECH_TRY(ech__reader_list(r, json, "columns", ECH__STUDY_MAX_COLUMNS, &list, &out->ncolumns));
    if (!out->ncolumns)
        return ech__fail(r->ctx, ECH_E_FORMAT, "a table without \"columns\"");
    ECH_TRY(ech__reader_array(r, out->ncolumns, sizeof *out->columns, &out->columns));
    for (size_t i = 0; i < out->ncolumns; i++) {
        const ech_status status = read_column(r, ech__json_at(list, i), &out->columns[i]);
        if (status < 0)
            return ech__fail_in(r->ctx, status, "columns[%zu]", i);
    }
    return ECH_OK;
}

static ech_status read_row(const ech__reader *r, const ech_json *json, size_t ncolumns,
                           const ech__study *study, ech__cell *out)
{
    if (ech__json_kind_of(json) != ECH_JSON_ARRAY || ech__json_count(json) != ncolumns)
        return ech__fail(r->ctx, ECH_E_FORMAT, "must be an array of %zu cells, one a column",
                         ncolumns);
    for (size_t i = 0; i < ncolumns; i++) {
        ech_status status = ech__read_cell(r, ech__json_at(json, i), &out[i]);
        if (status == ECH_OK && out[i].run && !ech__study_find_run(study, out[i].run))
            status = ech__fail(r->ctx, ECH_E_FORMAT, "there is no run %s", out[i].run);
        if (status < 0)
            return ech__fail_in(r->ctx, status, "cell %zu", i + 1);
    }
    return ECH_OK;
}

/* Equal notes have one number. */
static ech_status number_notes(const ech__reader *r, ech__study_table *t)
{
    ECH_TRY(ech__reader_array(r, ECH__STUDY_MAX_NOTES, sizeof *t->notes, &t->notes));
    for (size_t i = 0; i < t->nrows * t->ncolumns; i++) {
        ech__cell *cell = &t->cells[i];
        size_t n = 0;
        if (!cell->note)
            continue;
        while (n < t->nnotes && strcmp(t->notes[n], cell->note) != 0)
            n++;
        if (n == ECH__STUDY_MAX_NOTES)
            return ech__fail(r->ctx, ECH_E_LIMIT, "more than %d different notes",
                             ECH__STUDY_MAX_NOTES);
        if (n == t->nnotes)
            t->notes[t->nnotes++] = cell->note;
        cell->note_number = n + 1;
    }
    return ECH_OK;
}

static ech_status read_table(const ech__reader *r, const ech_json *json, const ech__study *study,
                             ech__study_table *out)
{
    const ech_json *rows;
    ECH_TRY(ech__reader_fields(r, json, "title note columns rows"));
    ECH_TRY(ech__reader_text(r, json, "title", ECH__READER_LINE, &out->title));
    ECH_TRY(ech__reader_text_or(r, json, "note", ECH__READER_TEXT, NULL, &out->note));
    ECH_TRY(read_columns(r, json, out));
    ECH_TRY(ech__reader_list(r, json, "rows", ECH__STUDY_MAX_ROWS, &rows, &out->nrows));
    ECH_TRY(ech__reader_array(r, out->nrows * out->ncolumns, sizeof *out->cells, &out->cells));
    for (size_t i = 0; i < out->nrows; i++) {
        const ech_status status = read_row(r, ech__json_at(rows, i), out->ncolumns, study,
                                           &out->cells[i * out->ncolumns]);
        if (status < 0)
            return ech__fail_in(r->ctx, status, "rows[%zu]", i);
    }
    return number_notes(r, out);
}

ech_status ech__read_tables(const ech__reader *r, const ech_json *study, ech__study *out)
{
    const ech_json *list;
    size_t count;
    ECH_TRY(ech__reader_list(r, study, "tables", ECH__STUDY_MAX_TABLES, &list, &count));
    ECH_TRY(ech__reader_array(r, count, sizeof *out->tables, &out->tables));
    for (size_t i = 0; i < count; i++) {
        const ech_status status = read_table(r, ech__json_at(list, i), out, &out->tables[i]);
        if (status < 0)
            return ech__fail_in(r->ctx, status, "tables[%zu]", i);
    }
    out->ntables = count;
    return ECH_OK;
}

/* ---- figures ---- */

static ech_status read_figure(const ech__reader *r, const ech_json *json, ech__figure *out)
{
    ECH_TRY(ech__reader_fields(r, json, "name value low high clock unit format source"));
    ECH_TRY(ech__reader_text(r, json, "name", ECH__READER_LINE, &out->name));
    ECH_TRY(ech__read_cell_fields(r, json, &out->cell));
    ECH_TRY(ech__reader_text_or(r, json, "unit", ECH__READER_LINE, "", &out->unit));
    ECH_TRY(ech__reader_text_or(r, json, "source", ECH__READER_TEXT, NULL, &out->source));
    return ech__read_format(r, json, &out->format);
}

ech_status ech__read_figures(const ech__reader *r, const ech_json *object, const char *key,
                             ech__figure **out, size_t *count)
{
    const ech_json *list;
    ECH_TRY(ech__reader_list(r, object, key, ECH__STUDY_MAX_FIGURES, &list, count));
    ECH_TRY(ech__reader_array(r, *count, sizeof **out, out));
    for (size_t i = 0; i < *count; i++) {
        const ech_status status = read_figure(r, ech__json_at(list, i), &(*out)[i]);
        if (status < 0)
            return ech__fail_in(r->ctx, status, "%s[%zu]", key, i);
    }
    return ECH_OK;
}

/* ---- answers: words with {names} in them ---- */

/* "speedup", "speedup.low" or "speedup.high" as it is printed. NULL where there is no such figure. */
static const char *print_figure(const ech__reader *r, const ech__answer *a, const char *name,
                                size_t length, const ech__figure **found)
{
    for (size_t i = 0; i < a->nfigures; i++) {
        const ech__figure *f = &a->figures[i];
        const size_t own = strlen(f->name);
        if (length < own || strncmp(name, f->name, own) != 0)
            continue;
        const char *part = name + own;
        const size_t rest = length - own;
        const bool low = rest == 4 && !strncmp(part, ".low", 4);
        const bool high = rest == 5 && !strncmp(part, ".high", 5);
        if ((rest && !low && !high) || ((low || high) && !ech__cell_has_interval(&f->cell)))
            continue;
        *found = f;
        if (f->cell.kind == ECH__CELL_TEXT)
            return f->cell.text;
        const double value = low ? f->cell.low : high ? f->cell.high : f->cell.value;
        const bool number = f->cell.kind == ECH__CELL_NUMBER;
        return ech__arena_printf(r->arena, "%s%s%s",
                                 ech__number_text(f->format, number ? value : NAN).s,
                                 *f->unit ? "\xc2\xa0" : "", f->unit);
    }
    *found = NULL;
    return NULL;
}

static ech_status add_piece(const ech__reader *r, ech__answer *a, size_t *capacity,
                            const char *text, const ech__figure *figure)
{
    if (!text ||
        !ech__arena_grow(r->arena, (void **)&a->pieces, a->npieces, capacity, sizeof *a->pieces))
        return ech__no_memory(r->ctx, "an answer");
    a->pieces[a->npieces++] = (ech__answer_piece){text, figure};
    return ECH_OK;
}

/* "{{" and "}}" stand for a brace. */
static ech_status split_answer(const ech__reader *r, const char *text, ech__answer *a)
{
    size_t capacity = 0;
    char shown[48];
    while (*text) {
        const size_t words = strcspn(text, "{}");
        if (words)
            ECH_TRY(add_piece(r, a, &capacity,
                              ech__arena_printf(r->arena, "%.*s", (int)words, text), NULL));
        text += words;
        if (!*text)
            break;
        if (text[0] == text[1]) {
            ECH_TRY(add_piece(r, a, &capacity, *text == '{' ? "{" : "}", NULL));
            text += 2;
            continue;
        }
        const size_t length = *text == '{' ? strcspn(text + 1, "{}") : 0;
        const ech__figure *figure;
        if (!length || text[1 + length] != '}')
            return ech__fail(r->ctx, ECH_E_FORMAT, "\"text\" has a brace that names no figure");
        const char *printed = print_figure(r, a, text + 1, length, &figure);
        if (!figure)
            return ech__fail(r->ctx, ECH_E_FORMAT, "\"text\" has {%s}, which is no figure of it",
                             ech__reader_shown(text + 1, length, shown));
        ECH_TRY(add_piece(r, a, &capacity, printed, figure));
        text += length + 2;
    }
    return ECH_OK;
}

static ech_status read_answer(const ech__reader *r, const ech_json *json, ech__answer *out)
{
    const char *text;
    ECH_TRY(ech__reader_fields(r, json, "question text figures"));
    ECH_TRY(ech__reader_text(r, json, "question", ECH__READER_LINE, &out->question));
    ECH_TRY(ech__reader_text(r, json, "text", ECH__READER_TEXT, &text));
    ECH_TRY(ech__read_figures(r, json, "figures", &out->figures, &out->nfigures));
    return split_answer(r, text, out);
}

ech_status ech__read_answers(const ech__reader *r, const ech_json *study, ech__study *out)
{
    const ech_json *list;
    size_t count;
    ECH_TRY(ech__reader_list(r, study, "answers", ECH__STUDY_MAX_ANSWERS, &list, &count));
    ECH_TRY(ech__reader_array(r, count, sizeof *out->answers, &out->answers));
    for (size_t i = 0; i < count; i++) {
        const ech_status status = read_answer(r, ech__json_at(list, i), &out->answers[i]);
        if (status < 0)
            return ech__fail_in(r->ctx, status, "answers[%zu]", i);
    }
    out->nanswers = count;
    return ECH_OK;
}
