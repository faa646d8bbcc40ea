/* The one file that knows cairo and pango. */
#include "report/cairo.h"
#include "base/system/available.h"

#include <cairo-pdf.h>
#include <math.h>
#include <pango/pangocairo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const bool ech__can_print = true;

enum { LEVELS = 4 };

typedef struct pages {
    ech__canvas canvas; /* must be first */
    ech_ctx *ctx;
    cairo_surface_t *surface;
    cairo_t *cairo;
    PangoFontMap *fonts; /* of its own: it goes with the canvas */
    PangoLayout *layout;
    char *data; /* the file so far */
    size_t bytes, capacity;
    int outline[LEVELS]; /* last entry of each level */
} pages;

static pages *pages_of(ech__canvas *canvas)
{
    return (pages *)canvas;
}

/* ---- paths ---- */

static void set_ink(pages *p, ech__ink ink, double alpha)
{
    const uint32_t c = ech__ink_colour(ink, false);
    cairo_set_source_rgba(p->cairo, (c >> 16 & 0xff) / 255.0, (c >> 8 & 0xff) / 255.0,
                          (c & 0xff) / 255.0, alpha);
}

static void pages_move(ech__canvas *canvas, double x, double y)
{
    cairo_move_to(pages_of(canvas)->cairo, x, y);
}

static void pages_line(ech__canvas *canvas, double x, double y)
{
    cairo_line_to(pages_of(canvas)->cairo, x, y);
}

static void pages_close(ech__canvas *canvas)
{
    cairo_close_path(pages_of(canvas)->cairo);
}

static void pages_circle(ech__canvas *canvas, double x, double y, double radius)
{
    cairo_new_sub_path(pages_of(canvas)->cairo);
    cairo_arc(pages_of(canvas)->cairo, x, y, radius, 0, 2 * M_PI);
    cairo_close_path(pages_of(canvas)->cairo);
}

/* ---- hatches: a pale ground, and lines or dots over the extents of the path ---- */

typedef struct box {
    double x0, y0, x1, y1;
} box;

/* Places of a grid that covers a range. */
typedef struct grid {
    int first, last;
    double pitch;
} grid;

static grid grid_over(double low, double high, double pitch)
{
    return (grid){(int)floor(low / pitch), (int)ceil(high / pitch), pitch};
}

static void hatch_lines(cairo_t *c, box b, bool rising)
{
    const double height = b.y1 - b.y0;
    const grid across = grid_over(b.x0 - height, b.x1, 4.6);
    for (int i = across.first; i <= across.last; i++) {
        cairo_move_to(c, i * across.pitch, rising ? b.y1 : b.y0);
        cairo_line_to(c, i * across.pitch + height, rising ? b.y0 : b.y1);
    }
    cairo_set_line_width(c, 1);
    cairo_stroke(c);
}

static void hatch_dots(cairo_t *c, box b)
{
    const grid across = grid_over(b.x0, b.x1, 4.2), down = grid_over(b.y0, b.y1, 2.1);
    for (int row = down.first; row <= down.last; row++) {
        for (int i = across.first; i <= across.last; i++) {
            cairo_new_sub_path(c);
            cairo_arc(c, (i + (row & 1) * 0.5) * across.pitch, row * down.pitch, 0.8, 0, 2 * M_PI);
        }
    }
    cairo_fill(c);
}

static void hatch_cross(cairo_t *c, box b)
{
    const grid across = grid_over(b.x0, b.x1, 5), down = grid_over(b.y0, b.y1, 5);
    for (int i = across.first; i <= across.last; i++) {
        cairo_move_to(c, i * across.pitch, b.y0);
        cairo_line_to(c, i * across.pitch, b.y1);
    }
    for (int i = down.first; i <= down.last; i++) {
        cairo_move_to(c, b.x0, i * down.pitch);
        cairo_line_to(c, b.x1, i * down.pitch);
    }
    cairo_set_line_width(c, 0.8);
    cairo_stroke(c);
}

static void fill_hatched(pages *p, const ech__paint *paint)
{
    cairo_t *c = p->cairo;
    box b;
    cairo_path_t *path = cairo_copy_path(c);
    cairo_fill_extents(c, &b.x0, &b.y0, &b.x1, &b.y1);
    cairo_save(c);
    set_ink(p, paint->fill, 0.3);
    cairo_clip_preserve(c);
    cairo_fill(c);
    set_ink(p, paint->fill, 1);
    if (paint->hatch == ECH__HATCH_RISING || paint->hatch == ECH__HATCH_FALLING)
        hatch_lines(c, b, paint->hatch == ECH__HATCH_RISING);
    else if (paint->hatch == ECH__HATCH_DOTS)
        hatch_dots(c, b);
    else
        hatch_cross(c, b);
    cairo_restore(c);
    cairo_new_path(c);
    cairo_append_path(c, path);
    cairo_path_destroy(path);
}

static void pages_paint(ech__canvas *canvas, const ech__paint *paint)
{
    static const double dashes[][2] = {{0, 0}, {6, 4}, {2, 3}};
    pages *p = pages_of(canvas);
    if (paint->fill != ECH__INK_NONE && paint->hatch != ECH__HATCH_FULL) {
        fill_hatched(p, paint);
    } else if (paint->fill != ECH__INK_NONE) {
        set_ink(p, paint->fill, 1);
        cairo_fill_preserve(p->cairo);
    }
    if (paint->stroke != ECH__INK_NONE && paint->width > 0) {
        set_ink(p, paint->stroke, 1);
        cairo_set_line_width(p->cairo, paint->width);
        cairo_set_line_join(p->cairo, CAIRO_LINE_JOIN_ROUND);
        cairo_set_dash(p->cairo, dashes[paint->dash], paint->dash == ECH__DASH_NONE ? 0 : 2, 0);
        cairo_stroke_preserve(p->cairo);
        cairo_set_dash(p->cairo, NULL, 0, 0);
    }
    cairo_new_path(p->cairo);
}

/* ---- text ---- */

static void set_text(pages *p, const char *text, const ech__text_style *style)
{
    PangoFontDescription *font = pango_font_description_from_string(
        style->mono ? "Liberation Mono,DejaVu Sans Mono,monospace"
                    : "Liberation Sans,Arial,DejaVu Sans,sans-serif");
    pango_font_description_set_absolute_size(font, style->size * PANGO_SCALE);
    if (style->bold)
        pango_font_description_set_weight(font, PANGO_WEIGHT_BOLD);
    if (style->italic)
        pango_font_description_set_style(font, PANGO_STYLE_ITALIC);
    pango_layout_set_font_description(p->layout, font);
    pango_font_description_free(font);
    pango_layout_set_text(p->layout, text, -1);
}

static double pages_measure(ech__canvas *canvas, const char *text, const ech__text_style *style)
{
    PangoRectangle r;
    set_text(pages_of(canvas), text, style);
    pango_layout_get_extents(pages_of(canvas)->layout, NULL, &r);
    return (double)r.width / PANGO_SCALE;
}

static void pages_text(ech__canvas *canvas, double x, double y, const char *text,
                       const ech__text_style *style)
{
    pages *p = pages_of(canvas);
    const double width = pages_measure(canvas, text, style);
    const double shift = style->anchor == ECH__END ? width : style->anchor ? width / 2 : 0;
    cairo_save(p->cairo);
    set_ink(p, style->ink == ECH__INK_NONE ? ECH__INK_TEXT : style->ink, 1);
    cairo_translate(p->cairo, x, y);
    if (style->upward)
        cairo_rotate(p->cairo, -M_PI / 2);
    cairo_move_to(p->cairo, -shift, 0);
    pango_cairo_update_layout(p->cairo, p->layout);
    pango_cairo_show_layout_line(p->cairo, pango_layout_get_line_readonly(p->layout, 0));
    cairo_restore(p->cairo);
    cairo_new_path(p->cairo);
}

static void pages_clip(ech__canvas *canvas, double x, double y, double width, double height)
{
    cairo_save(pages_of(canvas)->cairo);
    cairo_rectangle(pages_of(canvas)->cairo, x, y, width, height);
    cairo_clip(pages_of(canvas)->cairo);
}

static void pages_unclip(ech__canvas *canvas)
{
    cairo_restore(pages_of(canvas)->cairo);
}

static const ech__canvas_ops ops = {
    .move = pages_move,
    .line = pages_line,
    .close = pages_close,
    .circle = pages_circle,
    .paint = pages_paint,
    .text = pages_text,
    .measure = pages_measure,
    .clip = pages_clip,
    .unclip = pages_unclip,
};

/* ---- life ---- */

static cairo_status_t append(void *closure, const unsigned char *data, unsigned length)
{
    pages *p = closure;
    if (p->bytes + length > p->capacity) {
        const size_t capacity = (p->bytes + length) * 2;
        char *more = realloc(p->data, capacity);
        if (!more)
            return CAIRO_STATUS_NO_MEMORY;
        p->data = more;
        p->capacity = capacity;
    }
    memcpy(p->data + p->bytes, data, length);
    p->bytes += length;
    return CAIRO_STATUS_SUCCESS;
}

/* Letters keep their own widths at every size, so that lines break alike on paper and on screens. */
static bool make_layout(pages *p)
{
    cairo_font_options_t *font = cairo_font_options_create();
    p->cairo = cairo_create(p->surface);
    p->fonts = pango_cairo_font_map_new();
    PangoContext *context = p->fonts ? pango_font_map_create_context(p->fonts) : NULL;
    if (context) {
        pango_cairo_update_context(p->cairo, context);
        p->layout = pango_layout_new(context);
        g_object_unref(context);
    }
    if (p->layout) {
        cairo_font_options_set_hint_style(font, CAIRO_HINT_STYLE_NONE);
        cairo_font_options_set_hint_metrics(font, CAIRO_HINT_METRICS_OFF);
        pango_cairo_context_set_font_options(pango_layout_get_context(p->layout), font);
        pango_context_set_round_glyph_positions(pango_layout_get_context(p->layout), FALSE);
        pango_layout_set_single_paragraph_mode(p->layout, TRUE);
    }
    cairo_font_options_destroy(font);
    return p->layout && cairo_status(p->cairo) == CAIRO_STATUS_SUCCESS;
}

static pages *new_pages(ech_ctx *ctx)
{
    pages *p = ech__new(ctx, sizeof *p);
    if (p) {
        p->canvas.ops = &ops;
        p->ctx = ctx;
    }
    return p;
}

static void destroy(pages *p)
{
    if (p->layout)
        g_object_unref(p->layout);
    if (p->fonts)
        g_object_unref(p->fonts);
    if (p->cairo)
        cairo_destroy(p->cairo);
    if (p->surface)
        cairo_surface_destroy(p->surface);
    ech__delete(p->ctx, p, sizeof *p);
}

/* Pango looks for fonts in threads, and GLib ends the program where one cannot be started. */
enum { FONT_THREADS = 8 };

static ech_status started(ech_ctx *ctx, pages *p, ech__canvas **out)
{
    const ech_status status = ech__threads_check(ctx, "a page with its fonts", FONT_THREADS);
    if (status == ECH_OK && p && make_layout(p)) {
        *out = &p->canvas;
        return ECH_OK;
    }
    if (p) {
        free(p->data);
        destroy(p);
    }
    return status < 0 ? status : ech__no_memory(ctx, "a page");
}

static ech_status taken(pages *p, cairo_status_t status, const char *what, char **out,
                        size_t *bytes)
{
    ech_ctx *ctx = p->ctx;
    *out = p->data;
    *bytes = p->bytes;
    destroy(p);
    if (status == CAIRO_STATUS_SUCCESS)
        return ECH_OK;
    free(*out);
    *out = NULL;
    return ech__fail(ctx, status == CAIRO_STATUS_NO_MEMORY ? ECH_E_NOMEM : ECH_E_IO,
                     "the %s cannot be made: %s", what, cairo_status_to_string(status));
}

/* ---- PDF ---- */

static void set_metadata(cairo_surface_t *surface, cairo_pdf_metadata_t what, const char *text)
{
    if (text)
        cairo_pdf_surface_set_metadata(surface, what, text);
}

ech_status ech__pdf_create(ech_ctx *ctx, const ech__pdf_options *o, ech__canvas **out)
{
    *out = NULL;
    pages *p = new_pages(ctx);
    if (p) {
        p->surface = cairo_pdf_surface_create_for_stream(append, p, o->width, o->height);
        set_metadata(p->surface, CAIRO_PDF_METADATA_TITLE, o->title);
        set_metadata(p->surface, CAIRO_PDF_METADATA_SUBJECT, o->subject);
        set_metadata(p->surface, CAIRO_PDF_METADATA_CREATOR, "Echelon");
        set_metadata(p->surface, CAIRO_PDF_METADATA_CREATE_DATE, o->date);
    }
    return started(ctx, p, out);
}

void ech__pdf_next_page(ech__canvas *canvas)
{
    cairo_show_page(pages_of(canvas)->cairo);
}

void ech__pdf_push(ech__canvas *canvas, double x, double y, double scale)
{
    cairo_save(pages_of(canvas)->cairo);
    cairo_translate(pages_of(canvas)->cairo, x, y);
    cairo_scale(pages_of(canvas)->cairo, scale, scale);
}

void ech__pdf_pop(ech__canvas *canvas)
{
    cairo_restore(pages_of(canvas)->cairo);
}

void ech__pdf_target(ech__canvas *canvas, const char *name, double x, double y)
{
    char attributes[160];
    snprintf(attributes, sizeof attributes, "name='%.80s' x=%d y=%d", name, (int)x, (int)y);
    cairo_tag_begin(pages_of(canvas)->cairo, CAIRO_TAG_DEST, attributes);
    cairo_tag_end(pages_of(canvas)->cairo, CAIRO_TAG_DEST);
}

void ech__pdf_link(ech__canvas *canvas, const char *name, double x, double y, double width,
                   double height)
{
    char attributes[160];
    snprintf(attributes, sizeof attributes, "dest='%.80s' rect=[%d %d %d %d]", name, (int)x, (int)y,
             (int)width, (int)height);
    cairo_tag_begin(pages_of(canvas)->cairo, CAIRO_TAG_LINK, attributes);
    cairo_tag_end(pages_of(canvas)->cairo, CAIRO_TAG_LINK);
}

void ech__pdf_outline(ech__canvas *canvas, int level, const char *title, const char *name)
{
    pages *p = pages_of(canvas);
    char attributes[120];
    snprintf(attributes, sizeof attributes, "dest='%.80s'", name);
    p->outline[level] = cairo_pdf_surface_add_outline(
        p->surface, level ? p->outline[level - 1] : CAIRO_PDF_OUTLINE_ROOT, title, attributes,
        level ? 0 : CAIRO_PDF_OUTLINE_FLAG_OPEN);
}

ech_status ech__pdf_finish(ech__canvas *canvas, char **out, size_t *bytes)
{
    pages *p = pages_of(canvas);
    cairo_status_t status = cairo_status(p->cairo);
    cairo_surface_finish(p->surface);
    if (status == CAIRO_STATUS_SUCCESS)
        status = cairo_surface_status(p->surface);
    return taken(p, status, "PDF", out, bytes);
}

/* ---- PNG ---- */

ech_status ech__png_create(ech_ctx *ctx, double width, double height, double scale,
                           ech__canvas **out)
{
    *out = NULL;
    pages *p = new_pages(ctx);
    if (p)
        p->surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)ceil(width * scale),
                                                (int)ceil(height * scale));
    ECH_TRY(started(ctx, p, out));
    cairo_scale(p->cairo, scale, scale);
    set_ink(p, ECH__INK_PAPER, 1);
    cairo_paint(p->cairo);
    return ECH_OK;
}

ech_status ech__png_finish(ech__canvas *canvas, char **out, size_t *bytes)
{
    pages *p = pages_of(canvas);
    cairo_status_t status = cairo_status(p->cairo);
    cairo_surface_flush(p->surface);
    if (status == CAIRO_STATUS_SUCCESS)
        status = cairo_surface_write_to_png_stream(p->surface, append, p);
    return taken(p, status, "picture", out, bytes);
}
