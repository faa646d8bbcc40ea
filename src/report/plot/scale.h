/* From data to places: scales with ticks that people like to read.
 *
 *     ech__plot_scale s = ech__scale_over(ECH__SCALE_LINEAR, 0, 8.7, 6, false);       ends at 0 and 10
 *     ech__scale_place(&s, left, right);
 *     x = ech__scale_at(&s, 4.2);
 *     for (size_t i = 0; i < s.nticks; i++) label(ech__scale_at(&s, s.ticks[i]), ech__scale_tick(&s, i).s);
 */
#pragma once

#include "report/plot/plot.h"

enum { ECH__SCALE_MAX_TICKS = 32 };

typedef struct ech__plot_scale {
    ech__scale_kind kind;
    double low, high;  /* ends, in the units of the data */
    double start, end; /* their places */
    double step;       /* between ticks of a linear scale */
    double ticks[ECH__SCALE_MAX_TICKS];
    size_t nticks;
} ech__plot_scale;

/* Holds both ends, which may be equal, and has about `want` ticks or fewer. whole: ticks stand at
 * whole numbers only. */
ech__plot_scale ech__scale_over(ech__scale_kind kind, double low, double high, int want,
                                bool whole);
/* The same with ends that must stay where they are. */
ech__plot_scale ech__scale_between(ech__scale_kind kind, double low, double high, int want,
                                   bool whole);
void ech__scale_place(ech__plot_scale *scale, double start, double end);
/* Not a number where the value has no place: at 0 or below on a logarithmic scale. */
double ech__scale_at(const ech__plot_scale *scale, double value);
ech__text ech__scale_tick(const ech__plot_scale *scale, size_t index);
