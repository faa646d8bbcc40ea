#include "report/pdf_writer.h"

#include <stdio.h>
#include <string.h>

const ech__press_style ech__press_body = {.text = {.size = 10}, .leading = 14.2, .after = 6};
const ech__press_style ech__press_small = {
    .text = {.size = 8.5, .ink = ECH__INK_MUTED}, .leading = 11.5, .after = 4};
const ech__press_style ech__press_caption = {
    .text = {.size = 9, .ink = ECH__INK_MUTED}, .leading = 12, .after = 4};
const ech__press_style ech__press_code = {
    .text = {.size = 8.2, .mono = true}, .leading = 11, .hang = 14, .after = 6};

/* ---- pages ---- */

static void draw_foot(const ech__press *p)
{
    char number[48];
    const double y = ECH__PAGE_HEIGHT - 36;
    const ech__text_style left = {.size = 8.5, .ink = ECH__INK_MUTED};
    const ech__text_style right = {.size = 8.5, .ink = ECH__INK_MUTED, .anchor = ECH__END};
    snprintf(number, sizeof number, "%d", p->page);
    ech__canvas_text_within(p->canvas, ECH__PAGE_LEFT, y, ECH__TEXT_WIDTH - 60, p->title, &left);
    ech__canvas_text(p->canvas, ECH__PAGE_LEFT + ECH__TEXT_WIDTH, y, number, &right);
}

static void draw_head(const ech__press *p)
{
    if (!p->running)
        return;
    const ech__text_style style = {.size = 8.5, .ink = ECH__INK_MUTED};
    ech__canvas_text_within(p->canvas, ECH__PAGE_LEFT, 40, ECH__TEXT_WIDTH, p->running, &style);
    ech__canvas_move(p->canvas, ECH__PAGE_LEFT, 47);
    ech__canvas_line(p->canvas, ECH__PAGE_LEFT + ECH__TEXT_WIDTH, 47);
    ech__canvas_paint(p->canvas, &(ech__paint){.stroke = ECH__INK_GRID, .width = 0.8});
}

void ech__press_begin(ech__press *p)
{
    p->page = 1;
    p->y = ECH__PAGE_TOP;
}

void ech__press_end(ech__press *p)
{
    draw_foot(p);
    ech__pdf_next_page(p->canvas);
}

void ech__press_new_page(ech__press *p)
{
    ech__press_end(p);
    p->page++;
    p->y = ECH__PAGE_TOP;
    draw_head(p);
    if (p->top)
        p->top(p, p->user);
}

void ech__press_need(ech__press *p, double height)
{
    if (p->y + height > ECH__PAGE_BOTTOM && p->y > ECH__PAGE_TOP)
        ech__press_new_page(p);
}

void ech__press_space(ech__press *p, double height)
{
    if (p->y > ECH__PAGE_TOP)
        p->y += height;
}

/* ---- lines ---- */

static double width_of(ech__canvas *c, const char *text, size_t length,
                       const ech__text_style *style)
{
    char part[1024];
    snprintf(part, sizeof part, "%.*s", (int)length, text);
    return ech__canvas_measure(c, part, style);
}

/* The end of the character that begins at index. */
static size_t next_char(const char *text, size_t index)
{
    do
        index++;
    while (((unsigned char)text[index] & 0xc0) == 0x80);
    return index;
}

/* As many characters of a long word as fit, but one at least. */
static size_t fill_with_word(ech__canvas *c, const char *text, const ech__text_style *style,
                             double width, size_t end)
{
    size_t fits = next_char(text, 0);
    for (size_t next = fits; next < end && width_of(c, text, next, style) <= width;
         next = next_char(text, next))
        fits = next;
    return fits;
}

ech__press_break ech__press_line(ech__canvas *c, const char *text, const ech__text_style *style,
                                 double width)
{
    enum { LONGEST = 1000 }; /* bytes; no line is as wide */
    size_t fits = 0, at = 0;
    while (text[at] && text[at] != '\n' && at < LONGEST) {
        size_t end = at;
        while (text[end] == ' ' || text[end] == '\t')
            end++;
        while (text[end] && !strchr(" \t\n", text[end]) && end < LONGEST)
            end++;
        while (((unsigned char)text[end] & 0xc0) == 0x80)
            end--;
        if (end <= at)
            break;
        if (width_of(c, text, end, style) > width) {
            if (!fits)
                fits = fill_with_word(c, text, style, width, end);
            const size_t next = fits + strspn(text + fits, " \t");
            return (ech__press_break){fits, next};
        }
        fits = at = end;
    }
    return (ech__press_break){fits, text[at] == '\n' ? at + 1 : at};
}

size_t ech__press_count(ech__canvas *c, const char *text, const ech__text_style *style,
                        double width)
{
    size_t lines = 0;
    do {
        text += ech__press_line(c, text, style, width).next;
        lines++;
    } while (*text);
    return lines;
}

void ech__press_paragraph(ech__press *p, const char *text, const ech__press_style *style)
{
    const double full = style->width > 0 ? style->width : ECH__TEXT_WIDTH - style->indent;
    double hang = 0;
    char line[1024];
    while (*text) {
        const ech__press_break b = ech__press_line(p->canvas, text, &style->text, full - hang);
        if (!b.length) { /* an empty line parts paragraphs */
            ech__press_space(p, 0.45 * style->leading);
            text += b.next;
            continue;
        }
        ech__press_need(p, style->leading);
        p->y += style->leading;
        snprintf(line, sizeof line, "%.*s", (int)b.length, text);
        ech__canvas_text(p->canvas, ECH__PAGE_LEFT + style->indent + hang,
                         p->y - 0.28 * style->leading, line, &style->text);
        text += b.next;
        hang = style->hang;
    }
    ech__press_space(p, style->after);
}
