/* Times MPI's all-reduce of f32 sums, in place, and prints the times as JSON.
 *
 *     mpirun -np 2 mpi_allreduce BYTES ITERS WARMUP
 *
 * As echelon bench comm does it: all ranks meet before each iteration, an iteration takes as long as its slowest rank, and
 * what is too short for the clock is timed in batches. A failing call aborts, as is MPI's default. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROBES = 4, MAX_BATCH = 128 };

static double time_batch(float *data, int count, int batch)
{
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int k = 0; k < batch; k++)
        MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return (MPI_Wtime() - start) / batch;
}

static int choose_batch(float *data, int count)
{
    const double fit = 200e-6 / time_batch(data, count, PROBES);
    int batch = fit < 1 ? 1 : fit > MAX_BATCH ? MAX_BATCH : (int)fit;
    MPI_Bcast(&batch, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return batch;
}

static void print(const double *samples, int iters, int batch)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",")] = '\0';
    printf("{\"framework\": \"%s\", \"batch\": %d, \"samples_s\": [", version, batch);
    for (int i = 0; i < iters; i++)
        printf("%s%.9g", i ? ", " : "", samples[i]);
    printf("]}\n");
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const int count = argc == 4 ? atoi(argv[1]) / (int)sizeof(float) : 0;
    const int iters = argc == 4 ? atoi(argv[2]) : 0, warmup = argc == 4 ? atoi(argv[3]) : 0;
    float *data = count > 0 ? calloc((size_t)count, sizeof *data) : NULL;
    double *samples = iters > 0 ? calloc((size_t)iters, sizeof *samples) : NULL;
    if (!data || !samples) {
        fprintf(stderr, "usage: mpi_allreduce BYTES ITERS WARMUP\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
        return 2;
    }
    /* Pages that nobody has written to are all the same page. */
    memset(data, 0, (size_t)count * sizeof *data);
    for (int k = 0; k < warmup; k++)
        MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const int batch = choose_batch(data, count);
    for (int i = 0; i < iters; i++)
        samples[i] = time_batch(data, count, batch);
    MPI_Allreduce(MPI_IN_PLACE, samples, iters, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0)
        print(samples, iters, batch);
    free(data);
    free(samples);
    MPI_Finalize();
    return 0;
}
