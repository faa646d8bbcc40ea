#include "report/pdf_table.h"
#include "report/study/wording.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PAD = 6 }; /* at either side of a cell */

/* Widths of a column: all in it, its figures alone, their marks, the intervals beside them. */
typedef struct column {
    double width; /* without padding */
    double least; /* the longest word */
    double main, mark, aside;
} column;

typedef struct sheet {
    ech__press *press;
    const ech__study_table *table;
    ech__text_style body, head, aside;
    double leading;
    column columns[ECH__STUDY_MAX_COLUMNS];
} sheet;

static double measure(const sheet *s, const char *text, const ech__text_style *style)
{
    return ech__canvas_measure(s->press->canvas, text, style);
}

/* ---- widths ---- */

static double longest_word(const sheet *s, const char *text, const ech__text_style *style)
{
    double longest = 0;
    char word[128];
    while (*text) {
        const size_t length = strcspn(text, " ");
        snprintf(word, sizeof word, "%.*s", (int)length, text);
        longest = fmax(longest, measure(s, word, style));
        text += length + strspn(text + length, " ");
    }
    return longest;
}

/* "e [1]": how a figure came about, and the number of its note. */
static void mark_text(const ech__cell *cell, const ech__cell_words *w, char out[40])
{
    char note[24] = "";
    if (cell->note_number)
        snprintf(note, sizeof note, "[%zu]", cell->note_number);
    snprintf(out, 40, "%s%s%s", w->mark, *w->mark && *note ? "\xc2\xa0" : "", note);
}

/* What stands in the lines of a cell: figures have their marks beside them, words behind. */
static void main_text(const ech__cell *cell, const ech__cell_words *w, char out[360])
{
    char mark[40];
    mark_text(cell, w, mark);
    const bool words = cell->kind == ECH__CELL_TEXT && *mark;
    snprintf(out, 360, "%s%s%s", w->main, words ? "\xc2\xa0" : "", words ? mark : "");
}

static void measure_column(sheet *s, size_t index)
{
    const ech__study_table *t = s->table;
    const ech__study_column *c = &t->columns[index];
    column *out = &s->columns[index];
    char text[360], mark[40];
    *out = (column){0};
    const double head =
        fmax(measure(s, c->name, &s->head), *c->unit ? measure(s, c->unit, &s->aside) : 0);
    out->least =
        fmax(longest_word(s, c->name, &s->head), *c->unit ? measure(s, c->unit, &s->aside) : 0);
    for (size_t r = 0; r < t->nrows; r++) {
        const ech__cell *cell = &t->cells[r * t->ncolumns + index];
        const ech__cell_words w = ech__cell_print(c, cell);
        main_text(cell, &w, text);
        out->main = fmax(out->main, measure(s, text, &s->body));
        mark_text(cell, &w, mark);
        if (*mark && cell->kind != ECH__CELL_TEXT)
            out->mark = fmax(out->mark, measure(s, mark, &s->aside) + 3);
        out->aside = fmax(out->aside, *w.aside ? measure(s, w.aside, &s->aside) + 5 : 0);
        if (cell->kind == ECH__CELL_TEXT)
            out->least = fmax(out->least, longest_word(s, text, &s->body));
    }
    out->width = fmax(out->main + out->mark + out->aside, fmin(head, fmax(out->least, 64)));
    bool texts = false;
    for (size_t r = 0; r < t->nrows; r++)
        texts |= t->cells[r * t->ncolumns + index].kind == ECH__CELL_TEXT;
    if (!texts)
        out->least = fmax(out->least, out->main + out->mark + out->aside);
}

static double total_width(const sheet *s)
{
    double total = 0;
    for (size_t i = 0; i < s->table->ncolumns; i++)
        total += s->columns[i].width + 2 * PAD;
    return total;
}

/* Takes what is too much from columns of words, in proportion to what they can give. */
static void shrink(sheet *s)
{
    double slack = 0;
    const double excess = total_width(s) - ECH__TEXT_WIDTH;
    for (size_t i = 0; i < s->table->ncolumns; i++)
        slack += fmax(s->columns[i].width - s->columns[i].least, 0);
    if (excess <= 0 || slack <= 0)
        return;
    const double share = fmin(excess / slack, 1);
    for (size_t i = 0; i < s->table->ncolumns; i++)
        s->columns[i].width -= share * fmax(s->columns[i].width - s->columns[i].least, 0);
}

static void set_size(sheet *s, double size)
{
    s->body = (ech__text_style){.size = size};
    s->head = (ech__text_style){.size = size, .bold = true};
    s->aside = (ech__text_style){.size = size - 1.2, .ink = ECH__INK_MUTED};
    s->leading = 1.36 * size;
    for (size_t i = 0; i < s->table->ncolumns; i++)
        measure_column(s, i);
    shrink(s);
}

/* Smaller type where a wide table does not fit otherwise; past that, the last columns are cut. */
static void lay_out(sheet *s)
{
    static const double sizes[] = {9, 8.25, 7.5, 6.75, 6};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        set_size(s, sizes[i]);
        if (total_width(s) <= ECH__TEXT_WIDTH + 0.5)
            return;
    }
    const double factor = ECH__TEXT_WIDTH / total_width(s);
    for (size_t i = 0; i < s->table->ncolumns; i++)
        s->columns[i].width = fmax((s->columns[i].width + 2 * PAD) * factor - 2 * PAD, 8);
}

/* ---- drawing ---- */

static void rule(const sheet *s, double y, ech__ink ink, double width)
{
    ech__canvas_move(s->press->canvas, ECH__PAGE_LEFT, y);
    ech__canvas_line(s->press->canvas, ECH__PAGE_LEFT + fmin(total_width(s), ECH__TEXT_WIDTH), y);
    ech__canvas_paint(s->press->canvas, &(ech__paint){.stroke = ink, .width = width});
}

/* Text in lines, from the top of a cell; returns the number of lines. */
static size_t draw_lines(const sheet *s, double x, double y, const char *text, ech__align align,
                         double width, const ech__text_style *style)
{
    ech__text_style own = *style;
    char line[400];
    size_t lines = 0;
    own.anchor = align == ECH__ALIGN_RIGHT    ? ECH__END
                 : align == ECH__ALIGN_CENTER ? ECH__MIDDLE
                                              : ECH__START;
    const double at = align == ECH__ALIGN_RIGHT    ? x + width
                      : align == ECH__ALIGN_CENTER ? x + width / 2
                                                   : x;
    while (*text) {
        const ech__press_break b = ech__press_line(s->press->canvas, text, style, width + 0.5);
        snprintf(line, sizeof line, "%.*s", (int)b.length, text);
        lines++;
        ech__canvas_text(s->press->canvas, at, y + s->leading * ((double)lines - 0.28), line, &own);
        text += b.next;
    }
    return lines;
}

/* Of one column: its name and, below, its unit. */
static size_t head_lines_of(const sheet *s, size_t index)
{
    const ech__study_column *c = &s->table->columns[index];
    const double width = s->columns[index].width + 0.5;
    return ech__press_count(s->press->canvas, c->name, &s->head, width) +
           (*c->unit ? ech__press_count(s->press->canvas, c->unit, &s->aside, width) : 0);
}

static size_t head_lines(const sheet *s)
{
    size_t most = 1;
    for (size_t i = 0; i < s->table->ncolumns; i++) {
        const size_t lines = head_lines_of(s, i);
        most = lines > most ? lines : most;
    }
    return most;
}

static double head_height(const sheet *s)
{
    return s->leading * (double)head_lines(s) + 8;
}

/* Heads end at the same line, with the unit below. */
static void draw_head(const sheet *s)
{
    const size_t most = head_lines(s);
    double x = ECH__PAGE_LEFT + PAD;
    const double top = s->press->y + 3;
    rule(s, s->press->y, ECH__INK_TEXT, 1);
    for (size_t i = 0; i < s->table->ncolumns; i++) {
        const ech__study_column *c = &s->table->columns[i];
        const double width = s->columns[i].width;
        const double y = top + s->leading * (double)(most - head_lines_of(s, i));
        const size_t lines = draw_lines(s, x, y, c->name, c->align, width, &s->head);
        if (*c->unit)
            draw_lines(s, x, y + s->leading * (double)lines, c->unit, c->align, width, &s->aside);
        x += width + 2 * PAD;
    }
    s->press->y += head_height(s);
    rule(s, s->press->y - 2, ECH__INK_AXIS, 0.6);
}

static size_t row_lines(const sheet *s, size_t row)
{
    size_t most = 1;
    char text[360];
    for (size_t i = 0; i < s->table->ncolumns; i++) {
        const ech__cell *cell = &s->table->cells[row * s->table->ncolumns + i];
        const ech__cell_words w = ech__cell_print(&s->table->columns[i], cell);
        main_text(cell, &w, text);
        if (cell->kind != ECH__CELL_TEXT)
            continue;
        const size_t lines =
            ech__press_count(s->press->canvas, text, &s->body, s->columns[i].width + 0.5);
        most = lines > most ? lines : most;
    }
    return most;
}

/* Figures of a column end at one line; their marks and intervals begin at another. */
static void draw_cell(const sheet *s, size_t index, const ech__cell *cell, double x)
{
    const ech__study_column *c = &s->table->columns[index];
    const column *own = &s->columns[index];
    const ech__cell_words w = ech__cell_print(c, cell);
    const double y = s->press->y + 2;
    char text[360], mark[40];
    main_text(cell, &w, text);
    if (cell->kind == ECH__CELL_TEXT) {
        draw_lines(s, x, y, text, c->align, own->width, &s->body);
        return;
    }
    const double figures = fmax(own->width - own->mark - own->aside, 8);
    draw_lines(s, x, y, text, c->align, figures, &s->body);
    mark_text(cell, &w, mark);
    draw_lines(s, x + figures + 3, y - 2, mark, ECH__ALIGN_LEFT, 60, &s->aside);
    draw_lines(s, x + figures + own->mark + 5, y, w.aside, ECH__ALIGN_LEFT, own->aside + 20,
               &s->aside);
}

static void draw_row(const sheet *s, size_t row)
{
    const double height = s->leading * (double)row_lines(s, row) + 4;
    if (s->press->y + height > ECH__PAGE_BOTTOM) {
        rule(s, s->press->y, ECH__INK_AXIS, 0.6);
        ech__press_new_page(s->press);
        draw_head(s);
    }
    double x = ECH__PAGE_LEFT + PAD;
    for (size_t i = 0; i < s->table->ncolumns; i++) {
        draw_cell(s, i, &s->table->cells[row * s->table->ncolumns + i], x);
        x += s->columns[i].width + 2 * PAD;
    }
    s->press->y += height;
    if (row + 1 < s->table->nrows)
        rule(s, s->press->y, ECH__INK_GRID, 0.5);
}

static void draw_notes(const sheet *s)
{
    char text[400];
    ech__press_space(s->press, 4);
    for (size_t i = 0; i < s->table->nnotes; i++) {
        snprintf(text, sizeof text, "[%zu] %s", i + 1, s->table->notes[i]);
        ech__press_style style = ech__press_small;
        style.after = 1;
        ech__press_paragraph(s->press, text, &style);
    }
    if (*ech__table_legend(s->table))
        ech__press_paragraph(s->press, ech__table_legend(s->table), &ech__press_small);
    if (s->table->note)
        ech__press_paragraph(s->press, s->table->note, &ech__press_small);
}

double ech__pdf_table_start(ech__press *press, const ech__study_table *table)
{
    enum { WHOLE = 260, FIRST = 3 }; /* points that stay together; rows that do otherwise */
    sheet s = {.press = press, .table = table};
    lay_out(&s);
    double first = head_height(&s), all = first;
    for (size_t r = 0; r < table->nrows && all <= WHOLE; r++) {
        const double height = s.leading * (double)row_lines(&s, r) + 4;
        first += r < FIRST ? height : 0;
        all += height;
    }
    return all <= WHOLE ? all : first;
}

void ech__pdf_table(ech__press *press, const ech__study_table *table)
{
    sheet s = {.press = press, .table = table};
    lay_out(&s);
    draw_head(&s);
    for (size_t r = 0; r < table->nrows; r++)
        draw_row(&s, r);
    rule(&s, press->y, ECH__INK_TEXT, 1);
    draw_notes(&s);
    ech__press_space(press, 8);
}
