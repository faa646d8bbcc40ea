/* The tuning store: what was measured once stays, and plans follow it. */
#include "base/file.h"
#include "base/json.h"
#include "device/device.h"
#include "models/parts.h"
#include "plan/plan.h"
#include "support/cmocka_first.h"
#include "support/temp_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static void malformed_files_are_named(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *content, *says;
    } cases[] = {
        {"", ""},
        {"{", ""},
        {"[]", ""},
        {"{}", "version"},
        {"{\"version\":\"1\",\"machines\":{}}", "version"},
        {"{\"version\":2,\"machines\":{}}", "version is 2"},
        {"{\"version\":1}", "machines"},
        {"{\"version\":1,\"machines\":[]}", "machines"},
        {"{\"version\":1,\"machines\":{\"box\":3}}", "box"},
        {"{\"version\":1,\"machines\":{\"box\":{\"linear\":[1]}}}", "linear"},
        {"{\"version\":1,\"machines\":{\"box\":{\"linear\":{\"fast\":0}}}}", "'fast' for 'linear'"},
        {"{\"version\":1,\"machines\":{\"box\":{\"linear\":{\"fast\":-1}}}}", "'fast'"},
        {"{\"version\":1,\"machines\":{\"box\":{\"linear\":{\"fast\":\"1\"}}}}", "'fast'"},
        {"{\"version\":1,\"machines\":{\"box\":{\"linear\":{\"fast\":null}}}}", "'fast'"},
        {"{\"version\":1,\"machines\":{}} x", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *content = cases[i].content;
        assert_int_equal(ech__file_write(f->ctx, f->path, content, strlen(content)), ECH_OK);
        ech__tuning *tuning;
        const ech_status status = ech__tuning_open(f->ctx, f->path, &tuning);
        const char *error = ech_ctx_error(f->ctx);
        if (status != ECH_E_FORMAT || tuning || !strstr(error, f->path) ||
            !strstr(error, "tuning file") || !strstr(error, cases[i].says) || strchr(error, '\n'))
            fail_msg("%s: status %d, \"%s\"", content, (int)status, error);
    }
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

static void a_malformed_file_stops_a_trainer(void **state)
{
    fixture *f = *state;
    assert_int_equal(ech__file_write(f->ctx, f->path, "no json", 7), ECH_OK);
    ech_graph *graph;
    assert_int_equal(ech_graph_create(f->ctx, &graph), ECH_OK);
    const ech_value loss = ech__linear_stack(graph, 8, 1);
    ech_train_options options = ech_train_defaults();
    options.tuning_file = f->path;
    ech_trainer *trainer;
    assert_int_equal(ech_trainer_create(f->ctx, graph, loss, &options, &trainer), ECH_E_FORMAT);
    assert_null(trainer);
    assert_non_null(strstr(ech_ctx_error(f->ctx), f->path));
    options.tune = false; /* then nobody looks at it */
    assert_int_equal(ech_trainer_create(f->ctx, graph, loss, &options, &trainer), ECH_OK);
    ech_trainer_destroy(trainer);
    ech_graph_destroy(graph);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_was_put_comes_back),
        TEST(the_first_time_stands),
        TEST(nothing_new_writes_nothing),
        TEST(malformed_files_are_named),
        TEST(the_environment_names_the_default_file),
        TEST(equal_files_give_equal_choices),
        TEST(choices_follow_the_file),
        TEST(a_file_that_cannot_be_written_is_only_logged),
        TEST(a_malformed_file_stops_a_trainer),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
