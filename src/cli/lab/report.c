/* echelon report: a page and a PDF from the records of a lab. */
#include "base/file/dir.h"
#include "base/file/json.h"
#include "cli/cli.h"
#include "cli/lab/report_write.h"

#include <stdio.h>
#include <string.h>

typedef struct args {
    ech__report_request request;
    bool json;
} args;

static const ech__option options[] = {
    {.name = "DIR",
     ECH_OPTION(STRING, args, request.dir),
     .positional = true,
     .required = true,
     .help = "Directory of the report: lab.json and studies/."},
    {.name = "out",
     ECH_OPTION(STRING, args, request.out),
     .arg = "DIR",
     .help = "Where the report goes. It is made where it is not there. Default: the directory of "
             "its records."},
    {.name = "format",
     ECH_OPTION(CHOICE, args, request.format),
     .choices = ECH__REPORT_FORMATS,
     .initial = "both",
     .help = "What is written."},
    {.name = "csv",
     ECH_OPTION(FLAG, args, request.csv),
     .help = "Write every table to csv/STUDY-NUMBER.csv too, with full precision."},
    {.name = "pictures",
     ECH_OPTION(CHOICE, args, request.pictures),
     .choices = ECH__REPORT_PICTURES,
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
        "that needs no other; report.pdf holds the same on A4. A study or a plot whose records "
        "cannot be read is named on stderr and in the report, which has all the others, and the "
        "exit "
        "code is 1.",
    .options = options,
    .count = sizeof options / sizeof *options,
    .examples = examples,
    .example_count = sizeof examples / sizeof *examples,
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

static ech_status check(ech_ctx *ctx, const ech__report_request *a)
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

int ech__command_report(ech_ctx *ctx, const ech__command *command, char **argv)
{
    args a = {0};
    ech__option_result given;
    int code;
    if (!ech__cli_parse(ctx, command, argv, &a, &given, &code))
        return code;
    if (check(ctx, &a.request) < 0)
        return ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
    ech__report_files files;
    ech_status status = ech__cli_report_write(ctx, command, &a.request, &files);
    if (status == ECH_OK && a.json)
        status = print_json(ctx, &a.request, &files);
    else if (status == ECH_OK)
        ech__cli_report_print(&a.request, &files);
    if (status < 0)
        return ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
    return files.problems ? ECH__EXIT_FAILED : ECH__EXIT_GOOD;
}
