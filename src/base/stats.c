#include "base/stats.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

ech__stats ech__stats_of(double *samples, size_t count)
{
    ech__stats s = {0};
    if (!count)
        return s;
    qsort(samples, count, sizeof *samples, ascending);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++)
        sum += samples[i];
    s.mean = sum / (double)count;
    for (size_t i = 0; i < count; i++)
        squares += (samples[i] - s.mean) * (samples[i] - s.mean);
    s.std = count > 1 ? sqrt(squares / (double)(count - 1)) : 0;
    s.median = count % 2 ? samples[count / 2] : (samples[count / 2 - 1] + samples[count / 2]) / 2;
    s.p95 = samples[(size_t)ceil(0.95 * (double)count) - 1];
    s.min = samples[0];
    s.max = samples[count - 1];
    return s;
}

void ech__moments_add(ech__moments *m, double x)
{
    m->min = m->count && m->min < x ? m->min : x;
    m->max = m->count && m->max > x ? m->max : x;
    m->count++;
    const double off = x - m->mean;
    m->mean += off / (double)m->count;
    m->squares += off * (x - m->mean);
}

double ech__moments_std(const ech__moments *m)
{
    return m->count > 1 ? sqrt(m->squares / (double)(m->count - 1)) : 0;
}
