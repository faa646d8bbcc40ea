/* The scale of the loss, as PyTorch's GradScaler has it: the loss is multiplied by it, so that
 * small gradients do not vanish in a type with few bits of exponent, and the gradients are divided
 * by it before they are used. A gradient that is not finite says that the scale is too large: the
 * step is left out and the scale halved; after many good steps in a row it is doubled.
 *
 *     ech__scaler s = ech__scaler_start(65536);       0: none, the scale is 1 for ever
 *     ... a step with the loss times s.scale ...
 *     ECH_TRY(ech__scaler_update(ctx, &s, broken));   broken: a gradient of the step was not finite
 *
 * Pure state: every rank sees the same sums of gradients and comes to the same scale.
 */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { ECH__SCALER_INTERVAL = 2000, ECH__SCALER_PATIENCE = 16 };
#define ECH__SCALER_INITIAL 65536.0
/* The smallest normal number of f16: below it the gradient of a loss would be lost by the scale
 * itself. PyTorch has no such limit, and goes on skipping for ever. */
#define ECH__SCALER_LEAST 0x1p-14

typedef struct ech__scaler {
    bool on;
    double scale;    /* of the next step; an f32 number */
    int64_t good;    /* steps in a row that were not skipped, since the scale last changed */
    int64_t skipped; /* in all */
    int64_t stuck;   /* skipped in a row with the least scale */
} ech__scaler;

/* initial: 0, or from ECH__SCALER_LEAST to the largest number of f32. */
ech__scaler ech__scaler_start(double initial);

/* After a step. Fails when ECH__SCALER_PATIENCE steps in a row were broken although the scale could
 * not be less. */
ech_status ech__scaler_update(ech_ctx *ctx, ech__scaler *scaler, bool broken);

/* Whether a scaler can be in this state; for what is read from a file. */
bool ech__scaler_is_sound(const ech__scaler *scaler);
