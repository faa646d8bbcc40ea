/* The scaling curve as SVG: samples per second over devices, both axes logarithmic, beside the ideal line. Lines and marks
 * differ in form, so that it can be read without colour. */
#include "base/file.h"
#include "cli/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 720, HEIGHT = 480, LEFT = 96, RIGHT = 24, TOP = 56, BOTTOM = 64 };

/* Logarithms of the ends of the axes. */
typedef struct axes {
    FILE *out;
    double x0, x1, y0, y1;
} axes;

static double x_at(const axes *a, double devices)
{
    return LEFT + (log2(devices) - a->x0) / (a->x1 - a->x0) * (WIDTH - LEFT - RIGHT);
}

static double y_at(const axes *a, double rate)
{
    return HEIGHT - BOTTOM - (log10(rate) - a->y0) / (a->y1 - a->y0) * (HEIGHT - TOP - BOTTOM);
}

static axes find_axes(FILE *out, const ech__plan_result *r)
{
    double most = 2, least = 1e300, highest = 1e-300;
    for (size_t i = 0; i < r->count; i++) {
        const ech__scaled *s = &r->rows[i];
        const double ideal = s->price.samples_per_s / s->efficiency;
        most = fmax(most, (double)s->price.devices);
        least = fmin(least, s->price.samples_per_s);
        least = fmin(least, s->price.samples_per_s / s->speedup);
        highest = fmax(highest, fmax(ideal, s->price.samples_per_s));
    }
    axes a = {out, 0, ceil(log2(most)), log10(least) - 0.05, log10(highest) + 0.05};
    if (a.y1 - a.y0 < 0.5) {
        a.y0 -= 0.2;
        a.y1 += 0.2;
    }
    return a;
}

/* ---- parts of the picture ---- */

/* "2000", "20 k", "3 M". */
static void print_rate(FILE *out, double rate)
{
    if (rate >= 1e6)
        fprintf(out, "%g M", rate / 1e6);
    else if (rate >= 1e4)
        fprintf(out, "%g k", rate / 1e3);
    else
        fprintf(out, "%g", rate);
}

static void draw_x_ticks(const axes *a)
{
    const int every = (int)((a->x1 - a->x0) / 10) + 1;
    for (int k = 0; k <= (int)a->x1; k += every) {
        const double x = x_at(a, ldexp(1, k));
        fprintf(a->out,
                "<path class=\"grid\" d=\"M%.1f %dV%d\"/>\n"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%lld</text>\n",
                x, TOP, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 20, 1LL << k);
    }
}

/* At 1, 2 and 5 of each power of ten, or at the powers alone where there are many. */
static void draw_y_ticks(const axes *a)
{
    static const double steps[] = {1, 2, 5};
    const bool few = a->y1 - a->y0 > 3;
    for (int power = (int)floor(a->y0); power <= (int)a->y1; power++) {
        for (int i = 0; i < (few ? 1 : 3); i++) {
            const double rate = steps[i] * pow(10, power);
            if (log10(rate) < a->y0 || log10(rate) > a->y1)
                continue;
            const double y = y_at(a, rate);
            fprintf(a->out,
                    "<path class=\"grid\" d=\"M%d %.1fH%d\"/>\n"
                    "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">",
                    LEFT, y, WIDTH - RIGHT, LEFT - 8, y + 4);
            print_rate(a->out, rate);
            fputs("</text>\n", a->out);
        }
    }
}

static void draw_frame(const axes *a, const ech__plan_result *r)
{
    char model[64];
    fprintf(a->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"13\">\n"
            "<style>.grid{stroke:#ccc;fill:none}.axis{stroke:#000;fill:none}"
            ".ideal{stroke:#000;fill:none;stroke-dasharray:6 5}"
            ".curve{stroke:#000;fill:none;stroke-width:2}.mark{stroke:#000;fill:#fff;"
            "stroke-width:1.5}.real{stroke:#000;fill:#000}</style>\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
    draw_x_ticks(a);
    draw_y_ticks(a);
    fprintf(a->out, "<path class=\"axis\" d=\"M%d %dV%dH%d\"/>\n", LEFT, TOP, HEIGHT - BOTTOM,
            WIDTH - RIGHT);
    fprintf(a->out, "<text x=\"%d\" y=\"24\" font-size=\"16\">%s, %s: ", LEFT,
            ech__plan_model(r->config, model, sizeof model), ech__strategy_name(r->strategy));
    if (r->load.global)
        fprintf(a->out, "%lld samples a step</text>\n", (long long)r->load.global);
    else
        fprintf(a->out, "%lld samples a step on each device</text>\n", (long long)r->load.batch);
    fprintf(a->out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">devices</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 20);
    fprintf(a->out,
            "<text transform=\"translate(24 %d) rotate(-90)\" "
            "text-anchor=\"middle\">samples per second</text>\n",
            (TOP + HEIGHT - BOTTOM) / 2);
}

/* Every row of a long list would only blur the curve. */
enum { MOST_MARKS = 40 };

static void draw_marks(const axes *a, const ech__plan_result *r)
{
    for (size_t i = 0; i < r->count; i++) {
        const ech__price *p = &r->rows[i].price;
        const double x = x_at(a, (double)p->devices), y = y_at(a, p->samples_per_s);
        if (p->measured)
            fprintf(a->out,
                    "<rect class=\"real\" x=\"%.1f\" y=\"%.1f\" width=\"9\" height=\"9\"/>\n",
                    x - 4.5, y - 4.5);
        else if (r->count <= MOST_MARKS)
            fprintf(a->out, "<circle class=\"mark\" cx=\"%.1f\" cy=\"%.1f\" r=\"4.5\"/>\n", x, y);
    }
}

static void draw_curves(const axes *a, const ech__plan_result *r)
{
    const ech__scaled *first = &r->rows[0];
    const double one = first->price.samples_per_s / first->speedup, end = exp2(a->x1);
    const double last = fmin(end, pow(10, a->y1) / one);
    fprintf(a->out, "<path class=\"ideal\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", x_at(a, 1),
            y_at(a, one), x_at(a, last), y_at(a, one * last));
    fputs("<path class=\"curve\" d=\"", a->out);
    for (size_t i = 0; i < r->count; i++)
        fprintf(a->out, "%s%.1f %.1f", i ? "L" : "M", x_at(a, (double)r->rows[i].price.devices),
                y_at(a, r->rows[i].price.samples_per_s));
    fputs("\"/>\n", a->out);
    draw_marks(a, r);
}

static void draw_legend(const axes *a)
{
    const int x = LEFT + 16, y = TOP + 8;
    fprintf(a->out,
            "<rect x=\"%d\" y=\"%d\" width=\"128\" height=\"68\" fill=\"#fff\" stroke=\"#ccc\"/>\n"
            "<path class=\"ideal\" d=\"M%d %dh32\"/><text x=\"%d\" y=\"%d\">ideal</text>\n"
            "<path class=\"curve\" d=\"M%d %dh32\"/><circle class=\"mark\" cx=\"%d\" cy=\"%d\" "
            "r=\"4.5\"/><text x=\"%d\" y=\"%d\">predicted</text>\n"
            "<rect class=\"real\" x=\"%d\" y=\"%d\" width=\"9\" height=\"9\"/>"
            "<text x=\"%d\" y=\"%d\">measured</text>\n",
            x, y, x + 8, y + 16, x + 50, y + 20, x + 8, y + 35, x + 24, y + 35, x + 50, y + 39,
            x + 20, y + 50, x + 50, y + 58);
}

ech_status ech__plan_plot(ech_ctx *ctx, const ech__plan_result *r, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out) {
        const axes a = find_axes(out, r);
        draw_frame(&a, r);
        draw_curves(&a, r);
        draw_legend(&a);
        fputs("</svg>\n", out);
    }
    if (!out || fclose(out) != 0) {
        free(text);
        return ech__fail(ctx, ECH_E_NOMEM, "no memory for the picture %s", path);
    }
    const ech_status status = ech__file_write(ctx, path, text, bytes);
    free(text);
    return status;
}
