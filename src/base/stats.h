/* Summaries of samples. */
#ifndef ECH_BASE_STATS_H
#define ECH_BASE_STATS_H

#include <stddef.h>

typedef struct ech__stats {
    double median, mean, std, p95, min, max;
} ech__stats;

/* Sorts samples in place. All zero when there are none. std is of the sample (n - 1); the median of an even
 * number is the mean of the middle two; p95 is the smallest sample that 95 % do not exceed. */
ech__stats ech__stats_of(double *samples, size_t count);

#endif
