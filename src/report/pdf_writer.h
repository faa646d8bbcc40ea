/* Setting text on the pages of a PDF: where the pen is, when a page is full, how lines break.
 *
 *     ech__press p = {.canvas = canvas, .title = "Report"};
 *     ech__press_begin(&p);
 *     ech__press_paragraph(&p, text, &ech__press_body);
 *     ech__press_need(&p, 200);                        what follows stays on one page
 *     ech__press_end(&p);
 */
#pragma once

#include "report/cairo.h"

/* A4, in points. */
#define ECH__PAGE_WIDTH 595.276
#define ECH__PAGE_HEIGHT 841.89
#define ECH__PAGE_LEFT 60.0
#define ECH__PAGE_TOP 64.0
#define ECH__PAGE_BOTTOM (ECH__PAGE_HEIGHT - 66.0)
#define ECH__TEXT_WIDTH (ECH__PAGE_WIDTH - 2 * ECH__PAGE_LEFT)

typedef struct ech__press {
    ech__canvas *canvas;
    const char *title;   /* in the footer */
    const char *running; /* at the head of pages behind the first; may be NULL */
    double y;            /* the pen: where the next thing begins */
    int page;            /* from 1 */
    /* Called at the top of every new page, to set what did not fit on the one before; may be NULL. */
    void (*top)(struct ech__press *press, void *user);
    void *user;
} ech__press;

void ech__press_begin(ech__press *press);
void ech__press_end(ech__press *press);
void ech__press_new_page(ech__press *press);
/* A new page where less than height is left on this one. */
void ech__press_need(ech__press *press, double height);
void ech__press_space(ech__press *press, double height);

typedef struct ech__press_style {
    ech__text_style text;
    double leading; /* from line to line */
    double indent;  /* from the left edge */
    double hang;    /* of lines behind the first */
    double width;   /* 0: up to the right edge */
    double after;   /* space behind it */
} ech__press_style;

extern const ech__press_style ech__press_body, ech__press_small, ech__press_caption,
    ech__press_code;

/* Lines break at spaces, and inside of words that are longer than a line. "\n" ends a line. */
void ech__press_paragraph(ech__press *press, const char *text, const ech__press_style *style);

/* The first bytes of text that fit in a line, and where the next line begins. */
typedef struct ech__press_break {
    size_t length, next;
} ech__press_break;
ech__press_break ech__press_line(ech__canvas *canvas, const char *text,
                                 const ech__text_style *style, double width);
/* Lines that text takes in a width. */
size_t ech__press_count(ech__canvas *canvas, const char *text, const ech__text_style *style,
                        double width);
