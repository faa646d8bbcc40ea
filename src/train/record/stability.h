/* How stable a training run was: steps that were skipped, how the loss scale went, the largest
 * gradient, what was not finite, and how far the losses were from those of an f32 run of the same
 * training. What is kept of the steps is bounded.
 *
 *     ech__baseline *f32;
 *     ECH_TRY(ech__baseline_open(run, "runs/f32", &f32));     refuses a run of another training
 *     ECH_TRY(ech__stability_init(&s, ctx, &arena));
 *     ech__stability_add(&s, f32, &step);                     after each step; f32 may be NULL
 *     ech__baseline_close(run->ctx, f32);
 */
#pragma once

#include "base/arena.h"
#include "base/file/json.h"
#include "train/record/history.h"

typedef struct ech__run ech__run;
typedef struct ech__baseline ech__baseline;

/* Reads run.json and steps.jsonl of a run directory. The run needs its configuration and its data,
 * no trainer yet. */
ech_status ech__baseline_open(const ech__run *run, const char *dir, ech__baseline **out);
/* NULL is fine. */
void ech__baseline_close(ech_ctx *ctx, ech__baseline *baseline);

enum { ECH__STABILITY_EVENTS = 10000 }; /* of each kind that are listed; all are counted */

typedef struct ech__scale_change {
    int64_t step;
    double scale; /* in this step and those that follow */
} ech__scale_change;

typedef struct ech__stability {
    int64_t steps;      /* of this run, so far */
    double least, most; /* loss scale in them */
    double largest;     /* magnitude in a finite gradient; 0 if gradients were not checked */
    int64_t broken;     /* steps whose gradient or loss was not finite */
    int64_t *events;    /* [broken] the first ECH__STABILITY_EVENTS of them */
    int64_t nchanges;   /* of the scale, the first step's included */
    ech__scale_change *changes; /* [nchanges] the first ECH__STABILITY_EVENTS of them */
    double scale;               /* of the last step */
    /* Of losses by the baseline's, relative: over `compared` steps that both have. */
    int64_t compared, worst_step;
    double worst, final;
} ech__stability;

ech_status ech__stability_init(ech__stability *stability, ech_ctx *ctx, ech__arena *arena);
/* Steps come in their order. */
void ech__stability_add(ech__stability *stability, ech__baseline *baseline,
                        const ech__run_step *step);

/* Whether a run has something to say about it. */
bool ech__run_is_watched(const ech__run *run);

/* The object "stability" of run.json. */
ech_json *ech__stability_json(const ech__run *run);
