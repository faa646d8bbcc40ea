#include "report/plot/canvas.h"

#include <stdio.h>
#include <string.h>

/* ---- inks ---- */

static const struct {
    const char *name;
    uint32_t light, dark;
} inks[] = {
#define ROW(id, name, light, dark) {name, light, dark},
    ECH__INK_LIST(ROW)
#undef ROW
};

const char *ech__ink_name(ech__ink ink)
{
    return inks[ink].name;
}

uint32_t ech__ink_colour(ech__ink ink, bool dark)
{
    return dark ? inks[ink].dark : inks[ink].light;
}

ech__ink ech__ink_series(size_t index)
{
    return (ech__ink)(ECH__INK_SERIES1 + index % ECH__INK_SERIES_COUNT);
}

/* ---- paths ---- */

void ech__canvas_move(ech__canvas *c, double x, double y)
{
    c->ops->move(c, x, y);
}

void ech__canvas_line(ech__canvas *c, double x, double y)
{
    c->ops->line(c, x, y);
}

void ech__canvas_close(ech__canvas *c)
{
    c->ops->close(c);
}

void ech__canvas_circle(ech__canvas *c, double x, double y, double radius)
{
    c->ops->circle(c, x, y, radius);
}

void ech__canvas_rect(ech__canvas *c, double x, double y, double width, double height)
{
    c->ops->move(c, x, y);
    c->ops->line(c, x + width, y);
    c->ops->line(c, x + width, y + height);
    c->ops->line(c, x, y + height);
    c->ops->close(c);
}

void ech__canvas_paint(ech__canvas *c, const ech__paint *paint)
{
    c->ops->paint(c, paint);
}

/* ---- text ---- */

/* Thousandths of the size, from the space on. */
static const short widths[95] = {
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333,  278, 278, 556, 556, 556,
    556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667,
    611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722, 667,  611, 722, 667, 944, 667,
    667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278,  556, 556, 222, 222, 500,
    222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500,  500, 334, 260, 334, 584};

double ech__text_width(const char *text, const ech__text_style *style)
{
    double width = 0;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (style->mono)
            width += (*c & 0xc0) == 0x80 ? 0 : 600;
        else if (*c >= ' ' && *c < 0x7f)
            width += widths[*c - ' '];
        else if ((*c & 0xc0) != 0x80) /* one a character, whatever it is */
            width += *c == 0xc2 ? 400 : 600;
    }
    return width * 1e-3 * style->size * (style->bold ? 1.06 : 1);
}

void ech__canvas_text(ech__canvas *c, double x, double y, const char *text,
                      const ech__text_style *style)
{
    if (*text)
        c->ops->text(c, x, y, text, style);
}

double ech__canvas_measure(ech__canvas *c, const char *text, const ech__text_style *style)
{
    return *text ? c->ops->measure(c, text, style) : 0;
}

void ech__canvas_text_within(ech__canvas *c, double x, double y, double width, const char *text,
                             const ech__text_style *style)
{
    char cut[320];
    size_t length = strlen(text);
    if (ech__canvas_measure(c, text, style) <= width) {
        ech__canvas_text(c, x, y, text, style);
        return;
    }
    length = length < sizeof cut - 8 ? length : sizeof cut - 8;
    while (length > 0) {
        length--;
        while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
            length--; /* whole characters only */
        snprintf(cut, sizeof cut, "%.*s\xe2\x80\xa6", (int)length, text);
        if (ech__canvas_measure(c, cut, style) <= width) {
            ech__canvas_text(c, x, y, cut, style);
            return;
        }
    }
}

/* ---- clips and hovers ---- */

void ech__canvas_clip(ech__canvas *c, double x, double y, double width, double height)
{
    c->ops->clip(c, x, y, width, height);
}

void ech__canvas_unclip(ech__canvas *c)
{
    c->ops->unclip(c);
}

void ech__canvas_hover(ech__canvas *c, const char *fmt, ...)
{
    char text[800];
    if (!c->ops->hover)
        return;
    va_list args;
    va_start(args, fmt);
    const int length = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (length >= (int)sizeof text) { /* no half of a character at the end */
        size_t end = sizeof text - 1;
        while (end > 0 && ((unsigned char)text[end - 1] & 0xc0) == 0x80)
            end--;
        text[end > 0 ? end - 1 : 0] = 0;
    }
    c->ops->hover(c, text);
}

void ech__canvas_unhover(ech__canvas *c)
{
    if (c->ops->unhover)
        c->ops->unhover(c);
}
