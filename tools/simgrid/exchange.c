/* The messages of all-reduces and nothing else, for SimGrid to time: compiled with smpicc and
 * started by tools/simgrid/compare.
 *
 *     exchange PER_NODE ALGORITHM:BYTES...      "ALGORITHM BYTES SECONDS" for each
 *
 * A rank posts all its messages of a step, waits for them, and goes on to the next step that has
 * one for it. Ranks begin at the same moment; the last one to end is what counts.
 */
#include "support/schedule.h"

#include <mpi.h>
#include <simgrid/actor.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rank_state {
    int rank;
    int64_t step;
    char *memory; /* of everything: what is in it does not matter */
    MPI_Request *requests;
    int used, capacity;
} rank_state;

static void end_step(rank_state *s)
{
    MPI_Waitall(s->used, s->requests, MPI_STATUSES_IGNORE);
    s->used = 0;
}

static void post(void *user, const schedule_message *m)
{
    rank_state *s = user;
    if (m->src != s->rank && m->dst != s->rank)
        return;
    if (m->step != s->step)
        end_step(s);
    s->step = m->step;
    if (s->used == s->capacity) {
        fprintf(stderr, "exchange: more messages in a step than there are ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    const int bytes = (int)(m->bytes + 0.5);
    MPI_Request *request = &s->requests[s->used++];
    if (m->src == s->rank)
        MPI_Isend(s->memory, bytes, MPI_BYTE, (int)m->dst, 0, MPI_COMM_WORLD, request);
    else
        MPI_Irecv(s->memory, bytes, MPI_BYTE, (int)m->src, 0, MPI_COMM_WORLD, request);
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
#define NAME(id, name) name,
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
    s->memory = SMPI_SHARED_MALLOC((size_t)bytes + 1);
    s->step = 0;
    const schedule list = {.algorithm = algorithm,
                           .devices = world,
                           .per_node = per_node,
                           .bytes = (double)bytes,
                           .visit = post,
                           .user = s};
    const double start = start_together();
    schedule_run(&list);
    end_step(s);
    double took = MPI_Wtime() - start, longest;
    MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (s->rank == 0)
        printf("%.*s %lld %.12g\n", (int)(colon - text), text, (long long)bytes, longest);
    SMPI_SHARED_FREE(s->memory);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int world;
    rank_state s = {0};
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
    s.capacity = 2 * world;
    s.requests = malloc((size_t)s.capacity * sizeof(MPI_Request));
    const int64_t asked = argc > 1 ? atoll(argv[1]) : 0;
    const int64_t per_node = asked < 1 || asked > world ? world : asked;
    for (int i = 2; i < argc; i++)
        run_case(&s, world, per_node, argv[i]);
    free(s.requests);
    MPI_Finalize();
    return 0;
}
