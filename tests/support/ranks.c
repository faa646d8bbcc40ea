#include "support/ranks.h"

#include "comm/shm/shm.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct rank_task {
    int fd, rank, world;
    double timeout_s;
    rank_fn work;
    void *user;
} rank_task;

_Noreturn void rank_failed(const ech__comm *comm, const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: rank %d of %d: not so: %s; its last failure: %s\n", file, line,
            comm->rank, comm->world, what, ech_ctx_error(comm->ctx));
    fflush(stderr);
    _exit(1);
}

static void *be_rank(void *arg)
{
    const rank_task *t = arg;
    ech_ctx *ctx = NULL;
    ech__comm *comm = NULL;
    if (ech_ctx_create(NULL, &ctx) < 0)
        abort();
    if (ech__shm_join(ctx, t->fd, t->rank, t->world, t->timeout_s, &comm) < 0) {
        fprintf(stderr, "rank %d could not join: %s\n", t->rank, ech_ctx_error(ctx));
        abort();
    }
    t->work(comm, t->user);
    ech__comm_close(comm);
    ech_ctx_destroy(ctx);
    return NULL;
}

static void run_threads(rank_task *tasks, int world)
{
    pthread_t threads[256];
    for (int r = 0; r < world; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, be_rank, &tasks[r]), 0);
    for (int r = 0; r < world; r++)
        assert_int_equal(pthread_join(threads[r], NULL), 0);
}

static void run_processes(rank_task *tasks, int world)
{
    pid_t pids[256];
    int failed = 0;
    fflush(NULL);
    for (int r = 0; r < world; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0) {
            be_rank(&tasks[r]);
            _exit(0);
        }
    }
    for (int r = 0; r < world; r++) {
        int status = 0;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        failed += !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_int_equal(failed, 0);
}

void run_ranks(ranks_kind kind, int world, double timeout_s, rank_fn work, void *user)
{
    rank_task tasks[256];
    ech_ctx *ctx;
    int fd;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_int_equal(ech__shm_create(ctx, world, &fd), ECH_OK);
    for (int r = 0; r < world; r++)
        tasks[r] = (rank_task){fd, r, world, timeout_s, work, user};
    if (kind == RANKS_AS_THREADS)
        run_threads(tasks, world);
    else
        run_processes(tasks, world);
    close(fd);
    ech_ctx_destroy(ctx);
}
