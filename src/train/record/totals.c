#include "train/record/totals.h"
#include "train/record/trace.h"

static const ech__totals_row *const rows[] = {
    [ECH__STRATEGY_DDP] = &ech__totals_rank,
    [ECH__STRATEGY_DP] = &ech__totals_dp,
    [ECH__STRATEGY_MP] = &ech__totals_pipe,
    [ECH__STRATEGY_PIPELINE] = &ech__totals_pipe,
};
_Static_assert(sizeof rows / sizeof rows[0] == ECH__STRATEGY_COUNT, "every strategy has a row");

const ech__totals_row *ech__totals_of(const ech_trainer *trainer)
{
    return rows[trainer->by.strategy];
}

/* ---- one device, or one of several ranks ---- */

static int64_t memory(const ech__run *run, int device, bool planned)
{
    if (run->world > 1) {
        const ech__rank_traffic *r = &run->traffic.ranks[device];
        return planned ? r->planned_memory : r->peak_memory;
    }
    return planned ? ech_trainer_planned_memory(run->trainer)
                   : ech_trainer_peak_memory(run->trainer);
}

static double busy(const ech__run *run, int device)
{
    return run->world > 1 ? run->traffic.ranks[device].busy : run->summary.utilisation;
}

static int64_t bytes(const ech__run *run)
{
    const ech__ddp_bytes *b = &run->traffic.bytes;
    return b->gradients + b->buffers + b->statistics;
}

static void trace(ech__trace *t, const ech_trainer *trainer, const ech__variant *variant)
{
    ech__trace_plan(t, trainer, variant->plan, variant->exec, 0);
}

const ech__totals_row ech__totals_rank = {
    .memory = memory,
    .busy = busy,
    .bytes = bytes,
    .trace = trace,
};
