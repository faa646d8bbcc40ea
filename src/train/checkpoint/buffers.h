/* Running statistics of batch norms that every rank has of its own (--no-broadcast-buffers), in one
 * file: each buffer of the model with the ranks in front, "bn1.running_mean" of shape [ranks, C].
 *
 *     ECH_TRY(ech__buffers_save(trainer, path));       rank 0; collective
 *     ECH_TRY(ech__buffers_save(trainer, NULL));       the other ranks only hand in what they have
 *     ECH_TRY(ech__buffers_load(trainer, path));       each rank takes its own
 */
#pragma once

#include "train/step/trainer.h"

/* Whether the model has buffers, and there are other ranks that have them too. */
bool ech__buffers_on_ranks(const ech_trainer *trainer);

ech_status ech__buffers_save(ech_trainer *trainer, const char *path);
/* The file must hold the buffers of as many ranks as there are. */
ech_status ech__buffers_load(ech_trainer *trainer, const char *path);
