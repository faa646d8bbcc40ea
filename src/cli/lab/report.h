/* Writing a report, for the commands that end with one: report and lab. */
#pragma once

#include "base/file/dir.h"
#include "cli/cli.h"

/* In the order of the options' choices. */
enum { ECH__REPORT_BOTH, ECH__REPORT_HTML, ECH__REPORT_PDF };
enum { ECH__REPORT_NO_PICTURES, ECH__REPORT_SVG, ECH__REPORT_PNG };

#define ECH__REPORT_FORMATS "both|html|pdf"
#define ECH__REPORT_PICTURES "none|svg|png"

typedef struct ech__report_request {
    const char *dir; /* of the records */
    const char *out; /* where the report goes; NULL: next to them */
    int format, pictures;
    bool csv;
} ech__report_request;

/* Paths of what was written, and how much it is. pdf is empty where a build cannot print and it was not asked for. */
typedef struct ech__report_files {
    char html[ECH_DIR_MAX_PATH + 32], pdf[ECH_DIR_MAX_PATH + 32];
    char csv[ECH_DIR_MAX_PATH + 32], pictures[ECH_DIR_MAX_PATH + 32];
    size_t studies, tables, plots;
    size_t problems; /* studies and plots that could not be read */
} ech__report_files;

/* A line on stderr for each problem; the report has all the rest. */
ech_status ech__cli_report_write(ech_ctx *ctx, const ech__command *command,
                                 const ech__report_request *request, ech__report_files *out);
/* One line for each on stdout. */
void ech__cli_report_print(const ech__report_request *request, const ech__report_files *files);
