/* Distributed data parallelism: every rank trains on its part of the batch, and gradients are added
 * up over the ranks.
 *
 *     cc ddp_benchmark.c $(pkg-config --cflags --libs echelon) -o ddp_benchmark
 *     ./ddp_benchmark                                    one device
 *     echelon run -n 2 -- ./ddp_benchmark [DIM [DEPTH]]  two
 *     mpirun -np 2 ./ddp_benchmark                       the same over MPI
 *
 * The whole batch stays the same, so more ranks should mean a shorter step: strong scaling. Each
 * rank has as many samples as the others; what is left over, with 3 ranks one of 64, is left out,
 * and the output says so. */
#include <echelon/echelon.h>
#include <stdio.h>
#include <stdlib.h>

enum { GLOBAL_BATCH = 64, WARMUP = 5, STEPS = 30, MOST_DIM = 65536, MOST_DEPTH = 1000 };

/* x -> linear -> relu -> ... -> mean squared error against y. */
static ech_value build(ech_graph *g, int64_t dim, int depth)
{
    const int64_t dims[] = {ECH_BATCH, dim};
    ech_value h = ech_input(g, "x", ECH_F32, 2, dims);
    const ech_value y = ech_input(g, "y", ECH_F32, 2, dims);
    for (int k = 0; k < depth; k++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%d", k);
        h = ech_relu(g, ech_linear(g, name, h, dim, true));
    }
    return ech_mse(g, h, y);
}

/* The samples of one rank. All ranks draw the same numbers, and each keeps its own slice. */
static float *samples(unsigned seed, int64_t dim, int first, int count)
{
    float *data = malloc((size_t)(count * dim) * sizeof *data);
    srand(seed);
    for (int64_t i = 0; data && i < (first + count) * dim; i++) {
        const float number = (float)rand() / (float)RAND_MAX - 0.5f;
        if (i >= first * dim)
            data[i - first * dim] = number;
    }
    return data;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static ech_status train(ech_trainer *t, int rank, int size)
{
    double times[STEPS], exchange = 0;
    ech_step step;
    for (int i = -WARMUP; i < STEPS; i++) {
        const ech_status status = ech_trainer_step(t, &step);
        if (status < 0)
            return status;
        if (i >= 0) {
            times[i] = step.time_s;
            exchange += (step.comm_exposed_s + step.wait_s) / STEPS;
        }
    }
    qsort(times, STEPS, sizeof *times, by_value);
    if (rank == 0)
        printf("%d rank%s: %.3f ms a step (%.3f to %.3f, %s), %.3f ms of it exchange; loss %.6f\n",
               size, size > 1 ? "s" : "", 1e3 * times[STEPS / 2], 1e3 * times[0],
               1e3 * times[STEPS - 1], ech_clock_name(ech_trainer_clock(t)), 1e3 * exchange,
               step.loss);
    return ECH_OK;
}

/* Argument i as a whole number from 1 to most; `initial` where there is none, 0 where it is something else. */
static int number(int argc, char **argv, int i, int initial, int most)
{
    char *end;
    if (i >= argc)
        return initial;
    const long value = strtol(argv[i], &end, 10);
    return *argv[i] && !*end && value >= 1 && value <= most ? (int)value : 0;
}

int main(int argc, char **argv)
{
    const int dim = number(argc, argv, 1, 1024, MOST_DIM);
    const int depth = number(argc, argv, 2, 2, MOST_DEPTH);
    ech_ctx *ctx;
    ech_group *group = NULL;
    ech_graph *g = NULL;
    ech_trainer *t = NULL;
    float *x = NULL, *y = NULL;
    if (!dim || !depth || argc > 3) {
        fprintf(stderr, "usage: ddp_benchmark [DIM [DEPTH]], whole numbers up to %d and %d\n",
                MOST_DIM, MOST_DEPTH);
        return 2;
    }
    if (ech_ctx_create(NULL, &ctx) < 0) {
        fputs("ddp_benchmark: no memory\n", stderr);
        return 1;
    }
    ech_status status = ech_group_open(ctx, &group);
    if (status == ECH_OK)
        status = ech_graph_create(ctx, &g);
    const int rank = group ? ech_group_rank(group) : 0, size = group ? ech_group_size(group) : 1;
    const int batch = GLOBAL_BATCH / size, left = GLOBAL_BATCH % size;
    if (status == ECH_OK && !batch) {
        fprintf(stderr, "ddp_benchmark: %d ranks: at most %d share a batch of %d\n", size,
                GLOBAL_BATCH, GLOBAL_BATCH);
        status = ECH_E_INVALID;
    } else if (status == ECH_OK) {
        if (rank == 0 && ech_device_count() > 1)
            printf("each rank may use %d cores\n", ech_device_count());
        if (left && rank == 0)
            printf("%d of %d samples a step are left out: %d ranks have %d each\n", left,
                   GLOBAL_BATCH, size, batch);
        const size_t bytes = (size_t)batch * (size_t)dim * sizeof(float);
        const ech_value loss = build(g, dim, depth);
        ech_train_options options = ech_train_defaults();
        options.batch = batch; /* of this rank */
        options.ddp.group = group;
        x = samples(1, dim, rank * batch, batch);
        y = samples(2, dim, rank * batch, batch);
        if (!x || !y)
            status = ECH_E_NOMEM;
        else if ((status = ech_trainer_create(ctx, g, loss, &options, &t)) == ECH_OK &&
                 (status = ech_trainer_write(t, "x", x, bytes)) == ECH_OK &&
                 (status = ech_trainer_write(t, "y", y, bytes)) == ECH_OK)
            status = train(t, rank, size);
    }
    if (status < 0 && batch)
        fprintf(stderr, "ddp_benchmark: %s\n",
                *ech_ctx_error(ctx) ? ech_ctx_error(ctx) : "no memory");
    free(x);
    free(y);
    ech_trainer_destroy(t); /* before the group it exchanges with */
    ech_graph_destroy(g);
    ech_group_close(group);
    ech_ctx_destroy(ctx);
    return status < 0;
}
