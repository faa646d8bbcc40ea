#include "price/cluster.h"
#include "base/format.h"
#include "base/names.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 1000000, MAX_PER_NODE = 10000 };
enum { MAX_FILE_BYTES = 1 << 20 };
/* Where the file does not say how many nodes or devices there are. */
#define MAX_DEVICES ((int64_t)MAX_NODES * MAX_PER_NODE)

typedef struct unit {
    const char *name;
    double factor;
} unit;

static const unit bandwidth_units[] = {
    {"B/s", 1},          {"kB/s", 1e3},        {"KB/s", 1e3},       {"MB/s", 1e6},
    {"GB/s", 1e9},       {"TB/s", 1e12},       {"KiB/s", 1024},     {"MiB/s", 1 << 20},
    {"GiB/s", 1 << 30},  {"TiB/s", 0x1p40},    {"kbit/s", 1e3 / 8}, {"Mbit/s", 1e6 / 8},
    {"Gbit/s", 1e9 / 8}, {"Tbit/s", 1e12 / 8}, {NULL, 0},
};
static const unit latency_units[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {NULL, 0}};

ECH__NAMES(ech__mover_name, ech__mover, ECH__MOVER_LIST)
ECH__NAMES(ech__link_source_name, ech__link_source, ECH__LINK_SOURCE_LIST)

/* What can be written down about a link. */
typedef struct quantity {
    const char *name;
    const unit *units;
    double min, max;
    const char *range, *examples;
} quantity;

static const quantity bandwidth = {
    "bandwidth", bandwidth_units, 1e3, 1e15, "1 kB/s to 1e15 B/s", "12GB/s, 12GiB/s or 100Gbit/s"};
static const quantity latency = {"latency", latency_units, 0,
                                 10,        "0 s to 10 s", "5us, 1.5ms or 800ns"};

static const quantity overhead = {"overhead", latency_units, 0,
                                  10,         "0 s to 10 s", "5us, 1.5ms or 800ns"};

typedef struct quote {
    char s[64];
} quote;

/* Text as an error message can hold it: on one line, and not too long. */
static quote quoted(const char *text, size_t bytes)
{
    quote q;
    size_t n = bytes < sizeof q.s - 1 ? bytes : sizeof q.s - 1;
    for (size_t i = 0; i < n; i++)
        q.s[i] = iscntrl((unsigned char)text[i]) ? '?' : text[i];
    q.s[n] = '\0';
    if (n < bytes)
        memcpy(q.s + n - 3, "...", 3);
    return q;
}

/* The length of a decimal number at the start of text; 0 where there is none. strtod alone would also take inf and 0x1p3. */
static size_t number_length(const char *text)
{
    static const char digits[] = "0123456789";
    size_t at = *text == '-' || *text == '+';
    const size_t whole = strspn(text + at, digits);
    at += whole;
    size_t fraction = 0;
    if (text[at] == '.') {
        fraction = strspn(text + at + 1, digits);
        at += 1 + fraction;
    }
    if (whole + fraction == 0)
        return 0;
    if (text[at] == 'e' || text[at] == 'E') {
        const size_t sign = text[at + 1] == '-' || text[at + 1] == '+';
        const size_t exponent = strspn(text + at + 1 + sign, digits);
        at += exponent ? 1 + sign + exponent : 0;
    }
    return at;
}

/* A number and a unit, spaces around and between them. */
static ech_status parse_quantity(ech_ctx *ctx, const quantity *what, const char *text, size_t bytes,
                                 double *out)
{
    const quote shown = quoted(text, bytes);
    while (bytes > 0 && *text == ' ')
        text++, bytes--;
    while (bytes > 0 && text[bytes - 1] == ' ')
        bytes--;
    char copy[64] = "";
    if (bytes < sizeof copy)
        memcpy(copy, text, bytes);
    const size_t number = number_length(copy);
    const char *name = copy + number + strspn(copy + number, " ");
    const unit *u = what->units;
    while (u->name && strcmp(u->name, name) != 0)
        u++;
    if (number == 0 || !u->name)
        return ech__fail(ctx, ECH_E_INVALID,
                         "%s '%s' is not understood: it must be a number with a unit, such as %s",
                         what->name, shown.s, what->examples);
    copy[number] = '\0';
    const double value = strtod(copy, NULL) * u->factor;
    if (!(value >= what->min && value <= what->max))
        return ech__fail(ctx, ECH_E_INVALID, "%s '%s' is out of range: it must be %s", what->name,
                         shown.s, what->range);
    *out = value;
    return ECH_OK;
}

ech__cluster ech__cluster_defaults(void)
{
    return (ech__cluster){
        .inside = {.bytes_per_s = 10e9, .latency_s = 1e-6},
        .between = {.bytes_per_s = 1.25e9, .latency_s = 20e-6, .overhead_s = 20e-6},
        .mover = ECH__MOVER_DEVICES,
        .source = ECH__LINK_ASSUMED};
}

/* An overhead is part of the latency. */
static ech_status check_overhead(ech_ctx *ctx, const ech__link *link)
{
    return link->overhead_s <= link->latency_s
               ? ECH_OK
               : ech__fail(ctx, ECH_E_INVALID,
                           "overhead %g us: it must be at most the latency, which is %g us",
                           link->overhead_s * 1e6, link->latency_s * 1e6);
}

ech_status ech__link_parse(ech_ctx *ctx, const char *text, ech__link *out)
{
    const char *comma = strchr(text, ',');
    if (!comma)
        return ech__fail(ctx, ECH_E_INVALID,
                         "link '%s' has no comma: it must be BANDWIDTH,LATENCY, such as 12GB/s,5us",
                         quoted(text, strlen(text)).s);
    ech__link link = {0};
    const char *second = strchr(comma + 1, ',');
    const size_t bytes = second ? (size_t)(second - comma - 1) : strlen(comma + 1);
    ech_status status =
        parse_quantity(ctx, &bandwidth, text, (size_t)(comma - text), &link.bytes_per_s);
    if (status == ECH_OK)
        status = parse_quantity(ctx, &latency, comma + 1, bytes, &link.latency_s);
    link.overhead_s = link.latency_s;
    if (status == ECH_OK && second)
        status = parse_quantity(ctx, &overhead, second + 1, strlen(second + 1), &link.overhead_s);
    if (status == ECH_OK)
        status = check_overhead(ctx, &link);
    if (status < 0)
        return ech__fail_in(ctx, status, "link '%s'", quoted(text, strlen(text)).s);
    *out = link;
    return ECH_OK;
}

ech_status ech__cluster_of_link(ech_ctx *ctx, const char *text, int64_t node_size,
                                ech__cluster *out)
{
    ech__cluster cluster = {.devices_per_node = node_size};
    ECH_TRY(ech__link_parse(ctx, text, &cluster.inside));
    cluster.between = cluster.inside;
    *out = cluster;
    return ECH_OK;
}

/* ---- files ---- */

static ech_status read_count(ech_ctx *ctx, const ech_json *object, const char *key, int64_t max,
                             int64_t *out)
{
    ECH_TRY(ech__json_get_int(ctx, object, key, out));
    if (*out < 1 || *out > max)
        return ech__fail(ctx, ECH_E_FORMAT, "\"%s\" is %lld: it must be from 1 to %lld", key,
                         (long long)*out, (long long)max);
    return ECH_OK;
}

static ech_status read_member(ech_ctx *ctx, const ech_json *object, const quantity *what,
                              double *out)
{
    const char *text;
    ECH_TRY(ech__json_get_string(ctx, object, what->name, &text));
    return parse_quantity(ctx, what, text, strlen(text), out) < 0 ? ECH_E_FORMAT : ECH_OK;
}

static ech_status read_link(ech_ctx *ctx, const ech_json *doc, const char *key, ech__link *out)
{
    static const char *const members[] = {"bandwidth", "latency", "overhead", NULL};
    const ech_json *object;
    ECH_TRY(ech__json_get_object(ctx, doc, key, &object));
    ech_status status = ech__json_check_members(ctx, object, members);
    if (status == ECH_OK)
        status = read_member(ctx, object, &bandwidth, &out->bytes_per_s);
    if (status == ECH_OK)
        status = read_member(ctx, object, &latency, &out->latency_s);
    out->overhead_s = out->latency_s;
    if (status == ECH_OK && ech__json_find(object, overhead.name))
        status = read_member(ctx, object, &overhead, &out->overhead_s);
    if (status == ECH_OK && check_overhead(ctx, out) < 0)
        status = ECH_E_FORMAT;
    return status < 0 ? ech__fail_in(ctx, status, "\"%s\"", key) : ECH_OK;
}

static ech_status read_cluster(ech_ctx *ctx, const ech_json *doc, ech__cluster *out)
{
    static const char *const members[] = {"nodes", "devices_per_node", "inside", "between", NULL};
    if (ech__json_kind_of(doc) != ECH_JSON_OBJECT)
        return ech__fail(ctx, ECH_E_FORMAT, "a cluster must be an object, not %s",
                         ech__json_kind_name(ech__json_kind_of(doc)));
    ECH_TRY(ech__json_check_members(ctx, doc, members));
    ECH_TRY(read_count(ctx, doc, "nodes", MAX_NODES, &out->nodes));
    ECH_TRY(read_count(ctx, doc, "devices_per_node", MAX_PER_NODE, &out->devices_per_node));
    const bool no_inside = out->devices_per_node == 1 && !ech__json_find(doc, "inside");
    const bool no_between = !no_inside && out->nodes == 1 && !ech__json_find(doc, "between");
    if (!no_inside)
        ECH_TRY(read_link(ctx, doc, "inside", &out->inside));
    if (!no_between)
        ECH_TRY(read_link(ctx, doc, "between", &out->between));
    if (no_inside)
        out->inside = out->between;
    if (no_between)
        out->between = out->inside;
    return ECH_OK;
}

/* Takes doc over. */
static ech_status take(ech_ctx *ctx, const char *what, ech_json *doc, ech__cluster *out)
{
    ech__cluster cluster = {0};
    const ech_status status = read_cluster(ctx, doc, &cluster);
    ech__json_destroy(doc);
    if (status < 0)
        return ech__fail_in(ctx, status, "%s", what);
    *out = cluster;
    return ECH_OK;
}

ech_status ech__cluster_parse(ech_ctx *ctx, const char *what, const char *text, size_t bytes,
                              ech__cluster *out)
{
    ech_json *doc;
    ECH_TRY(ech__json_parse(ctx, what, text, bytes, &doc));
    return take(ctx, what, doc, out);
}

ech_status ech__cluster_load(ech_ctx *ctx, const char *path, ech__cluster *out)
{
    ech_json *doc;
    ECH_TRY(ech__json_load(ctx, path, MAX_FILE_BYTES, &doc));
    return take(ctx, path, doc, out);
}

/* ---- words and records ---- */

/* The overhead is named where it is not the latency. */
static ech__cluster_text link_text(const ech__link *link, bool has_overhead)
{
    ech__cluster_text text;
    const int used = snprintf(text.s, sizeof text.s, "%.4g GB/s, %s", link->bytes_per_s * 1e-9,
                              ech__format_seconds(link->latency_s).s);
    if (has_overhead && link->overhead_s != link->latency_s)
        snprintf(text.s + used, sizeof text.s - (size_t)used, ", %s overhead per message",
                 ech__format_seconds(link->overhead_s).s);
    return text;
}

static bool is_same(const ech__link *a, const ech__link *b)
{
    return a->bytes_per_s == b->bytes_per_s && a->latency_s == b->latency_s &&
           a->overhead_s == b->overhead_s;
}

ech__cluster_text ech__cluster_describe(const ech__cluster *c)
{
    static const char *const heads[] = {
        [ECH__LINK_GIVEN] = "given links",
        [ECH__LINK_DEVICE] = "links of the device's description",
        [ECH__LINK_MEASURED] = "this machine's memory, as measured",
        [ECH__LINK_ASSUMED] = "this machine's memory, not measured: a default of",
    };
    const bool links = c->mover == ECH__MOVER_LINKS;
    ech__cluster_text text;
    const ech__cluster_text inside = link_text(&c->inside, links),
                            between = link_text(&c->between, links);
    const char *colon = c->source == ECH__LINK_ASSUMED ? "" : ":";
    if (!c->devices_per_node)
        snprintf(text.s, sizeof text.s, "%s%s %.80s", heads[c->source], colon, inside.s);
    else if (is_same(&c->inside, &c->between))
        snprintf(text.s, sizeof text.s,
                 "%s%s %.80s; nodes of %lld devices, which share one such link to other nodes",
                 heads[c->source], colon, inside.s, (long long)c->devices_per_node);
    else
        snprintf(text.s, sizeof text.s,
                 "%s%s %.60s intra-node, %lld devices per node; %.60s inter-node", heads[c->source],
                 colon, inside.s, (long long)c->devices_per_node, between.s);
    return text;
}

static ech_json *link_json(const ech__link *link)
{
    ech_json *json = ech__json_object();
    ech__json_set_real(&json, "bytes_per_s", link->bytes_per_s);
    ech__json_set_real(&json, "latency_s", link->latency_s);
    ech__json_set_real(&json, "overhead_s", link->overhead_s);
    return json;
}

ech_json *ech__cluster_json(const ech__cluster *c)
{
    ech_json *json = ech__json_object();
    ech__json_set_string(&json, "source", ech__link_source_name(c->source));
    ech__json_set_string(&json, "moved_by", ech__mover_name(c->mover));
    ech__json_set_int(&json, "devices_per_node", c->devices_per_node);
    ech__json_set(&json, "inside", link_json(&c->inside));
    ech__json_set(&json, "between", link_json(&c->between));
    return json;
}

ech_status ech__cluster_check(ech_ctx *ctx, const ech__cluster *cluster, int64_t devices)
{
    const int64_t nodes = cluster->nodes, each = cluster->devices_per_node;
    const int64_t limit = each == 0 || nodes == 0 ? MAX_DEVICES : nodes * each;
    if (devices < 1)
        return ech__fail(ctx, ECH_E_INVALID, "%lld devices: there must be at least 1",
                         (long long)devices);
    if (devices <= limit)
        return ECH_OK;
    if (limit == MAX_DEVICES)
        return ech__fail(ctx, ECH_E_INVALID, "%lld devices: at most %lld can be priced",
                         (long long)devices, (long long)limit);
    return ech__fail(ctx, ECH_E_INVALID,
                     "%lld devices: the cluster has %lld nodes with %lld devices each, %lld in all",
                     (long long)devices, (long long)nodes, (long long)each, (long long)limit);
}
