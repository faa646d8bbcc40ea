/* steps.jsonl: which steps have a line, what a run that goes on leaves of it, and what happens when
 * the disk is full. */
#include "train/record/step_lines.h"
#include "base/file/file.h"

#include "support/cmocka_first.h"
#include "support/temp_dir.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct place {
    temp_dir dir;
    char path[TEMP_PATH];
    ech_ctx *ctx;
    char log[512]; /* the last line */
    int logged;
} place;

static void take_line(void *user, const char *line)
{
    place *p = user;
    snprintf(p->log, sizeof p->log, "%s", line);
    p->logged++;
}

static int set_up(void **state)
{
    place *p = calloc(1, sizeof *p);
    if (!p || ech_ctx_create(&(ech_ctx_options){.log = take_line, .log_user = p}, &p->ctx) < 0)
        return -1;
    p->dir = temp_dir_create();
    temp_dir_path(&p->dir, "steps.jsonl", p->path);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    place *p = *state;
    temp_dir_destroy(&p->dir);
    ech_ctx_destroy(p->ctx);
    free(p);
    return 0;
}

static void write_step(ech__step_lines *lines, int64_t step)
{
    ech_json *json = ech__json_object();
    ech__json_set_int(&json, "step", step);
    for (int64_t i = 0; i < step % 7; i++) { /* lines of different lengths */
        char key[16];
        snprintf(key, sizeof key, "field%lld", (long long)i);
        ech__json_set_real(&json, key, 0.1 * (double)step);
    }
    ech__step_lines_write(lines, step, json);
    ech__json_destroy(json);
}

static ech__step_lines open_lines(place *p, int64_t kept)
{
    ech__step_lines lines;
    assert_int_equal(ech__step_lines_open(p->ctx, &lines, p->path, kept), ECH_OK);
    return lines;
}

static void write_steps(place *p, int64_t kept, int64_t last)
{
    ech__step_lines lines = open_lines(p, kept);
    for (int64_t step = kept + 1; step <= last; step++)
        write_step(&lines, step);
    assert_int_equal(lines.last_step, last > kept ? last : 0);
    ech__step_lines_close(&lines);
}

/* The file has whole lines of the steps first to last, one after the other. */
static void assert_holds(place *p, int64_t first, int64_t last)
{
    char *text;
    size_t bytes;
    int64_t step = first;
    assert_int_equal(ech__file_read(p->ctx, p->path, 1 << 24, &text, &bytes), ECH_OK);
    for (const char *line = text; line < text + bytes; step++) {
        const char *end = strchr(line, '\n');
        assert_non_null(end);
        assert_memory_equal(line, "{\"step\":", 8);
        assert_int_equal(strtoll(line + 8, NULL, 10), step);
        assert_int_equal(end[-1], '}');
        line = end + 1;
    }
    assert_int_equal(step, last + 1);
    free(text);
}

static void append(place *p, const char *text)
{
    FILE *file = fopen(p->path, "ae");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void the_file_grows_ever_more_slowly(void **state)
{
    (void)state;
    int64_t lines = 0, details = 0;
    for (int64_t step = 1; step <= 10000000; step++) {
        lines += ech__step_has_line(step);
        details += ech__step_has_details(step);
        assert_true(!ech__step_has_details(step) || ech__step_has_line(step));
        if (step == 1000)
            assert_int_equal(details, 1000);
        if (step == 1000000)
            assert_int_equal(lines, 1000000);
    }
    assert_int_equal(lines, 1900000);
    assert_int_equal(details, 1000 + 4 * 900);
    assert_true(ech__step_has_line(100000000) && !ech__step_has_line(99999990));
}

static void a_run_that_goes_on_cuts_the_file(void **state)
{
    place *p = *state;
    write_steps(p, 0, 100);
    assert_holds(p, 1, 100);
    for (int64_t kept = 99; kept > 90; kept--) {
        write_steps(p, kept, kept);
        assert_holds(p, 1, kept);
        write_steps(p, kept, 100);
        assert_holds(p, 1, 100);
    }
    write_steps(p, 1, 1);
    assert_holds(p, 1, 1);
    write_steps(p, 0, 0); /* from the beginning: nothing is left */
    assert_holds(p, 1, 0);
}

static void a_torn_line_goes(void **state)
{
    place *p = *state;
    write_steps(p, 0, 10);
    append(p, "{\"step\":11,\"loss\":0.");
    write_steps(p, 20, 20);
    assert_holds(p, 1, 10);
    append(p, "{\"st");
    write_steps(p, 10, 12);
    assert_holds(p, 1, 12);
}

/* A shorter file, one that is not there and one of something else are no reason to fail. */
static void another_file_is_no_failure(void **state)
{
    place *p = *state;
    write_steps(p, 0, 5);
    ech__step_lines lines = open_lines(p, 50); /* records ended before the checkpoint */
    write_step(&lines, 51);
    ech__step_lines_close(&lines);
    lines = open_lines(p, 5);
    ech__step_lines_close(&lines);
    assert_holds(p, 1, 5);
    assert_int_equal(unlink(p->path), 0);
    write_steps(p, 5, 7);
    assert_holds(p, 6, 7);
    assert_int_equal(unlink(p->path), 0);
    append(p, "one thing\nand another\n");
    write_steps(p, 5, 7);
    assert_holds(p, 6, 7);
    assert_int_equal(unlink(p->path), 0);
    append(p, "{\"step\": 9, \"loss\": 1}\n"); /* of a run that was further */
    write_steps(p, 5, 7);
    assert_holds(p, 6, 7);
}

/* A few hundred bytes at each of some thirty places are read of a long file. */
static void a_long_file_is_cut_where_it_should_be(void **state)
{
    place *p = *state;
    enum { STEPS = 20000 };
    write_steps(p, 0, STEPS);
    for (int64_t kept = STEPS - 1; kept > 0; kept = kept * 2 / 3) {
        write_steps(p, kept, kept);
        assert_holds(p, 1, kept);
    }
}

/* A limit on the size of files is what a full disk is, but for the reason. */
static void a_full_disk_ends_the_lines_only(void **state)
{
    place *p = *state;
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 1000;
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    ech__step_lines lines = open_lines(p, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int64_t step = 1; step <= 200; step++)
        write_step(&lines, step);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, before);
    assert_int_equal(p->logged, 1);
    assert_non_null(strstr(p->log, p->path));
    assert_non_null(strstr(p->log, "File too large; training continues"));
    assert_true(lines.error && lines.last_step > 0 && lines.last_step < 200);
    ech__step_lines_close(&lines);
    assert_holds(p, 1, lines.last_step); /* no torn line */
}

static void a_device_that_is_full(void **state)
{
    place *p = *state;
    assert_int_equal(symlink("/dev/full", p->path), 0);
    ech__step_lines lines = open_lines(p, 3);
    write_step(&lines, 4);
    write_step(&lines, 5);
    assert_int_equal(p->logged, 1);
    assert_non_null(strstr(p->log, "No space left on device"));
    ech__step_lines_close(&lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_grows_ever_more_slowly),
        cmocka_unit_test_setup_teardown(a_run_that_goes_on_cuts_the_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_torn_line_goes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_file_is_no_failure, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_long_file_is_cut_where_it_should_be, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_ends_the_lines_only, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_device_that_is_full, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
