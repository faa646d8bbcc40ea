#include "train/record/dp_totals.h"
#include "base/stats.h"
#include "base/system/clock.h"
#include "train/record/totals.h"
#include "train/record/trace_events.h"
#include "train/strategy/dp.h"

static size_t width_of(const ech__dp_totals *t)
{
    return (size_t)t->devices + 2 * ECH__DP_PHASES + 2;
}

static size_t bytes_of(const ech__dp_totals *t)
{
    return (size_t)t->steps * width_of(t) * sizeof *t->samples;
}

static ech_status init(ech__dp_totals *t, const ech_trainer *trainer, int64_t steps)
{
    *t = (ech__dp_totals){.ctx = trainer->ctx, .steps = steps};
    t->devices = ech__dp_devices(ech__trainer_dp(trainer));
    t->samples = ech__new(t->ctx, bytes_of(t));
    return t->samples ? ECH_OK
                      : ech__no_memory(t->ctx, "the records of %lld steps", (long long)steps);
}

static void fini(ech__dp_totals *t)
{
    if (t->samples)
        ech__delete(t->ctx, t->samples, bytes_of(t));
    t->samples = NULL;
}

static void add(ech__dp_totals *t, const ech_trainer *trainer, double step_s)
{
    if (t->kept == t->steps)
        return;
    double *row = t->samples + (size_t)t->kept++ * width_of(t);
    const ech__span *phases = ech__dp_phases(ech__trainer_dp(trainer));
    const ech__span *own = ech__dp_work_of(ech__trainer_dp(trainer), 0)->phases;
    double hand_over = step_s;
    for (int d = 0; d < t->devices; d++)
        *row++ = ech__seconds(ech__dp_work_of(ech__trainer_dp(trainer), d)->busy_ns);
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
static double median_of(const ech__dp_totals *t, double *samples, int column, bool share)
{
    for (int64_t i = 0; i < t->kept; i++) {
        const double *row = t->samples + (size_t)i * width_of(t);
        samples[i] = share ? row[column] / row[width_of(t) - 1] : row[column];
    }
    return ech__stats_of(samples, (size_t)t->kept).median;
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

static ech_status sum_up(ech__dp_totals *t, const ech_trainer *trainer)
{
    if (!t->kept)
        return ECH_OK;
    const size_t bytes = (size_t)t->kept * sizeof(double);
    double *samples = ech__new(t->ctx, bytes);
    if (!samples)
        return ech__no_memory(t->ctx, "the totals of %lld steps", (long long)t->kept);
    for (int d = 0; d < t->devices; d++) {
        const ech__dp_work *work = ech__dp_work_of(ech__trainer_dp(trainer), d);
        t->device[d] = (ech__dp_device_total){
            .busy_s = median_of(t, samples, d, false),
            .busy_share = median_of(t, samples, d, true),
            .bytes_in = work->bytes_in,
            .bytes_out = work->bytes_out,
            .memory = ech__dp_device(ech__trainer_dp(trainer), d)->memory_peak,
            .planned = ech__dp_planned(ech__trainer_dp(trainer), d),
        };
    }
    for (int p = 0; p < ECH__DP_PHASES; p++) {
        t->phase_s[p] = median_of(t, samples, t->devices + p, false);
        t->own_s[p] = median_of(t, samples, own_column(t, p), false);
    }
    t->hand_over_s = median_of(t, samples, own_column(t, ECH__DP_PHASES), false);
    ech__delete(t->ctx, samples, bytes);
    return ECH_OK;
}

/* ---- the row ---- */

static ech_status init_run(ech__run *run)
{
    return init(&run->dp_totals, run->trainer, run->op_steps);
}

static void fini_run(ech__run *run)
{
    fini(&run->dp_totals);
}

static void add_step(ech__run *run, double step_s)
{
    add(&run->dp_totals, run->trainer, step_s);
}

static ech_status sum_up_run(ech__run *run)
{
    return sum_up(&run->dp_totals, run->trainer);
}

static int64_t memory(const ech__run *run, int device, bool planned)
{
    const ech__dp_device_total *d = &run->dp_totals.device[device];
    return planned ? d->planned : d->memory;
}

static double busy(const ech__run *run, int device)
{
    return run->dp_totals.device[device].busy_share;
}

/* All goes through the first device. */
static int64_t bytes(const ech__run *run)
{
    return run->dp_totals.device[0].bytes_in + run->dp_totals.device[0].bytes_out;
}

/* What each device moved and did, and the parts of a step. */
static ech_json *data_parallel_json(const ech__dp_totals *t)
{
    ech_json *json = ech__json_object(), *devices = ech__json_array(), *parts = ech__json_object();
    for (int d = 0; d < t->devices; d++) {
        ech_json *device = ech__json_object();
        ech__json_set_int(&device, "bytes_in", t->device[d].bytes_in);
        ech__json_set_int(&device, "bytes_out", t->device[d].bytes_out);
        ech__json_set_real(&device, "busy_s", t->device[d].busy_s);
        ech__json_append(&devices, device);
    }
    for (int p = 0; p < ECH__DP_PHASES; p++)
        ech__json_set_real(&parts, ech__dp_phase_name((ech__dp_phase)p), t->phase_s[p]);
    ech__json_set(&json, "devices", devices);
    ech__json_set(&json, "parts_s", parts);
    return json;
}

static void set_json(const ech__run *run, ech_json **summary)
{
    ech__json_set(summary, "data_parallel", data_parallel_json(&run->dp_totals));
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
    .init = init_run,
    .fini = fini_run,
    .add = add_step,
    .sum_up = sum_up_run,
    .memory = memory,
    .busy = busy,
    .bytes = bytes,
    .json = set_json,
    .trace = trace,
};
