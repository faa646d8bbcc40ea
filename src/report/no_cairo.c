/* In place of pages.c in a build without cairo and pango: no canvas is made, so nothing is ever drawn on one. */
#include "report/cairo.h"

const bool ech__can_print = false;

static ech_status refused(ech_ctx *ctx, const char *what)
{
    return ech__fail(ctx, ECH_E_UNSUPPORTED,
                     "no %s: this build is without cairo and pango (Debian: libcairo2-dev, "
                     "libpango1.0-dev)",
                     what);
}

ech_status ech__pdf_create(ech_ctx *ctx, const ech__pdf_options *options, ech__canvas **out)
{
    (void)options, (void)out;
    return refused(ctx, "PDF");
}

void ech__pdf_next_page(ech__canvas *canvas)
{
    (void)canvas;
}

void ech__pdf_push(ech__canvas *canvas, double x, double y, double scale)
{
    (void)canvas, (void)x, (void)y, (void)scale;
}

void ech__pdf_pop(ech__canvas *canvas)
{
    (void)canvas;
}

void ech__pdf_target(ech__canvas *canvas, const char *name, double x, double y)
{
    (void)canvas, (void)name, (void)x, (void)y;
}

void ech__pdf_link(ech__canvas *canvas, const char *name, double x, double y, double width,
                   double height)
{
    (void)canvas, (void)name, (void)x, (void)y, (void)width, (void)height;
}

void ech__pdf_outline(ech__canvas *canvas, int level, const char *title, const char *name)
{
    (void)canvas, (void)level, (void)title, (void)name;
}

ech_status ech__pdf_finish(ech__canvas *canvas, char **out, size_t *bytes)
{
    (void)canvas;
    *out = NULL;
    *bytes = 0;
    return ECH_E_UNSUPPORTED;
}

ech_status ech__png_create(ech_ctx *ctx, double width, double height, double scale,
                           ech__canvas **out)
{
    (void)width, (void)height, (void)scale, (void)out;
    return refused(ctx, "PNG plots");
}

ech_status ech__png_finish(ech__canvas *canvas, char **out, size_t *bytes)
{
    (void)canvas;
    *out = NULL;
    *bytes = 0;
    return ECH_E_UNSUPPORTED;
}
