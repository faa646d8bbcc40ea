/* Words of a study: what they write, that a report reads it, and which slips are found. */
#include "lab/sheet.h"

#include "base/file/dir.h"
#include "report/study/study.h"
#include "support/lab_fixture.h"
#include "support/temp_dir.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ech_ctx *ctx;
static temp_dir temp;
static lab_fixture lab;

static int setup(void **state)
{
    (void)state;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    temp = temp_dir_create();
    lab_fixture_write(ctx, &lab, temp.path);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    lab_fixture_remove(ctx, &lab);
    ech_ctx_destroy(ctx);
    return 0;
}

static ech_json *tell_with(const ech__sheet_options *options)
{
    ech_json *study;
    if (ech__sheet_tell(ctx, options, &study) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    return study;
}

static ech_json *tell_all(void)
{
    const ech__sheet_options options = lab_fixture_options(&lab, &lab_fixture_card);
    return tell_with(&options);
}

/* The study as a report reads it. */
static ech__book *load(const ech_json *study, const char *id)
{
    ech__book *book;
    lab_fixture_save(ctx, &lab, study, id);
    if (ech__book_load(ctx, lab.dir, &book) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    return book;
}

static const ech_json *at(const ech_json *study, const char *path)
{
    const ech_json *found = ech__lab_path(study, path);
    if (!found)
        fail_msg("there is no %s", path);
    return found;
}

static double number(const ech_json *study, const char *path)
{
    double value = 0;
    assert_true(ech__json_real(at(study, path), &value));
    return value;
}

static const char *text(const ech_json *study, const char *path)
{
    const char *value = NULL;
    assert_true(ech__json_string(at(study, path), &value));
    return value;
}

static bool has(const ech_json *study, const char *path)
{
    return ech__lab_path(study, path) != NULL;
}

/* ---- what is written ---- */

static void a_report_reads_what_is_told(void **state)
{
    ech_json *study = tell_all();
    ech__book *book = load(study, "told");
    const ech__study *s = &book->studies[0];
    (void)state;
    assert_int_equal(s->nruns, LAB_RUNS);
    assert_int_equal(s->ntables, 1);
    assert_int_equal(s->nplots, 6);
    assert_int_equal(s->nanswers, 2);
    assert_int_equal(s->runs[0].basis, ECH__BASIS_MEASURED);
    assert_int_equal(s->runs[2].basis, ECH__BASIS_EMULATED);
    assert_int_equal(s->runs[4].basis, ECH__BASIS_PREDICTED);
    assert_int_equal(s->runs[5].status, ECH__RUN_STATUS_FAILED);
    assert_string_equal(s->runs[6].reason, "too many devices");
    ech__book_destroy(book);
    ech__json_destroy(study);
}

static void cells_have_intervals_clocks_and_notes(void **state)
{
    ech_json *study = tell_all();
    (void)state;
    assert_true(number(study, "tables.0.rows.1.0") == 2);
    assert_true(number(study, "tables.0.rows.1.1.low") < number(study, "tables.0.rows.1.1.value"));
    assert_string_equal(text(study, "tables.0.rows.1.1.clock"), "measured");
    assert_string_equal(text(study, "tables.0.rows.2.1.clock"), "emulated");
    assert_string_equal(text(study, "tables.0.rows.1.1.run"), "n2");
    assert_false(has(study, "tables.0.rows.0.2.low")); /* one against itself is drawn alike */
    assert_false(has(study, "tables.0.rows.1.3.low"));
    assert_true(isnan(number(study, "tables.0.rows.3.1.value")));
    assert_string_equal(text(study, "tables.0.rows.3.1.note"),
                        "run n8 failed: out of memory: {8 GB} are needed");
    assert_true(isnan(number(study, "tables.0.rows.0.4")));
    assert_string_equal(text(study, "tables.0.rows.1.4.note"), "two cores");
    assert_string_equal(text(study, "tables.0.rows.1.4.value"), "beside one");
    assert_string_equal(text(study, "tables.0.rows.2.4"), "beside one");
    assert_string_equal(text(study, "tables.0.columns.2.unit"), "x");
    assert_string_equal(text(study, "tables.0.columns.3.unit"), "%");
    assert_string_equal(text(study, "tables.0.columns.4.align"), "left");
    ech__json_destroy(study);
}

static void plots_show_what_is_known(void **state)
{
    ech_json *study = tell_all();
    (void)state;
    assert_int_equal(ech__json_count(at(study, "plots.0.series")), 2);
    assert_int_equal(ech__json_count(at(study, "plots.0.series.0.points")), 3);
    assert_string_equal(text(study, "plots.0.series.0.clock"), "measured");
    assert_string_equal(text(study, "plots.0.series.0.points.2.clock"), "emulated");
    assert_int_equal(ech__json_count(at(study, "plots.0.series.0.points.1")), 4);
    assert_string_equal(text(study, "plots.0.series.1.clock"), "predicted");
    assert_string_equal(text(study, "plots.0.series.1.line"), "no");
    assert_string_equal(text(study, "plots.0.x.scale"), "log2");
    assert_true(number(study, "plots.0.y.max") == 4);
    assert_int_equal(ech__json_count(at(study, "plots.0.runs")), 2); /* first runs of figures */
    assert_int_equal(ech__json_count(at(study, "plots.1.series")), 1);
    assert_true(number(study, "plots.1.series.0.from.scale") == 1000);
    assert_string_equal(text(study, "plots.2.series.0.from.file"), "epochs");
    assert_true(isnan(number(study, "plots.3.series.0.values.1.value")));
    assert_true(number(study, "plots.3.series.1.values.0.value") == 0);
    assert_int_equal(ech__json_count(at(study, "plots.4.traces")), 1);
    assert_int_equal(ech__json_count(at(study, "plots.5.panels.0.counts")), 4);
    ech__json_destroy(study);
}

static void answers_name_their_figures(void **state)
{
    ech_json *study = tell_all();
    (void)state;
    assert_string_equal(
        text(study, "answers.0.text"),
        "Two devices are {speedup2} times as fast as one ({speedup2.low} to {speedup2.high}), at a "
        "width of {dim}. That is clearly less than twice: {efficiency2} of it.\n\n"
        "No result: run n8 failed: out of memory: {{8 GB}} are needed. Amdahl's serial fraction is "
        "{serial}; "
        "in {{braces}} the weights are {hash}.");
    assert_int_equal(ech__json_count(at(study, "answers.0.figures")), 5);
    assert_string_equal(
        text(study, "answers.0.figures.name=efficiency2.source"),
        "speedup2 / 2 where t1 = steps[n1 time_s]; t2 = steps[n2 time_s]; speedup2 = t1 / t2");
    assert_string_equal(text(study, "answers.0.figures.name=efficiency2.unit"), "%");
    assert_string_equal(text(study, "answers.0.figures.name=serial.clock"), "emulated");
    assert_string_equal(text(study, "answers.0.figures.name=hash.value"), "ab1cd");
    assert_string_equal(text(study, "answers.0.figures.name=hash.source"),
                        "[n1 summary.params_sha256]");
    assert_false(has(study, "answers.0.figures.name=dim.clock"));
    assert_string_equal(text(study, "answers.1.text"),
                        "Nothing can be said of it from these records.");
    ech__json_destroy(study);
}

/* ---- small studies ---- */

static ech__study_card card_of(void (*tell)(ech__sheet *sheet))
{
    ech__study_card card = lab_fixture_card;
    card.id = "small";
    card.tell = tell;
    return card;
}

static ech_json *tell_small(void (*tell)(ech__sheet *sheet), double noise)
{
    const ech__study_card card = card_of(tell);
    ech__sheet_options options = lab_fixture_options(&lab, &card);
    options.noise = noise;
    return tell_with(&options);
}

static void say_ends_of_what_was_not_drawn(ech__sheet *s)
{
    ech__tell_let(s, "bytes", "bytes", "[n2 summary.comm_bytes_per_step]");
    ech__tell_let(s, "edge", "fixed1", "crossing(first[n1 time_s 5], 1, 0, 2, 0.0991)");
    ech__tell_ask(s, "Q?");
    ech__tell_say(s, "From {bytes.low} to {bytes.high}.");
    ech__tell_say(s, "At {edge}.");
    ech__tell_say(s, "At {edge.low} or more.");
}

static void ends_are_written_where_they_are_named(void **state)
{
    ech_json *study = tell_small(say_ends_of_what_was_not_drawn, 0.05);
    (void)state;
    assert_true(number(study, "answers.0.figures.0.low") == 4000);
    assert_false(has(study, "answers.0.figures.1.low"));
    assert_non_null(strstr(text(study, "answers.0.text"), "At {edge}. No result: no interval"));
    ech__book_destroy(load(study, "small"));
    ech__json_destroy(study);
}

static int sides[5];

static void take_sides(ech__sheet *s)
{
    ech__tell_let(s, "t", "seconds", "steps[n1 time_s]");
    ech__tell_let(s, "unknown", "seconds", "steps[n8 time_s]");
    sides[0] = ech__tell_side(s, "t", 0.2);
    sides[1] = ech__tell_side(s, "t", 0.01);
    const ech__lab_figure t = ech__tell_value(s, "t");
    sides[2] = ech__tell_side(s, "t", (t.low + t.value) / 2);
    sides[3] = ech__tell_side(s, "t", (t.value + t.high) / 2);
    sides[4] = ech__tell_side(s, "unknown", 0);
}

static void a_side_is_taken_only_where_the_interval_lies_on_it(void **state)
{
    const int want[5] = {-1, 1, 0, 0, 0};
    ech_json *study = tell_small(take_sides, 0);
    (void)state;
    assert_memory_equal(sides, want, sizeof want);
    ech__json_destroy(study);
}

static void say_nothing_known(ech__sheet *s)
{
    ech__tell_plot(s, "lines", "Only failures", NULL);
    ech__tell_x(s, (ech__tell_axis){.label = "x"});
    ech__tell_y(s, (ech__tell_axis){.label = "y"});
    ech__tell_series(s, "failed");
    ech__tell_point(s, 1, "steps[n8 time_s]");
    ech__tell_plot(s, "bars", "No bar", NULL);
    ech__tell_y(s, (ech__tell_axis){.label = "y"});
    ech__tell_category(s, "one");
    ech__tell_series(s, "failed");
    ech__tell_bar(s, "steps[n8 time_s]");
    ech__tell_plot(s, "timeline", "No trace", NULL);
    ech__tell_trace(s, "n8", "failed", 1);
    ech__tell_let_text(s, "hash", "n8", "summary.params_sha256");
    ech__tell_ask(s, "Q?");
    ech__tell_say(s, "It is {hash}.");
}

static void what_is_not_known_is_left_out(void **state)
{
    ech_json *study = tell_small(say_nothing_known, 0);
    (void)state;
    assert_int_equal(ech__json_count(at(study, "plots")), 0);
    assert_non_null(strstr(text(study, "answers.0.text"), "No result: run n8 failed: out of memo"));
    assert_int_equal(ech__json_count(at(study, "missing")), 3);
    assert_string_equal(text(study, "missing.2"), "The plot 'No trace' has no result: run n8 "
                                                  "failed: out of memory: {8 GB} are needed.");
    ech__book *book = load(study, "small");
    assert_non_null(strstr(book->studies[0].problem, "'Only failures' has no result: run n8"));
    assert_int_equal(book->nproblems, 0); /* it is the study's own word, and the report is whole */
    ech__book_destroy(book);
    ech__json_destroy(study);
}

static void plot_some_of_it(ech__sheet *s)
{
    const double nowhere = ech__tell_value(s, "steps[n8 time_s]").value;
    ech__tell_plot(s, "lines", "Some", "Beside others.");
    ech__tell_x(s, (ech__tell_axis){.label = "x"});
    ech__tell_y(s, (ech__tell_axis){.label = "y"});
    ech__tell_series(s, "points");
    ech__tell_point(s, 1, "steps[n1 time_s]");
    ech__tell_point(s, nowhere, "steps[n2 time_s]"); /* its place is a figure of a failed run */
    ech__tell_point(s, 8, "steps[n8 time_s]");
    ech__tell_series(s, "never asked for");
    ech__tell_from(s, (ech__tell_source){.run = "n9", .y = "time_s"});
    ech__tell_plot(s, "timeline", "Never asked for", NULL);
    ech__tell_trace(s, "n9", "a trace", 5);
    ech__tell_let_text(s, "hash", "n9", "summary.params_sha256");
    assert_true(ech__tell_asked(s, "n9") && !ech__tell_has(s, "n9"));
}

static void a_plot_names_what_it_lacks(void **state)
{
    ech_json *study = tell_small(plot_some_of_it, 0);
    (void)state;
    assert_int_equal(ech__json_count(at(study, "plots")), 1);
    assert_int_equal(ech__json_count(at(study, "plots.0.series")), 1);
    assert_int_equal(ech__json_count(at(study, "plots.0.series.0.points")), 1);
    assert_string_equal(
        text(study, "plots.0.caption"),
        "Beside others. No result: run n8 failed: out of memory: {8 GB} are needed.");
    assert_int_equal(ech__json_count(at(study, "missing")), 1);
    ech__book_destroy(load(study, "small"));
    ech__json_destroy(study);
}

/* ---- slips ---- */

static void slip_expression(ech__sheet *s)
{
    ech__tell_table(s, "T", NULL);
    ech__tell_column(s, "a", "general");
    ech__tell_row(s);
    ech__tell_cell(s, "1 +");
    ech__tell_cell(s, "further slips are passed over");
    ech__tell_ask(s, "Q?");
    ech__tell_say(s, "{nobody}");
}

static void slip_short_row(ech__sheet *s)
{
    ech__tell_table(s, "T", NULL);
    ech__tell_column(s, "a", "general");
    ech__tell_column(s, "b", "general");
    ech__tell_row(s);
    ech__tell_cell(s, "1");
    ech__tell_row(s);
}

static void slip_short_last_row(ech__sheet *s)
{
    ech__tell_table(s, "T", NULL);
    ech__tell_column(s, "a", "general");
    ech__tell_row(s);
    ech__tell_none(s);
    ech__tell_row(s);
}

static void slip_long_row(ech__sheet *s)
{
    ech__tell_table(s, "T", NULL);
    ech__tell_column(s, "a", "general");
    ech__tell_row(s);
    ech__tell_cell(s, "1");
    ech__tell_words(s, "more");
}

static void slip_late_column(ech__sheet *s)
{
    ech__tell_table(s, "T", NULL);
    ech__tell_column(s, "a", "general");
    ech__tell_row(s);
    ech__tell_none(s);
    ech__tell_column(s, "b", "general");
}

static void slip_no_column(ech__sheet *s)
{
    ech__tell_table(s, "T", NULL);
}

static void slip_no_table(ech__sheet *s)
{
    ech__tell_row(s);
}

static void slip_format(ech__sheet *s)
{
    ech__tell_let(s, "a", "fixed12", "1");
}

static void slip_figure(ech__sheet *s)
{
    ech__tell_ask(s, "Q?");
    ech__tell_say(s, "It is {nobody} or {{nothing}}.");
}

static void slip_brace(ech__sheet *s)
{
    ech__tell_ask(s, "Q?");
    ech__tell_say(s, "It is {a.");
}

static void slip_no_question(ech__sheet *s)
{
    ech__tell_say(s, "It is.");
}

static void slip_twice(ech__sheet *s)
{
    ech__tell_let(s, "a", "general", "1");
    ech__tell_let(s, "a", "general", "2");
}

static void slip_param(ech__sheet *s)
{
    ech__tell_param(s, "depth");
    ech__tell_param(s, "width"); /* the first slip stays */
}

static void slip_run(ech__sheet *s)
{
    ech__tell_text(s, "n9", "summary.params_sha256");
}

static void slip_side(ech__sheet *s)
{
    ech__tell_side(s, "nobody", 1);
}

static void slip_kind(ech__sheet *s)
{
    ech__tell_plot(s, "pie", "P", NULL);
}

static void slip_bars_in_lines(ech__sheet *s)
{
    ech__tell_plot(s, "lines", "P", NULL);
    ech__tell_series(s, "s");
    ech__tell_bar(s, "1");
}

static void slip_axis(ech__sheet *s)
{
    ech__tell_plot(s, "lines", "P", NULL);
    ech__tell_y(s, (ech__tell_axis){.label = "y"});
    ech__tell_series(s, "s");
    ech__tell_point(s, 1, "1");
}

static void slip_scale(ech__sheet *s)
{
    ech__tell_plot(s, "lines", "P", NULL);
    ech__tell_y(s, (ech__tell_axis){.label = "y", .scale = "log3"});
}

static void slip_bar_count(ech__sheet *s)
{
    ech__tell_plot(s, "bars", "P", NULL);
    ech__tell_y(s, (ech__tell_axis){.label = "y"});
    ech__tell_category(s, "a");
    ech__tell_category(s, "b");
    ech__tell_series(s, "s");
    ech__tell_bar(s, "1");
}

static void slip_no_series(ech__sheet *s)
{
    ech__tell_plot(s, "lines", "P", NULL);
    ech__tell_point(s, 1, "1");
}

static void the_first_slip_is_reported(void **state)
{
    static const struct {
        void (*tell)(ech__sheet *sheet);
        const char *sentence;
    } cases[] = {
        {slip_expression, "study small: expression '1 +', character 4"},
        {slip_short_row, "table 'T': row 1 has 1 cells for 2 columns"},
        {slip_short_last_row, "table 'T': row 2 has 0 cells for 1 columns"},
        {slip_long_row, "beyond the 1 columns"},
        {slip_late_column, "column b comes after its first row"},
        {slip_no_column, "table 'T' has no column"},
        {slip_no_table, "a table must be begun"},
        {slip_format, "format 'fixed12'"},
        {slip_figure, "names {nobody}, which is no figure"},
        {slip_brace, "a brace that names no figure"},
        {slip_no_question, "a question must be asked"},
        {slip_twice, "figure a is '1' already"},
        {slip_param, "'depth' is no size of this study"},
        {slip_run, "there is no run n9"},
        {slip_side, "'nobody' is no figure"},
        {slip_kind, "'pie' is no kind of plot"},
        {slip_bars_in_lines, "of kind lines, which has no bars"},
        {slip_axis, "plot 'P' lacks an axis"},
        {slip_scale, "'log3' is no scale"},
        {slip_bar_count, "series s has 1 bars for 2 categories"},
        {slip_no_series, "a series must be begun"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ech__study_card card = card_of(cases[i].tell);
        ech__sheet_options options = lab_fixture_options(&lab, &card);
        ech_json *study;
        options.count = LAB_GOOD_RUNS;
        assert_int_equal(ech__sheet_tell(ctx, &options, &study), ECH_E_INVALID);
        assert_null(study);
        if (!strstr(ech_ctx_error(ctx), cases[i].sentence))
            fail_msg("'%s' does not say '%s'", ech_ctx_error(ctx), cases[i].sentence);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_reads_what_is_told),
        cmocka_unit_test(cells_have_intervals_clocks_and_notes),
        cmocka_unit_test(plots_show_what_is_known),
        cmocka_unit_test(answers_name_their_figures),
        cmocka_unit_test(ends_are_written_where_they_are_named),
        cmocka_unit_test(a_side_is_taken_only_where_the_interval_lies_on_it),
        cmocka_unit_test(what_is_not_known_is_left_out),
        cmocka_unit_test(a_plot_names_what_it_lacks),
        cmocka_unit_test(the_first_slip_is_reported),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
