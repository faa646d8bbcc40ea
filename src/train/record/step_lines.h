/* steps.jsonl: a line for each step, written as it happens. It grows ever more slowly, so that no
 * run can fill a disk with it, and when the disk is full the lines end and the training goes on.
 *
 *     ech__step_lines lines;
 *     ECH_TRY(ech__step_lines_open(ctx, &lines, path, kept));      keeps the lines of the first `kept` steps
 *     ech__step_lines_write(&lines, step, json);                   after each step that has a line
 *     ech__step_lines_close(&lines);
 */
#pragma once

#include "base/file/json.h"

typedef struct ech__step_lines {
    ech_ctx *ctx;
    const char *path;  /* borrowed */
    int fd;            /* -1: closed, or given up */
    int64_t bytes;     /* of whole lines */
    int64_t last_step; /* of the last line that this run has written; 0: none */
    int error;         /* errno of the write that failed; 0: none did */
} ech__step_lines;

/* Where kept is 0 the file is emptied. Otherwise it is cut at the first line of a later step, and
 * before a line that a killed run did not finish. */
ech_status ech__step_lines_open(ech_ctx *ctx, ech__step_lines *lines, const char *path,
                                int64_t kept);
/* A line that cannot be written is taken back and logged, and is the last one that is tried. */
void ech__step_lines_write(ech__step_lines *lines, int64_t step, const ech_json *json);
void ech__step_lines_close(ech__step_lines *lines);

/* Whether a step has a line, and whether that has the details of the exchange: all of the first
 * million or thousand steps, a tenth of the steps up to ten times as many, a hundredth up to a
 * hundred times as many, and so on. */
bool ech__step_has_line(int64_t step);
bool ech__step_has_details(int64_t step);
