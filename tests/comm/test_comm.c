/* What the environment says about ranks, being alone, and texts between ranks. */
#include "support/ranks.h"

#include "comm/shm/shm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ech_ctx *ctx;

static const char *const variables[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "ECHELON_COMM_FD",
                                        "ECHELON_TIMEOUT",
                                        "TORCHELASTIC_RESTART_COUNT",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "PMIX_RANK",
                                        "PMI_RANK",
                                        "SLURM_STEP_ID",
                                        "SLURM_STEP_NUM_TASKS"};

static int clean(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    return ech_ctx_create(NULL, &ctx);
}

static int end(void **state)
{
    (void)state;
    ech_ctx_destroy(ctx);
    return 0;
}

/* "NAME=value NAME=value" */
static void set(const char *assignments)
{
    char text[256], *rest = text;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
    snprintf(text, sizeof text, "%s", assignments);
    for (char *one; (one = strtok_r(rest, " ", &rest));) {
        char *equals = strchr(one, '=');
        *equals = '\0';
        setenv(one, equals + 1, 1);
    }
}

static void refused(const char *assignments, ech__backend backend, const char *sentence)
{
    ech__comm *comm;
    set(assignments);
    assert_true(ech__comm_open(ctx, &(ech__comm_options){.backend = backend}, &comm) < 0);
    assert_null(comm);
    if (!strstr(ech_ctx_error(ctx), sentence))
        fail_msg("\"%s\" was refused with \"%s\", not with \"%s\"", assignments, ech_ctx_error(ctx),
                 sentence);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    const ech__backend a = ECH__BACKEND_AUTO;
    refused("RANK=x WORLD_SIZE=2", a, "RANK is \"x\": it must be a whole number");
    refused("RANK= WORLD_SIZE=2", a, "RANK is \"\"");
    refused("RANK=0 WORLD_SIZE=2x", a, "WORLD_SIZE is \"2x\"");
    refused("RANK=-1 WORLD_SIZE=2", a, "RANK is -1: it must be from 0 to");
    refused("RANK=0 WORLD_SIZE=0", a, "WORLD_SIZE is 0: it must be from 1 to");
    refused("RANK=99999999999999999999 WORLD_SIZE=2", a, "RANK is");
    refused("RANK=2 WORLD_SIZE=2", a, "RANK is 2 and WORLD_SIZE is 2");
    refused("RANK=0", a, "RANK is set and WORLD_SIZE is not");
    refused("WORLD_SIZE=2", a, "WORLD_SIZE is set and RANK is not");
    refused("RANK=0 WORLD_SIZE=2", a, "echelon run -n N -- PROGRAM");
    refused("RANK=0 WORLD_SIZE=2", a, "mpirun");
    refused("LOCAL_RANK=1", a, "LOCAL_WORLD_SIZE is not");
    refused("ECHELON_COMM_FD=7", a, "RANK and WORLD_SIZE are not set");
    refused("ECHELON_COMM_FD=abc RANK=0 WORLD_SIZE=2", a, "ECHELON_COMM_FD is \"abc\"");
    refused("ECHELON_COMM_FD=987 RANK=0 WORLD_SIZE=2", a, "ECHELON_COMM_FD is 987: descriptor 987");
    refused("ECHELON_COMM_FD=0 RANK=0 WORLD_SIZE=300", a,
            "WORLD_SIZE is 300: a node has at most 256");
    refused("ECHELON_COMM_FD=0 RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2", a, "mpirun");
    refused("ECHELON_TIMEOUT=soon", a, "ECHELON_TIMEOUT is \"soon\"");
    refused("ECHELON_TIMEOUT=0", a, "ECHELON_TIMEOUT is \"0\"");
    refused("ECHELON_TIMEOUT=nan", a, "ECHELON_TIMEOUT");
    refused("TORCHELASTIC_RESTART_COUNT=many", a, "TORCHELASTIC_RESTART_COUNT");
    refused("", ECH__BACKEND_MPI, "mpirun -np 2 echelon train");
}

static void alone(void **state)
{
    (void)state;
    const char *const ways[] = {"", "RANK=0 WORLD_SIZE=1",
                                "SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=1"};
    for (int i = 0; i < 3; i++) {
        ech__comm *comm;
        set(ways[i]);
        assert_int_equal(ech__comm_open(ctx, &(ech__comm_options){0}, &comm), ECH_OK);
        assert_int_equal(comm->world, 1);
        assert_int_equal(comm->local_world, 1);
        assert_int_equal(comm->nodes, 1);
        assert_int_equal(comm->backend, ECH__BACKEND_AUTO);
        assert_true(comm->timeout_s == 600);
        float *x, y[2] = {0};
        uint64_t ticket;
        ech__coll_times times;
        assert_int_equal(ech__comm_alloc(comm, 8, (void **)&x), ECH_OK);
        assert_true(x[0] == 0 && x[1] == 0);
        x[0] = 3;
        ech__coll c = {.op = ECH__COLL_ALLREDUCE, .dtype = ECH_F32, .count = 2, .src = x, .dst = x};
        assert_int_equal(ech__comm_start(comm, &c, &ticket), ECH_OK);
        assert_int_equal(ech__comm_progress(comm), ECH_OK);
        assert_int_equal(ech__comm_wait(comm, ticket, &times), ECH_OK);
        assert_true(times.ready_ns > 0 && times.done_ns >= times.ready_ns);
        c.dst = y;
        assert_int_equal(ech__comm_run(comm, &c), ECH_OK);
        assert_true(y[0] == 3 && x[0] == 3);
        c.op = ECH__COLL_SEND;
        assert_true(ech__comm_run(comm, &c) < 0);
        assert_int_equal(ech__comm_barrier(comm), ECH_OK);
        char *text, *texts[1];
        assert_int_equal(ech__comm_share_text(comm, "abc", &text), ECH_OK);
        assert_string_equal(text, "abc");
        free(text);
        assert_int_equal(ech__comm_gather_texts(comm, "", texts), ECH_OK);
        assert_string_equal(texts[0], "");
        free(texts[0]);
        assert_int_equal(ech__comm_agree(comm, "model: linear\n"), ECH_OK);
        ech__comm_free(comm, x);
        ech__comm_close(comm);
    }
    ech__comm_close(NULL);
}

static void launched(void **state)
{
    (void)state;
    ech__comm *comm;
    int fd;
    char text[128];
    assert_int_equal(ech__shm_create(ctx, 2, &fd), ECH_OK);
    snprintf(text, sizeof text,
             "ECHELON_COMM_FD=%d RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 "
             "TORCHELASTIC_RESTART_COUNT=3 ECHELON_TIMEOUT=2.5",
             fd);
    set(text);
    assert_int_equal(ech__comm_open(ctx, &(ech__comm_options){0}, &comm), ECH_OK);
    assert_int_equal(comm->rank, 1);
    assert_int_equal(comm->world, 2);
    assert_int_equal(comm->local_rank, 1);
    assert_int_equal(comm->restarts, 3);
    assert_int_equal(comm->backend, ECH__BACKEND_SHM);
    assert_true(comm->timeout_s == 2.5);
    ech__comm_close(comm);
    /* The same rank may come again; what the caller wants is more than what the environment says. */
    assert_int_equal(ech__comm_open(ctx, &(ech__comm_options){.timeout_s = 7}, &comm), ECH_OK);
    assert_true(comm->timeout_s == 7);
    ech__comm_close(comm);
    refused(text, ECH__BACKEND_MPI, "--backend mpi needs mpirun");
    close(fd);
}

static void names(void **state)
{
    (void)state;
    assert_string_equal(ech__coll_name(ECH__COLL_REDUCE_SCATTER), "reduce_scatter");
    assert_string_equal(ech__reduction_name(ECH__REDUCTION_MEAN), "mean");
    assert_string_equal(ech__backend_name(ECH__BACKEND_SHM), "shm");
}

/* ---- texts between ranks ---- */

static void exchange_texts(ech__comm *comm, void *user)
{
    (void)user;
    char mine[64], *texts[8], *shared;
    char *large = malloc(200001);
    RANK_CHECK(large);
    memset(large, 'a' + comm->rank, 200000);
    large[200000] = '\0';
    RANK_OK(ech__comm_share_text(comm, comm->rank ? NULL : large, &shared));
    RANK_CHECK(strlen(shared) == 200000 && shared[0] == 'a' && shared[199999] == 'a');
    free(shared);
    RANK_OK(ech__comm_gather_texts(comm, comm->rank == 1 ? "" : large, texts));
    for (int r = 0; r < comm->world; r++) {
        RANK_CHECK(!texts[r] == (comm->rank != 0));
        RANK_CHECK(!texts[r] || strlen(texts[r]) == (r == 1 ? 0 : 200000));
        RANK_CHECK(!texts[r] || r == 1 || texts[r][7] == 'a' + r);
        free(texts[r]);
    }
    free(large);
    RANK_OK(ech__comm_agree(comm, "model: linear\ndim: 8\n"));
    snprintf(mine, sizeof mine, "model: linear\ndim: %d\nseed: 1\n", comm->rank == 2 ? 16 : 8);
    RANK_REFUSED(ech__comm_agree(comm, mine),
                 "the ranks do not agree: rank 0 has \"dim: 8\", rank 2 has \"dim: 16\"");
    RANK_REFUSED(ech__comm_agree(comm, comm->rank == 1 ? "a: 1\n" : "a: 1\nb: 2\n"),
                 "rank 0 has \"b: 2\", rank 1 has \"nothing more\"");
    RANK_OK(ech__comm_barrier(comm));
}

static void texts_arrive(void **state)
{
    (void)state;
    run_ranks(RANKS_AS_THREADS, 3, 30, exchange_texts, NULL);
    run_ranks(RANKS_AS_PROCESSES, 3, 30, exchange_texts, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nonsense_is_refused, clean, end),
        cmocka_unit_test_setup_teardown(alone, clean, end),
        cmocka_unit_test_setup_teardown(launched, clean, end),
        cmocka_unit_test(names),
        cmocka_unit_test(texts_arrive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
