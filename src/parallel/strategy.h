/* Strategies: how a training step is spread over devices. A strategy is one row in each of these
 * tables; a table without the row of a new strategy does not compile.
 *
 *     parallel/strategy.c      what it is, and which options it does not support
 *     train/strategy/          graphs, devices, plans, steps and memory of a trainer
 *     train/record/totals.c    what a run records and traces of its devices
 *     predict/pricing.c        its price
 *
 * What may not be combined is data:
 *
 *     const ech__spread_by by = ech__strategy_of(&options);
 *     ECH_TRY(ech__strategy_check(ctx, by, ech__strategy_asked(&options)));
 */
#pragma once

#include "base/status.h"

#define ECH__STRATEGY_LIST(X)                                                                      \
    X(DDP, "ddp") /* a rank for each device; gradients are added up */                             \
    X(DP, "dp")   /* one process; the first device has the model and does what is left */          \
    X(MP, "mp")   /* layers are spread over the devices */                                         \
    X(PIPELINE, "pipeline") /* the same, with micro-batches that keep them busy */

typedef enum ech__strategy {
#define ECH__STRATEGY_ENUM(id, text) ECH__STRATEGY_##id,
    ECH__STRATEGY_LIST(ECH__STRATEGY_ENUM)
#undef ECH__STRATEGY_ENUM
        ECH__STRATEGY_COUNT
} ech__strategy;

/* Options that some strategy does not support: on the command line, and as the end of "a strategy
 * ...". */
/* clang-format off */
#define ECH__FEATURE_LIST(X)                                                                       \
    X(ACCUM, "--accum", "with accumulation")                                                       \
    X(AMP, "--amp", "in mixed precision")                                                          \
    X(LOSS_SCALE, "--loss-scale, which --amp fp16 implies,", "with a scaled loss")                 \
    X(CLIP_NORM, "--clip-norm", "with clipped gradients")                                          \
    X(GRAD_DTYPE, "--grad-dtype bf16", "with gradients in 16 bits")                                \
    X(SYNC_BN, "--sync-bn", "with synchronised batch norms")                                       \
    X(REPRODUCIBLE, "--reproducible", "in the reproducible mode")                                  \
    X(RANKS, "--backend", "in several ranks")                                                      \
    X(STRAGGLE, "--straggle", "with a straggler")                                                  \
    X(RESTARTS, "--max-restarts", "with restarts")                                                 \
    X(VIRTUAL, "--clock virtual", "on the virtual clock")                                          \
    X(CHECKPOINTS, "--save or --resume", "with checkpoints")                                       \
    X(MP, "--mp", "with layers on several devices")                                                \
    X(PLACEMENT, "--placement", "with a placement")                                                \
    X(MICRO_BATCHES, "--micro-batches", "with micro-batches")                                      \
    X(SCHEDULE, "--pipeline-schedule", "with a pipeline schedule")                                 \
    X(ADVISE, "--advise", "with advice")
/* clang-format on */

typedef enum ech__feature {
#define ECH__FEATURE_ENUM(id, flag, text) ECH__FEATURE_##id,
    ECH__FEATURE_LIST(ECH__FEATURE_ENUM)
#undef ECH__FEATURE_ENUM
        ECH__FEATURE_COUNT
} ech__feature;

/* A set of them. */
#define ECH__FEATURE_BIT(id) (1U << ECH__FEATURE_##id)

typedef struct ech__refusal {
    ech__feature feature;
    const char *reason;
} ech__refusal;

typedef struct ech__strategy_row {
    const char *title; /* in a sentence: "DataParallel" */
    const char *about; /* what the devices do */
    const char *moves; /* how data gets from device to device in one memory; NULL: by collectives */
    int64_t most;      /* devices */
    bool cuts_model;   /* devices have layers of the model, and not samples of the batch */
    bool one_by_one;   /* devices never work at the same time */
    bool has_ranks;    /* each device is a rank with a share of the samples */
    bool one_process;  /* its devices are never ranks */
    bool first_has_loss; /* device 0 has the loss of all samples, beside its part of them */
    /* Devices that options ask it for (0: they ask for another strategy), and options that do. */
    int (*asked)(const ech_train_options *options);
    void (*ask)(ech_train_options *options, int devices);
    const ech__refusal *refused; /* up to one without a reason */
    /* What else it does not support where its devices are ranks, one each; NULL: they never are. */
    const ech__refusal *refused_in_ranks;
} ech__strategy_row;

extern const ech__strategy_row ech__strategy_ddp, ech__strategy_dp, ech__strategy_mp,
    ech__strategy_pipeline;

const ech__strategy_row *ech__strategy_row_of(ech__strategy strategy);
const char *ech__strategy_name(ech__strategy strategy);

/* How a training is spread. */
typedef struct ech__spread_by {
    ech__strategy strategy;
    bool in_ranks; /* the devices that have layers of one model are ranks, one each */
} ech__spread_by;

ech__spread_by ech__strategy_of(const ech_train_options *options);
/* Options of that strategy instead of any other, on so many devices, with 0 on one without it. */
void ech__strategy_set(ech_train_options *options, ech__strategy strategy, int devices);
/* Devices of one process, or of one rank of several. */
int ech__strategy_devices(const ech_train_options *options);
/* The features that options ask for. */
unsigned ech__strategy_asked(const ech_train_options *options);

/* Why a strategy does not support it; NULL: it does. */
const char *ech__strategy_refusal(ech__spread_by by, ech__feature feature);
const char *ech__feature_flag(ech__feature feature);
/* Names the first of the features that is not supported, in the words of the library or of the
 * command line. */
ech_status ech__strategy_check(ech_ctx *ctx, ech__spread_by by, unsigned asked);
ech_status ech__strategy_check_flags(ech_ctx *ctx, ech__spread_by by, unsigned asked);
