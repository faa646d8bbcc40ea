/* report.html: one file with everything in it. All text that comes from records goes through ech__markup_text. */
#include "base/file/file.h"
#include "report/markup.h"
#include "report/report.h"
#include "report/study/wording.h"
#include "report/style.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDE = 700, NARROW = 350 }; /* CSS pixels; a screen shows one of the two */
enum { SHORT = 24, TALL = 30 }; /* bytes that stay on one line; rows from which a table scrolls */

typedef struct page {
    const ech__book *book;
    const char *links;
    FILE *file;
    const ech__study *study; /* that is being printed */
    int table, figure;       /* numbered through */
} page;

static void text(const page *p, const char *s)
{
    ech__markup_text(p->file, s);
}

/* <tag attributes>text</tag> */
static void element(const page *p, const char *tag, const char *attributes, const char *s)
{
    fprintf(p->file, "<%s%s%s>", tag, *attributes ? " " : "", attributes);
    text(p, s);
    fprintf(p->file, "</%s>\n", tag);
}

/* Paragraphs are parted by empty lines. */
static void paragraphs(const page *p, const char *s, const char *class_name)
{
    while (*s) {
        const char *end = strstr(s, "\n\n");
        const size_t length = end ? (size_t)(end - s) : strlen(s);
        char *part = strndup(s, length);
        if (part)
            element(p, "p", class_name, part);
        free(part);
        s += length + strspn(s + length, "\n");
    }
}

static void command(const page *p, const char *line)
{
    fputs("<div class=\"run\"><code>", p->file);
    text(p, line);
    fputs("</code><button type=\"button\" hidden>Copy</button></div>\n", p->file);
}

/* ---- head and contents ---- */

static void facts(const page *p)
{
    const ech__book *b = p->book;
    char line[700];
    fputs("<dl>\n", p->file);
    for (size_t i = 0; i < b->nmachine; i++) {
        element(p, "dt", "", b->machine[i].name);
        element(p, "dd", "", b->machine[i].value);
    }
    ech__seeds_print(b, line, sizeof line);
    if (*line) {
        element(p, "dt", "", b->nseeds > 1 ? "Seeds" : "Seed");
        element(p, "dd", "", line);
    }
    for (size_t i = 0; i < b->nnoise; i++) {
        ech__figure_print(&b->noise[i], line, sizeof line);
        element(p, "dt", "", b->noise[i].name);
        element(p, "dd", "", line);
    }
    fputs("</dl>\n", p->file);
}

static void head(const page *p)
{
    fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
          "img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
          "<link rel=\"icon\" href=\"data:,\">\n",
          p->file);
    element(p, "title", "", p->book->title);
    fputs("<style>\n", p->file);
    ech__page_style(p->file);
    fputs("</style>\n</head>\n<body>\n"
          "<button id=\"theme\" type=\"button\" hidden>Dark</button>\n<div class=\"page\">\n",
          p->file);
}

static bool begins_group(const ech__book *book, size_t study)
{
    return study == 0 || book->studies[study - 1].group != book->studies[study].group;
}

static void group_heading(const page *p, char group)
{
    char line[120];
    snprintf(line, sizeof line, "%c. %s", group, ech__group_title(group));
    element(p, "h2", "", line);
}

static void contents(const page *p)
{
    fputs("<nav aria-label=\"Contents\"><details open><summary>Contents</summary>\n", p->file);
    for (size_t i = 0; i < p->book->nstudies; i++) {
        const ech__study *s = &p->book->studies[i];
        if (begins_group(p->book, i)) {
            fputs(i ? "</ul>\n" : "", p->file);
            group_heading(p, s->group);
            fputs("<ul>\n", p->file);
        }
        fprintf(p->file, "<li><a href=\"#%s\">", s->id);
        text(p, s->title);
        fputs("</a></li>\n", p->file);
    }
    fputs("</ul>\n</details></nav>\n", p->file);
}

static void front(const page *p)
{
    const ech__book *b = p->book;
    char line[700];
    fputs("<header>\n", p->file);
    element(p, "h1", "", b->title);
    ech__book_line(b, line, sizeof line);
    element(p, "p", "class=\"muted\"", line);
    command(p, b->command);
    facts(p);
    fputs("</header>\n", p->file);
}

/* ---- links to records ---- */

/* The path of a link: all but plain characters as %XX. */
static void link_path(const page *p, const char *path)
{
    for (const unsigned char *c = (const unsigned char *)path; *c; c++) {
        const bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                           (*c >= '0' && *c <= '9') || strchr("-_./~", *c);
        fprintf(p->file, plain ? "%c" : "%%%02X", *c);
    }
}

/* <a> to the record of a run; false where it has none, and nothing is open then. */
static bool open_link(const page *p, const ech__study_run *run)
{
    if (!run || !run->record)
        return false;
    fputs("<a href=\"", p->file);
    link_path(p, p->links);
    link_path(p, run->record);
    fputs("/run.json\">", p->file);
    return true;
}

/* ---- tables ---- */

static const char *align_class(ech__align align)
{
    static const char *const names[] = {"", " class=\"c\"", " class=\"r\""};
    return names[align];
}

static void table_head(const page *p, const ech__study_table *t)
{
    fputs("<thead><tr>", p->file);
    for (size_t i = 0; i < t->ncolumns; i++) {
        fprintf(p->file, "<th scope=\"col\"%s><button type=\"button\"%s>",
                align_class(t->columns[i].align),
                strlen(t->columns[i].name) < SHORT / 2 ? " class=\"n\"" : "");
        text(p, t->columns[i].name);
        fputs("</button>", p->file);
        if (*t->columns[i].unit)
            element(p, "small", "", t->columns[i].unit);
        fputs("</th>", p->file);
    }
    fputs("</tr></thead>\n", p->file);
}

/* Room that a column keeps behind its figures, in digits, so that they end at one line. */
typedef struct padding {
    size_t mark, aside;
} padding;

static size_t characters(const char *s)
{
    size_t count = 0;
    for (; *s; s++)
        count += ((unsigned char)*s & 0xc0) != 0x80;
    return count;
}

static padding padding_of(const ech__study_table *t, size_t column)
{
    padding r = {0};
    for (size_t i = 0; i < t->nrows; i++) {
        const ech__cell *c = &t->cells[i * t->ncolumns + column];
        const ech__cell_words w = ech__cell_print(&t->columns[column], c);
        const size_t mark = c->kind == ECH__CELL_NUMBER
                                ? strlen(w.mark) + (c->note_number > 9 ? 2 : c->note_number > 0)
                                : 0;
        r.mark = mark > r.mark ? mark : r.mark;
        r.aside = characters(w.aside) > r.aside ? characters(w.aside) : r.aside;
    }
    return r;
}

static void marks(const page *p, const ech__cell *c, const ech__cell_words *w)
{
    if (*w->mark)
        fprintf(p->file, "<sup title=\"%s\">%s</sup>", ech__basis_name(c->basis), w->mark);
    if (c->note_number)
        fprintf(p->file, "<sup>%zu</sup>", c->note_number);
}

static void cell(const page *p, const ech__study_table *t, size_t column, const ech__cell *c,
                 padding r)
{
    static const char *const classes[3][2] = {
        {"", " class=\"n\""}, {" class=\"c\"", " class=\"c n\""}, {" class=\"r\"", " class=\"r\""}};
    const ech__cell_words w = ech__cell_print(&t->columns[column], c);
    const bool is_number = c->kind == ECH__CELL_NUMBER;
    fprintf(p->file, "<td%s", classes[t->columns[column].align][strlen(w.main) < SHORT]);
    if (is_number && !isnan(c->value))
        fprintf(p->file, " data-v=\"%.17g\"", c->value);
    fputc('>', p->file);
    const bool linked = c->run && open_link(p, ech__study_find_run(p->study, c->run));
    text(p, w.main);
    fputs(linked ? "</a>" : "", p->file);
    if (is_number && r.mark)
        fprintf(p->file, "<span class=\"k\" style=\"min-width:%.2fem\">", 0.55 * (double)r.mark);
    marks(p, c, &w);
    fputs(is_number && r.mark ? "</span>" : "", p->file);
    if (is_number && r.aside) {
        fprintf(p->file, "<small style=\"min-width:%zuch\">", r.aside);
        text(p, w.aside);
        fputs("</small>", p->file);
    }
    fputs("</td>", p->file);
}

static void table_notes(const page *p, const ech__study_table *t)
{
    for (size_t i = 0; i < t->nnotes; i++) {
        fprintf(p->file, "<p class=\"note\"><sup>%zu</sup> ", i + 1);
        text(p, t->notes[i]);
        fputs("</p>\n", p->file);
    }
    if (*ech__table_legend(t))
        element(p, "p", "class=\"note\"", ech__table_legend(t));
    if (t->note)
        paragraphs(p, t->note, "class=\"note\"");
}

static void table(page *p, const ech__study_table *t)
{
    padding paddings[ECH__STUDY_MAX_COLUMNS];
    for (size_t c = 0; c < t->ncolumns; c++)
        paddings[c] = padding_of(t, c);
    fprintf(p->file, "<div class=\"block\"><p class=\"title\">Table %d. ", ++p->table);
    text(p, t->title);
    fprintf(p->file, "</p>\n<div class=\"scroll%s\" tabindex=\"0\"><table>\n",
            t->nrows > TALL ? " tall" : "");
    table_head(p, t);
    fputs("<tbody>\n", p->file);
    for (size_t r = 0; r < t->nrows; r++) {
        fputs("<tr>", p->file);
        for (size_t c = 0; c < t->ncolumns; c++)
            cell(p, t, c, &t->cells[r * t->ncolumns + c], paddings[c]);
        fputs("</tr>\n", p->file);
    }
    fputs("</tbody></table></div>\n", p->file);
    table_notes(p, t);
    fputs("</div>\n", p->file);
}

/* ---- figures ---- */

static ech_status picture(const page *p, const ech__plot *plot, bool wide)
{
    const double width = wide ? WIDE : NARROW, height = ech__plot_height(plot, width);
    char id[32], *svg;
    size_t bytes;
    ech__canvas *canvas;
    snprintf(id, sizeof id, "%c%d", wide ? 'w' : 'n', p->figure);
    const ech__svg_options options = {.width = width,
                                      .height = height,
                                      .id = id,
                                      .class_name = wide ? "wide" : "narrow",
                                      .label = plot->title};
    ECH_TRY(ech__svg_create(p->book->ctx, &options, &canvas));
    ech__plot_draw(plot, canvas, (ech__area){0, 0, width, height});
    ECH_TRY(ech__svg_finish(canvas, &svg, &bytes));
    fwrite(svg, 1, bytes, p->file);
    free(svg);
    return ECH_OK;
}

static void record_link(const page *p, const ech__study_run *run, const char *separator)
{
    fputs(separator, p->file);
    const bool linked = open_link(p, run);
    text(p, run->id);
    fputs(linked ? "</a>" : "", p->file);
}

/* The runs a plot names itself, and those that its series and timelines come from, once each. */
static size_t runs_of(const ech__plot *plot, const char **out, size_t most)
{
    size_t count = 0;
    const size_t all = plot->nruns + plot->nseries + plot->ntraces;
    for (size_t i = 0; i < all && count < most; i++) {
        const char *run = i < plot->nruns ? plot->runs[i]
                          : i < plot->nruns + plot->nseries
                              ? plot->series[i - plot->nruns].from.run
                              : plot->traces[i - plot->nruns - plot->nseries].run;
        size_t k = 0;
        while (run && k < count && strcmp(out[k], run) != 0)
            k++;
        if (run && k == count)
            out[count++] = run;
    }
    return count;
}

static ech_status figure(page *p, const ech__plot *plot)
{
    const char *runs[64];
    p->figure++;
    fprintf(p->file, "<figure><p class=\"title\">Figure %d. ", p->figure);
    text(p, plot->title);
    fputs("</p>\n", p->file);
    ECH_TRY(picture(p, plot, true));
    ECH_TRY(picture(p, plot, false));
    fputs("<figcaption>", p->file);
    if (plot->caption)
        paragraphs(p, plot->caption, "");
    if (*ech__plot_basis_text(plot))
        element(p, "p", "", ech__plot_basis_text(plot));
    const size_t count = runs_of(plot, runs, sizeof runs / sizeof *runs);
    fputs(count ? "<p>Records: " : "<p>", p->file);
    for (size_t i = 0; i < count; i++)
        record_link(p, ech__study_find_run(p->study, runs[i]), i ? ", " : "");
    fprintf(p->file, "%s<a href=\"#%s\">How to repeat it</a></p></figcaption></figure>\n",
            count ? " \xc2\xb7 " : "", p->study->id);
    return ECH_OK;
}

/* ---- answers and runs ---- */

static void answer(const page *p, const ech__answer *a)
{
    element(p, "h4", "", a->question);
    fputs("<p>", p->file);
    for (size_t i = 0; i < a->npieces; i++) {
        const ech__answer_piece *piece = &a->pieces[i];
        if (piece->figure) {
            fputs("<span class=\"fig\" title=\"", p->file);
            text(p, piece->figure->name);
            if (piece->figure->source) {
                fputs(": ", p->file);
                text(p, piece->figure->source);
            }
            fputs("\">", p->file);
            text(p, piece->text);
            fputs("</span>", p->file);
            continue;
        }
        for (const char *s = piece->text; *s;) { /* an empty line begins a paragraph */
            const char *end = strstr(s, "\n\n");
            char *part = strndup(s, end ? (size_t)(end - s) : strlen(s));
            text(p, part ? part : "");
            free(part);
            if (end)
                fputs("</p>\n<p>", p->file);
            s = end ? end + 2 : s + strlen(s);
        }
    }
    fputs("</p>\n", p->file);
}

/* Every number of the answers with where it comes from, for those who cannot point at it. */
static void sources(const page *p, const ech__study *study)
{
    size_t count = 0;
    char value[400];
    for (size_t i = 0; i < study->nanswers; i++)
        count += study->answers[i].nfigures;
    if (!count)
        return;
    fprintf(p->file, "<details><summary>Sources of %zu figure%s</summary>\n<dl class=\"note\">\n",
            count, count > 1 ? "s" : "");
    for (size_t i = 0; i < study->nanswers; i++) {
        for (size_t k = 0; k < study->answers[i].nfigures; k++) {
            const ech__figure *f = &study->answers[i].figures[k];
            ech__figure_print(f, value, sizeof value);
            element(p, "dt", "", f->name);
            fputs("<dd>", p->file);
            text(p, value);
            fputs(f->source || f->cell.basis ? ": " : "", p->file);
            text(p, ech__basis_name(f->cell.basis));
            fputs(f->source && f->cell.basis ? ", " : "", p->file);
            text(p, f->source ? f->source : "");
            fputs("</dd>\n", p->file);
        }
    }
    fputs("</dl></details>\n", p->file);
}

static void failures(const page *p, const ech__study *study)
{
    if (study->problem)
        paragraphs(p, study->problem, "class=\"failed\"");
    for (size_t i = 0; i < study->nruns; i++) {
        const ech__study_run *r = &study->runs[i];
        if (!r->reason)
            continue;
        fputs("<p class=\"failed\">Run <code>", p->file);
        text(p, r->id);
        fputs(r->status == ECH__RUN_STATUS_FAILED    ? "</code> was started and failed: "
              : r->status == ECH__RUN_STATUS_SKIPPED ? "</code> was left out: "
                                                     : "</code> ended, but ",
              p->file);
        text(p, r->reason);
        fputs("</p>\n", p->file);
    }
}

static void runs(const page *p, const ech__study *study)
{
    if (!study->nruns)
        return;
    fprintf(p->file, "<details><summary>%zu run%s behind this study</summary>\n", study->nruns,
            study->nruns > 1 ? "s" : "");
    for (size_t i = 0; i < study->nruns; i++) {
        const ech__study_run *r = &study->runs[i];
        fputs("<p class=\"note\">", p->file);
        record_link(p, r, "");
        fprintf(p->file, ", %s%s%s</p>\n", ech__run_status_name(r->status), r->basis ? ", " : "",
                ech__basis_name(r->basis));
        if (r->command)
            command(p, r->command);
    }
    fputs("</details>\n", p->file);
}

static ech_status study(page *p, const ech__study *s)
{
    p->study = s;
    fprintf(p->file, "<article id=\"%s\">\n", s->id);
    element(p, "h3", "", s->title);
    paragraphs(p, s->about, "");
    command(p, s->command);
    failures(p, s);
    for (size_t i = 0; i < s->ntables; i++)
        table(p, &s->tables[i]);
    for (size_t i = 0; i < s->nplots; i++)
        ECH_TRY(figure(p, &s->plots[i]));
    for (size_t i = 0; i < s->nanswers; i++)
        answer(p, &s->answers[i]);
    sources(p, s);
    runs(p, s);
    fputs("</article>\n", p->file);
    return ECH_OK;
}

/* ---- the page ---- */

static ech_status print_all(page *p)
{
    head(p);
    front(p);
    contents(p);
    fputs("<main>\n", p->file);
    for (size_t i = 0; i < p->book->nstudies; i++) {
        if (begins_group(p->book, i))
            group_heading(p, p->book->studies[i].group);
        ECH_TRY(study(p, &p->book->studies[i]));
    }
    fputs("</main>\n</div>\n<script>\n", p->file);
    ech__page_script(p->file);
    fputs("</script>\n</body>\n</html>\n", p->file);
    return ECH_OK;
}

ech_status ech__html_print(const ech__book *book, const char *links, char **out, size_t *bytes)
{
    page p = {.book = book, .links = links};
    *out = NULL;
    p.file = open_memstream(out, bytes);
    if (!p.file)
        return ech__no_memory(book->ctx, "a page");
    ech_status status = print_all(&p);
    const bool failed = ferror(p.file) != 0;
    if (fclose(p.file) != 0 || failed)
        status = ech__no_memory(book->ctx, "a page");
    if (status == ECH_OK)
        return ECH_OK;
    free(*out);
    *out = NULL;
    return status;
}

ech_status ech__report_html(const ech__book *book, const char *path, const char *links)
{
    char *page_text;
    size_t bytes;
    ECH_TRY(ech__html_print(book, links, &page_text, &bytes));
    const ech_status status = ech__file_write(book->ctx, path, page_text, bytes);
    free(page_text);
    return status;
}
