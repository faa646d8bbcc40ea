/* A model that is spread over several devices, of one process or one in each of several ranks, each
 * with a worker, memory and a plan of its own. A step is cut into micro-batches that follow each
 * other through the devices; with one micro-batch, one device works at a time.
 *
 *     ech__pipe *pipe;
 *     ECH_TRY(ech__pipe_create(ctx, &options, &pipe));             opens the devices
 *     ech__pipe_stage(pipe, d)->graphs[role] = ...                  the parts of ech__cut with all passes, taken over
 *     ECH_TRY(ech__pipe_plan(pipe, tuning, NULL));                 plans; refuses what does not fit
 *     ECH_TRY(ech__pipe_ready(pipe));                              allocates, prepares the kernels
 *     ECH_TRY(ech__pipe_pass_of(pipe, batch, ECH__PASS_WRITES, &pass));
 *     ECH_TRY(ech__pipe_write(pipe, pass, "x", data, bytes));      the whole batch, cut into micro-batches
 *     ECH_TRY(ech__pipe_run(pipe, pass, &step));
 *     ech__pipe_result(pipe, loss)
 *
 * A step may have several micro-steps, each a run of its own with all its micro-batches: the passes
 * of those after the first add to the gradients. Where gradients are checked before they are used,
 * the last run leaves out the update:
 *
 *     ECH_TRY(ech__pipe_grad_stats(pipe, stats));
 *     ECH_TRY(ech__pipe_apply(pipe, &scalars, start_ns));
 *     ech__pipe_destroy(pipe);
 *
 * Every micro-batch has an exec on every device, because its activations live until its backward
 * pass. Micro-batch m uses the memory of m - slots, which the schedule has finished by then
 * (order.h); every micro-batch has inputs of its own. What a device sends stays in its memory, and
 * the receiver copies it when it gets there (message.h), so each transfer is one copy.
 */
#pragma once

#include "device/device.h"
#include "parallel/ddp/exchange.h"
#include "parallel/message.h"
#include "parallel/pipe/order.h"
#include "plan/plan.h"
#include "price/timeline.h"

typedef struct ech__pipe ech__pipe;
typedef struct ech__pass ech__pass;

/* What a micro-batch does with its gradients; each role is a graph of its own. Evaluation is only
 * forward. */
typedef enum ech__pipe_role {
    ECH__PIPE_WRITES, /* the first of a step; has the exchange, the checks, the optimizer and what follows */
    ECH__PIPE_ADDS,       /* the others; NULL where there are none */
    ECH__PIPE_ADDS_APART, /* instead of it where a device has no kernels for it; may be NULL */
    ECH__PIPE_EVALUATES,  /* NULL until it is needed */
    ECH__PIPE_ROLES
} ech__pipe_role;

/* What one device did in the last step, in ns of the clock that it runs by. */
typedef struct ech__stage_work {
    int64_t forward_ns, backward_ns, update_ns; /* in kernels; checks count as update */
    int64_t copy_ns;                            /* fetching what others sent */
    int64_t wait_ns;                            /* until it was there */
    int64_t exchange_ns;                        /* with other groups, without waiting */
    int64_t flushed_ns, end_ns;                 /* its last backward pass, and all, were over */
    int64_t bytes_in, bytes_out;                /* from and to other devices; without inputs */
    int64_t moves_in;
    int64_t peak; /* most bytes that it has ever had */
} ech__stage_work;

typedef struct ech__stage_plan ech__stage_plan;

typedef struct ech__stage {
    ech__exchange exchange; /* first: what its plans ask for of others */
    ech__pipe *pipe;
    int index;
    ech_ctx *
        ctx; /* of its own: two devices that fail at the same time would write into one error message */
    ech__device *device;
    ech_graph *graphs[ECH__PIPE_ROLES];
    ech__plan *plan;        /* of a full micro-batch that writes */
    ech__exec *exec;        /* of the first micro-batch: it has the parameters */
    ech__stage_plan *plans; /* all of them */
    ech__virtual_clock clock;
    int slots;
    int64_t input_bytes, slot_bytes; /* of one micro-batch */
    int64_t activation_bytes;        /* of slot_bytes; the rest is workspace */
    void **inputs;                   /* [micros] */
    void **activations;              /* [slots] */
    ech__condition condition;        /* notified when something was sent or fetched */
    int met;                         /* in this run with other groups, see ech__pass.turns */
    ech__stage_work work;            /* of the last step */
    struct ech__link_end *pending;   /* to be sent to another rank later; NULL: nothing */
    /* Known of all devices, also of those in other processes. */
    int64_t memory[ECH__MEMORY_COUNT]; /* planned */
    int64_t written_bytes, writes;     /* inputs and targets of a full step */
} ech__stage;

typedef struct ech__pipe_options {
    int devices, micros;
    int64_t batch; /* of a full step; micros divide it */
    ech_pipeline order;
    ech__device_options device; /* as for ech__dp_open_device */
    /* Device d is in the process of its rank d; borrowed; NULL: all are in this one. */
    ech__comm *comm;
    ech__ranks *ranks; /* groups that train with other samples; borrowed; NULL: none */
    /* Between the devices, for the virtual clock, borrowed; NULL: the real clock. */
    const ech__cluster *links;
    bool sync_bn;            /* batch norms take the statistics of all groups */
    const ech_value *params; /* of the whole model, in their order */
    int nparams;
    /* Kept scalars whose sum over the micro-batches is wanted; the first is a mean: the loss. */
    const ech_value *watched;
    int nwatched;
} ech__pipe_options;

enum { ECH__PIPE_MOST_WATCHED = 4, ECH__PIPE_MOST_MICROS = 1024 };

ech_status ech__pipe_create(ech_ctx *ctx, const ech__pipe_options *options, ech__pipe **out);
void ech__pipe_destroy(ech__pipe *pipe);

int ech__pipe_devices(const ech__pipe *pipe);
int ech__pipe_micros(const ech__pipe *pipe);
ech__stage *ech__pipe_stage(const ech__pipe *pipe, int device);
/* Whether a device is in this process; of the others only the figures are known. */
bool ech__pipe_has(const ech__pipe *pipe, int device);
/* The first that is. */
int ech__pipe_first(const ech__pipe *pipe);

/* Stage after stage. choices: kernels and layouts to be taken again, contiguous for all stages;
 * NULL: choose. */
ech_status ech__pipe_plan(ech__pipe *pipe, ech__tuning *tuning, const ech__choices *choices);
/* Forgets the plans, so that ech__pipe_plan can be called again. */
void ech__pipe_unplan(ech__pipe *pipe);
ech_status ech__pipe_ready(ech__pipe *pipe);

/* Returns the status. The error message of a failure goes to the pipe's context, with the device's
 * number. */
ech_status ech__stage_result(const ech__stage *stage, ech_status status);

/* Planned bytes of a device by kind, and their sum. */
void ech__pipe_memory(const ech__pipe *pipe, int device, int64_t out[ECH__MEMORY_COUNT]);
int64_t ech__pipe_planned(const ech__pipe *pipe, int device);

/* Where a value with a name (a parameter, buffer or state) lives; NULL: nowhere. */
const ech__stage *ech__pipe_find(const ech__pipe *pipe, const char *name, ech_value *there);

/* ---- passes: a batch size, for training or evaluation ---- */

typedef enum ech__pass_kind {
    ECH__PASS_EVALUATES,
    ECH__PASS_WRITES, /* the first micro-step of a step */
    ECH__PASS_ADDS,   /* the others */
} ech__pass_kind;

struct ech__pass {
    ech__arena arena; /* of its arrays */
    int64_t batch;
    ech__pass_kind kind;
    bool training; /* any kind but evaluation */
    int micros;
    int64_t *first, *count; /* [micros] samples of each */
    ech__plan **plans;      /* [devices][micros]; NULL for devices of other processes */
    ech__exec **execs;      /* [devices][micros]; likewise */
    /* [links][micros]; without those after the last that this process knows. */
    ech__message *messages;
    int links;
    ech__task *tasks; /* [devices][ntasks] */
    int ntasks;
    int **turns; /* [devices][]: when a device may meet other groups in its tasks; NULL: at once */
    int nturns;  /* of all devices */
    ech__pass *next;
};

/* Created when it does not exist yet, for at most as many samples as a full step has. micros: of
 * training; 0: as a full step has, or one for each sample. */
ech_status ech__pipe_pass_of(ech__pipe *pipe, int64_t batch, int micros, ech__pass_kind kind,
                             const ech__pass **out);
/* Micro-batches of a micro-step, as pass_of wants them. With synchronised batch norms all groups
 * need the same number, so it is that of the group with the fewest samples. share: of this group in
 * the samples of the micro-step. */
int ech__pipe_micros_of(const ech__pipe *pipe, int64_t batch, double share);

/* A whole input, row-major, to all devices that use it, or out of the first of them. */
ech_status ech__pipe_write(ech__pipe *pipe, const ech__pass *pass, const char *name,
                           const void *data, size_t bytes);
ech_status ech__pipe_read(ech__pipe *pipe, const ech__pass *pass, const char *name, void *data,
                          size_t bytes);
/* Inputs of one pass become those of another one of the same batch. */
ech_status ech__pipe_take_inputs(ech__pipe *pipe, const ech__pass *from, const ech__pass *to);

typedef struct ech__pipe_step {
    const ech__scalars *scalars;
    int64_t start_ns; /* where the virtual clocks begin */
    unsigned after;   /* phases that follow the backward passes, as ECH__PHASE_BIT; 0: none */
    bool goes_on;     /* a later micro-step: figures are added to those of the first */
} ech__pipe_step;
/* All micro-batches. */
ech_status ech__pipe_run(ech__pipe *pipe, const ech__pass *pass, const ech__pipe_step *step);
/* Of the gradients of all devices, after a run with checks: sums of squares and of what is not
 * finite, and the largest. Added up in the order of the parameters, so that the bits are those of
 * one device. */
ech_status ech__pipe_grad_stats(ech__pipe *pipe, double out[ECH__GRAD_STATS]);
/* The update on all devices, after a run without it. On the virtual clock it begins when the
 * gradients of all devices are checked. */
ech_status ech__pipe_apply(ech__pipe *pipe, const ech__scalars *scalars, int64_t start_ns);
/* Copies of parameters that were written from outside. */
ech_status ech__pipe_refresh(ech__pipe *pipe, const ech__scalars *scalars);

/* ---- of the last run; what devices did, of the last step ---- */

double ech__pipe_result(const ech__pipe *pipe, ech_value watched);
const ech__pass *ech__pipe_last(const ech__pipe *pipe);
/* The first value that was not finite in a run whose loss was not finite, and its device: an
 * operator of the device that makes the loss, or what a device sent; its node is NULL where nothing
 * was found in this process. */
ech__nonfinite ech__pipe_nonfinite(const ech__pipe *pipe, int *device);
/* How often the devices of this process began to change parameters, over all runs. */
int64_t ech__pipe_updates(const ech__pipe *pipe);
/* Start of the run, when the pipeline was empty, and the end. */
void ech__pipe_span(const ech__pipe *pipe, int64_t *start_ns, int64_t *flushed_ns, int64_t *end_ns);
/* In kernels, and fetching from others: of a device in the step, and the mean of all in the run. */
double ech__stage_busy_s(const ech__stage *stage);
double ech__pipe_busy_s(const ech__pipe *pipe);
/* The idle share of all devices until the pipeline was empty. */
double ech__pipe_measured_bubble(const ech__pipe *pipe);
/* Bytes of inputs and targets that a full step takes, and how many moves that are. */
int64_t ech__pipe_input_bytes(const ech__pipe *pipe, int *moves);
