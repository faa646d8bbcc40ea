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

static int by_time(const void *a, const void *b)
{
    const ech__timed *x = a, *y = b;
    return x->time != y->time ? (x->time > y->time) - (x->time < y->time)
                              : (x->index > y->index) - (x->index < y->index);
}

size_t ech__central_steps(ech__timed *steps, size_t count, size_t *first)
{
    if (count)
        qsort(steps, count, sizeof *steps, by_time);
    *first = 2 * count / 5;
    if (count && *first == count - *first)
        --*first;
    return count - 2 * *first;
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

/* ---- Student's t ---- */

/* P(|T| <= t), by the finite sums in cos(theta), t = sqrt(freedom) tan(theta). */
static double student_share(double t, int freedom)
{
    const double theta = atan(t / sqrt((double)freedom)), c2 = cos(theta) * cos(theta);
    double term = 1, sum = freedom == 1 ? 0 : 1;
    if (freedom % 2) {
        for (int k = 3; k <= freedom - 2; k += 2) {
            term *= (double)(k - 1) / k * c2;
            sum += term;
        }
        return 2 / M_PI * (theta + sin(theta) * cos(theta) * sum);
    }
    for (int k = 2; k <= freedom - 2; k += 2) {
        term *= (double)(k - 1) / k * c2;
        sum += term;
    }
    return sin(theta) * sum;
}

double ech__student(double share, int freedom)
{
    double low = 0, high = 1;
    while (student_share(high, freedom) < share && high < 1e12)
        high *= 2;
    for (int i = 0; i < 100; i++) {
        const double middle = (low + high) / 2;
        if (student_share(middle, freedom) < share)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}
