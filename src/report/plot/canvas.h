/* One drawing interface for the page, the PDF and pictures. Lengths are points (SVG: CSS pixels), y goes down.
 *
 *     ech__canvas_move(c, 10, 10);
 *     ech__canvas_line(c, 90, 40);
 *     ech__canvas_paint(c, &(ech__paint){.stroke = ECH__INK_AXIS, .width = 1});
 *     ech__canvas_text(c, 50, 60, "devices", &(ech__text_style){.size = 11, .anchor = ECH__MIDDLE});
 *
 * Colours are named by what they are for, so that a page can be light or dark. Where memory runs out or a file
 * cannot be written the canvas goes quiet, and whoever made it hears of it at the end.
 */
#pragma once

#include "base/status.h"

/* Id, class in the page, colour on light paper and on dark. The series' colours are those of Okabe and Ito, which
 * people with any colour vision can tell apart; they differ in lightness too. */
/* clang-format off */
#define ECH__INK_LIST(X)                          \
    X(NONE,    "none",   0xffffff, 0x000000)      \
    X(PAPER,   "paper",  0xffffff, 0x14171a)      \
    X(TEXT,    "text",   0x1b1f24, 0xe6e9ec)      \
    X(MUTED,   "muted",  0x59626c, 0xa4adb6)      \
    X(AXIS,    "axis",   0x6c757e, 0x8a939c)      \
    X(GRID,    "grid",   0xe4e7ea, 0x2b3137)      \
    X(SHADE,   "shade",  0xf1f3f5, 0x20252a)      \
    X(SERIES1, "s1",     0x0072b2, 0x5db1e8)      \
    X(SERIES2, "s2",     0xd55e00, 0xf08a45)      \
    X(SERIES3, "s3",     0x009e73, 0x35c79b)      \
    X(SERIES4, "s4",     0xb8548c, 0xe39ac4)      \
    X(SERIES5, "s5",     0xe69f00, 0xf0bd4e)      \
    X(SERIES6, "s6",     0x56b4e9, 0xa4d8f5)      \
    X(SERIES7, "s7",     0x7f8790, 0xb4bcc4)
/* clang-format on */

typedef enum ech__ink {
#define ECH__INK_ENUM(id, name, light, dark) ECH__INK_##id,
    ECH__INK_LIST(ECH__INK_ENUM)
#undef ECH__INK_ENUM
        ECH__INK_COUNT
} ech__ink;

enum { ECH__INK_SERIES_COUNT = ECH__INK_COUNT - ECH__INK_SERIES1 };

const char *ech__ink_name(ech__ink ink);
/* 0xRRGGBB */
uint32_t ech__ink_colour(ech__ink ink, bool dark);
/* The colour of a series; they come round again after the last. */
ech__ink ech__ink_series(size_t index);

/* How an area is filled, so that it can be told apart without colour. */
typedef enum ech__hatch {
    ECH__HATCH_FULL,
    ECH__HATCH_RISING, /* lines, over a paler ground */
    ECH__HATCH_FALLING,
    ECH__HATCH_DOTS,
    ECH__HATCH_CROSS,
    ECH__HATCH_COUNT
} ech__hatch;

typedef enum ech__dash { ECH__DASH_NONE, ECH__DASH_LONG, ECH__DASH_SHORT } ech__dash;

typedef struct ech__paint {
    ech__ink fill, stroke; /* ECH__INK_NONE: not */
    ech__hatch hatch;      /* of the fill */
    double width;          /* of the stroke */
    ech__dash dash;
} ech__paint;

typedef enum ech__anchor { ECH__START, ECH__MIDDLE, ECH__END } ech__anchor;

typedef struct ech__text_style {
    double size;
    ech__anchor anchor;
    ech__ink ink; /* ECH__INK_NONE: that of text */
    bool bold, italic, mono;
    bool upward; /* turned by a quarter, read from below */
} ech__text_style;

typedef struct ech__canvas ech__canvas;

/* What a backend offers. hover and unhover may be NULL. */
typedef struct ech__canvas_ops {
    void (*move)(ech__canvas *canvas, double x, double y);
    void (*line)(ech__canvas *canvas, double x, double y);
    void (*close)(ech__canvas *canvas);
    void (*circle)(ech__canvas *canvas, double x, double y, double radius);
    void (*paint)(ech__canvas *canvas, const ech__paint *paint);
    void (*text)(ech__canvas *canvas, double x, double y, const char *text,
                 const ech__text_style *style);
    double (*measure)(ech__canvas *canvas, const char *text, const ech__text_style *style);
    void (*clip)(ech__canvas *canvas, double x, double y, double width, double height);
    void (*unclip)(ech__canvas *canvas);
    void (*hover)(ech__canvas *canvas, const char *text);
    void (*unhover)(ech__canvas *canvas);
} ech__canvas_ops;

/* The first member of every backend's own struct. */
struct ech__canvas {
    const ech__canvas_ops *ops;
};

/* ---- paths: begun by move or a shape, ended by paint ---- */

void ech__canvas_move(ech__canvas *canvas, double x, double y);
void ech__canvas_line(ech__canvas *canvas, double x, double y);
void ech__canvas_close(ech__canvas *canvas);
void ech__canvas_circle(ech__canvas *canvas, double x, double y, double radius);
void ech__canvas_rect(ech__canvas *canvas, double x, double y, double width, double height);
void ech__canvas_paint(ech__canvas *canvas, const ech__paint *paint);

/* ---- text: x, y is the anchor on the base line ---- */

void ech__canvas_text(ech__canvas *canvas, double x, double y, const char *text,
                      const ech__text_style *style);
double ech__canvas_measure(ech__canvas *canvas, const char *text, const ech__text_style *style);
/* By the metrics of Helvetica, which Arial and Liberation Sans share: for what must be known without a canvas. */
double ech__text_width(const char *text, const ech__text_style *style);
/* The longest beginning of text that fits, with an ellipsis where something is cut off. */
void ech__canvas_text_within(ech__canvas *canvas, double x, double y, double width,
                             const char *text, const ech__text_style *style);

/* ---- clips nest; what is drawn between hover and unhover shows text under the pointer, where there is one ---- */

void ech__canvas_clip(ech__canvas *canvas, double x, double y, double width, double height);
void ech__canvas_unclip(ech__canvas *canvas);
void ech__canvas_hover(ech__canvas *canvas, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void ech__canvas_unhover(ech__canvas *canvas);

/* ---- SVG of our own (svg.c): text stays text ---- */

typedef struct ech__svg_options {
    double width, height;
    const char *id; /* begins the ids in it, which must differ within a page */
    const char *class_name;
    const char *label; /* what it shows, for those who cannot see it */
    bool standalone;   /* a file of its own: name space, colours and fonts are in it */
} ech__svg_options;

ech_status ech__svg_create(ech_ctx *ctx, const ech__svg_options *options, ech__canvas **out);
/* The whole text, which the caller frees; the canvas is destroyed in any case. */
ech_status ech__svg_finish(ech__canvas *canvas, char **text, size_t *bytes);
