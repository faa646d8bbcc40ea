/* A convolutional network of one's own: it learns to tell horizontal stripes from vertical ones.
 *
 *     cc convnet.c $(pkg-config --cflags --libs echelon) -o convnet && ./convnet
 */
#include <echelon/echelon.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 32, SIDE = 16, PIXELS = SIDE * SIDE, STEPS = 60 };

/* Stripes of 2 or 3 pixels at a random place, well hidden in noise. */
static void draw(float images[N][PIXELS], int32_t labels[N])
{
    for (int n = 0; n < N; n++) {
        const int width = 2 + rand() % 2, shift = rand() % SIDE;
        labels[n] = rand() % 2;
        for (int i = 0; i < PIXELS; i++) {
            const int at = (labels[n] ? i % SIDE : i / SIDE) + shift;
            const float noise = 6 * ((float)rand() / (float)RAND_MAX - 0.5f);
            images[n][i] = (at / width % 2 ? 1.0f : -1.0f) + noise;
        }
    }
}

int main(void)
{
    static float images[N][PIXELS]; /* [N, 1, SIDE, SIDE] */
    int32_t labels[N];
    ech_ctx *ctx;
    ech_graph *g;
    if (ech_ctx_create(NULL, &ctx) < 0 || ech_graph_create(ctx, &g) < 0)
        return 1;
    const ech_conv conv = {.out_channels = 8, .kernel = 3, .pad = 1};
    ech_value x = ech_input(g, "images", ECH_F32, 4, (int64_t[]){ECH_BATCH, 1, SIDE, SIDE});
    ech_value y = ech_input(g, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    ech_value h = ech_relu(g, ech_batchnorm2d(g, "bn1", ech_conv2d(g, "conv1", x, &conv)));
    h = ech_maxpool2d(g, h, 2, 2); /* [N, 8, 8, 8] */
    h = ech_relu(g, ech_batchnorm2d(g, "bn2", ech_conv2d(g, "conv2", h, &conv)));
    h = ech_flatten(g, ech_maxpool2d(g, h, 2, 2)); /* [N, 8 * 4 * 4] */
    ech_value logits = ech_linear(g, "out", h, 2, true);
    ech_value loss = ech_cross_entropy(g, logits, y);
    ech_value correct = ech_count_correct(g, logits, y);

    ech_train_options options = ech_train_defaults();
    options.batch = N;
    options.optimizer.lr = 0.05;
    options.optimizer.momentum = 0.9;
    ech_trainer *trainer;
    ech_status status = ech_trainer_create(ctx, g, loss, &options, &trainer);
    double error = 0, right = 0;
    srand(1);
    for (int i = 1; i <= STEPS && status == ECH_OK; i++) {
        draw(images, labels); /* always new ones: nothing can be learned by heart */
        if ((status = ech_trainer_write(trainer, "images", images, sizeof images)) < 0 ||
            (status = ech_trainer_write(trainer, "labels", labels, sizeof labels)) < 0)
            break;
        if (i == 1 || i % 20 == 0) { /* before it has learned from these */
            if ((status = ech_trainer_evaluate(trainer, loss, &error)) < 0 ||
                (status = ech_trainer_evaluate(trainer, correct, &right)) < 0)
                break;
            printf("step %2d  loss %.4f  %2.0f of %d new images right\n", i, error, right, N);
        }
        status = ech_trainer_step(trainer, NULL);
    }
    if (status < 0)
        fprintf(stderr, "convnet: %s\n", ech_ctx_error(ctx));
    ech_trainer_destroy(trainer);
    ech_graph_destroy(g);
    ech_ctx_destroy(ctx);
    return status == ECH_OK && right >= 0.9 * N ? 0 : 1;
}
