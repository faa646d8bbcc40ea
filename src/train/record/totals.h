/* What a run records of the devices of its strategy: a table of functions, one
 * row each (parallel/strategy.h has the list). Members that are NULL do
 * nothing.
 *
 *     totals.c         one device, or one of several ranks
 *     dp_totals.c      DataParallel
 *     pipe_totals.c    layers on several devices
 */
#pragma once

#include "parallel/dp/dp.h"
#include "train/run.h"

typedef struct ech__totals_row {
    /* run->totals in run->arena, with room for run->op_steps steps. */
    ech_status (*init)(ech__run *run);
    void (*add)(ech__run *run, double step_s); /* a timed step */
    ech_status (*sum_up)(ech__run *run);       /* collective */
    /* After it, of a device of the run: bytes, as planned or as taken, and its busy share of a
     * step. */
    int64_t (*memory)(const ech__run *run, int device, bool planned);
    double (*busy)(const ech__run *run, int device);
    int64_t (*bytes)(const ech__run *run); /* that a step moves, without padding */
    void (*json)(const ech__run *run, ech_json **summary);
    /* The operators of a micro-step on the devices of this process (trace.h). */
    void (*trace)(ech__trace *trace, const ech_trainer *trainer, const ech__variant *variant);
} ech__totals_row;

extern const ech__totals_row ech__totals_rank, ech__totals_dp, ech__totals_pipe;

const ech__totals_row *ech__totals_of(const ech_trainer *trainer);

/* ---- DataParallel ---- */

typedef struct ech__dp_device_total {
    double busy_s, busy_share;   /* medians, of the time and of its share in the step */
    int64_t bytes_in, bytes_out; /* of a step */
    int64_t memory, planned;
} ech__dp_device_total;

typedef struct ech__dp_totals {
    int devices;
    int64_t steps, kept; /* capacity, and number of steps kept */
    double *samples;     /* [steps][devices busy seconds, phases' seconds, device 0's own of them,
                            hand-overs, step's seconds] */
    double *column;      /* [steps] to find medians */
    /* After the last step. */
    ech__dp_device_total device[ECH__DP_MAX_DEVICES];
    double phase_s[ECH__DP_PHASES]; /* medians */
    double own_s[ECH__DP_PHASES];   /* the same of device 0's own work: no threads that wake up */
    double hand_over_s;             /* of a step, besides device 0's own work; medians */
} ech__dp_totals;

/* NULL: the run has another strategy. */
const ech__dp_totals *ech__run_dp_totals(const ech__run *run);
/* Device 0's own work in a phase, step by step: out[kept]. */
void ech__dp_totals_own(const ech__dp_totals *totals, ech__dp_phase phase, double *out);

/* ---- a model that is spread over devices ---- */

/* Medians over the steps, in seconds. */
typedef struct ech__stage_total {
    double forward_s, backward_s, update_s, copy_s, wait_s, exchange_s;
    double busy_s, busy_share;   /* in kernels and copies; of the step */
    int64_t bytes_in, bytes_out; /* of a step, between devices */
    int64_t memory, planned;
} ech__stage_total;

/* One transfer of a step, all micro-batches together; times are means over them in the last timed
 * step. */
typedef struct ech__move_total {
    ech__move move;
    int64_t bytes; /* of a full step */
    double copy_s; /* of one micro-batch */
} ech__move_total;

typedef struct ech__pipe_totals {
    int devices, micros;
    int64_t steps, kept; /* capacity, and number of steps kept */
    /* [steps][devices][columns], with the bubble and the step's time after the last device. */
    double *samples;
    ech__move_total *moves; /* [nmoves], in the order of the graph */
    int nmoves, forward_moves, input_moves;
    int64_t moved_bytes; /* of a step, between devices */
    int64_t input_bytes;
    double *column; /* [steps] to find medians */
    /* After the last step. */
    ech__stage_total stage[ECH__MAX_STAGES];
    double bubble; /* median of the idle share until the pipeline is empty */
    double ideal;  /* (D-1)/(M+D-1) */
    /* [nlayers] what each takes of a step, with its gradient and its update; then room for moves. */
    double *layer_s;
    int nlayers;
} ech__pipe_totals;

/* NULL: the run has another strategy. */
const ech__pipe_totals *ech__run_pipe_totals(const ech__run *run);
