/* The tuning store: what was measured once stays, and plans follow it. */
#include "base/file/file.h"
#include "base/file/json.h"
#include "base/file/dir.h"
#include "device/device.h"
#include "models/internal.h"
#include "plan/plan.h"
#include "support/cmocka_first.h"
#include "support/temp_dir.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct fixture {
    ech_ctx *ctx;
    temp_dir dir;
    char path[TEMP_PATH]; /* of a tuning file that is not there yet */
    char log[512];        /* the last line */
} fixture;

static void keep_line(void *user, const char *line)
{
    fixture *f = user;
    snprintf(f->log, sizeof f->log, "%s", line);
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    const ech_ctx_options options = {.log = keep_line, .log_user = f};
    assert_int_equal(ech_ctx_create(&options, &f->ctx), ECH_OK);
    f->dir = temp_dir_create();
    temp_dir_path(&f->dir, "tuning.json", f->path);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    temp_dir_destroy(&f->dir);
    ech_ctx_destroy(f->ctx);
    free(f);
    return 0;
}

static ech__tuning *open_store(fixture *f)
{
    ech__tuning *tuning;
    if (ech__tuning_open(f->ctx, f->path, &tuning) < 0)
        fail_msg("%s", ech_ctx_error(f->ctx));
    return tuning;
}

static double time_of(const ech__tuning *tuning, const char *machine, const char *work,
                      const char *kernel)
{
    double seconds = -1;
    const bool found = ech__tuning_find(tuning, machine, work, kernel, &seconds);
    assert_true(found == (seconds > 0));
    return seconds;
}

/* ---- the store ---- */

static void what_was_put_comes_back(void **state)
{
    fixture *f = *state;
    const double odd = 0.1 / 3;
    ech__tuning *tuning = open_store(f);
    assert_int_equal(ech__tuning_added(tuning), 0);
    ech__tuning_put(tuning, "m1", "w1", "k1", odd);
    ech__tuning_put(tuning, "m1", "w1", "k2", 2e-9);
    ech__tuning_put(tuning, "m1", "w2", "k1", 3);
    ech__tuning_put(tuning, "m2", "w1", "k1", 4);
    assert_int_equal(ech__tuning_added(tuning), 4);
    assert_int_equal(ech__tuning_save(tuning), ECH_OK);
    ech__tuning_close(tuning);

    tuning = open_store(f);
    assert_true(time_of(tuning, "m1", "w1", "k1") == odd); /* to the bit */
    assert_true(time_of(tuning, "m1", "w1", "k2") == 2e-9);
    assert_true(time_of(tuning, "m1", "w2", "k1") == 3);
    assert_true(time_of(tuning, "m2", "w1", "k1") == 4);
    assert_true(time_of(tuning, "m2", "w2", "k1") == -1);
    assert_true(time_of(tuning, "m1", "w1", "k3") == -1);
    assert_int_equal(ech__tuning_added(tuning), 0);
    ech__tuning_close(tuning);
}

static void the_first_time_stands(void **state)
{
    fixture *f = *state;
    ech__tuning *one = open_store(f), *two = open_store(f);
    ech__tuning_put(one, "m", "w", "shared", 1);
    ech__tuning_put(one, "m", "w", "shared", 5);
    ech__tuning_put(one, "m", "w", "one", 2);
    ech__tuning_put(two, "m", "w", "shared", 9);
    ech__tuning_put(two, "m", "w", "two", 3);
    assert_true(time_of(one, "m", "w", "shared") == 1);
    assert_int_equal(ech__tuning_save(one), ECH_OK);
    assert_int_equal(ech__tuning_save(two), ECH_OK);
    assert_true(time_of(two, "m", "w", "shared") == 1); /* the other's was written first */
    assert_true(time_of(two, "m", "w", "one") == 2);
    ech__tuning_close(one);
    ech__tuning_close(two);

    ech__tuning *later = open_store(f);
    assert_true(time_of(later, "m", "w", "shared") == 1);
    assert_true(time_of(later, "m", "w", "one") == 2);
    assert_true(time_of(later, "m", "w", "two") == 3);
    ech__tuning_close(later);
}

static void nothing_new_writes_nothing(void **state)
{
    fixture *f = *state;
    ech__tuning *tuning = open_store(f);
    assert_int_equal(ech__tuning_save(tuning), ECH_OK);
    assert_int_equal(access(f->path, F_OK), -1);
    ech__tuning_close(tuning);
    ech__tuning *memory;
    assert_int_equal(ech__tuning_open(f->ctx, NULL, &memory), ECH_OK);
    ech__tuning_put(memory, "m", "w", "k", 1);
    assert_int_equal(ech__tuning_save(memory), ECH_OK);
    ech__tuning_close(memory);
}

static void foreign_files_are_an_empty_store(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *content, *says;
    } cases[] = {
        {"", ""},
        {"{", ""},
        {"[]", ""},
        {"a thesis", ""},
        {"{}", "version"},
        {"{\"version\":\"1\",\"machines\":{}}", "version"},
        {"{\"version\":2,\"machines\":{}}", "version is 2"},
        {"{\"version\":1}", "machines"},
        {"{\"version\":1,\"machines\":[]}", "machines"},
        {"{\"version\":1,\"machines\":{\"m\":{\"w\":{\"k\":1}}, \"box\":3}}", "box"},
        {"{\"version\":1,\"machines\":{\"box\":{\"linear\":[1]}}}", "linear"},
        {"{\"version\":1,\"machines\":{}} x", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *content = cases[i].content;
        assert_int_equal(ech__file_write(f->ctx, f->path, content, strlen(content)), ECH_OK);
        f->log[0] = 0;
        ech__tuning *tuning = open_store(f);
        if (!strstr(f->log, f->path) || !strstr(f->log, "tuning file") ||
            !strstr(f->log, cases[i].says) || *ech_ctx_error(f->ctx))
            fail_msg("%s: \"%s\"", content, f->log);
        assert_true(time_of(tuning, "m", "w", "k") == -1);
        /* It is not ours to replace. */
        ech__tuning_put(tuning, "m", "w", "k", 1);
        assert_true(ech__tuning_save(tuning) < 0);
        ech__tuning_close(tuning);
        char *kept;
        size_t bytes;
        assert_int_equal(ech__file_read(f->ctx, f->path, 1000, &kept, &bytes), ECH_OK);
        assert_string_equal(kept, content);
        free(kept);
    }
}

static void unreadable_files_are_an_empty_store(void **state)
{
    fixture *f = *state;
    for (int k = 0; k < 3; k++) { /* a directory, a pipe without a writer, more than is read */
        if (k == 0)
            assert_int_equal(mkdir(f->path, 0700), 0);
        else if (k == 1)
            assert_int_equal(mkfifo(f->path, 0600), 0);
        else
            assert_int_equal(
                ech__file_write(f->ctx, f->path, "{}", 2) || truncate(f->path, (64 << 20) + 1), 0);
        f->log[0] = 0;
        ech__tuning *tuning = open_store(f);
        assert_non_null(strstr(f->log, f->path));
        ech__tuning_close(tuning);
        assert_int_equal(remove(f->path), 0);
    }
}

static void what_is_no_time_is_not_kept(void **state)
{
    fixture *f = *state;
    static const char content[] =
        "{\"version\":1,\"machines\":{\"m\":{\"w\":{\"zero\":0,\"less\":-1,\"word\":\"1\","
        "\"none\":null,\"good\":2}}}}";
    assert_int_equal(ech__file_write(f->ctx, f->path, content, strlen(content)), ECH_OK);
    ech__tuning *tuning = open_store(f);
    assert_true(time_of(tuning, "m", "w", "good") == 2);
    assert_true(time_of(tuning, "m", "w", "zero") == -1);
    const double bad[] = {0, -1, NAN, INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ech__tuning_put(tuning, "m", "w", "bad", bad[i]);
    assert_int_equal(ech__tuning_added(tuning), 0);
    ech__tuning_put(tuning, "m", "w", "new", 3);
    assert_int_equal(ech__tuning_save(tuning), ECH_OK);
    ech__tuning_close(tuning);
    tuning = open_store(f);
    assert_true(time_of(tuning, "m", "w", "good") == 2 && time_of(tuning, "m", "w", "new") == 3);
    assert_true(time_of(tuning, "m", "w", "bad") == -1);
    ech__tuning_close(tuning);
}

static void a_lock_that_is_held_is_not_waited_for(void **state)
{
    fixture *f = *state;
    int lock, second;
    assert_int_equal(ech__store_lock(f->ctx, f->path, 1, &lock), ECH_OK);
    assert_int_equal(ech__store_lock(f->ctx, f->path, 0.05, &second), ECH_E_IO);
    assert_int_equal(second, -1);
    assert_non_null(strstr(ech_ctx_error(f->ctx), "tuning.json.lock: another process"));
    ech__tuning *tuning = open_store(f);
    ech__tuning_put(tuning, "m", "w", "k", 1);
    assert_int_equal(ech__tuning_save(tuning), ECH_E_IO);
    close(lock);
    assert_int_equal(ech__tuning_save(tuning), ECH_OK);
    ech__tuning_close(tuning);
    tuning = open_store(f);
    assert_true(time_of(tuning, "m", "w", "k") == 1);
    ech__tuning_close(tuning);
}

static void the_environment_names_the_default_file(void **state)
{
    fixture *f = *state;
    char path[TEMP_PATH], wanted[TEMP_PATH + 32];
    assert_int_equal(setenv("ECHELON_TUNING", "/some/where.json", 1), 0);
    assert_int_equal(ech__tuning_default_path(f->ctx, path, sizeof path), ECH_OK);
    assert_string_equal(path, "/some/where.json");
    assert_true(ech__tuning_default_path(f->ctx, path, 5) < 0);
    assert_int_equal(unsetenv("ECHELON_TUNING"), 0);
    assert_int_equal(setenv("XDG_CACHE_HOME", f->dir.path, 1), 0);
    assert_int_equal(ech__tuning_default_path(f->ctx, path, sizeof path), ECH_OK);
    snprintf(wanted, sizeof wanted, "%s/echelon/tuning.json", f->dir.path);
    assert_string_equal(path, wanted);
    snprintf(wanted, sizeof wanted, "%s/echelon", f->dir.path);
    assert_int_equal(rmdir(wanted), 0); /* it was made */
    assert_int_equal(setenv("XDG_CACHE_HOME", "/dev/null/cache", 1), 0);
    assert_int_equal(ech__tuning_default_path(f->ctx, path, sizeof path), ECH_OK);
    assert_string_equal(path, "");
    unsetenv("XDG_CACHE_HOME");
}

/* ---- plans ---- */

typedef struct planned {
    ech_graph *graph;
    ech__device *device;
    ech__plan *plan;
    int added;
} planned;

/* A plan of a small linear stack by the file's times; what is missing there is measured and saved. */
static planned plan_by_file(fixture *f)
{
    planned p;
    ech__tuning *tuning = open_store(f);
    assert_int_equal(ech_graph_create(f->ctx, &p.graph), ECH_OK);
    assert_int_equal(ech__autodiff(p.graph, ech__linear_stack(p.graph, 96, 2)), ECH_OK);
    const ech__device_options options = {.kind = ECH__DEVICE_CPU, .threads = 1};
    assert_int_equal(ech__device_create(f->ctx, &options, &p.device), ECH_OK);
    assert_int_equal(ech__plan_create(p.graph, p.device,
                                      &(ech__plan_options){.batch = 12, .tuning = tuning}, &p.plan),
                     ECH_OK);
    p.added = ech__tuning_added(tuning);
    assert_int_equal(ech__tuning_save(tuning), ECH_OK);
    ech__tuning_close(tuning);
    return p;
}

static void planned_destroy(planned *p)
{
    ech__plan_destroy(p->plan);
    ech__device_destroy(p->device);
    ech_graph_destroy(p->graph);
}

/* How many operators got another kernel or layout. */
static int differences(const ech__plan *a, const ech__plan *b)
{
    int count = 0;
    assert_int_equal(a->ninstrs, b->ninstrs);
    for (size_t n = 0; n < a->ninstrs; n++) {
        const ech__instr *x = &a->instrs[n], *y = &b->instrs[n];
        bool same = !strcmp(x->choice.name, y->choice.name) && x->seconds == y->seconds;
        for (int i = 0; i < x->desc.nin + x->desc.nout; i++)
            same =
                same && ech__layout_equal(&x->desc.operands[i].layout, &y->desc.operands[i].layout);
        count += !same;
    }
    return count;
}

static void equal_files_give_equal_choices(void **state)
{
    fixture *f = *state;
    planned first = plan_by_file(f), second = plan_by_file(f);
    assert_true(first.added > 0);
    assert_int_equal(second.added, 0); /* nothing was measured again */
    assert_int_equal(differences(first.plan, second.plan), 0);
    planned_destroy(&first);
    planned_destroy(&second);
}

/* Gives every entry of the file the time 1/time: the slowest becomes the fastest. */
static void turn_times_around(fixture *f)
{
    ech_json *doc;
    const ech_json *machines;
    assert_int_equal(ech__json_load(f->ctx, f->path, 1 << 20, &doc), ECH_OK);
    assert_int_equal(ech__json_get_object(f->ctx, doc, "machines", &machines), ECH_OK);
    assert_int_equal(unlink(f->path), 0);
    ech__tuning *turned = open_store(f);
    for (ech__json_iter m = ech__json_begin(machines); m.key; ech__json_next(&m)) {
        for (ech__json_iter w = ech__json_begin(m.value); w.key; ech__json_next(&w)) {
            for (ech__json_iter k = ech__json_begin(w.value); k.key; ech__json_next(&k)) {
                double seconds;
                assert_true(ech__json_real(k.value, &seconds));
                ech__tuning_put(turned, m.key, w.key, k.key, 1 / seconds);
            }
        }
    }
    assert_int_equal(ech__tuning_save(turned), ECH_OK);
    ech__tuning_close(turned);
    ech__json_destroy(doc);
}

static void choices_follow_the_file(void **state)
{
    fixture *f = *state;
    planned first = plan_by_file(f);
    turn_times_around(f);
    planned second = plan_by_file(f);
    assert_int_equal(second.added, 0);
    for (size_t n = 0; n < second.plan->ninstrs;
         n++) /* what was measured took far less than a second */
        assert_true(second.plan->instrs[n].seconds == 0 || second.plan->instrs[n].seconds > 1);
    assert_true(differences(first.plan, second.plan) > 0);
    planned_destroy(&first);
    planned_destroy(&second);
}

static void a_file_that_cannot_be_written_is_only_logged(void **state)
{
    fixture *f = *state;
    char path[TEMP_PATH];
    temp_dir_path(&f->dir, "no-such-directory/tuning.json", path);
    ech_graph *graph;
    assert_int_equal(ech_graph_create(f->ctx, &graph), ECH_OK);
    const ech_value loss = ech__linear_stack(graph, 8, 1);
    ech_train_options options = ech_train_defaults();
    options.threads = 1;
    options.tuning_file = path;
    ech_trainer *trainer;
    assert_int_equal(ech_trainer_create(f->ctx, graph, loss, &options, &trainer), ECH_OK);
    assert_non_null(strstr(f->log, "not kept"));
    assert_non_null(strstr(f->log, path));
    assert_string_equal(ech_ctx_error(f->ctx), "");
    ech_trainer_destroy(trainer);
    ech_graph_destroy(graph);
}

static void a_foreign_file_stops_no_trainer(void **state)
{
    fixture *f = *state;
    assert_int_equal(ech__file_write(f->ctx, f->path, "nonsense", 8), ECH_OK);
    ech_graph *graph;
    assert_int_equal(ech_graph_create(f->ctx, &graph), ECH_OK);
    const ech_value loss = ech__linear_stack(graph, 8, 1);
    ech_train_options options = ech_train_defaults();
    options.threads = 1;
    options.tuning_file = f->path;
    ech_trainer *trainer;
    assert_int_equal(ech_trainer_create(f->ctx, graph, loss, &options, &trainer), ECH_OK);
    assert_non_null(strstr(f->log, f->path));
    ech_trainer_destroy(trainer);
    ech_graph_destroy(graph);
}

/* A plan that may not time: as one that timed where all times are there, and else as one without a store. */
static void a_frozen_store_is_only_looked_at(void **state)
{
    fixture *f = *state;
    planned timed = plan_by_file(f);
    turn_times_around(f);
    for (int64_t batch = 12; batch <= 13; batch++) {
        ech__plan *plan, *plain;
        ech__tuning *tuning = open_store(f);
        ech__tuning_freeze(tuning);
        assert_int_equal(ech__plan_create(timed.graph, timed.device,
                                          &(ech__plan_options){.batch = batch, .tuning = tuning},
                                          &plan),
                         ECH_OK);
        assert_int_equal(ech__tuning_added(tuning), 0);
        assert_int_equal(ech__plan_create(timed.graph, timed.device,
                                          &(ech__plan_options){.batch = batch}, &plain),
                         ECH_OK);
        planned again = batch == 12 ? plan_by_file(f) : (planned){.plan = NULL};
        assert_int_equal(differences(plan, batch == 12 ? again.plan : plain), 0);
        ech__plan_destroy(plan);
        ech__plan_destroy(plain);
        if (again.plan)
            planned_destroy(&again);
        ech__tuning_close(tuning);
    }
    planned_destroy(&timed);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_was_put_comes_back),
        TEST(the_first_time_stands),
        TEST(nothing_new_writes_nothing),
        TEST(foreign_files_are_an_empty_store),
        TEST(unreadable_files_are_an_empty_store),
        TEST(what_is_no_time_is_not_kept),
        TEST(a_lock_that_is_held_is_not_waited_for),
        TEST(the_environment_names_the_default_file),
        TEST(equal_files_give_equal_choices),
        TEST(choices_follow_the_file),
        TEST(a_file_that_cannot_be_written_is_only_logged),
        TEST(a_foreign_file_stops_no_trainer),
        TEST(a_frozen_store_is_only_looked_at),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
