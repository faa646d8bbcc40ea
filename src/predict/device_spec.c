#include "predict/device_spec.h"
#include "base/file/json.h"
#include "base/names.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_FILE_BYTES = 1 << 20, MAX_TEXT = 1024 };

ECH__NAMES(ech__math_name, ech__math, ECH__MATH_LIST)
ECH__NAMES(ech__work_name, ech__work_kind, ECH__WORK_LIST)

typedef struct limits {
    double min, max;
} limits;

static const limits RATE = {1e6, 1e18}, MEMORY = {1e6, 1e15}, COUNT = {1, 1e6}, FLOPS = {1, 1e12},
                    SECONDS = {0, 1}, SHARE = {1e-4, 1}, LINK = {1e3, 1e15}, ERROR = {0, 1};

/* ---- members ---- */

static ech_status read_object(ech_ctx *ctx, const ech_json *object, const char *key,
                              const char *const *members, const ech_json **out)
{
    ECH_TRY(ech__json_get_object(ctx, object, key, out));
    const ech_status status = ech__json_check_members(ctx, *out, members);
    return status < 0 ? ech__fail_in(ctx, status, "\"%s\"", key) : ECH_OK;
}

static ech_status read_text(ech_ctx *ctx, const ech_json *object, const char *key, char *out,
                            size_t bytes)
{
    const char *text;
    ECH_TRY(ech__json_get_string(ctx, object, key, &text));
    if (!*text || strlen(text) >= bytes)
        return ech__fail(ctx, ECH_E_FORMAT, "\"%s\" has %zu bytes: it must have 1 to %zu", key,
                         strlen(text), bytes - 1);
    for (const char *at = text; *at; at++) {
        if ((unsigned char)*at < ' ')
            return ech__fail(ctx, ECH_E_FORMAT, "\"%s\" must be on one line", key);
    }
    memcpy(out, text, strlen(text) + 1);
    return ECH_OK;
}

static ech_status check_number(ech_ctx *ctx, double value, const char *key, limits l)
{
    return value >= l.min && value <= l.max
               ? ECH_OK
               : ech__fail(ctx, ECH_E_FORMAT, "\"%s\" is %g: it must be from %g to %g", key, value,
                           l.min, l.max);
}

static ech_status read_pair(ech_ctx *ctx, const ech_json *pair, const char *key, limits l,
                            ech__bounds *out)
{
    if (ech__json_count(pair) != 2 || !ech__json_real(ech__json_at(pair, 0), &out->low) ||
        !ech__json_real(ech__json_at(pair, 1), &out->high))
        return ech__fail(ctx, ECH_E_FORMAT, "\"%s\" must have two numbers, [low, high]", key);
    ECH_TRY(check_number(ctx, out->low, key, l));
    ECH_TRY(check_number(ctx, out->high, key, l));
    return out->low <= out->high
               ? ECH_OK
               : ech__fail(ctx, ECH_E_FORMAT, "\"%s\" is [%g, %g]: low must not be above high", key,
                           out->low, out->high);
}

/* A number, a pair, or an object with one of them. */
static ech_status read_span(ech_ctx *ctx, const ech_json *object, const char *key, limits l,
                            ech__bounds *out)
{
    static const char *const members[] = {"value", "source", NULL};
    const ech_json *figure = ech__json_find(object, key);
    if (figure && ech__json_kind_of(figure) == ECH_JSON_OBJECT) {
        char source[MAX_TEXT];
        ECH_TRY(read_object(ctx, object, key, members, &figure));
        ech_status status = read_text(ctx, figure, "source", source, sizeof source);
        if (status == ECH_OK && !ech__json_find(figure, "value"))
            status = ech__fail(ctx, ECH_E_FORMAT, "\"value\" is missing");
        if (status < 0)
            return ech__fail_in(ctx, status, "\"%s\"", key);
        figure = ech__json_find(figure, "value");
    }
    if (!figure)
        return ech__fail(ctx, ECH_E_FORMAT, "\"%s\" is missing", key);
    if (ech__json_kind_of(figure) == ECH_JSON_ARRAY)
        return read_pair(ctx, figure, key, l, out);
    if (!ech__json_real(figure, &out->low) || isnan(out->low))
        return ech__fail(ctx, ECH_E_FORMAT,
                         "\"%s\" is %s: it must be a number, [low, high], or an object with a "
                         "\"value\" and a \"source\"",
                         key, ech__json_kind_name(ech__json_kind_of(figure)));
    out->high = out->low;
    return check_number(ctx, out->low, key, l);
}

/* Of a data sheet: one number. */
static ech_status read_figure(ech_ctx *ctx, const ech_json *object, const char *key, limits l,
                              double *out)
{
    ech__bounds span;
    ECH_TRY(read_span(ctx, object, key, l, &span));
    *out = span.low;
    return span.low == span.high
               ? ECH_OK
               : ech__fail(ctx, ECH_E_FORMAT, "\"%s\" is [%g, %g]: it must be one number", key,
                           span.low, span.high);
}

/* ---- parts of a file ---- */

static const char *const math_names[] = {
#define NAME(id, text) text,
    ECH__MATH_LIST(NAME) NULL};
/* And where they come from. */
static const char *const work_names[] = {ECH__WORK_LIST(NAME) "source", NULL};
#undef NAME

static ech_status read_peaks(ech_ctx *ctx, const ech_json *doc, ech__device_spec *out)
{
    const ech_json *peaks;
    ECH_TRY(read_object(ctx, doc, "peak_flops", math_names, &peaks));
    for (int m = 0; m < ECH__MATH_COUNT; m++) {
        if (m != ECH__MATH_F32 && !ech__json_find(peaks, math_names[m]))
            continue;
        const ech_status status = read_figure(ctx, peaks, math_names[m], RATE, &out->peak[m]);
        if (status < 0)
            return ech__fail_in(ctx, status, "\"peak_flops\"");
    }
    return ECH_OK;
}

/* Which of f32 and tf32 a library takes for products of f32 operands. */
static ech_status read_f32(ech_ctx *ctx, const ech_json *doc, ech__device_spec *out)
{
    static const char *const members[] = {"matrix", "conv", NULL};
    const ech_json *object;
    if (!ech__json_find(doc, "f32_products"))
        return ECH_OK;
    ECH_TRY(read_object(ctx, doc, "f32_products", members, &object));
    for (int i = 0; members[i]; i++) {
        char text[24] = "";
        ech_status status = read_text(ctx, object, members[i], text, sizeof text);
        const bool tf32 = !strcmp(text, math_names[ECH__MATH_TF32]);
        if (status == ECH_OK && !tf32 && strcmp(text, math_names[ECH__MATH_F32]) != 0)
            status = ech__fail(ctx, ECH_E_FORMAT, "\"%s\" is '%s': it must be f32 or tf32",
                               members[i], text);
        if (status == ECH_OK && tf32 && out->peak[ECH__MATH_TF32] == 0)
            status = ech__fail(ctx, ECH_E_FORMAT,
                               "\"%s\" is tf32, which \"peak_flops\" does not have", members[i]);
        if (status < 0)
            return ech__fail_in(ctx, status, "\"f32_products\"");
        for (int k = 0; tf32 && k < ECH__WORK_PRODUCTS; k++) {
            if ((k == ECH__WORK_MATRIX) == (i == 0))
                out->f32[k] = ECH__MATH_TF32;
        }
    }
    return ECH_OK;
}

static ech_status read_link(ech_ctx *ctx, const ech_json *doc, ech__device_spec *out)
{
    static const char *const members[] = {"bandwidth", "latency", "efficiency", NULL};
    const ech_json *object;
    double bandwidth, share;
    ECH_TRY(read_object(ctx, doc, "link", members, &object));
    ech_status status = read_figure(ctx, object, "bandwidth", LINK, &bandwidth);
    if (status == ECH_OK)
        status = read_figure(ctx, object, "efficiency", SHARE, &share);
    if (status == ECH_OK)
        status = read_figure(ctx, object, "latency", SECONDS, &out->link.latency_s);
    if (status == ECH_OK)
        out->link.bytes_per_s = bandwidth * share;
    out->link.overhead_s = out->link.latency_s;
    return status < 0 ? ech__fail_in(ctx, status, "\"link\"") : ECH_OK;
}

/* One for all types, or one for each that the device has. */
static ech_status read_compute(ech_ctx *ctx, const ech_json *kind, const double *peak,
                               ech__bounds *out)
{
    const ech_json *by_type = ech__json_find(kind, "compute");
    if (!by_type || ech__json_kind_of(by_type) != ECH_JSON_OBJECT ||
        ech__json_find(by_type, "value")) {
        ECH_TRY(read_span(ctx, kind, "compute", SHARE, &out[0]));
        for (int m = 1; m < ECH__MATH_COUNT; m++)
            out[m] = out[0];
        return ECH_OK;
    }
    ECH_TRY(read_object(ctx, kind, "compute", math_names, &by_type));
    for (int m = 0; m < ECH__MATH_COUNT; m++) {
        if (peak[m] == 0)
            continue;
        const ech_status status = read_span(ctx, by_type, math_names[m], SHARE, &out[m]);
        if (status < 0)
            return ech__fail_in(ctx, status, "\"compute\"");
    }
    return ECH_OK;
}

static ech_status read_kind(ech_ctx *ctx, const ech_json *all, ech__work_kind kind,
                            ech__device_spec *out)
{
    static const char *const members[] = {"memory", "compute", NULL}, *const streams[] = {"memory",
                                                                                          NULL};
    const bool product = (int)kind < ECH__WORK_PRODUCTS;
    const ech_json *object;
    ECH_TRY(read_object(ctx, all, work_names[kind], product ? members : streams, &object));
    ech_status status = read_span(ctx, object, "memory", SHARE, &out->streaming[kind]);
    if (status == ECH_OK && product)
        status = read_compute(ctx, object, out->peak, out->compute[kind]);
    return status < 0 ? ech__fail_in(ctx, status, "\"%s\"", work_names[kind]) : ECH_OK;
}

static ech_status read_efficiency(ech_ctx *ctx, const ech_json *doc, ech__device_spec *out)
{
    const ech_json *all;
    char source[MAX_TEXT];
    ECH_TRY(read_object(ctx, doc, "efficiency", work_names, &all));
    ech_status status = read_text(ctx, all, "source", source, sizeof source);
    for (int k = 0; status == ECH_OK && k < ECH__WORK_COUNT; k++)
        status = read_kind(ctx, all, (ech__work_kind)k, out);
    return status < 0 ? ech__fail_in(ctx, status, "\"efficiency\"") : ECH_OK;
}

static ech_status read_calibration(ech_ctx *ctx, const ech_json *doc, ech__device_spec *out)
{
    static const char *const members[] = {"row", "error", NULL};
    const ech_json *object;
    if (!ech__json_find(doc, "calibration"))
        return ECH_OK;
    ECH_TRY(read_object(ctx, doc, "calibration", members, &object));
    ech_status status = read_text(ctx, object, "row", out->calibration, sizeof out->calibration);
    if (status == ECH_OK)
        status = read_figure(ctx, object, "error", ERROR, &out->error);
    out->calibrated = true;
    return status < 0 ? ech__fail_in(ctx, status, "\"calibration\"") : ECH_OK;
}

static ech_status read_spec(ech_ctx *ctx, const ech_json *doc, ech__device_spec *out)
{
    static const char *const members[] = {"name",
                                          "note",
                                          "peak_flops",
                                          "f32_products",
                                          "memory_bandwidth",
                                          "memory",
                                          "multiprocessors",
                                          "tile_flops",
                                          "launch",
                                          "host",
                                          "link",
                                          "efficiency",
                                          "calibration",
                                          NULL};
    char note[MAX_TEXT];
    if (ech__json_kind_of(doc) != ECH_JSON_OBJECT)
        return ech__fail(ctx, ECH_E_FORMAT, "a device must be an object, not %s",
                         ech__json_kind_name(ech__json_kind_of(doc)));
    ECH_TRY(ech__json_check_members(ctx, doc, members));
    ECH_TRY(read_text(ctx, doc, "name", out->name, sizeof out->name));
    if (ech__json_find(doc, "note"))
        ECH_TRY(read_text(ctx, doc, "note", note, sizeof note));
    ECH_TRY(read_peaks(ctx, doc, out));
    ECH_TRY(read_f32(ctx, doc, out));
    ECH_TRY(read_figure(ctx, doc, "memory_bandwidth", RATE, &out->bytes_per_s));
    ECH_TRY(read_figure(ctx, doc, "memory", MEMORY, &out->memory));
    ECH_TRY(read_figure(ctx, doc, "multiprocessors", COUNT, &out->multiprocessors));
    ECH_TRY(read_figure(ctx, doc, "tile_flops", FLOPS, &out->tile_flops));
    ECH_TRY(read_span(ctx, doc, "launch", SECONDS, &out->launch));
    ECH_TRY(read_span(ctx, doc, "host", SECONDS, &out->host));
    ECH_TRY(read_link(ctx, doc, out));
    ECH_TRY(read_efficiency(ctx, doc, out));
    return read_calibration(ctx, doc, out);
}

/* Takes doc over. */
static ech_status take(ech_ctx *ctx, const char *what, ech_json *doc, ech__device_spec *out)
{
    ech__device_spec spec = {.memory = 0};
    const ech_status status = read_spec(ctx, doc, &spec);
    ech__json_destroy(doc);
    if (status < 0)
        return ech__fail_in(ctx, status, "%s", what);
    *out = spec;
    return ECH_OK;
}

ech_status ech__device_spec_parse(ech_ctx *ctx, const char *what, const char *text, size_t bytes,
                                  ech__device_spec *out)
{
    ech_json *doc;
    ECH_TRY(ech__json_parse(ctx, what, text, bytes, &doc));
    return take(ctx, what, doc, out);
}

ech_status ech__device_spec_load(ech_ctx *ctx, const char *path, ech__device_spec *out)
{
    ech_json *doc;
    ECH_TRY(ech__json_load(ctx, path, MAX_FILE_BYTES, &doc));
    return take(ctx, path, doc, out);
}
