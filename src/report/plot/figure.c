#include "report/plot/figure.h"
#include "base/names.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

ECH__NAMES(ech__basis_name, ech__basis, ECH__BASIS_LIST)

const char *ech__basis_mark(ech__basis basis)
{
    static const char *const marks[] = {
#define MARK(id, text, mark) mark,
        ECH__BASIS_LIST(MARK)
#undef MARK
    };
    return marks[basis];
}

/* ---- formats ---- */

static const struct {
    const char *name;
    bool digit;
} kinds[] = {
#define ROW(id, text, digit) {text, digit},
    ECH__NUMBER_LIST(ROW)
#undef ROW
};

ech_status ech__number_format_parse(ech_ctx *ctx, const char *text, ech__number_format *out)
{
    for (int k = 0; k < ECH__NUMBER_COUNT; k++) {
        const size_t length = strlen(kinds[k].name);
        if (strncmp(text, kinds[k].name, length) != 0)
            continue;
        const char *rest = text + length;
        const bool digit = rest[0] >= '0' && rest[0] <= '9' && !rest[1];
        if (kinds[k].digit ? !digit : *rest)
            continue;
        *out = (ech__number_format){(ech__number_kind)k, digit ? rest[0] - '0' : 0};
        return ECH_OK;
    }
    return ech__fail(ctx, ECH_E_FORMAT,
                     "format '%.30s': there are general, integer, fixed0 to fixed9, percent0 to "
                     "percent9, bytes and seconds",
                     text);
}

/* ---- printing ---- */

/* A minus sign that is as wide as a digit, for text that starts with '-'. */
static ech__text with_minus(const char *digits)
{
    ech__text text;
    if (*digits == '-')
        snprintf(text.s, sizeof text.s, "\xe2\x88\x92%s", digits + 1);
    else
        snprintf(text.s, sizeof text.s, "%s", digits);
    return text;
}

/* 11173962 becomes "11 173 962", with spaces that do not break. */
static ech__text grouped(double value)
{
    char digits[32], out[64];
    const int length = snprintf(digits, sizeof digits, "%.0f", fabs(value));
    size_t used = 0;
    if (value < 0 && strcmp(digits, "0") != 0)
        used += (size_t)snprintf(out, sizeof out, "\xe2\x88\x92");
    for (int i = 0; i < length && used < sizeof out - 4; i++) {
        if (i && (length - i) % 3 == 0 && length > 4) {
            memcpy(out + used, "\xc2\xa0", 2);
            used += 2;
        }
        out[used++] = digits[i];
    }
    out[used] = 0;
    ech__text text;
    snprintf(text.s, sizeof text.s, "%.31s", out);
    return text;
}

/* Four digits that count, without an exponent where that is short. */
static ech__text general(double value)
{
    char digits[48];
    const double size = fabs(value);
    if (size >= 9999.5 && size < 1e9)
        return grouped(value);
    if (size != 0 && (size < 1e-3 || size >= 1e9))
        snprintf(digits, sizeof digits, "%.3e", value);
    else
        snprintf(digits, sizeof digits, "%.4g", value);
    return with_minus(digits);
}

static ech__text fixed(double value, int digits)
{
    char text[48];
    if (fabs(value) >= 1e12)
        return general(value);
    snprintf(text, sizeof text, "%.*f", digits, value);
    /* Nothing is left of "-0.00". */
    return with_minus(text[strspn(text, "-0.")] ? text : text + (*text == '-'));
}

ech__text ech__number_text(ech__number_format format, double value)
{
    if (!isfinite(value))
        return (ech__text){"\xe2\x80\x93"};
    switch (format.kind) {
    case ECH__NUMBER_INTEGER:
        return fabs(value) < 1e15 ? grouped(value) : general(value);
    case ECH__NUMBER_FIXED:
        return fixed(value, format.digits);
    case ECH__NUMBER_PERCENT:
        return fixed(value * 100, format.digits);
    case ECH__NUMBER_BYTES:
        if (fabs(value) < 9e18)
            return ech__format_bytes((int64_t)value);
        break;
    case ECH__NUMBER_SECONDS:
        if (fabs(value) < 1e12)
            return ech__format_seconds(value);
        break;
    case ECH__NUMBER_GENERAL:
    case ECH__NUMBER_COUNT:
        break;
    }
    return general(value);
}

bool ech__cell_has_interval(const ech__cell *cell)
{
    return cell->kind == ECH__CELL_NUMBER && isfinite(cell->low) && isfinite(cell->high);
}
