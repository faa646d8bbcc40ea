/* What the devices of a DataParallel run did over its timed steps. */
#pragma once

#include "parallel/dp/dp.h"
#include "train/step/trainer.h"

typedef struct ech__dp_device_total {
    double busy_s, busy_share;   /* medians, of the time and of its share in the step */
    int64_t bytes_in, bytes_out; /* of a step */
    int64_t memory, planned;
} ech__dp_device_total;

typedef struct ech__dp_totals {
    ech_ctx *ctx;
    int devices;         /* 0: the run is not DataParallel */
    int64_t steps, kept; /* capacity, and number of steps kept */
    double *samples;     /* [steps][devices busy seconds, phases' seconds, device 0's own of them,
                            hand-overs, step's seconds] */
    /* after ech__dp_totals_sum_up */
    ech__dp_device_total device[ECH__DP_MAX_DEVICES];
    double phase_s[ECH__DP_PHASES]; /* medians */
    double own_s[ECH__DP_PHASES];   /* the same of device 0's own work: no threads that wake up */
    double hand_over_s;             /* of a step, besides device 0's own work; medians */
} ech__dp_totals;

/* Device 0's own work in a phase, step by step: out[kept]. */
void ech__dp_totals_own(const ech__dp_totals *totals, ech__dp_phase phase, double *out);
