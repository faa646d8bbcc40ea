/* Reading records strictly: each field has a type and limits, and an unknown one is refused with its name.
 *
 *     ECH_TRY(ech__reader_fields(r, object, "title note columns rows"));
 *     ECH_TRY(ech__reader_text(r, object, "title", ECH__READER_LINE, &table->title));
 *
 * Strings are copied into the arena.
 */
#pragma once

#include "base/arena.h"
#include "base/file/json.h"

enum { ECH__READER_LINE = 300, ECH__READER_TEXT = 20000 }; /* most bytes of a string */

/* Larger numbers are mistakes and would overflow where differences are taken. */
#define ECH__READER_LARGEST 1e30

typedef struct ech__reader {
    ech_ctx *ctx;
    ech__arena *arena;
} ech__reader;

/* An object with no other fields than these, which stand in one string parted by spaces. */
ech_status ech__reader_fields(const ech__reader *r, const ech_json *object, const char *fields);

/* Strings of 1 to most bytes, without control characters; line ends only where most is above one line. */
ech_status ech__reader_text(const ech__reader *r, const ech_json *object, const char *key,
                            size_t most, const char **out);
/* A missing key or null gives fallback. */
ech_status ech__reader_text_or(const ech__reader *r, const ech_json *object, const char *key,
                               size_t most, const char *fallback, const char **out);
/* The same for a value itself; what names it. */
ech_status ech__reader_string(const ech__reader *r, const ech_json *value, const char *what,
                              size_t most, const char **out);
/* Letters, digits, '-', '_' and '.', up to 64, the first a letter or a digit. */
ech_status ech__reader_id(const ech__reader *r, const ech_json *object, const char *key,
                          const char **out);
ech_status ech__reader_id_string(const ech__reader *r, const ech_json *value, const char *what,
                                 const char **out);
/* A path below the report: no "..", no leading '/', plain characters. NULL where it is missing or null. */
ech_status ech__reader_path(const ech__reader *r, const ech_json *object, const char *key,
                            const char **out);

ech_status ech__reader_real(const ech__reader *r, const ech_json *object, const char *key,
                            double *out);
ech_status ech__reader_real_or(const ech__reader *r, const ech_json *object, const char *key,
                               double fallback, double *out);
ech_status ech__reader_number(const ech__reader *r, const ech_json *value, const char *what,
                              double *out);

/* One of the words, which stand in one string parted by spaces; its position. A missing key gives
 * fallback, unless that is negative. */
ech_status ech__reader_choice(const ech__reader *r, const ech_json *object, const char *key,
                              const char *words, int fallback, int *out);

/* A list of up to most elements; *out is NULL and *count 0 where the key is missing. */
ech_status ech__reader_list(const ech__reader *r, const ech_json *object, const char *key,
                            size_t most, const ech_json **out, size_t *count);
/* Text for a sentence: one line of plain characters, not too long. Returns out. */
const char *ech__reader_shown(const char *text, size_t length, char out[48]);
/* Zeroed, in the arena; count 0 gives a place too. */
ech_status ech__reader_array(const ech__reader *r, size_t count, size_t size, void *out);
