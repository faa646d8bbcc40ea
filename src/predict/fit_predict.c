/* What a fit says of a number of devices, beside Amdahl's and Gustafson's laws. */
#include "predict/fit.h"

#include <math.h>

static double distance(int64_t a, int64_t b)
{
    return fabs(log((double)a) - log((double)b));
}

/* samples and bytes of the row nearest in batch; bytes of rows that exchange, since one device may say 0. */
static void take_sizes(const ech__fit *fit, ech__fit_prediction *p)
{
    double samples_at = INFINITY, bytes_at = INFINITY;
    for (size_t i = 0; i < fit->table.count; i++) {
        const ech__table_row *row = &fit->table.row[i];
        const double away = distance(row->batch, p->batch);
        if (away < samples_at) {
            samples_at = away;
            p->samples = row->samples;
        }
        if (row->devices > 1 && row->bytes > 0 && away < bytes_at) {
            bytes_at = away;
            p->bytes = row->bytes;
        }
    }
}

/* Mean time of the rows with this batch and number of devices, brought to the prediction's samples; NaN: none. */
static double measured_time(const ech__fit *fit, const ech__fit_prediction *p, int64_t devices)
{
    double sum = 0;
    int rows = 0;
    for (size_t i = 0; i < fit->table.count; i++) {
        const ech__table_row *row = &fit->table.row[i];
        if (row->devices != devices || row->batch != p->batch)
            continue;
        sum += row->time * (double)p->samples / (double)row->samples;
        rows++;
    }
    return rows ? sum / rows : NAN;
}

typedef struct line {
    double zy, zz, noise; /* sums for y = f z, and of the squared spread of z y */
} line;

static void add_to_line(line *sums, double z, double y, double spread)
{
    sums->zy += z * y;
    sums->zz += z * z;
    sums->noise += z * z * spread * spread;
}

static ech__fit_value fraction_of(const ech__fit *fit, line sums)
{
    if (!(sums.zz > 0))
        return (ech__fit_value){NAN, NAN, NAN};
    const double f = fmin(fmax(sums.zy / sums.zz, 0), 1);
    const double half = fit->t * sqrt(sums.noise) / sums.zz;
    return (ech__fit_value){f, fmax(f - half, 0), fmin(f + half, 1)};
}

/* Both laws by least squares from the batch's own rows. A ratio of two runs has sqrt(2) times the spread of one. */
static void fit_laws(const ech__fit *fit, ech__fit_prediction *p)
{
    line amdahl = {0}, gustafson = {0};
    const double one = measured_time(fit, p, 1), n = (double)p->devices;
    for (size_t i = 0; i < fit->table.count && !isnan(one); i++) {
        const ech__table_row *row = &fit->table.row[i];
        const double count = (double)row->devices;
        if (row->devices == 1 || row->batch != p->batch)
            continue;
        const double share = row->time * (double)p->samples / (double)row->samples / one;
        const double spread = fit->sigma * sqrt(2);
        add_to_line(&amdahl, 1 - 1 / count, share - 1 / count, spread * share);
        add_to_line(&gustafson, count - 1, count - 1 / share, spread / share);
    }
    p->amdahl.f = fraction_of(fit, amdahl);
    p->gustafson.f = fraction_of(fit, gustafson);
    p->amdahl.time = one * (p->amdahl.f.value + (1 - p->amdahl.f.value) / n);
    p->gustafson.time = one / (n - p->gustafson.f.value * (n - 1));
}

ech__fit_prediction ech__fit_predict(const ech__fit *fit, int64_t devices, int64_t batch)
{
    ech__fit_prediction p = {.devices = devices, .batch = batch};
    take_sizes(fit, &p);
    const double n = (double)devices, per_step = (double)p.samples / (double)batch;
    const ech__fit_value step = ech__fit_step(fit, devices, batch, p.bytes, true);
    const double alone = ech__fit_step(fit, 1, batch, 0, false).value, steps = per_step / n;
    p.measured = measured_time(fit, &p, devices);
    p.time = (ech__fit_value){step.value * steps, step.low * steps, step.high * steps};
    p.speedup = (ech__fit_value){alone * per_step / p.time.value, alone * per_step / p.time.high,
                                 alone * per_step / p.time.low};
    p.efficiency = (ech__fit_value){p.speedup.value / n, p.speedup.low / n, p.speedup.high / n};
    p.exposed = 1 - alone / step.value;
    fit_laws(fit, &p);
    return p;
}
