/* Parameters and inputs of a trainer, in canonical order: initial values, files, hashes. */
#pragma once

#include "train/step/trainer.h"

/* Whether a file holds exactly the graph's parameters, with their types and shapes. */
ech_status ech__params_check(const ech_graph *graph, const char *path);

/* What the optimizer keeps from step to step, from or to a safetensors file: "fc1.weight.momentum".
 * A file must hold all of it and nothing else, with its shapes. */
ech_status ech__optimizer_load(ech_trainer *trainer, const char *path);
ech_status ech__optimizer_save(ech_trainer *trainer, const char *path);

/* The difference of all parameters of the trainer and of those in a file, as one vector: its norm,
 * and that of the file's. In double, in canonical order. Where devices are in several processes all
 * of them take part. */
typedef struct ech__params_gap {
    double distance, norm;
} ech__params_gap;
ech_status ech__params_distance(ech_trainer *trainer, const char *path, ech__params_gap *out);

/* Copies all inputs of one variant into another of the same batch size. */
ech_status ech__variant_take_inputs(ech_trainer *trainer, const ech__variant *from,
                                    const ech__variant *to);

/* Fills every parameter and buffer from the trainer's seed and its name. */
ech_status ech__params_init(ech_trainer *trainer);
