/* A model of one's own: two linear layers that learn which of three clouds a point belongs to.
 *
 *     cc own_model.c $(pkg-config --cflags --libs echelon) -o own_model && ./own_model
 */
#include <echelon/echelon.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 96, D = 2, CLASSES = 3, STEPS = 200 };

static int failed(const ech_ctx *ctx)
{
    fprintf(stderr, "own_model: %s\n", ech_ctx_error(ctx));
    return 1;
}

int main(void)
{
    static const float centre[CLASSES][D] = {{-2, 0}, {2, 0}, {0, 3}};
    float points[N][D]; /* [N, D] */
    int32_t labels[N];  /* [N] */
    srand(1);
    for (int i = 0; i < N; i++) {
        labels[i] = i % CLASSES;
        for (int k = 0; k < D; k++)
            points[i][k] = centre[labels[i]][k] + (float)rand() / (float)RAND_MAX - 0.5f;
    }

    ech_ctx *ctx;
    ech_graph *g;
    if (ech_ctx_create(NULL, &ctx) < 0 || ech_graph_create(ctx, &g) < 0)
        return 1;
    ech_value x = ech_input(g, "points", ECH_F32, 2, (int64_t[]){ECH_BATCH, D});
    ech_value y = ech_input(g, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    ech_value h = ech_relu(g, ech_linear(g, "hidden", x, 16, true));
    ech_value loss = ech_cross_entropy(g, ech_linear(g, "out", h, CLASSES, true), y);

    ech_train_options options = ech_train_defaults();
    options.batch = N;
    options.optimizer.kind = ECH_OPTIMIZER_ADAM;
    ech_trainer *trainer;
    if (ech_trainer_create(ctx, g, loss, &options, &trainer) < 0 ||
        ech_trainer_write(trainer, "points", points, sizeof points) < 0 ||
        ech_trainer_write(trainer, "labels", labels, sizeof labels) < 0)
        return failed(ctx);
    ech_step step;
    for (int i = 1; i <= STEPS; i++) {
        if (ech_trainer_step(trainer, &step) < 0)
            return failed(ctx);
        if (i == 1 || i % 50 == 0)
            printf("step %3d  loss %.5f  %.1f us\n", i, step.loss, 1e6 * step.time_s);
    }
    ech_trainer_destroy(trainer);
    ech_graph_destroy(g);
    ech_ctx_destroy(ctx);
    return step.loss < 0.1 ? 0 : 1;
}
