/* What a finished run leaves for the next lab: done.json in its directory.
 *
 *     {"format": 1, "words": "train --model linear ... 1.0.0", "state": "done", "code": 0, "seconds": 1.25, "reason": null}
 *
 * It is written last, so that a directory without one is that of a run that was interrupted.
 */
#ifndef ECH_LAB_KEEP_H
#define ECH_LAB_KEEP_H

#include "base/status.h"

typedef struct ech__lab_kept {
    const char *words;  /* what makes it the same run, with the program's version behind it */
    bool good;          /* it succeeded */
    int code;           /* exit code, or 128 and the signal */
    double seconds;     /* that it took */
    const char *reason; /* why it failed; else NULL */
} ech__lab_kept;

ech_status ech__lab_keep_save(ech_ctx *ctx, const char *dir, const ech__lab_kept *kept);
/* Whether dir holds a run of these words that succeeded; *seconds are what it took. What cannot be read is no such run. */
bool ech__lab_keep_find(ech_ctx *ctx, const char *dir, const char *words, double *seconds);
/* Makes dir an empty directory, whatever was in it. */
ech_status ech__lab_keep_clear(ech_ctx *ctx, const char *dir);

#endif
