/* A small model of step times, fitted to a table of runs, and what it says of other numbers of devices.
 *
 * A run of N devices takes samples / (N batch) steps. A step takes C(batch), what one device
 * computes, and, where bytes are exchanged between N > 1 devices, an exposed part E in one of
 * several forms:
 *
 *     none            0
 *     fixed           s                                     the same for any N: launches, synchronisation
 *     link            bytes 2(N-1)/N / B                    a ring's traffic at B bytes/s
 *     latency         a 2(N-1)                              a ring's messages
 *     fixed+link, link+latency                              sums of these
 *     hidden fixed    max(0, s - h C)                       a share h of the computation hides it
 *     hidden link     max(0, bytes 2(N-1)/N / B - h C)
 *     fixed+hidden    s + max(0, bytes 2(N-1)/N / B - h C)
 *
 * C has a value of its own for each batch that ran on one device; between these it is interpolated,
 * beyond them it follows an affine fit through all of them. Without a row of one device C is
 * affine. Nothing is negative. Errors are relative.
 *
 * Forms are compared by the error with which they foresee each row of N > 1 when it is left out.
 * The simplest that is as good as the best is kept; several that are equally good and equally
 * simple are all kept: a prediction is then the mean of theirs, and its interval spans theirs.
 *
 *     ech__fit fit;                                                       some 100 KB
 *     ech__fit_options o = ech__fit_defaults();
 *     ECH_TRY(ech__fit_table(ctx, "runs.csv", &table, &o, &fit));
 *     ech__fit_prediction p = ech__fit_predict(&fit, 4, 32);
 */
#pragma once

#include "predict/least_squares.h"
#include "predict/runs_table.h"

/* Form, its name, number of unknowns, and which they are: fixed, link, latency, overlap. */
#define ECH__FIT_FORM_LIST(X)                                                                      \
    X(NONE, "none", 0, 0, 0, 0, 0)                                                                 \
    X(FIXED, "fixed", 1, 1, 0, 0, 0)                                                               \
    X(LINK, "link", 1, 0, 1, 0, 0)                                                                 \
    X(LATENCY, "latency", 1, 0, 0, 1, 0)                                                           \
    X(FIXED_LINK, "fixed+link", 2, 1, 1, 0, 0)                                                     \
    X(LINK_LATENCY, "link+latency", 2, 0, 1, 1, 0)                                                 \
    X(HIDDEN_FIXED, "hidden fixed", 2, 1, 0, 0, 1)                                                 \
    X(HIDDEN_LINK, "hidden link", 2, 0, 1, 0, 1)                                                   \
    X(FIXED_HIDDEN, "fixed+hidden", 3, 1, 1, 0, 1)

typedef enum ech__fit_form {
#define ECH__FIT_FORM_ENUM(id, ...) ECH__FIT_##id,
    ECH__FIT_FORM_LIST(ECH__FIT_FORM_ENUM)
#undef ECH__FIT_FORM_ENUM
        ECH__FIT_FORMS
} ech__fit_form;

const char *ech__fit_form_name(ech__fit_form form);

/* The unknowns of E, in their order behind those of C. */
#define ECH__FIT_TERM_LIST(X)                                                                      \
    X(FIXED, "fixed cost per step")                                                                \
    X(LINK, "link bandwidth")                                                                      \
    X(LATENCY, "link latency")                                                                     \
    X(OVERLAP, "overlap share")

typedef enum ech__fit_term {
#define ECH__FIT_TERM_ENUM(id, text) ECH__FIT_TERM_##id,
    ECH__FIT_TERM_LIST(ECH__FIT_TERM_ENUM)
#undef ECH__FIT_TERM_ENUM
        ECH__FIT_TERMS
} ech__fit_term;

const char *ech__fit_term_name(ech__fit_term term);
/* Whether a form has this unknown. */
bool ech__fit_form_has(ech__fit_form form, ech__fit_term term);

enum { ECH__FIT_MAX_BATCHES = 16 };

typedef struct ech__fit_value {
    double value, low, high;
} ech__fit_value;

typedef struct ech__fit_options {
    double noise;      /* relative spread of a run that is assumed before seeing residuals: 0.01 */
    double confidence; /* of intervals: 0.95 */
} ech__fit_options;

ech__fit_options ech__fit_defaults(void);

/* Why a form was not fitted; OK: it was. */
typedef enum ech__fit_refusal {
    ECH__FIT_TRIED,
    ECH__FIT_TOO_MANY, /* unknowns for the rows */
    ECH__FIT_ALIKE,    /* its terms cannot be told apart with these rows */
} ech__fit_refusal;

typedef struct ech__fit_result {
    ech__fit_refusal refusal;
    bool kept;
    double residual; /* root mean square of relative errors, over all rows */
    double
        left_out; /* the same over rows of N > 1, each foreseen from all others; NaN: there is only one */
    double x
        [ECH__LEAST_MAX]; /* C's unknowns, then the terms in their order: seconds, s/byte, seconds, share */
    double spread[ECH__LEAST_MAX]
                 [ECH__LEAST_MAX];       /* covariance of x where residuals had variance 1 */
    ech__fit_value term[ECH__FIT_TERMS]; /* only of terms that the form has; s/byte for the link */
} ech__fit_result;

typedef struct ech__fit {
    ech__table table; /* what it was fitted to */
    ech__fit_options options;
    /* The unknowns of C: a batch each, ascending; none of them where no row has one device and C is affine. */
    int knots;
    int64_t knot[ECH__FIT_MAX_BATCHES];
    /* C's affine fit: seconds per step, and per sample of a step. */
    double step_s, sample_s;
    double
        bend; /* relative deviation of the batches' own C from it: the error of C where no row is */
    int unknowns_of_c;
    ech__fit_result result[ECH__FIT_FORMS];
    int kept; /* forms */
    double
        sigma; /* relative spread of a run: residuals and options.noise, which counts as two rows */
    int freedom;                                /* of sigma, the two included */
    double t;                                   /* quantile that goes with them */
    bool alike[ECH__FIT_TERMS][ECH__FIT_TERMS]; /* terms that no row of this table tells apart */
} ech__fit;

/* Refuses tables that say nothing of N > 1 or have too few rows; what names the table in the sentence. */
ech_status ech__fit_table(ech_ctx *ctx, const char *what, const ech__table *table,
                          const ech__fit_options *options, ech__fit *out);

/* A step's time in seconds: the mean over the kept forms, and the span of their intervals; run: of a run that would be
 * measured, with its own spread, else of the mean of many. With one device it is C. */
ech__fit_value ech__fit_step(const ech__fit *fit, int64_t devices, int64_t batch, int64_t bytes,
                             bool run);

/* Laws for one batch, from its rows alone. f is NaN without rows of one device and of several. */
typedef struct ech__fit_law {
    ech__fit_value f;
    double time; /* what it says for the devices asked for */
} ech__fit_law;

typedef struct ech__fit_prediction {
    int64_t devices, batch, samples, bytes;
    double measured;                    /* mean of the table's rows for it; NaN: there are none */
    ech__fit_value time;                /* seconds for the interval */
    ech__fit_value speedup, efficiency; /* against what the fit says of one device */
    double exposed;                     /* share of a step */
    ech__fit_law amdahl;                /* T_N = T_1 (f + (1-f)/N) */
    ech__fit_law
        gustafson; /* T_N = T_1 / (N - f (N-1)): f of a step's time on N devices is no speedup */
} ech__fit_prediction;

/* samples and bytes are those of the table's rows nearest to the batch. devices, batch >= 1. */
ech__fit_prediction ech__fit_predict(const ech__fit *fit, int64_t devices, int64_t batch);
