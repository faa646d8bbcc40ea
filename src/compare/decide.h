/* Statistics of the times of arms that ran in turns. Pure functions, so that the same code decides
 * on a simulated and on a real machine.
 *
 * The replicate is the start: all arms are restarted and give one log-ratio for each pair, the
 * median over rounds of log(time of one / time of the other) in the same round. The interval over
 * starts is Student's. It is tested only after 6, 9, 13 and 20 starts, each time at a level of 1.25
 * %, so that all tests together are wrong in at most 5 % of all cases.
 *
 *     double logs[ECH__COMPARE_STARTS];
 *     logs[n++] = ech__compare_start(first, second, rounds);       once for each start
 *     if (ech__compare_is_look(n)) {
 *         ech__ratio r = ech__compare_ratio(logs, n, ECH__COMPARE_SHARE);
 *         ech__decision d = ech__compare_judge(&r, 1.0);
 *     }
 *
 */
#pragma once

#include <stdbool.h>

enum {
    ECH__COMPARE_FEWEST_STARTS = 6,
    ECH__COMPARE_STARTS = 20,
    ECH__COMPARE_ROUNDS = 64,
    ECH__COMPARE_POOL = 4096, /* log-ratios of many comparisons that are judged together */
};

#define ECH__COMPARE_SHARE 0.9875 /* of one look: 1 - 5 % / 4 */
#define ECH__COMPARE_NOISE_SHARE 0.99
#define ECH__COMPARE_BAND 0.02 /* ratios within 2 % of the threshold are equal to it */

#define ECH__DECISION_LIST(X)                                                                      \
    X(UNDECIDED, "undecided")                                                                      \
    X(ABOVE, "above")                                                                              \
    X(BELOW, "below")                                                                              \
    X(EQUAL, "equal")

typedef enum ech__decision {
#define ECH__DECISION_ENUM(id, text) ECH__DECISION_##id,
    ECH__DECISION_LIST(ECH__DECISION_ENUM)
#undef ECH__DECISION_ENUM
} ech__decision;

const char *ech__decision_name(ech__decision decision);

/* How many times the second's time the first one's is, with its interval. */
typedef struct ech__ratio {
    double ratio, low, high; /* low and high are 0 and infinity where there is one start only */
    double spread;           /* standard deviation of the logarithms between starts */
    int starts;
} ech__ratio;

/* The log-ratio of one start: times of the same rounds, NaN where a round has none. NaN where no round has both. */
double ech__compare_start(const double *first, const double *second, int rounds);
/* logs: one for each start; NaNs are left out. */
ech__ratio ech__compare_ratio(const double *logs, int count, double share);
/* Half of the interval, relative to the ratio. */
double ech__ratio_half_width(const ech__ratio *ratio);
/* Equal if the whole interval is within 2 % of the threshold; else above or below if the whole
 * interval is. */
ech__decision ech__compare_judge(const ech__ratio *ratio, double threshold);
/* Whether so many starts are a moment to look at the result. */
bool ech__compare_is_look(int starts);
