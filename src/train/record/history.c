#include "train/record/history.h"

ech_status ech__history_init(ech_ctx *ctx, ech__history *h, int64_t first, int64_t last)
{
    const int64_t steps = last > first ? last - first : 1;
    *h = (ech__history){.first = first, .last = last};
    ech__sha256_init(&h->losses);
    return ech__thin_init(ctx, &h->timed, sizeof(ech__run_step),
                          steps < ECH__HISTORY_STEPS ? steps : ECH__HISTORY_STEPS);
}

void ech__history_fini(ech__history *h)
{
    ech__thin_fini(&h->timed);
}

/* Whether a step is the next row of a table whose rows are evenly spread over the run. */
static bool is_row(const ech__history *h, int64_t index)
{
    const int64_t steps = h->last - h->first;
    const int64_t rows = steps < ECH__HISTORY_ROWS ? steps : ECH__HISTORY_ROWS;
    return h->nrows < rows && index == (rows > 1 ? h->nrows * (steps - 1) / (rows - 1) : 0);
}

void ech__history_add(ech__history *h, const ech__run_step *step, bool is_timed)
{
    ech__sha256_update(&h->losses, &step->result.loss, sizeof step->result.loss);
    if (is_row(h, step->step - 1 - h->first))
        h->rows[h->nrows++] = *step;
    h->latest = *step;
    if (!is_timed)
        return;
    ech__thin_add(&h->timed, step);
    ech__moments_add(&h->time, step->result.time_s);
    h->kernels_s += step->kernels_s;
    h->time_s += step->result.time_s;
}

void ech__history_end(ech__history *h)
{
    if (h->nrows < ECH__HISTORY_ROWS && h->nrows && h->rows[h->nrows - 1].step < h->latest.step)
        h->rows[h->nrows++] = h->latest;
}

void ech__history_read(const ech__history *h, ech__history_pick pick, double *out)
{
    for (int64_t i = 0; i < h->timed.count; i++)
        out[i] = pick(ech__thin_at(&h->timed, i));
}

double ech__history_median(const ech__history *h, ech__history_pick pick, double *samples)
{
    ech__history_read(h, pick, samples);
    return ech__stats_of(samples, (size_t)h->timed.count).median;
}

static double time_of(const ech__run_step *step)
{
    return step->result.time_s;
}

ech__stats ech__history_times(const ech__history *h, double *samples)
{
    ech__history_read(h, time_of, samples);
    ech__stats stats = ech__stats_of(samples, (size_t)h->timed.count);
    if (h->timed.count == h->timed.seen)
        return stats;
    stats.mean = h->time.mean;
    stats.std = ech__moments_std(&h->time);
    stats.min = h->time.min;
    stats.max = h->time.max;
    return stats;
}
