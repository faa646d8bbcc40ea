/* A study as a description: what to run, and what to tell of the records that the runs leave.
 *
 * One file in src/lab/studies is one study. The file strong_scaling.c defines ech__study_strong_scaling, and the build
 * finds it by that name: nothing else has to be changed for a new study.
 *
 *     static const ech__lab_param params[] = {{"dim", 1024, 4096, 1, 65536, "width of a layer"}, {0}};
 *
 *     static void runs(ech__lab_runs *lab)
 *     {
 *         for (size_t i = 0; i < ech__lab_devices(lab); i++) {
 *             const int64_t n = ech__lab_device(lab, i);
 *             ech__lab_run(lab, ech__lab_name("n%" PRId64, n).s,
 *                          "train --model linear --dim %" PRId64 " --global-batch 64 --devices %" PRId64,
 *                          ech__lab_param_of(lab, "dim"), n);
 *         }
 *     }
 *
 *     const ech__study_card ech__study_strong_scaling = {
 *         .id = "strong-scaling", .group = 'A', .place = 2, .title = "...", .about = "...",
 *         .params = params, .quick_seconds = 20, .full_seconds = 120, .runs = runs, .tell = tell};
 *
 * tell is written with the words of lab/sheet.h. runs and tell return nothing: the first error stays with what they
 * were given, later calls do nothing, and the lab reports it.
 */
#pragma once

#include "base/status.h"

#include <inttypes.h>

typedef struct ech__lab_runs ech__lab_runs;
typedef struct ech__sheet ech__sheet;

/* A size that the command line may change: --set dim=512 for every study, --set strong-scaling.dim=512 for one. */
typedef struct ech__lab_param {
    const char *name; /* NULL ends the list */
    int64_t quick, full;
    int64_t min, max; /* that can be run and told; others are refused before anything runs */
    const char *help;
} ech__lab_param;

typedef struct ech__study_card {
    const char *id; /* as on the command line: "strong-scaling" */
    char group;     /* 'A' to 'E'; the report is in order of groups and places */
    int place;
    const char *title, *about;          /* about: what is run, in a sentence or two */
    const ech__lab_param *params;       /* may be NULL */
    double quick_seconds, full_seconds; /* about how long it takes, for the time that is left */
    void (*runs)(ech__lab_runs *lab);
    void (*tell)(ech__sheet *sheet);
} ech__study_card;

/* Every study of the program, in the order of the names of their files, from which the build makes it. */
extern const ech__study_card *const ech__lab_cards[];
extern const size_t ech__lab_card_count;

/* Puts them into the order of the report: by group and place. */
void ech__lab_sort(const ech__study_card **cards, size_t count);

/* ---- asking for runs ----
 *
 * runs is called again when all that it asked for is finished, and may then ask for more, knowing the results; a
 * run that it asked for before is passed over. It is called until it asks for nothing new, four times at most. */

typedef struct ech__lab_id {
    char s[64];
} ech__lab_id;

/* printf into a name: letters, digits, '-', '_' and '.'. */
__attribute__((format(printf, 1, 2))) ech__lab_id ech__lab_name(const char *format, ...);

bool ech__lab_quick(const ech__lab_runs *lab);
int64_t ech__lab_param_of(ech__lab_runs *lab, const char *name);
/* Numbers of devices that were asked for, ascending and beginning with 1; by default 1, 2 and 4. Where there are more
 * devices than cores, echelon train emulates them by itself. */
size_t ech__lab_devices(const ech__lab_runs *lab);
int64_t ech__lab_device(const ech__lab_runs *lab, size_t index);
/* Cores of this machine: devices beyond them are emulated. */
int64_t ech__lab_cores(const ech__lab_runs *lab);

/* Asks for a run: the arguments of echelon, as words with one space between them. "train ..." gets
 * --run-dir, and --seed and --threads 1 where they are not given, and its record is run.json, with
 * steps.jsonl and trace.json beside it. Any other command gets --json, and what it prints is its
 * record. A failing run becomes a row that says why.
 *
 * Words that begin with '@' are replaced:
 *   @images      --data cifar10 --data-dir DIR, or --data synthetic where the set cannot be had
 *   @out         the directory of this run, which exists: "--out @out"
 *   @out/NAME    a file in it
 *   @of:ID       the directory of the run ID of this study, asked for before: "--init @of:trained/weights"
 *   @of:ID/NAME  a file in it
 *   @repeat:N    nothing: makes the N-th repetition of the same words a run of its own
 * Two runs of the same words are one run, also in different studies. */
__attribute__((format(printf, 3, 4))) void ech__lab_run(ech__lab_runs *lab, const char *id,
                                                        const char *words, ...);
/* A run that is known not to work: a row with this reason, and nothing is started. */
__attribute__((format(printf, 3, 4))) void ech__lab_skip(ech__lab_runs *lab, const char *id,
                                                         const char *reason, ...);
/* An expression of lab/expr.h over runs that are finished. False, and nothing is written, while it cannot be known. */
__attribute__((format(printf, 3, 4))) bool ech__lab_known(ech__lab_runs *lab, double *out,
                                                          const char *expr, ...);
