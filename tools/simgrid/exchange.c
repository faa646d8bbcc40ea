/* The messages of all-reduces and nothing else, for SimGrid to time: the schedules that src/comm runs
 * (price/schedule.h), compiled with smpicc and started by tools/simgrid/compare.
 *
 *     exchange PER_NODE ALGORITHM:BYTES...      "ALGORITHM BYTES SECONDS" for each
 *
 * A rank posts all its messages of a step, waits for them, and goes on to the next step that has
 * one for it. Ranks begin at the same moment; the last one to end is what counts.
 */
#include "price/schedule.h"

#include <mpi.h>
#include <simgrid/actor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rank_state {
    int rank;
    char *memory; /* of everything: what is in it does not matter */
} rank_state;

/* Receives are posted first: a send has an overhead, and a message begins when both ends are there. */
static void run_step(const rank_state *s, const ech__move *moves, int64_t count,
                     MPI_Request *requests)
{
    int used = 0;
    for (int sends = 0; sends < 2; sends++) {
        for (int64_t i = 0; i < count; i++) {
            const int peer = (int)moves[i].peer, bytes = (int)moves[i].range.count;
            if ((moves[i].kind == ECH__MOVE_SEND) != sends)
                continue;
            if (sends)
                MPI_Isend(s->memory, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[used++]);
            else
                MPI_Irecv(s->memory, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[used++]);
        }
    }
    MPI_Waitall(used, requests, MPI_STATUSES_IGNORE);
}

/* Ranks leave a barrier one by one; this puts them to one moment, a little later. */
static double start_together(void)
{
    double now = MPI_Wtime(), latest;
    MPI_Allreduce(&now, &latest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    sg_actor_sleep_until(latest + 1000);
    return MPI_Wtime();
}

static ech__algorithm find_algorithm(const char *text, size_t length)
{
    static const char *const names[] = {
#define NAME(id, name, ...) name,
        ECH__ALGORITHM_LIST(NAME)
#undef NAME
    };
    int a = ECH__ALGORITHM_BEST + 1;
    while (a < ECH__ALGORITHM_COUNT &&
           (strlen(names[a]) != length || strncmp(names[a], text, length) != 0))
        a++;
    return (ech__algorithm)a;
}

static void run_case(rank_state *s, int world, int64_t per_node, const char *text)
{
    const char *colon = strchr(text, ':');
    const ech__algorithm algorithm =
        colon ? find_algorithm(text, (size_t)(colon - text)) : ECH__ALGORITHM_COUNT;
    if (algorithm == ECH__ALGORITHM_COUNT) {
        fprintf(stderr, "exchange: %s is no ALGORITHM:BYTES\n", text);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const int64_t bytes = atoll(colon + 1);
    const ech__schedule list = {algorithm, world, per_node, bytes, 1};
    const size_t most = (size_t)ech__schedule_most(&list);
    ech__move *moves = malloc(most * sizeof *moves);
    MPI_Request *requests = malloc(most * sizeof *requests);
    s->memory = SMPI_SHARED_MALLOC((size_t)bytes + 1);
    const double start = start_together();
    for (int64_t step = 0; step < ech__schedule_steps(&list); step++) {
        const int64_t count = ech__schedule_moves(&list, s->rank, step, moves);
        if (count)
            run_step(s, moves, count, requests);
    }
    double took = MPI_Wtime() - start, longest;
    MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (s->rank == 0)
        printf("%.*s %lld %.12g\n", (int)(colon - text), text, (long long)bytes, longest);
    SMPI_SHARED_FREE(s->memory);
    free(requests);
    free(moves);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int world;
    rank_state s = {0};
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
    const int64_t asked = argc > 1 ? atoll(argv[1]) : 0;
    const int64_t per_node = asked < 1 || asked > world ? world : asked;
    for (int i = 2; i < argc; i++)
        run_case(&s, world, per_node, argv[i]);
    MPI_Finalize();
    return 0;
}
