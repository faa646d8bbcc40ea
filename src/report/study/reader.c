#include "report/study/reader.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool has_word(const char *words, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = words; length && (at = strstr(at, word)) != NULL; at++) {
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    }
    return false;
}

static const char *shown(const char *text, char out[48])
{
    return ech__reader_shown(text, strlen(text), out);
}

const char *ech__reader_shown(const char *text, size_t length, char out[48])
{
    snprintf(out, 48, "%.*s", (int)(length < 47 ? length : 47), text);
    for (char *c = out; *c; c++) {
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e)
            *c = '?';
    }
    return out;
}

ech_status ech__reader_fields(const ech__reader *r, const ech_json *object, const char *fields)
{
    char text[48];
    if (ech__json_kind_of(object) != ECH_JSON_OBJECT)
        return ech__fail(r->ctx, ECH_E_FORMAT, "must be an object, not %s",
                         ech__json_kind_name(ech__json_kind_of(object)));
    for (ech__json_iter it = ech__json_begin(object); it.key; ech__json_next(&it)) {
        if (strchr(it.key, ' ') || !has_word(fields, it.key))
            return ech__fail(r->ctx, ECH_E_FORMAT, "unknown field \"%s\"; there are: %s",
                             shown(it.key, text), fields);
    }
    return ECH_OK;
}

/* ---- strings ---- */

/* Neither control characters nor the two codes that no XML may hold. */
static bool is_clean(const char *text, bool lines)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if ((*c < 0x20 && !(lines && (*c == '\n' || *c == '\t'))) || *c == 0x7f)
            return false;
        if (c[0] == 0xef && c[1] == 0xbf && (c[2] == 0xbe || c[2] == 0xbf))
            return false;
    }
    return true;
}

ech_status ech__reader_string(const ech__reader *r, const ech_json *value, const char *what,
                              size_t most, const char **out)
{
    const char *text;
    if (!ech__json_string(value, &text))
        return ech__fail(r->ctx, ECH_E_FORMAT, "%s must be a string, not %s", what,
                         ech__json_kind_name(ech__json_kind_of(value)));
    if (!*text || strlen(text) > most)
        return ech__fail(r->ctx, ECH_E_FORMAT, "%s has %zu bytes: must have from 1 to %zu", what,
                         strlen(text), most);
    if (!is_clean(text, most > ECH__READER_LINE))
        return ech__fail(r->ctx, ECH_E_FORMAT, "%s holds a control character", what);
    *out = ech__arena_printf(r->arena, "%s", text);
    return *out ? ECH_OK : ech__no_memory(r->ctx, "%s", what);
}

static const char *quoted(const char *key, char out[48])
{
    snprintf(out, 48, "\"%.40s\"", key);
    return out;
}

static ech_status missing(const ech__reader *r, const char *key)
{
    return ech__fail(r->ctx, ECH_E_FORMAT, "\"%s\" is missing", key);
}

ech_status ech__reader_text(const ech__reader *r, const ech_json *object, const char *key,
                            size_t most, const char **out)
{
    char what[48];
    const ech_json *value = ech__json_find(object, key);
    return value ? ech__reader_string(r, value, quoted(key, what), most, out) : missing(r, key);
}

ech_status ech__reader_text_or(const ech__reader *r, const ech_json *object, const char *key,
                               size_t most, const char *fallback, const char **out)
{
    const ech_json *value = ech__json_find(object, key);
    const char *text;
    *out = fallback;
    if (!value || ech__json_kind_of(value) == ECH_JSON_NULL ||
        (ech__json_string(value, &text) && !*text))
        return ECH_OK;
    return ech__reader_text(r, object, key, most, out);
}

ech_status ech__reader_id_string(const ech__reader *r, const ech_json *value, const char *what,
                                 const char **out)
{
    char text[48];
    ECH_TRY(ech__reader_string(r, value, what, 64, out));
    for (const char *c = *out; *c; c++) {
        const bool plain = isascii(*c) && isalnum((unsigned char)*c);
        if (!plain && (c == *out || !strchr("-_.", *c)))
            return ech__fail(r->ctx, ECH_E_FORMAT,
                             "%s '%s': letters, digits, '-', '_' and '.' are possible, the first "
                             "a letter or a digit",
                             what, shown(*out, text));
    }
    return ECH_OK;
}

ech_status ech__reader_id(const ech__reader *r, const ech_json *object, const char *key,
                          const char **out)
{
    char what[48];
    const ech_json *value = ech__json_find(object, key);
    return value ? ech__reader_id_string(r, value, quoted(key, what), out) : missing(r, key);
}

ech_status ech__reader_path(const ech__reader *r, const ech_json *object, const char *key,
                            const char **out)
{
    char text[48];
    ECH_TRY(ech__reader_text_or(r, object, key, ECH__READER_LINE, NULL, out));
    if (!*out)
        return ECH_OK;
    bool good = **out != '/';
    for (const char *c = *out; *c; c++) {
        const bool plain = isascii(*c) && (isalnum((unsigned char)*c) || strchr("-_./+", *c));
        const bool begins = c == *out || c[-1] == '/';
        good &= plain && !(begins && c[0] == '.' && c[1] == '.' && (c[2] == '/' || !c[2]));
    }
    return good ? ECH_OK
                : ech__fail(r->ctx, ECH_E_FORMAT,
                            "\"%s\" '%s': must be a path below the report, of letters, digits, "
                            "'-', '_', '.', '+' and '/'",
                            key, shown(*out, text));
}

/* ---- numbers ---- */

ech_status ech__reader_number(const ech__reader *r, const ech_json *value, const char *what,
                              double *out)
{
    if (!ech__json_real(value, out))
        return ech__fail(r->ctx, ECH_E_FORMAT, "%s must be a number, not %s", what,
                         ech__json_kind_name(ech__json_kind_of(value)));
    if (fabs(*out) > ECH__READER_LARGEST)
        return ech__fail(r->ctx, ECH_E_FORMAT, "%s %g: must be within %g of 0", what, *out,
                         ECH__READER_LARGEST);
    return ECH_OK;
}

ech_status ech__reader_real(const ech__reader *r, const ech_json *object, const char *key,
                            double *out)
{
    char what[48];
    const ech_json *value = ech__json_find(object, key);
    return value ? ech__reader_number(r, value, quoted(key, what), out) : missing(r, key);
}

ech_status ech__reader_real_or(const ech__reader *r, const ech_json *object, const char *key,
                               double fallback, double *out)
{
    *out = fallback;
    return ech__json_find(object, key) ? ech__reader_real(r, object, key, out) : ECH_OK;
}

/* ---- choices and lists ---- */

ech_status ech__reader_choice(const ech__reader *r, const ech_json *object, const char *key,
                              const char *words, int fallback, int *out)
{
    char what[48], text[48];
    const char *given;
    const ech_json *value = ech__json_find(object, key);
    *out = fallback;
    if (!value)
        return fallback < 0 ? missing(r, key) : ECH_OK;
    ECH_TRY(ech__reader_string(r, value, quoted(key, what), ECH__READER_LINE, &given));
    int position = 0;
    for (const char *word = words; *word; position++) {
        const size_t length = strcspn(word, " ");
        if (strlen(given) == length && !strncmp(word, given, length)) {
            *out = position;
            return ECH_OK;
        }
        word += length + (word[length] == ' ');
    }
    return ech__fail(r->ctx, ECH_E_FORMAT, "\"%s\" '%s': must be one of: %s", key,
                     shown(given, text), words + strspn(words, " "));
}

ech_status ech__reader_list(const ech__reader *r, const ech_json *object, const char *key,
                            size_t most, const ech_json **out, size_t *count)
{
    *out = NULL;
    *count = 0;
    if (!ech__json_find(object, key))
        return ECH_OK;
    ECH_TRY(ech__json_get_array(r->ctx, object, key, out));
    *count = ech__json_count(*out);
    return *count <= most ? ECH_OK
                          : ech__fail(r->ctx, ECH_E_LIMIT, "\"%s\" has %zu elements: at most %zu",
                                      key, *count, most);
}

ech_status ech__reader_array(const ech__reader *r, size_t count, size_t size, void *out)
{
    void *place = ech__arena_array(r->arena, count ? count : 1, size);
    memcpy(out, &place, sizeof place);
    return place ? ECH_OK : ech__no_memory(r->ctx, "%zu elements", count);
}
