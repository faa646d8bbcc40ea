/* What a finished run leaves for the next lab: its directory, with done.json in it.
 *
 *     {"format": 1, "words": "train --model linear ... 1.0.0", "state": "done", "code": 0, "seconds": 1.25, "reason": null}
 *
 * A run is made in DIR.new. If it succeeds, this directory replaces DIR in one step; if it fails,
 * it becomes DIR.failed. So DIR is always the record of a whole run, which studies told earlier can
 * go on using, whatever happens to a later run of the same words.
 */
#pragma once

#include "base/status.h"

typedef struct ech__lab_kept {
    const char *words;  /* what makes it the same run, with the program's version behind it */
    bool good;          /* it succeeded */
    int code;           /* exit code, or 128 and the signal */
    double seconds;     /* that it took */
    const char *reason; /* why it failed; else NULL */
} ech__lab_kept;

#define ECH__LAB_KEEP_NEW ".new"
#define ECH__LAB_KEEP_FAILED ".failed"

/* Writes done.json into DIR.new, and makes it DIR or, of a run that failed, DIR.failed. */
ech_status ech__lab_keep_save(ech_ctx *ctx, const char *dir, const ech__lab_kept *kept);
/* Whether dir holds a run of these words that succeeded; *seconds are what it took. What cannot be
 * read is no such run. */
bool ech__lab_keep_find(ech_ctx *ctx, const char *dir, const char *words, double *seconds);
/* Makes DIR.new an empty directory, whatever was in it. */
ech_status ech__lab_keep_begin(ech_ctx *ctx, const char *dir);
/* Removes DIR.new: of a run that was stopped. */
ech_status ech__lab_keep_drop(ech_ctx *ctx, const char *dir);
