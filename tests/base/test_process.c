/* Child processes: what they get, why they do not start, and that they do not outlive their parent. */
#include "base/system/process.h"

#include "support/cmocka_first.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* A shell that runs a script, with its stdout in text. */
static int run(ech__process_options o, const char *script, char *text, size_t bytes)
{
    int ends[2];
    size_t used = 0;
    ech__process_failure why;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    o.argv = (char *const[]){"sh", "-c", (char *)script, NULL};
    o.out = ends[1];
    const pid_t pid = ech__process_start(&o, &why);
    assert_true(pid > 0);
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], text + used, bytes - 1 - used)) > 0;)
        used += (size_t)got;
    text[used] = '\0';
    close(ends[0]);
    return ech__process_wait(pid);
}

static const ech__process_options nothing = {
    .in = ECH__PROCESS_NULL, .err = ECH__PROCESS_INHERIT, .pass_fd = -1};

static void a_program_runs_to_its_end(void **state)
{
    char text[256];
    (void)state;
    int status = run(nothing, "cat; echo here; exit 3", text, sizeof text);
    assert_string_equal(text, "here\n");
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    status = run(nothing, "kill -9 $$", text, sizeof text);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Where SIGCHLD is ignored the system keeps no exit codes: not known is not success. */
static void a_child_that_is_lost_has_not_succeeded(void **state)
{
    char text[16];
    (void)state;
    signal(SIGCHLD, SIG_IGN);
    const int status = run(nothing, "exit 0", text, sizeof text);
    signal(SIGCHLD, SIG_DFL);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == ECH__PROCESS_LOST);
}

static void it_gets_what_it_is_given(void **state)
{
    char text[256], script[64], want[32];
    ech__process_options o = nothing;
    (void)state;
    o.dir = "/";
    o.env = (char *const[]){"PATH=/usr/bin:/bin", "COLOUR=red", NULL};
    run(o, "pwd; echo $COLOUR", text, sizeof text);
    assert_string_equal(text, "/\nred\n");

    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    snprintf(script, sizeof script, "test -e /proc/self/fd/%d && echo open || echo closed", fd);
    run(nothing, script, text, sizeof text);
    assert_string_equal(text, "closed\n");
    o.pass_fd = fd;
    run(o, script, text, sizeof text);
    assert_string_equal(text, "open\n");
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);

    ech__cpus all, one = {0};
    assert_true(ech__cpus_read(&all));
    int cpu = 0;
    while (!ech__cpus_has(&all, cpu))
        cpu++;
    ech__cpus_add(&one, cpu);
    o.cpus = &one;
    run(o, "grep Cpus_allowed_list /proc/self/status | tr -dc 0-9-,", text, sizeof text);
    snprintf(want, sizeof want, "%d", cpu);
    assert_string_equal(text, want);
}

static void it_leads_a_group_where_asked(void **state)
{
    char text[256];
    const char *script = "set -- $(cat /proc/$$/stat); test $1 = $5 && echo leads || echo follows";
    ech__process_options o = nothing;
    (void)state;
    run(o, script, text, sizeof text);
    assert_string_equal(text, "follows\n");
    o.own_group = true;
    run(o, script, text, sizeof text);
    assert_string_equal(text, "leads\n");
}

static void signals_are_unblocked(void **state)
{
    char text[256];
    sigset_t term, old;
    (void)state;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, &old);
    const int status = run(nothing, "kill -15 $$", text, sizeof text);
    sigprocmask(SIG_SETMASK, &old, NULL);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

static void what_cannot_start_says_why(void **state)
{
    ech__process_options o = nothing;
    ech__process_failure why;
    (void)state;
    o.out = ECH__PROCESS_NULL;
    o.argv = (char *const[]){"no such program", NULL};
    assert_int_equal(ech__process_start(&o, &why), -1);
    assert_true(why.step == ECH__PROCESS_EXEC && why.error == ENOENT);
    o.argv = (char *const[]){"true", NULL};
    o.path = "/dev/null";
    assert_int_equal(ech__process_start(&o, &why), -1);
    assert_true(why.step == ECH__PROCESS_EXEC && why.error == EACCES);
    o.path = NULL;
    o.out = 999;
    assert_int_equal(ech__process_start(&o, &why), -1);
    assert_true(why.step == ECH__PROCESS_FILES && why.error == EBADF);
    o.out = ECH__PROCESS_NULL;
    o.cpus = &(ech__cpus){{0}};
    assert_int_equal(ech__process_start(&o, &why), -1);
    assert_true(why.step == ECH__PROCESS_CPUS && why.error == EINVAL);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
    assert_string_equal(ech__process_step_text(why.step), "cannot be bound to its cores");
}

/* The child holds the writing end of a pipe. Its reader sees the end when all who hold it are gone. */
static void it_dies_with_its_parent(void **state)
{
    int ends[2];
    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    const pid_t parent = fork();
    if (parent == 0) {
        ech__process_options o = nothing;
        ech__process_failure why;
        o.argv = (char *const[]){"sleep", "60", NULL};
        o.out = ends[1];
        _exit(ech__process_start(&o, &why) > 0 ? 0 : 1);
    }
    close(ends[1]);
    assert_int_equal(ech__process_wait(parent), 0);
    struct pollfd over = {.fd = ends[0]};
    assert_int_equal(poll(&over, 1, 20000), 1);
    assert_true(over.revents & POLLHUP);
    close(ends[0]);
}

static const char *find(char **env, const char *name)
{
    const size_t length = strlen(name);
    for (; *env; env++) {
        if (!strncmp(*env, name, length) && (*env)[length] == '=')
            return *env + length + 1;
    }
    return NULL;
}

static void an_environment_takes_changes(void **state)
{
    (void)state;
    setenv("ECH_KEPT", "1", 1);
    setenv("ECH_CHANGED", "old", 1);
    setenv("ECH_GONE", "1", 1);
    char **env = ech__process_env((const char *[]){"ECH_CHANGED=new", "ECH_GONE", "ECH_KEP=x"}, 3);
    assert_non_null(env);
    assert_string_equal(find(env, "ECH_KEPT"), "1");
    assert_string_equal(find(env, "ECH_CHANGED"), "new");
    assert_null(find(env, "ECH_GONE"));
    assert_string_equal(find(env, "ECH_KEP"), "x");
    size_t changed = 0;
    for (char **e = env; *e; e++)
        changed += !strncmp(*e, "ECH_CHANGED=", 12);
    assert_int_equal(changed, 1);
    free(env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_runs_to_its_end),
        cmocka_unit_test(it_gets_what_it_is_given),
        cmocka_unit_test(it_leads_a_group_where_asked),
        cmocka_unit_test(signals_are_unblocked),
        cmocka_unit_test(what_cannot_start_says_why),
        cmocka_unit_test(it_dies_with_its_parent),
        cmocka_unit_test(an_environment_takes_changes),
        cmocka_unit_test(a_child_that_is_lost_has_not_succeeded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
