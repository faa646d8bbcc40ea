/* What a run records of the devices of its strategy: a table of functions, one
 * row each (parallel/strategy.h has the list). Members that are NULL do
 * nothing.
 *
 *     totals.c         one device, or one of several ranks
 *     dp_totals.c      DataParallel
 *     record_pipe.c    layers on several devices
 */
#pragma once

#include "train/run.h"

typedef struct ech__totals_row {
    ech_status (*init)(ech__run *run); /* room for run->op_steps steps */
    void (*fini)(ech__run *run);
    void (*add)(ech__run *run, double step_s); /* a timed step */
    ech_status (*sum_up)(ech__run *run);       /* collective */
    /* After it, of a device of the run: bytes, as planned or as taken, and its busy share of a
     * step. */
    int64_t (*memory)(const ech__run *run, int device, bool planned);
    double (*busy)(const ech__run *run, int device);
    int64_t (*bytes)(const ech__run *run); /* that a step moves, without padding */
    void (*json)(const ech__run *run, ech_json **summary);
    /* The operators of a micro-step on the devices of this process (trace_events.h). */
    void (*trace)(ech__trace *trace, const ech_trainer *trainer, const ech__variant *variant);
} ech__totals_row;

extern const ech__totals_row ech__totals_rank, ech__totals_dp, ech__totals_pipe;

const ech__totals_row *ech__totals_of(const ech_trainer *trainer);
