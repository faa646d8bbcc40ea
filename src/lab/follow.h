/* Follows the steps that a run writes, while it writes them.
 *
 *     ech__follow *follow = ech__follow_create(ctx);
 *     ech__follow_look(follow, "lab/runs/abc");        reads what is new; another directory begins anew
 *     ech_json *series = ech__follow_json(follow);
 *     ech__follow_destroy(follow);
 *
 * A run directory that has no steps yet, or never has, is fine: there is just nothing to see.
 * Nothing here fails, because whoever looks on must not disturb what goes on.
 */
#pragma once

#include "base/file/json.h"
#include "lab/curve.h"

enum {
    ECH__FOLLOW_LINE = 256 << 10, /* bytes; longer lines are passed over */
    ECH__FOLLOW_LOOK = 1 << 20,   /* bytes that a look reads at most; of more than that, samples */
};

typedef struct ech__follow ech__follow;

/* NULL when there is no memory for it. */
ech__follow *ech__follow_create(ech_ctx *ctx);
void ech__follow_destroy(ech__follow *follow);

void ech__follow_look(ech__follow *follow, const char *dir);
const ech__curve *ech__follow_curve(const ech__follow *follow);

/* {"done", "steps", "warmup", "points": [[first, last, loss, time_s, lowest, highest, lr], ...]}:
 * steps that are done, how many there will be and how many of them are warm-up (null where the run
 * does not say), and the bins of the curve. null members of a point are unknown. */
ech_json *ech__follow_json(const ech__follow *follow);
