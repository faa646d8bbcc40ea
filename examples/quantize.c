/* int8 quantization of a small convnet: train it in f32, calibrate it on training samples, and
 * compare what it says in int8.
 *
 *     cc quantize.c $(pkg-config --cflags --libs echelon) -lm -o quantize && ./quantize
 *
 * The task: which of four edges (left, right, top, bottom) of a noisy 12x12 picture is bright.
 */
#include <echelon/echelon.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 12, PIXELS = SIDE * SIDE, CLASSES = 4, BATCH = 64, STEPS = 150, TEST = 1000 };

static float noise(void)
{
    return (float)rand() / (float)RAND_MAX - 0.5f;
}

/* x[count, 1, SIDE, SIDE], labels[count] */
static void draw(float *x, int32_t *labels, int count)
{
    for (int n = 0; n < count; n++) {
        float *picture = x + n * PIXELS;
        labels[n] = rand() % CLASSES;
        for (int i = 0; i < PIXELS; i++)
            picture[i] = 1.6f * noise();
        for (int i = 0; i < SIDE; i++) {
            const int edge[CLASSES] = {i * SIDE, i * SIDE + SIDE - 1, i, (SIDE - 1) * SIDE + i};
            picture[edge[labels[n]]] += 0.7f;
        }
    }
}

/* What the f32 network says, from its parameters alone: conv 1-8 of 3x3, ReLU, max-pool, linear. */
typedef struct parameters {
    float conv[8][3][3], conv_bias[8], fc[CLASSES][8 * 25], fc_bias[CLASSES];
} parameters;

static void forward(const parameters *p, const float *x, float *logits)
{
    float pooled[8 * 25] = {0}; /* a ReLU leaves nothing below 0 */
    for (int o = 0; o < 8; o++) {
        for (int i = 0; i < 10 * 10; i++) {
            float sum = p->conv_bias[o];
            for (int k = 0; k < 9; k++)
                sum += p->conv[o][k / 3][k % 3] * x[(i / 10 + k / 3) * SIDE + i % 10 + k % 3];
            float *place = &pooled[o * 25 + i / 20 * 5 + i % 10 / 2];
            *place = sum > *place ? sum : *place;
        }
    }
    for (int c = 0; c < CLASSES; c++) {
        logits[c] = p->fc_bias[c];
        for (int i = 0; i < 8 * 25; i++)
            logits[c] += p->fc[c][i] * pooled[i];
    }
}

static int best(const float *logits)
{
    int at = 0;
    for (int c = 1; c < CLASSES; c++)
        at = logits[c] > logits[at] ? c : at;
    return at;
}

static int failed(const ech_ctx *ctx)
{
    fprintf(stderr, "quantize: %s\n", ech_ctx_error(ctx));
    return 1;
}

int main(void)
{
    static float x[TEST * PIXELS], logits[TEST * CLASSES];
    static int32_t labels[TEST];
    static parameters p;
    ech_ctx *ctx;
    ech_graph *g;
    if (ech_ctx_create(NULL, &ctx) < 0 || ech_graph_create(ctx, &g) < 0)
        return 1;
    ech_value in = ech_input(g, "x", ECH_F32, 4, (int64_t[]){ECH_BATCH, 1, SIDE, SIDE});
    ech_value y = ech_input(g, "labels", ECH_S32, 1, (int64_t[]){ECH_BATCH});
    ech_value h =
        ech_conv2d(g, "conv", in, &(ech_conv){.out_channels = 8, .kernel = 3, .bias = true});
    h = ech_maxpool2d(g, ech_relu(g, h), 2, 2);
    ech_value prediction = ech_linear(g, "fc", ech_flatten(g, h), CLASSES, true);
    ech_value loss = ech_cross_entropy(g, prediction, y);

    ech_train_options options = ech_train_defaults();
    options.batch = BATCH;
    options.optimizer.kind = ECH_OPTIMIZER_ADAM;
    options.tune = false;
    ech_trainer *trainer;
    ech_step step = {0};
    if (ech_trainer_create(ctx, g, loss, &options, &trainer) < 0)
        return failed(ctx);
    srand(1);
    for (int i = 0; i < STEPS; i++) {
        draw(x, labels, BATCH);
        if (ech_trainer_write(trainer, "x", x, BATCH * PIXELS * sizeof *x) < 0 ||
            ech_trainer_write(trainer, "labels", labels, BATCH * sizeof *labels) < 0 ||
            ech_trainer_step(trainer, &step) < 0)
            return failed(ctx);
    }
    printf("trained: loss %.4f\n", step.loss);

    /* int8: scales from samples like those that it was trained on. */
    ech_int8_options how = ech_int8_defaults();
    how.batch = BATCH;
    ech_int8 *net;
    draw(x, labels, 512);
    if (ech_int8_create(trainer, prediction, x, 512, &how, &net) < 0 ||
        ech_trainer_read(trainer, "conv.weight", p.conv, sizeof p.conv) < 0 ||
        ech_trainer_read(trainer, "conv.bias", p.conv_bias, sizeof p.conv_bias) < 0 ||
        ech_trainer_read(trainer, "fc.weight", p.fc, sizeof p.fc) < 0 ||
        ech_trainer_read(trainer, "fc.bias", p.fc_bias, sizeof p.fc_bias) < 0)
        return failed(ctx);
    draw(x, labels, TEST);
    if (ech_int8_run(net, x, TEST, logits) < 0)
        return failed(ctx);
    int right = 0, right_f32 = 0, same = 0;
    for (int n = 0; n < TEST; n++) {
        float f32[CLASSES];
        forward(&p, x + n * PIXELS, f32);
        right += best(logits + n * CLASSES) == labels[n];
        right_f32 += best(f32) == labels[n];
        same += best(logits + n * CLASSES) == best(f32);
    }
    printf("f32 is right on %.1f %%, int8 on %.1f %%; they agree on %.1f %%\n",
           100.0 * right_f32 / TEST, 100.0 * right / TEST, 100.0 * same / TEST);
    if (ech_int8_save(net, "edges.int8.safetensors") < 0 ||
        ech_int8_export(net, "edges.int8.onnx") < 0)
        return failed(ctx);

    /* And back from the file: the same bits. */
    static float again[TEST * CLASSES];
    ech_int8 *loaded;
    if (ech_int8_load(ctx, g, prediction, "edges.int8.safetensors", &how, &loaded) < 0 ||
        ech_int8_run(loaded, x, TEST, again) < 0)
        return failed(ctx);
    const int equal = memcmp(again, logits, sizeof again) == 0;
    printf("the file gives %s\n", equal ? "the same bits" : "other numbers");
    ech_int8_destroy(loaded);
    ech_int8_destroy(net);
    ech_trainer_destroy(trainer);
    ech_graph_destroy(g);
    ech_ctx_destroy(ctx);
    return equal && right > 9 * TEST / 10 && same > 97 * TEST / 100 ? 0 : 1;
}
