/* Parameters and inputs of a trainer, in canonical order: initial values, files, hashes. */
#ifndef ECH_TRAIN_PARAMS_H
#define ECH_TRAIN_PARAMS_H

#include "train/trainer.h"

/* Whether a file holds exactly the graph's parameters, with their types and shapes. */
ech_status ech__params_check(const ech_graph *graph, const char *path);

/* Fills every parameter from the trainer's seed and the parameter's name. */
ech_status ech__params_init(ech_trainer *trainer);

#endif
