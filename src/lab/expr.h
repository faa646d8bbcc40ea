/* Figures as expressions over the records of runs.
 *
 *     steps[n1 time_s] / steps[n2 time_s]                     a speedup
 *     [n2 summary.comm_bytes_per_step] / [n2 summary.parameters]
 *     [plan rows.devices=4.step_s]                            the element of "rows" whose "devices" is 4
 *     amdahl(1, steps[n1 time_s], 2, steps[n2 time_s])        a fitted serial fraction
 *     (t4 - t1 / 4) / t4                                      of figures that the study has named
 *
 * [RUN PATH] is a number of a run's record (true and false are 1 and 0): members and elements
 * joined by dots, an element by its index or by KEY=VALUE, several of them joined by '&'. NAME[RUN
 * FIELD] is a statistic of a field of steps.jsonl, over the steps behind the warm-up that have it;
 * FIELD may go inside: wait_s.1. first[RUN FIELD K] is that of step K, counted from 1, warm-up
 * included. Of a run that has no steps, FIELD is the path of an array of its record.
 *
 * An expression is not computed once but ECH__LAB_DRAWS times: draw 0 on the steps as they are,
 * every other draw on steps that are drawn with replacement, the same ones wherever a run occurs;
 * and the times of a run that was not only predicted are multiplied by a factor of the size that
 * equal runs of this machine differ by. Times are what ends in _s; rates (_per_s and _gbs) are
 * divided by it; the last component of a path decides, or the one before it (step_time_s.median).
 * What comes out has an interval of 95 % of the draws, however it was computed, and the value
 * always lies in it. Where more than a twentieth of the draws gave no number, as those of a
 * crossing that is hardly met, it has none: low and high are NaN, and the reason says so. Draws are
 * counter-based: same records, same bits.
 */
#pragma once

#include "base/arena.h"
#include "base/file/json.h"

enum { ECH__LAB_DRAWS = 1001, ECH__LAB_EXPR_MAX = 2000 /* characters */ };

/* Statistics of steps. std is of the sample (n - 1). */
#define ECH__LAB_STATISTIC_LIST(X)                                                                 \
    X(steps) /* the median */                                                                      \
    X(mean)                                                                                        \
    X(std)                                                                                         \
    X(p95)                                                                                         \
    X(lowest)                                                                                      \
    X(highest)                                                                                     \
    X(total)                                                                                       \
    X(count)                                                                                       \
    X(last)

/* Functions of numbers. The last seven take pairs x1, y1, x2, y2, ... as many as there are. */
#define ECH__LAB_FUNCTION_LIST(X)                                                                       \
    X(min)                                                                                              \
    X(max)                                                                                              \
    X(abs)                                                                                              \
    X(sqrt)                                                                                             \
    X(log)                                                                                              \
    X(exp)                                                                                              \
    X(share)   /* share(hits, count), as uncertain as a sample of so many is (Wilson) */                \
    X(paired)  /* paired(gained, lost, count): difference of two shares of the same sample */           \
    X(average) /* mean of repetitions, as uncertain as they differ (Student) */                         \
    X(amdahl) /* x devices, y step time: serial fraction f of y = t (f + (1 - f) / x), least squares */ \
    X(slope)     /* of the line of least squares */                                                     \
    X(intercept) /* the same line's */                                                                  \
    X(rsquared)  /* the share of the variance that it explains */                                       \
    X(crossing) /* crossing(level, x1, y1, ...): first x at which y, interpolated, meets the level */   \
    X(best)     /* the x of the largest y */                                                            \
    X(worst)    /* the x of the smallest y */

/* How a figure came about; a figure of several runs has that of the least real one. */
typedef enum ech__lab_basis {
    ECH__LAB_MEASURED,
    ECH__LAB_EMULATED,
    ECH__LAB_PREDICTED,
} ech__lab_basis;

/* "measured" */
const char *ech__lab_basis_name(ech__lab_basis basis);

typedef enum ech__lab_state {
    ECH__LAB_DONE,
    ECH__LAB_REUSED,
    ECH__LAB_FAILED,
    ECH__LAB_SKIPPED,
} ech__lab_state;

/* A run of a study. Strings belong to whoever made the list. */
typedef struct ech__lab_result {
    const char *id;      /* in its study */
    const char *command; /* that repeats it */
    const char *dir;     /* of its record: run.json or result.json; NULL where it has none */
    const char *record;  /* the same from the directory of the report */
    ech__lab_state state;
    const char *reason; /* of one that failed or was skipped */
} ech__lab_result;

/* A figure: its value, the interval of its draws, and why it is not known where it is not. */
typedef struct ech__lab_figure {
    double value, low, high; /* NaN where unknown; low == high == value where nothing was drawn */
    bool known;
    ech__lab_basis basis;
    const char *run; /* the first run in it, or NULL */
    const char
        *reason; /* where it or its interval is not known: "n4: out of memory ..."; else NULL */
} ech__lab_figure;

/* The records of a study's runs, read when an expression first asks for them, and its named figures. */
typedef struct ech__lab_facts ech__lab_facts;

/* results is borrowed and must outlive the facts. noise: standard deviation of the logarithm of equal runs' times. */
ech_status ech__lab_facts_create(ech_ctx *ctx, const ech__lab_result *results, size_t count,
                                 double noise, ech__lab_facts **out);
void ech__lab_facts_destroy(ech__lab_facts *facts);

/* An expression that cannot be parsed, names no run of the study or no figure is an error; one
 * whose run failed or lacks the field is a figure that is not known. */
ech_status ech__lab_eval(ech__lab_facts *facts, const char *expr, ech__lab_figure *out);
/* The same, and expressions after it may use its name: letters, digits and '_', a letter first. A name stands for one
 * expression: another one under the same name is an error. */
ech_status ech__lab_define(ech__lab_facts *facts, const char *name, const char *expr,
                           ech__lab_figure *out);

/* The record of a run, for what is no number; NULL where there is none. Borrowed. */
const ech_json *ech__lab_record(ech__lab_facts *facts, const char *run);
/* What a path of a record leads to, or NULL. */
const ech_json *ech__lab_path(const ech_json *record, const char *path);
/* "measured", "emulated" or "predicted": what the run's record says; a plan is predicted. */
ech__lab_basis ech__lab_basis_of(ech__lab_facts *facts, const char *run);
