/* Learning rates: a function of the step, so that a resumed run needs no state. */
#ifndef ECH_TRAIN_SCHEDULE_H
#define ECH_TRAIN_SCHEDULE_H

#include <stdint.h>

#define ECH__SCHEDULE_LIST(X)                                                                      \
    X(CONSTANT, "constant")                                                                        \
    X(STEP, "step")     /* times gamma every interval steps */                                     \
    X(COSINE, "cosine") /* half a cosine from lr down to 0 over all steps */

typedef enum ech__schedule_kind {
#define ECH__SCHEDULE_ENUM(id, text) ECH__SCHEDULE_##id,
    ECH__SCHEDULE_LIST(ECH__SCHEDULE_ENUM)
#undef ECH__SCHEDULE_ENUM
} ech__schedule_kind;

typedef struct ech__schedule {
    ech__schedule_kind kind;
    double lr;
    int64_t steps;    /* of the whole run: cosine */
    int64_t interval; /* step */
    double gamma;     /* step */
} ech__schedule;

const char *ech__schedule_name(ech__schedule_kind kind);

/* step counts from 0. PyTorch's StepLR and CosineAnnealingLR, stepped after every step. */
double ech__schedule_lr(const ech__schedule *schedule, int64_t step);

#endif
