/* A trainer: a graph with its backward and optimizer passes, planned and ready on one device. */
#ifndef ECH_TRAIN_TRAINER_H
#define ECH_TRAIN_TRAINER_H

#include "device/device.h"
#include "plan/plan.h"

struct ech_trainer {
    ech_ctx *ctx;
    ech_graph *graph;
    ech__device *device;
    ech__tuning *tuning; /* NULL when tuning is off */
    ech__plan *plan;
    ech__exec *exec;
    ech__scalars scalars; /* of the next step */
    uint64_t seed;
    int timed_kernels;  /* candidates that were timed to make the plan */
    double planning_s;
};

/* As ech_trainer_create, but stops before anything is allocated on the device: for asking what it would
 * need. Only ech_trainer_destroy and the plan may be used then. */
ech_status ech__trainer_plan(ech_ctx *ctx, const ech_graph *graph, ech_value loss,
                             const ech_train_options *options, ech_trainer **out);

/* SHA-256 of all parameters in the order of their definition, each in canonical order, as 64 hex digits. */
ech_status ech__trainer_hash(ech_trainer *trainer, char out[65]);

/* Elements of all parameters. */
int64_t ech__trainer_param_count(const ech_trainer *trainer);

#endif
