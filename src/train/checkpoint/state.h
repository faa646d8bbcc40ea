/* state.json of a checkpoint: what a run needs besides tensors to resume as if it had never
 * stopped.
 *
 *     {"format": 1, "version": "0.1.0",
 *      "config":   the options that must agree, under their names on the command line,
 *      "position": {"step": 120, "epoch": 2, "epoch_step": 20, "updates": 118},
 *                  steps and epochs done, steps of this epoch, and steps that were not skipped
 *                  (missing: all of them)
 *      "scaler":   {"scale": 32768.0, "good": 17, "skipped": 2, "stuck": 0},
 *                  only where the loss is scaled
 *      "losses":   {"first": 2.31, "last": 0.4},
 *      "now":      {"samples", "loss", "correct", "time_s", "compute_s", "data_s"},
 *                  sums of the epoch in progress
 *      "epochs":   [{"time_s", "compute_s", "loss", "train_accuracy", ...}],
 *      "choices":  {"kernels": [...], "layouts": {...}}}
 *
 * Order and augmentation of the data, and the learning rate, are functions of the seed and the
 * position, so these two are all there is to keep of them.
 */
#pragma once

#include "plan/choices.h"
#include "train/record/epoch.h"
#include "train/step/scaler.h"

/* Among the options: the SHA-256 of the images, which is no option. Checkpoints of older programs
 * do not have it. */
#define ECH__CHECKPOINT_PIXELS "pixels"

typedef struct ech__checkpoint_state {
    ech_json *config; /* options by their names: numbers, texts, true or false. Owned after parse */
    int64_t step;     /* optimizer steps done, at least 1 */
    int64_t epoch, epoch_step;
    int64_t updates;    /* steps that changed the parameters; at most step */
    ech__scaler scaler; /* off where the loss is not scaled */
    double first_loss, last_loss;
    ech__epoch_sums now;
    const ech__run_epoch *epochs; /* [nepochs], nepochs <= epoch */
    size_t nepochs;
    ech__choices choices; /* after parse, as the epochs in the arena */
    ech__arena arena;
} ech__checkpoint_state;

/* choices is the object of ech__choices_json, and is taken over; config is not. */
ech_json *ech__checkpoint_state_json(const ech__checkpoint_state *state, ech_json *choices);

/* Checks everything that the text alone can tell. what names it in error messages. */
ech_status ech__checkpoint_state_parse(ech_ctx *ctx, const char *what, const char *text,
                                       size_t bytes, ech__checkpoint_state *out);
/* After parse, whether it succeeded or not. */
void ech__checkpoint_state_fini(ech__checkpoint_state *state);

/* Whether the options of a run are those of the checkpoint; if not, the error message names the
 * option and both values. The order of `config` decides which is named first. */
ech_status ech__checkpoint_state_agree(ech_ctx *ctx, const ech__checkpoint_state *state,
                                       const ech_json *config);
