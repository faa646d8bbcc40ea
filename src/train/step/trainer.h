/* A trainer: a graph with its backward and optimizer passes, planned and ready on one device, alone
 * or as one of several ranks. */
#pragma once

#include "base/system/turns.h"
#include "device/device.h"
#include "parallel/ddp/step_report.h"
#include "parallel/strategy.h"
#include "plan/plan.h"
#include "train/step/graphs.h"
#include "train/step/scaler.h"

/* The place of a micro-step in an optimizer step. */
typedef struct ech__micro {
    int index, count;
    /* Of its mean loss in that of the step: its samples by those of the step, over all ranks. */
    double weight;
    double share; /* of this rank in the samples of this micro-step */
} ech__micro;

enum { ECH__MAX_VARIANTS = 48 };

/* A role planned for a batch size (the rest of an epoch has another), or evaluation: it uses the
 * parameters and the memory of the trainer's own plan. */
typedef struct ech__variant {
    int64_t batch;
    bool training;
    int role;
    int micros; /* micro-batches of a pipe */
    ech__plan *plan;
    ech__exec *exec;
    bool owned;      /* the trainer destroys plan and exec; else they are another's */
    const void *own; /* the strategy's own, to which plan and exec then belong; NULL: none */
} ech__variant;

/* The result of checking the gradients of a step. */
typedef struct ech__grad_check {
    bool broken; /* not all of them are finite */
    bool skip;
    double scale;     /* of the loss in this step */
    double norm, max; /* of the unscaled gradient, before clipping; 0 without checks */
} ech__grad_check;

/* What made the loss of a step not finite, as far as this process can tell. */
typedef struct ech__cause {
    char what[160];    /* "linear 'layers.2'"; empty: nothing was found */
    bool is_parameter; /* or a buffer: not finite since an earlier step */
    bool is_input;
} ech__cause;

/* Running on a virtual clock: which links the ranks have. */
typedef struct ech__emulation {
    ech__cluster cluster;
    ech__algorithm algorithm;
} ech__emulation;

typedef struct ech__strategy_ops ech__strategy_ops;

struct ech_trainer {
    ech_ctx *ctx;
    ech__spread_by by;
    const ech__strategy_ops *ops;      /* of its strategy (train/strategy/strategy.h) */
    ech_graph *graphs[ECH__MAX_ROLES]; /* with all passes; [nroles] */
    int nroles;
    ech_graph *graph;     /* the first of them */
    ech_graph *evaluated; /* forward only, by running statistics; NULL until it is needed */
    ech_graph *model;     /* as the program gave it */
    ech__device *device;
    ech__device_kind device_kind;
    ech__tuning *tuning; /* NULL when tuning is off */
    ech__comm *comm;     /* borrowed; NULL: alone */
    ech__ranks *ranks;
    ech__reports reports; /* of the last step */
    ech__plan *plan;
    ech__exec *exec;
    ech__variant variants[ECH__MAX_VARIANTS]; /* the first is the trainer's own plan */
    int nvariants;
    /* To be added to the next step, on the virtual clock: loading of samples by the same core. */
    int64_t loading_ns;
    bool emulated; /* times are those of the virtual clock */
    /* They are not, and devices share cores: these are not times of so many devices. */
    bool oversubscribed;
    int sharing, shared; /* devices, and the cores of their machine */
    ech__virtual_clock clock;
    ech__emulation emulation;
    ech__scalars scalars; /* of the next step */
    int micro_steps;      /* of an optimizer step of a program's own; slots of this rank */
    bool tree;            /* gradients are added up in a fixed tree over slots */
    ech__scaler scaler;   /* of the loss */
    double clip_norm;     /* 0: gradients are not clipped */
    bool checks;          /* gradients are checked before they are used */
    /* The step under way. */
    int micro; /* micro-steps done */
    ech__phase_times times;
    int64_t time_ns;
    ech__report report;
    const ech__variant *ready; /* whose gradients are complete and not used yet; NULL: none */
    ech__grad_check grad_check;
    ech__cause cause;   /* of the first micro-step whose loss was not finite */
    int64_t updates;    /* that had begun before the step, see ech__exec_updates */
    int64_t steps_done; /* of all, those that were skipped too */
    /* Of a step that failed after it had begun to change parameters: empty where there was none. */
    char broken[400];
    bool unsettled;    /* the last step was applied, but the scale is not updated yet */
    ech_value counted; /* a kept scalar to add up beside the loss; -1: none */
    bool stale;        /* parameters were written: their copies are out of date */
    uint64_t seed;
    ech_amp amp;
    bool chosen_anew;  /* the choices that were asked for are not possible here */
    int timed_kernels; /* candidates that were timed to make the plan */
    double planning_s;
    void *state;              /* the strategy's own (train/strategy/); NULL: it has none */
    ech__layers model_layers; /* found when they are first asked for */
    ech__turns *turns;        /* of rank 0 of an arm of a comparison; NULL: nobody compares */
};

/* As ech_trainer_create, but stops before anything is allocated on the device: for asking what it
 * would need. Nothing is timed: kernels are chosen by the tuning file where it has all times that
 * are needed, and else as without it. Only ech_trainer_destroy and the plan may be used then. */
ech_status ech__trainer_plan(ech_ctx *ctx, const ech_graph *graph, ech_value loss,
                             const ech_train_options *options, ech_trainer **out);

/* As ech_trainer_create, with the choices of an earlier plan of the same training. Where this
 * machine cannot make them again it chooses anew, says so in the log, and sets chosen_anew. */
typedef struct ech__trainer_options {
    const ech_train_options *train;
    const ech__emulation *emulation; /* NULL: the real clock */
    const ech__choices *choices;     /* NULL: choose */
    bool only_plan;                  /* as ech__trainer_plan */
    bool only_graphs;                /* nothing is planned, unless that makes graphs */
    int pretended_ranks;             /* of only_graphs: the exchange of so many; 0: none */
    double straggle_ms;              /* idle time of this rank alone, before its backward pass */
} ech__trainer_options;
ech_status ech__trainer_create(ech_ctx *ctx, const ech_graph *graph, ech_value loss,
                               const ech__trainer_options *options, ech_trainer **out);

/* The variant for a batch size and a place in the step (NULL: evaluation), made when it is not
 * there yet. It is the trainer's. */
ech_status ech__trainer_variant(ech_trainer *trainer, int64_t batch, const ech__micro *micro,
                                const ech__variant **out);
/* As ech_trainer_write, for the input of a variant. */
ech_status ech__variant_write(ech_trainer *trainer, const ech__variant *variant, const char *name,
                              const void *data, size_t bytes);
/* One micro-step; the last of a step exchanges and updates, and fills out, which may be NULL. */
ech_status ech__variant_step(ech_trainer *trainer, const ech__variant *variant,
                             const ech__micro *micro, ech_step *out);
/* The first part of it: the last micro-step of a step exchanges, and leaves the gradients to
 * ech_trainer_apply. */
ech_status ech__variant_gradients(ech_trainer *trainer, const ech__variant *variant,
                                  const ech__micro *micro);
/* One forward pass of an evaluating variant. */
ech_status ech__variant_evaluate(ech_trainer *trainer, const ech__variant *variant);
/* Whether a program may ask for it after a forward pass. */
ech_status ech__trainer_check_scalar(const ech_trainer *trainer, ech_value value);
/* A kept scalar after a step. */
ech_status ech__variant_scalar(const ech_trainer *trainer, const ech__variant *variant,
                               ech_value value, double *out);

/* Fails where an earlier step failed half-way: parameters may then be those of two steps, and
 * nothing may be done with them. */
ech_status ech__trainer_check(const ech_trainer *trainer);

const char *ech__amp_name(ech_amp amp);

/* NULL for the real clock. */
ech__virtual_clock *ech__trainer_clock(ech_trainer *trainer);

/* Ranks that have samples of their own, and which this process is, among them or among the ranks of
 * one model. */
int ech__trainer_world(const ech_trainer *trainer);
int ech__trainer_rank(const ech_trainer *trainer);
/* All ranks of this training run; NULL: this process alone. */
ech__comm *ech__trainer_all_ranks(const ech_trainer *trainer);
/* Ranks that hold parts of one model together, one device each; NULL: this process holds all. */
ech__comm *ech__trainer_model_group(const ech_trainer *trainer);
/* The layers of the model and their devices; NULL: there is no memory to list them. */
const ech__layers *ech__trainer_layers(ech_trainer *trainer);

/* Where a value of trainer->graph that lasts (a parameter, buffer or state) has its memory: the
 * plan and the exec, and its number there. False: no operator uses it. */
bool ech__trainer_home(const ech_trainer *trainer, ech_value value, const ech__plan **plan,
                       const ech__exec **exec, ech_value *there);

/* The devices of this process and their plans. */
int ech__trainer_devices(const ech_trainer *trainer);
/* Of them, those that have operators of their own. */
int ech__trainer_planned_devices(const ech_trainer *trainer);
/* NULL for a device that is in another process. */
const ech__plan *ech__trainer_plan_of(const ech_trainer *trainer, int device);
const ech__exec *ech__trainer_exec_of(const ech_trainer *trainer, int device);

/* Bytes of a device by kind, as planned, and their sum; and the device that needs most. */
void ech__trainer_memory(const ech_trainer *trainer, int device, int64_t out[ECH__MEMORY_COUNT]);
int64_t ech__trainer_planned(const ech_trainer *trainer, int device);
int ech__trainer_fullest(const ech_trainer *trainer);

/* SHA-256 of all parameters in the order of their definition, each in canonical order, as 64 hex
 * digits. */
ech_status ech__trainer_hash(ech_trainer *trainer, char out[65]);

/* The first parameter, buffer or state of this process that is not finite, or NULL. */
ech_status ech__trainer_nonfinite(const ech_trainer *trainer, const ech__value **out);

/* Elements of all parameters. */
int64_t ech__trainer_param_count(const ech_trainer *trainer);
