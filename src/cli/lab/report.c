/* echelon report: a page and a PDF from the records of a lab. */
#include "cli/lab/report.h"
#include "report/cairo.h"
#include "report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct args {
    ech__report_request request;
    bool json;
} args;

static const ech__option options[] = {
    ECH_ROW(STRING, args, request.dir, "DIR", "Directory of the report: lab.json and studies/.",
            .positional = true, .required = true),
    ECH_ROW(STRING, args, request.out, "out",
            "Where the report goes. It is made where it is not there. Default: the directory of "
            "its records.",
            .arg = "DIR"),
    ECH_ROW(CHOICE, args, request.format, "format", "What is written.",
            .choices = ECH__REPORT_FORMATS, .initial = "both"),
    ECH_ROW(FLAG, args, request.csv, "csv",
            "Write every table to csv/STUDY-NUMBER.csv too, with full precision."),
    ECH_ROW(CHOICE, args, request.pictures, "pictures",
            "Write every plot to pictures/STUDY-NUMBER.svg or .png too.",
            .choices = ECH__REPORT_PICTURES, .initial = "none"),
    ECH_ROW(FLAG, args, json, "json", "Print one JSON object."),
};

static const ech__option_example examples[] = {
    {"echelon report reports/quick", "writes report.html and report.pdf beside the records"},
    {"echelon report reports/quick --out site --csv", "writes them elsewhere, and tables as CSV"},
    {"echelon report reports/quick --pictures png", "draws every plot as a picture too"},
};

/* ---- writing ---- */

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
        return ech__fail(ctx, ECH_E_INVALID, "%s: the path to it from %s is too long", to, from);
    snprintf(out + used, bytes - used, "%s%s", rest, *rest ? "/" : "");
    return ECH_OK;
}

/* What comes before the paths of records in the page's links. */
static ech_status find_links(ech_ctx *ctx, const ech__report_request *a, char *out, size_t bytes)
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

static ech_status write_all(ech_ctx *ctx, const ech__book *book, const ech__report_request *a,
                            ech__report_files *r)
{
    const char *out = a->out ? a->out : a->dir;
    char links[ECH_DIR_MAX_PATH + 16];
    ECH_TRY(ech__dir_make(ctx, "directory for the report", out));
    ECH_TRY(find_links(ctx, a, links, sizeof links));
    snprintf(r->html, sizeof r->html, "%s/report.html", out);
    snprintf(r->csv, sizeof r->csv, "%s/csv", out);
    if (a->format != ECH__REPORT_PDF)
        ECH_TRY(ech__report_html(book, r->html, links));
    if (a->format == ECH__REPORT_PDF || (a->format == ECH__REPORT_BOTH && ech__can_print)) {
        snprintf(r->pdf, sizeof r->pdf, "%s/report.pdf", out);
        ECH_TRY(ech__report_pdf(book, r->pdf));
    }
    snprintf(r->pictures, sizeof r->pictures, "%s/pictures", out);
    if (a->csv)
        ECH_TRY(ech__report_csv(book, r->csv, &r->tables));
    return a->pictures
               ? ech__report_pictures(book, r->pictures, a->pictures == ECH__REPORT_PNG, &r->plots)
               : ECH_OK;
}

ech_status ech__cli_report_write(ech_ctx *ctx, const ech__command *command,
                                 const ech__report_request *request, ech__report_files *out)
{
    ech__book *book;
    *out = (ech__report_files){.tables = 0};
    ECH_TRY(ech__book_load(ctx, request->dir, &book));
    out->studies = book->nstudies;
    out->problems = book->nproblems;
    const ech_status status = write_all(ctx, book, request, out);
    for (size_t i = 0; status == ECH_OK && i < book->nproblems; i++) {
        ech__fail(ctx, ECH_E_FORMAT, "%s", book->problems[i]);
        ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
    }
    ech__book_destroy(book);
    return status;
}

void ech__cli_report_print(const ech__report_request *request, const ech__report_files *files)
{
    if (request->format != ECH__REPORT_PDF)
        printf("%s\n", files->html);
    if (*files->pdf)
        printf("%s\n", files->pdf);
    else if (request->format == ECH__REPORT_BOTH)
        printf("report.pdf is not written: this build is without cairo and pango\n");
    if (request->csv)
        printf("%s: %zu tables\n", files->csv, files->tables);
    if (request->pictures)
        printf("%s: %zu plots\n", files->pictures, files->plots);
}

/* ---- the command ---- */

static ech_status print_json(ech_ctx *ctx, const ech__report_request *a, const ech__report_files *r)
{
    ech_json *json = ech__json_object();
    ech__json_set_int(&json, "studies", (int64_t)r->studies);
    if (a->format != ECH__REPORT_PDF)
        ech__json_set_string(&json, "html", r->html);
    if (*r->pdf)
        ech__json_set_string(&json, "pdf", r->pdf);
    if (a->csv) {
        ECH__JSON_SET(&json, ech__string("csv", r->csv), ech__int("tables", (int64_t)r->tables));
    }
    if (a->pictures) {
        ECH__JSON_SET(&json, ech__string("pictures", r->pictures),
                      ech__int("plots", (int64_t)r->plots));
    }
    return ech__cli_json(ctx, json);
}

static ech_status check(ech_ctx *ctx, const ech__option_result *given)
{
    const ech__report_request *a = &((const args *)given->args)->request;
    const char *const paths[] = {a->dir, a->out ? a->out : a->dir};
    for (int i = 0; i < 2; i++) {
        if (!*paths[i] || strlen(paths[i]) >= ECH_DIR_MAX_PATH)
            return ech__fail(ctx, ECH_E_INVALID,
                             "%s '%.60s': must be a directory, with a path of 1 to %d bytes",
                             i ? "--out" : "DIR", paths[i], ECH_DIR_MAX_PATH - 1);
    }
    return ECH_OK;
}

static int run(ech_ctx *ctx, const ech__option_result *given)
{
    const args *a = given->args;
    ech__report_files files;
    ECH_TRY(ech__cli_report_write(ctx, given->command, &a->request, &files));
    if (a->json)
        ECH_TRY(print_json(ctx, &a->request, &files));
    else
        ech__cli_report_print(&a->request, &files);
    return files.problems ? ECH__EXIT_FAILED : ECH__EXIT_GOOD;
}

const ech__command ech__cli_report = {
    .name = "report",
    .brief = "write a page and a PDF from the records of a lab",
    .about =
        "Reads records only, so that a report can be made again without running anything: lab.json "
        "names the studies, studies/ID.json hold their tables, plots and answers, and plots take "
        "series and timelines from the run directories that they name. report.html is one file "
        "that needs no other; report.pdf holds the same on A4. A study or a plot whose records "
        "cannot be read is named on stderr and in the report, which has all the others, and the "
        "exit "
        "code is 1.",
    ECH_OPTION_ROWS(options),
    ECH_OPTION_EXAMPLES(examples),
    ECH__CLI_RUN(args, run),
    .check = check,
};
