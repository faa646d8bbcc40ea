/* Mixed precision on several ranks. The second of three programs to be read side by side:
 * ddp_accumulation.c, this one and practical5_single.c, which is both.
 *
 *     cc ddp_amp.c $(pkg-config --cflags --libs echelon) -o ddp_amp
 *     ./ddp_amp [DIM [DEPTH [STEPS [bf16|fp16|f32]]]]      one device
 *     echelon run -n 2 -- ./ddp_amp                        two
 *
 * Layers compute in 16 bits, parameters and the optimizer stay in f32. In fp16 the loss is scaled
 * so that small gradients do not vanish; bf16 has the exponents of f32 and needs no scale. */
#include <echelon/echelon.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MICRO_BATCH = 32, WARMUP = 2, MOST_STEPS = 1000, MOST_DIM = 65536, MOST = 1000 };

typedef struct job {
    int dim, depth, steps, accum;
    ech_amp amp;
    int rank, size;
} job;

/* x -> linear -> relu -> ... -> mean squared error against y. */
static ech_value build(ech_graph *g, const job *j)
{
    const int64_t dims[] = {ECH_BATCH, j->dim};
    ech_value h = ech_input(g, "x", ECH_F32, 2, dims);
    const ech_value y = ech_input(g, "y", ECH_F32, 2, dims);
    for (int k = 0; k < j->depth; k++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%d", k);
        h = ech_relu(g, ech_linear(g, name, h, j->dim, true));
    }
    return ech_mse(g, h, y);
}

/* Micro-batch k of this rank: numbers that depend on nothing but their place in the whole batch. */
static ech_status write_batch(ech_trainer *t, const job *j, float *data, int k)
{
    const size_t count = (size_t)MICRO_BATCH * (size_t)j->dim;
    for (int input = 0; input < 2; input++) {
        unsigned state = 1u + 2u * (unsigned)(j->rank * j->accum + k) + (unsigned)input;
        for (size_t i = 0; i < count; i++) {
            state = state * 1664525u + 1013904223u;
            data[i] = (float)(state >> 8) / (float)(1 << 24) - 0.5f;
        }
        const ech_status status =
            ech_trainer_write(t, input ? "y" : "x", data, count * sizeof *data);
        if (status < 0)
            return status;
    }
    return ECH_OK;
}

/* One optimizer step over a batch of this rank. */
static ech_status train_step(ech_trainer *t, const job *j, float *data, ech_step *out)
{
    ech_status status = write_batch(t, j, data, 0);
    if (status == ECH_OK)
        status = ech_trainer_accumulate(t); /* scaler.scale(loss).backward() */
    if (status == ECH_OK)
        status = ech_trainer_apply(t, out); /* scaler.step(optimizer) */
    if (status == ECH_OK)
        status = ech_trainer_update_scale(t); /* scaler.update() */
    return status;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(ech_trainer *t, const job *j, double *times, int skipped, double loss)
{
    static const char *const types[] = {"f32", "bf16", "fp16"};
    ech_device_stats m;
    ech_trainer_device_stats(t, 0, &m);
    qsort(times, (size_t)j->steps, sizeof *times, by_value);
    const double median = times[j->steps / 2];
    printf("ddp_amp: %d rank%s, %s, %d micro-step%s of %d samples: %.3f ms a step (%s), %.3f ms a "
           "micro-step; %d steps skipped; loss %.6f\n",
           j->size, j->size > 1 ? "s" : "", types[j->amp], j->accum, j->accum > 1 ? "s" : "",
           MICRO_BATCH, 1e3 * median, ech_clock_name(ech_trainer_clock(t)), 1e3 * median / j->accum,
           skipped, loss);
    printf("  MB on each: weights %.2f, copies %.2f, gradients %.2f, optimizer %.2f, inputs %.2f, "
           "activations %.2f, workspace %.2f; %.2f in all\n",
           1e-6 * (double)(m.weights - m.copies), 1e-6 * (double)m.copies,
           1e-6 * (double)m.gradients, 1e-6 * (double)m.optimizer, 1e-6 * (double)m.inputs,
           1e-6 * (double)(m.activations - m.workspace), 1e-6 * (double)m.workspace,
           1e-6 * (double)m.memory);
}

static ech_status train(ech_trainer *t, const job *j, float *data)
{
    double times[MOST_STEPS];
    int skipped = 0;
    ech_step step;
    for (int i = -WARMUP; i < j->steps; i++) {
        const ech_status status = train_step(t, j, data, &step);
        if (status < 0)
            return status;
        skipped += step.skipped;
        if (i >= 0)
            times[i] = step.time_s;
    }
    if (j->rank == 0)
        report(t, j, times, skipped, step.loss);
    return ECH_OK;
}

static ech_status run(ech_ctx *ctx, ech_group *group, job *j, float *data)
{
    ech_graph *g;
    ech_trainer *t = NULL;
    ech_status status = ech_graph_create(ctx, &g);
    if (status < 0)
        return status;
    ech_train_options options = ech_train_defaults();
    options.batch = MICRO_BATCH; /* of this rank and micro-step */
    options.ddp.group = group;
    options.amp.type = j->amp; /* autocast */
    j->rank = ech_group_rank(group);
    j->size = ech_group_size(group);
    status = ech_trainer_create(ctx, g, build(g, j), &options, &t);
    if (status == ECH_OK)
        status = train(t, j, data);
    ech_trainer_destroy(t); /* before the group it exchanges with */
    ech_graph_destroy(g);
    return status;
}

/* -1: no such type */
static int type_of(const char *name)
{
    return !strcmp(name, "f32")    ? ECH_AMP_OFF
           : !strcmp(name, "bf16") ? ECH_AMP_BF16
           : !strcmp(name, "fp16") ? ECH_AMP_FP16
                                   : -1;
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
    job j = {.dim = number(argc, argv, 1, 2048, MOST_DIM),
             .depth = number(argc, argv, 2, 4, MOST),
             .steps = number(argc, argv, 3, 10, MOST_STEPS),
             .accum = 1};
    const int type = argc > 4 ? type_of(argv[4]) : ECH_AMP_BF16;
    j.amp = (ech_amp)type;
    ech_ctx *ctx;
    ech_group *group = NULL;
    if (!j.dim || !j.depth || !j.steps || type < 0 || argc > 5) {
        fprintf(stderr,
                "usage: %s [DIM [DEPTH [STEPS [bf16|fp16|f32]]]], whole numbers, DIM up to %d and "
                "others up to %d\n",
                argv[0], MOST_DIM, MOST);
        return 2;
    }
    float *data = malloc((size_t)MICRO_BATCH * (size_t)j.dim * sizeof *data);
    if (!data || ech_ctx_create(NULL, &ctx) < 0) {
        fprintf(stderr, "%s: no memory\n", argv[0]);
        free(data);
        return 1;
    }
    ech_status status = ech_group_open(ctx, &group);
    if (status == ECH_OK)
        status = run(ctx, group, &j, data);
    if (status < 0)
        fprintf(stderr, "ddp_amp: %s\n", ech_ctx_error(ctx));
    ech_group_close(group);
    ech_ctx_destroy(ctx);
    free(data);
    return status < 0;
}
