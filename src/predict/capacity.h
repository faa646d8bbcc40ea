/* Whether a training fits into a device's memory, and the largest batch that does: from plans
 * alone, which allocate nothing, time nothing, and may be larger than this machine. Where the
 * tuning file has the times of all kernels, the plan is the one that a training would make, to the
 * byte; else it is that of the device's preferred kernels.
 *
 *     ech__capacity c;
 *     ECH_TRY(ech__capacity_init(ctx, &config, 1, &c));          one device; its limit is in c.limit
 *     ech__need need;
 *     ECH_TRY(ech__capacity_need(&c, 2048, &need));              need.fits, need.total, need.memory[kind]
 *     ECH_TRY(ech__capacity_largest(&c, &largest));
 */
#pragma once

#include "train/run.h"

typedef struct ech__need {
    int64_t batch;  /* samples of a micro-step of one device; in DataParallel, of all of them */
    bool countable; /* false: its sizes are beyond 64 bits, and what follows is 0 */
    bool fits;
    int64_t memory[ECH__MEMORY_COUNT]; /* of the device that needs most */
    int64_t total;
} ech__need;

typedef struct ech__capacity {
    ech_ctx *ctx;
    ech__run_config config; /* as it is planned; what it points to is borrowed */
    int devices;            /* ranks of the training */
    int64_t limit;          /* bytes of a device */
    int64_t batch;          /* that the configuration says */
} ech__capacity;

/* devices: ranks on this machine, which share its memory where the configuration has no limit of its own. */
ech_status ech__capacity_init(ech_ctx *ctx, const ech__run_config *config, int devices,
                              ech__capacity *out);
/* The trainer without memory that says it, to be destroyed by the caller. */
ech_status ech__capacity_plan(const ech__capacity *capacity, int64_t batch, ech_trainer **out);
ech_status ech__capacity_need(const ech__capacity *capacity, int64_t batch, ech__need *out);
/* 0: not even one sample fits. */
ech_status ech__capacity_largest(const ech__capacity *capacity, int64_t *out);
