/* The lab from inside: a run as a process, the name that its words give it, what is kept of it,
 * noise, and a lab that another thread looks at and stops. */
#include "lab/internal.h"
#include "lab/keep.h"
#include "lab/runner.h"
#include "lab/sheet.h"
#include "lab/words.h"

#include "support/cmocka_first.h"
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

typedef struct place {
    ech_ctx *ctx;
    char dir[64];
} place;

static int setup(void **state)
{
    place *p = calloc(1, sizeof *p);
    assert_non_null(p);
    strcpy(p->dir, "/tmp/ech_lab_XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    assert_int_equal(ech_ctx_create(NULL, &p->ctx), ECH_OK);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    place *p = *state;
    char moved[sizeof p->dir + 8]; /* a name by which it can be dropped with all that is in it */
    snprintf(moved, sizeof moved, "%s" ECH__LAB_KEEP_NEW, p->dir);
    assert_int_equal(rename(p->dir, moved), 0);
    assert_int_equal(ech__lab_keep_drop(p->ctx, p->dir), ECH_OK);
    ech_ctx_destroy(p->ctx);
    free(p);
    return 0;
}

static void join(const place *p, const char *name, char out[128])
{
    snprintf(out, 128, "%s/%s", p->dir, name);
}

/* ---- runner ---- */

typedef struct outcome {
    ech__runner_end end;
    char reason[200], err[128];
} outcome;

static outcome run_shell(place *p, const char *script, double limit, int stop_fd)
{
    outcome o;
    char out[128], text[400];
    join(p, "out", out);
    join(p, "err", o.err);
    snprintf(text, sizeof text, "%s", script);
    char *const argv[] = {"sh", "-c", text, NULL};
    const ech__runner_job job = {.program = "/bin/sh",
                                 .argv = argv,
                                 .env = environ,
                                 .out = out,
                                 .err = o.err,
                                 .limit_s = limit,
                                 .stop_fd = stop_fd};
    assert_int_equal(ech__runner_run(p->ctx, &job, &o.end), ECH_OK);
    ech__runner_reason(&o.end, o.err, o.reason, sizeof o.reason);
    return o;
}

static void runs_end_as_they_do(void **state)
{
    outcome o = run_shell(*state, "read x; exit 0", 10, -1); /* there is nothing to read */
    assert_int_equal(o.end.how, ECH__RUNNER_EXITED);
    assert_int_equal(o.end.code, 0);
    o = run_shell(*state, "echo >&2 early; echo >&2 'echelon train: it is full'; echo >&2; exit 3",
                  10, -1);
    assert_int_equal(o.end.how, ECH__RUNNER_EXITED);
    assert_int_equal(o.end.code, 3);
    assert_string_equal(o.reason, "it is full");
    o = run_shell(*state,
                  "echo >&2 '[rank 1] echelon train: it has no room'; "
                  "echo >&2 'echelon train: rank 1 (pid 7) exited with code 1'; exit 1",
                  10, -1);
    assert_string_equal(o.reason, "it has no room");
    o = run_shell(*state, "exit 4", 10, -1);
    assert_string_equal(o.reason, "failed with exit code 4 and no word");
    o = run_shell(*state, "printf >&2 'x%0300d' 7; exit 1", 10, -1);
    assert_int_equal(strlen(o.reason), sizeof o.reason - 1);
    assert_string_equal(o.reason + sizeof o.reason - 6, "00...");
    o = run_shell(*state, "echo >&2 words; kill -9 $$", 10, -1);
    assert_int_equal(o.end.how, ECH__RUNNER_KILLED);
    assert_string_equal(o.reason, "killed by signal 9");
    o = run_shell(*state, "printf >&2 'a\\tb\\033[1m\\n'; exit 1", 10, -1);
    assert_string_equal(o.reason, "a?b?[1m");
}

/* Whether the process that wrote its number to DIR/NAME is gone, or will be in a moment. */
static bool is_gone(place *p, const char *name)
{
    char path[128], number[32] = "";
    join(p, name, path);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(number, sizeof number, file));
    fclose(file);
    const int pid = (int)strtol(number, NULL, 10);
    assert_true(pid > 1);
    for (int i = 0; i < 100 && kill(pid, 0) == 0; i++) {
        char stat_path[64], line[256] = "";
        snprintf(stat_path, sizeof stat_path, "/proc/%d/stat", pid);
        FILE *info = fopen(stat_path, "r");
        const bool dead = !info || !fgets(line, sizeof line, info) || strstr(line, ") Z ");
        if (info)
            fclose(info);
        if (dead) /* nobody may have asked for its end yet */
            return true;
        poll(NULL, 0, 10);
    }
    return kill(pid, 0) != 0;
}

static void a_limit_ends_the_whole_group(void **state)
{
    place *p = *state;
    char script[300];
    /* The second process does not even listen to SIGTERM. */
    snprintf(script, sizeof script,
             "(trap '' TERM; sh -c 'echo $PPID' >%s/child; sleep 100; sleep 100) & wait", p->dir);
    const outcome o = run_shell(p, script, 0.3, -1);
    assert_int_equal(o.end.how, ECH__RUNNER_LIMIT);
    assert_true(o.end.seconds >= 0.3 && o.end.seconds < 5);
    assert_non_null(strstr(o.reason, "its limit"));
    assert_true(is_gone(p, "child"));
}

static void what_a_run_leaves_behind_is_ended(void **state)
{
    place *p = *state;
    char script[300];
    snprintf(script, sizeof script, "sleep 100 & echo $! >%s/child", p->dir);
    const outcome o = run_shell(p, script, 10, -1);
    assert_int_equal(o.end.how, ECH__RUNNER_EXITED);
    assert_true(is_gone(p, "child"));
}

static void a_run_is_stopped_by_its_descriptor(void **state)
{
    const int fd = eventfd(1, 0);
    assert_true(fd >= 0);
    const outcome o = run_shell(*state, "sleep 100", 10, fd);
    close(fd);
    assert_int_equal(o.end.how, ECH__RUNNER_STOPPED);
    assert_non_null(strstr(o.reason, "with the lab"));
}

static void what_cannot_be_started_is_an_error(void **state)
{
    place *p = *state;
    char *const argv[] = {"none", NULL};
    char out[128];
    join(p, "out", out);
    const ech__runner_job job = {.program = "/nonexistent/program",
                                 .argv = argv,
                                 .env = environ,
                                 .out = out,
                                 .err = out,
                                 .limit_s = 1,
                                 .stop_fd = -1};
    ech__runner_end end;
    assert_true(ech__runner_run(p->ctx, &job, &end) < 0);
    assert_non_null(strstr(ech_ctx_error(p->ctx), "/nonexistent/program cannot be started"));
}

/* ---- what is kept ---- */

static void touch(const char *dir, const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "%s%s", dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

static bool is_there(const char *dir, const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "%s%s", dir, name);
    return access(path, F_OK) == 0;
}

static void a_run_is_found_by_its_words(void **state)
{
    place *p = *state;
    char dir[128];
    double seconds = 0;
    join(p, "run", dir);
    const ech__lab_kept kept = {.words = "a b", .good = true, .seconds = 2.5};
    assert_int_equal(ech__lab_keep_begin(p->ctx, dir), ECH_OK);
    assert_false(ech__lab_keep_find(p->ctx, dir, "a b", &seconds));
    assert_int_equal(ech__lab_keep_save(p->ctx, dir, &kept), ECH_OK);
    assert_true(ech__lab_keep_find(p->ctx, dir, "a b", &seconds));
    assert_true(seconds == 2.5);
    assert_false(ech__lab_keep_find(p->ctx, dir, "a c", &seconds));
}

static void a_whole_run_stays_until_another_is_whole(void **state)
{
    place *p = *state;
    char dir[128], below[160];
    double seconds = 0;
    ech__lab_kept kept = {.words = "a b", .good = true, .seconds = 2.5};
    join(p, "run", dir);
    assert_int_equal(ech__lab_keep_begin(p->ctx, dir), ECH_OK);
    touch(dir, ".new/first");
    assert_int_equal(ech__lab_keep_save(p->ctx, dir, &kept), ECH_OK);
    assert_true(is_there(dir, "/first") && !is_there(dir, ".new"));

    assert_int_equal(ech__lab_keep_begin(p->ctx, dir), ECH_OK); /* stopped in the middle */
    touch(dir, ".new/second");
    snprintf(below, sizeof below, "%s.new/below", dir);
    assert_int_equal(mkdir(below, 0777), 0);
    assert_true(is_there(dir, "/first"));
    assert_int_equal(ech__lab_keep_begin(p->ctx, dir), ECH_OK); /* killed, and begun again */
    assert_false(is_there(dir, ".new/second") || is_there(dir, ".new/below"));
    kept.good = false;
    assert_int_equal(ech__lab_keep_save(p->ctx, dir, &kept), ECH_OK);
    assert_true(is_there(dir, "/first") && is_there(dir, ".failed/done.json"));
    assert_true(ech__lab_keep_find(p->ctx, dir, "a b", &seconds));

    assert_int_equal(ech__lab_keep_begin(p->ctx, dir), ECH_OK);
    touch(dir, ".new/third");
    kept.good = true;
    assert_int_equal(ech__lab_keep_save(p->ctx, dir, &kept), ECH_OK);
    assert_true(is_there(dir, "/third") && !is_there(dir, "/first"));
    assert_false(is_there(dir, ".failed") || is_there(dir, ".new"));
    assert_int_equal(ech__lab_keep_begin(p->ctx, dir), ECH_OK);
    assert_int_equal(ech__lab_keep_drop(p->ctx, dir), ECH_OK);
    assert_true(is_there(dir, "/third") && !is_there(dir, ".new"));
}

/* ---- words ---- */

static void no_runs(ech__lab_runs *runs)
{
    (void)runs;
}

static void no_words(ech__sheet *sheet)
{
    (void)sheet;
}

static const ech__lab_param sizes[] = {
    {"dim", 8, 16, 1, 65536, "width"}, {"depth", 2, 3, 1, 1000, "layers"}, {0}};
static const ech__study_card plain = {.id = "plain",
                                      .group = 'A',
                                      .place = 2,
                                      .title = "Plain",
                                      .about = "Nothing.",
                                      .params = sizes,
                                      .quick_seconds = 1,
                                      .full_seconds = 1,
                                      .runs = no_runs,
                                      .tell = no_words};
static const ech__study_card *const plain_cards[] = {&plain};

static ech__lab *make_lab(place *p, const char *name, ech__lab_options options)
{
    ech__lab *lab;
    static char out[128]; /* the lab keeps a copy */
    join(p, name, out);
    options.out = out;
    options.quick = true;
    if (!options.cards) {
        options.cards = plain_cards;
        options.card_count = 1;
    }
    assert_int_equal(ech__lab_create(p->ctx, &options, &lab), ECH_OK);
    return lab;
}

static ech__lab_line line_of(ech__lab *lab, const char *words)
{
    ech__lab_line line;
    assert_int_equal(ech__lab_line_make(&lab->studies[0], words, &line), ECH_OK);
    return line;
}

static void names_depend_on_words_alone(void **state)
{
    ech__lab *one = make_lab(*state, "one", ech__lab_options_default());
    ech__lab *two = make_lab(*state, "two", ech__lab_options_default());
    const ech__lab_line a = line_of(one, "train --dim 4 --save-params @out/w");
    const ech__lab_line b = line_of(two, "train  --dim 4 --save-params @out/w");
    assert_string_equal(a.name, b.name);
    assert_string_equal(a.key,
                        "train --dim 4 --save-params @out/w --seed 0 --threads 1 " ECH_VERSION);
    assert_string_not_equal(a.dir, b.dir);
    assert_false(a.prints);
    assert_string_equal(a.argv[a.argc - 2], "--run-dir");
    assert_string_equal(a.argv[a.argc - 1], a.made_in);
    assert_null(a.argv[a.argc]);
    assert_null(strstr(a.command, "--run-dir"));
    assert_string_not_equal(line_of(one, "train --dim 4 @repeat:2").name,
                            line_of(one, "train --dim 4 @repeat:3").name);
    assert_null(strchr(line_of(one, "train --dim 4 @repeat:2").command, '@'));
    ech__lab_destroy(one);
    ech__lab_destroy(two);
}

static void words_that_are_given_are_not_added(void **state)
{
    ech__lab_options options = ech__lab_options_default();
    options.seed = 7;
    ech__lab *lab = make_lab(*state, "lab", options);
    assert_string_equal(line_of(lab, "train --threads 2").key,
                        "train --threads 2 --seed 7 " ECH_VERSION);
    assert_string_equal(line_of(lab, "train --seed=1 --threads 2").key,
                        "train --seed=1 --threads 2 " ECH_VERSION);
    const ech__lab_line fit = line_of(lab, "train --fit --dim 8"),
                        comm = line_of(lab, "bench comm");
    assert_true(fit.prints && comm.prints);
    assert_string_equal(fit.command, "echelon train --fit --dim 8 --json");
    assert_int_equal(strncmp(comm.name, "bench-", 6), 0);
    ech__lab_line line;
    assert_true(ech__lab_line_make(&lab->studies[0], "train @frob", &line) < 0);
    assert_non_null(strstr(ech_ctx_error(((place *)*state)->ctx), "@frob: must be @images"));
    assert_true(ech__lab_line_make(&lab->studies[0], "train --init @of:x/w", &line) < 0);
    assert_non_null(strstr(ech_ctx_error(((place *)*state)->ctx), "@of:x/w: no run of that name"));
    assert_true(ech__lab_line_make(&lab->studies[0], "", &line) < 0);
    ech__lab_destroy(lab);
}

static void images_come_from_the_given_directory(void **state)
{
    place *p = *state;
    char dir[128], path[200];
    join(p, "cifar", dir);
    assert_int_equal(mkdir(dir, 0777), 0);
    assert_false(ech__images_are_in(dir));
    for (int i = 1; i <= 6; i++) {
        snprintf(path, sizeof path, i < 6 ? "%s/data_batch_%d.bin" : "%s/test_batch.bin", dir, i);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        assert_int_equal(ftruncate(fileno(file), 30730000),
                         0); /* a hole; only its size counts here */
        fclose(file);
    }
    assert_true(ech__images_are_in(dir));
    ech__lab_options options = ech__lab_options_default();
    options.data_dir = dir;
    ech__lab *lab = make_lab(p, "lab", options);
    const ech__lab_line line = line_of(lab, "train @images");
    assert_non_null(strstr(line.command, "--data cifar10 --data-dir /tmp/"));
    assert_null(strstr(line.key, "/tmp/"));
    ech__lab_destroy(lab);
}

static void images_that_cannot_be_fetched_are_synthetic(void **state)
{
    ech__lab_options options = ech__lab_options_default();
    options.program = "/bin/false";
    unsetenv("ECH_CIFAR");
    ech__lab *lab = make_lab(*state, "lab", options);
    const ech__lab_line line = line_of(lab, "train @images --seed 1");
    assert_string_equal(line.command,
                        "echelon train --data synthetic --seed 1 --threads 1 --keep-going");
    assert_int_equal(lab->images.kind, ECH__LAB_IMAGES_SYNTHETIC);
    assert_string_equal(lab->images.text,
                        "synthetic, because CIFAR-10 could not be had: failed with "
                        "exit code 1 and no word");
    ech__lab_destroy(lab);
}

static void sizes_of_a_study_bind_more(void **state)
{
    ech__lab_options options = ech__lab_options_default();
    options.sets[0] = "plain.dim=5";
    options.sets[1] = "dim=4";
    options.set_count = 2;
    ech__lab *lab = make_lab(*state, "lab", options);
    int64_t value;
    assert_true(ech__lab_param_value(lab, &plain, "dim", &value));
    assert_int_equal(value, 5);
    assert_true(ech__lab_param_value(lab, &plain, "depth", &value));
    assert_int_equal(value, 2);
    assert_false(ech__lab_param_value(lab, &plain, "width", &value));
    ech__lab_destroy(lab);
}

/* ---- order and noise ---- */

static void cards_are_sorted_by_group_and_place(void **state)
{
    (void)state;
    const ech__study_card a = {.id = "a", .group = 'B', .place = 1},
                          b = {.id = "b", .group = 'A', .place = 9},
                          c = {.id = "c", .group = 'A', .place = 3};
    const ech__study_card *cards[] = {&a, &b, &c};
    ech__lab_sort(cards, 3);
    assert_ptr_equal(cards[0], &c);
    assert_ptr_equal(cards[1], &b);
    assert_ptr_equal(cards[2], &a);
}

static void noise_is_the_spread_of_logarithms(void **state)
{
    place *p = *state;
    const double times[] = {1, exp(0.02), exp(0.04)};
    assert_true(fabs(ech__noise_spread(times, 3) - 0.02) < 1e-12);
    assert_true(ech__noise_spread(times, 1) == 0);
    ech__lab_noise noise;
    assert_int_equal(ech__noise_idle(p->ctx, 0.02, &noise), ECH_OK);
    assert_true(noise.idle_s > 1e-4 && noise.idle_s < 0.1);
    assert_true(noise.idle_spread >= 1);
}

/* ---- a lab that is looked at and stopped ---- */

static void ask_twice(ech__lab_runs *runs)
{
    ech__lab_run(runs, "x", "info");
    ech__lab_run(runs, "x", "plan");
}

static void ask_wrongly(ech__lab_runs *runs)
{
    double value;
    ech__lab_run(runs, "x", "info");
    ech__lab_known(runs, &value, "[nobody devices] +");
}

static void ask_forever(ech__lab_runs *runs)
{
    ech__lab_run(runs, "endless",
                 "train --model linear --dim 16 --depth 2 --batch-size 4 --steps 3000000");
    ech__lab_run(runs, "never", "info");
}

typedef struct watcher {
    ech__lab *lab;
    ech_ctx *ctx;
    char seen[64];
    size_t looked;
} watcher;

static void watch(const ech__lab_event *event, void *user)
{
    watcher *w = user;
    ech_json *json;
    assert_int_equal(ech__lab_snapshot(w->lab, w->ctx, &json), ECH_OK);
    const ech_json *current = ech__json_find(json, "current"),
                   *run = ech__json_find(current, "run");
    const char *id;
    int64_t pid;
    w->looked++;
    if (run && ech__json_string(run, &id) && event->kind == ECH__LAB_EVENT_TICK &&
        !strcmp(id, "endless")) {
        snprintf(w->seen, sizeof w->seen, "%s", id);
        assert_int_equal(ech__json_get_int(w->ctx, current, "pid", &pid), ECH_OK);
        assert_int_equal(kill((pid_t)pid, 0), 0);
        ech__lab_stop(w->lab);
    }
    ech__json_destroy(json);
}

static void a_lab_is_stopped_in_its_run(void **state)
{
    place *p = *state;
    watcher w = {.ctx = p->ctx};
    ech__study_card card = plain;
    card.runs = ask_forever;
    const ech__study_card *const cards[] = {&card};
    ech__lab_options options = ech__lab_options_default();
    options.program = getenv("ECHELON");
    options.cards = cards;
    options.card_count = 1;
    options.show = watch;
    options.user = &w;
    w.lab = make_lab(p, "lab", options);
    assert_int_equal(ech__lab_execute(w.lab), ECH_OK);
    assert_string_equal(w.seen, "endless");
    assert_true(w.looked > 5);
    ech_json *json;
    assert_int_equal(ech__lab_snapshot(w.lab, p->ctx, &json), ECH_OK);
    const ech_json *study = ech__json_at(ech__json_find(json, "studies"), 0);
    const ech_json *runs = ech__json_find(study, "runs");
    const char *text;
    assert_int_equal(ech__json_get_string(p->ctx, ech__json_at(runs, 0), "state", &text), ECH_OK);
    assert_string_equal(text, "failed");
    assert_int_equal(ech__json_get_string(p->ctx, ech__json_at(runs, 1), "state", &text), ECH_OK);
    assert_string_equal(text, "waiting");
    bool finished = false;
    assert_true(ech__json_bool(ech__json_find(json, "finished"), &finished) && finished);
    ech__json_destroy(json);
    /* Nothing was told, and the run is not taken for one that failed by itself. */
    char path[200];
    join(p, "lab/lab.json", path);
    assert_int_not_equal(access(path, F_OK), 0);
    ech__lab_destroy(w.lab);
}

static void a_study_that_asks_wrongly_is_named(void **state)
{
    place *p = *state;
    ech__study_card twice = plain, wrongly = plain;
    twice.id = "twice";
    twice.runs = ask_twice;
    wrongly.id = "wrongly";
    wrongly.runs = ask_wrongly;
    wrongly.place = 3;
    const ech__study_card *const cards[] = {&wrongly, &twice};
    ech__lab_options options = ech__lab_options_default();
    options.program = getenv("ECHELON");
    options.cards = cards;
    options.card_count = 2;
    ech__lab *lab = make_lab(p, "lab", options);
    assert_true(ech__lab_execute(lab) < 0);
    assert_non_null(
        strstr(ech_ctx_error(p->ctx), "study twice: run x is asked for as 'info' and as 'plan'"));
    assert_int_equal(lab->studies[1].stage, ECH__STUDY_BROKEN);
    assert_int_equal(lab->studies[1].tasks[0].state, ECH__LAB_DONE);
    ech__lab_destroy(lab);
}

int main(void)
{
    unsetenv("ECHELON_ISA");  /* a level that was asked for is part of a run's name */
    if (!getenv("ECHELON")) { /* without it a lab would start this very program */
        fprintf(stderr, "ECHELON must name the program\n");
        return 1;
    }
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(runs_end_as_they_do),
        CASE(a_limit_ends_the_whole_group),
        CASE(what_a_run_leaves_behind_is_ended),
        CASE(a_run_is_stopped_by_its_descriptor),
        CASE(what_cannot_be_started_is_an_error),
        CASE(a_run_is_found_by_its_words),
        CASE(a_whole_run_stays_until_another_is_whole),
        CASE(names_depend_on_words_alone),
        CASE(words_that_are_given_are_not_added),
        CASE(images_come_from_the_given_directory),
        CASE(images_that_cannot_be_fetched_are_synthetic),
        CASE(sizes_of_a_study_bind_more),
        CASE(cards_are_sorted_by_group_and_place),
        CASE(noise_is_the_spread_of_logarithms),
        CASE(a_lab_is_stopped_in_its_run),
        CASE(a_study_that_asks_wrongly_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
