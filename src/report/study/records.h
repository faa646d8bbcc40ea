/* What plots take from the records of runs: series from steps.jsonl, epochs from run.json, timelines from trace.json.
 * Fields that nobody asks for are passed over. */
#pragma once

#include "report/study/study.h"

/* Fills in all series and timelines of a study whose data lie in run directories below dir. */
ech_status ech__records_fill(ech__book *book, const char *dir, ech__study *study);

/* ---- texts that are in memory; what names them in sentences ---- */

/* A last line without its end is one that the run did not finish writing, and is left out. */
ech_status ech__steps_parse(ech__book *book, const char *what, const char *text, size_t bytes,
                            ech__plot_series *series);
/* Epochs count from 1. */
ech_status ech__epochs_parse(ech__book *book, const char *what, const char *text, size_t bytes,
                             ech__plot_series *series);
/* Spans of the step that the trace asks for. */
ech_status ech__trace_parse(ech__book *book, const char *what, const char *text, size_t bytes,
                            ech__plot_trace *trace);
