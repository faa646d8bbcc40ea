#include "support/cmocka_first.h"

#include "base/system/clock.h"
#include "comm/shm/pass_fd.h"

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* Exits with 0 when the descriptor of that name holds the text. */
static void fetch_and_exit(const char *name)
{
    ech_ctx *ctx;
    char text[6] = "";
    int fd = -1;
    if (ech_ctx_create(NULL, &ctx) < 0 || ech__pass_fetch(ctx, name, 10, &fd) < 0)
        _exit(1);
    if (!(fcntl(fd, F_GETFD) & FD_CLOEXEC) || pread(fd, text, 5, 0) != 5)
        _exit(2);
    _exit(strcmp(text, "hello") != 0);
}

static void descriptor_reaches_others(void **state)
{
    (void)state;
    enum { OTHERS = 3 };
    ech_ctx *ctx;
    char name[ECH__PASS_NAME_BYTES];
    int listener;
    pid_t children[OTHERS];
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    const int fd = memfd_create("passed", MFD_CLOEXEC);
    assert_int_equal(write(fd, "hello", 5), 5);
    assert_int_equal(ech__pass_listen(ctx, &listener, name), ECH_OK);
    for (int i = 0; i < OTHERS; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0)
            fetch_and_exit(name);
    }
    assert_int_equal(ech__pass_serve(ctx, listener, fd, OTHERS, 10), ECH_OK);
    for (int i = 0; i < OTHERS; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    close(listener);
    close(fd);
    ech_ctx_destroy(ctx);
}

static void names_are_random_and_go_with_the_socket(void **state)
{
    (void)state;
    ech_ctx *ctx;
    char a[ECH__PASS_NAME_BYTES], b[ECH__PASS_NAME_BYTES];
    int first, second, fd;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_int_equal(ech__pass_listen(ctx, &first, a), ECH_OK);
    assert_int_equal(ech__pass_listen(ctx, &second, b), ECH_OK);
    assert_string_not_equal(a, b);
    close(first);
    close(second);
    assert_int_equal(ech__pass_fetch(ctx, a, 1, &fd), ECH_E_IO);
    assert_non_null(strstr(ech_ctx_error(ctx), "socket of its first rank"));
    ech_ctx_destroy(ctx);
}

static void waits_are_bounded(void **state)
{
    (void)state;
    ech_ctx *ctx;
    char name[ECH__PASS_NAME_BYTES];
    int listener, fd;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_int_equal(ech__pass_listen(ctx, &listener, name), ECH_OK);
    const int64_t began = ech__clock_wall();
    assert_int_equal(ech__pass_serve(ctx, listener, 0, 2, 0.05), ECH_E_IO);
    assert_non_null(strstr(ech_ctx_error(ctx), "2 of 2 ranks have not fetched it within 0.05 s"));
    assert_int_equal(ech__pass_fetch(ctx, name, 0.05, &fd), ECH_E_IO);
    assert_non_null(strstr(ech_ctx_error(ctx), "sent nothing within 0.05 s"));
    assert_true(ech__seconds(ech__clock_wall() - began) < 5);
    close(listener);
    ech_ctx_destroy(ctx);
}

/* A connection that nobody has accepted yet. */
static int knock(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path + 1, name, strlen(name));
    const socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, length), 0);
    return fd;
}

/* The time is over: that somebody has connected does not make it longer. */
static void strangers_do_not_prolong_a_wait(void **state)
{
    (void)state;
    enum { STRANGERS = 50 };
    ech_ctx *ctx;
    char name[ECH__PASS_NAME_BYTES];
    int listener, fds[STRANGERS];
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_int_equal(ech__pass_listen(ctx, &listener, name), ECH_OK);
    for (int i = 0; i < STRANGERS; i++)
        fds[i] = knock(name);
    assert_int_equal(ech__pass_serve(ctx, listener, listener, 2 * STRANGERS, 0), ECH_E_IO);
    assert_non_null(strstr(ech_ctx_error(ctx), "100 of 100 ranks have not fetched it within 0 s"));
    for (int i = 0; i < STRANGERS; i++)
        close(fds[i]);
    close(listener);
    ech_ctx_destroy(ctx);
}

/* Nobody accepts, and the backlog is full. */
static void a_full_backlog_is_waited_for_as_long(void **state)
{
    (void)state;
    ech_ctx *ctx;
    char name[ECH__PASS_NAME_BYTES];
    int listener, got;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_int_equal(ech__pass_listen(ctx, &listener, name), ECH_OK);
    assert_int_equal(listen(listener, 0), 0);
    const int first = knock(name);
    alarm(20); /* a connect that blocks would never return */
    assert_int_equal(ech__pass_fetch(ctx, name, 0.05, &got), ECH_E_IO);
    alarm(0);
    assert_non_null(strstr(ech_ctx_error(ctx), "timed out"));
    close(first);
    close(listener);
    ech_ctx_destroy(ctx);
}

/* Another user gets nothing, from either side. Only root can be two users. */
static void other_users_are_turned_away(void **state)
{
    (void)state;
    ech_ctx *ctx;
    char name[ECH__PASS_NAME_BYTES];
    int listener;
    if (geteuid() != 0)
        skip();
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    const int fd = memfd_create("passed", MFD_CLOEXEC);
    assert_int_equal(ech__pass_listen(ctx, &listener, name), ECH_OK);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int got;
        if (setuid(65534) < 0)
            _exit(3);
        const ech_status status = ech__pass_fetch(ctx, name, 10, &got);
        _exit(status == ECH_E_IO && strstr(ech_ctx_error(ctx), "belongs to user 0") ? 0 : 1);
    }
    assert_int_equal(ech__pass_serve(ctx, listener, fd, 1, 0.3), ECH_E_IO);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(listener);
    close(fd);
    ech_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptor_reaches_others),
        cmocka_unit_test(names_are_random_and_go_with_the_socket),
        cmocka_unit_test(waits_are_bounded),
        cmocka_unit_test(strangers_do_not_prolong_a_wait),
        cmocka_unit_test(a_full_backlog_is_waited_for_as_long),
        cmocka_unit_test(other_users_are_turned_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
