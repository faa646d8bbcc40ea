/* The files of a run directory: run.json and steps.jsonl (trace.h has trace.json). */
#pragma once

#include "train/run.h"

/* Makes the directory and opens its files, in place of what an earlier run left there; but a run
 * that goes on after `kept` steps keeps their lines in steps.jsonl, as far as they are there. */
ech_status ech__records_open(ech_ctx *ctx, const char *dir, int64_t kept, ech__records **out);
/* run.json, whole. */
ech_status ech__records_run(ech__records *records, const ech__run *run, const char *state);
/* A line of steps.jsonl, where the step has one. What cannot be written is logged, and training
 * goes on (step_lines.h). */
void ech__records_step(ech__records *records, const ech__run *run, const ech__run_step *step);
/* Records why trace.json is incomplete. */
void ech__records_trace_failed(ech__records *records, const char *why);
/* The list of incomplete files of the run directory for run.json; NULL if there are none. records
 * may be NULL. */
ech_json *ech__records_incomplete(const ech__records *records);
/* Closes everything. NULL is fine. */
void ech__records_close(ech__records *records);
