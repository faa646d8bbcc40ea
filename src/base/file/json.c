#include "base/file/json.h"
#include "base/file/file.h"
#include "base/names.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An ech_json is the library's own value under another name. */

static json_t *inside(const ech_json *json)
{
    return (json_t *)(uintptr_t)json;
}

static ech_json *outside(json_t *json)
{
    return (ech_json *)json;
}

/* ---- building ---- */

ech_json *ech__json_object(void)
{
    return outside(json_object());
}

ech_json *ech__json_array(void)
{
    return outside(json_array());
}

void ech__json_destroy(ech_json *json)
{
    json_decref(inside(json));
}

static json_t *make_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *make_string(const char *value)
{
    if (!value)
        return json_null();
    json_t *made = json_string(value);
    if (made)
        return made;
    char *ascii = strdup(value);
    if (!ascii)
        return NULL;
    for (char *c = ascii; *c; c++) {
        if ((unsigned char)*c > 0x7f)
            *c = '?';
    }
    made = json_string(ascii);
    free(ascii);
    return made;
}

/* Takes value over. */
static void put(ech_json **object, const char *key, json_t *value)
{
    if (!*object) {
        json_decref(value);
        return;
    }
    assert(json_is_object(inside(*object)));
    if (json_object_set_new(inside(*object), key, value) < 0) {
        json_decref(inside(*object));
        *object = NULL;
    }
}

void ech__json_set_int(ech_json **object, const char *key, int64_t value)
{
    put(object, key, json_integer(value));
}

void ech__json_set_real(ech_json **object, const char *key, double value)
{
    put(object, key, make_real(value));
}

void ech__json_set_bool(ech_json **object, const char *key, bool value)
{
    put(object, key, json_boolean(value));
}

void ech__json_set_string(ech_json **object, const char *key, const char *value)
{
    put(object, key, make_string(value));
}

void ech__json_set(ech_json **object, const char *key, ech_json *value)
{
    put(object, key, inside(value));
}

ech__json_member ech__int(const char *key, int64_t value)
{
    return (ech__json_member){key, outside(json_integer(value))};
}

ech__json_member ech__real(const char *key, double value)
{
    return (ech__json_member){key, outside(make_real(value))};
}

ech__json_member ech__bool(const char *key, bool value)
{
    return (ech__json_member){key, outside(json_boolean(value))};
}

ech__json_member ech__string(const char *key, const char *value)
{
    return (ech__json_member){key, outside(make_string(value))};
}

ech__json_member ech__ints(const char *key, const int64_t *values, size_t count)
{
    ech_json *array = ech__json_array();
    for (size_t i = 0; i < count; i++)
        ech__json_append_int(&array, values[i]);
    return (ech__json_member){key, array};
}

ech__json_member ech__reals(const char *key, const double *values, size_t count)
{
    ech_json *array = ech__json_array();
    for (size_t i = 0; i < count; i++)
        ech__json_append_real(&array, values[i]);
    return (ech__json_member){key, array};
}

ech__json_member ech__member(const char *key, ech_json *value)
{
    return (ech__json_member){key, value};
}

ech_json *ech__json_add(ech_json *object, const ech__json_member *members)
{
    for (; members->key; members++)
        ech__json_set(&object, members->key, members->value);
    return object;
}

/* Takes value over. */
static void add(ech_json **array, json_t *value)
{
    if (!*array) {
        json_decref(value);
        return;
    }
    assert(json_is_array(inside(*array)));
    if (json_array_append_new(inside(*array), value) < 0) {
        json_decref(inside(*array));
        *array = NULL;
    }
}

void ech__json_append_int(ech_json **array, int64_t value)
{
    add(array, json_integer(value));
}

void ech__json_append_real(ech_json **array, double value)
{
    add(array, make_real(value));
}

void ech__json_append_string(ech_json **array, const char *value)
{
    add(array, make_string(value));
}

void ech__json_append(ech_json **array, ech_json *value)
{
    add(array, inside(value));
}

/* ---- dumping: by hand, because the library prints every real with 17 digits ---- */

static void print_real(FILE *file, double value)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    /* Whatever the locale puts between whole part and fraction, JSON wants a point there. */
    bool is_real = false, in_point = false;
    for (const char *c = text; *c; c++) {
        const bool plain = strchr("0123456789+-e", *c) != NULL;
        if (plain)
            fputc(*c, file);
        else if (!in_point)
            fputc('.', file);
        in_point = !plain;
        is_real |= !plain || *c == 'e';
    }
    if (!is_real)
        fputs(".0", file);
}

static void print_string(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", file);
        else if (c == '\t')
            fputs("\\t", file);
        else if (c < 0x20 || c == 0x7f)
            fprintf(file, "\\u%04x", c);
        else
            fputc(c, file);
    }
    fputc('"', file);
}

static void new_line(FILE *file, ech__json_style style, int level)
{
    if (style == ECH_JSON_INDENT)
        fprintf(file, "\n%*s", 2 * level, "");
}

static void print_value(FILE *file, json_t *json, ech__json_style style, int level);

static void print_array(FILE *file, json_t *array, ech__json_style style, int level)
{
    fputc('[', file);
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (i)
            fputc(',', file);
        new_line(file, style, level + 1);
        print_value(file, json_array_get(array, i), style, level + 1);
    }
    if (json_array_size(array))
        new_line(file, style, level);
    fputc(']', file);
}

static void print_object(FILE *file, json_t *object, ech__json_style style, int level)
{
    const char *key;
    json_t *value;
    bool first = true;
    fputc('{', file);
    json_object_foreach(object, key, value)
    {
        if (!first)
            fputc(',', file);
        first = false;
        new_line(file, style, level + 1);
        print_string(file, key);
        fputs(style == ECH_JSON_INDENT ? ": " : ":", file);
        print_value(file, value, style, level + 1);
    }
    if (!first)
        new_line(file, style, level);
    fputc('}', file);
}

static void print_value(FILE *file, json_t *json, ech__json_style style, int level)
{
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        print_object(file, json, style, level);
        break;
    case JSON_ARRAY:
        print_array(file, json, style, level);
        break;
    case JSON_STRING:
        print_string(file, json_string_value(json));
        break;
    case JSON_INTEGER:
        fprintf(file, "%" JSON_INTEGER_FORMAT, json_integer_value(json));
        break;
    case JSON_REAL:
        print_real(file, json_real_value(json));
        break;
    case JSON_TRUE:
        fputs("true", file);
        break;
    case JSON_FALSE:
        fputs("false", file);
        break;
    case JSON_NULL:
        fputs("null", file);
        break;
    }
}

ech_status ech__json_dump(ech_ctx *ctx, const ech_json *json, ech__json_style style, char **out,
                          size_t *bytes)
{
    size_t size = 0;
    char *text = NULL;
    *out = NULL;
    FILE *file = json ? open_memstream(&text, &size) : NULL;
    if (!file)
        return ech__no_memory(ctx, "a JSON record");
    print_value(file, inside(json), style, 0);
    const bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) {
        free(text);
        return ech__no_memory(ctx, "the text of a JSON record");
    }
    *out = text;
    if (bytes)
        *bytes = size;
    return ECH_OK;
}

/* The text with a newline where its NUL was. */
static ech_status dump_line(ech_ctx *ctx, const ech_json *json, ech__json_style style, char **out,
                            size_t *bytes)
{
    ECH_TRY(ech__json_dump(ctx, json, style, out, bytes));
    (*out)[(*bytes)++] = '\n';
    return ECH_OK;
}

ech_status ech__json_print(ech_ctx *ctx, const ech_json *json, ech__json_style style, FILE *file)
{
    char *text;
    size_t bytes;
    ECH_TRY(dump_line(ctx, json, style, &text, &bytes));
    const bool written = fwrite(text, 1, bytes, file) == bytes && fflush(file) == 0;
    const int error = errno;
    free(text);
    return written
               ? ECH_OK
               : ech__fail(ctx, ECH_E_IO, "a JSON record cannot be written: %s", strerror(error));
}

ech_status ech__json_save(ech_ctx *ctx, const char *path, const ech_json *json,
                          ech__json_style style)
{
    char *text;
    size_t bytes;
    ECH_TRY(dump_line(ctx, json, style, &text, &bytes));
    ech_status status = ech__file_write(ctx, path, text, bytes);
    free(text);
    return status;
}

/* ---- parsing ---- */

/* Bounds depth and number of values before the library, which recurses and allocates, sees the text. What
 * else is wrong with it the library says better. */
static ech_status check_bounds(ech_ctx *ctx, const char *what, const char *text, size_t bytes)
{
    int depth = 0;
    int64_t values = 1;
    bool in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
            continue;
        }
        in_string = c == '"';
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        values += c == ',' || c == '{' || c == '[';
        if (depth > ECH_JSON_MAX_DEPTH)
            return ech__fail(ctx, ECH_E_LIMIT, "%s: byte %zu: nested deeper than %d levels", what,
                             i, ECH_JSON_MAX_DEPTH);
        if (values > ECH_JSON_MAX_VALUES)
            return ech__fail(ctx, ECH_E_LIMIT, "%s: byte %zu: more than %d values", what, i,
                             ECH_JSON_MAX_VALUES);
    }
    return ECH_OK;
}

ech_status ech__json_parse(ech_ctx *ctx, const char *what, const char *text, size_t bytes,
                           ech_json **out)
{
    *out = NULL;
    if (bytes > ECH_JSON_MAX_BYTES)
        return ech__fail(ctx, ECH_E_LIMIT, "%s: %zu bytes of JSON, the limit is %d", what, bytes,
                         ECH_JSON_MAX_BYTES);
    ECH_TRY(check_bounds(ctx, what, text, bytes));
    json_error_t error;
    json_t *json = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json && json_error_code(&error) == json_error_out_of_memory)
        return ech__no_memory(ctx, "the %zu bytes of JSON of %s", bytes, what);
    if (!json) {
        /* The library quotes the text, which may hold line ends and control characters. */
        for (char *c = error.text; *c; c++) {
            if ((unsigned char)*c < 0x20 || *c == 0x7f)
                *c = ' ';
        }
        return ech__fail(ctx, ECH_E_FORMAT, "%s: line %d, column %d: %s", what, error.line,
                         error.column, error.text);
    }
    *out = outside(json);
    return ECH_OK;
}

ech_status ech__json_load(ech_ctx *ctx, const char *path, size_t max_bytes, ech_json **out)
{
    char *text;
    size_t bytes;
    *out = NULL;
    ECH_TRY(ech__file_read(ctx, path, max_bytes, &text, &bytes));
    ech_status status = ech__json_parse(ctx, path, text, bytes, out);
    free(text);
    return status;
}

/* ---- reading ---- */

ech__json_kind ech__json_kind_of(const ech_json *json)
{
    static const ech__json_kind kinds[] = {
        [JSON_OBJECT] = ECH_JSON_OBJECT, [JSON_ARRAY] = ECH_JSON_ARRAY,
        [JSON_STRING] = ECH_JSON_STRING, [JSON_INTEGER] = ECH_JSON_INT,
        [JSON_REAL] = ECH_JSON_REAL,     [JSON_TRUE] = ECH_JSON_BOOL,
        [JSON_FALSE] = ECH_JSON_BOOL,    [JSON_NULL] = ECH_JSON_NULL,
    };
    return kinds[json_typeof(inside(json))];
}

ECH__NAMES(ech__json_kind_name, ech__json_kind, ECH_JSON_KIND_LIST)

bool ech__json_int(const ech_json *json, int64_t *out)
{
    if (!json_is_integer(inside(json)))
        return false;
    *out = json_integer_value(inside(json));
    return true;
}

bool ech__json_real(const ech_json *json, double *out)
{
    if (json_is_null(inside(json)))
        *out = NAN;
    else if (json_is_number(inside(json)))
        *out = json_number_value(inside(json));
    else
        return false;
    return true;
}

bool ech__json_bool(const ech_json *json, bool *out)
{
    if (!json_is_boolean(inside(json)))
        return false;
    *out = json_is_true(inside(json));
    return true;
}

bool ech__json_string(const ech_json *json, const char **out)
{
    if (!json_is_string(inside(json)))
        return false;
    *out = json_string_value(inside(json));
    return true;
}

const ech_json *ech__json_find(const ech_json *object, const char *key)
{
    return outside(json_object_get(inside(object), key));
}

ech_status ech__json_check_members(ech_ctx *ctx, const ech_json *object, const char *const *names)
{
    for (ech__json_iter it = ech__json_begin(object); it.key; ech__json_next(&it)) {
        size_t i = 0;
        while (names[i] && strcmp(names[i], it.key) != 0)
            i++;
        if (!names[i])
            return ech__fail(ctx, ECH_E_FORMAT, "\"%.40s\" is no member that is known here",
                             it.key);
    }
    return ECH_OK;
}

/* The error message for a key that is not there or holds something else than kind. */
static ech_status mistyped(ech_ctx *ctx, const ech_json *object, const char *key,
                           ech__json_kind kind)
{
    const ech_json *value = ech__json_find(object, key);
    if (!value)
        return ech__fail(ctx, ECH_E_FORMAT, "\"%s\" is missing", key);
    return ech__fail(ctx, ECH_E_FORMAT, "\"%s\" must be %s, not %s", key, ech__json_kind_name(kind),
                     ech__json_kind_name(ech__json_kind_of(value)));
}

ech_status ech__json_get_int(ech_ctx *ctx, const ech_json *object, const char *key, int64_t *out)
{
    return ech__json_int(ech__json_find(object, key), out)
               ? ECH_OK
               : mistyped(ctx, object, key, ECH_JSON_INT);
}

ech_status ech__json_get_real(ech_ctx *ctx, const ech_json *object, const char *key, double *out)
{
    return ech__json_real(ech__json_find(object, key), out)
               ? ECH_OK
               : mistyped(ctx, object, key, ECH_JSON_REAL);
}

ech_status ech__json_get_string(ech_ctx *ctx, const ech_json *object, const char *key,
                                const char **out)
{
    return ech__json_string(ech__json_find(object, key), out)
               ? ECH_OK
               : mistyped(ctx, object, key, ECH_JSON_STRING);
}

static ech_status get_container(ech_ctx *ctx, const ech_json *object, const char *key,
                                ech__json_kind kind, const ech_json **out)
{
    const ech_json *value = ech__json_find(object, key);
    if (!value || ech__json_kind_of(value) != kind)
        return mistyped(ctx, object, key, kind);
    *out = value;
    return ECH_OK;
}

ech_status ech__json_get_array(ech_ctx *ctx, const ech_json *object, const char *key,
                               const ech_json **out)
{
    return get_container(ctx, object, key, ECH_JSON_ARRAY, out);
}

ech_status ech__json_get_object(ech_ctx *ctx, const ech_json *object, const char *key,
                                const ech_json **out)
{
    return get_container(ctx, object, key, ECH_JSON_OBJECT, out);
}

size_t ech__json_count(const ech_json *json)
{
    return json_is_array(inside(json)) ? json_array_size(inside(json))
                                       : json_object_size(inside(json));
}

const ech_json *ech__json_at(const ech_json *array, size_t index)
{
    return outside(json_array_get(inside(array), index));
}

static void load_place(ech__json_iter *iter)
{
    iter->key = iter->place ? json_object_iter_key(iter->place) : NULL;
    iter->value = iter->place ? outside(json_object_iter_value(iter->place)) : NULL;
}

ech__json_iter ech__json_begin(const ech_json *object)
{
    ech__json_iter iter = {.object = object, .place = json_object_iter(inside(object))};
    load_place(&iter);
    return iter;
}

void ech__json_next(ech__json_iter *iter)
{
    iter->place = json_object_iter_next(inside(iter->object), iter->place);
    load_place(iter);
}
