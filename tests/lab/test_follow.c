/* What the live view sees of a run: its steps in bins, and how busy its devices are. */
#include "base/system/clock.h"
#include "lab/busy.h"
#include "lab/follow.h"

#include "support/cmocka_first.h"
#include "support/temp_dir.h"
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- bins ---- */

static ech__curve_step step_of(int64_t step)
{
    return (ech__curve_step){
        .step = step, .loss = (double)step, .time_s = step == 777 ? 9 : 0.5, .lr = 0.1};
}

static void test_bins_are_steps_at_first(void **state)
{
    static ech__curve curve;
    (void)state;
    ech__curve_init(&curve);
    for (int64_t i = 1; i <= ECH__CURVE_BINS; i++)
        ech__curve_add(&curve, &(ech__curve_step){i, 2.0 * (double)i, 0.25, 0.1});
    assert_int_equal(curve.count, ECH__CURVE_BINS);
    assert_int_equal(curve.bins[99].first, 100);
    assert_int_equal(curve.bins[99].last, 100);
    assert_true(ech__curve_loss(&curve.bins[99]) == 200);
    ech__curve_add(&curve, &(ech__curve_step){ECH__CURVE_BINS + 1, 1, 0.25, 0.1});
    assert_int_equal(curve.count, ECH__CURVE_BINS / 2 + 1);
    assert_int_equal(curve.bins[49].first, 99);
    assert_int_equal(curve.bins[49].last, 100);
    assert_true(ech__curve_loss(&curve.bins[49]) == 199);
}

static void test_no_step_is_lost(void **state)
{
    static ech__curve curve;
    (void)state;
    ech__curve_init(&curve);
    for (int64_t i = 1; i <= 12345; i++) {
        const ech__curve_step s = step_of(i);
        ech__curve_add(&curve, &s);
    }
    assert_true(curve.count <= ECH__CURVE_BINS && curve.count > ECH__CURVE_BINS / 4);
    int64_t next = 1;
    double sum = 0, highest = 0;
    for (size_t i = 0; i < curve.count; i++) {
        const ech__curve_bin *bin = &curve.bins[i];
        assert_int_equal(bin->first, next);
        assert_int_equal(bin->steps, bin->last - bin->first + 1);
        next = bin->last + 1;
        sum += bin->loss_sum;
        highest = fmax(highest, bin->time_high);
        assert_true((bin->time_high == 9) == (bin->first <= 777 && bin->last >= 777));
        assert_true(bin->time_low == 0.5);
    }
    assert_int_equal(next, 12346);
    assert_int_equal(curve.total, 12345);
    assert_true(sum == 12345.0 * 12346 / 2);
    assert_true(highest == 9);
}

static void test_a_loss_that_is_no_number_is_passed_over(void **state)
{
    static ech__curve curve;
    (void)state;
    ech__curve_init(&curve);
    for (int64_t i = 1; i <= 2 * ECH__CURVE_BINS; i++)
        ech__curve_add(&curve, &(ech__curve_step){i, i % 2 ? NAN : 3, i < 5 ? INFINITY : 1, NAN});
    assert_int_equal(curve.count, ECH__CURVE_BINS);
    assert_true(ech__curve_loss(&curve.bins[7]) == 3);
    assert_true(isnan(ech__curve_time(&curve.bins[0])) && isnan(curve.bins[0].time_high));
    assert_true(ech__curve_time(&curve.bins[2]) == 1);
}

/* ---- steps of a run ---- */

typedef struct place {
    ech_ctx *ctx;
    temp_dir dir;
    char steps[TEMP_PATH], run[TEMP_PATH];
    ech__follow *follow;
} place;

static int setup(void **state)
{
    place *p = calloc(1, sizeof *p);
    assert_non_null(p);
    assert_int_equal(ech_ctx_create(NULL, &p->ctx), ECH_OK);
    p->dir = temp_dir_create();
    temp_dir_path(&p->dir, "steps.jsonl", p->steps);
    temp_dir_path(&p->dir, "run.json", p->run);
    p->follow = ech__follow_create(p->ctx);
    assert_non_null(p->follow);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    place *p = *state;
    ech__follow_destroy(p->follow);
    temp_dir_destroy(&p->dir);
    ech_ctx_destroy(p->ctx);
    free(p);
    return 0;
}

static void put(const char *path, const char *mode, const char *text)
{
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int64_t seen(place *p)
{
    ech__follow_look(p->follow, p->dir.path);
    return ech__follow_curve(p->follow)->total;
}

static void test_steps_are_read_as_they_come(void **state)
{
    place *p = *state;
    assert_int_equal(seen(p), 0);
    put(p->steps, "w",
        "{\"step\": 1, \"loss\": 0.5, \"time_s\": 0.25, \"lr\": 0.1}\n{\"step\": 2, \"lo");
    assert_int_equal(seen(p), 1);
    assert_int_equal(seen(p), 1);
    put(p->steps, "a",
        "ss\": 0.75, \"time_s\": 0.5, \"lr\": 0.2}\nnonsense\n[3]\n{\"step\": 3, \"loss\": "
        "null}\n");
    assert_int_equal(seen(p), 3);
    const ech__curve *curve = ech__follow_curve(p->follow);
    assert_int_equal(curve->bins[1].first, 2);
    assert_true(ech__curve_loss(&curve->bins[1]) == 0.75 && curve->bins[1].lr == 0.2);
    assert_true(isnan(ech__curve_loss(&curve->bins[2])) && isnan(ech__curve_time(&curve->bins[2])));
}

static void test_a_new_file_begins_anew(void **state)
{
    place *p = *state;
    put(p->steps, "w", "{\"step\": 1}\n{\"step\": 2}\n");
    assert_int_equal(seen(p), 2);
    put(p->steps, "w", "{\"step\": 1}\n"); /* cut short */
    assert_int_equal(seen(p), 1);
    char other[TEMP_PATH];
    temp_dir_path(&p->dir, "other", other);
    put(other, "w", "{\"step\": 7}\n{\"step\": 8}\n{\"step\": 9}\n");
    assert_int_equal(rename(other, p->steps), 0); /* another file by the same name */
    assert_int_equal(seen(p), 3);
    assert_int_equal(ech__follow_curve(p->follow)->bins[0].first, 7);
    ech__follow_look(p->follow, "/nowhere");
    assert_int_equal(ech__follow_curve(p->follow)->total, 0);
}

/* The directory of a run gets another name when the run is over. */
static void test_a_renamed_directory_is_followed_on(void **state)
{
    place *p = *state;
    char now[TEMP_PATH], later[TEMP_PATH], steps[TEMP_PATH + 16];
    temp_dir_path(&p->dir, "run.new", now);
    temp_dir_path(&p->dir, "run", later);
    assert_int_equal(mkdir(now, 0777), 0);
    snprintf(steps, sizeof steps, "%s/steps.jsonl", now);
    ech__follow_look(p->follow, now); /* before its first step */
    put(steps, "w", "{\"step\": 1}\n");
    assert_int_equal(rename(now, later), 0);
    ech__follow_look(p->follow, now);
    assert_int_equal(ech__follow_curve(p->follow)->total, 1);
    snprintf(steps, sizeof steps, "%s/steps.jsonl", later);
    put(steps, "a", "{\"step\": 2}\n");
    ech__follow_look(p->follow, now);
    assert_int_equal(ech__follow_curve(p->follow)->total, 2);
    assert_int_equal(mkdir(now, 0777), 0); /* the same words once more: another run */
    char again[TEMP_PATH + 16];
    snprintf(again, sizeof again, "%s/steps.jsonl", now);
    put(again, "w", "{\"step\": 7}\n");
    ech__follow_look(p->follow, now);
    assert_int_equal(ech__follow_curve(p->follow)->total, 1);
    assert_int_equal(ech__follow_curve(p->follow)->bins[0].first, 7);
    unlink(again);
    unlink(steps);
    rmdir(now);
    rmdir(later);
}

static void test_a_line_that_is_too_long_is_passed_over(void **state)
{
    place *p = *state;
    const size_t length = 2 * ECH__FOLLOW_LINE + 100;
    char *text = malloc(length + 1);
    assert_non_null(text);
    memset(text, ' ', length);
    text[length] = '\0';
    put(p->steps, "w", "{\"step\": 1}\n");
    put(p->steps, "a", text);
    free(text);
    assert_int_equal(seen(p), 1);
    put(p->steps, "a", "{\"step\": 2}\n{\"step\": 3}\n");
    assert_int_equal(seen(p), 2);
    assert_int_equal(ech__follow_curve(p->follow)->bins[1].first, 3);
}

static void test_of_too_many_steps_some_are_read(void **state)
{
    place *p = *state;
    const int64_t steps = 200000;
    FILE *file = fopen(p->steps, "w");
    assert_non_null(file);
    for (int64_t i = 1; i <= steps; i++)
        fprintf(file, "{\"step\": %lld, \"loss\": 0.5}\n", (long long)i);
    const long bytes = ftell(file);
    assert_int_equal(fclose(file), 0);
    assert_true(bytes > 2 * ECH__FOLLOW_LOOK);
    const int64_t total = seen(p);
    assert_true(total > 1000 && total < steps / 2);
    const ech__curve *curve = ech__follow_curve(p->follow);
    assert_int_equal(curve->bins[curve->count - 1].last, steps);
    assert_int_equal(curve->bins[0].first, 1);
    for (size_t i = 1; i < curve->count; i++) { /* everywhere, and none twice */
        assert_true(curve->bins[i].first > curve->bins[i - 1].last);
        assert_true(curve->bins[i].first - curve->bins[i - 1].last < steps / 25);
    }
    assert_int_equal(seen(p), total);
    put(p->steps, "a", "{\"step\": 200001}\n");
    assert_int_equal(seen(p), total + 1);
}

static void test_the_plan_of_a_run(void **state)
{
    place *p = *state;
    put(p->run, "w", "{\"config\": {\"steps\": 40, \"warmup\": 5}}");
    put(p->steps, "w", "{\"step\": 1, \"loss\": 2}\n");
    assert_int_equal(seen(p), 1);
    ech_json *json = ech__follow_json(p->follow);
    double steps, warmup;
    assert_int_equal(ech__json_get_real(p->ctx, json, "steps", &steps), ECH_OK);
    assert_int_equal(ech__json_get_real(p->ctx, json, "warmup", &warmup), ECH_OK);
    assert_true(steps == 40 && warmup == 5);
    assert_int_equal(ech__json_count(ech__json_find(json, "points")), 1);
    ech__json_destroy(json);
}

/* ---- devices ---- */

static void *spin(void *name)
{
    if (name)
        pthread_setname_np(pthread_self(), name);
    for (volatile long i = 0;; i++)
        ;
    return NULL;
}

static void *idle(void *name)
{
    if (name)
        pthread_setname_np(pthread_self(), name);
    for (;;)
        pause();
    return NULL;
}

/* A process that does what body says until it is killed, or its parent is. */
static pid_t start(void (*body)(void))
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        body();
        _exit(0);
    }
    return pid;
}

static void two_ranks(void)
{
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        spin(NULL);
    }
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        idle(NULL);
    }
    idle(NULL);
}

static void two_devices(void)
{
    pthread_t threads[3];
    pthread_create(&threads[0], NULL, spin, "device 1");
    pthread_create(&threads[1], NULL, idle, "device 2");
    pthread_create(&threads[2], NULL, idle, "device 2"); /* a device of two threads */
    idle(NULL);
}

/* Looks until two lanes are known and the second is at rest, for at most ten seconds: starting
 * takes it some time too. */
static void watch(ech__busy *busy, pid_t pid)
{
    for (int i = 0; i < 20; i++) {
        ech__busy_look(busy, pid);
        if (busy->count == 2 && busy->lanes[0].share > 0.02 && busy->lanes[1].share < 0.02)
            break;
        ech__clock_sleep(ECH__BUSY_LEAST_S + 0.1);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(busy->count, 2);
}

static void check_lanes(const ech__busy *busy, const char *first, const char *second)
{
    assert_true(busy->lanes[0].share > 0.02 && busy->lanes[0].share <= 1);
    assert_true(busy->lanes[1].share >= 0 && busy->lanes[1].share < 0.02);
    ech_json *json = ech__busy_json(busy);
    const char *name;
    assert_true(ech__json_string(ech__json_find(ech__json_at(json, 0), "name"), &name));
    assert_string_equal(name, first);
    assert_true(ech__json_string(ech__json_find(ech__json_at(json, 1), "name"), &name));
    assert_string_equal(name, second);
    ech__json_destroy(json);
}

static void test_ranks_are_children(void **state)
{
    (void)state;
    ech__busy busy = {0};
    watch(&busy, start(two_ranks));
    check_lanes(&busy, "process 0", "process 1");
}

static void test_devices_are_threads(void **state)
{
    (void)state;
    ech__busy busy = {0};
    watch(&busy, start(two_devices));
    check_lanes(&busy, "device 0", "device 1");
    assert_int_equal(busy.lanes[1].threads, 2);
}

static void test_nothing_runs(void **state)
{
    (void)state;
    ech__busy busy = {.pid = 5, .count = 1};
    ech__busy_look(&busy, 0);
    assert_int_equal(busy.count, 0);
    const pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
    ech__busy_look(&busy, pid);
    assert_int_equal(busy.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bins_are_steps_at_first),
        cmocka_unit_test(test_no_step_is_lost),
        cmocka_unit_test(test_a_loss_that_is_no_number_is_passed_over),
        cmocka_unit_test_setup_teardown(test_steps_are_read_as_they_come, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_new_file_begins_anew, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_renamed_directory_is_followed_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_line_that_is_too_long_is_passed_over, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_of_too_many_steps_some_are_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_plan_of_a_run, setup, teardown),
        cmocka_unit_test(test_ranks_are_children),
        cmocka_unit_test(test_devices_are_threads),
        cmocka_unit_test(test_nothing_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
