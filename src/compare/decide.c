#include "compare/decide.h"
#include "base/names.h"
#include "base/stats.h"

#include <math.h>

ECH__NAMES(ech__decision_name, ech__decision, ECH__DECISION_LIST)

double ech__compare_start(const double *first, const double *second, int rounds)
{
    double logs[ECH__COMPARE_ROUNDS];
    size_t count = 0;
    for (int i = 0; i < rounds && i < ECH__COMPARE_ROUNDS; i++) {
        if (first[i] > 0 && second[i] > 0)
            logs[count++] = log(first[i] / second[i]);
    }
    return count ? ech__stats_of(logs, count).median : (double)NAN;
}

ech__ratio ech__compare_ratio(const double *logs, int count, double share)
{
    double kept[ECH__COMPARE_POOL];
    size_t n = 0;
    for (int i = 0; i < count && n < ECH__COMPARE_POOL; i++) {
        if (!isnan(logs[i]))
            kept[n++] = logs[i];
    }
    const ech__stats s = ech__stats_of(kept, n);
    ech__ratio r = {.ratio = n ? exp(s.mean) : (double)NAN, .high = INFINITY, .starts = (int)n};
    if (n < 2)
        return r;
    const double half = ech__student(share, (int)n - 1) * s.std / sqrt((double)n);
    r.spread = s.std;
    r.low = exp(s.mean - half);
    r.high = exp(s.mean + half);
    return r;
}

double ech__ratio_half_width(const ech__ratio *r)
{
    return (r->high - r->low) / (2 * r->ratio);
}

ech__decision ech__compare_judge(const ech__ratio *r, double threshold)
{
    const double above = threshold * (1 + ECH__COMPARE_BAND),
                 below = threshold / (1 + ECH__COMPARE_BAND);
    if (r->starts < ECH__COMPARE_FEWEST_STARTS)
        return ECH__DECISION_UNDECIDED;
    if (r->low >= below && r->high <= above)
        return ECH__DECISION_EQUAL;
    return r->low > threshold    ? ECH__DECISION_ABOVE
           : r->high < threshold ? ECH__DECISION_BELOW
                                 : ECH__DECISION_UNDECIDED;
}

bool ech__compare_is_look(int starts)
{
    return starts == 6 || starts == 9 || starts == 13 || starts == ECH__COMPARE_STARTS;
}
