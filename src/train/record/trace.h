/* trace.json: Chrome's trace events, for Perfetto; a process for each rank, in it a thread for the
 * device and one for the gradients that are in progress. Every rank collects its own; rank 0 writes
 * them all.
 *
 *     ECH_TRY(ech__trace_open(ctx, path, &trace));            path: NULL on ranks that do not write
 *     ech__trace_ops(trace, trainer, variant);                after each micro-step
 *     ECH_TRY(ech__trace_step(trace, trainer, step));         after each step; collective
 *     ECH_TRY(ech__trace_close(trace));
 */
#pragma once

#include "train/run.h"

ech_status ech__trace_open(ech_ctx *ctx, const char *path, ech__trace **out);
/* The operators of a micro-step. A failure is reported by ech__trace_step. NULL is fine. */
void ech__trace_ops(ech__trace *trace, const ech_trainer *trainer, const ech__variant *variant);
ech_status ech__trace_step(ech__trace *trace, const ech_trainer *trainer,
                           const ech__run_step *step);
/* NULL is fine. */
ech_status ech__trace_close(ech__trace *trace);

/* ---- events, for strategies that show what their devices do; by this rank's clock ---- */

/* A bar on the line of a device. Takes args over, which may be NULL. */
void ech__trace_bar(ech__trace *trace, const char *name, const char *category, int device,
                    ech__span span, ech_json *args);
/* An arrow from one device to another. */
void ech__trace_arrow(ech__trace *trace, const char *name, int from, int64_t from_ns, int to,
                      int64_t to_ns);
/* The operators of a plan that ran in this step. */
void ech__trace_plan(ech__trace *trace, const ech_trainer *trainer, const ech__plan *plan,
                     const ech__exec *exec, int device);
