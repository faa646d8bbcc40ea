/* Directories: removed without following links, and claimed by one process at a time. */
#include "base/file/dir.h"

#include "support/cmocka_first.h"
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROOM = 256 };

typedef struct place {
    ech_ctx *ctx;
    char root[64];
} place;

static int set_up(void **state)
{
    place *p = calloc(1, sizeof *p);
    assert_non_null(p);
    assert_int_equal(ech_ctx_create(NULL, &p->ctx), ECH_OK);
    strcpy(p->root, "/tmp/echelon-test-XXXXXX");
    assert_non_null(mkdtemp(p->root));
    *state = p;
    return 0;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

static int tear_down(void **state)
{
    place *p = *state;
    nftw(p->root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    ech_ctx_destroy(p->ctx);
    free(p);
    return 0;
}

/* The path of something in the test's directory; good until the fourth call after it. */
static const char *at(const place *p, const char *name)
{
    static char paths[4][ROOM];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, ROOM, "%s/%s", p->root, name);
    return path;
}

static bool exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

static void touch(const char *path)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "precious", 8), 8);
    close(fd);
}

static off_t size_of(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_size;
}

static void says(const place *p, ech_status status, const char *words)
{
    assert_true(status < 0);
    if (!strstr(ech_ctx_error(p->ctx), words))
        fail_msg("'%s' does not say '%s'", ech_ctx_error(p->ctx), words);
    assert_null(strchr(ech_ctx_error(p->ctx), '\n'));
}

static ech_status take(const place *p, ech__claim *claim, const char *dir)
{
    return ech__claim_take(p->ctx, claim, &(ech__claim_options){"place", dir, ".test.lock"});
}

/* ---- removing ---- */

static void removes_a_directory_and_its_files(void **state)
{
    place *p = *state;
    assert_int_equal(mkdir(at(p, "d"), 0777), 0);
    touch(at(p, "d/file"));
    assert_int_equal(symlink("file", at(p, "d/link")), 0);
    assert_int_equal(ech__dir_remove(p->ctx, at(p, "d")), ECH_OK);
    assert_false(exists(at(p, "d")));
    assert_int_equal(ech__dir_remove(p->ctx, at(p, "d")), ECH_OK); /* it is not there any more */
}

static void removes_links_and_files_themselves(void **state)
{
    place *p = *state;
    assert_int_equal(mkdir(at(p, "target"), 0777), 0);
    touch(at(p, "target/file"));
    assert_int_equal(symlink("target", at(p, "link")), 0);
    assert_int_equal(symlink("nowhere", at(p, "dangling")), 0);
    touch(at(p, "plain"));
    assert_int_equal(ech__dir_remove(p->ctx, at(p, "link")), ECH_OK);
    assert_int_equal(ech__dir_remove(p->ctx, at(p, "dangling")), ECH_OK);
    assert_int_equal(ech__dir_remove(p->ctx, at(p, "plain")), ECH_OK);
    assert_false(exists(at(p, "link")) || exists(at(p, "dangling")) || exists(at(p, "plain")));
    assert_int_equal(size_of(at(p, "target/file")), 8);
}

static void a_directory_inside_is_an_error(void **state)
{
    place *p = *state;
    assert_int_equal(ech__dir_make(p->ctx, "place", at(p, "d/below")), ECH_OK);
    says(p, ech__dir_remove(p->ctx, at(p, "d")), "cannot be removed");
    assert_true(exists(at(p, "d/below")));
}

static void making_checks_what_is_there(void **state)
{
    place *p = *state;
    touch(at(p, "file"));
    says(p, ech__dir_make(p->ctx, "place", at(p, "file")), "cannot be written: Not a directory");
    says(p, ech__dir_make(p->ctx, "place", at(p, "file/x")), "cannot be written: Not a directory");
    says(p, ech__dir_make(p->ctx, "place", ""), "from 1 to 4095 bytes");
    says(p, ech__dir_make(p->ctx, "place", "/proc/nowhere"),
         "place /proc/nowhere cannot be written");
}

/* ---- claims ---- */

static void a_claim_is_seen_and_leaves_nothing(void **state)
{
    place *p = *state;
    ech__claim one, two, other;
    char dir[ROOM], words[64];
    snprintf(dir, sizeof dir, "%s", at(p, "a/b/"));
    assert_int_equal(take(p, &one, dir), ECH_OK);
    snprintf(words, sizeof words, "is in use by process %ld", (long)getpid());
    says(p, take(p, &two, dir), words);
    assert_false(two.held);
    ech__claim_release(&two); /* nothing to do */
    const ech__claim_options another = {"place", dir, ".other.lock"};
    assert_int_equal(ech__claim_take(p->ctx, &other, &another), ECH_OK); /* another kind of files */
    ech__claim_release(&other);
    assert_true(exists(at(p, "a/b/.test.lock")));
    ech__claim_release(&one);
    assert_false(exists(at(p, "a"))); /* nothing was put into it */
}

static void what_was_written_stays(void **state)
{
    place *p = *state;
    ech__claim claim;
    assert_int_equal(mkdir(at(p, "old"), 0777), 0);
    assert_int_equal(take(p, &claim, at(p, "old")), ECH_OK);
    ech__claim_release(&claim);
    assert_true(exists(at(p, "old"))); /* was there before */
    assert_int_equal(take(p, &claim, at(p, "new/dir")), ECH_OK);
    touch(at(p, "new/dir/record"));
    ech__claim_release(&claim);
    assert_int_equal(size_of(at(p, "new/dir/record")), 8);
    assert_false(exists(at(p, "new/dir/.test.lock")));
}

static void a_killed_process_holds_nothing(void **state)
{
    place *p = *state;
    ech__claim claim;
    int ready[2], status;
    char byte, words[64];
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (take(p, &claim, at(p, "d")) < 0 || write(ready[1], "", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    snprintf(words, sizeof words, "place %s is in use by process %ld", at(p, "d"), (long)child);
    says(p, take(p, &claim, at(p, "d")), words);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(exists(at(p, "d/.test.lock"))); /* the file is left, its lock is not */
    assert_int_equal(take(p, &claim, at(p, "d")), ECH_OK);
    ech__claim_release(&claim);
    assert_false(exists(at(p, "d/.test.lock")));
}

static void the_lock_is_no_way_to_other_files(void **state)
{
    place *p = *state;
    ech__claim claim;
    touch(at(p, "precious"));
    assert_int_equal(mkdir(at(p, "d"), 0777), 0);
    assert_int_equal(symlink("../precious", at(p, "d/.test.lock")), 0);
    says(p, take(p, &claim, at(p, "d")), "cannot be locked");
    assert_int_equal(unlink(at(p, "d/.test.lock")), 0);
    assert_int_equal(link(at(p, "precious"), at(p, "d/.test.lock")), 0);
    says(p, take(p, &claim, at(p, "d")), "cannot be locked");
    assert_int_equal(size_of(at(p, "precious")), 8);
}

static void places_that_cannot_be_claimed(void **state)
{
    place *p = *state;
    ech__claim claim;
    touch(at(p, "file"));
    says(p, take(p, &claim, at(p, "file")), "cannot be written: Not a directory");
    says(p, take(p, &claim, at(p, "file/x")), "cannot be written: Not a directory");
    says(p, take(p, &claim, "/proc/nowhere"), "place /proc/nowhere cannot be written");
    says(p, take(p, &claim, ""), "from 1 to ");
    assert_false(claim.held);
}

/* Jobs that begin at the same moment make, claim and remove directories with the same parents. */
static void jobs_side_by_side(void **state)
{
    enum { JOBS = 4, ROUNDS = 500 };
    place *p = *state;
    pid_t jobs[JOBS];
    for (int j = 0; j < JOBS; j++) {
        jobs[j] = fork();
        assert_true(jobs[j] >= 0);
        for (int round = 0; jobs[j] == 0 && round < ROUNDS; round++) {
            ech__claim claim;
            char name[32];
            snprintf(name, sizeof name, "fresh/below/%d", j);
            if (take(p, &claim, at(p, name)) < 0) {
                fprintf(stderr, "%s\n", ech_ctx_error(p->ctx));
                _exit(1);
            }
            ech__claim_release(&claim);
        }
        if (jobs[j] == 0)
            _exit(0);
    }
    for (int j = 0; j < JOBS; j++) {
        int status;
        assert_int_equal(waitpid(jobs[j], &status, 0), jobs[j]);
        assert_int_equal(status, 0);
    }
    assert_false(exists(at(p, "fresh/below/0")));
}

/* One directory, many processes: never two at a time. */
static void one_at_a_time(void **state)
{
    enum { JOBS = 4, ROUNDS = 40 };
    place *p = *state;
    pid_t jobs[JOBS];
    for (int j = 0; j < JOBS; j++) {
        jobs[j] = fork();
        assert_true(jobs[j] >= 0);
        for (int round = 0; jobs[j] == 0 && round < ROUNDS;) {
            ech__claim claim;
            if (take(p, &claim, at(p, "d")) < 0)
                continue; /* it was in use for long */
            const int alone = open(at(p, "alone"), O_CREAT | O_EXCL | O_WRONLY, 0666);
            if (alone < 0)
                _exit(1);
            close(alone);
            unlink(at(p, "alone"));
            ech__claim_release(&claim);
            round++;
        }
        if (jobs[j] == 0)
            _exit(0);
    }
    for (int j = 0; j < JOBS; j++) {
        int status;
        assert_int_equal(waitpid(jobs[j], &status, 0), jobs[j]);
        assert_int_equal(status, 0);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(removes_a_directory_and_its_files),
        TEST(removes_links_and_files_themselves),
        TEST(a_directory_inside_is_an_error),
        TEST(making_checks_what_is_there),
        TEST(a_claim_is_seen_and_leaves_nothing),
        TEST(what_was_written_stays),
        TEST(a_killed_process_holds_nothing),
        TEST(the_lock_is_no_way_to_other_files),
        TEST(places_that_cannot_be_claimed),
        TEST(jobs_side_by_side),
        TEST(one_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
