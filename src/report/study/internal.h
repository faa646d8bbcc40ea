/* The parts of a study record, each read in a file of its own. Only for study*.c. */
#pragma once

#include "report/study/reader.h"
#include "report/study/study.h"

/* A number, a text, null, or an object with value, low, high, clock, note and run. */
ech_status ech__read_cell(const ech__reader *r, const ech_json *value, ech__cell *out);
/* The fields of a cell that is an object, which the caller has checked for others. */
ech_status ech__read_cell_fields(const ech__reader *r, const ech_json *object, ech__cell *out);
/* "clock" of an object. */
ech_status ech__read_basis(const ech__reader *r, const ech_json *object, ech__basis *out);
ech_status ech__read_format(const ech__reader *r, const ech_json *object, ech__number_format *out);
ech_status ech__read_figures(const ech__reader *r, const ech_json *object, const char *key,
                             ech__figure **out, size_t *count);

ech_status ech__read_tables(const ech__reader *r, const ech_json *study, ech__study *out);
ech_status ech__read_answers(const ech__reader *r, const ech_json *study, ech__study *out);
ech_status ech__read_plots(const ech__reader *r, const ech_json *study, ech__study *out);

/* Notes the error message of the context as a problem of a study, which keeps what it has. Fails
 * only without memory. */
ech_status ech__book_problem(ech__book *book, ech__study *study);
