/* The files of a run directory: run.json and steps.jsonl (trace.h has trace.json). */
#ifndef ECH_TRAIN_RECORD_H
#define ECH_TRAIN_RECORD_H

#include "train/run.h"

/* Makes the directory and opens its files, in place of what an earlier run left there; but a run that goes on
 * after `kept` steps keeps their lines in steps.jsonl, as far as they are there. */
ech_status ech__records_open(ech_ctx *ctx, const char *dir, int64_t kept, ech__records **out);
/* run.json, whole. */
ech_status ech__records_run(ech__records *records, const ech__run *run, const char *state);
/* A line of steps.jsonl. */
ech_status ech__records_step(ech__records *records, const ech__run *run, const ech__run_step *step);
/* Of layers on several devices (record_pipe.c): fills in their times from those of the operators, once; and what a summary has
 * of them. */
void ech__run_sum_up_layers(ech__run *run);
void ech__record_pipe(const ech__run *run, ech_json **summary);
/* Closes everything. */
ech_status ech__records_close(ech__records *records);

#endif
