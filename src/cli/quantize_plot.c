/* Histograms as SVG: one picture for each layer's weight and one for each value, with the range that the integers cover marked.
 * Bars grow with the logarithm of their counts, so that outliers can be seen beside the bulk. */
#include "base/dir.h"
#include "base/file.h"
#include "cli/quantize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 640, HEIGHT = 360, LEFT = 72, RIGHT = 24, TOP = 64, BOTTOM = 56 };

typedef struct plot {
    FILE *out;
    ech__bars bars;
    double x0, x1, top; /* ends of the axis; logarithm of the highest bar */
} plot;

static double x_at(const plot *p, double value)
{
    return LEFT + (value - p->x0) / (p->x1 - p->x0) * (WIDTH - LEFT - RIGHT);
}

static double y_at(const plot *p, double count)
{
    const double height = count > 0 ? log10(count) + 0.3 : 0; /* one sample is seen too */
    return HEIGHT - BOTTOM - height / (p->top + 0.3) * (HEIGHT - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten, so that there are about `count` of them in a range. */
static double step_of(double range, int count)
{
    const double raw = range / count, power = pow(10, floor(log10(raw))), digit = raw / power;
    return power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
}

static void draw_axes(const plot *p)
{
    const double step = step_of(p->x1 - p->x0, 8);
    const int first = (int)ceil(p->x0 / step), last = (int)floor(p->x1 / step);
    for (int i = first; i <= last; i++)
        fprintf(p->out,
                "<path class=\"grid\" d=\"M%.1f %dV%d\"/>\n"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.3g</text>\n",
                x_at(p, i * step), TOP, HEIGHT - BOTTOM, x_at(p, i * step), HEIGHT - BOTTOM + 18,
                i * step);
    for (int power = 0; power <= (int)p->top; power++)
        fprintf(p->out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.0f</text>\n", LEFT - 8,
                y_at(p, pow(10, power)) + 4, pow(10, power));
    fprintf(p->out, "<path class=\"axis\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP, HEIGHT - BOTTOM,
            WIDTH - RIGHT);
}

static void draw_bars(const plot *p)
{
    for (int b = 0; b < p->bars.count; b++) {
        const double x = x_at(p, p->bars.low + b * p->bars.width);
        const double end = x_at(p, p->bars.low + (b + 1) * p->bars.width);
        const double y = y_at(p, (double)p->bars.height[b]);
        if (p->bars.height[b])
            fprintf(p->out,
                    "<rect class=\"bar\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>\n",
                    x, y, end - x, HEIGHT - BOTTOM - y);
    }
}

/* A dashed line where the integers end. */
static void draw_limit(const plot *p, double value)
{
    if (value > p->x0 && value < p->x1)
        fprintf(p->out, "<path class=\"limit\" d=\"M%.1f %dV%d\"/>\n", x_at(p, value), TOP,
                HEIGHT - BOTTOM);
}

static void draw_limits(const plot *p, const ech__study *study, const ech__seen *seen, size_t i)
{
    if (seen->value < 0) {
        const ech__layer_scales *layer = &study->scales.layers[i];
        float most = 0;
        for (int64_t o = 0; o < layer->outputs; o++)
            most = layer->scale[o] > most ? layer->scale[o] : most;
        draw_limit(p, 127 * (double)most);
        draw_limit(p, -127 * (double)most);
    } else if (ech__has_scale(&study->model, seen->value)) {
        const bool positive = ech__scale_type(study->model.fused, seen->value) == ECH_U8;
        const double scale = (double)study->scales.activation[seen->value];
        draw_limit(p, (positive ? 255 : 127) * scale);
        if (!positive)
            draw_limit(p, -128 * scale);
    }
}

static void draw(FILE *out, const ech__study *study, const ech__seen *seen, size_t i)
{
    const ech__spread s = ech__histogram_spread(seen->histogram);
    plot p = {.out = out, .bars = ech__histogram_bars(seen->histogram)};
    int64_t highest = 1;
    for (int b = 0; b < p.bars.count; b++)
        highest = p.bars.height[b] > highest ? p.bars.height[b] : highest;
    p.top = log10((double)highest);
    p.x0 = p.bars.low;
    p.x1 = p.bars.low + p.bars.count * p.bars.width;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n"
            "<style>.grid{stroke:#ddd;fill:none}.axis{stroke:#000;fill:none}.bar{fill:#777}"
            ".limit{stroke:#000;fill:none;stroke-width:1.5;stroke-dasharray:5 4}</style>\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
    fprintf(out,
            "<text x=\"%d\" y=\"24\" font-size=\"15\">%s, %s</text>\n"
            "<text x=\"%d\" y=\"44\">%.4g to %.4g, mean %.3g, sigma %.3g, %.2f %% beyond 3 sigma, "
            "%.1f %% zeros; dashed: where the integers end</text>\n",
            LEFT, seen->layer, seen->what, LEFT, s.min, s.max, s.mean, s.sigma, 100 * s.outliers,
            100 * s.zeros);
    draw_axes(&p);
    draw_bars(&p);
    draw_limits(&p, study, seen, i);
    fprintf(out,
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">value; counts are logarithmic"
            "</text>\n</svg>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14);
}

/* "conv1-after-relu.svg" */
static void path_of(const ech__study *study, const ech__seen *seen, char *out, size_t bytes)
{
    const int start = snprintf(out, bytes, "%s/", study->config.out);
    snprintf(out + start, bytes - (size_t)start, "%s-%s.svg", seen->layer, seen->what);
    for (char *c = out + start; *c; c++) {
        if (*c == ' ' || *c == '/')
            *c = '-';
        else if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c - 'A' + 'a');
    }
}

static ech_status plot_one(const ech__study *study, const ech__seen *seen, size_t i)
{
    char path[ECH_DIR_MAX_PATH + 256], *text = NULL;
    size_t bytes = 0;
    path_of(study, seen, path, sizeof path);
    FILE *out = open_memstream(&text, &bytes);
    if (out)
        draw(out, study, seen, i);
    const ech_status status = !out || fclose(out) != 0
                                  ? ech__fail(study->ctx, ECH_E_NOMEM, "no memory for %s", path)
                                  : ech__file_write(study->ctx, path, text, bytes);
    free(text);
    return status;
}

ech_status ech__quantize_plot(const ech__study *study)
{
    ech__seen seen;
    for (size_t i = 0; ech__quantize_seen(study, i, &seen); i++) {
        if (seen.histogram && seen.histogram->range > 0)
            ECH_TRY(plot_one(study, &seen, i));
    }
    return ECH_OK;
}
