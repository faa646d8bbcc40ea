#include "lab/facts.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ech__lab_join(ech__lab_value *value, const ech__lab_value *other)
{
    value->basis = other->basis > value->basis ? other->basis : value->basis;
    value->run = value->run ? value->run : other->run;
    value->reason = value->known && !other->known ? other->reason : value->reason;
    value->known &= other->known;
}

void ech__lab_settle(ech__lab_value *value, const char *reason)
{
    if (value->known && !(fabs(value->at) <= ECH__LAB_LARGEST))
        *value =
            (ech__lab_value){.at = NAN, .basis = value->basis, .run = value->run, .reason = reason};
}

/* Arguments of one draw, and for functions that draw themselves, where their random numbers come from. */
typedef struct call {
    const double *args;
    size_t count;
    uint64_t stream, draw;
} call;

/* ---- of any numbers ---- */

static double of_min(call c)
{
    double least = c.args[0];
    for (size_t i = 1; i < c.count; i++)
        least = fmin(least, c.args[i]);
    return least;
}

static double of_max(call c)
{
    double most = c.args[0];
    for (size_t i = 1; i < c.count; i++)
        most = fmax(most, c.args[i]);
    return most;
}

static double of_abs(call c)
{
    return fabs(c.args[0]);
}

static double of_sqrt(call c)
{
    return sqrt(c.args[0]);
}

static double of_log(call c)
{
    return log(c.args[0]);
}

static double of_exp(call c)
{
    return exp(c.args[0]);
}

/* ---- of samples ---- */

enum { SEED = 0 };

/* Random number k of the draw, standard normal; 0 in draw 0, which is the sample as it is. */
static double normal(call c, uint64_t k)
{
    return c.draw ? (double)ech__rng_normal(SEED, c.stream, c.draw * ECH__LAB_MAX_ARGS + k) : 0;
}

/* 95 % of the draws lie in Wilson's interval. */
static double draw_share(call c, double hits, double count, uint64_t k)
{
    static const double z = 1.959963984540054; /* 97.5 % of the normal distribution */
    const double p = hits / count, more = z * z / count;
    if (!c.draw)
        return p;
    const double half = sqrt(p * (1 - p) / count + more / (4 * count)) / (1 + more);
    return (p + more / 2) / (1 + more) + normal(c, k) * half;
}

static bool is_sample(double hits, double count)
{
    return count > 0 && hits >= 0 && hits <= count;
}

static double of_share(call c)
{
    if (!is_sample(c.args[0], c.args[1]))
        return NAN;
    return fmax(0, fmin(1, draw_share(c, c.args[0], c.args[1], 0)));
}

/* Samples on which both say the same do not count, so it is less uncertain than two shares apart. */
static double of_paired(call c)
{
    const double gained = c.args[0], lost = c.args[1], count = c.args[2];
    if (!is_sample(gained + lost, count) || gained < 0 || lost < 0)
        return NAN;
    if (!c.draw) /* one division, so that equal differences are equal bits */
        return (gained - lost) / count;
    return draw_share(c, gained, count, 0) - draw_share(c, lost, count, 1);
}

/* A mean of n that differ by s is uncertain by Student's t times s by the root of n. A single one
 * says nothing of that. */
static double of_average(call c)
{
    double mean = 0, squares = 0, chi = 0;
    for (size_t i = 0; i < c.count; i++)
        mean += c.args[i] / (double)c.count;
    for (size_t i = 0; i < c.count; i++)
        squares += (c.args[i] - mean) * (c.args[i] - mean);
    if (c.count < 2 || !c.draw)
        return mean;
    for (uint64_t k = 1; k < c.count; k++)
        chi += normal(c, k) * normal(c, k);
    /* t = z / sqrt(chi / (n - 1)), and s = sqrt(squares / (n - 1)) */
    return mean + normal(c, 0) * sqrt(squares / (chi * (double)c.count));
}

/* ---- of pairs x1, y1, x2, y2, ... ---- */

static double x_of(call c, size_t i)
{
    return c.args[2 * i];
}

static double y_of(call c, size_t i)
{
    return c.args[2 * i + 1];
}

/* Sums over pairs, x and y counted from their means. */
typedef struct moments {
    double x, y, xx, xy, yy;
} moments;

static moments moments_of(call c)
{
    const size_t n = c.count / 2;
    moments m = {0};
    for (size_t i = 0; i < n; i++) {
        m.x += x_of(c, i) / (double)n;
        m.y += y_of(c, i) / (double)n;
    }
    for (size_t i = 0; i < n; i++) {
        const double dx = x_of(c, i) - m.x, dy = y_of(c, i) - m.y;
        m.xx += dx * dx;
        m.xy += dx * dy;
        m.yy += dy * dy;
    }
    return m;
}

static double of_slope(call c)
{
    const moments m = moments_of(c);
    return m.xy / m.xx;
}

static double of_intercept(call c)
{
    const moments m = moments_of(c);
    return m.y - m.xy / m.xx * m.x;
}

static double of_rsquared(call c)
{
    const moments m = moments_of(c);
    return m.xy * m.xy / (m.xx * m.yy);
}

/* y = t (f + (1 - f) / x) is a line over 1 / x with intercept a = t f and slope b = t (1 - f), both
 * of which are at least 0. Where the best line has a negative one, the best of those allowed has a
 * 0 in its place. */
static double of_amdahl(call c)
{
    double inverse[ECH__LAB_MAX_ARGS];
    memcpy(inverse, c.args, c.count * sizeof *inverse);
    for (size_t i = 0; i < c.count; i += 2)
        inverse[i] = 1 / c.args[i];
    const moments m = moments_of((call){.args = inverse, .count = c.count});
    const double b = m.xy / m.xx, a = m.y - b * m.x;
    if (isnan(a) || isnan(b) || a + b <= 0)
        return NAN;
    return a < 0 ? 0 : b < 0 ? 1 : a / (a + b);
}

typedef struct pair {
    double x, y;
} pair;

static int by_x(const void *a, const void *b)
{
    const double x = ((const pair *)a)->x, y = ((const pair *)b)->x;
    return (x > y) - (x < y);
}

/* The first argument is the level. */
static double of_crossing(call c)
{
    pair pairs[ECH__LAB_MAX_ARGS / 2] = {{0, 0}};
    const double level = c.args[0];
    const size_t n = (c.count - 1) / 2;
    for (size_t i = 0; i < n; i++)
        pairs[i] = (pair){c.args[1 + 2 * i], c.args[2 + 2 * i]};
    qsort(pairs, n, sizeof *pairs, by_x);
    for (size_t i = 0; i < n; i++) {
        const pair p = pairs[i];
        if (p.y == level)
            return p.x;
        if (i + 1 == n)
            break;
        const pair q = pairs[i + 1];
        if ((p.y < level && q.y > level) || (p.y > level && q.y < level))
            return p.x + (level - p.y) / (q.y - p.y) * (q.x - p.x);
    }
    return NAN;
}

static double of_best(call c)
{
    size_t best = 0;
    for (size_t i = 1; i < c.count / 2; i++)
        best = y_of(c, i) > y_of(c, best) ? i : best;
    return x_of(c, best);
}

static double of_worst(call c)
{
    size_t worst = 0;
    for (size_t i = 1; i < c.count / 2; i++)
        worst = y_of(c, i) < y_of(c, worst) ? i : worst;
    return x_of(c, worst);
}

/* ---- the table ---- */

typedef struct function_row {
    const char *name;
    double (*of)(call c);
    size_t least, most; /* arguments */
    size_t odd;         /* where they are pairs: how many stand before them; else ANY */
    const char *why;    /* nothing may come out of it */
    bool draws;         /* also where its arguments have no draws */
} function_row;

enum { ANY = 2 };

/* clang-format off */
static const function_row rows[] = {
    [ECH__LAB_FUNCTION_min] = {"min", of_min, 1, ECH__LAB_MAX_ARGS, ANY, ""},
    [ECH__LAB_FUNCTION_max] = {"max", of_max, 1, ECH__LAB_MAX_ARGS, ANY, ""},
    [ECH__LAB_FUNCTION_abs] = {"abs", of_abs, 1, 1, ANY, ""},
    [ECH__LAB_FUNCTION_sqrt] = {"sqrt", of_sqrt, 1, 1, ANY, "a negative number has no root"},
    [ECH__LAB_FUNCTION_log] = {"log", of_log, 1, 1, ANY, "only positive numbers have a logarithm"},
    [ECH__LAB_FUNCTION_exp] = {"exp", of_exp, 1, 1, ANY, "an exponential is too large"},
    [ECH__LAB_FUNCTION_share] = {"share", of_share, 2, 2, ANY, "there are no such samples", true},
    [ECH__LAB_FUNCTION_paired] = {"paired", of_paired, 3, 3, ANY, "there are no such samples", true},
    [ECH__LAB_FUNCTION_average] = {"average", of_average, 1, ECH__LAB_MAX_ARGS, ANY, "", true},
    [ECH__LAB_FUNCTION_amdahl] = {"amdahl", of_amdahl, 4, ECH__LAB_MAX_ARGS - 1, 0, "the times fit no law of Amdahl"},
    [ECH__LAB_FUNCTION_slope] = {"slope", of_slope, 4, ECH__LAB_MAX_ARGS - 1, 0, "one place alone has no line"},
    [ECH__LAB_FUNCTION_intercept] = {"intercept", of_intercept, 4, ECH__LAB_MAX_ARGS - 1, 0, "one place alone has no line"},
    [ECH__LAB_FUNCTION_rsquared] = {"rsquared", of_rsquared, 4, ECH__LAB_MAX_ARGS - 1, 0, "there is no variance to explain"},
    [ECH__LAB_FUNCTION_crossing] = {"crossing", of_crossing, 3, ECH__LAB_MAX_ARGS, 1, "the level is not met in what was tried"},
    [ECH__LAB_FUNCTION_best] = {"best", of_best, 2, ECH__LAB_MAX_ARGS - 1, 0, ""},
    [ECH__LAB_FUNCTION_worst] = {"worst", of_worst, 2, ECH__LAB_MAX_ARGS - 1, 0, ""},
};
/* clang-format on */

_Static_assert(sizeof rows / sizeof *rows == ECH__LAB_FUNCTION_COUNT, "a row for each function");

bool ech__lab_function_find(const char *name, size_t length, ech__lab_function *out)
{
    for (int i = 0; i < ECH__LAB_FUNCTION_COUNT; i++) {
        if (strlen(rows[i].name) == length && !strncmp(rows[i].name, name, length)) {
            *out = (ech__lab_function)i;
            return true;
        }
    }
    return false;
}

static ech_status check_count(ech__lab_facts *facts, const function_row *row, size_t count)
{
    if (count < row->least || count > row->most)
        return ech__fail(facts->ctx, ECH_E_INVALID, "%s of %zu numbers: takes from %zu to %zu",
                         row->name, count, row->least, row->most);
    if (row->odd != ANY && count % 2 != row->odd)
        return ech__fail(facts->ctx, ECH_E_INVALID, "%s of %zu numbers: %spairs x, y are wanted",
                         row->name, count, row->odd ? "a level and then " : "");
    return ECH_OK;
}

/* The same function of the same numbers of the same runs draws the same. */
static uint64_t stream_of(const function_row *row, const ech__lab_value *args, size_t count)
{
    uint64_t stream = ech__rng_stream(row->name);
    for (size_t i = 0; i < count; i++) {
        char text[96];
        snprintf(text, sizeof text, "%.64s %.17g", args[i].run ? args[i].run : "", args[i].at);
        stream = stream * 0x9e3779b97f4a7c15u + ech__rng_stream(text);
    }
    return stream;
}

/* Draw d of the function; NaN where an argument has none. */
static double call_once(const function_row *row, const ech__lab_value *args, size_t count,
                        uint64_t stream, size_t d)
{
    double now[ECH__LAB_MAX_ARGS];
    for (size_t i = 0; i < count; i++) {
        now[i] = args[i].draws ? args[i].draws[d] : args[i].at;
        if (!isfinite(now[i]))
            return NAN;
    }
    return row->of((call){now, count, stream, d});
}

ech_status ech__lab_call(ech__lab_facts *facts, ech__arena *arena, ech__lab_function function,
                         const ech__lab_value *args, size_t count, ech__lab_value *out)
{
    const function_row *row = &rows[function];
    double *draws = NULL;
    bool drawn = row->draws;
    ECH_TRY(check_count(facts, row, count));
    *out = (ech__lab_value){.at = NAN, .known = true};
    for (size_t i = 0; i < count; i++) {
        ech__lab_join(out, &args[i]);
        drawn |= args[i].draws != NULL;
    }
    if (!out->known)
        return ECH_OK;
    if (drawn && !(draws = ech__arena_array(arena, ECH__LAB_DRAWS, sizeof *draws)))
        return ech__no_memory(facts->ctx, "draws of %s", row->name);
    const uint64_t stream = row->draws ? stream_of(row, args, count) : 0;
    out->at = call_once(row, args, count, stream, 0);
    for (size_t d = 0; drawn && d < ECH__LAB_DRAWS; d++)
        draws[d] = call_once(row, args, count, stream, d);
    out->draws = draws;
    ech__lab_settle(out, *row->why ? row->why : "no number came out");
    return ECH_OK;
}
