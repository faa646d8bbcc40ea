/* One training or benchmark run, from a configuration to records. `echelon train` and `echelon bench step` are
 * thin layers over this; so are the studies.
 *
 *     ech__run_config c = ech__run_defaults();
 *     c.dim = 1024; ...
 *     ech__run *run;
 *     ECH_TRY(ech__run_create(ctx, &c, &run));    checks, plans, allocates; nothing is written before it is sure
 *     ECH_TRY(ech__run_steps(run, events));       trains; records each step as it happens
 *     run->summary                                what came out
 *     ech__run_destroy(run);
 */
#ifndef ECH_TRAIN_RUN_H
#define ECH_TRAIN_RUN_H

#include "base/json.h"
#include "base/stats.h"
#include "data/vectors.h"
#include "device/machine.h"
#include "train/schedule.h"
#include "train/trainer.h"

#define ECH__MODEL_LIST(X) X(LINEAR, "linear")

typedef enum ech__model_kind {
#define ECH__MODEL_ENUM(id, text) ECH__MODEL_##id,
    ECH__MODEL_LIST(ECH__MODEL_ENUM)
#undef ECH__MODEL_ENUM
} ech__model_kind;

typedef struct ech__run_config {
    ech__model_kind model;
    int64_t dim, depth;    /* linear */
    const char *data;      /* NULL: synthetic; else a safetensors file with x and y */
    int64_t steps, warmup; /* the first warmup of the steps are not summed up */
    ech_train_options train; /* batch 0: the rows of the file, or 64 */
    ech__schedule schedule;  /* lr and steps are taken from above; interval 0: a third of the steps */
    const char *save_params; /* where to put the final parameters; NULL: nowhere */
    const char *run_dir;     /* records; NULL: none */
    bool trace;              /* trace.json too */
    const char *command;     /* the command line that repeats it, for the record; may be NULL */
} ech__run_config;

ech__run_config ech__run_defaults(void);

/* A step as it is recorded. */
typedef struct ech__run_step {
    int64_t step; /* from 1 */
    ech_step result;
    double lr, data_s;
} ech__run_step;

/* One operator of the plan, over the timed steps. */
typedef struct ech__run_op {
    const ech__instr *instr;
    double median_s; /* of its time in a step */
} ech__run_op;

typedef struct ech__run_summary {
    ech__stats step_time;
    double forward_s, backward_s, optimizer_s; /* medians */
    double samples_per_s;
    double utilisation;     /* share of the timed steps that the device was busy */
    double outside_kernels; /* median share of a step that no kernel ran */
    double first_loss, final_loss;
    char params_sha256[65];
} ech__run_summary;

typedef struct ech__records ech__records;

typedef struct ech__run {
    ech_ctx *ctx;
    ech__run_config config; /* with its defaults filled in */
    ech_trainer *trainer;
    ech__vectors data;
    ech__machine machine;
    ech__records *records; /* NULL without a run directory */
    ech__run_step *steps;  /* [config.steps] */
    int64_t done;
    float *op_seconds; /* [timed steps][ninstrs] */
    ech__run_op *ops;  /* [ninstrs], after the last step */
    ech__run_summary summary;
} ech__run;

/* Called after each step; user is handed through. */
typedef struct ech__run_events {
    void (*on_step)(void *user, const ech__run *run, const ech__run_step *step);
    void *user;
} ech__run_events;

ech_status ech__run_create(ech_ctx *ctx, const ech__run_config *config, ech__run **out);
ech_status ech__run_steps(ech__run *run, const ech__run_events *events);
void ech__run_destroy(ech__run *run);

/* Plans the run and allocates nothing: what it would need. The trainer is the caller's to destroy. */
ech_status ech__run_fit(ech_ctx *ctx, const ech__run_config *config, ech_trainer **out);

const char *ech__model_name(ech__model_kind kind);
const char *ech__optimizer_name(ech_optimizer optimizer);

/* The object that run.json holds. */
ech_json *ech__run_json(const ech__run *run, const char *state);

#endif
