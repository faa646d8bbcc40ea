/* The words of a run made ready to be started: placeholders replaced, what every run gets added,
 * and a name for its directory that the same words always have. */
#pragma once

#include "lab/internal.h"

enum { ECH__LAB_MAX_WORDS = 512 };

typedef struct ech__lab_line {
    char *argv[ECH__LAB_MAX_WORDS + 1]; /* "echelon" first, NULL at its end */
    size_t argc;
    const char *
        key; /* what makes it the same run: its words without places of this machine, and the version */
    const char *name;    /* "train-0123456789": command and hash of the key */
    const char *dir;     /* OUT/runs/NAME */
    char *made_in;       /* where it is made: the same with ".new" behind it (lab/keep.h) */
    const char *command; /* that repeats it, for people */
    bool prints;         /* its record is what it prints: result.json */
    const ech__lab_task *
        missing; /* a run that it needs and that did not succeed: nothing can be started; else NULL */
} ech__lab_line;

/* Words that no run can have are an error. Looks for CIFAR-10 where @images are asked for. */
ech_status ech__lab_line_make(ech__lab_study *study, const char *words, ech__lab_line *out);
