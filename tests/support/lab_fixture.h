/* A small lab directory whose numbers are known: four runs, a plan, a run that failed and one that was skipped.
 *
 *     lab_fixture lab;
 *     lab_fixture_write(ctx, &lab, dir);                      dir is there and empty
 *     ech__lab_facts_create(ctx, lab.results, LAB_RUNS, 0, &facts);
 *     lab_fixture_remove(ctx, &lab);
 *
 * n1 and n2 are measured, n4 is emulated; each has LAB_STEPS steps, of which LAB_WARMUP are
 * warm-up, and a torn last line.
 */
#pragma once

#include "lab/sheet.h"
#include "support/cmocka_first.h"

enum { LAB_RUNS = 7, LAB_GOOD_RUNS = 5 /* the first ones */, LAB_STEPS = 14, LAB_WARMUP = 3 };

typedef struct lab_fixture {
    char dir[256], paths[LAB_RUNS][320];
    ech__lab_result results[LAB_RUNS];
} lab_fixture;

void lab_fixture_write(ech_ctx *ctx, lab_fixture *lab, const char *dir);
/* All that was written, and dir itself. */
void lab_fixture_remove(ech_ctx *ctx, const lab_fixture *lab);

/* time_s of a step, from 1, of the run with so many devices. */
double lab_fixture_time(int devices, int step);

/* Options of a sheet over the runs; noise 0. */
ech__sheet_options lab_fixture_options(const lab_fixture *lab, const ech__study_card *card);
/* A study that uses every word. */
extern const ech__study_card lab_fixture_card;
/* Writes studies/ID.json and a lab.json that names it. */
void lab_fixture_save(ech_ctx *ctx, const lab_fixture *lab, const ech_json *study, const char *id);
