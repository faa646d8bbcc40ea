/* Learning rates: a function of the step, so that a resumed run needs no state.
 *
 *     ech__lr_schedule s = {.kind = ECH__SCHEDULE_COSINE, .lr = 0.4, .steps = 391, .warmup = 98, .warmup_from = 0.1};
 *     ech__lr_schedule_lr(&s, 0)      0.1, and from there on a line up to 0.4 at step 98, then half a cosine down to 0
 *
 * The linear scaling rule and the gradual warm-up for large batches (Goyal et al., "Accurate, Large
 * Minibatch SGD") are both in it: ech__lr_schedule_scale gives the rate of a batch by that of another,
 * and a warm-up goes from the one to the other. */
#pragma once

#include <stdint.h>

#define ECH__SCHEDULE_LIST(X)                                                                      \
    X(CONSTANT, "constant")                                                                        \
    X(STEP, "step")     /* times gamma every interval steps */                                     \
    X(COSINE, "cosine") /* half a cosine from lr down to 0 over all steps after the warm-up */     \
    X(LINEAR, "linear") /* a line from lr down to 0 over all steps after the warm-up */

typedef enum ech__lr_schedule_kind {
#define ECH__SCHEDULE_ENUM(id, text) ECH__SCHEDULE_##id,
    ECH__SCHEDULE_LIST(ECH__SCHEDULE_ENUM)
#undef ECH__SCHEDULE_ENUM
} ech__lr_schedule_kind;

typedef struct ech__lr_schedule {
    ech__lr_schedule_kind kind;
    double lr;          /* after the warm-up */
    int64_t steps;      /* of the whole run: cosine, linear */
    int64_t interval;   /* step; counted from the first step of the run */
    double gamma;       /* step */
    int64_t warmup;     /* steps on a line from warmup_from to lr, which the step after them has */
    double warmup_from; /* rate of the first step of the warm-up */
} ech__lr_schedule;

const char *ech__lr_schedule_name(ech__lr_schedule_kind kind);

/* The rate for steps of `batch` samples that goes with `lr` for steps of `base` samples. */
double ech__lr_schedule_scale(double lr, int64_t batch, int64_t base);

/* Steps of a warm-up of so many epochs, at least one where epochs is above 0. */
int64_t ech__lr_schedule_warmup(double epochs, int64_t steps_per_epoch);

/* Where a warm-up starts unless something else is asked for: at the unscaled rate where scaling has
 * made it larger, else one step above 0. */
double ech__lr_schedule_warmup_from(double unscaled, double lr, int64_t warmup);

/* step counts from 0. PyTorch's LinearLR for the warm-up, and then StepLR, CosineAnnealingLR or
 * LinearLR, stepped after every step. */
double ech__lr_schedule_lr(const ech__lr_schedule *schedule, int64_t step);
