/* What a run keeps of its steps to sum them up: a bounded amount, however many there are. Up to
 * ECH__HISTORY_STEPS timed steps are all kept; of more, a sample of them (base/thin.h) gives the
 * medians and the 95th percentile, while means, spreads, minima and the hash of the losses come
 * from every step.
 *
 *     ECH_TRY(ech__history_init(ctx, &history, first, last));
 *     ech__history_add(&history, &step, is_timed);                     after each step
 *     ech__stats s = ech__history_times(&history, samples);            samples[history.timed.count]
 *     ech__history_fini(&history);
 */
#pragma once

#include "base/file/sha256.h"
#include "base/stats.h"
#include "base/thin.h"

enum {
    ECH__HISTORY_STEPS = 100000, /* timed steps that are kept, 184 bytes each */
    ECH__HISTORY_ROWS = 10,      /* of a table of steps */
};

/* A step as it is recorded. */
typedef struct ech__run_step {
    int64_t step, epoch; /* from 1 */
    int64_t samples;     /* of all ranks */
    double correct;      /* of them, where the model counts */
    double kernels_s;    /* inside kernels, over all micro-steps */
    double sums_s;       /* of it, adding up gradients of micro-steps */
    double loading_s;    /* of the step's time on the virtual clock: loading by the same core */
    ech_step result;
    double lr, data_s;
    double loader_s; /* CPU time of the thread that loads samples, since the step before */
} ech__run_step;

typedef struct ech__history {
    int64_t first, last;                   /* steps done before this run, and at its end */
    ech__run_step rows[ECH__HISTORY_ROWS]; /* [nrows] the first step, the last, and some between */
    int nrows;
    ech__run_step latest;
    ech__thin timed;          /* of ech__run_step: timed steps with a full batch */
    ech__moments time;        /* of time_s, over all of those */
    double kernels_s, time_s; /* sums over all of those */
    ech__sha256 losses;       /* of every step, as f64 */
} ech__history;

ech_status ech__history_init(ech_ctx *ctx, ech__history *history, int64_t first, int64_t last);
void ech__history_fini(ech__history *history);
void ech__history_add(ech__history *history, const ech__run_step *step, bool is_timed);
/* Of a run that ends before its time: its last step is a row. */
void ech__history_end(ech__history *history);

/* A figure of a step. */
typedef double (*ech__history_pick)(const ech__run_step *step);

/* Of the timed steps that are kept, in their order. out[history->timed.count] */
void ech__history_read(const ech__history *history, ech__history_pick pick, double *out);
double ech__history_median(const ech__history *history, ech__history_pick pick, double *samples);
/* Of time_s. */
ech__stats ech__history_times(const ech__history *history, double *samples);
