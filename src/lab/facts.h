/* What expressions are made of: values with their draws, and the records of runs that they come
 * from. Only for the files of lab/expr.h and for sheets.
 *
 *     expr.c       the language: text to values, values to figures
 *     facts.c      the records of runs, read when they are first asked for
 *     draws.c      statistics of steps, as they are and drawn again
 *     functions.c  functions of values
 */
#pragma once

#include "lab/expr.h"

/* Larger numbers are no figures: a report refuses them. */
#define ECH__LAB_LARGEST 1e30

enum { ECH__LAB_MAX_ARGS = 129 };

typedef struct ech__lab_value {
    double at;           /* draw 0; NaN where it is not known */
    const double *draws; /* [ECH__LAB_DRAWS]; NULL where nothing was drawn: then every draw is at */
    bool known;
    ech__lab_basis basis;
    const char *run;    /* the first in it; NULL: none */
    const char *reason; /* where it is not known */
} ech__lab_value;

typedef enum ech__lab_statistic {
#define ECH__LAB_STATISTIC_ENUM(name) ECH__LAB_STATISTIC_##name,
    ECH__LAB_STATISTIC_LIST(ECH__LAB_STATISTIC_ENUM)
#undef ECH__LAB_STATISTIC_ENUM
        ECH__LAB_STATISTIC_COUNT
} ech__lab_statistic;

typedef enum ech__lab_function {
#define ECH__LAB_FUNCTION_ENUM(name) ECH__LAB_FUNCTION_##name,
    ECH__LAB_FUNCTION_LIST(ECH__LAB_FUNCTION_ENUM)
#undef ECH__LAB_FUNCTION_ENUM
        ECH__LAB_FUNCTION_COUNT
} ech__lab_function;

/* A statistic that was asked for before. */
typedef struct ech__lab_known_statistic {
    ech__lab_statistic statistic;
    const char *field;
    ech__lab_value value;
    struct ech__lab_known_statistic *next;
} ech__lab_known_statistic;

/* A run and what was read of it. */
typedef struct ech__lab_source {
    const ech__lab_result *result;
    const char *
        absent; /* its id where it was never asked for; result is then the run because of which it was not */
    ech_json *record;
    ech_json **steps; /* [nsteps], in the order of the file */
    size_t nsteps, capacity;
    size_t first;          /* of those behind the warm-up */
    bool looked, stepped;  /* whether record and steps were looked for */
    const char *no_record; /* why there is none, and of steps; else NULL */
    const char *no_steps;
    double *noise; /* [ECH__LAB_DRAWS] factors of its times, once they were asked for */
    ech__lab_known_statistic *statistics;
    struct ech__lab_source *next; /* of those that were never asked for */
} ech__lab_source;

/* A figure that has a name. It can only use those before it. */
typedef struct ech__lab_definition {
    const char *name, *expr;
    ech__lab_value value;
    ech__lab_figure figure;
    size_t *uses; /* places of the definitions in it */
    size_t nuses;
} ech__lab_definition;

struct ech__lab_facts {
    ech_ctx *ctx;
    ech__arena arena;
    double noise;
    ech__lab_source *sources;
    size_t nsources;
    ech__lab_source *absent; /* the list of runs that were never asked for */
    ech__lab_definition *definitions;
    size_t ndefinitions, capacity;
};

/* ---- facts.c ---- */

/* NULL where the study has no such run. While another run of the study has no result, a run that
 * was not asked for is one without a result too: which runs a study asks for may depend on the
 * results of others. */
ech__lab_source *ech__lab_source_find(ech__lab_facts *facts, const char *run);
/* Its record, or NULL and no_record. */
const ech_json *ech__lab_source_record(ech__lab_facts *facts, ech__lab_source *source);
/* False where there are none: no_steps says why. */
bool ech__lab_source_steps(ech__lab_facts *facts, ech__lab_source *source);
/* A number of the record. */
ech_status ech__lab_number(ech__lab_facts *facts, ech__lab_source *source, const char *path,
                           ech__lab_value *out);
/* A number as expressions take it: true and false are 1 and 0. False for anything else, null included. */
bool ech__lab_is_number(const ech_json *json, double *out);
ech__lab_basis ech__lab_source_basis(ech__lab_facts *facts, ech__lab_source *source);
/* Whether every step (every epoch) of a run has these two fields as numbers, so that a plot can be made of them. */
bool ech__lab_has_steps(ech__lab_facts *facts, const char *run, const char *x, const char *y);
bool ech__lab_has_epochs(ech__lab_facts *facts, const char *run, const char *y);
/* "n4: " and what follows, in the arena of the facts; never NULL. */
/* "RUN: it diverged at step N", or NULL where it did not: then its losses are missing for that reason. */
const char *ech__lab_diverged(ech__lab_facts *facts, ech__lab_source *source);
const char *ech__lab_reason(ech__lab_facts *facts, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- draws.c ---- */

bool ech__lab_statistic_find(const char *name, size_t length, ech__lab_statistic *out);
ech_status ech__lab_statistic_of(ech__lab_facts *facts, ech__lab_source *source,
                                 ech__lab_statistic statistic, const char *field,
                                 ech__lab_value *out);
/* The field of one step, warm-up included. */
ech_status ech__lab_step_of(ech__lab_facts *facts, ech__lab_source *source, const char *field,
                            int64_t step, ech__lab_value *out);
/* Gives a number of a run the draws that its name asks for: times are multiplied by the noise of the machine, rates are
 * divided by it, and everything else stays as it is. */
ech_status ech__lab_add_noise(ech__lab_facts *facts, ech__lab_source *source, const char *path,
                              ech__lab_value *value);

/* ---- functions.c ---- */

/* Makes value one that other is part of: its run, its basis, and whether it is known at all. */
void ech__lab_join(ech__lab_value *value, const ech__lab_value *other);
/* A value that came out as no number is not known, for that reason. */
void ech__lab_settle(ech__lab_value *value, const char *reason);

bool ech__lab_function_find(const char *name, size_t length, ech__lab_function *out);
/* Draws go into the arena. */
ech_status ech__lab_call(ech__lab_facts *facts, ech__arena *arena, ech__lab_function function,
                         const ech__lab_value *args, size_t count, ech__lab_value *out);

/* ---- expr.c ---- */

/* NULL where no figure has that name. */
const ech__lab_definition *ech__lab_definition_find(const ech__lab_facts *facts, const char *name,
                                                    size_t length);
/* "s4 / 4 where s4 = steps[n1 time_s] / steps[n4 time_s]": the expression of a named figure, then those of the names in
 * it, parted by "; ". In the arena; NULL where memory is out. */
const char *ech__lab_explain(const ech__lab_facts *facts, const ech__lab_definition *definition,
                             ech__arena *arena);
