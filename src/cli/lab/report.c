/* echelon report: a page and a PDF from the records of a lab. */
#include "base/file/dir.h"
#include "cli/cli.h"
#include "cli/lab/report_write.h"

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

static ech_status check(ech_ctx *ctx, const ech__command *command, const ech__option_result *given)
{
    const ech__report_request *a = &((const args *)given->args)->request;
    (void)command;
    const char *const paths[] = {a->dir, a->out ? a->out : a->dir};
    for (int i = 0; i < 2; i++) {
        if (!*paths[i] || strlen(paths[i]) >= ECH_DIR_MAX_PATH)
            return ech__fail(ctx, ECH_E_INVALID,
                             "%s '%.60s': must be a directory, with a path of 1 to %d bytes",
                             i ? "--out" : "DIR", paths[i], ECH_DIR_MAX_PATH - 1);
    }
    return ECH_OK;
}

static int run(ech_ctx *ctx, const ech__command *command, const ech__option_result *given)
{
    const args *a = given->args;
    ech__report_files files;
    ECH_TRY(ech__cli_report_write(ctx, command, &a->request, &files));
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
