/* Studies of group A told from made-up records: other figures must give other sentences. */
#include "lab/sheet.h"

#include "support/cmocka_first.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern const ech__study_card ech__study_warmup, ech__study_strong_scaling,
    ech__study_comm_vs_compute, ech__study_delay, ech__study_imbalance;

enum { MOST_RUNS = 24, STEPS = 35, WARMUP = 5 };

/* Records of the test that runs. */
typedef struct fixture {
    ech_ctx *ctx;
    char root[64];
    ech__lab_result results[MOST_RUNS];
    char ids[MOST_RUNS][32], dirs[MOST_RUNS][128];
    size_t count;
    double noise;
    ech_json *study;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(ech_ctx_create(NULL, &f->ctx), ECH_OK);
    strcpy(f->root, "/tmp/ech-studies-XXXXXX");
    assert_non_null(mkdtemp(f->root));
    f->noise = 0.005;
    *state = f;
    return 0;
}

static void remove_file(const char *dir, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);
}

static int teardown(void **state)
{
    fixture *f = *state;
    ech__json_destroy(f->study);
    for (size_t i = 0; i < f->count; i++) {
        remove_file(f->dirs[i], "run.json");
        remove_file(f->dirs[i], "steps.jsonl");
        remove_file(f->dirs[i], "result.json");
        rmdir(f->dirs[i]);
    }
    rmdir(f->root);
    ech_ctx_destroy(f->ctx);
    free(f);
    return 0;
}

/* ---- making records ---- */

typedef struct made {
    const char *id;
    int devices;
    double time_s, compute_s; /* of a step behind the warm-up */
    double exposed_s;
    double wait_s[4];
    double first;        /* the first step takes so many times as long; 0: once */
    const char *summary; /* further members, each with a comma behind it */
} made;

static FILE *open_in(const fixture *f, size_t run, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", f->dirs[run], name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    return file;
}

static size_t add(fixture *f, const char *id)
{
    const size_t run = f->count++;
    assert_true(run < MOST_RUNS);
    snprintf(f->ids[run], sizeof f->ids[run], "%s", id);
    snprintf(f->dirs[run], sizeof f->dirs[run], "%s/%s", f->root, id);
    assert_int_equal(mkdir(f->dirs[run], 0700), 0);
    f->results[run] = (ech__lab_result){.id = f->ids[run],
                                        .command = "echelon train",
                                        .dir = f->dirs[run],
                                        .record = f->ids[run],
                                        .state = ECH__LAB_DONE};
    return run;
}

static void add_train(fixture *f, made m)
{
    const size_t run = add(f, m.id);
    FILE *file = open_in(f, run, "run.json");
    fprintf(
        file,
        "{\"state\":\"done\",\"seed\":0,\"config\":{\"warmup\":%d,\"steps\":%d,\"batch_size\":%d,"
        "\"global_batch\":64},\"summary\":{%s\"clock\":\"measured\",\"parameters\":1000,"
        "\"planning_s\":0.1,\"timed_kernels\":3,\"final_loss\":0.5}}",
        WARMUP, STEPS, 64 / m.devices, m.summary ? m.summary : "");
    fclose(file);
    file = open_in(f, run, "steps.jsonl");
    for (int i = 1; i <= STEPS; i++) {
        const double factor = i == 1 && m.first > 0 ? m.first : 1 + 0.002 * (i * 7 % 5 - 2);
        fprintf(file,
                "{\"step\":%d,\"loss\":0.5,\"time_s\":%.9g,\"forward_s\":%.9g,\"backward_s\":%.9g,"
                "\"optimizer_s\":0.0,\"comm_exposed_s\":%.9g,\"wait_s\":%.9g,"
                "\"rank_wait_s\":[%.9g,%.9g,%.9g,%.9g]}\n",
                i, m.time_s * factor, m.compute_s / 3 * factor, m.compute_s * 2 / 3 * factor,
                m.exposed_s, m.wait_s[0], m.wait_s[0], m.wait_s[1], m.wait_s[2], m.wait_s[3]);
    }
    fclose(file);
}

static void add_result(fixture *f, const char *id, const char *text)
{
    FILE *file = open_in(f, add(f, id), "result.json");
    fputs(text, file);
    fclose(file);
}

static void add_plan(fixture *f, const char *id)
{
    add_result(f, id,
               "{\"parallel\":\"ddp\",\"rows\":[{\"devices\":1,\"step_time_s\":0.01,\"speedup\":1},"
               "{\"devices\":2,\"step_time_s\":0.0055,\"speedup\":1.8},"
               "{\"devices\":4,\"step_time_s\":0.003,\"speedup\":3.3}],"
               "\"communication_is_half\":{\"devices\":16,\"batch_on_2_devices\":3}}");
}

/* ---- telling ---- */

static int64_t param_of(const void *user, const char *name)
{
    for (const ech__lab_param *p = ((const ech__study_card *)user)->params; p->name; p++) {
        if (!strcmp(p->name, name))
            return p->quick;
    }
    fail_msg("the card has no parameter '%s'", name);
    return -1;
}

static void tell(fixture *f, const ech__study_card *card)
{
    static const int64_t devices[] = {1, 2, 4};
    const ech__sheet_options options = {.card = card,
                                        .command = "echelon lab run",
                                        .results = f->results,
                                        .count = f->count,
                                        .noise = f->noise,
                                        .quick = true,
                                        .devices = devices,
                                        .device_count = 3,
                                        .cores = 2,
                                        .param = param_of,
                                        .user = card};
    if (ech__sheet_tell(f->ctx, &options, &f->study) < 0)
        fail_msg("%s", ech_ctx_error(f->ctx));
}

static const char *answer_to(const fixture *f, const char *question)
{
    const ech_json *answers = ech__json_find(f->study, "answers");
    for (size_t i = 0; i < ech__json_count(answers); i++) {
        const ech_json *answer = ech__json_at(answers, i);
        const char *asked, *text;
        assert_true(ech__json_string(ech__json_find(answer, "question"), &asked));
        assert_true(ech__json_string(ech__json_find(answer, "text"), &text));
        if (strstr(asked, question))
            return text;
    }
    fail_msg("nobody asks '%s'", question);
    return "";
}

static void assert_says(const fixture *f, const char *question, const char *sentence)
{
    const char *text = answer_to(f, question);
    if (!strstr(text, sentence))
        fail_msg("'%s' does not say '%s'", text, sentence);
}

static void assert_says_not(const fixture *f, const char *question, const char *sentence)
{
    const char *text = answer_to(f, question);
    if (strstr(text, sentence))
        fail_msg("'%s' says '%s'", text, sentence);
}

/* ---- strong scaling ---- */

static void add_scaling(fixture *f, const char *prefix, double t1, double t2, double t4,
                        double exchange)
{
    char id[3][32];
    const char *bytes = "\"communication\":{\"gradient_bytes\":4000,\"buckets\":[{\"transfer_s\":0."
                        "001},{\"transfer_s\":0.002}]},";
    for (int i = 0; i < 3; i++)
        snprintf(id[i], sizeof id[i], "%sn%d", prefix, 1 << i);
    add_train(f, (made){id[0], 1, t1, t1, 0, {0}, 0, NULL});
    add_train(f, (made){id[1], 2, t2, t2 - exchange, exchange, {0}, 0, bytes});
    add_train(f, (made){id[2], 4, t4, t4 - exchange, exchange, {0}, 0, bytes});
}

static void lost_time_is_named(void **state)
{
    fixture *f = *state;
    add_plan(f, "plan");
    add_scaling(f, "", 0.010, 0.0065, 0.004, 0.0014);
    tell(f, &ech__study_strong_scaling);
    assert_says(f, "linear", "clearly less than linear");
    assert_says_not(f, "linear", "cannot be told");
    assert_says(f, "reason", "is the exchange of gradients");
    assert_says_not(f, "reason", "is computing that does not");
}

static void computing_may_be_the_reason(void **state)
{
    fixture *f = *state;
    add_plan(f, "plan");
    add_scaling(f, "", 0.010, 0.0065, 0.004, 0.0001);
    tell(f, &ech__study_strong_scaling);
    assert_says(f, "reason", "is computing that does not");
}

static void noise_takes_the_claim_away(void **state)
{
    fixture *f = *state;
    f->noise = 0.2;
    add_plan(f, "plan");
    add_scaling(f, "", 0.010, 0.0051, 0.0026, 0.0001);
    tell(f, &ech__study_strong_scaling);
    assert_says(f, "linear", "cannot be told from linear");
    assert_says_not(f, "linear", "clearly");
}

static void more_than_linear_is_said(void **state)
{
    fixture *f = *state;
    add_plan(f, "plan");
    add_scaling(f, "", 0.010, 0.004, 0.0015, 0.0001);
    tell(f, &ech__study_strong_scaling);
    assert_says(f, "linear", "clearly more than linear");
    assert_says(f, "reason", "cannot be told from nothing");
}

static void a_failed_run_leaves_the_others(void **state)
{
    fixture *f = *state;
    add_plan(f, "plan");
    add_scaling(f, "", 0.010, 0.0065, 0.004, 0.0014);
    f->results[f->count - 1].state = ECH__LAB_FAILED;
    f->results[f->count - 1].reason = "no room on the moon";
    tell(f, &ech__study_strong_scaling);
    assert_says(f, "linear", "{s2}");
    assert_says(f, "linear", "no room on the moon");
    assert_says_not(f, "linear", "{s4}");
}

/* ---- two sizes ---- */

static void the_textbook_may_be_wrong(void **state)
{
    fixture *f = *state;
    add_plan(f, "small_plan");
    add_plan(f, "large_plan");
    add_scaling(f, "small_", 0.010, 0.0055, 0.003, 0.0004);
    add_scaling(f, "large_", 0.100, 0.080, 0.060, 0.020);
    const made check = {"small_check", 2, 0.002, 0.001, 0.001, {0}, 0, NULL};
    add_train(f, check);
    add_train(f, (made){"large_check", 2, 0.02, 0.002, 0.018, {0}, 0, NULL});
    add_train(f, (made){"trace", 2, 0.08, 0.06, 0.02, {0}, 0, NULL});
    tell(f, &ech__study_comm_vs_compute);
    assert_says(f, "more efficient", "against the textbook");
    assert_says_not(f, "more efficient", "The large one is more efficient");
    assert_says(f, "Why", "more of the large model's step");
    assert_says(f, "half", "agrees with half");
    assert_says(f, "half", "only with more samples");
}

/* ---- delay ---- */

static void add_delays(fixture *f, double share)
{
    for (int d = 0; d < 4; d++) {
        static const double delays[] = {0, 0.005, 0.010, 0.020};
        char prefix[16];
        snprintf(prefix, sizeof prefix, "d%d_", d);
        add_scaling(f, prefix, 0.010 + delays[d], 0.005 + share * delays[d],
                    0.0025 + share * delays[d], 0);
    }
}

static void a_delay_is_serial(void **state)
{
    fixture *f = *state;
    add_plan(f, "plan");
    add_delays(f, 1);
    tell(f, &ech__study_delay);
    assert_says(f, "linear", "So the time is linear");
    assert_says(f, "linear", "The speedup is not");
    assert_says(f, "serial fraction", "which agrees");
    assert_says_not(f, "serial fraction", "less than the delay");
}

static void a_delay_that_devices_shared_is_found(void **state)
{
    fixture *f = *state;
    add_plan(f, "plan");
    add_delays(f, 0.4);
    tell(f, &ech__study_delay);
    assert_says(f, "serial fraction", "less than the delay explains");
}

/* ---- warm-up ---- */

static void add_warmup(fixture *f, double first, const char *third)
{
    char summary[128];
    snprintf(summary, sizeof summary, "\"losses_sha256\":\"%s\",", third);
    add_train(f, (made){"first", 1, 0.01, 0.01, 0, {0}, first, "\"losses_sha256\":\"aa\","});
    add_train(f, (made){"second", 1, 0.01, 0.01, 0, {0}, first, "\"losses_sha256\":\"aa\","});
    add_train(f, (made){"third", 1, 0.01, 0.01, 0, {0}, first, summary});
    add_train(f, (made){"other", 1, 0.01, 0.01, 0, {0}, first, "\"losses_sha256\":\"bb\","});
}

static void the_first_step_pays(void **state)
{
    fixture *f = *state;
    add_warmup(f, 3, "aa");
    tell(f, &ech__study_warmup);
    assert_says(f, "warm-up", "The backward pass pays most");
    assert_says(f, "randomness", "have the same bits.");
    assert_says(f, "randomness", "changes the work cannot be said");
}

static void or_it_does_not(void **state)
{
    fixture *f = *state;
    add_warmup(f, 0, "cc");
    tell(f, &ech__study_warmup);
    assert_says(f, "warm-up", "cannot be told from the others");
    assert_says_not(f, "warm-up", "pays most");
    assert_says(f, "randomness", "do NOT have the same bits");
}

/* ---- imbalance ---- */

static void add_late(fixture *f, int straggler)
{
    static const double late[] = {0, 0.005, 0.010, 0.020};
    char summary[1000];
    for (int n = 2; n <= 4; n *= 2) {
        for (int d = 0; d < 4; d++) {
            char id[32];
            int used = snprintf(summary, sizeof summary, "\"communication\":{\"ranks\":[");
            for (int r = 0; r < n; r++)
                used += snprintf(summary + used, sizeof summary - (size_t)used,
                                 "%s{\"forward_s\":0.001,\"backward_s\":%g,\"optimizer_s\":0,"
                                 "\"comm_exposed_s\":0.02,\"wait_s\":0.01}",
                                 r ? "," : "", 0.003 + (r ? 0 : late[d]));
            snprintf(summary + used, sizeof summary - (size_t)used,
                     "],\"straggler\":{\"rank\":%d,\"ms\":20,\"phase\":\"backward\","
                     "\"share_of_steps\":1}},",
                     straggler);
            snprintf(id, sizeof id, "late%d_n%d", d, n);
            add_train(f, (made){id,
                                n,
                                0.005 + late[d],
                                0.004,
                                0.001,
                                {0, late[d], late[d], late[d]},
                                0,
                                summary});
        }
    }
}

static void everybody_waits_for_the_late_one(void **state)
{
    fixture *f = *state;
    add_plan(f, "plan");
    add_late(f, 0);
    tell(f, &ech__study_imbalance);
    assert_says(f, "total", "all of the delay is in the step");
    assert_says(f, "synchronisation", "in the backward pass");
    assert_says_not(f, "synchronisation", "not the one that was made late");
}

static void a_wrong_name_is_told(void **state)
{
    fixture *f = *state;
    add_plan(f, "plan");
    add_late(f, 1);
    tell(f, &ech__study_imbalance);
    assert_says(f, "synchronisation", "not the one that was made late");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(lost_time_is_named),
        TEST(computing_may_be_the_reason),
        TEST(noise_takes_the_claim_away),
        TEST(more_than_linear_is_said),
        TEST(a_failed_run_leaves_the_others),
        TEST(the_textbook_may_be_wrong),
        TEST(a_delay_is_serial),
        TEST(a_delay_that_devices_shared_is_found),
        TEST(the_first_step_pays),
        TEST(or_it_does_not),
        TEST(everybody_waits_for_the_late_one),
        TEST(a_wrong_name_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
