/* One training or benchmark run, from a configuration to records. `echelon train` and `echelon
 * bench step` are thin layers over this; so are the studies.
 *
 *     ech__run_config c = ech__run_defaults();
 *     c.model.dim = 1024; ...
 *     ech__run *run;
 *     ECH_TRY(ech__run_create(ctx, &c, &run));    checks, plans, allocates; nothing is written before it is sure
 *     ECH_TRY(ech__run_steps(run, events));       trains; records each step as it happens
 *     run->summary                                what came out
 *     ech__run_destroy(run);
 */
#pragma once

#include "base/file/dir.h"
#include "device/machine.h"
#include "train/options.h"
#include "train/record/history.h"
#include "train/record/stability.h"
#include "train/record/traffic.h"
#include "train/step/divergence.h"
#include "train/step/feed.h"
#include "train/step/params.h"

/* One operator of a device's plan, over the timed steps. */
typedef struct ech__run_op {
    int device;
    const ech__instr *instr;
    double median_s; /* of its time in a step; in a pipeline, of the first micro-batch's */
} ech__run_op;

typedef struct ech__run_summary {
    ech__stats step_time;
    /* Means over the central steps (base/stats.h), the parts of ech_step. */
    double forward_s, backward_s, optimizer_s, comm_exposed_s, wait_s, other_s, comm_hidden_s;
    double sums_s; /* median of the time that a tree of sums over slots takes */
    double samples_per_s;
    double utilisation;     /* share of the timed steps that the device was busy */
    double outside_kernels; /* median share of a step that no kernel ran */
    double first_loss, final_loss;
    int64_t timed; /* steps that the figures above are from */
    char params_sha256[65];
    ech__params_gap gap;    /* to the parameters of config.params_against */
    char losses_sha256[65]; /* of the steps of this run, as f64 */
} ech__run_summary;

typedef struct ech__records ech__records;
typedef struct ech__trace ech__trace;
typedef struct ech__checkpoint ech__checkpoint;
typedef struct ech__checkpoint_dir ech__checkpoint_dir;

struct ech__run {
    ech_ctx *ctx;
    ech__run_config config; /* with its defaults filled in */
    int rank, world;        /* rank 0 writes and shows; the others only train */
    ech_trainer *trainer;
    ech__model model;
    ech__feed feed;
    ech__machine machine;
    ech__records *records;            /* NULL without a run directory, and on other ranks than 0 */
    ech__trace *trace;                /* NULL where none is wanted */
    ech__checkpoint *resumed;         /* NULL: it starts at the beginning */
    ech__claim claim;                 /* on the run directory, of rank 0 */
    ech__checkpoint_dir *checkpoints; /* where they are saved; NULL: nowhere */
    int64_t saves;
    double save_s;
    ech__history history;         /* of the steps of this run */
    int64_t first;                /* steps that were done before this run: the checkpoint's */
    int64_t done;                 /* with those */
    double first_loss, last_loss; /* of step 1 and of step done */
    ech__divergence diverged;
    bool sound;             /* parameters were finite when they were last looked at */
    ech__run_epoch *epochs; /* [nepochs] the first epochs_done are over, as far as there is room */
    int64_t nepochs, epochs_done;
    ech__epoch_sums now;
    ech__drift_record drift; /* of running statistics between ranks, where they are not broadcast */
    float *op_seconds;       /* [op_steps][nops]: operators of the first timed full steps */
    int64_t op_steps, op_done;
    int64_t loader_ns; /* CPU time of the thread that loads samples, until the last step */
    ech__run_op *ops;  /* [nops], device after device; medians after the last step */
    size_t nops;
    ech__baseline *baseline;  /* losses of config.against; NULL: none, and on other ranks than 0 */
    ech__stability stability; /* of the steps of this run */
    ech__traffic traffic;     /* between ranks */
    void *totals;             /* of the strategy's devices (record/totals.h); NULL: it has none */
    ech__arena arena;         /* of the records of steps and epochs */
    ech__run_summary summary;
    bool is_complete; /* all steps are done and summed up; only writing that down may have failed */
};

/* Called after each step and each epoch; user is handed through. Any may be NULL. */
typedef struct ech__run_events {
    void (*on_step)(void *user, const ech__run *run, const ech__run_step *step);
    void (*on_epoch)(void *user, const ech__run *run, const ech__run_epoch *epoch);
    void *user;
} ech__run_events;

ech_status ech__run_create(ech_ctx *ctx, const ech__run_config *config, ech__run **out);
ech_status ech__run_steps(ech__run *run, const ech__run_events *events);
void ech__run_destroy(ech__run *run);

/* Checks a configuration as far as that needs neither data nor ranks, before any rank is
 * started. */
ech_status ech__run_check(ech_ctx *ctx, const ech__run_config *config);
/* Samples of a micro-step on each of so many ranks, as the configuration says or its data. */
ech_status ech__run_batch(ech_ctx *ctx, const ech__run_config *config, int world, int64_t *out);
/* For a launcher: whether the places that the run writes to can be claimed, and the checkpoint that
 * it goes on from is there. A directory that holds checkpoints of another run is refused, because
 * ranks that are started again would go on from those. Leaves nothing behind. */
ech_status ech__run_check_places(ech_ctx *ctx, const ech__run_config *config);
/* For a launcher whose ranks were killed: removes what they could not, lock files and half of a
 * checkpoint. */
void ech__run_clean_up(ech_ctx *ctx, const ech__run_config *config);

/* What all ranks of a run must have in common, as lines "option: value"; to be freed with
 * free(). */
ech_status ech__run_terms(const ech__run *run, char **out);

/* What its times are: "measured" or "emulated". */
const char *ech__run_clock(const ech__run *run);

/* How it is spread over devices. */
ech__strategy ech__run_strategy(const ech__run *run);

/* Devices of the run, over all ranks, and the memory of one of them: as planned, or as taken. */
int ech__run_devices(const ech__run *run);
int64_t ech__run_memory(const ech__run *run, int device, bool planned);

/* The object that run.json holds. */
ech_json *ech__run_json(const ech__run *run, const char *state);

/* ---- epochs (epoch.c) ---- */

/* wall_s: of the step with everything around it. */
void ech__run_add_to_epoch(ech__run *run, const ech__run_step *step, double wall_s);
/* Evaluates, compares ranks, records. Collective. */
ech_status ech__run_end_epoch(ech__run *run, const ech__run_events *events);
/* Of the time of all epochs: waiting for data, and what is neither computing nor waiting for
 * data. */
typedef struct ech__epoch_shares {
    double time_s, data, overhead, evaluation; /* evaluation_s by time_s: it comes on top */
} ech__epoch_shares;
ech__epoch_shares ech__run_epoch_shares(const ech__run *run);
