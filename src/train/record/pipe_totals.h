/* What the devices of a model that is spread over them did, over the timed steps of a run. */
#pragma once

#include "train/step/trainer.h"

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
    ech_ctx *ctx;
    int devices, micros; /* devices 0: the run is not model-parallel */
    int64_t steps, kept; /* capacity, and number of steps kept */
    /* [steps][devices][columns], with the bubble and the step's time after the last device. */
    double *samples;
    ech__move_total *moves; /* [nmoves], in the order of the graph */
    int nmoves, forward_moves, input_moves;
    int64_t moved_bytes; /* of a step, between devices */
    int64_t input_bytes;
    /* after ech__pipe_totals_sum_up */
    ech__stage_total stage[ECH__MAX_STAGES];
    double bubble;   /* median of the idle share until the pipeline is empty */
    double ideal;    /* (D-1)/(M+D-1) */
    double *layer_s; /* [nlayers] what each takes of a step, with its gradient and its update */
    int nlayers;
} ech__pipe_totals;

ech_status ech__pipe_totals_init(ech__pipe_totals *totals, ech_trainer *trainer, int64_t steps);
void ech__pipe_totals_fini(ech__pipe_totals *totals);
void ech__pipe_totals_add(ech__pipe_totals *totals, const ech_trainer *trainer, double step_s);
/* layer_s has the time of the layers that are in this process. Collective where there are
 * several. */
ech_status ech__pipe_totals_sum_up(ech__pipe_totals *totals, const ech_trainer *trainer);
