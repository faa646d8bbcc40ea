/* Reading records: what is taken, what is refused and with which words. */
#include "report/study/records.h"

#include "support/cmocka_first.h"
#include <math.h>
#include <stdio.h>
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

static ech__book *new_book(ech_ctx *ctx)
{
    ech__book *book;
    assert_int_equal(ech__book_create(ctx, &book), ECH_OK);
    return book;
}

#define HEAD                                                                                       \
    "\"format\":1,\"id\":\"s\",\"title\":\"T\",\"group\":\"A\",\"about\":\"a\",\"command\":\"c\""

/* A study with further fields, which begin with a comma. */
static ech_status parse(ech__book *book, const char *fields, ech__study *out)
{
    char text[4096];
    const int length = snprintf(text, sizeof text, "{" HEAD "%s}", fields);
    assert_in_range(length, 1, sizeof text - 1);
    return ech__study_parse(book, "studies/s.json", text, (size_t)length, "s", out);
}

static void assert_refused(ech_ctx *ctx, const char *fields, const char *sentence)
{
    ech__book *book = new_book(ctx);
    ech__study study;
    assert_true(parse(book, fields, &study) < 0);
    if (!strstr(ech_ctx_error(ctx), sentence))
        fail_msg("'%s' does not say '%s'", ech_ctx_error(ctx), sentence);
    assert_null(strchr(ech_ctx_error(ctx), '\n'));
    ech__book_destroy(book);
}

/* ---- studies ---- */

static void cells_are_of_all_sorts(void **state)
{
    ech__book *book = new_book(*state);
    ech__study s;
    assert_int_equal(
        parse(
            book,
            ",\"runs\":[{\"id\":\"r1\",\"status\":\"done\",\"record\":\"runs/r1\"}],\"tables\":["
            "{\"title\":\"t\",\"columns\":[{\"name\":\"a\"},{\"name\":\"b\",\"align\":\"left\"},"
            "{\"name\":\"c\",\"format\":\"fixed2\",\"unit\":\"ms\"},{\"name\":\"d\"}],\"rows\":[[1,"
            "\"x\",{\"value\":2.5,\"low\":2,\"high\":3,\"clock\":\"emulated\",\"note\":\"n\","
            "\"run\":\"r1\"},null]]}]",
            &s),
        ECH_OK);
    assert_int_equal(s.ntables, 1);
    const ech__cell *c = s.tables[0].cells;
    assert_true(c[0].kind == ECH__CELL_NUMBER && c[0].value == 1 && isnan(c[0].low));
    assert_true(c[1].kind == ECH__CELL_TEXT && !strcmp(c[1].text, "x"));
    assert_true(c[2].value == 2.5 && c[2].low == 2 && c[2].high == 3);
    assert_int_equal(c[2].basis, ECH__BASIS_EMULATED);
    assert_string_equal(c[2].run, "r1");
    assert_int_equal(c[3].kind, ECH__CELL_EMPTY);
    assert_int_equal(s.tables[0].columns[1].align, ECH__ALIGN_LEFT);
    assert_int_equal(s.tables[0].columns[0].align, ECH__ALIGN_RIGHT);
    assert_string_equal(s.tables[0].columns[2].unit, "ms");
    ech__book_destroy(book);
}

static void answers_take_their_numbers_from_figures(void **state)
{
    ech__book *book = new_book(*state);
    ech__study s;
    char text[400] = "";
    assert_int_equal(
        parse(book,
              ",\"answers\":[{\"question\":\"Q?\",\"text\":\"{a} of {{x}}, {a.low} to {a.high}; "
              "{b}\","
              "\"figures\":[{\"name\":\"a\",\"value\":1.816,\"low\":1.7,\"high\":1.9,\"format\":"
              "\"fixed2\",\"unit\":\"ms\",\"source\":\"run.json\"},{\"name\":\"b\",\"value\":"
              "\"rank 1\"}]}]",
              &s),
        ECH_OK);
    for (size_t i = 0; i < s.answers[0].npieces; i++)
        strcat(text, s.answers[0].pieces[i].text);
    assert_string_equal(text, "1.82\xc2\xa0ms of {x}, 1.70\xc2\xa0ms to 1.90\xc2\xa0ms; rank 1");
    assert_string_equal(s.answers[0].pieces[0].figure->source, "run.json");
    ech__book_destroy(book);
}

static void slips_in_a_study_are_named(void **state)
{
    ech_ctx *ctx = *state;
    assert_refused(ctx, ",\"tabels\":[]", "studies/s.json: unknown field \"tabels\"");
    assert_refused(ctx, ",\"tables\":[{\"title\":\"t\"}]",
                   "tables[0]: a table without \"columns\"");
    assert_refused(
        ctx, ",\"tables\":[{\"title\":\"t\",\"columns\":[{\"name\":\"a\"}],\"rows\":[[1,2]]}]",
        "tables[0]: rows[0]: must be an array of 1 cells");
    assert_refused(
        ctx, ",\"tables\":[{\"title\":\"t\",\"columns\":[{\"name\":\"a\",\"format\":\"f\"}]}]",
        "columns[0]: format 'f': there are");
    assert_refused(ctx,
                   ",\"tables\":[{\"title\":\"t\",\"columns\":[{\"name\":\"a\"}],\"rows\":[[{"
                   "\"value\":1,\"low\":0}]]}]",
                   "rows[0]: cell 1: \"low\" and \"high\" must both be there");
    assert_refused(ctx,
                   ",\"tables\":[{\"title\":\"t\",\"columns\":[{\"name\":\"a\"}],\"rows\":[[{"
                   "\"value\":1,\"run\":\"x\"}]]}]",
                   "there is no run x");
    assert_refused(ctx, ",\"runs\":[{\"id\":\"r\",\"status\":\"failed\"}]",
                   "\"reason\" must say why");
    assert_refused(ctx, ",\"runs\":[{\"id\":\"r\",\"status\":\"gone\"}]",
                   "'gone': must be one of: done reused failed skipped");
    assert_refused(
        ctx, ",\"runs\":[{\"id\":\"r\",\"status\":\"done\"},{\"id\":\"r\",\"status\":\"done\"}]",
        "runs[1]: there are two runs r");
    assert_refused(ctx, ",\"answers\":[{\"question\":\"q\",\"text\":\"{x}\"}]",
                   "{x}, which is no figure");
    assert_refused(ctx, ",\"answers\":[{\"question\":\"q\",\"text\":\"a } b\"}]",
                   "names no figure");
    assert_refused(ctx,
                   ",\"answers\":[{\"question\":\"q\",\"text\":\"{a.low}\",\"figures\":[{\"name\":"
                   "\"a\",\"value\":1}]}]",
                   "{a.low}, which is no figure");
    assert_refused(ctx, ",\"answers\":[{\"question\":\"a\\u0007\",\"text\":\"t\"}]",
                   "\"question\" holds a control character");
}

/* Records are linked from the page: nothing may lead out of the report. */
static void paths_stay_below_the_report(void **state)
{
    static const char *const wrong[] = {"/etc/passwd",         "../x", "a/../b", "a/..",
                                        "javascript:alert(1)", "a b"};
    char fields[256];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(fields, sizeof fields,
                 ",\"runs\":[{\"id\":\"r\",\"status\":\"done\",\"record\":\"%s\"}]", wrong[i]);
        assert_refused(*state, fields, "must be a path below the report");
    }
    ech__book *book = new_book(*state);
    ech__study s;
    assert_int_equal(
        parse(book, ",\"runs\":[{\"id\":\"r\",\"status\":\"done\",\"record\":\"runs/a..b/c+1\"}]",
              &s),
        ECH_OK);
    ech__book_destroy(book);
}

#define AXES "\"title\":\"p\",\"x\":{\"label\":\"x\"},\"y\":{\"label\":\"y\"}"

static void slips_in_a_plot_are_named(void **state)
{
    ech_ctx *ctx = *state;
    assert_refused(ctx, ",\"plots\":[{\"kind\":\"pie\"}]",
                   "plots[0]: \"kind\" 'pie': must be one of: lines");
    assert_refused(ctx, ",\"plots\":[{\"kind\":\"lines\"," AXES ",\"panels\":[]}]",
                   "unknown field \"panels\"");
    assert_refused(ctx, ",\"plots\":[{\"kind\":\"lines\"," AXES "}]",
                   "\"series\" is missing or empty");
    assert_refused(ctx, ",\"plots\":[{\"kind\":\"lines\"," AXES ",\"series\":[{\"name\":\"s\"}]}]",
                   "series[0]: either \"points\" or \"from\"");
    assert_refused(ctx,
                   ",\"plots\":[{\"kind\":\"lines\"," AXES
                   ",\"series\":[{\"name\":\"s\",\"points\":[[1,2,3]]}]}]",
                   "points[0]: a point must be [x, y]");
    assert_refused(ctx,
                   ",\"plots\":[{\"kind\":\"lines\"," AXES
                   ",\"series\":[{\"name\":\"s\",\"points\":[[1,1e99]]}]}]",
                   "must be within 1e+30 of 0");
    assert_refused(ctx,
                   ",\"plots\":[{\"kind\":\"steps\"," AXES
                   ",\"series\":[{\"name\":\"s\",\"from\":{\"run\":\"r\",\"y\":\"t\"}}]}]",
                   "there is no run r");
    assert_refused(ctx,
                   ",\"plots\":[{\"kind\":\"bars\",\"title\":\"p\",\"y\":{\"label\":\"y\"},"
                   "\"categories\":[\"a\",\"b\"],"
                   "\"series\":[{\"name\":\"s\",\"values\":[1]}]}]",
                   "\"values\" has 1 elements: must have 2");
    assert_refused(ctx,
                   ",\"plots\":[{\"kind\":\"stacked\",\"title\":\"p\",\"y\":{\"label\":\"y\"},"
                   "\"categories\":[\"a\"],"
                   "\"series\":[{\"name\":\"s\",\"values\":[-1]}]}]",
                   "a part cannot be below 0");
    assert_refused(ctx,
                   ",\"plots\":[{\"kind\":\"lines\",\"title\":\"p\",\"x\":{\"label\":\"x\","
                   "\"scale\":\"log2\",\"min\":0},"
                   "\"y\":{\"label\":\"y\"}}]",
                   "x: a logarithmic axis cannot begin or end at 0");
    assert_refused(ctx,
                   ",\"plots\":[{\"kind\":\"histogram\"," AXES
                   ",\"panels\":[{\"name\":\"n\",\"from\":1,\"to\":1,\"counts\":[1]}]}]",
                   "panels[0]: \"from\" must be below \"to\"");
}

/* ---- lab.json ---- */

static void assert_lab_refused(ech_ctx *ctx, const char *text, const char *sentence)
{
    ech__book *book = new_book(ctx);
    assert_true(ech__book_parse(book, "lab.json", text, strlen(text)) < 0);
    if (!strstr(ech_ctx_error(ctx), sentence))
        fail_msg("'%s' does not say '%s'", ech_ctx_error(ctx), sentence);
    ech__book_destroy(book);
}

#define LAB "\"title\":\"t\",\"profile\":\"quick\",\"date\":\"d\",\"command\":\"c\""

static void slips_in_a_lab_are_named(void **state)
{
    ech_ctx *ctx = *state;
    assert_lab_refused(ctx, "{\"format\":2}", "lab.json: \"format\" 2: this version reads 1");
    assert_lab_refused(ctx, "{\"format\":1", "lab.json: line 1");
    assert_lab_refused(ctx, "[]", "must be an object, not an array");
    assert_lab_refused(ctx, "{\"format\":1," LAB "}", "\"studies\" names no study");
    assert_lab_refused(ctx, "{\"format\":1," LAB ",\"studies\":[\"a\",\"a\"]}", "a is named twice");
    assert_lab_refused(ctx, "{\"format\":1," LAB ",\"studies\":[\"../a\"]}", "letters, digits");
    assert_lab_refused(ctx, "{\"format\":1," LAB ",\"seeds\":[0.5],\"studies\":[\"a\"]}",
                       "seeds[0] must be an integer");
}

/* ---- records of runs ---- */

static void steps_are_read_line_by_line(void **state)
{
    static const char text[] =
        "{\"step\":1,\"time_s\":0.5,\"other\":[]}\n{\"step\":2,\"time_s\":null}\n"
        "{\"step\":3,\"time_s\":0.25}\n{\"step\":4,\"ti";
    ech__book *book = new_book(*state);
    ech__plot_series s = {.from = {.run = "r", .x = "step", .y = "time_s", .scale = 1000}};
    assert_int_equal(ech__steps_parse(book, "steps.jsonl", text, sizeof text - 1, &s), ECH_OK);
    assert_int_equal(s.count, 3);
    assert_true(s.points[0].x == 1 && s.points[0].y == 500 && isnan(s.points[1].y) &&
                s.points[2].y == 250);
    static const char torn[] =
        "{\"step\":1,\"time_s\":0.5}\n{\"step\":2,\n{\"step\":3,\"time_s\":1}\n";
    assert_true(ech__steps_parse(book, "steps.jsonl", torn, sizeof torn - 1, &s) < 0);
    assert_non_null(strstr(ech_ctx_error(*state), "steps.jsonl: line 2"));
    static const char other[] = "{\"step\":1}\n";
    assert_true(ech__steps_parse(book, "steps.jsonl", other, sizeof other - 1, &s) < 0);
    assert_string_equal(ech_ctx_error(*state), "steps.jsonl: line 1: \"time_s\" is missing");
    assert_true(ech__steps_parse(book, "steps.jsonl", "", 0, &s) < 0);
    assert_string_equal(ech_ctx_error(*state), "steps.jsonl: there is no step in it");
    ech__book_destroy(book);
}

static void epochs_are_numbered(void **state)
{
    static const char text[] = "{\"summary\":{\"epochs\":[{\"accuracy\":0.4},{\"accuracy\":0.5}]}}";
    ech__book *book = new_book(*state);
    ech__plot_series s = {
        .from = {.run = "r", .epochs = true, .x = "epoch", .y = "accuracy", .scale = 100}};
    assert_int_equal(ech__epochs_parse(book, "run.json", text, sizeof text - 1, &s), ECH_OK);
    assert_int_equal(s.count, 2);
    assert_true(s.points[1].x == 2 && s.points[1].y == 50);
    assert_true(ech__epochs_parse(book, "run.json", "{\"summary\":{}}", 14, &s) < 0);
    assert_string_equal(ech_ctx_error(*state), "run.json: \"epochs\" is missing");
    ech__book_destroy(book);
}

static const char trace_text[] =
    "[{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,\"args\":{\"name\":\"rank 1\"}},"
    "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,\"args\":{\"name\":\"device 1\"}},"
    "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{\"name\":\"device 0\"}},"
    "{\"name\":\"step 1\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"cat\":\"step\",\"ts\":0,\"dur\":900},"
    "{\"name\":\"step "
    "2\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"cat\":\"step\",\"ts\":1000,\"dur\":900},"
    "{\"name\":\"step "
    "2\",\"ph\":\"X\",\"pid\":1,\"tid\":0,\"cat\":\"step\",\"ts\":1010,\"dur\":990},"
    "{\"name\":\"old\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"cat\":\"forward\",\"ts\":10,\"dur\":500},"
    "{\"name\":\"part\",\"ph\":\"X\",\"pid\":1,\"tid\":0,\"cat\":\"part\",\"ts\":1100,\"dur\":400},"
    "{\"name\":\"inner\",\"ph\":\"X\",\"pid\":1,\"tid\":0,\"cat\":\"forward\",\"ts\":1150,\"dur\":"
    "100},"
    "{\"name\":\"next\",\"ph\":\"X\",\"pid\":1,\"tid\":0,\"cat\":\"backward\",\"ts\":1500,\"dur\":"
    "900},"
    "{\"name\":\"zero\",\"ph\":\"X\",\"pid\":0,\"tid\":0,\"cat\":\"forward\",\"ts\":1200,\"dur\":"
    "200}]";

static void a_step_is_cut_out_of_a_trace(void **state)
{
    ech__book *book = new_book(*state);
    ech__plot_trace t = {.step = 2};
    assert_int_equal(ech__trace_parse(book, "trace.json", trace_text, sizeof trace_text - 1, &t),
                     ECH_OK);
    assert_true(fabs(t.seconds - 1e-3) < 1e-12);
    assert_int_equal(t.nlanes, 2);
    assert_string_equal(t.lanes[0], "device 0");
    assert_string_equal(t.lanes[1], "device 1");
    assert_int_equal(t.count, 4);
    assert_string_equal(t.spans[1].name, "part");
    assert_string_equal(t.spans[2].name, "inner");
    assert_int_equal(t.spans[1].level, 0);
    assert_int_equal(t.spans[2].level, 1); /* inside of the part */
    assert_int_equal(t.spans[3].level, 0);
    assert_true(fabs(t.spans[3].end - 1e-3) < 1e-12); /* cut at the end of the step */
    assert_int_equal(t.levels[0], 1);
    assert_int_equal(t.levels[1], 2);
    t.step = 9;
    assert_true(ech__trace_parse(book, "trace.json", trace_text, sizeof trace_text - 1, &t) < 0);
    assert_string_equal(ech_ctx_error(*state), "trace.json: there is no step 9 in it");
    ech__book_destroy(book);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cells_are_of_all_sorts, setup, teardown),
        cmocka_unit_test_setup_teardown(answers_take_their_numbers_from_figures, setup, teardown),
        cmocka_unit_test_setup_teardown(slips_in_a_study_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(paths_stay_below_the_report, setup, teardown),
        cmocka_unit_test_setup_teardown(slips_in_a_plot_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(slips_in_a_lab_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(steps_are_read_line_by_line, setup, teardown),
        cmocka_unit_test_setup_teardown(epochs_are_numbered, setup, teardown),
        cmocka_unit_test_setup_teardown(a_step_is_cut_out_of_a_trace, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
