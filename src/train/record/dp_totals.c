#include "train/record/totals.h"
#include "base/stats.h"
#include "base/system/clock.h"
#include "train/record/trace.h"
#include "train/strategy/dp.h"

const ech__dp_totals *ech__run_dp_totals(const ech__run *run)
{
    return ech__totals_of(run->trainer) == &ech__totals_dp ? run->totals : NULL;
}

static size_t width_of(const ech__dp_totals *t)
{
    return (size_t)t->devices + 2 * ECH__DP_PHASES + 2;
}

static ech_status init(ech__run *run)
{
    ech__dp_totals *t = run->totals = ech__arena_alloc(&run->arena, sizeof *t);
    if (t) {
        t->steps = run->op_steps;
        t->devices = ech__dp_devices(ech__trainer_dp(run->trainer));
        t->samples = ech__arena_array(&run->arena, (size_t)t->steps, width_of(t) * sizeof(double));
        t->column = ech__arena_array(&run->arena, (size_t)t->steps, sizeof(double));
    }
    return t && t->samples && t->column
               ? ECH_OK
               : ech__no_memory(run->ctx, "the records of %lld steps", (long long)run->op_steps);
}

static void add(ech__run *run, double step_s)
{
    ech__dp_totals *t = run->totals;
    const ech__dp *dp = ech__trainer_dp(run->trainer);
    if (t->kept == t->steps)
        return;
    double *row = t->samples + (size_t)t->kept++ * width_of(t);
    const ech__span *phases = ech__dp_phases(dp);
    const ech__span *own = ech__dp_work_of(dp, 0)->phases;
    double hand_over = step_s;
    for (int d = 0; d < t->devices; d++)
        *row++ = ech__seconds(ech__dp_work_of(dp, d)->busy_ns);
    for (int p = 0; p < ECH__DP_PHASES; p++)
        *row++ = ech__seconds(phases[p].end_ns - phases[p].start_ns);
    for (int p = 0; p < ECH__DP_PHASES; p++) {
        *row = ech__seconds(own[p].end_ns - own[p].start_ns);
        hand_over -= *row++;
    }
    *row++ = hand_over;
    *row = step_s;
}

/* Median of a column, or of its share in the step. */
static double median_of(const ech__dp_totals *t, int column, bool share)
{
    for (int64_t i = 0; i < t->kept; i++) {
        const double *row = t->samples + (size_t)i * width_of(t);
        t->column[i] = share ? row[column] / row[width_of(t) - 1] : row[column];
    }
    return ech__stats_of(t->column, (size_t)t->kept).median;
}

/* The hand-overs are after the last phase. */
static int own_column(const ech__dp_totals *t, int phase)
{
    return t->devices + ECH__DP_PHASES + phase;
}

void ech__dp_totals_own(const ech__dp_totals *t, ech__dp_phase phase, double *out)
{
    for (int64_t i = 0; i < t->kept; i++)
        out[i] = t->samples[(size_t)i * width_of(t) + (size_t)own_column(t, (int)phase)];
}

static ech_status sum_up(ech__run *run)
{
    ech__dp_totals *t = run->totals;
    const ech__dp *dp = ech__trainer_dp(run->trainer);
    if (!t->kept)
        return ECH_OK;
    for (int d = 0; d < t->devices; d++) {
        const ech__dp_work *work = ech__dp_work_of(dp, d);
        t->device[d] = (ech__dp_device_total){.busy_s = median_of(t, d, false),
                                              .busy_share = median_of(t, d, true),
                                              .bytes_in = work->bytes_in,
                                              .bytes_out = work->bytes_out,
                                              .memory = ech__dp_device(dp, d)->memory_peak,
                                              .planned = ech__dp_planned(dp, d)};
    }
    for (int p = 0; p < ECH__DP_PHASES; p++) {
        t->phase_s[p] = median_of(t, t->devices + p, false);
        t->own_s[p] = median_of(t, own_column(t, p), false);
    }
    t->hand_over_s = median_of(t, own_column(t, ECH__DP_PHASES), false);
    return ECH_OK;
}

static int64_t memory(const ech__run *run, int device, bool planned)
{
    const ech__dp_device_total *d = &ech__run_dp_totals(run)->device[device];
    return planned ? d->planned : d->memory;
}

static double busy(const ech__run *run, int device)
{
    return ech__run_dp_totals(run)->device[device].busy_share;
}

/* All goes through the first device. */
static int64_t bytes(const ech__run *run)
{
    const ech__dp_device_total *first = &ech__run_dp_totals(run)->device[0];
    return first->bytes_in + first->bytes_out;
}

/* What each device moved and did, and the parts of a step. */
static void set_json(const ech__run *run, ech_json **summary)
{
    const ech__dp_totals *t = ech__run_dp_totals(run);
    ech_json *devices = ech__json_array(), *parts = ech__json_object();
    for (int d = 0; d < t->devices; d++) {
        ech__json_append(&devices, ECH__JSON(ech__int("bytes_in", t->device[d].bytes_in),
                                             ech__int("bytes_out", t->device[d].bytes_out),
                                             ech__real("busy_s", t->device[d].busy_s)));
    }
    for (int p = 0; p < ECH__DP_PHASES; p++)
        ech__json_set_real(&parts, ech__dp_phase_name((ech__dp_phase)p), t->phase_s[p]);
    ech__json_set(summary, "data_parallel",
                  ECH__JSON(ech__member("devices", devices), ech__member("parts_s", parts)));
}

/* The parts of the step on each device, and in them its operators; then those of the loss. */
static void trace(ech__trace *t, const ech_trainer *trainer, const ech__variant *variant)
{
    const ech__dp *dp = ech__trainer_dp(trainer);
    for (int d = 0; d < ech__dp_devices(dp); d++) {
        const ech__span *parts = ech__dp_work_of(dp, d)->phases;
        const ech__plan *plan;
        const ech__exec *exec;
        for (int p = 0; p < ECH__DP_PHASES; p++) {
            if (parts[p].end_ns > parts[p].start_ns)
                ech__trace_bar(t, ech__dp_phase_name((ech__dp_phase)p), "part", d, parts[p], NULL);
        }
        if (ech__dp_last(dp, d, &plan, &exec))
            ech__trace_plan(t, trainer, plan, exec, d);
    }
    ech__trace_plan(t, trainer, variant->plan, variant->exec, 0);
}

const ech__totals_row ech__totals_dp = {
    .init = init,
    .add = add,
    .sum_up = sum_up,
    .memory = memory,
    .busy = busy,
    .bytes = bytes,
    .json = set_json,
    .trace = trace,
};
