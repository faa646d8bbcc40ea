/* DataParallel. Graph, plan and exec of the trainer are then those of device 0's part of a batch. A
 * variant for training is the whole batch on device 0, where inputs are written and the loss is
 * read; evaluation stays on device 0. */
#pragma once

#include "parallel/dp/dp.h"
#include "train/step/trainer.h"

/* For records and tests of this strategy; NULL: the trainer has another one. */
ech__dp *ech__trainer_dp(const ech_trainer *trainer);
