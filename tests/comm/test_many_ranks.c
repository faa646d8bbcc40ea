/* Many ranks on several nodes, as threads of this process, over messages through memory: the limit
 * of a node, the messages of a step's report, every algorithm, and the thread that helps.
 * ECH_RANKS: how many ranks tell each other of steps. */
#include "comm/helper.h"
#include "comm/mpi/mpi.h"
#include "support/mailbox_mpi.h"
#include "support/ranks.h"

#include <stdlib.h>
#include <string.h>

static int many(void)
{
    const char *text = getenv("ECH_RANKS");
    return text ? atoi(text) : 64;
}

/* Every rank gets every rank's report by at most 2 log2 N messages of its own, sent and received. */
static void reports(ech__comm *comm, void *user)
{
    enum { BYTES = 200, STEPS = 3 };
    (void)user;
    uint64_t most = 0;
    char mine[BYTES], *all = malloc((size_t)comm->world * BYTES);
    for (int n = 1; n < comm->world; n *= 2)
        most += 2;
    RANK_CHECK(all != NULL);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < BYTES; i++)
            mine[i] = (char)(comm->rank * 7 + i * step);
        const uint64_t before = ech__hier_messages(comm);
        RANK_OK(ech__comm_allgather(comm, mine, all, BYTES));
        const uint64_t messages = ech__hier_messages(comm) - before;
        RANK_CHECK(messages >= 1 && messages <= most);
        for (int i = 0; i < BYTES * comm->world; i++)
            RANK_CHECK(all[i] == (char)(i / BYTES * 7 + i % BYTES * step));
    }
    free(all);
}

static void reports_go_up_and_down_a_tree(void **state)
{
    (void)state;
    char error[1024];
    const ech__comm_options o = {.timeout_s = 120};
    assert_int_equal(mailbox_run(many(), 2, &o, reports, NULL, error), 0);
    assert_int_equal(mailbox_run(5, 2, &o, reports, NULL, error), 0);
    assert_int_equal(mailbox_run(3, 3, &o, reports, NULL, error), 0);
}

static void the_limit_is_of_a_node(void **state)
{
    (void)state;
    char error[1024] = "";
    const ech__comm_options o = {.timeout_s = 120};
    assert_int_equal(mailbox_run(257, 1, &o, reports, NULL, error), 257);
    assert_string_equal(error, "257 ranks on the node of rank 0: at most 256");
}

/* Several all-reduces in progress while this rank does something else, which the helper moves on. */
static void exchange(ech__comm *comm, void *user)
{
    enum { BUCKETS = 5, EACH = 300007, ROUNDS = 3 };
    const bool *helped = user;
    float *data;
    uint64_t tickets[BUCKETS];
    if (*helped)
        RANK_OK(ech__helper_start(comm));
    RANK_OK(ech__comm_alloc(comm, (int64_t)BUCKETS * EACH * 4, (void **)&data));
    for (int round = 0; round < ROUNDS; round++) {
        double sum = comm->rank;
        const ech__coll ranks = {
            .op = ECH__COLL_ALLREDUCE, .dtype = ECH_F64, .count = 1, .src = &sum, .dst = &sum};
        for (int i = 0; i < BUCKETS * EACH; i++)
            data[i] = (float)((i + comm->rank + round) % 17);
        for (int b = 0; b < BUCKETS; b++) {
            const ech__coll c = {.op = ECH__COLL_ALLREDUCE,
                                 .dtype = ECH_F32,
                                 .count = EACH,
                                 .src = data + (int64_t)b * EACH,
                                 .dst = data + (int64_t)b * EACH};
            RANK_OK(ech__comm_start(comm, &c, &tickets[b]));
            RANK_OK(ech__comm_progress(comm));
        }
        RANK_OK(ech__comm_run(comm, &ranks));
        RANK_CHECK(sum == comm->world * (comm->world - 1) / 2.0);
        for (int b = BUCKETS - 1; b >= 0; b--)
            RANK_OK(ech__comm_wait(comm, tickets[b], NULL));
        for (int i = 0; i < BUCKETS * EACH; i++) {
            int want = 0;
            for (int r = 0; r < comm->world; r++)
                want += (i + r + round) % 17;
            RANK_CHECK(data[i] == (float)want);
        }
        RANK_OK(ech__comm_barrier(comm));
    }
    ech__comm_free(comm, data);
}

static void algorithms_add_up(void **state)
{
    (void)state;
    char error[1024];
    for (bool helped = false;; helped = true) {
        for (ech__algorithm a = ECH__ALGORITHM_RING; a < ECH__ALGORITHM_COUNT; a++) {
            const ech__comm_options o = {.timeout_s = 60, .algorithm = a};
            assert_int_equal(mailbox_run(4, 2, &o, exchange, &helped, error), 0);
            assert_int_equal(mailbox_run(3, 3, &o, exchange, &helped, error), 0);
        }
        if (helped)
            break;
    }
}

/* A failure of the helper is the failure of the next call. */
static void lose_a_rank(ech__comm *comm, void *user)
{
    (void)user;
    float *data;
    uint64_t ticket;
    RANK_OK(ech__helper_start(comm));
    RANK_OK(ech__comm_alloc(comm, 4000, (void **)&data));
    const ech__coll c = {
        .op = ECH__COLL_ALLREDUCE, .dtype = ECH_F32, .count = 1000, .src = data, .dst = data};
    if (comm->rank == 1)
        return;
    RANK_OK(ech__comm_start(comm, &c, &ticket));
    while (ech__comm_progress(comm) == ECH_OK) {}
    RANK_REFUSED(ech__comm_wait(comm, ticket, NULL), "waited 0.5 s for rank 1 in allreduce #0");
}

static void a_missing_rank_is_named(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip(); /* memory of messages in progress is kept, because a real process ends here */
#endif
    char error[1024];
    const ech__comm_options o = {.timeout_s = 0.5, .algorithm = ECH__ALGORITHM_RING};
    assert_int_equal(mailbox_run(3, 3, &o, lose_a_rank, NULL, error), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reports_go_up_and_down_a_tree),
        cmocka_unit_test(the_limit_is_of_a_node),
        cmocka_unit_test(algorithms_add_up),
        cmocka_unit_test(a_missing_rank_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
