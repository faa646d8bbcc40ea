/* Plots with their titles as files of their own. */
#include "base/file/dir.h"
#include "base/file/file.h"
#include "report/cairo.h"
#include "report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { WIDTH = 720, MARGIN = 20, TITLE = 30, FOOT = 18, PIXELS = 2 };

static bool ends_in(const char *path, const char *end)
{
    const size_t length = strlen(path), own = strlen(end);
    return length > own && !strcasecmp(path + length - own, end);
}

bool ech__is_picture_name(const char *path)
{
    return ends_in(path, ".png") || ends_in(path, ".svg");
}

static void draw(const ech__plot *plot, ech__canvas *canvas, double height)
{
    ech__canvas_text_within(canvas, MARGIN, MARGIN + 14, WIDTH - 2 * MARGIN, plot->title,
                            &(ech__text_style){.size = 15, .bold = true});
    ech__plot_draw(plot, canvas, (ech__area){MARGIN, MARGIN + TITLE, WIDTH - 2 * MARGIN, height});
    ech__canvas_text(canvas, MARGIN, MARGIN + TITLE + height + FOOT - 4, ech__plot_basis_text(plot),
                     &(ech__text_style){.size = 10, .ink = ECH__INK_MUTED});
}

ech_status ech__report_picture(ech_ctx *ctx, const ech__plot *plot, const char *path)
{
    const double height = ech__plot_height(plot, WIDTH - 2 * MARGIN);
    const double all = height + TITLE + FOOT + 2 * MARGIN;
    const bool png = ends_in(path, ".png");
    ech__canvas *canvas;
    char *data;
    size_t bytes;
    if (!ech__is_picture_name(path))
        return ech__fail(ctx, ECH_E_INVALID, "picture '%.200s': the name must end in .svg or .png",
                         path);
    if (png) {
        ECH_TRY(ech__png_create(ctx, WIDTH, all, PIXELS, &canvas));
        draw(plot, canvas, height);
        ECH_TRY(ech__png_finish(canvas, &data, &bytes));
    } else {
        const ech__svg_options options = {
            .width = WIDTH, .height = all, .label = plot->title, .standalone = true};
        ECH_TRY(ech__svg_create(ctx, &options, &canvas));
        draw(plot, canvas, height);
        ECH_TRY(ech__svg_finish(canvas, &data, &bytes));
    }
    const ech_status status = ech__file_write(ctx, path, data, bytes);
    free(data);
    return status;
}

ech_status ech__report_pictures(const ech__book *book, const char *dir, bool png, size_t *written)
{
    char path[ECH_DIR_MAX_PATH + 128];
    *written = 0;
    ECH_TRY(ech__dir_make(book->ctx, "directory for pictures", dir));
    for (size_t s = 0; s < book->nstudies; s++) {
        for (size_t i = 0; i < book->studies[s].nplots; i++) {
            snprintf(path, sizeof path, "%s/%s-%zu.%s", dir, book->studies[s].id, i + 1,
                     png ? "png" : "svg");
            ECH_TRY(ech__report_picture(book->ctx, &book->studies[s].plots[i], path));
            ++*written;
        }
    }
    return ECH_OK;
}
