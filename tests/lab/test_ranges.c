/* The sizes of every study: what is outside of a range is refused at once, and its ends can be run and told. */
#include "base/file/dir.h"
#include "lab/internal.h"
#include "lab/keep.h"

#include "support/cmocka_first.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char
    out[64]; /* of the labs: a directory with the name that ech__lab_keep_drop removes whole */
static ech_ctx *ctx;

static int setup(void **state)
{
    (void)state;
    strcpy(out, "/tmp/ech_ranges_XXXXXX");
    assert_non_null(mkdtemp(out));
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    return 0;
}

static int teardown(void **state)
{
    char moved[sizeof out + 8];
    (void)state;
    snprintf(moved, sizeof moved, "%s" ECH__LAB_KEEP_NEW, out);
    assert_int_equal(rename(out, moved), 0);
    assert_int_equal(ech__lab_keep_drop(ctx, out), ECH_OK);
    ech_ctx_destroy(ctx);
    return 0;
}

/* A lab of one study with one size set. */
static ech_status create(const ech__study_card *card, const char *set, ech__lab **lab)
{
    ech__lab_options options = ech__lab_options_default();
    options.out = out;
    options.studies = &card->id;
    options.study_count = 1;
    options.quick = true;
    options.sets[options.set_count++] = set;
    return ech__lab_create(ctx, &options, lab);
}

static void assert_refused(const ech__study_card *card, const ech__lab_param *p, const char *value)
{
    char set[160], range[400];
    ech__lab *lab;
    snprintf(set, sizeof set, "%s=%s", p->name, value);
    snprintf(range, sizeof range,
             "--set %s: %s of %s must be a whole number from %" PRId64 " to %" PRId64, set, p->name,
             card->id, p->min, p->max);
    if (create(card, set, &lab) != ECH_E_INVALID)
        fail_msg("%s takes %s", card->id, set);
    assert_string_equal(ech_ctx_error(ctx), range);
}

static void assert_outside_is_refused(const ech__study_card *card, const ech__lab_param *p)
{
    static const char *const never[] = {
        "-1",   "nan", "",   "text", "1e9", "1.5",
        "0x10", " 4",  "4 ", "-",    "--4", "99999999999999999999",
    };
    char number[32];
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        assert_refused(card, p, never[i]);
    snprintf(number, sizeof number, "%" PRId64, p->min - 1);
    assert_refused(card, p, number);
    snprintf(number, sizeof number, "%" PRId64, p->max + 1);
    assert_refused(card, p, number);
    if (p->max < 1000000000)
        assert_refused(card, p, "1000000000");
}

static void what_is_outside_is_refused(void **state)
{
    (void)state;
    assert_true(ech__lab_card_count > 0);
    for (size_t i = 0; i < ech__lab_card_count; i++) {
        const ech__study_card *card = ech__lab_cards[i];
        for (const ech__lab_param *p = card->params; p && p->name; p++) {
            const bool good = p->min >= 0 && p->min <= p->quick && p->min <= p->full &&
                              p->quick <= p->max && p->full <= p->max;
            if (!good || !p->help)
                fail_msg("%s: its size %s has a range that its own values are not in", card->id,
                         p->name);
            assert_outside_is_refused(card, p);
        }
    }
}

/* Every run has failed, so what is tested is what the study itself makes of the number: lists of
 * runs, tables, expressions. */
static void assert_can_be_told(const ech__study_card *card, const char *name, int64_t value)
{
    char set[160];
    ech__lab *lab;
    size_t added;
    snprintf(set, sizeof set, "%s.%s=%" PRId64, card->id, name, value);
    if (create(card, set, &lab) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    ech__lab_study *study = &lab->studies[0];
    ech_status status = ech__lab_ask(study, &added);
    for (size_t i = 0; i < study->count; i++) {
        study->tasks[i].stage = ECH__LAB_OVER;
        study->tasks[i].state = ECH__LAB_FAILED;
        study->tasks[i].reason = "nothing was started";
    }
    if (status == ECH_OK)
        status = ech__lab_do_study(study);
    if (status < 0)
        fail_msg("%s: %s", set, ech_ctx_error(ctx));
    assert_true(study->count > 0 && study->count == added);
    ech__lab_destroy(lab);
}

static void the_ends_can_be_told(void **state)
{
    char path[sizeof out + 16];
    (void)state;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", out, i ? "studies" : "runs");
        assert_int_equal(ech__dir_make(ctx, "lab", path), ECH_OK);
    }
    for (size_t i = 0; i < ech__lab_card_count; i++) {
        const ech__study_card *card = ech__lab_cards[i];
        for (const ech__lab_param *p = card->params; p && p->name; p++) {
            assert_can_be_told(card, p->name, p->min);
            assert_can_be_told(card, p->name, p->max);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_outside_is_refused),
        cmocka_unit_test(the_ends_can_be_told),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
