#include "predict/runs_table.h"

#include "base/file/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Column, least value, largest value. */
#define COLUMN_LIST(X)                                                                             \
    X(DEVICES, "devices", 1, ECH__TABLE_MAX_DEVICES)                                               \
    X(BATCH, "batch", 1, ECH__TABLE_MAX_BATCH)                                                     \
    X(SAMPLES, "samples", 1, ECH__TABLE_MAX_COUNT)                                                 \
    X(BYTES, "bytes", 0, ECH__TABLE_MAX_COUNT)                                                     \
    X(TIME, "time", ECH__TABLE_MIN_TIME, ECH__TABLE_MAX_TIME)

typedef enum column {
#define COLUMN_ENUM(id, name, min, max) COLUMN_##id,
    COLUMN_LIST(COLUMN_ENUM)
#undef COLUMN_ENUM
        COLUMNS
} column;

typedef struct column_rule {
    const char *name;
    double min, max;
} column_rule;

static const column_rule rules[COLUMNS] = {
#define COLUMN_RULE(id, name, min, max) {name, min, max},
    COLUMN_LIST(COLUMN_RULE)
#undef COLUMN_RULE
};

/* All five names, for sentences. */
#define COLUMN_NAMES "devices, batch, samples, bytes, time"

typedef struct span {
    const char *at;
    size_t bytes;
} span;

typedef struct reader {
    ech_ctx *ctx;
    const char *what;
    span left;          /* of the text */
    int line;           /* the one that was read last, from 1 */
    column of[COLUMNS]; /* by place in a line */
} reader;

/* ---- pieces of text ---- */

typedef struct quoted {
    char s[32];
} quoted;

/* The user's text in a sentence: printable and short. */
static quoted quote(span text)
{
    quoted q;
    size_t used = 0;
    for (size_t i = 0; i < text.bytes && used < 24; i++)
        q.s[used++] = text.at[i] > ' ' && text.at[i] < 0x7f ? text.at[i] : '?';
    if (text.bytes > used) {
        memcpy(q.s + used, "...", 3);
        used += 3;
    }
    q.s[used] = '\0';
    return q;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static span trim(span text)
{
    for (; text.bytes && is_blank(*text.at); text.at++)
        text.bytes--;
    while (text.bytes && is_blank(text.at[text.bytes - 1]))
        text.bytes--;
    return text;
}

/* Cuts what stands before the next mark off *text; all of it where there is none. */
static span cut(span *text, char mark)
{
    const char *end = text->bytes ? memchr(text->at, mark, text->bytes) : NULL;
    const span piece = {text->at, end ? (size_t)(end - text->at) : text->bytes};
    const size_t gone = piece.bytes + (end ? 1 : 0);
    *text = (span){text->at ? text->at + gone : NULL, text->bytes - gone};
    return piece;
}

/* The next line that holds something; an empty one at the end. */
static ech_status next_line(reader *r, span *out)
{
    *out = (span){0};
    while (r->left.bytes) {
        const span line = cut(&r->left, '\n');
        r->line++;
        if (line.bytes > ECH__TABLE_MAX_LINE)
            return ech__fail(r->ctx, ECH_E_INVALID, "%s, line %d: %zu bytes; a line may have %d",
                             r->what, r->line, line.bytes, ECH__TABLE_MAX_LINE);
        *out = trim(line);
        if (out->bytes && *out->at != '#')
            return ECH_OK;
    }
    *out = (span){0};
    return ECH_OK;
}

/* ---- header ---- */

static ech_status find_column(const reader *r, span name, column *out)
{
    for (int c = 0; c < COLUMNS; c++) {
        if (strlen(rules[c].name) == name.bytes && !memcmp(rules[c].name, name.at, name.bytes)) {
            *out = (column)c;
            return ECH_OK;
        }
    }
    return ech__fail(r->ctx, ECH_E_INVALID,
                     "%s, line %d, column %s: there is no such column; they are " COLUMN_NAMES,
                     r->what, r->line, name.bytes ? quote(name).s : "without a name");
}

static ech_status read_header(reader *r)
{
    span line;
    bool seen[COLUMNS] = {false};
    ECH_TRY(next_line(r, &line));
    if (!line.bytes)
        return ech__fail(r->ctx, ECH_E_INVALID,
                         "%s is empty; its first line must name the columns " COLUMN_NAMES,
                         r->what);
    for (int place = 0; line.bytes || place == 0; place++) {
        column c;
        const bool last = !memchr(line.at, ',', line.bytes);
        ECH_TRY(find_column(r, trim(cut(&line, ',')), &c));
        if (seen[c])
            return ech__fail(r->ctx, ECH_E_INVALID, "%s, line %d, column %s: occurs twice", r->what,
                             r->line, rules[c].name);
        seen[c] = true;
        r->of[place] = c;
        if (!last && !line.bytes)
            return find_column(r, line, &c);
    }
    for (int c = 0; c < COLUMNS; c++) {
        if (!seen[c])
            return ech__fail(r->ctx, ECH_E_INVALID,
                             "%s, line %d, column %s: is missing; needed are " COLUMN_NAMES,
                             r->what, r->line, rules[c].name);
    }
    return ECH_OK;
}

/* ---- rows ---- */

static ech_status bad_value(const reader *r, column c, span text, const char *must)
{
    return ech__fail(r->ctx, ECH_E_INVALID, "%s, line %d, column %s: %s %s", r->what, r->line,
                     rules[c].name, text.bytes ? quote(text).s : "nothing", must);
}

/* A decimal number and nothing else: no sign that is not needed, no hexadecimal, no infinity. */
static bool read_number(span text, bool whole, double *out)
{
    char digits[64];
    const char *taken = whole ? "-0123456789" : "-+.eE0123456789";
    if (!text.bytes || text.bytes >= sizeof digits)
        return false;
    memcpy(digits, text.at, text.bytes);
    digits[text.bytes] = '\0';
    if (strspn(digits, taken) != text.bytes)
        return false;
    char *end;
    *out = strtod(digits, &end);
    return end == digits + text.bytes && !isnan(*out);
}

static ech_status read_value(const reader *r, column c, span text, ech__table_row *row)
{
    double value;
    if (!read_number(text, c != COLUMN_TIME, &value))
        return bad_value(r, c, text,
                         c == COLUMN_TIME ? "is not a number of seconds" : "is not a whole number");
    if (!(value >= rules[c].min && value <= rules[c].max)) {
        char must[80];
        snprintf(must, sizeof must, "must be at least %g and at most %g", rules[c].min,
                 rules[c].max);
        return bad_value(r, c, text, must);
    }
    switch (c) {
    case COLUMN_DEVICES:
        row->devices = (int64_t)value;
        break;
    case COLUMN_BATCH:
        row->batch = (int64_t)value;
        break;
    case COLUMN_SAMPLES:
        row->samples = (int64_t)value;
        break;
    case COLUMN_BYTES:
        row->bytes = (int64_t)value;
        break;
    case COLUMN_TIME:
    case COLUMNS:
        row->time = value;
        break;
    }
    return ECH_OK;
}

static ech_status read_row(const reader *r, span line, ech__table_row *row)
{
    *row = (ech__table_row){.line = r->line};
    for (int place = 0; place < COLUMNS; place++) {
        const bool last = !line.bytes || !memchr(line.at, ',', line.bytes);
        if (last && place < COLUMNS - 1)
            return ech__fail(r->ctx, ECH_E_INVALID,
                             "%s, line %d, column %s: is missing; the line "
                             "has %d values and needs %d",
                             r->what, r->line, rules[r->of[place + 1]].name, place + 1, COLUMNS);
        if (!last && place == COLUMNS - 1)
            return ech__fail(r->ctx, ECH_E_INVALID,
                             "%s, line %d, after column %s: more than %d values", r->what, r->line,
                             rules[r->of[place]].name, COLUMNS);
        ECH_TRY(read_value(r, r->of[place], trim(cut(&line, ',')), row));
    }
    if (row->samples < row->batch * row->devices)
        return ech__fail(r->ctx, ECH_E_INVALID,
                         "%s, line %d, column samples: %lld is less than one step of %lld devices "
                         "with %lld samples each",
                         r->what, r->line, (long long)row->samples, (long long)row->devices,
                         (long long)row->batch);
    return ECH_OK;
}

static bool same_row(const ech__table_row *a, const ech__table_row *b)
{
    return a->devices == b->devices && a->batch == b->batch && a->samples == b->samples &&
           a->bytes == b->bytes && a->time == b->time;
}

static ech_status add_row(const reader *r, const ech__table_row *row, ech__table *table)
{
    if (table->count == ECH__TABLE_MAX_ROWS)
        return ech__fail(r->ctx, ECH_E_LIMIT, "%s, line %d: more than %d rows", r->what, r->line,
                         ECH__TABLE_MAX_ROWS);
    for (size_t i = 0; i < table->count; i++) {
        if (same_row(&table->row[i], row))
            return ech__fail(r->ctx, ECH_E_INVALID, "%s, line %d: is the same as line %d", r->what,
                             r->line, table->row[i].line);
    }
    table->row[table->count++] = *row;
    return ECH_OK;
}

ech_status ech__table_parse(ech_ctx *ctx, const char *what, const char *text, size_t bytes,
                            ech__table *out)
{
    reader r = {.ctx = ctx, .what = what, .left = {text, bytes}};
    out->count = 0;
    if (bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
        r.left = (span){text + 3, bytes - 3};
    ECH_TRY(read_header(&r));
    for (;;) {
        span line;
        ech__table_row row;
        ECH_TRY(next_line(&r, &line));
        if (!line.bytes)
            break;
        ECH_TRY(read_row(&r, line, &row));
        ECH_TRY(add_row(&r, &row, out));
    }
    if (!out->count)
        return ech__fail(ctx, ECH_E_INVALID, "%s, line %d: no row follows the names of the columns",
                         what, r.line);
    return ECH_OK;
}

ech_status ech__table_load(ech_ctx *ctx, const char *path, ech__table *out)
{
    char *text;
    size_t bytes;
    ECH_TRY(ech__file_read(ctx, path, (size_t)1 << 20, &text, &bytes));
    const ech_status status = ech__table_parse(ctx, path, text, bytes, out);
    free(text);
    return status;
}
