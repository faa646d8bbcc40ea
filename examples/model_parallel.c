/* Model parallelism: the layers of a stack are spread over the devices of one process, as x =
 * x.to(device) does between layers. Only one device works at a time; a pipeline of micro-batches
 * keeps them all busy.
 *
 *     cc model_parallel.c $(pkg-config --cflags --libs echelon) -o model_parallel
 *     ./model_parallel [DIM [DEPTH [DEVICES]]]
 */
#include <echelon/echelon.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    BATCH = 64,
    MICRO_BATCHES = 8,
    WARMUP = 3,
    STEPS = 15,
    MOST_DEVICES = 64,
    MOST_DIM = 65536,
    MOST_DEPTH = 1000
};

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

/* Trains some steps and prints their median time, the last loss, and what each device did in the last step. */
static ech_status train(ech_trainer *t, const char *what, int devices, double *loss)
{
    double times[STEPS], median;
    ech_step step = {0};
    for (int i = -WARMUP; i < STEPS; i++) {
        const ech_status status = ech_trainer_step(t, &step);
        if (status < 0)
            return status;
        if (i >= 0)
            times[i] = step.time_s;
    }
    qsort(times, STEPS, sizeof *times, by_value);
    median = times[STEPS / 2];
    printf("%s: %.3f ms a step, %.0f samples/s (%s), loss %.9g\n", what, 1e3 * median,
           BATCH / median, ech_clock_name(ech_trainer_clock(t)), step.loss);
    puts(
        "  device   busy     kB in    kB out   memory MB   (weights gradients inputs activations)");
    for (int d = 0; d < devices; d++) {
        ech_device_stats s;
        ech_trainer_device_stats(t, d, &s);
        printf("  %6d  %3.0f %%  %8.1f  %8.1f  %10.2f   (%.2f %.2f %.2f %.2f)\n", d,
               100 * s.busy_s / step.time_s, 1e-3 * (double)s.bytes_in, 1e-3 * (double)s.bytes_out,
               1e-6 * (double)s.memory, 1e-6 * (double)s.weights, 1e-6 * (double)s.gradients,
               1e-6 * (double)s.inputs, 1e-6 * (double)s.activations);
    }
    *loss = step.loss;
    return ECH_OK;
}

/* Which layers are on each device: "device 0: layers.0 layers.1". */
static void show_layers(ech_trainer *t, int devices)
{
    ech_layer layer;
    for (int d = 0; d < devices; d++) {
        printf("  device %d:", d);
        for (int i = 0; i < ech_trainer_layer_count(t); i++) {
            if (ech_trainer_layer(t, i, &layer) == ECH_OK && layer.device == d)
                printf(" %s", layer.name);
        }
        putchar('\n');
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
    const int depth = number(argc, argv, 2, 6, MOST_DEPTH);
    const int devices = number(argc, argv, 3, 2, MOST_DEVICES);
    const struct {
        const char *name;
        int devices, micro_batches;
    } ways[] = {{"one device", 0, 0},
                {"layers on several devices", devices, 1},
                {"the same as a pipeline", devices, MICRO_BATCHES}};
    enum { WAYS = sizeof ways / sizeof *ways };
    ech_ctx *ctx;
    ech_graph *g;
    if (!dim || !depth || !devices || argc > 4) {
        fprintf(
            stderr,
            "usage: model_parallel [DIM [DEPTH [DEVICES]]], whole numbers up to %d, %d and %d\n",
            MOST_DIM, MOST_DEPTH, MOST_DEVICES);
        return 2;
    }
    if (ech_ctx_create(NULL, &ctx) < 0 || ech_graph_create(ctx, &g) < 0)
        return 1;
    if (devices > ech_device_count())
        printf("%d devices share %d cores: their times are not those of %d devices\n", devices,
               ech_device_count(), devices);
    const ech_value loss = build(g, dim, depth);
    const size_t count = (size_t)BATCH * (size_t)dim, bytes = count * sizeof(float);
    float *x = malloc(bytes), *y = malloc(bytes);
    for (size_t i = 0; x && y && i < count; i++) {
        x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
        y[i] = (float)rand() / (float)RAND_MAX;
    }

    double final[WAYS] = {0};
    ech_status status = x && y ? ECH_OK : ECH_E_NOMEM;
    for (int w = 0; w < WAYS && status == ECH_OK; w++) {
        ech_train_options options = ech_train_defaults();
        options.batch = BATCH;
        options.threads = 1;  /* of each device */
        options.tune = false; /* so that all choose the same kernels */
        options.pipeline.devices = ways[w].devices;
        options.pipeline.micro_batches = ways[w].micro_batches;
        options.pipeline.placement = "even"; /* layer i of L on device i*D/L */
        ech_trainer *t = NULL;
        if ((status = ech_trainer_create(ctx, g, loss, &options, &t)) == ECH_OK &&
            (status = ech_trainer_write(t, "x", x, bytes)) == ECH_OK &&
            (status = ech_trainer_write(t, "y", y, bytes)) == ECH_OK)
            status = train(t, ways[w].name, ways[w].devices ? ways[w].devices : 1, &final[w]);
        if (status == ECH_OK && w == 1)
            show_layers(t, devices);
        ech_trainer_destroy(t);
    }
    if (status < 0)
        fprintf(stderr, "model_parallel: %s\n",
                *ech_ctx_error(ctx) ? ech_ctx_error(ctx) : "no memory");
    else
        printf("one micro-batch has %s loss as one device\n",
               final[0] == final[1] ? "bit for bit the same" : "another");
    free(x);
    free(y);
    ech_graph_destroy(g);
    ech_ctx_destroy(ctx);
    return status == ECH_OK && final[0] == final[1] ? 0 : 1;
}
