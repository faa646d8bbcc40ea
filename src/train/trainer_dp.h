/* DataParallel under a trainer. The trainer's own graph, plan and exec are then device 0's part of a batch; a variant
 * for training is the whole batch on device 0, where inputs are written and the loss is read; evaluation stays on
 * device 0. */
#ifndef ECH_TRAIN_TRAINER_DP_H
#define ECH_TRAIN_TRAINER_DP_H

#include "parallel/dp.h"
#include "train/trainer.h"

/* Every pass, in order: fills in trainer->graph and trainer->halves from the model. */
ech_status ech__trainer_dp_graph(ech_trainer *trainer, ech_value loss,
                                 const ech_train_options *options);
/* Device 0, on its share of the cores. */
ech_status ech__trainer_dp_device(ech_trainer *trainer, const ech_train_options *options);
/* What device 0 needs besides the trainer's plan: fills in trainer->whole. Fails where both do not fit. */
ech_status ech__trainer_dp_plan(ech_trainer *trainer, const ech_train_options *options);
/* The other devices: fills in trainer->dp and the first variant. After the trainer's exec. */
ech_status ech__trainer_dp_create(ech_trainer *trainer, const ech_train_options *options);
void ech__trainer_dp_destroy(ech_trainer *trainer);
/* A variant that trains: its plan and exec belong to trainer->dp. */
ech_status ech__trainer_dp_variant(ech_trainer *trainer, ech__variant *variant);
/* Forward is all up to the loss, backward all up to the sum of the gradients. */
ech_status ech__trainer_dp_step(ech_trainer *trainer, const ech__variant *variant, ech_step *out);

#endif
