/* What can be had of memory, within limits that a child process gives itself. */
#include "base/system/available.h"

#include "support/cmocka_first.h"
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MB ((int64_t)1 << 20)

static void the_machine_has_some(void **state)
{
    (void)state;
    const int64_t all = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    assert_true(ech__machine_available() > 0);
    assert_true(ech__machine_available() <= all);
}

static void more_than_there_is_is_refused(void **state)
{
    (void)state;
    ech_ctx *ctx;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_int_equal(ech__memory_check(ctx, "a test", MB, 1, 1), ECH_OK);
    assert_int_equal(ech__memory_check(ctx, "a test", INT64_MAX / 2, 1, 1), ECH_E_NOMEM);
    assert_non_null(strstr(ech_ctx_error(ctx), "a test needs 4611686018427387903 bytes"));
    assert_non_null(strstr(ech_ctx_error(ctx), "available on this machine"));
    /* Each of them would get less than that. */
    const int64_t third = ech__machine_available() / 3;
    assert_int_equal(ech__memory_check(ctx, "a test", third, 6, 1), ECH_E_NOMEM);
    assert_non_null(strstr(ech_ctx_error(ctx), "on each of 6 ranks"));
    ech_ctx_destroy(ctx);
}

/* Exits with 0 where the limit is seen, and what is wrong in other codes. */
static void look_within(int limit, const char *name)
{
    ech_ctx *ctx;
    if (ech_ctx_create(NULL, &ctx) < 0)
        _exit(1);
    /* A limit far above what is mapped, so that about all of it is left. */
    const struct rlimit most = {.rlim_cur = (rlim_t)(1024 * MB), .rlim_max = RLIM_INFINITY};
    if (setrlimit(limit, &most) != 0)
        _exit(2);
    if (!ech__process_limited())
        _exit(3);
    const int64_t one = ech__process_available(1), nine = ech__process_available(9);
    if (one <= 0 || one >= 1024 * MB - 64 * MB || nine >= one)
        _exit(4);
    if (ech__memory_check(ctx, "a test", one - 8 * MB, 1, 1) != ECH_OK)
        _exit(5);
    if (ech__memory_check(ctx, "a test", 1024 * MB, 1, 1) != ECH_E_NOMEM)
        _exit(6);
    if (!strstr(ech_ctx_error(ctx), name))
        _exit(7);
    _exit(0);
}

static void limits_of_the_process_are_seen(void **state)
{
    (void)state;
    static const struct {
        int limit;
        const char *name;
    } limits[] = {{RLIMIT_AS, "ulimit -v leaves"}, {RLIMIT_DATA, "ulimit -d leaves"}};
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    skip(); /* these take more addresses than any limit */
#endif
    if (ech__process_limited() || ech__machine_available() < 2048 * MB)
        skip();
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            look_within(limits[i].limit, limits[i].name);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_machine_has_some),
        cmocka_unit_test(more_than_there_is_is_refused),
        cmocka_unit_test(limits_of_the_process_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
