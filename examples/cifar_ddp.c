/* A convolutional network on CIFAR-10, on one device or on several: every rank takes its share of
 * each step's images, and gradients are added up over the ranks.
 *
 *     cc cifar_ddp.c $(pkg-config --cflags --libs echelon) -o cifar_ddp
 *     echelon data cifar10 --dir cifar
 *     ./cifar_ddp cifar [EPOCHS [LIMIT]]                        one device
 *     echelon run -n 2 -- ./cifar_ddp cifar [EPOCHS [LIMIT]]    two
 *
 * Without a directory (or with "-") it learns synthetic images of the same shapes, and every line
 * says so: such an accuracy is none of CIFAR-10's. time is that of the training steps. */
#include <echelon/echelon.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GLOBAL_BATCH = 128, CLASSES = 10, TRAIN_IMAGES = 50000, TEST_IMAGES = 10000 };
static const double LR = 0.02;

typedef struct model {
    ech_value loss, correct;
} model;

/* Three convolutions, each with batch norm, ReLU and a pool, and one linear layer. */
static model build(ech_graph *g)
{
    ech_value h = ech_input(g, "images", ECH_F32, 4, (int64_t[]){ECH_BATCH, 3, 32, 32});
    const ech_value labels = ech_input(g, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    for (int k = 0; k < 3; k++) { /* [N, 16 << k, 16 >> k, 16 >> k] */
        char conv[16], norm[16];
        snprintf(conv, sizeof conv, "conv%d", k + 1);
        snprintf(norm, sizeof norm, "bn%d", k + 1);
        const ech_conv three = {.out_channels = 16 << k, .kernel = 3, .pad = 1};
        h = ech_relu(g, ech_batchnorm2d(g, norm, ech_conv2d(g, conv, h, &three)));
        h = ech_maxpool2d(g, h, 2, 2);
    }
    const ech_value logits = ech_linear(g, "out", ech_flatten(g, h), CLASSES, true);
    return (model){ech_cross_entropy(g, logits, labels), ech_count_correct(g, logits, labels)};
}

/* One pass over the training images. *loss: the mean over them, on all ranks; *took: seconds of the steps. */
static ech_status train(ech_trainer *t, ech_loader *images, int epoch, int epochs, double *loss,
                        double *took)
{
    const int64_t steps = ech_loader_steps(images);
    *loss = *took = 0;
    for (int64_t i = 0; i < steps; i++) {
        ech_batch batch;
        ech_step step;
        ech_status status = ech_loader_next(images, &batch);
        if (status < 0)
            return status;
        /* Down to 0 on a line. */
        ech_trainer_set_lr(t, LR * (1 - (double)(epoch * steps + i) / (double)(epochs * steps)));
        if ((status = ech_trainer_step_batch(t, "images", "labels", &batch, &step)) < 0)
            return status;
        *took += step.time_s;
        *loss += step.loss * (double)batch.global_count / (double)ech_loader_samples(images);
    }
    return ECH_OK;
}

/* The share of the test images that is classified rightly; each rank takes its part of them. */
static ech_status test(ech_trainer *t, ech_loader *images, const model *m, ech_group *group,
                       double *accuracy)
{
    float correct = 0;
    for (int64_t i = 0; i < ech_loader_steps(images); i++) {
        ech_batch batch;
        double right;
        ech_status status = ech_loader_next(images, &batch);
        if (status == ECH_OK)
            status =
                ech_trainer_evaluate_batch(t, "images", "labels", &batch, &m->correct, 1, &right);
        if (status < 0)
            return status;
        correct += (float)right;
    }
    const ech_status status = ech_group_sum(group, &correct, 1);
    *accuracy = (double)correct / (double)ech_loader_samples(images);
    return status;
}

typedef struct job {
    ech_group *group;
    ech_graph *graph;
    ech_trainer *trainer;
    ech_loader *train, *test;
} job;

static ech_status run(ech_ctx *ctx, job *j, const char *dir, int epochs, int64_t limit)
{
    ech_status status;
    if ((status = ech_group_open(ctx, &j->group)) < 0 ||
        (status = ech_graph_create(ctx, &j->graph)) < 0)
        return status;
    const int size = ech_group_size(j->group);
    const model m = build(j->graph);
    ech_train_options options = ech_train_defaults();
    options.batch = (GLOBAL_BATCH + size - 1) / size; /* of this rank */
    options.optimizer.momentum = 0.9;
    options.optimizer.weight_decay = 5e-4;
    options.ddp.group = j->group;
    ech_loader_options load = ech_loader_defaults();
    load.dir = dir;
    load.batch = options.batch;
    load.limit = limit;
    load.group = j->group;
    ech_loader_options check = load;
    check.test = true;
    check.limit = limit < TEST_IMAGES ? limit : 0;
    if ((status = ech_trainer_create(ctx, j->graph, m.loss, &options, &j->trainer)) < 0 ||
        (status = ech_loader_open(ctx, &load, &j->train)) < 0 ||
        (status = ech_loader_open(ctx, &check, &j->test)) < 0)
        return status;
    for (int epoch = 0; epoch < epochs; epoch++) {
        double loss, took, accuracy;
        if ((status = train(j->trainer, j->train, epoch, epochs, &loss, &took)) < 0 ||
            (status = test(j->trainer, j->test, &m, j->group, &accuracy)) < 0)
            return status;
        if (ech_group_rank(j->group) == 0)
            printf("[Epoch %d/%d] time=%.2fs loss=%.4f acc=%.4f (%s; %s images)\n", epoch + 1,
                   epochs, took, loss, accuracy, ech_clock_name(ech_trainer_clock(j->trainer)),
                   dir ? "CIFAR-10" : "synthetic");
        fflush(stdout);
    }
    return ECH_OK;
}

/* Argument i as a whole number from least to most; `initial` where there is none, -1 where it is something else. */
static int number(int argc, char **argv, int i, int initial, int least, int most)
{
    char *end;
    if (i >= argc)
        return initial;
    const long value = strtol(argv[i], &end, 10);
    return *argv[i] && !*end && value >= least && value <= most ? (int)value : -1;
}

int main(int argc, char **argv)
{
    const char *dir = argc > 1 && strcmp(argv[1], "-") != 0 ? argv[1] : NULL;
    const int epochs = number(argc, argv, 2, 2, 1, 100000);
    const int limit = number(argc, argv, 3, 0, 0, TRAIN_IMAGES);
    ech_ctx *ctx;
    job j = {0};
    if (epochs < 0 || limit < 0 || argc > 4) {
        fprintf(stderr,
                "usage: cifar_ddp [DIR [EPOCHS [LIMIT]]], whole numbers, LIMIT up to %d images\n",
                TRAIN_IMAGES);
        return 2;
    }
    if (ech_ctx_create(NULL, &ctx) < 0) {
        fputs("cifar_ddp: no memory\n", stderr);
        return 1;
    }
    const ech_status status = run(ctx, &j, dir, epochs, limit);
    if (status < 0)
        fprintf(stderr, "cifar_ddp: %s\n", ech_ctx_error(ctx));
    ech_loader_close(j.train);
    ech_loader_close(j.test);
    ech_trainer_destroy(j.trainer); /* before the group it exchanges with */
    ech_graph_destroy(j.graph);
    ech_group_close(j.group);
    ech_ctx_destroy(ctx);
    return status < 0;
}
