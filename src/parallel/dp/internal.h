/* What an ech__dp is made of. Private to this folder: dp.c makes it, dp_step.c runs it. */
#pragma once

#include "parallel/dp/dp.h"

#include <stdatomic.h>

/* The model on one device, ready for one size of part. */
typedef struct ech__dp_part {
    int64_t batch;
    ech__plan *plan;
    ech__exec *exec;
} ech__dp_part;

enum { ECH__DP_MAX_WHOLES = 8, ECH__DP_MAX_PARTS = 2 * ECH__DP_MAX_WHOLES };

typedef struct ech__dp_replica {
    ech__dp *dp;
    int index;
    /* Devices other than 0 have contexts of their own: two devices that fail at the same time would
     * write into one error message. */
    ech_ctx *ctx;
    ech__device *device;
    ech_graph *graph; /* NULL on device 0 */
    /* The first is the host of the others. On device 0 it is borrowed. */
    ech__dp_part parts[ECH__DP_MAX_PARTS];
    int nparts;
    ech__dp_part *now; /* in the step that is under way; NULL: no samples */
    int64_t first;     /* of its samples in the whole batch */
    atomic_bool done;  /* with its part; where it fails, the device only says so */
    ech__dp_work work; /* of the last step */
} ech__dp_replica;

struct ech__dp {
    ech_ctx *ctx;
    ech__split_model model;
    ech__tuning *tuning;
    int devices;
    bool spins;    /* while it waits for the others: every device has cores of its own */
    int64_t batch; /* the one that everything is tuned for */
    ech__dp_replica *replicas; /* [devices] */
    ech__dp_whole wholes[ECH__DP_MAX_WHOLES];
    int nwholes;
    int64_t weight_bytes, gradient_bytes; /* of the values, without padding */
    /* The step that is under way, or was the last. */
    const ech__dp_whole *now;
    const ech__scalars *scalars;
    ech__span phases[ECH__DP_PHASES];
};

/* Sets replica->now and ->first of every replica for a batch, planning what is not there yet. */
ech_status ech__dp_cut(ech__dp *dp, int64_t batch);
