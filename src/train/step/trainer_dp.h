/* DataParallel under a trainer. The trainer's own graph, plan and exec are then device 0's part of a batch; a variant
 * for training is the whole batch on device 0, where inputs are written and the loss is read; evaluation stays on
 * device 0. */
#ifndef ECH_TRAIN_STEP_TRAINER_DP_H
#define ECH_TRAIN_STEP_TRAINER_DP_H

#include "parallel/dp/dp.h"
#include "train/step/trainer.h"

/* Every pass, in order: fills in trainer->graph and trainer->halves from the model. */
ech_status ech__trainer_dp_graph(ech_trainer *trainer, ech_value loss,
                                 const ech__graphs_options *options);
/* Samples that the trainer's own plan is for: device 0's part of the batch, or all of it without DataParallel. */
int64_t ech__trainer_dp_batch(const ech_train_options *options);
/* Device 0, on its share of the cores. */
ech_status ech__trainer_dp_device(ech_trainer *trainer, const ech_train_options *options);
/* What device 0 needs besides the trainer's plan: fills in trainer->whole. Fails where both do not fit. */
ech_status ech__trainer_dp_plan(ech_trainer *trainer, const ech_train_options *options);
/* The other devices: fills in trainer->dp and the first variant. After the trainer's exec. */
ech_status ech__trainer_dp_create(ech_trainer *trainer, const ech_train_options *options);
void ech__trainer_dp_destroy(ech_trainer *trainer);
/* A variant that trains: its plan and exec belong to trainer->dp. */
ech_status ech__trainer_dp_variant(ech_trainer *trainer, ech__variant *variant);
/* A whole step of all devices, in place of ech__exec_run. What device 0 copies and adds for the others counts as
 * exchange, the loss and its gradient as forward. */
ech_status ech__trainer_dp_run(ech_trainer *trainer, const ech__variant *variant,
                               const ech__scalars *scalars, ech__phase_times *times);

#endif
