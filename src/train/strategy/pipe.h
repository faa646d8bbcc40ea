/* A model whose layers are on several devices, plain or as a pipeline. The trainer's graph is then
 * the whole one, with its transfers, for names and figures; its parts are what runs
 * (parallel/pipe/pipe.h). Plan, exec and device of the trainer are those of the first device of
 * this process. A variant is a pass of the pipe. */
#pragma once

#include "parallel/pipe/pipe.h"
#include "train/step/trainer.h"

/* For records and tests of this strategy; NULL: the trainer has another one. */
ech__pipe *ech__trainer_pipe(const ech_trainer *trainer);
