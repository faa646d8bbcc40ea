/* What was measured at a few batches, for any batch. Inside this folder, for pricing.c.
 *
 * Between measured batches a time lies on the line through its neighbours; beyond them on the line through the last two, or with one
 * point alone in proportion to the batch. How wrong that can be follows from two rules: a larger batch takes no less time, and
 * no more time per sample.
 */
#pragma once

#include "predict/measure.h"

enum { ECH__MOST_POINTS = 64 };

/* Costs of one batch. All points have the same operators. */
typedef struct ech__cost_point {
    int64_t batch;
    const ech__step_cost *alone, *beside; /* beside: NULL where it was not measured */
} ech__cost_point;

/* From small to large batches. */
typedef struct ech__cost_points {
    ech__cost_point at[ECH__MOST_POINTS];
    int count;
} ech__cost_points;

typedef double (*ech__cost_of)(const ech__cost_point *point, const void *arg);

/* grows: in proportion to the batch where there is one point alone, else constant. 0 without points. */
double ech__cost_at(const ech__cost_points *points, int64_t batch, bool grows, ech__cost_of of,
                    const void *arg);

typedef struct ech__cost_range {
    double low, high;    /* of the estimate */
    double extrapolated; /* how far beyond the measured batches, as a factor; 1: it is not */
    int64_t from;        /* the batch that is nearest; 0: it is not extrapolated */
} ech__cost_range;

/* The range of a step alone at this batch, whose estimate is so many seconds: by the two rules, widened by how far the middle half
 * of the measured steps spreads. */
ech__cost_range ech__cost_range_at(const ech__cost_points *points, int64_t batch, double seconds);
