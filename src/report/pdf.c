/* report.pdf: title, contents, and the studies group by group. It is set twice, because the
 * contents need the numbers of pages that come behind them. */
#include "base/file/file.h"
#include "report/pdf_table.h"
#include "report/report.h"
#include "report/study/wording.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct document {
    const ech__book *book;
    ech__press press;
    int page_of[ECH__BOOK_MAX_STUDIES]; /* of each study, from the first time */
    int table, figure;                  /* numbered through */
    char group[80];                     /* that is being set */
    /* Figures that did not fit where they stand, first come first; text goes on until the next page. */
    const ech__plot *waiting[ECH__STUDY_MAX_PLOTS];
    size_t nwaiting;
} document;

/* ---- small parts ---- */

static void heading(document *d, double size, const char *text, double gap)
{
    ech__press_style style = {.text = {.size = size, .bold = true}, .leading = 1.25 * size};
    ech__press_need(&d->press, size + gap);
    ech__press_paragraph(&d->press, text, &style);
    ech__press_space(&d->press, 0.3 * size);
}

/* A command in a box. It may break over pages. */
static void code(document *d, const char *command)
{
    ech__press_style style = ech__press_code;
    style.indent = 8;
    style.width = ECH__TEXT_WIDTH - 16;
    const size_t lines =
        ech__press_count(d->press.canvas, command, &style.text, style.width - style.hang);
    const double height = style.leading * (double)lines + 7;
    ech__press_need(&d->press, height);
    ech__canvas_rect(d->press.canvas, ECH__PAGE_LEFT, d->press.y, ECH__TEXT_WIDTH, height);
    ech__canvas_paint(d->press.canvas, &(ech__paint){.fill = ECH__INK_SHADE});
    d->press.y += 3;
    ech__press_paragraph(&d->press, command, &style);
    ech__press_space(&d->press, 3);
}

/* "Name   value" with the names in one column. */
static void fact(document *d, const char *name, const char *value)
{
    ech__press_style style = ech__press_body;
    const ech__text_style muted = {.size = 10, .ink = ECH__INK_MUTED};
    style.indent = 120;
    style.after = 1;
    ech__press_need(&d->press, style.leading);
    ech__canvas_text_within(d->press.canvas, ECH__PAGE_LEFT, d->press.y + 0.72 * style.leading, 114,
                            name, &muted);
    ech__press_paragraph(&d->press, value, &style);
}

/* ---- the first pages ---- */

static void front(document *d)
{
    const ech__book *b = d->book;
    char text[700];
    heading(d, 24, b->title, 40);
    ech__book_line(b, text, sizeof text);
    ech__press_paragraph(&d->press, text, &ech__press_caption);
    ech__press_space(&d->press, 8);
    code(d, b->command);
    ech__press_space(&d->press, 6);
    for (size_t i = 0; i < b->nmachine; i++)
        fact(d, b->machine[i].name, b->machine[i].value);
    ech__seeds_print(b, text, sizeof text);
    if (*text)
        fact(d, b->nseeds > 1 ? "Seeds" : "Seed", text);
    for (size_t i = 0; i < b->nnoise; i++) {
        ech__figure_print(&b->noise[i], text, sizeof text);
        fact(d, b->noise[i].name, text);
    }
    ech__press_space(&d->press, 14);
}

/* One line: title, dots, page. */
static void contents_line(document *d, size_t study, const char *title)
{
    const ech__text_style style = {.size = 10}, right = {.size = 10, .anchor = ECH__END};
    const double end = ECH__PAGE_LEFT + ECH__TEXT_WIDTH, leading = 15;
    char number[24];
    ech__press_need(&d->press, leading);
    const double top = d->press.y, y = top + 11;
    d->press.y += leading;
    snprintf(number, sizeof number, "%d", d->page_of[study]);
    const double most = ECH__TEXT_WIDTH - 60;
    double width = ech__canvas_measure(d->press.canvas, title, &style);
    width = width > most ? most : width;
    ech__canvas_text_within(d->press.canvas, ECH__PAGE_LEFT + 14, y, most, title, &style);
    ech__canvas_text(d->press.canvas, end, y, number, &right);
    const double from = ECH__PAGE_LEFT + 14 + width + 6;
    const double to = end - ech__canvas_measure(d->press.canvas, number, &style) - 6;
    if (to > from) {
        ech__canvas_move(d->press.canvas, from, y - 1);
        ech__canvas_line(d->press.canvas, to, y - 1);
        ech__canvas_paint(
            d->press.canvas,
            &(ech__paint){.stroke = ECH__INK_AXIS, .width = 0.6, .dash = ECH__DASH_SHORT});
    }
    ech__pdf_link(d->press.canvas, d->book->studies[study].id, ECH__PAGE_LEFT, top, ECH__TEXT_WIDTH,
                  leading);
}

static bool begins_group(const ech__book *book, size_t study)
{
    return study == 0 || book->studies[study - 1].group != book->studies[study].group;
}

static void group_name(char group, char out[80])
{
    snprintf(out, 80, "%c. %s", group, ech__group_title(group));
}

static void contents(document *d)
{
    char name[80];
    heading(d, 14, "Contents", 60);
    for (size_t i = 0; i < d->book->nstudies; i++) {
        if (begins_group(d->book, i)) {
            const ech__press_style style = {.text = {.size = 10, .bold = true}, .leading = 16};
            ech__press_need(&d->press, 34);
            ech__press_space(&d->press, 3);
            group_name(d->book->studies[i].group, name);
            ech__press_paragraph(&d->press, name, &style);
        }
        contents_line(d, i, d->book->studies[i].title);
    }
}

/* ---- a study ---- */

static void titled(document *d, const char *kind, int number, const char *title)
{
    char text[400];
    const ech__press_style style = {.text = {.size = 10, .bold = true}, .leading = 14, .after = 3};
    snprintf(text, sizeof text, "%s %d. %s", kind, number, title);
    ech__press_paragraph(&d->press, text, &style);
}

static void table(document *d, const ech__study_table *t)
{
    ech__press_need(&d->press, 20 + ech__pdf_table_start(&d->press, t));
    titled(d, "Table", ++d->table, t->title);
    ech__pdf_table(&d->press, t);
}

/* Letters in plots are somewhat smaller than those of the text. */
#define PLOT_SCALE 0.86

static double figure_height(const ech__plot *plot)
{
    return 14 + PLOT_SCALE * ech__plot_height(plot, ECH__TEXT_WIDTH / PLOT_SCALE) +
           (plot->caption ? 24 : 0) + (*ech__plot_basis_text(plot) ? 24 : 0);
}

static void set_figure(document *d, const ech__plot *plot)
{
    const double width = ECH__TEXT_WIDTH / PLOT_SCALE, height = ech__plot_height(plot, width);
    titled(d, "Figure", ++d->figure, plot->title);
    ech__pdf_push(d->press.canvas, ECH__PAGE_LEFT, d->press.y + 2, PLOT_SCALE);
    ech__plot_draw(plot, d->press.canvas, (ech__area){0, 0, width, height});
    ech__pdf_pop(d->press.canvas);
    d->press.y += PLOT_SCALE * height + 6;
    if (plot->caption)
        ech__press_paragraph(&d->press, plot->caption, &ech__press_caption);
    if (*ech__plot_basis_text(plot))
        ech__press_paragraph(&d->press, ech__plot_basis_text(plot), &ech__press_caption);
    ech__press_space(&d->press, 10);
}

/* Sets what waits and fits. At the top of a page the first one goes in whatever its height. */
static void set_waiting(ech__press *press, void *user)
{
    document *d = user;
    while (d->nwaiting && (press->y <= ECH__PAGE_TOP ||
                           press->y + figure_height(d->waiting[0]) <= ECH__PAGE_BOTTOM)) {
        const ech__plot *plot = d->waiting[0];
        d->nwaiting--;
        for (size_t i = 0; i < d->nwaiting; i++)
            d->waiting[i] = d->waiting[i + 1];
        set_figure(d, plot);
    }
}

static void figure(document *d, const ech__plot *plot)
{
    d->waiting[d->nwaiting++] = plot;
    set_waiting(&d->press, d);
}

static ech_status answer(document *d, const ech__answer *a)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    for (size_t i = 0; file && i < a->npieces; i++)
        fputs(a->pieces[i].text, file);
    if (!file || fclose(file) != 0) {
        free(text);
        return ech__no_memory(d->book->ctx, "an answer");
    }
    const ech__press_style question = {
        .text = {.size = 10, .bold = true, .italic = true}, .leading = 14.2, .after = 1};
    ech__press_need(&d->press, 3 * 14.2);
    ech__press_paragraph(&d->press, a->question, &question);
    ech__press_paragraph(&d->press, text, &ech__press_body);
    ech__press_space(&d->press, 2);
    free(text);
    return ECH_OK;
}

/* Runs that did not end well are said; the rest stands in the page and in the records. */
static void failures(document *d, const ech__study *study)
{
    char text[700];
    if (study->problem)
        ech__press_paragraph(&d->press, study->problem, &ech__press_small);
    for (size_t i = 0; i < study->nruns; i++) {
        const ech__study_run *r = &study->runs[i];
        if (!r->reason)
            continue;
        snprintf(text, sizeof text, "Run %s %s%.500s", r->id,
                 r->status == ECH__RUN_STATUS_FAILED    ? "was started and failed: "
                 : r->status == ECH__RUN_STATUS_SKIPPED ? "was left out: "
                                                        : "ended, but ",
                 r->reason);
        ech__press_paragraph(&d->press, text, &ech__press_small);
    }
}

static ech_status study(document *d, size_t index)
{
    const ech__study *s = &d->book->studies[index];
    if (d->press.y > ECH__PAGE_TOP)
        ech__press_need(&d->press, 190);
    d->page_of[index] = d->press.page;
    ech__pdf_target(d->press.canvas, s->id, ECH__PAGE_LEFT, d->press.y);
    ech__pdf_outline(d->press.canvas, 1, s->title, s->id);
    heading(d, 15, s->title, 80);
    ech__press_paragraph(&d->press, s->about, &ech__press_body);
    ech__press_paragraph(&d->press, "To repeat it:", &ech__press_small);
    code(d, s->command);
    ech__press_space(&d->press, 6);
    failures(d, s);
    for (size_t i = 0; i < s->ntables; i++)
        table(d, &s->tables[i]);
    for (size_t i = 0; i < s->nplots; i++)
        figure(d, &s->plots[i]);
    for (size_t i = 0; i < s->nanswers; i++)
        ECH_TRY(answer(d, &s->answers[i]));
    set_waiting(&d->press, d);
    while (d->nwaiting)
        ech__press_new_page(&d->press);
    ech__press_space(&d->press, 16);
    return ECH_OK;
}

static void group_page(document *d, size_t index)
{
    char target[32];
    d->press.running = NULL;
    ech__press_new_page(&d->press);
    group_name(d->book->studies[index].group, d->group);
    d->press.running = d->group;
    snprintf(target, sizeof target, "group-%zu", index);
    ech__pdf_target(d->press.canvas, target, ECH__PAGE_LEFT, ECH__PAGE_TOP);
    ech__pdf_outline(d->press.canvas, 0, d->group, target);
    heading(d, 19, d->group, 80);
    ech__press_space(&d->press, 6);
}

static ech_status set_all(document *d)
{
    d->table = d->figure = 0;
    ech__press_begin(&d->press);
    front(d);
    contents(d);
    for (size_t i = 0; i < d->book->nstudies; i++) {
        if (begins_group(d->book, i))
            group_page(d, i);
        ECH_TRY(study(d, i));
    }
    ech__press_end(&d->press);
    return ECH_OK;
}

static ech_status set_once(document *d, char **out, size_t *bytes)
{
    const ech__pdf_options options = {.width = ECH__PAGE_WIDTH,
                                      .height = ECH__PAGE_HEIGHT,
                                      .title = d->book->title,
                                      .subject = d->book->command,
                                      .date = d->book->date};
    d->press = (ech__press){.title = d->book->title, .top = set_waiting, .user = d};
    ECH_TRY(ech__pdf_create(d->book->ctx, &options, &d->press.canvas));
    const ech_status status = set_all(d);
    const ech_status finished = ech__pdf_finish(d->press.canvas, out, bytes);
    if (status == ECH_OK)
        return finished;
    free(*out);
    *out = NULL;
    return status;
}

ech_status ech__report_pdf(const ech__book *book, const char *path)
{
    document *d = ech__new(book->ctx, sizeof *d);
    char *text = NULL;
    size_t bytes;
    if (!d)
        return ech__no_memory(book->ctx, "a report");
    d->book = book;
    ech_status status = set_once(d, &text, &bytes);
    free(text);
    text = NULL;
    if (status == ECH_OK)
        status = set_once(d, &text, &bytes);
    if (status == ECH_OK)
        status = ech__file_write(book->ctx, path, text, bytes);
    free(text);
    ech__delete(book->ctx, d, sizeof *d);
    return status;
}
