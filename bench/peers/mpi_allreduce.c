/* MPI's all-reduce of f32 sums, in place, as an arm of echelon compare: rank 0 speaks to it.
 *
 *     mpirun -np 2 mpi_allreduce BYTES
 *
 * As echelon bench comm does it: all ranks meet before each sample, and what is too short for the
 * clock is timed in batches. A failing call aborts, as is MPI's default. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARMUP = 5, PROBES = 4, MAX_BATCH = 128 };

static double time_batch(float *data, int count, int batch)
{
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int k = 0; k < batch; k++)
        MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return (MPI_Wtime() - start) / batch;
}

static int from_rank0(int value)
{
    MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return value;
}

static int choose_batch(float *data, int count)
{
    const double fit = 200e-6 / time_batch(data, count, PROBES);
    return from_rank0(fit < 1 ? 1 : fit > MAX_BATCH ? MAX_BATCH : (int)fit);
}

static void say_ready(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",")] = '\0';
    printf("ready %s\n", version);
    fflush(stdout);
}

/* Samples for so many milliseconds, 2 at least. */
static void run_block(float *data, int count, int batch, int rank, double ms)
{
    const double end = MPI_Wtime() + 1e-3 * ms;
    for (int done = 0; from_rank0(done < 2 || MPI_Wtime() < end); done++) {
        const double seconds = time_batch(data, count, batch);
        if (rank == 0)
            printf("%.9g\n", seconds);
    }
    if (rank == 0)
        printf("done\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const int count = argc == 2 ? atoi(argv[1]) / (int)sizeof(float) : 0;
    float *data = count > 0 ? calloc((size_t)count, sizeof *data) : NULL;
    if (!data) {
        fprintf(stderr, "usage: mpi_allreduce BYTES\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    /* Pages that nobody has written to are all the same page. */
    memset(data, 0, (size_t)count * sizeof *data);
    time_batch(data, count, WARMUP);
    const int batch = choose_batch(data, count);
    if (rank == 0)
        say_ready();
    char line[64];
    double ms = 0;
    while (from_rank0(rank > 0 ||
                      (fgets(line, sizeof line, stdin) && sscanf(line, "run %lf", &ms) == 1)))
        run_block(data, count, batch, rank, ms);
    free(data);
    MPI_Finalize();
    return 0;
}
