/* How stable a training was: steps that were skipped, how the loss scale went, the largest gradient, what was not finite, and
 * how far the losses were from those of an f32 run of the same training.
 *
 *     ech__baseline *f32;
 *     ECH_TRY(ech__baseline_open(run, "runs/f32", &f32));     refuses a run of another training
 *     ... steps ...
 *     ech__stability s = ech__stability_of(run, f32);         f32 may be NULL
 *     ech__baseline_close(run->ctx, f32);
 */
#ifndef ECH_TRAIN_STABILITY_H
#define ECH_TRAIN_STABILITY_H

#include "base/json.h"

typedef struct ech__run ech__run;
typedef struct ech__run_step ech__run_step;
typedef struct ech__baseline ech__baseline;

/* Reads run.json and steps.jsonl of a run directory. The run needs its configuration and its data, no trainer yet. */
ech_status ech__baseline_open(const ech__run *run, const char *dir, ech__baseline **out);
/* NULL is fine. */
void ech__baseline_close(ech_ctx *ctx, ech__baseline *baseline);

typedef struct ech__stability {
    int64_t skipped;    /* steps, with those before a checkpoint that the run goes on from */
    int64_t broken;     /* steps of this run whose gradient or loss was not finite */
    double least, most; /* loss scale in the steps of this run */
    double largest;     /* magnitude in a gradient that was finite; 0 where nobody looked */
    /* Of losses by the baseline's, relative: over `compared` steps that both have. */
    int64_t compared, worst_step;
    double worst, final;
} ech__stability;

ech__stability ech__stability_of(const ech__run *run, const ech__baseline *baseline);

/* Whether a run has something to say about it. */
bool ech__run_is_watched(const ech__run *run);
/* Whether a step's gradient or loss was not finite. */
bool ech__step_is_broken(const ech__run_step *step);

/* The object "stability" of run.json. */
ech_json *ech__stability_json(const ech__run *run, const ech__baseline *baseline);

#endif
