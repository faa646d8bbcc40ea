/* JSON records: what is dumped, what reads back, what is refused and with which words. */
#include "base/file/json.h"
#include "base/file/file.h"

#include "support/cmocka_first.h"
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int setup(void **state)
{
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    *state = ctx;
    return 0;
}

static int teardown(void **state)
{
    ech_ctx_destroy(*state);
    return 0;
}

static void assert_dumps(ech_ctx *ctx, const ech_json *json, ech__json_style style,
                         const char *want)
{
    char *text;
    size_t bytes;
    assert_int_equal(ech__json_dump(ctx, json, style, &text, &bytes), ECH_OK);
    assert_string_equal(text, want);
    assert_int_equal(bytes, strlen(want));
    free(text);
}

static ech_json *example(void)
{
    ech_json *rec = ech__json_object(), *list = ech__json_array(), *inner = ech__json_object();
    ech__json_set_int(&rec, "step", INT64_MIN);
    ech__json_set_real(&rec, "loss", 0.1);
    ech__json_set_bool(&rec, "ok", true);
    ech__json_set_string(&rec, "name", "a \"b\"\\\n\t\x01");
    ech__json_append_int(&list, INT64_MAX);
    ech__json_append_real(&list, 2);
    ech__json_append_string(&list, NULL);
    ech__json_append(&list, ech__json_array());
    ech__json_set(&inner, "list", list);
    ech__json_set(&rec, "inner", inner);
    ech__json_set(&rec, "none", ech__json_object());
    return rec;
}

static void dumps_a_line(void **state)
{
    ech_json *rec = example();
    assert_dumps(*state, rec, ECH_JSON_LINE,
                 "{\"step\":-9223372036854775808,\"loss\":0.1,\"ok\":true,"
                 "\"name\":\"a \\\"b\\\"\\\\\\n\\t\\u0001\","
                 "\"inner\":{\"list\":[9223372036854775807,2.0,null,[]]},\"none\":{}}");
    ech__json_destroy(rec);
}

static void dumps_indented(void **state)
{
    ech_json *rec = ech__json_object(), *list = ech__json_array();
    ech__json_append_int(&list, 1);
    ech__json_append_int(&list, 2);
    ech__json_set_int(&rec, "a", 1);
    ech__json_set(&rec, "b", list);
    ech__json_set_int(&rec, "a", 7);
    assert_dumps(*state, rec, ECH_JSON_INDENT, "{\n  \"a\": 7,\n  \"b\": [\n    1,\n    2\n  ]\n}");
    ech__json_destroy(rec);
}

static void dump_and_parse_agree(void **state)
{
    ech_json *rec = example(), *back;
    char *text, *again;
    size_t bytes;
    assert_int_equal(ech__json_dump(*state, rec, ECH_JSON_INDENT, &text, &bytes), ECH_OK);
    assert_int_equal(ech__json_parse(*state, "text", text, bytes, &back), ECH_OK);
    assert_int_equal(ech__json_dump(*state, back, ECH_JSON_INDENT, &again, NULL), ECH_OK);
    assert_string_equal(text, again);
    free(text);
    free(again);
    ech__json_destroy(rec);
    ech__json_destroy(back);
}

static void reals_read_back_to_the_same_bits(void **state)
{
    static const double fixed[] = {0.0,
                                   -0.0,
                                   1.0 / 3,
                                   1e300,
                                   5e-324,
                                   2.2250738585072014e-308,
                                   1e15,
                                   1e16,
                                   1e17,
                                   -1e-7,
                                   123456789.123456789,
                                   0x1p-24,
                                   0x1p63,
                                   M_PI,
                                   (double)0.1f,
                                   (double)3.4028235e38f};
    uint64_t bits = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        double value, got;
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        memcpy(&value, &bits, sizeof value);
        if (i < (int)(sizeof fixed / sizeof *fixed))
            value = fixed[i];
        if (!isfinite(value))
            continue;
        ech_json *rec = ech__json_array(), *back;
        char *text;
        size_t bytes;
        ech__json_append_real(&rec, value);
        assert_int_equal(ech__json_dump(*state, rec, ECH_JSON_LINE, &text, &bytes), ECH_OK);
        assert_int_equal(ech__json_parse(*state, "real", text, bytes, &back), ECH_OK);
        assert_int_equal(ech__json_kind_of(ech__json_at(back, 0)), ECH_JSON_REAL);
        assert_true(ech__json_real(ech__json_at(back, 0), &got));
        assert_memory_equal(&got, &value, sizeof value);
        free(text);
        ech__json_destroy(rec);
        ech__json_destroy(back);
    }
}

static void non_finite_reals_become_null(void **state)
{
    ech_json *rec = ech__json_array();
    double value = 0;
    ech__json_append_real(&rec, INFINITY);
    ech__json_append_real(&rec, NAN);
    assert_dumps(*state, rec, ECH_JSON_LINE, "[null,null]");
    assert_true(ech__json_real(ech__json_at(rec, 0), &value));
    assert_true(isnan(value));
    ech__json_destroy(rec);
}

static void text_that_is_not_utf8_is_kept_readable(void **state)
{
    ech_json *rec = ech__json_array();
    ech__json_append_string(&rec, "caf\xe9");
    ech__json_append_string(&rec, "caf\xc3\xa9");
    assert_dumps(*state, rec, ECH_JSON_LINE, "[\"caf?\",\"caf\xc3\xa9\"]");
    ech__json_destroy(rec);
}

static void the_locale_does_not_matter(void **state)
{
    ech_json *rec = ech__json_array();
    ech__json_append_real(&rec, 1.5);
    ech__json_append_real(&rec, 1e300);
    const char *locales[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "C"};
    for (size_t i = 0; i < 3; i++) {
        if (setlocale(LC_NUMERIC, locales[i]))
            assert_dumps(*state, rec, ECH_JSON_LINE, "[1.5,1e+300]");
    }
    ech__json_destroy(rec);
}

static void a_failed_build_is_reported_once_at_the_end(void **state)
{
    /* A key that is not UTF-8 is refused by the library, as an allocation would be. */
    ech_json *rec = ech__json_object(), *outer = ech__json_object();
    char *text;
    ech__json_set_int(&rec, "\xff", 1);
    assert_null(rec);
    ech__json_set_int(&rec, "a", 1);
    ech__json_set(&rec, "b", ech__json_array());
    ech__json_set(&outer, "inner", rec);
    assert_null(outer);
    assert_int_equal(ech__json_dump(*state, outer, ECH_JSON_LINE, &text, NULL), ECH_E_NOMEM);
    assert_null(text);
    ech_json *list = NULL;
    ech__json_append(&list, ech__json_object());
    ech__json_append_string(&list, "x");
    assert_null(list);
    ech__json_destroy(NULL);
}

/* ---- parsing ---- */

static void refuses(ech_ctx *ctx, const char *text, ech_status code, const char *sentence)
{
    ech_json *doc = (ech_json *)(uintptr_t)1;
    assert_int_equal(ech__json_parse(ctx, "cfg", text, strlen(text), &doc), code);
    assert_null(doc);
    assert_null(strchr(ech_ctx_error(ctx), '\n'));
    assert_non_null(strstr(ech_ctx_error(ctx), sentence));
}

static void refuses_malformed_text_with_its_place(void **state)
{
    refuses(*state, "", ECH_E_FORMAT,
            "cfg: line 1, column 0: '[' or '{' expected near end of file");
    refuses(*state, "{\"a\": 1,\n \"b\" 2}", ECH_E_FORMAT,
            "cfg: line 2, column 6: ':' expected near '2'");
    refuses(*state, "{\"a\":1} x", ECH_E_FORMAT, "end of file expected");
    refuses(*state, "{\"a\":1,\"a\":2}", ECH_E_FORMAT, "duplicate object key");
    refuses(*state, "[1e999]", ECH_E_FORMAT, "real number overflow");
    refuses(*state, "[9223372036854775808]", ECH_E_FORMAT, "too big integer");
    refuses(*state, "[\"\\u0000\"]", ECH_E_FORMAT, "\\u0000");
    refuses(*state, "[\"\xff\"]", ECH_E_FORMAT, "unable to decode byte 0xff");
    refuses(*state, "[\"open", ECH_E_FORMAT, "premature end of input");
    refuses(*state, "[\"a\n\"]", ECH_E_FORMAT, "line 1");
    refuses(*state, "7", ECH_E_FORMAT, "expected near '7'");
    refuses(*state, "[NaN]", ECH_E_FORMAT, "invalid token near 'NaN'");
}

static void nesting(ech_ctx *ctx, int depth, ech_status want)
{
    char text[256];
    ech_json *doc;
    memset(text, '[', (size_t)depth);
    memset(text + depth, ']', (size_t)depth);
    assert_int_equal(ech__json_parse(ctx, "deep", text, 2 * (size_t)depth, &doc), want);
    ech__json_destroy(doc);
}

static void bounds_nesting(void **state)
{
    nesting(*state, ECH_JSON_MAX_DEPTH, ECH_OK);
    nesting(*state, ECH_JSON_MAX_DEPTH + 1, ECH_E_LIMIT);
    assert_string_equal(ech_ctx_error(*state), "deep: byte 32: nested deeper than 32 levels");
    /* Brackets in strings are text. */
    ech_json *doc;
    const char *text = "[\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[ \\\" [[[[\"]";
    assert_int_equal(ech__json_parse(*state, "text", text, strlen(text), &doc), ECH_OK);
    ech__json_destroy(doc);
}

static void bounds_the_number_of_values(void **state)
{
    const size_t bytes = 2 * (size_t)ECH_JSON_MAX_VALUES + 4;
    char *text = malloc(bytes);
    ech_json *doc;
    text[0] = '[';
    for (size_t i = 1; i < bytes; i++)
        text[i] = i % 2 ? '1' : ',';
    text[bytes - 1] = ']';
    assert_int_equal(ech__json_parse(*state, "long", text, bytes, &doc), ECH_E_LIMIT);
    assert_non_null(strstr(ech_ctx_error(*state), "more than 4194304 values"));
    free(text);
}

static void bounds_the_bytes(void **state)
{
    ech_json *doc;
    assert_int_equal(ech__json_parse(*state, "big", NULL, (size_t)ECH_JSON_MAX_BYTES + 1, &doc),
                     ECH_E_LIMIT);
    assert_string_equal(ech_ctx_error(*state),
                        "big: 134217729 bytes of JSON, the limit is 134217728");
}

static ech_json *parse(ech_ctx *ctx, const char *text)
{
    ech_json *doc;
    assert_int_equal(ech__json_parse(ctx, "text", text, strlen(text), &doc), ECH_OK);
    return doc;
}

static void getters_give_values(void **state)
{
    ech_ctx *ctx = *state;
    ech_json *doc =
        parse(ctx, "{\"i\":-3,\"r\":0.5,\"t\":true,\"s\":\"x\",\"a\":[1,2],\"o\":{\"k\":null}}");
    int64_t i;
    double r;
    bool t;
    const char *s;
    const ech_json *a, *o;
    assert_int_equal(ech__json_get_int(ctx, doc, "i", &i), ECH_OK);
    assert_int_equal(i, -3);
    assert_int_equal(ech__json_get_real(ctx, doc, "r", &r), ECH_OK);
    assert_true(r == 0.5);
    assert_int_equal(ech__json_get_real(ctx, doc, "i", &r), ECH_OK);
    assert_true(r == -3);
    assert_true(ech__json_bool(ech__json_find(doc, "t"), &t) && t);
    assert_false(ech__json_bool(ech__json_find(doc, "i"), &t));
    assert_int_equal(ech__json_get_string(ctx, doc, "s", &s), ECH_OK);
    assert_string_equal(s, "x");
    assert_int_equal(ech__json_get_array(ctx, doc, "a", &a), ECH_OK);
    assert_int_equal(ech__json_count(a), 2);
    assert_true(ech__json_int(ech__json_at(a, 1), &i));
    assert_int_equal(i, 2);
    assert_null(ech__json_at(a, 2));
    assert_int_equal(ech__json_get_object(ctx, doc, "o", &o), ECH_OK);
    assert_int_equal(ech__json_count(o), 1);
    assert_int_equal(ech__json_kind_of(ech__json_find(o, "k")), ECH_JSON_NULL);
    assert_null(ech__json_find(o, "none"));
    assert_null(ech__json_find(a, "none"));
    ech__json_destroy(doc);
}

static void getters_name_the_key(void **state)
{
    ech_ctx *ctx = *state;
    ech_json *doc = parse(ctx, "{\"i\":1.5,\"s\":[]}");
    int64_t i = 42;
    double r;
    const char *s;
    const ech_json *o;
    assert_int_equal(ech__json_get_int(ctx, doc, "seed", &i), ECH_E_FORMAT);
    assert_string_equal(ech_ctx_error(ctx), "\"seed\" is missing");
    assert_int_equal(ech__json_get_int(ctx, doc, "i", &i), ECH_E_FORMAT);
    assert_string_equal(ech_ctx_error(ctx), "\"i\" must be an integer, not a number");
    assert_int_equal(i, 42);
    assert_int_equal(ech__json_get_real(ctx, doc, "s", &r), ECH_E_FORMAT);
    assert_string_equal(ech_ctx_error(ctx), "\"s\" must be a number, not an array");
    assert_int_equal(ech__json_get_string(ctx, doc, "s", &s), ECH_E_FORMAT);
    assert_string_equal(ech_ctx_error(ctx), "\"s\" must be a string, not an array");
    assert_int_equal(ech__json_get_object(ctx, doc, "s", &o), ECH_E_FORMAT);
    assert_string_equal(ech_ctx_error(ctx), "\"s\" must be an object, not an array");
    assert_int_equal(ech__json_get_array(ctx, doc, "i", &o), ECH_E_FORMAT);
    assert_string_equal(ech_ctx_error(ctx), "\"i\" must be an array, not a number");
    ech__json_destroy(doc);
}

static void iterates_in_order(void **state)
{
    ech_json *doc = parse(*state, "{\"z\":0,\"a\":1,\"m\":2}"), *none = parse(*state, "{}");
    const char *keys = "zam";
    int64_t n = 0, value;
    for (ech__json_iter it = ech__json_begin(doc); it.key; ech__json_next(&it), n++) {
        assert_int_equal(it.key[0], keys[n]);
        assert_true(ech__json_int(it.value, &value));
        assert_int_equal(value, n);
    }
    assert_int_equal(n, 3);
    assert_null(ech__json_begin(none).key);
    ech__json_destroy(doc);
    ech__json_destroy(none);
}

static void saves_and_loads(void **state)
{
    ech_ctx *ctx = *state;
    char dir[] = "/tmp/ech_json_XXXXXX", path[64], *text;
    size_t bytes;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/run.json", dir);
    ech_json *rec = ech__json_object(), *back;
    ech__json_set_int(&rec, "a", 1);
    assert_int_equal(ech__json_save(ctx, path, rec, ECH_JSON_LINE), ECH_OK);
    assert_int_equal(ech__file_read(ctx, path, 100, &text, &bytes), ECH_OK);
    assert_string_equal(text, "{\"a\":1}\n");
    free(text);
    assert_int_equal(ech__json_load(ctx, path, 8, &back), ECH_OK);
    ech__json_destroy(back);
    assert_int_equal(ech__json_load(ctx, path, 7, &back), ECH_E_LIMIT);
    assert_null(back);
    assert_int_equal(ech__json_save(ctx, dir, rec, ECH_JSON_LINE), ECH_E_IO);
    unlink(path);
    rmdir(dir);
    ech__json_destroy(rec);
}

static void prints_one_line_per_record(void **state)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    ech_json *rec = ech__json_object();
    ech__json_set_int(&rec, "a", 1);
    assert_int_equal(ech__json_print(*state, rec, ECH_JSON_LINE, file), ECH_OK);
    assert_int_equal(ech__json_print(*state, rec, ECH_JSON_LINE, file), ECH_OK);
    assert_string_equal(text, "{\"a\":1}\n{\"a\":1}\n");
    fclose(file);
    free(text);
    FILE *full = fopen("/dev/full", "w");
    assert_int_equal(ech__json_print(*state, rec, ECH_JSON_LINE, full), ECH_E_IO);
    assert_string_equal(ech_ctx_error(*state),
                        "a JSON record cannot be written: No space left on device");
    fclose(full);
    ech__json_destroy(rec);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(dumps_a_line),
        TEST(dumps_indented),
        TEST(dump_and_parse_agree),
        TEST(reals_read_back_to_the_same_bits),
        TEST(non_finite_reals_become_null),
        TEST(text_that_is_not_utf8_is_kept_readable),
        TEST(the_locale_does_not_matter),
        TEST(a_failed_build_is_reported_once_at_the_end),
        TEST(refuses_malformed_text_with_its_place),
        TEST(bounds_nesting),
        TEST(bounds_the_number_of_values),
        TEST(bounds_the_bytes),
        TEST(getters_give_values),
        TEST(getters_name_the_key),
        TEST(iterates_in_order),
        TEST(saves_and_loads),
        TEST(prints_one_line_per_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
