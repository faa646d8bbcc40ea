/* Rows of options: every column is filled in, and what a row says is what is done. */
#include "support/cmocka_first.h"
#include "train/options.h"

#include <string.h>

static const ech__option all[] = {
#define OPTION(train, bench, plan, graph, ...) ECH__IN_##train(ECH__OPTION_ROW(__VA_ARGS__))
#include "train/options.inc"
};

static const ech__command command = {
    .name = "all", .options = all, .count = sizeof all / sizeof *all};

static void test_columns(void **state)
{
    (void)state;
    size_t count;
    const ech__run_option *rows = ech__run_options(&count);
    assert_true(count > 60);
    for (size_t i = 0; i < count; i++) {
        const ech__run_option *row = &rows[i];
        const size_t length = strlen(row->option.help);
        if (!row->option.group || length < 8 || row->option.help[length - 1] != '.')
            fail_msg("--%s has no group or no help", row->option.name);
        if ((row->field != NULL) != (row->recorded != ECH__WHEN_NEVER))
            fail_msg("--%s has a field in records that is never written", row->option.name);
        if (row->agree == ECH__GIVEN && row->option.kind != ECH_OPTION_STRING)
            fail_msg("--%s is no text, which may be given or not", row->option.name);
        for (size_t k = 0; k < i; k++) {
            if (!strcmp(row->option.name, rows[k].option.name) ||
                row->option.offset == rows[k].option.offset)
                fail_msg("--%s and --%s are the same", row->option.name, rows[k].option.name);
        }
    }
}

/* Options that are not given leave a configuration as ech__run_defaults makes it. */
static void test_defaults(void **state)
{
    (void)state;
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    ech__run_config parsed = ech__run_defaults();
    const ech__run_config defaults = parsed;
    ech__option_result result;
    char *none[] = {NULL};
    assert_int_equal(ech__option_parse(ctx, &command, none, &parsed, &result), ECH_OK);
    for (size_t i = 0; i < command.count; i++) {
        const size_t at = all[i].offset;
        const bool is_int = all[i].kind == ECH_OPTION_COUNT || all[i].kind == ECH_OPTION_CHOICE;
        const bool is_bool = ech__option_is_flag(&all[i]) || all[i].kind == ECH_OPTION_SWITCH;
        if (memcmp((const char *)&parsed + at, (const char *)&defaults + at,
                   is_bool  ? sizeof(bool)
                   : is_int ? sizeof(int)
                            : sizeof(int64_t)))
            fail_msg("--%s starts with %s, which is not ech__run_defaults()'s", all[i].name,
                     all[i].initial);
    }
    ech_ctx_destroy(ctx);
}

static const char *text_of(const ech_json *json, const char *key)
{
    const char *text = "(none)";
    ech__json_string(ech__json_find(json, key), &text);
    return text;
}

static void test_record_and_terms(void **state)
{
    (void)state;
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    ech__run_config config = ech__run_defaults();
    ech__option_result result;
    char *words[] = {"--grad_dtype", "bf16",  "--bucket-mb",  "0.5",          "--recompute",
                     "off",          "--fit", "--no-shuffle", "--loss-scale", "off",
                     "--save",       "here",  "--devices",    "all",          NULL};
    assert_int_equal(ech__option_parse(ctx, &command, words, &config, &result), ECH_OK);
    assert_true(config.memory && ech__option_given(&result, "memory"));
    assert_int_equal(config.devices, -1);
    assert_true(config.train.amp.loss_scale < 0);
    ech_json *record = ech__json_object(), *resume = ech__json_object(),
             *ranks = ech__json_object(), *trainer = ech__json_object();
    ech__options_record(&config, &record);
    ech__options_terms(&config, 1, ECH__TERMS_RESUME, &resume);
    ech__options_terms(&config, 1, ECH__TERMS_RANKS, &ranks);
    ech__options_terms(&config, 1, ECH__TERMS_TRAINER, &trainer);
    int64_t bytes = 0;
    bool shuffle = true, recompute = true, saves = false;
    assert_true(ech__json_int(ech__json_find(record, "bucket_bytes"), &bytes));
    assert_int_equal(bytes, 1 << 19);
    assert_true(ech__json_bool(ech__json_find(record, "shuffle"), &shuffle) && !shuffle);
    assert_true(ech__json_bool(ech__json_find(record, "recompute"), &recompute) && !recompute);
    assert_string_equal(text_of(record, "grad_dtype"), "bf16");
    assert_string_equal(text_of(resume, "grad-dtype"), "bf16");
    assert_string_equal(text_of(resume, "loss-scale"), "off");
    assert_null(ech__json_find(resume, "no-shuffle")); /* of images */
    assert_null(ech__json_find(resume, "save"));
    assert_true(ech__json_bool(ech__json_find(ranks, "save"), &saves) && saves);
    assert_null(ech__json_find(trainer, "save"));
    assert_non_null(ech__json_find(trainer, "lr"));
    assert_null(ech__json_find(trainer, "seed"));
    ech__json_destroy(record);
    ech__json_destroy(resume);
    ech__json_destroy(ranks);
    ech__json_destroy(trainer);
    ech_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_record_and_terms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
