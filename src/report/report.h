/* A report from its records: report.html, report.pdf and tables as CSV.
 *
 *     ech__book *book;
 *     ECH_TRY(ech__book_load(ctx, dir, &book));
 *     ech_status s = ech__report_html(book, "report.html", "");
 *     ech__book_destroy(book);
 */
#pragma once

#include "report/study/study.h"

/* One file that needs nothing else. links is put before the paths of records: "" where the page lies in the report's
 * directory. */
ech_status ech__report_html(const ech__book *book, const char *path, const char *links);
/* Its text, which the caller frees. */
ech_status ech__html_print(const ech__book *book, const char *links, char **out, size_t *bytes);

ech_status ech__report_pdf(const ech__book *book, const char *path);

/* One file for each table: STUDY-NUMBER.csv in dir, which is made. *written counts them. */
ech_status ech__report_csv(const ech__book *book, const char *dir, size_t *written);
ech_status ech__csv_print(ech_ctx *ctx, const ech__study_table *table, char **out, size_t *bytes);

/* A plot with its title as a picture of its own: SVG or PNG by the name's end, which must be one of the two. */
bool ech__is_picture_name(const char *path);
ech_status ech__report_picture(ech_ctx *ctx, const ech__plot *plot, const char *path);
/* One file for each plot: STUDY-NUMBER.svg or .png in dir, which is made. *written counts them. */
ech_status ech__report_pictures(const ech__book *book, const char *dir, bool png, size_t *written);
