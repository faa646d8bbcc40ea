/* echelon report: a page and a PDF from the records of a lab. */
#include "report/report.h"
#include "base/dir.h"
#include "base/json.h"
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct args {
    const char *dir, *out;
    int format, pictures;
    bool csv, json;
} args;

enum { BOTH, HTML, PDF };
enum { NO_PICTURES, SVG, PNG };

static const ech__option options[] = {
    {.name = "DIR",
     ECH_OPTION(STRING, args, dir),
     .positional = true,
     .required = true,
     .help = "Directory of the report: lab.json and studies/."},
    {.name = "out",
     ECH_OPTION(STRING, args, out),
     .arg = "DIR",
     .help = "Where the report goes. It is made where it is not there. Default: the directory of "
             "its records."},
    {.name = "format",
     ECH_OPTION(CHOICE, args, format),
     .choices = "both|html|pdf",
     .initial = "both",
     .help = "What is written."},
    {.name = "csv",
     ECH_OPTION(FLAG, args, csv),
     .help = "Write every table to csv/STUDY-NUMBER.csv too, with full precision."},
    {.name = "pictures",
     ECH_OPTION(CHOICE, args, pictures),
     .choices = "none|svg|png",
     .initial = "none",
     .help = "Write every plot to pictures/STUDY-NUMBER.svg or .png too."},
    {.name = "json", ECH_OPTION(FLAG, args, json), .help = "Print one JSON object."},
};

static const ech__option_example examples[] = {
    {"echelon report reports/quick", "writes report.html and report.pdf beside the records"},
    {"echelon report reports/quick --out site --csv", "writes them elsewhere, and tables as CSV"},
    {"echelon report reports/quick --pictures png", "draws every plot as a picture too"},
};

const ech__command ech__cli_report = {
    .name = "report",
    .brief = "write a page and a PDF from the records of a lab",
    .about =
        "Reads records only, so that a report can be made again without running anything: lab.json "
        "names the studies, studies/ID.json hold their tables, plots and answers, and plots take "
        "series and timelines from the run directories that they name. report.html is one file "
        "that needs no other; report.pdf holds the same on A4.",
    .options = options,
    .count = sizeof options / sizeof *options,
    .examples = examples,
    .example_count = sizeof examples / sizeof *examples,
};

typedef struct result {
    char html[ECH_DIR_MAX_PATH + 32], pdf[ECH_DIR_MAX_PATH + 32];
    char csv[ECH_DIR_MAX_PATH + 32], pictures[ECH_DIR_MAX_PATH + 32];
    size_t tables, plots;
} result;

/* The way from one full path to another, with '/' at its end: "../../reports/quick/". */
static ech_status way_between(ech_ctx *ctx, const char *from, const char *to, char *out,
                              size_t bytes)
{
    size_t same = 0, used = 0;
    for (size_t i = 0;; i++) {
        if ((!from[i] || from[i] == '/') && (!to[i] || to[i] == '/'))
            same = i;
        if (from[i] != to[i] || !from[i])
            break;
    }
    for (const char *c = from + same; *c; c++) {
        if (*c == '/' && c[1] && used + 4 < bytes)
            used += (size_t)snprintf(out + used, bytes - used, "../");
    }
    const char *rest = to + same + (to[same] == '/');
    if (used + strlen(rest) + 2 > bytes)
        return ech__fail(ctx, ECH_E_INVALID, "%s: the way to it from %s is too long", to, from);
    snprintf(out + used, bytes - used, "%s%s", rest, *rest ? "/" : "");
    return ECH_OK;
}

/* What stands before the paths of records in the page's links. */
static ech_status find_links(ech_ctx *ctx, const args *a, char *out, size_t bytes)
{
    *out = 0;
    if (!a->out)
        return ECH_OK;
    char *from = realpath(a->out, NULL), *to = realpath(a->dir, NULL);
    const ech_status status =
        from && to
            ? way_between(ctx, from, to, out, bytes)
            : ech__fail(ctx, ECH_E_IO, "%s: its full path cannot be found", from ? a->dir : a->out);
    free(from);
    free(to);
    return status;
}

static ech_status write_all(ech_ctx *ctx, const ech__book *book, const args *a, result *r)
{
    const char *out = a->out ? a->out : a->dir;
    char links[ECH_DIR_MAX_PATH + 16];
    ECH_TRY(ech__dir_check(ctx, "directory for the report", out));
    ECH_TRY(ech__dir_make(ctx, "directory for the report", out));
    ECH_TRY(find_links(ctx, a, links, sizeof links));
    snprintf(r->html, sizeof r->html, "%s/report.html", out);
    snprintf(r->pdf, sizeof r->pdf, "%s/report.pdf", out);
    snprintf(r->csv, sizeof r->csv, "%s/csv", out);
    if (a->format != PDF)
        ECH_TRY(ech__report_html(book, r->html, links));
    if (a->format != HTML)
        ECH_TRY(ech__report_pdf(book, r->pdf));
    snprintf(r->pictures, sizeof r->pictures, "%s/pictures", out);
    if (a->csv)
        ECH_TRY(ech__report_csv(book, r->csv, &r->tables));
    return a->pictures ? ech__report_pictures(book, r->pictures, a->pictures == PNG, &r->plots)
                       : ECH_OK;
}

static ech_status print_json(ech_ctx *ctx, const args *a, const ech__book *book, const result *r)
{
    ech_json *json = ech__json_object();
    ech__json_set_int(&json, "studies", (int64_t)book->nstudies);
    if (a->format != PDF)
        ech__json_set_string(&json, "html", r->html);
    if (a->format != HTML)
        ech__json_set_string(&json, "pdf", r->pdf);
    if (a->csv) {
        ech__json_set_string(&json, "csv", r->csv);
        ech__json_set_int(&json, "tables", (int64_t)r->tables);
    }
    if (a->pictures) {
        ech__json_set_string(&json, "pictures", r->pictures);
        ech__json_set_int(&json, "plots", (int64_t)r->plots);
    }
    const ech_status status = ech__json_print(ctx, json, ECH_JSON_INDENT, stdout);
    ech__json_destroy(json);
    return status;
}

static ech_status print(ech_ctx *ctx, const args *a, const ech__book *book, const result *r)
{
    if (a->json)
        return print_json(ctx, a, book, r);
    if (a->format != PDF)
        printf("%s\n", r->html);
    if (a->format != HTML)
        printf("%s\n", r->pdf);
    if (a->csv)
        printf("%s: %zu tables\n", r->csv, r->tables);
    if (a->pictures)
        printf("%s: %zu plots\n", r->pictures, r->plots);
    return ECH_OK;
}

static ech_status check(ech_ctx *ctx, const args *a)
{
    const char *const paths[] = {a->dir, a->out ? a->out : a->dir};
    for (int i = 0; i < 2; i++) {
        if (!*paths[i] || strlen(paths[i]) >= ECH_DIR_MAX_PATH)
            return ech__fail(ctx, ECH_E_INVALID,
                             "%s '%.60s': must be a directory, with a path of 1 to %d bytes",
                             i ? "--out" : "DIR", paths[i], ECH_DIR_MAX_PATH - 1);
    }
    return ECH_OK;
}

int ech__run_report(ech_ctx *ctx, const ech__command *command, char **argv)
{
    args a = {0};
    ech__option_result given;
    int code;
    if (!ech__cli_parse(ctx, command, argv, &a, &given, &code))
        return code;
    if (check(ctx, &a) < 0)
        return ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
    ech__book *book;
    result r = {.tables = 0};
    ech_status status = ech__book_load(ctx, a.dir, &book);
    if (status == ECH_OK) {
        status = write_all(ctx, book, &a, &r);
        if (status == ECH_OK)
            status = print(ctx, &a, book, &r);
        ech__book_destroy(book);
    }
    return status < 0 ? ech__cli_fail(ctx, command, ECH__EXIT_FAILED) : ECH__EXIT_GOOD;
}
