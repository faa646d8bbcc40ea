/* What ranks find, and what the launcher says of them. The ranks are this very program with a word
 * behind its name. */
#include "comm/launch/launch.h"
#include "base/system/clock.h"
#include "comm/comm.h"
#include "support/cmocka_first.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- as a rank: each word is one case, rank is this one's number ---- */

static int environment(int rank)
{
    static const char *const names[] = {
        "RANK",       "LOCAL_RANK",  "WORLD_SIZE",  "LOCAL_WORLD_SIZE",
        "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS"};
    (void)rank;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        fprintf(stderr, "%s=%s\n", names[i], getenv(names[i]) ? getenv(names[i]) : "");
    return 0;
}

static int cores(int rank)
{
    cpu_set_t set;
    (void)rank;
    sched_getaffinity(0, sizeof set, &set);
    for (int id = 0; id < CPU_SETSIZE; id++) {
        if (CPU_ISSET(id, &set))
            fprintf(stderr, "core %d\n", id);
    }
    return 0;
}

/* Open descriptors; where they lead matters for all but standard error. */
static int files(int rank)
{
    (void)rank;
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char target[256];
        const int fd = atoi(e->d_name);
        const ssize_t got = readlinkat(dirfd(dir), e->d_name, target, sizeof target - 1);
        if (e->d_name[0] == '.' || fd == dirfd(dir) || got < 0)
            continue;
        target[got] = '\0';
        const bool comm = fd == atoi(getenv("ECHELON_COMM_FD"));
        fprintf(stderr, "fd %s %s\n", comm ? "comm" : e->d_name, fd != 2 ? target : "-");
    }
    closedir(dir);
    return 0;
}

static int signals(int rank)
{
    sigset_t mask;
    (void)rank;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int s = 1; s < 32; s++) {
        struct sigaction action;
        if (sigismember(&mask, s))
            fprintf(stderr, "blocked %d\n", s);
        if (sigaction(s, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            fprintf(stderr, "ignored %d\n", s);
    }
    return 0;
}

static int talk(int rank)
{
    if (rank == 0)
        pause();
    for (int i = 0; i < 30; i++)
        fprintf(stderr, "word %d\n", i);
    fprintf(stderr, "no end");
    return 5;
}

/* Rank 1's words come under many of rank 0's. */
static int bury(int rank)
{
    if (rank == 1)
        fprintf(stderr, "famous last words\n");
    ech__clock_sleep(0.3);
    for (int i = 0; rank == 0 && i < 50; i++)
        fprintf(stderr, "line %d\n", i);
    ech__clock_sleep(0.5);
    if (rank == 1)
        return 6;
    pause();
    return 0;
}

static int once(int rank)
{
    if (strcmp(getenv("TORCHELASTIC_RESTART_COUNT"), "0") != 0)
        return 0;
    if (rank == 1)
        raise(SIGKILL);
    pause();
    return 0;
}

/* Leaves a child that holds the pipe open, and says which. */
static int holder(int rank)
{
    (void)rank;
    const pid_t child = fork();
    if (child == 0) {
        ech__clock_sleep(20);
        _exit(0);
    }
    fprintf(stderr, "%d\n", (int)child);
    return 0;
}

static int usage(int rank)
{
    (void)rank;
    return 2;
}

static int stopped(int rank)
{
    if (rank == 1)
        raise(SIGSTOP);
    ech__clock_sleep(0.2);
    return 7;
}

static int deaf(int rank)
{
    signal(SIGTERM, SIG_IGN);
    ech__clock_sleep(0.5);
    if (rank == 1)
        return 8;
    for (;;)
        pause();
}

/* Tells the launcher to stop. */
static int order(int rank)
{
    if (rank == 1)
        kill(getppid(), SIGTERM);
    pause();
    return 0;
}

/* Adds up 1 for rank 0, 2 for rank 1 and so on. */
static int sum(int rank)
{
    ech_ctx *own;
    ech__comm *comm;
    int32_t value = rank + 1;
    const ech__coll coll = {
        .op = ECH__COLL_ALLREDUCE, .dtype = ECH_S32, .count = 1, .src = &value, .dst = &value};
    if (ech_ctx_create(NULL, &own) < 0)
        return 1;
    ech_status status = ech__comm_open(own, &(ech__comm_options){0}, &comm);
    if (status >= 0) {
        status = ech__comm_run(comm, &coll);
        fprintf(stderr, "sum %d restarts %d\n", value, comm->restarts);
        ech__comm_close(comm);
    }
    if (status < 0)
        fprintf(stderr, "%s\n", ech_ctx_error(own));
    ech_ctx_destroy(own);
    return status < 0;
}

static const struct {
    const char *word;
    int (*run)(int rank);
} cases[] = {{"environment", environment},
             {"cores", cores},
             {"files", files},
             {"signals", signals},
             {"talk", talk},
             {"bury", bury},
             {"once", once},
             {"holder", holder},
             {"stopped", stopped},
             {"deaf", deaf},
             {"usage", usage},
             {"order", order},
             {"sum", sum}};

static int be_rank(const char *word)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!strcmp(cases[i].word, word))
            return cases[i].run(atoi(getenv("RANK")));
    }
    return 99;
}

/* ---- as the launcher ---- */

enum { MOST = 4 };

typedef struct heard {
    char output[MOST][16384]; /* of each rank */
    size_t used[MOST];
    char said[4096];
} heard;

static void output(void *user, int rank, const char *text, size_t bytes)
{
    heard *h = user;
    assert_in_range(rank, 0, MOST - 1);
    assert_true(h->used[rank] + bytes < sizeof h->output[0]);
    if (rank)
        assert_ptr_equal(memchr(text, '\n', bytes), text + bytes - 1);
    memcpy(h->output[rank] + h->used[rank], text, bytes);
    h->used[rank] += bytes;
}

static void say(void *user, const char *line)
{
    heard *h = user;
    const size_t used = strlen(h->said);
    snprintf(h->said + used, sizeof h->said - used, "%s\n", line);
}

static ech_ctx *ctx;
static heard h;

static ech__launch_options options_for(const char *word, int ranks, char **argv)
{
    ech__launch_options o = ech__launch_defaults();
    memset(&h, 0, sizeof h);
    argv[0] = (char *)"rank";
    argv[1] = (char *)word;
    argv[2] = NULL;
    o.ranks = ranks;
    o.path = "/proc/self/exe";
    o.argv = argv;
    o.output = output;
    o.say = say;
    o.user = &h;
    return o;
}

static void no_child_is_left(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static ech__launch_result launch_again(const char *word, int ranks, int max_restarts)
{
    char *argv[3];
    ech__launch_options o = options_for(word, ranks, argv);
    o.max_restarts = max_restarts;
    ech__launch_result r;
    assert_int_equal(ech__launch(ctx, &o, &r), ECH_OK);
    no_child_is_left();
    return r;
}

static ech__launch_result launch(const char *word, int ranks)
{
    return launch_again(word, ranks, 0);
}

static void has_line(const char *text, const char *line)
{
    char whole[320], within[16640];
    snprintf(whole, sizeof whole, "\n%s\n", line);
    snprintf(within, sizeof within, "\n%s", text);
    if (!strstr(within, whole))
        fail_msg("no line \"%s\" in:\n%s", line, text);
}

static int open_files(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void ranks_find_who_they_are(void **state)
{
    (void)state;
    setenv("RANK", "77", 1);
    setenv("MASTER_ADDR", "10.0.0.1", 1);
    const ech__launch_result r = launch("environment", 3);
    unsetenv("RANK");
    unsetenv("MASTER_ADDR");
    assert_int_equal(r.code, 0);
    assert_int_equal(r.failed_rank, -1);
    for (int rank = 0; rank < 3; rank++) {
        char line[32];
        snprintf(line, sizeof line, "RANK=%d", rank);
        has_line(h.output[rank], line);
        snprintf(line, sizeof line, "LOCAL_RANK=%d", rank);
        has_line(h.output[rank], line);
        has_line(h.output[rank], "WORLD_SIZE=3");
        has_line(h.output[rank], "LOCAL_WORLD_SIZE=3");
        has_line(h.output[rank], "GROUP_RANK=0");
        has_line(h.output[rank], "MASTER_ADDR=127.0.0.1");
        has_line(h.output[rank], "MASTER_PORT=29500");
    }
    assert_non_null(strstr(h.said, "3 ranks on "));
}

static void what_is_set_stays(void **state)
{
    (void)state;
    setenv("OMP_NUM_THREADS", "7", 1);
    setenv("MASTER_PORT", "1234", 1);
    launch("environment", 1);
    unsetenv("OMP_NUM_THREADS");
    unsetenv("MASTER_PORT");
    has_line(h.output[0], "OMP_NUM_THREADS=7");
    has_line(h.output[0], "MASTER_PORT=1234");
    assert_non_null(strstr(h.said, "OMP_NUM_THREADS is 7"));
}

static void ranks_have_cores_of_their_own(void **state)
{
    (void)state;
    cpu_set_t usable;
    sched_getaffinity(0, sizeof usable, &usable);
    if (CPU_COUNT(&usable) < 2)
        skip();
    launch("cores", 2);
    int count[2] = {0, 0};
    for (int id = 0; id < CPU_SETSIZE; id++) {
        char line[32];
        snprintf(line, sizeof line, "core %d\n", id);
        const bool zero = strstr(h.output[0], line), one = strstr(h.output[1], line);
        assert_false(zero && one);
        assert_true((CPU_ISSET(id, &usable) != 0) == (zero || one));
        count[0] += zero;
        count[1] += one;
    }
    assert_true(count[0] > 0 && count[1] > 0);
    launch("environment", 2);
    char line[32];
    snprintf(line, sizeof line, "OMP_NUM_THREADS=%d", count[1]);
    has_line(h.output[1], line);
}

static void nothing_leaks_but_the_shared_memory(void **state)
{
    (void)state;
    /* What this program itself was given is none of the launcher's business. */
    for (int fd = 3; fd < 1024; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    const int before = open_files();
    launch("files", 3);
    assert_int_equal(open_files(), before);
    for (int rank = 0; rank < 3; rank++) {
        int lines = 0;
        for (const char *c = h.output[rank]; *c; c++)
            lines += *c == '\n';
        if (lines != 4)
            fail_msg("rank %d has not 0, 1, 2 and the memory:\n%s", rank, h.output[rank]);
        assert_non_null(strstr(h.output[rank], "fd comm /memfd:"));
    }
    has_line(h.output[1], "fd 0 /dev/null");
}

static void only_the_first_rank_prints_where_others_are_quiet(void **state)
{
    (void)state;
    char *argv[3];
    ech__launch_options o = options_for("files", 2, argv);
    o.quiet_others = true;
    ech__launch_result r;
    char own[256], line[300];
    const ssize_t got = readlink("/proc/self/fd/1", own, sizeof own - 1);
    assert_true(got > 0);
    own[got] = '\0';
    snprintf(line, sizeof line, "fd 1 %s", own);
    assert_int_equal(ech__launch(ctx, &o, &r), ECH_OK);
    has_line(h.output[0], line);
    has_line(h.output[1], "fd 1 /dev/null");
    launch("files", 2);
    has_line(h.output[1], line);
}

static void ranks_meet_in_the_shared_memory(void **state)
{
    (void)state;
    assert_int_equal(launch("sum", 3).code, 0);
    for (int rank = 0; rank < 3; rank++)
        has_line(h.output[rank], "sum 6 restarts 0");
}

static void closed_standard_files_do_no_harm(void **state)
{
    (void)state;
    const int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10);
    close(STDIN_FILENO);
    launch("files", 2);
    if (in >= 0) {
        dup2(in, STDIN_FILENO);
        close(in);
    }
    assert_non_null(strstr(h.output[0], "fd comm /memfd:"));
    has_line(h.output[0], "fd 0 /dev/null");
}

static void signals_are_as_before(void **state)
{
    (void)state;
    signal(SIGHUP, SIG_IGN); /* as nohup does */
    signal(SIGINT, SIG_DFL);
    launch("signals", 2);
    signal(SIGHUP, SIG_DFL);
    for (int rank = 0; rank < 2; rank++) {
        assert_null(strstr(h.output[rank], "blocked"));
        has_line(h.output[rank], "ignored 1");
        assert_null(strstr(h.output[rank], "ignored 2\n"));
        assert_null(strstr(h.output[rank], "ignored 17\n"));
    }
    struct sigaction action;
    sigaction(SIGINT, NULL, &action);
    assert_true(action.sa_handler == SIG_DFL);
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    assert_false(sigismember(&mask, SIGTERM));
}

static void the_first_failure_is_named(void **state)
{
    (void)state;
    const ech__launch_result r = launch("talk", 2);
    assert_int_equal(r.code, 5);
    assert_int_equal(r.failed_rank, 1);
    assert_int_equal(r.signal, 0);
    assert_non_null(strstr(h.said, "rank 1 (pid "));
    assert_non_null(strstr(h.said, ") exited with code 5"));
    has_line(h.output[1], "word 29");
    has_line(h.output[1], "no end");
    assert_null(strstr(h.said, "last lines")); /* they stand right above */
    assert_null(strstr(h.said, "rank 0 (pid"));
}

static void last_words_that_are_out_of_sight_are_repeated(void **state)
{
    (void)state;
    assert_int_equal(launch("bury", 2).code, 6);
    has_line(h.said, "last lines of rank 1:");
    has_line(h.said, "  famous last words");
}

static void all_are_started_again(void **state)
{
    (void)state;
    const ech__launch_result r = launch_again("once", 2, 3);
    assert_int_equal(r.code, 0);
    assert_int_equal(r.restarts, 1);
    assert_int_equal(r.failed_rank, -1);
    assert_non_null(strstr(h.said, "was killed by signal 9 (Killed)"));
    has_line(h.said, "restarting all ranks (1 of 3)");
}

static void restarts_come_to_an_end(void **state)
{
    (void)state;
    const ech__launch_result r = launch_again("talk", 2, 2);
    assert_int_equal(r.code, 5);
    assert_int_equal(r.restarts, 2);
    assert_int_equal(r.failed_rank, 1);
}

static void a_signal_gives_its_code(void **state)
{
    (void)state;
    const ech__launch_result r = launch("once", 2);
    assert_int_equal(r.code, 128 + SIGKILL);
    assert_int_equal(r.signal, SIGKILL);
    assert_int_equal(r.failed_rank, 1);
    assert_int_equal(r.restarts, 0);
}

static double seconds_of(const char *word, int code)
{
    const int64_t start = ech__clock_wall();
    assert_int_equal(launch(word, 2).code, code);
    return ech__seconds(ech__clock_wall() - start);
}

/* Whether a process runs: one that nobody has waited for yet does not. */
static bool runs(int pid)
{
    char path[32], state = 'X';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 'X';
    fclose(f);
    return state != 'X' && state != 'Z';
}

static void grandchildren_end_with_the_job(void **state)
{
    (void)state;
    const double took = seconds_of("holder", 0);
    for (int rank = 0; rank < 2; rank++) {
        const int child = atoi(h.output[rank]);
        assert_true(child > 1);
        assert_false(runs(child));
    }
    assert_true(took < 10);
}

static void a_program_that_was_called_wrongly_is_not_started_again(void **state)
{
    (void)state;
    const ech__launch_result r = launch_again("usage", 2, 3);
    assert_int_equal(r.code, 2);
    assert_int_equal(r.restarts, 0);
    has_line(h.said, "no restart: the exit code means wrong usage");
}

static void a_stopped_rank_is_ended(void **state)
{
    (void)state;
    assert_true(seconds_of("stopped", 7) < 5);
}

static void a_deaf_rank_is_killed(void **state)
{
    (void)state;
    assert_true(seconds_of("deaf", 8) < 5.5); /* its own half second, and 5 s */
    has_line(h.said, "rank 0 did not stop within 3 s and is killed");
}

static void what_cannot_be_started_is_refused(void **state)
{
    (void)state;
    char *argv[3];
    ech__launch_options o = options_for("x", 2, argv);
    ech__launch_result r;
    o.path = "/nonexistent/program";
    assert_int_equal(ech__launch(ctx, &o, &r), ECH_E_INVALID);
    assert_int_equal(r.code, 127);
    assert_string_equal(ech_ctx_error(ctx),
                        "/nonexistent/program cannot be started: No such file or directory");
    o.path = "/dev/null";
    assert_int_equal(ech__launch(ctx, &o, &r), ECH_E_INVALID);
    assert_int_equal(r.code, 126);
    o.ranks = 0;
    assert_int_equal(ech__launch(ctx, &o, &r), ECH_E_INVALID);
    assert_string_equal(ech_ctx_error(ctx), "0 ranks: must be 1 to 256");
    assert_string_equal(h.said, "");
    no_child_is_left();
}

static void *idle(void *over)
{
    char c;
    const ssize_t got = read(*(int *)over, &c, 1);
    return (void *)(intptr_t)got;
}

/* Libraries start threads when they are loaded; a signal may come to one of them. */
static void other_threads_hand_signals_on(void **state)
{
    (void)state;
    int over[2];
    pthread_t thread;
    assert_int_equal(pipe2(over, O_CLOEXEC), 0);
    assert_int_equal(pthread_create(&thread, NULL, idle, &over[0]), 0);
    const ech__launch_result r = launch_again("order", 2, 3);
    close(over[1]);
    pthread_join(thread, NULL);
    close(over[0]);
    assert_int_equal(r.code, 128 + SIGTERM);
    assert_int_equal(r.failed_rank, -1);
    assert_int_equal(r.restarts, 0);
    has_line(h.said, "stopping all ranks after signal 15 (Terminated)");
}

static void *launch_in_thread(void *status)
{
    char *argv[3];
    const ech__launch_options o = options_for("cores", 1, argv);
    ech__launch_result r;
    *(ech_status *)status = ech__launch(ctx, &o, &r);
    return NULL;
}

static void only_the_first_thread_may_launch(void **state)
{
    (void)state;
    pthread_t thread;
    ech_status status = ECH_OK;
    assert_int_equal(pthread_create(&thread, NULL, launch_in_thread, &status), 0);
    pthread_join(thread, NULL);
    assert_int_equal(status, ECH_E_INVALID);
    assert_non_null(strstr(ech_ctx_error(ctx), "first thread"));
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return be_rank(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_find_who_they_are),
        cmocka_unit_test(what_is_set_stays),
        cmocka_unit_test(ranks_have_cores_of_their_own),
        cmocka_unit_test(nothing_leaks_but_the_shared_memory),
        cmocka_unit_test(only_the_first_rank_prints_where_others_are_quiet),
        cmocka_unit_test(ranks_meet_in_the_shared_memory),
        cmocka_unit_test(closed_standard_files_do_no_harm),
        cmocka_unit_test(signals_are_as_before),
        cmocka_unit_test(the_first_failure_is_named),
        cmocka_unit_test(last_words_that_are_out_of_sight_are_repeated),
        cmocka_unit_test(all_are_started_again),
        cmocka_unit_test(restarts_come_to_an_end),
        cmocka_unit_test(a_signal_gives_its_code),
        cmocka_unit_test(grandchildren_end_with_the_job),
        cmocka_unit_test(a_program_that_was_called_wrongly_is_not_started_again),
        cmocka_unit_test(a_stopped_rank_is_ended),
        cmocka_unit_test(a_deaf_rank_is_killed),
        cmocka_unit_test(what_cannot_be_started_is_refused),
        cmocka_unit_test(other_threads_hand_signals_on),
        cmocka_unit_test(only_the_first_thread_may_launch),
    };
    unsetenv("OMP_NUM_THREADS");
    unsetenv("MASTER_PORT");
    if (ech_ctx_create(NULL, &ctx) < 0)
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ech_ctx_destroy(ctx);
    return failed;
}
