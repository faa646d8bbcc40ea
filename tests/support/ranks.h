/* Ranks for tests, over shared memory: threads of this process, or processes of their own.
 *
 *     static void work(ech__comm *comm, void *user) { ... RANK_CHECK(ech__comm_barrier(comm) == ECH_OK) ... }
 *     run_ranks(RANKS_AS_THREADS, 4, 10.0, work, user);
 *
 * The test fails unless every rank comes to its end. A rank that is not as it should be calls
 * rank_failed, which tells why and ends the process, since cmocka's own checks work on one thread
 * only.
 */
#pragma once

#include "comm/comm.h"
#include "support/cmocka_first.h"

typedef enum ranks_kind { RANKS_AS_THREADS, RANKS_AS_PROCESSES } ranks_kind;

typedef void (*rank_fn)(ech__comm *comm, void *user);

void run_ranks(ranks_kind kind, int world, double timeout_s, rank_fn work, void *user);

_Noreturn void rank_failed(const ech__comm *comm, const char *file, int line, const char *what);

#define RANK_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            rank_failed(comm, __FILE__, __LINE__, #condition);                                     \
    } while (0)
#define RANK_OK(call) RANK_CHECK((call) == ECH_OK)
/* It fails with a sentence that holds these words. */
#define RANK_REFUSED(call, words) RANK_CHECK((call) < 0 && strstr(ech_ctx_error(comm->ctx), words))
