/* A trainer: a graph with its backward and optimizer passes, planned and ready on one device. */
#ifndef ECH_TRAIN_TRAINER_H
#define ECH_TRAIN_TRAINER_H

#include "device/device.h"
#include "parallel/dp.h"
#include "plan/plan.h"

/* The training planned for another batch size (the rest of an epoch), or evaluation: it uses the parameters and
 * the memory of the trainer's own plan. */
typedef struct ech__variant {
    int64_t batch;
    bool training;
    ech__plan *plan;
    ech__exec *exec;
} ech__variant;

enum { ECH__MAX_VARIANTS = 8 };

struct ech_trainer {
    ech_ctx *ctx;
    ech_graph *graph;     /* with all passes */
    ech_graph *evaluated; /* forward only, by running statistics; NULL until it is needed */
    ech_graph *model;     /* as the program gave it */
    ech__device *device;
    ech__tuning *tuning; /* NULL when tuning is off */
    ech__plan *plan;
    ech__exec *exec;
    ech__variant variants[ECH__MAX_VARIANTS]; /* the first is the trainer's own plan */
    int nvariants;
    ech__scalars scalars; /* of the next step */
    bool stale;           /* parameters were written: their copies are not theirs any more */
    uint64_t seed;
    bool chosen_anew;  /* the choices that were asked for are not possible here */
    int timed_kernels; /* candidates that were timed to make the plan */
    double planning_s;
    ech__dp *dp;        /* DataParallel, see trainer_dp.h; NULL: one device */
    ech__halves halves; /* of the model, for it */
    ech__plan *whole;   /* of the head, on device 0 beside plan; NULL without it */
};

/* As ech_trainer_create, but stops before anything is allocated on the device: for asking what it would
 * need. Only ech_trainer_destroy and the plan may be used then. */
ech_status ech__trainer_plan(ech_ctx *ctx, const ech_graph *graph, ech_value loss,
                             const ech_train_options *options, ech_trainer **out);

/* As ech_trainer_create, with the choices of an earlier plan of the same training. Where this machine cannot make
 * them again it chooses anew, says so in the log, and sets chosen_anew. */
typedef struct ech__trainer_options {
    const ech_train_options *train;
    const ech__choices *choices; /* NULL: choose */
} ech__trainer_options;
ech_status ech__trainer_create(ech_ctx *ctx, const ech_graph *graph, ech_value loss,
                               const ech__trainer_options *options, ech_trainer **out);

/* The variant for a batch size, made when it is not there yet. It is the trainer's. */
ech_status ech__trainer_variant(ech_trainer *trainer, int64_t batch, bool training,
                                const ech__variant **out);
/* As ech_trainer_write, for the input of a variant. */
ech_status ech__variant_write(ech_trainer *trainer, const ech__variant *variant, const char *name,
                              const void *data, size_t bytes);
/* One training step, or for an evaluating variant one forward pass. */
ech_status ech__variant_step(ech_trainer *trainer, const ech__variant *variant, ech_step *out);
/* A kept scalar after a step. */
double ech__variant_scalar(const ech_trainer *trainer, const ech__variant *variant,
                           ech_value value);

/* SHA-256 of all parameters in the order of their definition, each in canonical order, as 64 hex digits. */
ech_status ech__trainer_hash(ech_trainer *trainer, char out[65]);

/* Elements of all parameters. */
int64_t ech__trainer_param_count(const ech_trainer *trainer);

#endif
