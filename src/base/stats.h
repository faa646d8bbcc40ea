/* Summaries of samples, and the quantiles of Student's t for their intervals. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct ech__stats {
    double median, mean, std, p95, min, max;
} ech__stats;

/* Sorts samples in place. All zero if there are no samples. std is the sample standard deviation (n
 * - 1); the median of an even number is the mean of the middle two; p95 is the smallest sample that
 * 95 % do not exceed. */
ech__stats ech__stats_of(double *samples, size_t count);

/* The fifth of the steps whose times are nearest to the median, as many below as above it. Means of the parts of these
 * steps add up to the mean of their times, which medians of parts do not. */
typedef struct ech__timed {
    double time;
    size_t index;
} ech__timed;

/* Sorts steps by time; the central ones are steps[*first] to steps[*first + returned - 1]. 0: there are no steps. */
size_t ech__central_steps(ech__timed *steps, size_t count, size_t *first);

/* Mean, spread and range of numbers that are not kept (Welford). All zero when there were none.
 *
 *     ech__moments all = {0};
 *     ech__moments_add(&all, x);        as often as needed
 */
typedef struct ech__moments {
    int64_t count;
    double mean, squares; /* of the differences from the mean */
    double min, max;
} ech__moments;

void ech__moments_add(ech__moments *moments, double x);
/* Of the sample, as in ech__stats_of. */
double ech__moments_std(const ech__moments *moments);

/* The t with P(|T| <= t) = share for T of Student's distribution; 0 < share < 1, freedom >= 1. */
double ech__student(double share, int freedom);
