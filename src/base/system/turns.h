/* An arm's side of a comparison in turns: a run that waits between two steps until it is its turn (docs/compare.md
 * has the protocol). echelon compare puts the path of a socket into ECHELON_TURNS; rank 0 connects to it.
 *
 *     ech__turns *turns;
 *     ECH_TRY(ech__turns_open(ctx, "measured", &turns));   NULL outside of a comparison
 *     for (...) {
 *         ... a step ...
 *         ECH_TRY(ech__turns_step(turns, seconds));      returns when the next step may start
 *     }
 *     ech__turns_close(turns);
 */
#pragma once

#include "base/status.h"

#define ECH__TURNS_NAME "ECHELON_TURNS"

typedef struct ech__turns ech__turns;

/* Whether this process is an arm. */
bool ech__turns_wanted(void);
/* clock: what the times are, "measured" or "emulated". */
ech_status ech__turns_open(ech_ctx *ctx, const char *clock, ech__turns **out);
/* A step took so long. Fails when the comparison is over. NULL is fine. */
ech_status ech__turns_step(ech__turns *turns, double seconds);
void ech__turns_close(ech__turns *turns);
