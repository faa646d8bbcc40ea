/* Runs whose loss or parameters stop being finite: what came first, and what follows for the run.
 *
 * The loss of each step is looked at; parameters, buffers and optimizer states are before each
 * checkpoint, before an epoch is evaluated, and at the end. All ranks come to the same. Gradients
 * that overflow because the loss is scaled are none of it: the step is skipped, and the loss itself
 * is finite.
 */
#pragma once

#include "train/step/trainer.h"

typedef struct ech__run ech__run;
typedef struct ech__run_step ech__run_step;

typedef struct ech__divergence {
    int64_t step; /* the first whose loss, or what it left as parameters, is not finite; 0: none */
    char what[160]; /* "linear 'layers.2'", "parameter 'layers.0.weight'"; empty: not known */
    char text[480]; /* all of it in one line */
} ech__divergence;

/* What made the loss of the micro-step that has just been run not finite, as far as this process
 * can tell. */
ech__cause ech__cause_of(const ech_trainer *trainer, const ech__variant *variant);

/* After a step. Collective where the loss is not finite, which all ranks see. */
ech_status ech__run_check_loss(ech__run *run, const ech__run_step *step);
/* Sets run->sound. Collective. */
ech_status ech__run_check_params(ech__run *run);

/* Whether the run has diverged and is to end. */
bool ech__run_stops(const ech__run *run);
