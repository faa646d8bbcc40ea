/* JSON records: built, dumped, parsed and read. The one place that knows the JSON library.
 *
 *     ech_json *rec = ECH__JSON(ech__int("step", 3), ech__real("loss", 0.25), ech__string("model", "lenet"));
 *     ech_json *times = ech__json_array();
 *     ech__json_append_real(&times, 0.01);
 *     ech__json_set(&rec, "times", times);                  rec owns times now
 *     ech_status s = ech__json_save(ctx, "run.json", rec, ECH_JSON_INDENT);
 *     ech__json_destroy(rec);
 *
 * Building needs no checks: where memory runs out the container is destroyed and the pointer becomes NULL,
 * later calls on NULL do nothing, and dumping NULL reports it. Members keep the order they were set in;
 * setting a key again replaces its value.
 *
 *     ech_json *doc;
 *     ECH_TRY(ech__json_load(ctx, "run.json", 1 << 20, &doc));
 *     int64_t seed;
 *     s = ech__json_get_int(ctx, doc, "seed", &seed);       "seed" is missing / must be an integer, ...
 *     ech__json_destroy(doc);
 *
 * Reals are printed with the fewest digits that read back to the same bits. JSON has no infinity and no NaN:
 * such a real is written as null, and null read as a real is NaN.
 */
#pragma once

#include "base/status.h"

#include <stdio.h>

enum {
    ECH_JSON_MAX_BYTES = 128 << 20, /* of a text to parse */
    ECH_JSON_MAX_DEPTH = 32,        /* of objects and arrays inside each other */
    ECH_JSON_MAX_VALUES = 4 << 20,  /* bounds the memory that a parsed text takes */
};

typedef struct ech_json ech_json;

/* ---- building ---- */

ech_json *ech__json_object(void);
ech_json *ech__json_array(void);
/* The value and everything in it. NULL is fine. Only for what no container owns. */
void ech__json_destroy(ech_json *json);

void ech__json_set_int(ech_json **object, const char *key, int64_t value);
void ech__json_set_real(ech_json **object, const char *key, double value);
void ech__json_set_bool(ech_json **object, const char *key, bool value);
/* NULL becomes null. In text that is not UTF-8 each byte above 0x7f becomes '?'. */
void ech__json_set_string(ech_json **object, const char *key, const char *value);
/* Takes value over, also when it fails. */
void ech__json_set(ech_json **object, const char *key, ech_json *value);

/* Members of an object, and their values: a number, true or false, text, numbers[count], or what it takes over. */
typedef struct ech__json_member {
    const char *key;
    ech_json *value;
} ech__json_member;
ech__json_member ech__int(const char *key, int64_t value);
ech__json_member ech__real(const char *key, double value);
ech__json_member ech__bool(const char *key, bool value);
ech__json_member ech__string(const char *key, const char *value);
ech__json_member ech__ints(const char *key, const int64_t *values, size_t count);
ech__json_member ech__reals(const char *key, const double *values, size_t count);
ech__json_member ech__member(const char *key, ech_json *value);

/* Sets members up to one without a key; returns the object, NULL where memory ran out. */
ech_json *ech__json_add(ech_json *object, const ech__json_member *members);
#define ECH__JSON_MEMBERS(...) ((const ech__json_member[]){__VA_ARGS__, {NULL, NULL}})
/* An object with these members; the same for one that is there. */
#define ECH__JSON(...) ech__json_add(ech__json_object(), ECH__JSON_MEMBERS(__VA_ARGS__))
#define ECH__JSON_SET(object, ...)                                                                 \
    (*(object) = ech__json_add(*(object), ECH__JSON_MEMBERS(__VA_ARGS__)))

void ech__json_append_int(ech_json **array, int64_t value);
void ech__json_append_real(ech_json **array, double value);
void ech__json_append_string(ech_json **array, const char *value);
void ech__json_append(ech_json **array, ech_json *value);

/* ---- text ---- */

typedef enum ech__json_style {
    ECH_JSON_LINE,   /* compact, no newline in it */
    ECH_JSON_INDENT, /* two spaces a level */
} ech__json_style;

/* The text without a newline at its end; the caller frees it with free(). bytes may be NULL. */
ech_status ech__json_dump(ech_ctx *ctx, const ech_json *json, ech__json_style style, char **out,
                          size_t *bytes);
/* The text and a newline, flushed: one call a record makes a .jsonl file. */
ech_status ech__json_print(ech_ctx *ctx, const ech_json *json, ech__json_style style, FILE *file);
/* The text and a newline as a whole file, in place of what was there or not at all. */
ech_status ech__json_save(ech_ctx *ctx, const char *path, const ech_json *json,
                          ech__json_style style);

/* Parses an object or an array; nothing may follow it. what names the text in error messages. */
ech_status ech__json_parse(ech_ctx *ctx, const char *what, const char *text, size_t bytes,
                           ech_json **out);
ech_status ech__json_load(ech_ctx *ctx, const char *path, size_t max_bytes, ech_json **out);

/* ---- reading: what is handed out is borrowed and lives as long as the document ---- */

#define ECH_JSON_KIND_LIST(X)                                                                      \
    X(NULL, "null")                                                                                \
    X(BOOL, "true or false")                                                                       \
    X(INT, "an integer")                                                                           \
    X(REAL, "a number")                                                                            \
    X(STRING, "a string")                                                                          \
    X(ARRAY, "an array")                                                                           \
    X(OBJECT, "an object")

typedef enum ech__json_kind {
#define ECH_JSON_KIND_ENUM(id, text) ECH_JSON_##id,
    ECH_JSON_KIND_LIST(ECH_JSON_KIND_ENUM)
#undef ECH_JSON_KIND_ENUM
} ech__json_kind;

ech__json_kind ech__json_kind_of(const ech_json *json);
/* "an integer", for error messages. */
const char *ech__json_kind_name(ech__json_kind kind);

/* The value of a key that must exist with that type; otherwise the error message names the key. */
ech_status ech__json_get_int(ech_ctx *ctx, const ech_json *object, const char *key, int64_t *out);
/* Takes integers too. */
ech_status ech__json_get_real(ech_ctx *ctx, const ech_json *object, const char *key, double *out);
ech_status ech__json_get_string(ech_ctx *ctx, const ech_json *object, const char *key,
                                const char **out);
ech_status ech__json_get_array(ech_ctx *ctx, const ech_json *object, const char *key,
                               const ech_json **out);
ech_status ech__json_get_object(ech_ctx *ctx, const ech_json *object, const char *key,
                                const ech_json **out);

/* Refuses members that are not in names, which ends with NULL. */
ech_status ech__json_check_members(ech_ctx *ctx, const ech_json *object, const char *const *names);

/* NULL where object has no such key or is no object. */
const ech_json *ech__json_find(const ech_json *object, const char *key);

/* A value itself; false where it has another type. */
bool ech__json_int(const ech_json *json, int64_t *out);
bool ech__json_real(const ech_json *json, double *out);
bool ech__json_bool(const ech_json *json, bool *out);
bool ech__json_string(const ech_json *json, const char **out);

/* Members of an object or elements of an array; 0 for anything else. */
size_t ech__json_count(const ech_json *json);
/* NULL past the end. */
const ech_json *ech__json_at(const ech_json *array, size_t index);

/* The members of an object in their order, which must not change meanwhile:
 *     for (ech__json_iter it = ech__json_begin(obj); it.key; ech__json_next(&it)) use(it.key, it.value); */
typedef struct ech__json_iter {
    const char *key; /* NULL at the end */
    const ech_json *value;
    const ech_json *object;
    void *place;
} ech__json_iter;

ech__json_iter ech__json_begin(const ech_json *object);
void ech__json_next(ech__json_iter *iter);
