#include "report/plot/scale.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void add_tick(ech__plot_scale *s, double value)
{
    if (s->nticks < ECH__SCALE_MAX_TICKS)
        s->ticks[s->nticks++] = value;
}

/* ---- linear ---- */

/* The least of 1, 2, 5 times a power of ten that cuts the range into at most want pieces. */
static double nice_step(double range, int want, bool whole)
{
    static const double steps[] = {1, 2, 5, 10};
    const double rough = range / (want < 1 ? 1 : want);
    const double power = pow(10, floor(log10(rough)));
    double step = 10 * power;
    for (size_t i = sizeof steps / sizeof *steps; i-- > 0;) {
        if (steps[i] * power >= rough * (1 - 1e-9))
            step = steps[i] * power;
    }
    return whole && step < 1 ? 1 : step;
}

static void linear_ticks(ech__plot_scale *s)
{
    const double first = ceil(s->low / s->step - 1e-6);
    for (int i = 0; i < ECH__SCALE_MAX_TICKS; i++) {
        const double value = (first + i) * s->step;
        if (value > s->high + 1e-6 * s->step)
            break;
        add_tick(s, fabs(value) < 1e-9 * s->step ? 0 : value);
    }
}

static void widen_linear(ech__plot_scale *s)
{
    const double slack = fmax(fabs(s->high) * 1e-9, 1e-30);
    if (s->high - s->low <= slack) {
        const double half = fmax(fabs(s->high) / 2, 1e-12);
        s->low -= s->low == 0 ? 0 : half;
        s->high += s->high == 0 ? 1 : half;
    }
}

/* ---- logarithmic ---- */

static double log_of(const ech__plot_scale *s, double value)
{
    return s->kind == ECH__SCALE_LOG2 ? log2(value) : log10(value);
}

static void log2_ticks(ech__plot_scale *s, int want)
{
    const int first = (int)ceil(log2(s->low) - 1e-9), last = (int)floor(log2(s->high) + 1e-9);
    const int every = (last - first) / (want < 1 ? 1 : want) + 1;
    for (int k = first; k <= last; k += every)
        add_tick(s, ldexp(1, k));
}

static void log10_ticks(ech__plot_scale *s, int want)
{
    static const double parts[] = {1, 2, 5};
    const double decades = log10(s->high / s->low);
    const int count = decades * 3 > want ? 1 : 3;
    const int every = (int)(decades / (want < 1 ? 1 : want)) + 1;
    for (int power = (int)floor(log10(s->low)); power <= (int)ceil(log10(s->high));
         power += every) {
        for (int i = 0; i < count; i++) {
            const double value = parts[i] * pow(10, power);
            if (value >= s->low * (1 - 1e-9) && value <= s->high * (1 + 1e-9))
                add_tick(s, value);
        }
    }
}

/* To the powers of two, or to 1, 2 or 5 times powers of ten, around the data. */
static void widen_log(ech__plot_scale *s)
{
    if (s->kind == ECH__SCALE_LOG2) {
        /* An interval that hangs over by a few percent needs no further power. */
        s->low = exp2(floor(log2(s->low) + 0.06));
        s->high = exp2(ceil(log2(s->high) - 0.06));
    } else {
        static const double parts[] = {1, 2, 5, 10};
        const double under = pow(10, floor(log10(s->low) + 1e-9));
        const double over = pow(10, floor(log10(s->high) - 1e-9));
        double low = under, high = 10 * over;
        for (int i = 0; i < 4; i++) {
            low = parts[i] * under <= s->low * (1 + 1e-9) ? parts[i] * under : low;
            high = parts[3 - i] * over >= s->high * (1 - 1e-9) ? parts[3 - i] * over : high;
        }
        s->low = low;
        s->high = high;
    }
    if (s->high <= s->low * (1 + 1e-9)) {
        s->low /= 2;
        s->high *= 2;
    }
}

/* ---- scales ---- */

static void find_ticks(ech__plot_scale *s, int want, bool whole)
{
    if (s->kind == ECH__SCALE_LINEAR) {
        s->step = nice_step(s->high - s->low, want, whole);
        linear_ticks(s);
    } else if (s->kind == ECH__SCALE_LOG2) {
        log2_ticks(s, want);
    } else {
        log10_ticks(s, want);
    }
}

/* Logarithms need something above 0 to begin with. */
static void make_positive(ech__plot_scale *s)
{
    if (s->kind == ECH__SCALE_LINEAR)
        return;
    s->high = s->high > 0 ? fmax(s->high, 1e-28) : 1;
    s->low = s->low > 0 ? fmin(fmax(s->low, 1e-30), s->high) : s->high / 10;
}

ech__plot_scale ech__scale_between(ech__scale_kind kind, double low, double high, int want,
                                   bool whole)
{
    ech__plot_scale s = {.kind = kind, .low = low, .high = high};
    make_positive(&s);
    if (kind == ECH__SCALE_LINEAR)
        widen_linear(&s);
    else if (s.high <= s.low * (1 + 1e-9))
        widen_log(&s);
    find_ticks(&s, want, whole);
    return s;
}

ech__plot_scale ech__scale_over(ech__scale_kind kind, double low, double high, int want, bool whole)
{
    ech__plot_scale s = {.kind = kind, .low = low, .high = high};
    make_positive(&s);
    if (kind == ECH__SCALE_LINEAR) {
        widen_linear(&s);
        s.step = nice_step(s.high - s.low, want, whole);
        s.low = floor(s.low / s.step + 1e-6) * s.step;
        s.high = ceil(s.high / s.step - 1e-6) * s.step;
    } else {
        widen_log(&s);
    }
    find_ticks(&s, want, whole);
    return s;
}

void ech__scale_place(ech__plot_scale *scale, double start, double end)
{
    scale->start = start;
    scale->end = end;
}

double ech__scale_at(const ech__plot_scale *s, double value)
{
    double share;
    if (s->kind == ECH__SCALE_LINEAR)
        share = (value - s->low) / (s->high - s->low);
    else if (value > 0)
        share = (log_of(s, value) - log_of(s, s->low)) / (log_of(s, s->high) - log_of(s, s->low));
    else
        return NAN;
    return s->start + share * (s->end - s->start);
}

/* ---- labels ---- */

ech__text ech__scale_tick(const ech__plot_scale *s, size_t index)
{
    static const struct {
        double size;
        const char *suffix;
    } suffixes[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
    const double value = s->ticks[index];
    const double most = fmax(fabs(s->low), fabs(s->high));
    ech__text text;
    if (most >= 1e12 || (most < 1e-4 && most > 0)) {
        snprintf(text.s, sizeof text.s, "%.2g", value);
        return text;
    }
    const bool is_log = s->kind != ECH__SCALE_LINEAR;
    for (size_t i = 0; i < 3; i++) {
        const double limit = suffixes[i].size * (suffixes[i].size < 1e4 ? 10 : 1);
        if ((is_log ? fabs(value) : most) >= limit && value != 0) {
            const ech__number_format f = {ECH__NUMBER_GENERAL, 0};
            text = ech__number_text(f, value / suffixes[i].size);
            strncat(text.s, suffixes[i].suffix, sizeof text.s - strlen(text.s) - 1);
            return text;
        }
    }
    double unit = is_log ? value : s->step;
    int digits = 0;
    while (digits < 9 && fabs(unit - round(unit)) > 1e-6 * fabs(unit)) {
        unit *= 10;
        digits++;
    }
    return ech__number_text((ech__number_format){ECH__NUMBER_FIXED, digits}, value);
}
