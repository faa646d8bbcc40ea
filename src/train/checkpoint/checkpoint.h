/* Checkpoints of a run: saving one, and resuming from one with the same bits as a run without a
 * break.
 *
 *     ech__checkpoint *from;
 *     ECH_TRY(ech__checkpoint_open(ctx, "ckpt", &from));           all of it is checked, nothing is changed
 *     ECH_TRY(ech__checkpoint_agree(from, run));                   same model, data, optimizer, threads, ...
 *     ... make the trainer from ech__checkpoint_model and from->state.choices ...
 *     ECH_TRY(ech__checkpoint_restore(from, run));                 optimizer, step, sums of the epoch
 *
 *     ECH_TRY(ech__checkpoint_save(run));                          into run->checkpoints
 *
 * dir.h has the files on disk, state.h what is kept besides tensors.
 */
#pragma once

#include "train/checkpoint/dir.h"
#include "train/checkpoint/state.h"
#include "train/run.h"

struct ech__checkpoint {
    ech_ctx *ctx;
    char path[ECH_DIR_MAX_PATH];  /* "ckpt/step-000120" */
    char model[ECH_DIR_MAX_PATH]; /* its file of parameters */
    ech__checkpoint_state state;
};

ech_status ech__checkpoint_open(ech_ctx *ctx, const char *dir, ech__checkpoint **out);
/* NULL is fine. */
void ech__checkpoint_close(ech__checkpoint *checkpoint);

/* The run needs its configuration and its data for this, no trainer yet. */
ech_status ech__checkpoint_agree(const ech__checkpoint *checkpoint, const ech__run *run);
/* Everything but the parameters, which the trainer was made with. */
ech_status ech__checkpoint_restore(const ech__checkpoint *checkpoint, ech__run *run);

/* Where it fails the error message says which checkpoint still stands. Called on every rank of a
 * run that saves; all but rank 0 only send their own state. */
ech_status ech__checkpoint_save(ech__run *run);
/* At the end of a run that saves: where the newest checkpoint is not of the last step, because no
 * step was left to do and the run goes on from one that is elsewhere. On every rank. */
ech_status ech__checkpoint_save_last(ech__run *run);
