#include "train/record/dp_totals.h"
#include "base/stats.h"
#include "base/system/clock.h"

static size_t width_of(const ech__dp_totals *t)
{
    return (size_t)t->devices + 2 * ECH__DP_PHASES + 2;
}

static size_t bytes_of(const ech__dp_totals *t)
{
    return (size_t)t->steps * width_of(t) * sizeof *t->samples;
}

ech_status ech__dp_totals_init(ech__dp_totals *t, const ech_trainer *trainer, int64_t steps)
{
    *t = (ech__dp_totals){.ctx = trainer->ctx, .steps = steps};
    if (!trainer->dp)
        return ECH_OK;
    t->devices = ech__dp_devices(trainer->dp);
    t->samples = ech__new(t->ctx, bytes_of(t));
    return t->samples ? ECH_OK
                      : ech__no_memory(t->ctx, "the records of %lld steps", (long long)steps);
}

void ech__dp_totals_fini(ech__dp_totals *t)
{
    if (t->samples)
        ech__delete(t->ctx, t->samples, bytes_of(t));
    t->samples = NULL;
}

void ech__dp_totals_add(ech__dp_totals *t, const ech_trainer *trainer, double step_s)
{
    if (!t->devices || t->kept == t->steps)
        return;
    double *row = t->samples + (size_t)t->kept++ * width_of(t);
    const ech__span *phases = ech__dp_phases(trainer->dp);
    const ech__span *own = ech__dp_work_of(trainer->dp, 0)->phases;
    double hand_over = step_s;
    for (int d = 0; d < t->devices; d++)
        *row++ = ech__seconds(ech__dp_work_of(trainer->dp, d)->busy_ns);
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

ech_status ech__dp_totals_sum_up(ech__dp_totals *t, const ech_trainer *trainer)
{
    if (!t->devices || !t->kept)
        return ECH_OK;
    const size_t bytes = (size_t)t->kept * sizeof(double);
    double *samples = ech__new(t->ctx, bytes);
    if (!samples)
        return ech__no_memory(t->ctx, "the totals of %lld steps", (long long)t->kept);
    for (int d = 0; d < t->devices; d++) {
        const ech__dp_work *work = ech__dp_work_of(trainer->dp, d);
        t->device[d] = (ech__dp_device_total){
            .busy_s = median_of(t, samples, d, false),
            .busy_share = median_of(t, samples, d, true),
            .bytes_in = work->bytes_in,
            .bytes_out = work->bytes_out,
            .memory = ech__dp_device(trainer->dp, d)->memory_peak,
            .planned = ech__dp_planned(trainer->dp, d),
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
