/* Canvases over cairo and pango: the pages of a PDF, and pictures as PNG.
 *
 *     ech__canvas *c;
 *     ECH_TRY(ech__pdf_create(ctx, &(ech__pdf_options){.width = 595, .height = 842, .title = "Report"}, &c));
 *     ech__canvas_text(c, 60, 60, "Page one", &style);
 *     ech__pdf_next_page(c);
 *     ECH_TRY(ech__pdf_finish(c, &bytes, &size));
 */
#pragma once

#include "report/plot/canvas.h"

/* False in a build without cairo and pango: then neither a PDF nor a PNG can be made, and creating one is refused. */
extern const bool ech__can_print;

typedef struct ech__pdf_options {
    double width, height; /* of a page, in points */
    const char *title, *subject;
    const char *date; /* ISO 8601; of the document */
} ech__pdf_options;

ech_status ech__pdf_create(ech_ctx *ctx, const ech__pdf_options *options, ech__canvas **out);
void ech__pdf_next_page(ech__canvas *canvas);
/* Until pop, x, y is the origin and lengths are scaled. */
void ech__pdf_push(ech__canvas *canvas, double x, double y, double scale);
void ech__pdf_pop(ech__canvas *canvas);
/* A place that can be linked to. Names are made of letters, digits, '-', '_' and '.'. */
void ech__pdf_target(ech__canvas *canvas, const char *name, double x, double y);
void ech__pdf_link(ech__canvas *canvas, const char *name, double x, double y, double width,
                   double height);
/* An entry of the reader's side bar, below the last entry of the level above it; level 0 is outermost. */
void ech__pdf_outline(ech__canvas *canvas, int level, const char *title, const char *name);
/* The whole file, which the caller frees; the canvas is destroyed in any case. */
ech_status ech__pdf_finish(ech__canvas *canvas, char **out, size_t *bytes);

/* scale: pixels for each unit of length. */
ech_status ech__png_create(ech_ctx *ctx, double width, double height, double scale,
                           ech__canvas **out);
ech_status ech__png_finish(ech__canvas *canvas, char **out, size_t *bytes);
