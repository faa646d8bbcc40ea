/* echelon quantize: converts a trained network to int8 and shows what each step costs. */
#include "cli/quantize/quantize.h"
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct args {
    ech__quantization_config config;
    int per, tune, turns;
    const char *isa;
    bool json;
} args;

static const ech__option options[] = {
    ECH_ROW(CHOICE, args, config.model.kind, "model",
            "Model of the trained network. It must be an image model.",
            .choices = ECH__MODEL_LIST(ECH_OPTION_WORD), .initial = "lenet", .group = "Network"),
    ECH_ROW(STRING, args, config.init, "init",
            "Trained f32 weights: a safetensors file, or the directory of echelon train --save, "
            "from which the newest checkpoint is read.",
            .arg = "FILE|DIR"),
    ECH_ROW(STRING, args, config.load, "load",
            "A quantized network (int8.safetensors). It is evaluated without calibration.",
            .arg = "FILE.safetensors"),
    ECH_ROW(STRING, args, config.data, "data",
            "Data set. Calibration uses the training set; accuracy is measured on the test set.",
            .choices = "synthetic|cifar10", .initial = "synthetic", .group = "Data"),
    ECH_ROW(STRING, args, config.data_dir, "data-dir",
            "Directory of the CIFAR-10 files; echelon data cifar10 fetches them.", .arg = "DIR"),
    ECH_ROW(INT, args, config.limit, "limit",
            "Number of test images, balanced over classes; 0: all 10,000.", .arg = "N",
            .initial = "0", .min = 0, .max = HUGE_VAL),
    ECH_ROW(INT, args, config.samples, "samples", "Number of training images for calibration.",
            .arg = "N", .initial = "1000", .min = 0, .max = HUGE_VAL),
    ECH_ROW(INT, args, config.seed, "seed", "Random seed for the choice of these images.",
            .arg = "N", .initial = "0", .min = 0, .max = HUGE_VAL),
    ECH_ROW(CHOICE, args, config.scales.weights, "weights",
            "Range of the weights that -127 to 127 cover; values outside are clamped. max: "
            "min-max; 3sigma: three standard deviations; percentile: see --weight-percentile; "
            "mse: MSE-optimal.",
            .choices = ECH_CLIP_LIST(ECH_OPTION_WORD), .initial = "mse", .group = "Scales"),
    ECH_ROW(CHOICE, args, per, "per", "One weight scale per tensor or one per output channel.",
            .choices = "tensor|channel", .initial = "channel"),
    ECH_ROW(REAL, args, config.scales.weight_percentile, "weight-percentile",
            "Percentage of the weights inside the range, with --weights percentile.", .arg = "P",
            .initial = "99.9", .min = 50, .max = 100),
    ECH_ROW(CHOICE, args, config.scales.activations, "activations",
            "Range of the activations, from calibration. max: min-max; percentile: see "
            "--percentile; entropy: entropy calibration (Kullback-Leibler). After a ReLU the range "
            "maps to 0 to 255, elsewhere to -128 to 127.",
            .choices = ECH_OBSERVE_LIST(ECH_OPTION_WORD), .initial = "entropy"),
    ECH_ROW(REAL, args, config.scales.percentile, "percentile",
            "Percentage of the values inside the range, with --activations percentile.", .arg = "P",
            .initial = "99.99", .min = 50, .max = 100),
    ECH_ROW(INT, args, config.batch, "batch-size", "Images per batch.", .arg = "N",
            .initial = "128", .min = 1, .max = 1 << 20, .group = "Running"),
    ECH_ROW(COUNT, args, config.threads, "threads", "Threads of the device; 0: all cores.",
            .arg = "T", .initial = "1", .min = 0, .max = 1024),
    ECH__ROW_ISA(args, isa),
    ECH_ROW(CHOICE, args, tune, "tune",
            "Time the candidate kernels of the f32 network, so that int8 is compared with the "
            "fastest f32 kernels.",
            .choices = "off|on", .initial = "on"),
    ECH_ROW(INT, args, config.sensitivity, "sensitivity",
            "Number of test images for the sensitivity of each layer (only that layer in int8); "
            "0: skip it.",
            .arg = "N", .initial = "1000", .min = 0, .max = HUGE_VAL),
    ECH_ROW(INT, args, config.timed, "timed",
            "Number of extra f32 and int8 batches to time on the same images; their times are in "
            "the record.",
            .arg = "N", .initial = "0", .min = 0, .max = 100000),
    ECH_ROW(CHOICE, args, turns, "turns",
            "As an arm of echelon compare: the network to time. Nothing is evaluated.",
            .choices = "int8|f32", .initial = "int8"),
    ECH_ROW(STRING, args, config.out, "out",
            "Directory for int8.safetensors, int8.onnx, f32.onnx, quantize.json, predictions.csv, "
            "histograms and plots. '' writes nothing.",
            .arg = "DIR", .initial = "quantized", .group = "Output"),
    ECH_ROW(FLAG, args, json, "json", "Print one JSON object."),
};

static const ech__option_example examples[] = {
    {"echelon quantize --model lenet --init saved --data cifar10 --data-dir cifar",
     "quantize a trained LeNet step by step"},
    {"echelon quantize --init w.safetensors --weights max --per tensor --activations max",
     "the simplest scales: min-max, per tensor"},
    {"echelon quantize --model lenet --load quantized/int8.safetensors --data cifar10 --data-dir "
     "cifar",
     "evaluate a quantized network"},
};

/* A line that each step overwrites on a terminal; nothing elsewhere. */
static void progress(void *user, const char *what)
{
    (void)user;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K%s", what);
}

static ech_status report(ech_ctx *ctx, const args *a, const ech__quantization *study)
{
    if (a->json)
        ECH_TRY(ech__cli_json(ctx, ech__quantize_json(study)));
    else
        ech__quantize_show(study);
    return study->config.out ? ech__quantize_record(study) : ECH_OK;
}

static int run(ech_ctx *ctx, const ech__option_result *given)
{
    args *a = given->args;
    ech__quantization_config *c = &a->config;
    ech__quantization study;
    if (!strcmp(c->data, "synthetic"))
        c->data = NULL;
    if (!*c->out)
        c->out = NULL;
    c->scales.per_channel = a->per == 1;
    c->tune = a->tune == 1;
    c->turns_f32 = a->turns == 1;
    c->progress = progress;
    const ech_status status = ech__quantization_run(ctx, c, &study);
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
    if (status < 0)
        return ech__cli_fail(ctx, given->command,
                             status == ECH_E_INVALID ? ECH__EXIT_USAGE : ECH__EXIT_FAILED);
    const ech_status reported = report(ctx, a, &study);
    ech__quantization_fini(&study);
    return reported;
}

const ech__command ech__cli_quantize = {
    .name = "quantize",
    .brief = "quantize a trained network to int8 and show what each step costs",
    .about =
        "Converts a trained network to 8-bit integers step by step. Calibration on training images "
        "finds the scales, from histograms of weights and activations. Weights become s8, "
        "activations u8 after a ReLU and s8 elsewhere, biases s32 in units of input scale times "
        "weight scale. Batch norms are folded into the convolutions before them. The result "
        "computes in integers: products are summed exactly in 32 bits, and one multiplication "
        "rescales a sum to the scale of the next layer.\n\n"
        "The ladder shows for each step the accuracy with its 95 % interval, the agreement with "
        "f32, the size and the time. It also shows fake quantization (the same in float "
        "arithmetic) and two common mistakes: biases added to integer sums without a scale, and "
        "activations scaled to 255 steps but clamped at 127.",
    ECH_OPTION_ROWS(options),
    ECH_OPTION_EXAMPLES(examples),
    ECH__CLI_RUN(args, run),
};
