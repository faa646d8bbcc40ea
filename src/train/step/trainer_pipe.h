/* A model that is spread over several devices, under a trainer: plain or as a pipeline. The trainer's own graph is then the
 * whole one, with its transfers, for names and figures; what is run are its parts (parallel/pipe/pipe.h). The trainer's plan, exec and
 * device are those of device 0. A variant is a pass of the pipe. */
#ifndef ECH_TRAIN_STEP_TRAINER_PIPE_H
#define ECH_TRAIN_STEP_TRAINER_PIPE_H

#include "parallel/pipe/pipe.h"
#include "train/step/trainer.h"

/* Fills in trainer->graph and trainer->layers: fused, not yet placed. Refuses options that do not go together. */
ech_status ech__trainer_pipe_graph(ech_trainer *trainer, const ech__graphs_options *options);
/* Opens the devices: fills in trainer->pipe and trainer->device. */
ech_status ech__trainer_pipe_open(ech_trainer *trainer, ech_value loss,
                                  const ech_train_options *options);
/* Places the layers, cuts the graph, runs the passes on every part, and plans them. choices may be NULL. */
ech_status ech__trainer_pipe_plan(ech_trainer *trainer, ech_value loss,
                                  const ech_train_options *options, const ech__choices *choices);
/* Allocates: fills in trainer->exec and the first variant. */
ech_status ech__trainer_pipe_ready(ech_trainer *trainer, const ech_train_options *options);
void ech__trainer_pipe_destroy(ech_trainer *trainer);

ech_status ech__trainer_pipe_variant(ech_trainer *trainer, ech__variant *variant);
/* A micro-step, in place of ech__exec_run, and the phases that follow its backward pass. Phases count with the mean over the
 * devices; what is left of the time is waiting for other devices and fetching from them, and counts as exchange. */
ech_status ech__trainer_pipe_run(ech_trainer *trainer, const ech__variant *variant, unsigned after,
                                 const ech__scalars *scalars, ech__phase_times *times);
/* The update, after a run without it. */
ech_status ech__trainer_pipe_apply(ech_trainer *trainer, const ech__scalars *scalars,
                                   ech__phase_times *times);
/* Every group starts from the first one's parameters and buffers. */
ech_status ech__trainer_pipe_share_weights(ech_trainer *trainer);

/* Bytes that all devices need. */
int64_t ech__trainer_pipe_planned(const ech_trainer *trainer);
/* The choices of all devices' plans, as ech__choices_json has those of one. */
ech_json *ech__trainer_pipe_choices(const ech_trainer *trainer);

#endif
