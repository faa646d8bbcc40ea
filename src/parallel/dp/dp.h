/* DataParallel: one process, several devices, and all that is shared goes through device 0. It
 * holds the model, the optimizer and the whole batch. A step is PyTorch's: device 0 hands out the
 * parts of the batch and its parameters, all compute their outputs, device 0 gathers them, computes
 * the loss and hands out its gradient, all compute the gradients of their parameters, device 0 adds
 * them up and changes the parameters.
 *
 *     ech__dp *dp;
 *     ECH_TRY(ech__dp_create(ctx, &(ech__dp_options){.devices = 2, .batch = 64, ...}, &dp));
 *     ech__dp_whole_of(dp, 64, &whole);         where the batch is written to and the loss is read from
 *     ECH_TRY(ech__dp_step(dp, 64, &scalars));
 *     ech__dp_work_of(dp, 1)->bytes_in        what device 1 got in that step
 *     ech__dp_destroy(dp);
 *
 * A batch is cut as torch.chunk does: parts of ceil(B / devices), the last one smaller, and none
 * for some devices where there are few samples. Batch norms use the statistics of their own part;
 * the running ones are device 0's. Gradients are added in the order of ech__tree_split, so every
 * run gives the same bits.
 */
#pragma once

#include "device/device.h"
#include "plan/plan.h"
#include "price/costs.h"

typedef struct ech__dp ech__dp;

enum { ECH__DP_MAX_DEVICES = 64 };

/* The graphs come from ech__split_loss. The body, with its backward pass and its optimizer, is
 * already planned for the first part of a batch and ready on device 0. All is borrowed and must
 * outlive the ech__dp. */
typedef struct ech__dp_options {
    int devices;
    int64_t batch;                 /* the whole one; others are planned when they first come */
    const ech__split_model *model; /* only the head and the values are used */
    ech__plan *plan;               /* of ech__dp_first_part(batch, devices) samples */
    ech__exec *exec;
    ech__plan *whole;           /* of the head, for the batch, on device 0; not yet ready */
    ech__device_options device; /* the others, as for ech__dp_open_device */
    ech__tuning *tuning;        /* NULL: no timing */
} ech__dp_options;

ech_status ech__dp_create(ech_ctx *ctx, const ech__dp_options *options, ech__dp **out);
void ech__dp_destroy(ech__dp *dp);

/* Samples of the first device's part. */
int64_t ech__dp_first_part(int64_t batch, int devices);

/* Refuses the two plans of device 0 where they need more than it has; the other devices need
 * less. */
ech_status ech__dp_check_memory(const ech__plan *part, const ech__plan *whole);

/* Opens one of several devices, bound to its share of the cores that this process may use. 0
 * threads are as many as the share has; more than that are not bound. The cores in options are not
 * looked at. */
ech_status ech__dp_open_device(ech_ctx *ctx, int index, int devices,
                               const ech__device_options *options, ech__device **out);

/* The whole batch on device 0: the plan and the exec of the head. It holds all inputs, the loss,
 * and what else is kept. */
typedef struct ech__dp_whole {
    int64_t batch;
    ech__plan *plan;
    ech__exec *exec;
} ech__dp_whole;

/* For a batch size, planned on all devices when it is not there yet. */
ech_status ech__dp_whole_of(ech__dp *dp, int64_t batch, const ech__dp_whole **out);

/* One step on the inputs of that whole batch. */
ech_status ech__dp_step(ech__dp *dp, int64_t batch, const ech__scalars *scalars);

/* ---- what the last step cost ---- */

/* One device's share. Bytes are those of the values, without the padding of layouts. */
typedef struct ech__dp_work {
    int64_t samples;
    int64_t bytes_in, bytes_out;      /* from and to the memory of other devices */
    int64_t busy_ns;                  /* of its worker: kernels and copies */
    ech__span phases[ECH__DP_PHASES]; /* start and end 0: it had nothing to do */
} ech__dp_work;

int ech__dp_devices(const ech__dp *dp);
const ech__dp_work *ech__dp_work_of(const ech__dp *dp, int device);
/* [ECH__DP_PHASES] of the step as a whole. Each begins where the one before ends. */
const ech__span *ech__dp_phases(const ech__dp *dp);
/* What it ran in the last step; false where it had no samples. */
bool ech__dp_last(const ech__dp *dp, int device, const ech__plan **plan, const ech__exec **exec);
/* What made the loss of the last step not finite, and the device that it is on; its node is NULL
 * where nothing was found. */
ech__nonfinite ech__dp_nonfinite(const ech__dp *dp, int *device);
/* How often parameters began to change, over all steps. */
int64_t ech__dp_updates(const ech__dp *dp);
ech__device *ech__dp_device(const ech__dp *dp, int device);
/* Planned bytes by kind. Shorter batches use the same memory. */
void ech__dp_memory(const ech__dp *dp, int device, int64_t out[ECH__MEMORY_COUNT]);
int64_t ech__dp_planned(const ech__dp *dp, int device); /* the sum over the kinds */
