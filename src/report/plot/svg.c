/* A canvas that writes SVG. Colours are classes, so that a page can change them. */
#include "report/plot/canvas.h"
#include "report/markup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct svg {
    ech__canvas canvas; /* must be first */
    ech_ctx *ctx;
    FILE *file; /* into text */
    char *text;
    size_t bytes;
    char id[64];
    int clips;                                          /* made so far */
    bool has_pattern[ECH__INK_COUNT][ECH__HATCH_COUNT]; /* defined already */
    bool in_path;
} svg;

static svg *svg_of(ech__canvas *canvas)
{
    return (svg *)canvas;
}

/* ---- paths ---- */

static void command(svg *s, char letter, double x, double y)
{
    if (!s->in_path)
        fputs("<path d=\"", s->file);
    s->in_path = true;
    fputc(letter, s->file);
    ech__markup_number(s->file, x);
    fputc(' ', s->file);
    ech__markup_number(s->file, y);
}

static void svg_move(ech__canvas *canvas, double x, double y)
{
    command(svg_of(canvas), 'M', x, y);
}

static void svg_line(ech__canvas *canvas, double x, double y)
{
    command(svg_of(canvas), 'L', x, y);
}

static void svg_close(ech__canvas *canvas)
{
    if (svg_of(canvas)->in_path)
        fputc('z', svg_of(canvas)->file);
}

/* Two half circles. */
static void svg_circle(ech__canvas *canvas, double x, double y, double radius)
{
    svg *s = svg_of(canvas);
    command(s, 'M', x - radius, y);
    for (int half = 0; half < 2; half++) {
        fputc('a', s->file);
        ech__markup_number(s->file, radius);
        fputc(' ', s->file);
        ech__markup_number(s->file, radius);
        fputs(" 0 1 0 ", s->file);
        ech__markup_number(s->file, half ? -2 * radius : 2 * radius);
        fputs(" 0", s->file);
    }
    fputc('z', s->file);
}

/* ---- paint ---- */

static const char *const hatch_names[ECH__HATCH_COUNT] = {"", "r", "f", "d", "c"};

/* Written where the pattern is first used. */
static void define_pattern(svg *s, ech__ink ink, ech__hatch hatch)
{
    static const char *const bodies[ECH__HATCH_COUNT] = {
        "",
        "M-1 1L1 -1M-1 7L7 -1M5 7L7 5",
        "M-1 -1L7 7M-1 5L1 7M5 -1L7 1",
        "M1.5 1.5h0M4.5 4.5h0",
        "M0 3h6M3 0v6",
    };
    if (s->has_pattern[ink][hatch])
        return;
    s->has_pattern[ink][hatch] = true;
    fprintf(s->file,
            "<defs><pattern id=\"%s%s%s\" width=\"6\" height=\"6\" "
            "patternUnits=\"userSpaceOnUse\"><path class=\"f-%s pale\" d=\"M0 0h6v6h-6z\"/>"
            "<path class=\"l-%s\" stroke-width=\"%s\"%s d=\"%s\"/></pattern></defs>",
            s->id, hatch_names[hatch], ech__ink_name(ink), ech__ink_name(ink), ech__ink_name(ink),
            hatch == ECH__HATCH_DOTS ? "2" : "1.2",
            hatch == ECH__HATCH_DOTS ? " stroke-linecap=\"round\"" : "", bodies[hatch]);
}

static void svg_paint(ech__canvas *canvas, const ech__paint *p)
{
    svg *s = svg_of(canvas);
    const bool hatched = p->fill != ECH__INK_NONE && p->hatch != ECH__HATCH_FULL;
    if (!s->in_path)
        return;
    s->in_path = false;
    fputs("\" class=\"", s->file);
    if (p->fill != ECH__INK_NONE && !hatched)
        fprintf(s->file, "f-%s", ech__ink_name(p->fill));
    else
        fputs(hatched ? "" : "f-none", s->file);
    if (p->stroke != ECH__INK_NONE)
        fprintf(s->file, " l-%s", ech__ink_name(p->stroke));
    fputc('"', s->file);
    if (hatched)
        fprintf(s->file, " fill=\"url(#%s%s%s)\"", s->id, hatch_names[p->hatch],
                ech__ink_name(p->fill));
    if (p->stroke != ECH__INK_NONE) {
        fputs(" stroke-width=\"", s->file);
        ech__markup_number(s->file, p->width);
        fputc('"', s->file);
    }
    if (p->dash != ECH__DASH_NONE)
        fprintf(s->file, " stroke-dasharray=\"%s\"", p->dash == ECH__DASH_LONG ? "6 4" : "2 3");
    fputs("/>", s->file);
    if (hatched)
        define_pattern(s, p->fill, p->hatch);
}

/* ---- text ---- */

static double svg_measure(ech__canvas *canvas, const char *text, const ech__text_style *style)
{
    (void)canvas;
    return ech__text_width(text, style);
}

static void svg_text(ech__canvas *canvas, double x, double y, const char *text,
                     const ech__text_style *style)
{
    static const char *const anchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
    svg *s = svg_of(canvas);
    const ech__ink ink = style->ink == ECH__INK_NONE ? ECH__INK_TEXT : style->ink;
    fprintf(s->file, "<text class=\"f-%s%s%s%s\"%s font-size=\"", ech__ink_name(ink),
            style->bold ? " b" : "", style->italic ? " i" : "", style->mono ? " m" : "",
            anchors[style->anchor]);
    ech__markup_number(s->file, style->size);
    fputs(style->upward ? "\" transform=\"translate(" : "\" x=\"", s->file);
    ech__markup_number(s->file, x);
    fputs(style->upward ? " " : "\" y=\"", s->file);
    ech__markup_number(s->file, y);
    fputs(style->upward ? ") rotate(-90)\">" : "\">", s->file);
    ech__markup_text(s->file, text);
    fputs("</text>", s->file);
}

/* ---- clips and hovers ---- */

static void svg_clip(ech__canvas *canvas, double x, double y, double width, double height)
{
    svg *s = svg_of(canvas);
    fprintf(s->file, "<clipPath id=\"%sk%d\">", s->id, s->clips);
    ech__canvas_rect(canvas, x, y, width, height);
    s->in_path = false;
    fprintf(s->file, "\"/></clipPath><g clip-path=\"url(#%sk%d)\">", s->id, s->clips);
    s->clips++;
}

static void end_group(ech__canvas *canvas)
{
    fputs("</g>", svg_of(canvas)->file);
}

static void svg_hover(ech__canvas *canvas, const char *text)
{
    svg *s = svg_of(canvas);
    fputs("<g class=\"h\"><title>", s->file);
    ech__markup_text(s->file, text);
    fputs("</title>", s->file);
}

static const ech__canvas_ops ops = {
    .move = svg_move,
    .line = svg_line,
    .close = svg_close,
    .circle = svg_circle,
    .paint = svg_paint,
    .text = svg_text,
    .measure = svg_measure,
    .clip = svg_clip,
    .unclip = end_group,
    .hover = svg_hover,
    .unhover = end_group,
};

/* ---- life ---- */

/* Colours of a file that stands alone. */
static void write_style(FILE *file)
{
    fputs("<style>text{font-family:\"Liberation Sans\",Arial,Helvetica,sans-serif}"
          ".b{font-weight:bold}.i{font-style:italic}.m{font-family:monospace}.pale{opacity:.3}",
          file);
    for (int ink = ECH__INK_PAPER; ink < ECH__INK_COUNT; ink++)
        fprintf(file, ".f-%s{fill:#%06x}.l-%s{stroke:#%06x}", ech__ink_name((ech__ink)ink),
                (unsigned)ech__ink_colour((ech__ink)ink, false), ech__ink_name((ech__ink)ink),
                (unsigned)ech__ink_colour((ech__ink)ink, false));
    fputs(".f-none{fill:none}</style>", file);
}

static void write_start(svg *s, const ech__svg_options *o)
{
    fputs("<svg ", s->file);
    if (o->standalone)
        fputs("xmlns=\"http://www.w3.org/2000/svg\" ", s->file);
    fputs("width=\"", s->file);
    ech__markup_number(s->file, o->width);
    fputs("\" height=\"", s->file);
    ech__markup_number(s->file, o->height);
    fputs("\" viewBox=\"0 0 ", s->file);
    ech__markup_number(s->file, o->width);
    fputc(' ', s->file);
    ech__markup_number(s->file, o->height);
    fprintf(s->file, "\"%s%s%s role=\"img\" aria-label=\"", o->class_name ? " class=\"" : "",
            o->class_name ? o->class_name : "", o->class_name ? "\"" : "");
    ech__markup_text(s->file, o->label ? o->label : "");
    fputs("\">", s->file);
    if (o->standalone) {
        write_style(s->file);
        ech__canvas_rect(&s->canvas, 0, 0, o->width, o->height);
        ech__canvas_paint(&s->canvas, &(ech__paint){.fill = ECH__INK_PAPER});
    }
}

ech_status ech__svg_create(ech_ctx *ctx, const ech__svg_options *options, ech__canvas **out)
{
    *out = NULL;
    svg *s = ech__new(ctx, sizeof *s);
    if (s)
        s->file = open_memstream(&s->text, &s->bytes);
    if (!s || !s->file) {
        ech__delete(ctx, s, sizeof *s);
        return ech__no_memory(ctx, "a picture");
    }
    s->canvas.ops = &ops;
    s->ctx = ctx;
    snprintf(s->id, sizeof s->id, "%s", options->id ? options->id : "p");
    write_start(s, options);
    *out = &s->canvas;
    return ECH_OK;
}

ech_status ech__svg_finish(ech__canvas *canvas, char **text, size_t *bytes)
{
    svg *s = svg_of(canvas);
    ech_ctx *ctx = s->ctx;
    fputs("</svg>\n", s->file);
    const bool failed = ferror(s->file) != 0;
    const bool closed = fclose(s->file) == 0;
    *text = s->text;
    *bytes = s->bytes;
    ech__delete(ctx, s, sizeof *s);
    if (closed && !failed)
        return ECH_OK;
    free(*text);
    *text = NULL;
    return ech__no_memory(ctx, "a picture");
}
