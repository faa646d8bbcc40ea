/* The configuration of a run, and what its options are for records, checkpoints and ranks.
 * options.inc has the rows.
 *
 *     static const ech__option options[] = {
 *     #define OPTION(train, bench, plan, graph, ...) ECH__IN_##train(ECH__OPTION_ROW(__VA_ARGS__))
 *     #include "train/options.inc"
 *     };                                          the rows of echelon train, which fill an ech__run_config
 *
 *     ech__options_record(&config, run, &json);   run.json's "config"
 */
#pragma once

#include "base/file/json.h"
#include "base/option/option.h"
#include "comm/comm.h"
#include "comm/helper.h"
#include "device/isa.h"
#include "models/models.h"
#include "parallel/pipe/pipe.h"
#include "parallel/strategy.h"
#include "train/step/clock.h"
#include "train/step/optimizer.h"
#include "train/step/schedule.h"
#include "train/step/trainer.h"

#include <float.h>
#include <math.h>

/* A member that is an option of its own has its description there. */
typedef struct ech__run_config {
#define OPTION(...)
#define MEMBER(type, train, bench, plan, graph, kind, member, ...) type member;
#include "train/options.inc"
    ech__model_options model;
    ech_train_options train; /* batch 0: as global_batch says. group: the ranks, or NULL */
    /* Kind, interval (0: a third of the steps) and gamma; the rest follows. */
    ech__lr_schedule schedule;
    ech__emulation emulation; /* links of the virtual clock */
    int straggler;            /* rank that idles straggle_ms in every step */
    double straggle_ms;
    const char *command; /* the command line that repeats the run, for its record; may be NULL */
} ech__run_config;

ech__run_config ech__run_defaults(void);

/* ---- rows of a command ---- */

#define ECH__IN_1(...) __VA_ARGS__
#define ECH__IN_0(...)
#define ECH__OPTION_ROW(kind_, member, name_, group_, record, agree, resume, help_, ...)           \
    {.name = name_,                                                                                \
     ECH_OPTION(kind_, ech__run_config, member),                                                   \
     .group = group_,                                                                              \
     .help = help_,                                                                                \
     __VA_ARGS__},

/* ---- records, checkpoints and ranks ---- */

/* When a row counts: in which configurations its value has a meaning. */
#define ECH__WHEN_LIST(X)                                                                          \
    X(NEVER, false)                                                                                \
    X(ALWAYS, true)                                                                                \
    X(LINEAR, c->model.kind == ECH__MODEL_LINEAR)                                                  \
    X(IMAGES, ech__model_takes_images(c->model.kind))                                              \
    X(REPRODUCIBLE, c->train.ddp.reproducible)                                                     \
    X(NOT_REPRODUCIBLE, !c->train.ddp.reproducible)                                                \
    X(UNDIVIDED, c->undivided && !c->train.ddp.reproducible)                                       \
    X(SPREAD, c->train.pipeline.devices > 0)                                                       \
    X(RANKS, world > 1 || c->train.ddp.reproducible) /* then the number of devices may differ */   \
    X(MOMENTUM, ech__optimizer_of(c->train.optimizer.kind)->has_momentum)                          \
    X(BETAS, ech__optimizer_of(c->train.optimizer.kind)->has_betas)                                \
    X(SCALED, c->lr_scale_base > 0)                                                                \
    X(WARMUP, c->schedule.warmup > 0)                                                              \
    X(STEP_DECAY, c->schedule.kind == ECH__SCHEDULE_STEP)                                          \
    X(DECAY, c->schedule.kind == ECH__SCHEDULE_COSINE || c->schedule.kind == ECH__SCHEDULE_LINEAR)

typedef enum ech__when {
#define ECH__WHEN_ENUM(id, condition) ECH__WHEN_##id,
    ECH__WHEN_LIST(ECH__WHEN_ENUM)
#undef ECH__WHEN_ENUM
} ech__when;

typedef enum ech__agreement { ECH__DIFFER, ECH__AGREE, ECH__GIVEN } ech__agreement;

typedef struct ech__run_option {
    ech__option option;
    const char *field; /* in run.json; NULL: not recorded */
    ech__when recorded;
    ech__agreement agree;
    ech__when same; /* in a run that goes on from a checkpoint; ECH__WHEN_NEVER: it may change */
    bool or_off;    /* then it is written as "off" where it is not above 0 */
} ech__run_option;

/* All rows. */
const ech__run_option *ech__run_options(size_t *count);

/* What ranks and checkpoints are compared by. */
typedef enum ech__terms {
    ECH__TERMS_RESUME, /* what a resume must keep */
    ECH__TERMS_RANKS,  /* that, and what all ranks of a run must have in common */
    ECH__TERMS_TRAINER, /* what all ranks of a trainer must have in common: options of ech_train_options */
} ech__terms;

/* Members of run.json's "config", of a configuration that has its defaults filled in. */
void ech__options_record(const ech__run_config *config, ech_json **json);
/* Options by their names on the command line. world: ranks. */
void ech__options_terms(const ech__run_config *config, int world, ech__terms terms,
                        ech_json **json);
/* One line for each: "lr: 0.1". */
void ech__options_print(ech_ctx *ctx, const ech_json *terms, const char *prefix, FILE *out);
