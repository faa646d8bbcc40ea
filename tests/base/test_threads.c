/* Threads that cannot be started are found before a library needs them. */
#include "base/system/available.h"

#include "support/cmocka_first.h"
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void threads_can_be_started(void **state)
{
    ech_ctx *ctx;
    (void)state;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_int_equal(ech__threads_check(ctx, "a test", 1), ECH_OK);
    assert_int_equal(ech__threads_check(ctx, "a test", ECH__THREADS_MOST), ECH_OK);
    ech_ctx_destroy(ctx);
}

/* In a process of its own, as a user that nothing else runs as: the limit counts all processes of a
 * user, and not those of root. */
static int look_where_none_can(void)
{
    const struct rlimit one = {1, 1};
    ech_ctx *ctx;
    if (ech_ctx_create(NULL, &ctx) < 0 || setrlimit(RLIMIT_NPROC, &one) != 0 ||
        (geteuid() == 0 && setuid(64123) != 0))
        return 77;
    const ech_status status = ech__threads_check(ctx, "a test", 3);
    const bool said = strstr(ech_ctx_error(ctx), "a test needs 3 threads, of which 0 can be "
                                                 "started: Resource temporarily unavailable");
    ech_ctx_destroy(ctx);
    return status == ECH_E_LIMIT && said ? 0 : 1;
}

static void threads_that_cannot_are_found(void **state)
{
    int code = 0;
    (void)state;
    const pid_t pid = fork();
    if (pid == 0)
        _exit(look_where_none_can());
    assert_int_equal(waitpid(pid, &code, 0), pid);
    assert_true(WIFEXITED(code));
    if (WEXITSTATUS(code) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(code), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_can_be_started),
        cmocka_unit_test(threads_that_cannot_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
