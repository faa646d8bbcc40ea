/* DataParallel: one process trains a stack of linear layers on one device and then on two. Device 0 hands out the
 * parameters, gathers the outputs, adds up the gradients and takes the step; look at its bytes and its busy time.
 *
 *     cc dp.c $(pkg-config --cflags --libs echelon) -o dp && ./dp [DIM [DEPTH]]
 */
#include <echelon/echelon.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 64, WARMUP = 5, STEPS = 30, MOST_DIM = 65536, MOST_DEPTH = 1000 };

/* x -> linear -> relu -> ... -> mean squared error against y. */
static ech_value build(ech_graph *g, int64_t dim, int depth)
{
    const int64_t dims[] = {ECH_BATCH, dim};
    ech_value h = ech_input(g, "x", ECH_F32, 2, dims);
    ech_value y = ech_input(g, "y", ECH_F32, 2, dims);
    for (int k = 0; k < depth; k++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%d", k);
        h = ech_relu(g, ech_linear(g, name, h, dim, true));
    }
    return ech_mse(g, h, y);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Trains some steps and gives the median of their times, the last loss, and the mean busy time of each device. */
static ech_status train(ech_trainer *t, int devices, double *median, double *loss, double *busy)
{
    double times[STEPS];
    for (int i = -WARMUP; i < STEPS; i++) {
        ech_step step;
        const ech_status status = ech_trainer_step(t, &step);
        if (status < 0)
            return status;
        *loss = step.loss;
        for (int d = 0; d < devices && i >= 0; d++) {
            ech_device_stats stats;
            ech_trainer_device_stats(t, d, &stats);
            busy[d] += stats.busy_s / STEPS;
        }
        if (i >= 0)
            times[i] = step.time_s;
    }
    qsort(times, STEPS, sizeof *times, by_value);
    *median = times[STEPS / 2];
    return ECH_OK;
}

static void print(ech_trainer *t, int devices, double median, const double *busy)
{
    printf("%d device%s: %.3f ms a step, %.0f samples/s (%s)\n", devices, devices > 1 ? "s" : "",
           1e3 * median, BATCH / median, ech_clock_name(ech_trainer_clock(t)));
    puts("  device  samples     MB in    MB out   busy ms   memory MB   (weights gradients "
         "optimizer "
         "inputs activations)");
    for (int d = 0; d < devices; d++) {
        ech_device_stats s;
        ech_trainer_device_stats(t, d, &s);
        printf("  %6d  %7d  %8.3f  %8.3f  %8.3f  %10.2f   (%.2f %.2f %.2f %.2f %.2f)\n", d,
               (int)s.samples, 1e-6 * (double)s.bytes_in, 1e-6 * (double)s.bytes_out, 1e3 * busy[d],
               1e-6 * (double)s.memory, 1e-6 * (double)s.weights, 1e-6 * (double)s.gradients,
               1e-6 * (double)s.optimizer, 1e-6 * (double)s.inputs, 1e-6 * (double)s.activations);
    }
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
    const int dim = number(argc, argv, 1, 256, MOST_DIM);
    const int depth = number(argc, argv, 2, 2, MOST_DEPTH);
    ech_ctx *ctx;
    ech_graph *g;
    if (!dim || !depth || argc > 3) {
        fprintf(stderr, "usage: dp [DIM [DEPTH]], whole numbers up to %d and %d\n", MOST_DIM,
                MOST_DEPTH);
        return 2;
    }
    if (ech_ctx_create(NULL, &ctx) < 0 || ech_graph_create(ctx, &g) < 0)
        return 1;
    const ech_value loss = build(g, dim, depth);
    const size_t count = (size_t)BATCH * (size_t)dim, bytes = count * sizeof(float);
    float *x = malloc(bytes), *y = malloc(bytes);
    for (size_t i = 0; x && y && i < count; i++) {
        x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
        y[i] = (float)rand() / (float)RAND_MAX;
    }

    double final[3] = {0};
    ech_status status = x && y ? ECH_OK : ECH_E_NOMEM;
    for (int devices = 1; devices <= 2 && status == ECH_OK; devices++) {
        ech_train_options options = ech_train_defaults();
        options.batch = BATCH;
        options.threads = 1; /* of each device */
        options.optimizer.momentum = 0.9;
        options.dp.devices = devices;
        ech_trainer *t = NULL;
        double median, busy[2] = {0};
        if ((status = ech_trainer_create(ctx, g, loss, &options, &t)) == ECH_OK &&
            (status = ech_trainer_write(t, "x", x, bytes)) == ECH_OK &&
            (status = ech_trainer_write(t, "y", y, bytes)) == ECH_OK &&
            (status = train(t, devices, &median, &final[devices], busy)) == ECH_OK)
            print(t, devices, median, busy);
        ech_trainer_destroy(t);
    }
    if (status < 0)
        fprintf(stderr, "dp: %s\n", *ech_ctx_error(ctx) ? ech_ctx_error(ctx) : "no memory");
    else
        printf("final losses %.6f and %.6f\n", final[1], final[2]);
    free(x);
    free(y);
    ech_graph_destroy(g);
    ech_ctx_destroy(ctx);
    const double apart = final[1] - final[2];
    return status == ECH_OK && apart < 1e-4 * final[1] && -apart < 1e-4 * final[1] ? 0 : 1;
}
