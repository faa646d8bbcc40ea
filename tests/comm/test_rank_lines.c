/* What a rank writes is cut into lines, and its last ones are kept. */
#include "comm/launch/rank_lines.h"
#include "support/cmocka_first.h"
#include <stdio.h>
#include <string.h>

typedef struct seen {
    char text[4 * ECH__LINE_BYTES];
    size_t used;
    int calls;
} seen;

static void see(void *user, const char *line, size_t bytes)
{
    seen *s = user;
    assert_true(bytes > 0 && line[bytes - 1] == '\n');
    assert_true(s->used + bytes < sizeof s->text);
    memcpy(s->text + s->used, line, bytes);
    s->used += bytes;
    s->text[s->used] = '\0';
    s->calls++;
}

static ech__rank_lines lines;
static seen got;
static uint64_t printed;

static int fresh(void **state)
{
    (void)state;
    memset(&lines, 0, sizeof lines);
    memset(&got, 0, sizeof got);
    printed = 0;
    return 0;
}

static void take(const char *text)
{
    ech__rank_lines_take(&lines, text, strlen(text), &printed, see, &got);
}

static const char *kept(int i)
{
    uint64_t number;
    return ech__rank_lines_get(&lines, i, &number);
}

static void lines_come_out_whole(void **state)
{
    (void)state;
    take("on");
    assert_int_equal(got.calls, 0);
    take("e\ntwo\n\nthr");
    assert_string_equal(got.text, "one\ntwo\n\n");
    assert_int_equal(got.calls, 3);
    ech__rank_lines_end(&lines, &printed, see, &got);
    assert_string_equal(got.text, "one\ntwo\n\nthr\n");
    ech__rank_lines_end(&lines, &printed, see, &got);
    assert_int_equal(got.calls, 4);
}

static void the_last_ones_are_kept(void **state)
{
    (void)state;
    assert_int_equal(ech__rank_lines_kept(&lines), 0);
    for (int i = 0; i < 25; i++) {
        char line[16];
        snprintf(line, sizeof line, "line %d\n", i);
        take(line);
        printed++; /* another rank's */
    }
    assert_int_equal(ech__rank_lines_kept(&lines), ECH__TAIL_LINES);
    assert_string_equal(kept(0), "line 15");
    assert_string_equal(kept(ECH__TAIL_LINES - 1), "line 24");
    uint64_t number;
    ech__rank_lines_get(&lines, 0, &number);
    assert_int_equal(number, 30);
}

static void long_lines_come_in_pieces(void **state)
{
    (void)state;
    static char text[2 * ECH__LINE_BYTES + 1];
    memset(text, 'x', sizeof text - 1);
    take(text);
    take("end\n");
    assert_int_equal(got.calls, 3);
    /* Nothing but the ends of the pieces is added. */
    assert_int_equal(got.used, 2 * ECH__LINE_BYTES + 3 + 3);
    assert_int_equal(strlen(kept(0)), ECH__TAIL_BYTES - 1);
}

static void of_progress_the_last_state_is_kept(void **state)
{
    (void)state;
    take("\rstep 1\rstep 2\rstep 3\r\n");
    assert_string_equal(kept(0), "step 3");
    assert_string_equal(got.text, "\rstep 1\rstep 2\rstep 3\r\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(lines_come_out_whole, fresh),
        cmocka_unit_test_setup(the_last_ones_are_kept, fresh),
        cmocka_unit_test_setup(long_lines_come_in_pieces, fresh),
        cmocka_unit_test_setup(of_progress_the_last_state_is_kept, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
