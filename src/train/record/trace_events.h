/* Events of a trace (trace.h), for strategies that show what their devices do. Times are of this
 * rank's clock. */
#pragma once

#include "train/record/trace.h"

/* A bar on the line of a device. Takes args over, which may be NULL. */
void ech__trace_bar(ech__trace *trace, const char *name, const char *category, int device,
                    ech__span span, ech_json *args);
/* An arrow from one device to another. */
void ech__trace_arrow(ech__trace *trace, const char *name, int from, int64_t from_ns, int to,
                      int64_t to_ns);
/* The operators of a plan that ran in this step. */
void ech__trace_plan(ech__trace *trace, const ech_trainer *trainer, const ech__plan *plan,
                     const ech__exec *exec, int device);
