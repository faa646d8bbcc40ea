/* The order in which the devices of a pipeline work, as pure functions.
 *
 * A step has M micro-batches, and each device has a stretch of the layers. Both orders give the
 * same gradients; they differ in how many micro-batches a device holds the activations of. Backward
 * passes come in the order of the micro-batches, so the first one writes the gradients and the
 * others add to them. A model that is merely spread over devices is the pipeline with one
 * micro-batch.
 */
#pragma once

#include "parallel/place.h"

const char *ech__pipeline_name(ech_pipeline order);

typedef enum ech__task_kind { ECH__TASK_FORWARD, ECH__TASK_BACKWARD } ech__task_kind;

typedef struct ech__task {
    ech__task_kind kind;
    int micro;
} ech__task;

/* out[2 * micros], in the order of one device. GPipe: all forward passes, then all backward ones.
 * 1F1B: as many forward passes as there are devices after this one, then one forward and one
 * backward in turns, then what is left. */
void ech__pipe_tasks(ech_pipeline order, int device, int devices, int micros, ech__task *out);

/* Micro-batches whose activations a device holds at the same time, at most: all of them, or devices
 * - device. Micro-batch m takes the place of m - slots. */
int ech__pipe_slots(ech_pipeline order, int device, int devices, int micros);

/* When each task would start if all took equally long: out[devices][2 * micros], in the order of
 * each device's tasks. A task comes after those that it needs, so all groups of devices can
 * synchronise in the order of these times. */
ech_status ech__pipe_starts(ech_ctx *ctx, ech_pipeline order, int devices, int micros, double *out);

/* The default number of micro-batches: the most that divide the batch, up to four for each
 * device. */
int ech__pipe_default_micros(int64_t batch, int devices);

/* (D-1) / (M+D-1): the share of a step that a device idles when all take equally long, without the
 * optimizer. */
double ech__pipe_bubble(int devices, int micros);

/* Seconds that one micro-batch takes on a device, and its results on their way to the next one and
 * back. */
typedef struct ech__stage_time {
    double forward_s, backward_s, update_s;
    double send_s;      /* activations to the next device */
    double send_back_s; /* their gradient to the one before */
} ech__stage_time;

/* A step on a timeline. Links move data while devices compute. */
typedef struct ech__pipe_times {
    double step_s, flush_s; /* with and without the update */
    double busy_s[ECH__MAX_STAGES];
    double bubble; /* idle share of all devices until the pipeline is empty */
} ech__pipe_times;

ech_status ech__pipe_simulate(ech_ctx *ctx, ech_pipeline order, int devices, int micros,
                              const ech__stage_time *stages, ech__pipe_times *out);
