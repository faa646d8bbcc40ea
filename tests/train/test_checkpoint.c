/* The parts of a checkpoint apart from a run: the directory, the manifest, the state. */
#include "support/cmocka_first.h"
#include "base/file/file.h"
#include "train/checkpoint/dir.h"
#include "train/checkpoint/state.h"

#include <dirent.h>
#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct fixture {
    ech_ctx *ctx;
    char root[64];
    char dir[96]; /* of checkpoints; not there yet */
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_int_equal(ech_ctx_create(NULL, &f->ctx), ECH_OK);
    strcpy(f->root, "/tmp/echelon-test-XXXXXX");
    assert_non_null(mkdtemp(f->root));
    snprintf(f->dir, sizeof f->dir, "%s/made/here", f->root);
    *state = f;
    return 0;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

static int tear_down(void **state)
{
    fixture *f = *state;
    nftw(f->root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    ech_ctx_destroy(f->ctx);
    free(f);
    return 0;
}

static void says(const fixture *f, ech_status status, const char *words)
{
    assert_true(status < 0);
    if (!strstr(ech_ctx_error(f->ctx), words))
        fail_msg("'%s' does not say '%s'", ech_ctx_error(f->ctx), words);
    assert_null(strchr(ech_ctx_error(f->ctx), '\n'));
}

/* A checkpoint whose parts all hold the number of its step. Every other one has all parts that there are. */
static ech_status save(ech_ctx *ctx, ech__checkpoint_dir *dir, int64_t step)
{
    char path[ECH_DIR_MAX_PATH], text[32];
    const int length = snprintf(text, sizeof text, "%lld", (long long)step);
    ECH_TRY(ech__checkpoint_begin(dir, step));
    for (int p = 0; p < (step % 2 ? ECH__CHECKPOINT_NEEDED : ECH__CHECKPOINT_COUNT); p++) {
        ECH_TRY(ech__checkpoint_new_path(dir, (ech__checkpoint_file)p, path));
        ECH_TRY(ech__file_write(ctx, path, text, (size_t)length));
    }
    return ech__checkpoint_commit(dir);
}

static int64_t load(ech_ctx *ctx, const char *dir)
{
    char found[ECH_DIR_MAX_PATH], path[ECH_DIR_MAX_PATH], *text;
    size_t bytes;
    int64_t step = -1;
    assert_int_equal(ech__checkpoint_find(ctx, dir, found), ECH_OK);
    if (ech__checkpoint_verify(ctx, found) < 0)
        fail_msg("%s", ech_ctx_error(ctx));
    for (int p = 0; p < ECH__CHECKPOINT_COUNT; p++) {
        if (p >= ECH__CHECKPOINT_NEEDED && step % 2)
            break;
        assert_int_equal(ech__checkpoint_file_path(ctx, found, (ech__checkpoint_file)p, path),
                         ECH_OK);
        assert_int_equal(ech__file_read(ctx, path, 64, &text, &bytes), ECH_OK);
        assert_true(step < 0 || step == atoll(text));
        step = atoll(text);
        free(text);
    }
    return step;
}

static int entries(const char *dir)
{
    DIR *list = opendir(dir);
    assert_non_null(list);
    int count = -2; /* . and .. */
    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        count += strcmp(entry->d_name, ".checkpoints.lock") != 0;
    closedir(list);
    return count;
}

static void test_the_last_two_are_kept(void **state)
{
    fixture *f = *state;
    ech__checkpoint_dir *dir;
    assert_int_equal(ech__checkpoint_dir_open(f->ctx, f->dir, NULL, &dir), ECH_OK);
    ech__checkpoint_dir_close(dir);
    assert_int_not_equal(access(f->dir, F_OK), 0); /* nothing was saved */
    assert_int_equal(ech__checkpoint_dir_open(f->ctx, f->dir, NULL, &dir), ECH_OK);
    assert_int_equal(ech__checkpoint_last(dir), -1);
    for (int64_t step = 1; step < 6; step++) {
        assert_int_equal(save(f->ctx, dir, step), ECH_OK);
        assert_int_equal(load(f->ctx, f->dir), step);
        assert_int_equal(ech__checkpoint_last(dir), step);
        assert_int_equal(entries(f->dir), step == 1 ? 2 : 3);
    }
    ech__checkpoint_dir_close(dir);
}

static void test_what_was_not_committed_is_not_there(void **state)
{
    fixture *f = *state;
    ech__checkpoint_dir *dir;
    char path[ECH_DIR_MAX_PATH];
    assert_int_equal(ech__checkpoint_dir_open(f->ctx, f->dir, NULL, &dir), ECH_OK);
    assert_int_equal(save(f->ctx, dir, 3), ECH_OK);
    assert_int_equal(ech__checkpoint_begin(dir, 4), ECH_OK);
    assert_int_equal(ech__checkpoint_new_path(dir, ECH__CHECKPOINT_MODEL, path), ECH_OK);
    assert_int_equal(ech__file_write(f->ctx, path, "x", 1), ECH_OK);
    says(f, ech__checkpoint_commit(dir), "optimizer.safetensors"); /* two parts are missing */
    ech__checkpoint_dir_close(dir);
    assert_int_equal(load(f->ctx, f->dir), 3);
    assert_int_equal(entries(f->dir), 2);
}

static void test_a_directory_belongs_to_one_run(void **state)
{
    fixture *f = *state;
    ech__checkpoint_dir *dir, *other;
    char resumed[ECH_DIR_MAX_PATH];
    assert_int_equal(ech__checkpoint_dir_open(f->ctx, f->dir, NULL, &dir), ECH_OK);
    assert_int_equal(save(f->ctx, dir, 7), ECH_OK);
    assert_int_equal(ech__checkpoint_find(f->ctx, f->dir, resumed), ECH_OK);
    says(f, ech__checkpoint_dir_open(f->ctx, f->dir, resumed, &other), "in use by process");
    assert_null(other);
    ech__checkpoint_dir_close(dir);
    says(f, ech__checkpoint_dir_open(f->ctx, f->dir, NULL, &other), "holds step 7 of another run");
    assert_null(other);
    assert_int_equal(ech__checkpoint_dir_open(f->ctx, f->dir, resumed, &dir), ECH_OK);
    assert_int_equal(ech__checkpoint_last(dir), 7);
    ech__checkpoint_dir_close(dir);
}

/* Checkpoints that a user has moved away, or leftovers that are links to what is not ours. */
static void test_links_are_removed_not_what_they_lead_to(void **state)
{
    fixture *f = *state;
    ech__checkpoint_dir *dir;
    char path[256], kept[256];
    snprintf(kept, sizeof kept, "%s/precious", f->root);
    assert_int_equal(mkdir(kept, 0777), 0);
    snprintf(kept, sizeof kept, "%s/precious/file", f->root);
    assert_int_equal(ech__file_write(f->ctx, kept, "x", 1), ECH_OK);
    assert_int_equal(ech__dir_make(f->ctx, "place", f->dir), ECH_OK);
    static const char *const names[] = {".step-000001.tmp", ".step-000001.old", ".step-x"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", f->dir, names[i]);
        assert_int_equal(symlink("../../precious", path), 0);
    }
    assert_int_equal(ech__checkpoint_dir_open(f->ctx, f->dir, NULL, &dir), ECH_OK);
    assert_int_equal(entries(f->dir), 0);
    assert_int_equal(access(kept, F_OK), 0);
    for (int64_t step = 1; step < 3; step++)
        assert_int_equal(save(f->ctx, dir, step), ECH_OK);
    snprintf(path, sizeof path, "%s/step-000000", f->dir);
    assert_int_equal(symlink("../../precious", path), 0);
    assert_int_equal(save(f->ctx, dir, 3), ECH_OK);
    assert_int_equal(access(kept, F_OK), 0);
    assert_int_equal(entries(f->dir), 3); /* LATEST and two */
    ech__checkpoint_dir_close(dir);
}

/* A run that goes on from an older one comes past the steps of the newer ones again. */
static void test_a_run_that_began_further_back(void **state)
{
    fixture *f = *state;
    ech__checkpoint_dir *dir;
    char older[ECH_DIR_MAX_PATH];
    assert_int_equal(ech__checkpoint_dir_open(f->ctx, f->dir, NULL, &dir), ECH_OK);
    assert_int_equal(save(f->ctx, dir, 5), ECH_OK);
    assert_int_equal(ech__checkpoint_find(f->ctx, f->dir, older), ECH_OK);
    assert_int_equal(save(f->ctx, dir, 9), ECH_OK);
    ech__checkpoint_dir_close(dir);
    assert_int_equal(ech__checkpoint_dir_open(f->ctx, f->dir, older, &dir), ECH_OK);
    assert_int_equal(ech__checkpoint_last(dir), 5);
    assert_int_equal(save(f->ctx, dir, 9), ECH_OK);
    assert_int_equal(load(f->ctx, f->dir), 9);
    assert_int_equal(save(f->ctx, dir, 10), ECH_OK);
    assert_int_equal(load(f->ctx, f->dir), 10);
    assert_int_equal(entries(f->dir), 3);
    ech__checkpoint_dir_close(dir);
}

/* ---- kills ---- */

/* Goes on from what is there, says so, and saves, step after step, and says so, until it is killed. */
static void save_for_ever(const fixture *f, int ready)
{
    ech_ctx *ctx;
    ech__checkpoint_dir *dir;
    char resumed[ECH_DIR_MAX_PATH];
    if (ech_ctx_create(NULL, &ctx) < 0 || ech__checkpoint_find(ctx, f->dir, resumed) < 0 ||
        ech__checkpoint_dir_open(ctx, f->dir, resumed, &dir) < 0 || write(ready, "", 1) != 1)
        _exit(1);
    for (int64_t step = ech__checkpoint_last(dir) + 1; save(ctx, dir, step) == ECH_OK; step++) {
        if (write(ready, "", 1) != 1)
            _exit(1);
    }
    _exit(2);
}

static void test_kills_leave_the_old_or_the_new(void **state)
{
    fixture *f = *state;
    ech__checkpoint_dir *dir;
    assert_int_equal(ech__checkpoint_dir_open(f->ctx, f->dir, NULL, &dir), ECH_OK);
    assert_int_equal(save(f->ctx, dir, 1), ECH_OK);
    ech__checkpoint_dir_close(dir);
    int64_t last = 1;
    srand(1);
    for (int round = 0; round < 60; round++) {
        int ready[2], status;
        char byte;
        assert_int_equal(pipe(ready), 0);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            save_for_ever(f, ready[1]);
        close(ready[1]);
        /* Every other time it gets further, however slow the machine is. */
        for (int wanted = 1 + round % 2; wanted > 0; wanted--)
            assert_int_equal(read(ready[0], &byte, 1), 1);
        usleep((useconds_t)(rand() % 40000));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        close(ready[0]);
        assert_true(WIFSIGNALED(status)); /* it had not ended by itself: all saves were good */
        const int64_t step = load(f->ctx, f->dir);
        assert_true(step >= last);
        last = step;
    }
    assert_true(last > 30);
}

/* ---- texts ---- */

static const char MANIFEST[] =
    "{\"format\": 1, \"files\": {\"model.safetensors\": {\"bytes\": 1, \"sha256\": \"%s\"}, "
    "\"optimizer.safetensors\": {\"bytes\": 2, \"sha256\": \"%s\"}, "
    "\"state.json\": {\"bytes\": 3, \"sha256\": \"%s\"}}}";
static const char HASH[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/* Replaces the first `from` in text. */
static char *changed(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    char *out;
    assert_non_null(at);
    assert_true(asprintf(&out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0);
    return out;
}

static void test_manifests(void **state)
{
    fixture *f = *state;
    char good[1024];
    ech__manifest m;
    snprintf(good, sizeof good, MANIFEST, HASH, HASH, HASH);
    assert_int_equal(ech__manifest_parse(f->ctx, "M", good, strlen(good), &m), ECH_OK);
    assert_int_equal(m.bytes[ECH__CHECKPOINT_STATE], 3);
    assert_string_equal(m.sha256[ECH__CHECKPOINT_OPTIMIZER], HASH);
    assert_int_equal(m.bytes[ECH__CHECKPOINT_BUFFERS], -1);
    char *more = changed(good, "\"state.json\"",
                         "\"buffers.safetensors\": {\"bytes\": 4, \"sha256\": "
                         "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}, "
                         "\"state.json\"");
    assert_int_equal(ech__manifest_parse(f->ctx, "M", more, strlen(more), &m), ECH_OK);
    assert_int_equal(m.bytes[ECH__CHECKPOINT_BUFFERS], 4);
    free(more);
    static const struct {
        const char *from, *to, *words;
    } cases[] = {
        {"\"format\": 1", "\"format\": 2", "M: the format is 2; this program reads 1"},
        {"\"format\": 1, ", "", "M: \"format\" is missing"},
        {"model.safetensors", "model.bin", "M: model.safetensors is missing"},
        {"\"bytes\": 1", "\"bytes\": -1", "M: model.safetensors cannot have -1 bytes"},
        {"\"bytes\": 2", "\"bytes\": \"2\"", "\"bytes\" must be an integer"},
        {"0123", "012", "the sha256 of model.safetensors is not 64"},
        {"0123", "ABCD", "the sha256 of model.safetensors is not 64"},
        {"{\"model", "{\"../../etc/passwd\": {}, \"model", "there are 4 files; a checkpoint has 3"},
        {"}}}", "}}", "M: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *bad = changed(good, cases[i].from, cases[i].to);
        says(f, ech__manifest_parse(f->ctx, "M", bad, strlen(bad), &m), cases[i].words);
        free(bad);
    }
}

static char *state_text(const fixture *f)
{
    ech_json *config = ech__json_object(), *choices = ech__json_object();
    ech_json *kernels = ech__json_array(), *kernel = ech__json_object();
    ech_json *layouts = ech__json_object();
    ech__json_set_string(&config, "model", "lenet");
    ech__json_set_real(&config, "lr", 0.1);
    ech__json_set_int(&config, "batch-size", 4);
    ech__json_set_string(&kernel, "op", "linear");
    ech__json_set_string(&kernel, "name", "fc1");
    ech__json_set_string(&kernel, "kernel", "openblas");
    ech__json_set_real(&kernel, "time_s", 1e-3);
    ech__json_append(&kernels, kernel);
    ech__json_set(&choices, "kernels", kernels);
    ech__json_set_string(&layouts, "fc1.weight", "ba");
    ech__json_set(&choices, "layouts", layouts);
    const ech__run_epoch epoch = {.time_s = 2, .loss = 0.1, .test = {0.3, 0.7, 10}};
    const ech__checkpoint_state s = {
        .config = config,
        .step = 13,
        .epoch = 1,
        .epoch_step = 3,
        .updates = 11,
        .scaler = {.on = true, .scale = 512.5, .good = 7, .skipped = 2, .stuck = 0},
        .first_loss = 1.0 / 3,
        .last_loss = NAN,
        .now = {.samples = 12, .loss = 0.1 + 0.2, .correct = 5},
        .epochs = &epoch,
        .nepochs = 1};
    ech_json *json = ech__checkpoint_state_json(&s, choices);
    char *text;
    assert_int_equal(ech__json_dump(f->ctx, json, ECH_JSON_LINE, &text, NULL), ECH_OK);
    ech__json_destroy(json);
    ech__json_destroy(config);
    return text;
}

static void test_a_state_reads_back_to_the_same_bits(void **state)
{
    fixture *f = *state;
    char *text = state_text(f);
    ech__checkpoint_state s;
    assert_int_equal(ech__checkpoint_state_parse(f->ctx, "S", text, strlen(text), &s), ECH_OK);
    assert_int_equal(s.step, 13);
    assert_int_equal(s.epoch, 1);
    assert_int_equal(s.epoch_step, 3);
    assert_int_equal(s.updates, 11);
    assert_true(s.scaler.on && s.scaler.scale == 512.5 && s.scaler.stuck == 0);
    assert_true(s.scaler.good == 7 && s.scaler.skipped == 2);
    assert_true(s.first_loss == 1.0 / 3 && isnan(s.last_loss));
    assert_true(s.now.samples == 12 && s.now.loss == 0.1 + 0.2 && s.now.correct == 5);
    assert_int_equal(s.nepochs, 1);
    assert_true(s.epochs[0].epoch == 1 && s.epochs[0].loss == 0.1 && s.epochs[0].time_s == 2);
    assert_true(s.epochs[0].test.accuracy == 0.7 && s.epochs[0].test.samples == 10);
    assert_int_equal(s.choices.nkernels, 1);
    assert_string_equal(s.choices.kernels[0].kernel, "openblas");
    assert_string_equal(ech__choices_layout(&s.choices, "fc1.weight"), "ba");
    assert_null(ech__choices_layout(&s.choices, "fc2.weight"));
    ech__checkpoint_state_fini(&s);
    free(text);
}

static void test_older_states_do_not_tell_of_loading(void **state)
{
    fixture *f = *state;
    char *text = state_text(f);
    char *sums = changed(text, "\"data_s\"", "\"other\"");
    char *both = changed(sums, "\"data_s\"", "\"other\"");
    assert_null(strstr(both, "data_s"));
    ech__checkpoint_state s;
    assert_int_equal(ech__checkpoint_state_parse(f->ctx, "S", both, strlen(both), &s), ECH_OK);
    assert_true(s.now.data_s == 0 && s.now.samples == 12);
    assert_true(s.nepochs == 1 && s.epochs[0].data_s == 0 && s.epochs[0].time_s == 2);
    ech__checkpoint_state_fini(&s);
    free(both);
    free(sums);
    free(text);
}

static void test_states_that_are_none(void **state)
{
    fixture *f = *state;
    char *good = state_text(f);
    static const struct {
        const char *from, *to, *words;
    } cases[] = {
        {"\"format\":1", "\"format\":7", "S: the format is 7, written by Echelon"},
        {"\"position\"", "\"place\"", "\"position\" is missing"},
        {"\"updates\":11", "\"updates\":14", "14 updates in 13 steps: there can be at most one"},
        {"\"scale\":512.5", "\"scale\":0.0", "a loss scale of 0 after 7 good steps"},
        {"\"scale\":512.5", "\"scales\":512.5", "\"scale\" is missing"},
        {"\"good\":7", "\"good\":2000", "after 2000 good steps"},
        {"\"skipped\":2", "\"skipped\":-2", "\"skipped\" is -2"},
        {"\"step\":13", "\"step\":0", "are inconsistent"},
        {"\"step\":13", "\"step\":-4", "\"step\" is -4"},
        {"\"step\":13", "\"step\":1e3", "\"step\" must be an integer"},
        {"\"epoch_step\":3", "\"epoch_step\":99", "are inconsistent"},
        {"\"epoch\":1", "\"epoch\":0", "\"epochs\" has 1 records; 0 epochs are done"},
        {"\"samples\":12", "\"samples\":-1", "cannot have -1 samples"},
        {"\"kernel\":\"openblas\"", "\"kernel\":3", "\"kernel\" must be a string"},
        {"\"fc1.weight\":\"ba\"", "\"fc1.weight\":{}", "\"fc1.weight\" must be a string"},
        {"{", "", "S: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *bad = changed(good, cases[i].from, cases[i].to);
        ech__checkpoint_state s;
        says(f, ech__checkpoint_state_parse(f->ctx, "S", bad, strlen(bad), &s), cases[i].words);
        ech__checkpoint_state_fini(&s);
        free(bad);
    }
    free(good);
}

static void test_options_that_disagree_are_named(void **state)
{
    fixture *f = *state;
    char *text = state_text(f);
    ech__checkpoint_state s;
    assert_int_equal(ech__checkpoint_state_parse(f->ctx, "S", text, strlen(text), &s), ECH_OK);
    ech_json *run = ech__json_object();
    ech__json_set_string(&run, "model", "lenet");
    ech__json_set_real(&run, "lr", 0.1);
    assert_int_equal(ech__checkpoint_state_agree(f->ctx, &s, run), ECH_OK);
    ech__json_set_real(&run, "lr", nextafter(0.1, 1));
    says(f, ech__checkpoint_state_agree(f->ctx, &s, run),
         "made with --lr 0.1; this run has 0.10000000000000002");
    ech__json_set_real(&run, "lr", 0.1);
    ech__json_set_real(&run, "momentum", 0.9);
    says(f, ech__checkpoint_state_agree(f->ctx, &s, run),
         "made with --momentum nothing; this run has 0.9");
    ech__json_set_string(&run, "model", "resnet18");
    says(f, ech__checkpoint_state_agree(f->ctx, &s, run),
         "is a checkpoint of lenet; this run trains resnet18");
    ech__json_destroy(run);
    ech__checkpoint_state_fini(&s);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(test_the_last_two_are_kept),
        TEST(test_what_was_not_committed_is_not_there),
        TEST(test_a_directory_belongs_to_one_run),
        TEST(test_links_are_removed_not_what_they_lead_to),
        TEST(test_a_run_that_began_further_back),
        TEST(test_kills_leave_the_old_or_the_new),
        TEST(test_manifests),
        TEST(test_a_state_reads_back_to_the_same_bits),
        TEST(test_older_states_do_not_tell_of_loading),
        TEST(test_states_that_are_none),
        TEST(test_options_that_disagree_are_named),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
