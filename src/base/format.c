#include "base/format.h"

#include <math.h>
#include <stdio.h>

static ech__text three_digits(double value, const char *unit)
{
    ech__text text;
    const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(text.s, sizeof text.s, "%.*f %s", decimals, value, unit);
    return text;
}

ech__text ech__format_bytes(int64_t bytes)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB", "EB"};
    ech__text text;
    if (bytes < 1000 && bytes > -1000) {
        snprintf(text.s, sizeof text.s, "%d B", (int)bytes);
        return text;
    }
    double value = (double)bytes;
    int unit = 0;
    while (fabs(value) >= 999.5 && unit < 6) {
        value /= 1000;
        unit++;
    }
    return three_digits(value, units[unit]);
}

ech__text ech__format_seconds(double seconds)
{
    if (seconds == 0)
        return (ech__text){"0 s"};
    if (!(fabs(seconds) < 0.9995))
        return three_digits(seconds, "s");
    if (fabs(seconds) >= 0.9995e-3)
        return three_digits(seconds * 1e3, "ms");
    return three_digits(seconds * 1e6, "us");
}

double ech__unsigned_nan(double number)
{
    return isnan(number) ? (double)NAN : number;
}
