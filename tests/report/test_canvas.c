/* Canvases: what SVG says, and that both backends take the same calls. */
#include "report/cairo.h"
#include "report/pdf_writer.h"

#include "support/cmocka_first.h"
#include <math.h>
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

static void draw_everything(ech__canvas *c)
{
    ech__canvas_clip(c, 5, 5, 90, 90);
    ech__canvas_hover(c, "a <b> & \"c\"");
    ech__canvas_rect(c, 10, 10, 20.5, 30);
    ech__canvas_paint(c, &(ech__paint){.fill = ECH__INK_SERIES1,
                                       .hatch = ECH__HATCH_DOTS,
                                       .stroke = ECH__INK_AXIS,
                                       .width = 1});
    ech__canvas_unhover(c);
    ech__canvas_circle(c, 50, 50, 4);
    ech__canvas_paint(
        c, &(ech__paint){.stroke = ECH__INK_SERIES2, .width = 1.25, .dash = ECH__DASH_LONG});
    ech__canvas_unclip(c);
    ech__canvas_text(c, 50, 60, "1 < 2",
                     &(ech__text_style){.size = 11, .anchor = ECH__MIDDLE, .bold = true});
    ech__canvas_text(c, 5, 60, "up", &(ech__text_style){.size = 11, .upward = true, .mono = true});
}

static void svg_keeps_text_as_text(void **state)
{
    ech__canvas *c;
    char *text;
    size_t bytes;
    const ech__svg_options o = {.width = 100, .height = 80.25, .id = "q7", .label = "a \"plot\""};
    assert_int_equal(ech__svg_create(*state, &o, &c), ECH_OK);
    draw_everything(c);
    assert_int_equal(ech__svg_finish(c, &text, &bytes), ECH_OK);
    assert_int_equal(bytes, strlen(text));
    static const char *const wanted[] = {
        "viewBox=\"0 0 100 80.25\"",
        "aria-label=\"a &quot;plot&quot;\"",
        "<title>a &lt;b&gt; &amp; &quot;c&quot;</title>",
        "<pattern id=\"q7ds1\"",
        "fill=\"url(#q7ds1)\"",
        "M10 10L30.5 10L30.5 40L10 40z",
        "stroke-width=\"1.25\" stroke-dasharray=\"6 4\"",
        ">1 &lt; 2</text>",
        "text-anchor=\"middle\" font-size=\"11\" x=\"50\" y=\"60\"",
        "transform=\"translate(5 60) rotate(-90)\"",
        "clip-path=\"url(#q7k0)\"",
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        if (!strstr(text, wanted[i]))
            fail_msg("no %s in %s", wanted[i], text);
    }
    free(text);
}

static void pdf_and_png_take_the_same_calls(void **state)
{
    ech__canvas *c;
    char *data;
    size_t bytes;
    if (!ech__can_print) /* a build without cairo */
        skip();
    assert_int_equal(
        ech__pdf_create(*state, &(ech__pdf_options){.width = 100, .height = 80, .title = "t"}, &c),
        ECH_OK);
    draw_everything(c);
    ech__pdf_target(c, "here", 10, 10);
    ech__pdf_outline(c, 0, "Here", "here");
    ech__pdf_next_page(c);
    draw_everything(c);
    ech__pdf_link(c, "here", 0, 0, 50, 10);
    assert_int_equal(ech__pdf_finish(c, &data, &bytes), ECH_OK);
    assert_true(bytes > 1000 && !memcmp(data, "%PDF-", 5));
    free(data);
    assert_int_equal(ech__png_create(*state, 100, 80, 2, &c), ECH_OK);
    draw_everything(c);
    assert_int_equal(ech__png_finish(c, &data, &bytes), ECH_OK);
    assert_true(bytes > 100 && !memcmp(data, "\x89PNG", 4));
    free(data);
}

/* Without a canvas widths are known from the metrics that the fonts share. */
static void widths_agree(void **state)
{
    static const char *const texts[] = {"Exposed communication (ms)", "0.1234567890",
                                        "WAVE, wait; fit!"};
    ech__canvas *c;
    char *data;
    size_t bytes;
    if (!ech__can_print) /* a build without cairo */
        skip();
    assert_int_equal(ech__png_create(*state, 100, 80, 1, &c), ECH_OK);
    for (size_t i = 0; i < 3; i++) {
        const ech__text_style style = {.size = 11};
        const double real = ech__canvas_measure(c, texts[i], &style);
        assert_true(fabs(ech__text_width(texts[i], &style) / real - 1) < 0.06);
    }
    assert_int_equal(ech__png_finish(c, &data, &bytes), ECH_OK);
    free(data);
}

static void text_that_is_too_long_is_cut(void **state)
{
    ech__canvas *c;
    char *text;
    size_t bytes;
    assert_int_equal(ech__svg_create(*state, &(ech__svg_options){.width = 9, .height = 9}, &c),
                     ECH_OK);
    const ech__text_style style = {.size = 10};
    ech__canvas_text_within(c, 0, 0, 40,
                            "gr\xc3\xb6\xc3\x9f"
                            "er als der Platz",
                            &style);
    ech__canvas_text_within(c, 0, 0, 400, "short", &style);
    assert_int_equal(ech__svg_finish(c, &text, &bytes), ECH_OK);
    assert_non_null(strstr(text, "\xe2\x80\xa6</text>"));
    assert_non_null(strstr(text, ">short</text>"));
    assert_null(strstr(text, "Platz"));
    free(text);
}

static void lines_break_at_spaces(void **state)
{
    ech__canvas *c;
    char *data;
    size_t bytes;
    const ech__text_style style = {.size = 10};
    assert_int_equal(ech__svg_create(*state, &(ech__svg_options){.width = 9, .height = 9}, &c),
                     ECH_OK);
    ech__press_break b =
        ech__press_line(c, "one two three", &style, ech__text_width("one two", &style) + 1);
    assert_int_equal(b.length, 7);
    assert_int_equal(b.next, 8);
    b = ech__press_line(c, "one\n\ntwo", &style, 1000);
    assert_int_equal(b.length, 3);
    assert_int_equal(b.next, 4);
    b = ech__press_line(c, "aaaaaaaaaaaaaaaa b", &style, ech__text_width("aaaa", &style) + 1);
    assert_int_equal(b.length, 4);
    assert_int_equal(b.next, 4);
    b = ech__press_line(c, "\xc3\xa4\xc3\xa4\xc3\xa4", &style,
                        0.1); /* one character at least, a whole one */
    assert_int_equal(b.length, 2);
    assert_int_equal(ech__press_count(c, "a b c", &style, 0.1), 3);
    assert_int_equal(ech__svg_finish(c, &data, &bytes), ECH_OK);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(svg_keeps_text_as_text, setup, teardown),
        cmocka_unit_test_setup_teardown(pdf_and_png_take_the_same_calls, setup, teardown),
        cmocka_unit_test_setup_teardown(widths_agree, setup, teardown),
        cmocka_unit_test_setup_teardown(text_that_is_too_long_is_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(lines_break_at_spaces, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
