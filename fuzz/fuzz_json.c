/* Any bytes as JSON: either a sentence on one line, or a document whose text reads back to the same text. */
#include "base/file/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

/* Visits every value through the reading interface. */
static void walk(const ech_json *json)
{
    int64_t whole;
    double real;
    bool truth;
    const char *text;
    const int kinds =
        ech__json_int(json, &whole) + ech__json_bool(json, &truth) + ech__json_string(json, &text);
    must(kinds <= 1);
    (void)ech__json_real(json, &real);
    size_t members = 0;
    for (ech__json_iter it = ech__json_begin(json); it.key; ech__json_next(&it), members++) {
        must(ech__json_find(json, it.key) == it.value);
        walk(it.value);
    }
    if (ech__json_kind_of(json) == ECH_JSON_OBJECT)
        must(members == ech__json_count(json));
    for (size_t i = 0; ech__json_at(json, i); i++)
        walk(ech__json_at(json, i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ech_ctx *ctx;
    ech_json *doc, *again;
    char *first, *second;
    size_t bytes;
    must(ech_ctx_create(NULL, &ctx) == ECH_OK);
    if (ech__json_parse(ctx, "input", (const char *)data, size, &doc) < 0) {
        must(doc == NULL && ech_ctx_error(ctx)[0] && !strchr(ech_ctx_error(ctx), '\n'));
    } else {
        walk(doc);
        const ech__json_style style = size % 2 ? ECH_JSON_LINE : ECH_JSON_INDENT;
        must(ech__json_dump(ctx, doc, style, &first, &bytes) == ECH_OK);
        must(ech__json_parse(ctx, "text", first, bytes, &again) == ECH_OK);
        must(ech__json_dump(ctx, again, style, &second, NULL) == ECH_OK);
        must(!strcmp(first, second));
        free(first);
        free(second);
        ech__json_destroy(again);
        ech__json_destroy(doc);
    }
    ech_ctx_destroy(ctx);
    return 0;
}
