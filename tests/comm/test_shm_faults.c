/* What goes wrong between ranks: everybody fails soon, with a sentence that names who and what. */
#include "support/ranks.h"

#include "base/system/clock.h"
#include "comm/shm/shm.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const ranks_kind kinds[] = {RANKS_AS_THREADS, RANKS_AS_PROCESSES};

static void with_both(int world, double timeout_s, rank_fn work)
{
    for (int k = 0; k < 2; k++)
        run_ranks(kinds[k], world, timeout_s, work, NULL);
}

static ech_status sum(ech__comm *comm, int64_t count, void *data)
{
    return ech__comm_run(
        comm,
        &(ech__coll){
            .op = ECH__COLL_ALLREDUCE, .dtype = ECH_F32, .count = count, .src = data, .dst = data});
}

/* ---- ranks in different collectives ---- */

static void different(ech__comm *comm, void *user)
{
    (void)user;
    float data[100] = {0};
    for (int i = 0; i < 17; i++)
        RANK_OK(ech__comm_barrier(comm));
    ech_status status;
    if (comm->rank == 0)
        status = sum(comm, 100, data);
    else
        status = ech__comm_run(
            comm,
            &(ech__coll){.op = ECH__COLL_BROADCAST, .dtype = ECH_S32, .count = 3, .dst = data});
    RANK_REFUSED(status, "rank 0 is in allreduce of 100 f32, rank 1 in broadcast of 3 s32 from "
                         "rank 0, both as #17");
}

static void different_sizes(ech__comm *comm, void *user)
{
    (void)user;
    float data[8] = {0};
    void *memory;
    (void)data;
    RANK_REFUSED(ech__comm_alloc(comm, comm->rank == 2 ? 200 : 100, &memory),
                 "rank 2 in alloc of 200 bytes");
    RANK_CHECK(!memory);
}

static void different_buckets(ech__comm *comm, void *user)
{
    (void)user;
    float *data;
    uint64_t ticket;
    RANK_OK(ech__comm_alloc(comm, 400, (void **)&data));
    ech__coll c = {.op = ECH__COLL_ALLREDUCE,
                   .dtype = ECH_F32,
                   .count = 10,
                   .src = data + comm->rank * 50,
                   .dst = data + comm->rank * 50};
    RANK_OK(ech__comm_start(comm, &c, &ticket));
    RANK_REFUSED(ech__comm_wait(comm, ticket, NULL),
                 "rank 0 is in allreduce of 10 f32, rank 1 in allreduce of 10 f32, both as #0, at "
                 "different places");
}

static void other_message(ech__comm *comm, void *user)
{
    (void)user;
    float data[4] = {0};
    if (comm->rank == 0) {
        RANK_OK(ech__comm_run(
            comm, &(ech__coll){
                      .op = ECH__COLL_SEND, .dtype = ECH_F32, .count = 3, .src = data, .peer = 1}));
        RANK_REFUSED(ech__comm_barrier(comm), "rank 0 sent 3 f32 where rank 1 receives 4 f32");
    } else {
        RANK_REFUSED(ech__comm_run(comm, &(ech__coll){.op = ECH__COLL_RECV,
                                                      .dtype = ECH_F32,
                                                      .count = 4,
                                                      .dst = data,
                                                      .peer = 0}),
                     "rank 0 sent 3 f32 where rank 1 receives 4 f32, as their #0");
    }
}

static void mismatches_are_named(void **state)
{
    (void)state;
    with_both(2, 20, different);
    with_both(3, 20, different_sizes);
    with_both(2, 20, different_buckets);
    with_both(2, 20, other_message);
}

/* ---- ranks that do not come ---- */

static void one_is_late(ech__comm *comm, void *user)
{
    (void)user;
    float data[1000] = {0};
    for (int i = 0; i < 5; i++)
        RANK_OK(ech__comm_barrier(comm));
    const int64_t since = ech__clock_wall();
    if (comm->rank == 1) {
        /* Comes when the others have given up: it hears why. */
        ech__clock_sleep(1.0);
        RANK_REFUSED(ech__comm_barrier(comm), "another rank has failed: ");
        RANK_CHECK(strstr(ech_ctx_error(comm->ctx), "for rank 1 in allreduce #5 of 1000 f32"));
        return;
    }
    RANK_REFUSED(sum(comm, 1000, data), "for rank 1 in allreduce #5 of 1000 f32");
    RANK_CHECK(strstr(ech_ctx_error(comm->ctx), " waited "));
    /* A rank hears of it at once when another one has waited that long. */
    RANK_CHECK(strstr(ech_ctx_error(comm->ctx), "another rank has failed") ||
               ech__seconds(ech__clock_wall() - since) >= 0.3);
    if (comm->rank == 2) /* keeps the error message from being "has exited" */
        ech__clock_sleep(1.5);
}

static void time_out_names_rank_and_operation(void **state)
{
    (void)state;
    with_both(3, 0.3, one_is_late);
}

static void bucket_is_late(ech__comm *comm, void *user)
{
    (void)user;
    float *data;
    uint64_t ticket;
    RANK_OK(ech__comm_alloc(comm, 4000, (void **)&data));
    if (comm->rank == 1) {
        ech__clock_sleep(1.0);
        return;
    }
    ech__coll c = {
        .op = ECH__COLL_ALLREDUCE, .dtype = ECH_F32, .count = 10, .src = data, .dst = data};
    RANK_OK(ech__comm_start(comm, &c, &ticket));
    RANK_OK(ech__comm_progress(comm));
    RANK_REFUSED(ech__comm_wait(comm, ticket, NULL), "for rank 1 in allreduce #0 of 10 f32");
}

static void started_ones_time_out_too(void **state)
{
    (void)state;
    with_both(2, 0.3, bucket_is_late);
}

static void one_leaves(ech__comm *comm, void *user)
{
    (void)user;
    RANK_OK(ech__comm_barrier(comm));
    if (comm->rank == 1)
        return;
    const int64_t since = ech__clock_wall();
    RANK_REFUSED(ech__comm_barrier(comm), "rank 1 in barrier #1, but that rank has exited");
    RANK_CHECK(ech__seconds(ech__clock_wall() - since) < 10);
}

static void leaving_is_noticed(void **state)
{
    (void)state;
    with_both(2, 60, one_leaves);
}

/* Ranks 0 and 1 fail for one reason, rank 2 for another, and rank 3 only because of them. */
static void all_abort(ech__comm *comm, void *user)
{
    (void)user;
    RANK_OK(ech__comm_barrier(comm));
    if (comm->rank < 2) {
        ech__fail(comm->ctx, ECH_E_IO, "the file is gone");
        if (comm->rank == 1)
            ech__clock_sleep(0.5);
        RANK_CHECK(ech__comm_abort(comm) == (comm->rank == 0));
        return;
    }
    RANK_REFUSED(ech__comm_barrier(comm), "another rank has failed: the file is gone");
    if (comm->rank == 2)
        ech__fail(comm->ctx, ECH_E_IO, "the disk is full");
    RANK_CHECK(ech__comm_abort(comm) == (comm->rank == 2));
}

static void one_reason_is_told_once(void **state)
{
    (void)state;
    with_both(4, 60, all_abort);
}

/* The rank's parent, a process between it and the test, is killed. */
static void parent_that_dies_is_noticed(void **state)
{
    (void)state;
    ech_ctx *ctx;
    int fd, pipes[2];
    char answer[512] = "";
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_int_equal(ech__shm_create(ctx, 2, &fd), ECH_OK);
    assert_int_equal(pipe(pipes), 0);
    const pid_t parent = fork();
    if (parent == 0) {
        if (fork() == 0) {
            ech__comm *comm;
            if (ech__shm_join(ctx, fd, 0, 2, 60, &comm) < 0 || write(pipes[1], "+", 1) != 1)
                _exit(1);
            ech__comm_barrier(comm);
            const char *text = ech_ctx_error(ctx);
            _exit(write(pipes[1], text, strlen(text)) < 0);
        }
        close(pipes[1]);
        pause();
        _exit(0);
    }
    close(pipes[1]);
    assert_int_equal(read(pipes[0], answer, 1), 1);
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    const int64_t since = ech__clock_wall();
    const ssize_t n = read(pipes[0], answer, sizeof answer - 1);
    assert_true(n > 0);
    answer[n] = '\0';
    assert_true(ech__seconds(ech__clock_wall() - since) < 5);
    assert_non_null(strstr(answer, "which started it, was gone"));
    close(pipes[0]);
    close(fd);
    ech_ctx_destroy(ctx);
}

/* ---- joining ---- */

static void what_cannot_be_joined(void **state)
{
    (void)state;
    ech_ctx *ctx;
    ech__comm *comm, *again;
    int fd;
    assert_int_equal(ech_ctx_create(NULL, &ctx), ECH_OK);
    assert_int_equal(ech__shm_create(ctx, 0, &fd), ECH_E_LIMIT);
    assert_int_equal(ech__shm_create(ctx, 257, &fd), ECH_E_LIMIT);
    assert_string_equal(ech_ctx_error(ctx), "257 ranks on a node: there can be 1 to 256");
    assert_int_equal(ech__shm_create(ctx, 256, &fd), ECH_OK);
    assert_int_equal(ech__shm_join(ctx, fd, 255, 256, 1, &comm), ECH_OK);
    ech__comm_close(comm);
    close(fd);
    assert_true(ech__shm_join(ctx, 987654, 0, 2, 1, &comm) < 0);
    assert_non_null(strstr(ech_ctx_error(ctx), "descriptor 987654"));
    const int empty = memfd_create("other", MFD_CLOEXEC);
    assert_true(ech__shm_join(ctx, empty, 0, 2, 1, &comm) < 0);
    assert_int_equal(ftruncate(empty, 1 << 20), 0);
    assert_true(ech__shm_join(ctx, empty, 0, 2, 1, &comm) < 0);
    assert_non_null(strstr(ech_ctx_error(ctx), "is not the shared memory of ranks"));
    close(empty);
    assert_int_equal(ech__shm_create(ctx, 2, &fd), ECH_OK);
    assert_true(ech__shm_join(ctx, fd, 0, 3, 1, &comm) < 0);
    assert_string_equal(ech_ctx_error(ctx), "the shared memory is for 2 ranks, not for 3");
    assert_true(ech__shm_join(ctx, fd, 2, 2, 1, &comm) < 0);
    assert_int_equal(ech__shm_join(ctx, fd, 1, 2, 1, &comm), ECH_OK);
    assert_true(ech__shm_join(ctx, fd, 1, 2, 1, &again) < 0);
    assert_string_equal(ech_ctx_error(ctx), "rank 1 of 2 is already connected");
    ech__comm_close(comm);
    close(fd);
    ech_ctx_destroy(ctx);
}

/* ---- arguments ---- */

static void bad_arguments(ech__comm *comm, void *user)
{
    (void)user;
    float data[4] = {0}, *shared;
    uint64_t ticket;
    ech__coll c = {
        .op = ECH__COLL_ALLREDUCE, .dtype = ECH_F32, .count = -1, .src = data, .dst = data};
    RANK_REFUSED(ech__comm_run(comm, &c), "allreduce of -1 elements");
    c.count = INT64_MAX / 4;
    RANK_REFUSED(ech__comm_run(comm, &c), "elements");
    c.count = 4;
    c.src = NULL;
    RANK_REFUSED(ech__comm_run(comm, &c), "without memory");
    c.src = data;
    c.dtype = ECH_S8;
    RANK_REFUSED(ech__comm_run(comm, &c), "allreduce of s8");
    c.dtype = ECH_S32;
    c.reduction = ECH__REDUCTION_MEAN;
    RANK_REFUSED(ech__comm_run(comm, &c), "mean is not supported");
    c = (ech__coll){
        .op = ECH__COLL_BROADCAST, .dtype = ECH_F32, .count = 4, .dst = data, .peer = 2};
    RANK_REFUSED(ech__comm_run(comm, &c), "from rank 2 of 2");
    c = (ech__coll){
        .op = ECH__COLL_SEND, .dtype = ECH_F32, .count = 4, .src = data, .peer = comm->rank};
    RANK_REFUSED(ech__comm_run(comm, &c), "send to rank");
    c = (ech__coll){
        .op = ECH__COLL_ALLREDUCE, .dtype = ECH_F32, .count = 4, .src = data, .dst = data};
    RANK_REFUSED(ech__comm_start(comm, &c, &ticket), "not shared");
    RANK_REFUSED(ech__comm_wait(comm, 0, NULL), "ticket 0: only 0 were started");
    RANK_OK(ech__comm_alloc(comm, 4096, (void **)&shared));
    c.src = c.dst = shared + 1022; /* two elements over the end */
    RANK_REFUSED(ech__comm_start(comm, &c, &ticket), "not shared");
    c.src = shared;
    RANK_REFUSED(ech__comm_start(comm, &c, &ticket), "in place");
    RANK_OK(ech__comm_barrier(comm)); /* nothing of this has harmed the group */
    c.src = c.dst = shared;
    c.count = 1;
    if (comm->rank == 0) {
        for (int i = 0; i < ECH__MAX_STARTED; i++)
            RANK_OK(ech__comm_start(comm, &c, &ticket));
        RANK_REFUSED(ech__comm_start(comm, &c, &ticket), "1024 allreduces are already in progress");
    } else {
        for (int i = 0; i < ECH__MAX_STARTED; i++)
            RANK_OK(ech__comm_start(comm, &c, &ticket));
    }
    RANK_OK(ech__comm_wait(comm, ticket, NULL));
    RANK_OK(ech__comm_barrier(comm));
}

static void bad_arguments_harm_nobody(void **state)
{
    (void)state;
    with_both(2, 20, bad_arguments);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mismatches_are_named),
        cmocka_unit_test(time_out_names_rank_and_operation),
        cmocka_unit_test(started_ones_time_out_too),
        cmocka_unit_test(leaving_is_noticed),
        cmocka_unit_test(one_reason_is_told_once),
        cmocka_unit_test(parent_that_dies_is_noticed),
        cmocka_unit_test(what_cannot_be_joined),
        cmocka_unit_test(bad_arguments_harm_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
