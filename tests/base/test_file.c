/* Reading whole files and writing them atomically. */
#include "base/file/file.h"

#include "support/cmocka_first.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>

typedef struct place {
    ech_ctx *ctx;
    char dir[64], path[96];
} place;

static int setup(void **state)
{
    place *p = calloc(1, sizeof *p);
    assert_int_equal(ech_ctx_create(NULL, &p->ctx), ECH_OK);
    snprintf(p->dir, sizeof p->dir, "/tmp/ech_file_XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    snprintf(p->path, sizeof p->path, "%s/data.bin", p->dir);
    *state = p;
    return 0;
}

static int entries(const char *dir)
{
    int count = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; (e = readdir(d));)
        count += e->d_name[0] != '.';
    closedir(d);
    return count;
}

static int teardown(void **state)
{
    place *p = *state;
    char name[400];
    DIR *d = opendir(p->dir);
    for (struct dirent *e; (e = readdir(d));) {
        snprintf(name, sizeof name, "%s/%s", p->dir, e->d_name);
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            remove(name);
    }
    closedir(d);
    rmdir(p->dir);
    ech_ctx_destroy(p->ctx);
    free(p);
    return 0;
}

static void assert_file_holds(place *p, const char *want)
{
    char *text;
    size_t bytes;
    assert_int_equal(ech__file_read(p->ctx, p->path, 1 << 20, &text, &bytes), ECH_OK);
    assert_int_equal(bytes, strlen(want));
    assert_string_equal(text, want);
    free(text);
}

static void writes_and_reads_back(void **state)
{
    place *p = *state;
    assert_int_equal(ech__file_write(p->ctx, p->path, "first", 5), ECH_OK);
    assert_file_holds(p, "first");
    assert_int_equal(ech__file_write(p->ctx, p->path, "second time", 11), ECH_OK);
    assert_file_holds(p, "second time");
    assert_int_equal(ech__file_write(p->ctx, p->path, "", 0), ECH_OK);
    assert_file_holds(p, "");
    assert_int_equal(entries(p->dir), 1);
}

static void honours_the_umask(void **state)
{
    place *p = *state;
    struct stat st;
    mode_t old = umask(027);
    assert_int_equal(ech__file_write(p->ctx, p->path, "x", 1), ECH_OK);
    umask(old);
    assert_int_equal(stat(p->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
}

static void appears_only_on_commit(void **state)
{
    place *p = *state;
    ech__file_writer w;
    assert_int_equal(ech__file_write(p->ctx, p->path, "old", 3), ECH_OK);
    assert_int_equal(ech__file_writer_init(p->ctx, &w, p->path), ECH_OK);
    assert_int_equal(ech__file_writer_write(&w, "new ", 4), ECH_OK);
    assert_int_equal(ech__file_writer_write(&w, "bytes", 5), ECH_OK);
    assert_int_equal(w.written, 9);
    assert_file_holds(p, "old");
    assert_int_equal(entries(p->dir), 2);
    assert_int_equal(ech__file_writer_commit(&w), ECH_OK);
    ech__file_writer_fini(&w);
    assert_file_holds(p, "new bytes");
    assert_int_equal(entries(p->dir), 1);
}

static void leaves_nothing_when_abandoned(void **state)
{
    place *p = *state;
    ech__file_writer w;
    assert_int_equal(ech__file_write(p->ctx, p->path, "old", 3), ECH_OK);
    assert_int_equal(ech__file_writer_init(p->ctx, &w, p->path), ECH_OK);
    assert_int_equal(ech__file_writer_write(&w, "half", 4), ECH_OK);
    ech__file_writer_fini(&w);
    assert_file_holds(p, "old");
    assert_int_equal(entries(p->dir), 1);
}

/* A limit on file size stands for a full disk. */
static void leaves_nothing_when_writing_fails(void **state)
{
    place *p = *state;
    struct rlimit old, small;
    char data[8192] = {0};
    assert_int_equal(ech__file_write(p->ctx, p->path, "old", 3), ECH_OK);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 4096;
    setrlimit(RLIMIT_FSIZE, &small);
    ech_status status = ech__file_write(p->ctx, p->path, data, sizeof data);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(status, ECH_E_IO);
    assert_non_null(strstr(ech_ctx_error(p->ctx), p->path));
    assert_non_null(strstr(ech_ctx_error(p->ctx), "at byte 4096: File too large"));
    assert_file_holds(p, "old");
    assert_int_equal(entries(p->dir), 1);
}

static void names_path_and_reason(void **state)
{
    place *p = *state;
    char *text;
    size_t bytes;
    char want[200];
    assert_int_equal(ech__file_read(p->ctx, p->path, 10, &text, &bytes), ECH_E_IO);
    snprintf(want, sizeof want, "%s: cannot be opened: No such file or directory", p->path);
    assert_string_equal(ech_ctx_error(p->ctx), want);
    assert_null(text);
    assert_int_equal(ech__file_write(p->ctx, "/tmp/ech_no_such_dir/x", "x", 1), ECH_E_IO);
    assert_string_equal(ech_ctx_error(p->ctx),
                        "/tmp/ech_no_such_dir/x: cannot be written: No such file or directory");
}

static void keeps_to_the_size_limit(void **state)
{
    place *p = *state;
    char *text;
    size_t bytes;
    char want[200];
    assert_int_equal(ech__file_write(p->ctx, p->path, "12345", 5), ECH_OK);
    assert_int_equal(ech__file_read(p->ctx, p->path, 5, &text, &bytes), ECH_OK);
    free(text);
    assert_int_equal(ech__file_read(p->ctx, p->path, 4, &text, &bytes), ECH_E_LIMIT);
    snprintf(want, sizeof want, "%s: has 5 bytes, the limit is 4", p->path);
    assert_string_equal(ech_ctx_error(p->ctx), want);
}

static void refuses(place *p, const char *path, const char *what)
{
    char *text;
    size_t bytes;
    assert_int_equal(ech__file_read(p->ctx, path, 100, &text, &bytes), ECH_E_IO);
    assert_non_null(strstr(ech_ctx_error(p->ctx), what));
    assert_int_equal(ech__file_write(p->ctx, path, "x", 1), ECH_E_IO);
    assert_non_null(strstr(ech_ctx_error(p->ctx), what));
}

static void refuses_what_is_no_regular_file(void **state)
{
    place *p = *state;
    refuses(p, p->dir, "is a directory, not a regular file");
    refuses(p, "/dev/null", "is a device, not a regular file");
    assert_int_equal(mkfifo(p->path, 0600), 0);
    refuses(p, p->path, "is a pipe, not a regular file");
}

static void writes_through_a_link(void **state)
{
    place *p = *state;
    char link[128];
    struct stat st;
    snprintf(link, sizeof link, "%s/link", p->dir);
    assert_int_equal(ech__file_write(p->ctx, p->path, "old", 3), ECH_OK);
    assert_int_equal(symlink("data.bin", link), 0);
    assert_int_equal(ech__file_write(p->ctx, link, "new", 3), ECH_OK);
    assert_file_holds(p, "new");
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    unlink(p->path);
    assert_int_equal(ech__file_write(p->ctx, link, "new", 3), ECH_E_IO);
}

/* As open(2) does where fs.protected_symlinks is set: anybody may put links into such a directory. */
static void follows_no_strangers_link_in_a_shared_directory(void **state)
{
    enum { STRANGER = 54321 };
    place *p = *state;
    char link[128], second[128];
    snprintf(link, sizeof link, "%s/link", p->dir);
    snprintf(second, sizeof second, "%s/second", p->dir);
    assert_int_equal(ech__file_write(p->ctx, p->path, "old", 3), ECH_OK);
    assert_int_equal(symlink("data.bin", link), 0);
    assert_int_equal(symlink("link", second), 0);
    assert_int_equal(chmod(p->dir, 01777), 0);
    assert_int_equal(ech__file_write(p->ctx, second, "own", 3), ECH_OK);
    assert_file_holds(p, "own");
    if (lchown(link, STRANGER, STRANGER) != 0) /* only root may give it away */
        skip();
    for (int i = 0; i < 2; i++) { /* directly, and through a link of our own */
        assert_int_equal(ech__file_write(p->ctx, i ? second : link, "new", 3), ECH_E_IO);
        assert_non_null(strstr(ech_ctx_error(p->ctx), "/link: is a link of user 54321 in a "
                                                      "directory that anybody may write to"));
        assert_file_holds(p, "own");
    }
    assert_int_equal(chmod(p->dir, 0755), 0); /* nobody else can have put it here */
    assert_int_equal(ech__file_write(p->ctx, second, "new", 3), ECH_OK);
    assert_file_holds(p, "new");
    assert_int_equal(entries(p->dir), 3);
}

static void a_circle_of_links_ends(void **state)
{
    place *p = *state;
    assert_int_equal(symlink("data.bin", p->path), 0);
    assert_int_equal(ech__file_write(p->ctx, p->path, "x", 1), ECH_E_IO);
    assert_non_null(strstr(ech_ctx_error(p->ctx), "more than 40 links"));
}

static void steps_over_a_stale_temporary_file(void **state)
{
    place *p = *state;
    char stale[160];
    snprintf(stale, sizeof stale, "%s.%ld-0.tmp", p->path, (long)getpid());
    close(open(stale, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(ech__file_write(p->ctx, p->path, "x", 1), ECH_OK);
    assert_file_holds(p, "x");
    assert_int_equal(entries(p->dir), 2);
}

static void reads_a_range_and_names_its_end(void **state)
{
    place *p = *state;
    int fd;
    int64_t bytes;
    char buffer[8];
    assert_int_equal(ech__file_write(p->ctx, p->path, "0123456789", 10), ECH_OK);
    assert_int_equal(ech__file_open(p->ctx, p->path, &fd, &bytes), ECH_OK);
    assert_int_equal(bytes, 10);
    ech__file_range range = {.offset = 3, .buffer = buffer, .bytes = 4};
    assert_int_equal(ech__file_pread(p->ctx, p->path, fd, range), ECH_OK);
    assert_memory_equal(buffer, "3456", 4);
    range.offset = 8;
    assert_int_equal(ech__file_pread(p->ctx, p->path, fd, range), ECH_E_IO);
    assert_non_null(strstr(ech_ctx_error(p->ctx), "ends at byte 10, 2 bytes before"));
    close(fd);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(writes_and_reads_back),
        TEST(honours_the_umask),
        TEST(appears_only_on_commit),
        TEST(leaves_nothing_when_abandoned),
        TEST(leaves_nothing_when_writing_fails),
        TEST(names_path_and_reason),
        TEST(keeps_to_the_size_limit),
        TEST(refuses_what_is_no_regular_file),
        TEST(writes_through_a_link),
        TEST(follows_no_strangers_link_in_a_shared_directory),
        TEST(a_circle_of_links_ends),
        TEST(steps_over_a_stale_temporary_file),
        TEST(reads_a_range_and_names_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
