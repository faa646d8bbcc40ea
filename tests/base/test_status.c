/* Statuses, the sentence in the context, the log, and the context's memory; checked sizes beside them. */
#include "base/status.h"
#include "base/size.h"

#include "support/cmocka_first.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void every_status_has_a_name(void **state)
{
    (void)state;
    static const ech_status all[] = {
#define ROW(id, value, text) ECH_##id,
        ECH_STATUS_LIST(ROW)
#undef ROW
    };
    const size_t count = sizeof all / sizeof *all;
    for (size_t i = 0; i < count; i++) {
        assert_true(i == 0 ? all[i] == 0 : all[i] < 0);
        assert_string_not_equal(ech_status_name(all[i]), "unknown status");
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(ech_status_name(all[i]), ech_status_name(all[k]));
    }
    assert_string_equal(ech_status_name((ech_status)-99), "unknown status");
    assert_string_equal(ech_version(), ECH_VERSION);
}

static void a_context_starts_without_a_sentence(void **state)
{
    assert_string_equal(ech_ctx_error(*state), "");
    assert_string_equal(ech_ctx_error(NULL), "");
}

static void failing_writes_the_sentence(void **state)
{
    ech_ctx *ctx = *state;
    assert_int_equal(ech__fail(ctx, ECH_E_LIMIT, "--batch-size %d: must be at least %d", 0, 1),
                     ECH_E_LIMIT);
    assert_string_equal(ech_ctx_error(ctx), "--batch-size 0: must be at least 1");
    assert_int_equal(ech__fail_in(ctx, ECH_E_FORMAT, "line %d", 3), ECH_E_FORMAT);
    assert_string_equal(ech_ctx_error(ctx), "line 3: --batch-size 0: must be at least 1");
    assert_int_equal(ech__fail(ctx, ECH_E_IO, "other"), ECH_E_IO);
    assert_string_equal(ech_ctx_error(ctx), "other");
    /* Without a context only the status is left. */
    assert_int_equal(ech__fail(NULL, ECH_E_IO, "lost"), ECH_E_IO);
    assert_int_equal(ech__fail_in(NULL, ECH_E_IO, "lost"), ECH_E_IO);
}

static void missing_memory_is_named(void **state)
{
    assert_int_equal(ech__no_memory(*state, "%d layers of '%s'", 3, "net"), ECH_E_NOMEM);
    assert_string_equal(ech_ctx_error(*state), "cannot allocate memory for 3 layers of 'net'");
    assert_int_equal(ech__no_memory(NULL, "a context"), ECH_E_NOMEM);
}

static char *repeated(const char *piece, size_t times)
{
    const size_t n = strlen(piece);
    char *text = malloc(n * times + 1);
    assert_non_null(text);
    for (size_t i = 0; i < times; i++)
        memcpy(text + i * n, piece, n);
    text[n * times] = '\0';
    return text;
}

/* What was wrong with a value is seen however long it is, with or without blanks in it. */
static void long_values_are_cut(void **state)
{
    ech_ctx *ctx = *state;
    static const char reason[] = ": must be one of linear, lenet";
    static const char *const pieces[] = {"x", "many words ", "\xc3\xa4"};
    for (size_t i = 0; i < 3; i++) {
        char *text = repeated(pieces[i], 50000);
        ech__fail(ctx, ECH_E_IO, "--model %s: must be one of %s", text, "linear, lenet");
        const char *said = ech_ctx_error(ctx);
        assert_true(strlen(said) < sizeof ctx->error);
        assert_memory_equal(said, "--model ", 8);
        assert_memory_equal(said + 8, pieces[i], strlen(pieces[i]));
        assert_non_null(strstr(said, "..."));
        assert_string_equal(said + strlen(said) - strlen(reason), reason);
        ech__fail_in(ctx, ECH_E_IO, "start");
        assert_memory_equal(ech_ctx_error(ctx), "start: --model ", 15);
        free(text);
    }
    /* No character is cut in two. */
    for (const char *c = ech_ctx_error(ctx); *c; c++)
        assert_true(((unsigned char)*c == 0xc3) == ((unsigned char)c[1] == 0xa4));
    char *word = repeated("y", 5000);
    ech__fail(ctx, ECH_E_IO, "%s", word);
    assert_true(strlen(ech_ctx_error(ctx)) < 300);
    ech__fail_in(ctx, ECH_E_IO, "%s", word);
    assert_true(strlen(ech_ctx_error(ctx)) < 600);
    free(word);
}

static void a_message_is_one_line(void **state)
{
    ech_ctx *ctx = *state;
    ech__fail(ctx, ECH_E_IO, "--model %s: unknown", "a\nb\x1b[31m\tc\x7f");
    assert_string_equal(ech_ctx_error(ctx), "--model a?b?[31m?c?: unknown");
}

static ech_status answer(ech_status status, int *reached)
{
    ECH_TRY(status);
    (*reached)++;
    return ECH_OK;
}

static void try_hands_failures_up(void **state)
{
    (void)state;
    int reached = 0;
    assert_int_equal(answer(ECH_E_IO, &reached), ECH_E_IO);
    assert_int_equal(reached, 0);
    assert_int_equal(answer(ECH_OK, &reached), ECH_OK);
    assert_int_equal(reached, 1);
}

enum { SEEN = 64 };

static void remember(void *user, const char *line)
{
    char *seen = user;
    snprintf(seen + strlen(seen), SEEN - strlen(seen), "%s|", line);
}

static void the_log_gets_lines(void **state)
{
    char seen[SEEN] = "";
    const ech_ctx_options options = {.log = remember, .log_user = seen};
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(&options, &ctx), ECH_OK);
    ech__log(ctx, "step %d", 1);
    ech__log(ctx, "done");
    assert_string_equal(seen, "step 1|done|");
    ech_ctx_destroy(ctx);
    /* No log function and no context are both silence. */
    ech__log(*state, "step %d", 2);
    ech__log(NULL, "step %d", 3);
    assert_string_equal(seen, "step 1|done|");
}

/* Counts bytes in use and stops at a limit. */
typedef struct meter {
    size_t alive, limit;
} meter;

static void *meter_alloc(void *user, size_t bytes, size_t align)
{
    meter *m = user;
    (void)align;
    if (m->alive + bytes > m->limit)
        return NULL;
    m->alive += bytes;
    void *ptr = malloc(bytes);
    return ptr ? memset(ptr, 0xee, bytes) : NULL;
}

static void meter_free(void *user, void *ptr, size_t bytes)
{
    ((meter *)user)->alive -= bytes;
    free(ptr);
}

static void memory_comes_from_the_callers_allocator(void **state)
{
    (void)state;
    meter m = {.limit = sizeof(ech_ctx) + 100};
    const ech_ctx_options options = {.alloc = {meter_alloc, meter_free, &m}};
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(&options, &ctx), ECH_OK);
    uint8_t *piece = ech__new(ctx, 100);
    assert_non_null(piece);
    for (int i = 0; i < 100; i++)
        assert_int_equal(piece[i], 0);
    assert_null(ech__new(ctx, 1));
    assert_int_equal(m.alive, m.limit);
    ech__delete(ctx, piece, 100);
    ech__delete(ctx, NULL, 100);
    assert_int_equal(m.alive, sizeof(ech_ctx));
    ech_ctx_destroy(ctx);
    assert_int_equal(m.alive, 0);
    m.limit = 0;
    assert_int_equal(ech_ctx_create(&options, &ctx), ECH_E_NOMEM);
    assert_null(ctx);
    ech_ctx_destroy(NULL);
}

static void sizes_are_checked(void **state)
{
    (void)state;
    int64_t out;
    assert_true(ech__mul(INT64_MAX / 4, 4, &out));
    assert_true(out == INT64_MAX / 4 * 4);
    assert_false(ech__mul(INT64_MAX / 4 + 1, 4, &out));
    assert_true(ech__add(INT64_MAX - 1, 1, &out));
    assert_true(out == INT64_MAX);
    assert_false(ech__add(INT64_MAX, 1, &out));
    assert_int_equal(ech__round_up(0, 64), 0);
    assert_int_equal(ech__round_up(1, 64), 64);
    assert_int_equal(ech__round_up(64, 64), 64);
    assert_int_equal(ech__round_up(65, 64), 128);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_status_has_a_name),
        TEST(a_context_starts_without_a_sentence),
        TEST(failing_writes_the_sentence),
        TEST(missing_memory_is_named),
        TEST(long_values_are_cut),
        TEST(a_message_is_one_line),
        TEST(try_hands_failures_up),
        TEST(the_log_gets_lines),
        TEST(memory_comes_from_the_callers_allocator),
        TEST(sizes_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
