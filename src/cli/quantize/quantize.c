/* echelon quantize: a trained network to int8, with what each step costs. */
#include "cli/quantize/quantize.h"
#include "base/file/json.h"
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct args {
    int model, weights, per, activations, tune, turns;
    const char *init, *load, *data, *data_dir, *out, *isa;
    int64_t limit, samples, sensitivity, seed, batch, threads, timed;
    double weight_percentile, percentile;
    bool json;
} args;

static const ech__option options[] = {
    {.name = "model",
     ECH_OPTION(CHOICE, args, model),
     .choices = ECH__MODEL_LIST(ECH_OPTION_WORD),
     .initial = "lenet",
     .group = "Network",
     .help = "The model that was trained. It must be one of images."},
    {.name = "init",
     ECH_OPTION(STRING, args, init),
     .arg = "FILE|DIR",
     .help = "Its trained weights in f32: a safetensors file, or the directory of echelon train "
             "--save, whose newest checkpoint is taken."},
    {.name = "load",
     ECH_OPTION(STRING, args, load),
     .arg = "FILE.safetensors",
     .help = "A network that was quantized before (int8.safetensors). It is evaluated as it is; "
             "nothing is calibrated."},
    {.name = "data",
     ECH_OPTION(STRING, args, data),
     .choices = "synthetic|cifar10",
     .initial = "synthetic",
     .group = "Data",
     .help = "Where images come from: calibration takes them from the training set, accuracy is "
             "that on the test set."},
    {.name = "data-dir",
     ECH_OPTION(STRING, args, data_dir),
     .arg = "DIR",
     .help = "CIFAR-10's files; echelon data cifar10 fetches them."},
    {.name = "limit",
     ECH_OPTION(INT, args, limit),
     .arg = "N",
     .initial = "0",
     .min = 0,
     .max = HUGE_VAL,
     .help = "Test images, balanced over classes; 0: all 10,000."},
    {.name = "samples",
     ECH_OPTION(INT, args, samples),
     .arg = "N",
     .initial = "1000",
     .min = 0,
     .max = HUGE_VAL,
     .help = "Training images that calibration looks at."},
    {.name = "seed",
     ECH_OPTION(INT, args, seed),
     .arg = "N",
     .initial = "0",
     .min = 0,
     .max = HUGE_VAL,
     .help = "Of the choice of these images."},
    {.name = "weights",
     ECH_OPTION(CHOICE, args, weights),
     .choices = ECH_CLIP_LIST(ECH_OPTION_WORD),
     .initial = "mse",
     .group = "Scales",
     .help = "The range of a weight that -127 to 127 cover. max: all of it; 3sigma: three "
             "standard deviations; percentile: all but the largest few; mse: that with the least "
             "squared error. What lies beyond is clamped: fewer steps are wasted on outliers."},
    {.name = "per",
     ECH_OPTION(CHOICE, args, per),
     .choices = "tensor|channel",
     .initial = "channel",
     .help = "One scale for a layer's weight, or one for each of its output channels."},
    {.name = "weight-percentile",
     ECH_OPTION(REAL, args, weight_percentile),
     .arg = "P",
     .initial = "99.9",
     .min = 50,
     .max = 100,
     .help = "Share of the weights inside the range, in percent; with --weights percentile."},
    {.name = "activations",
     ECH_OPTION(CHOICE, args, activations),
     .choices = ECH_OBSERVE_LIST(ECH_OPTION_WORD),
     .initial = "entropy",
     .help = "The range of what flows between layers, from calibration. max: all that was seen; "
             "percentile: all but the largest few; entropy: the one whose integers tell least "
             "wrong of the distribution (Kullback-Leibler). Behind a ReLU nothing is negative and "
             "0 to 255 cover it, elsewhere -128 to 127."},
    {.name = "percentile",
     ECH_OPTION(REAL, args, percentile),
     .arg = "P",
     .initial = "99.99",
     .min = 50,
     .max = 100,
     .help = "Share of the values inside the range, in percent; with --activations percentile."},
    {.name = "batch-size",
     ECH_OPTION(INT, args, batch),
     .arg = "N",
     .initial = "128",
     .min = 1,
     .max = 1 << 20,
     .group = "Running",
     .help = "Images that are computed at a time."},
    {.name = "threads",
     ECH_OPTION(INT, args, threads),
     .arg = "T",
     .initial = "1",
     .min = 0,
     .max = 1024,
     .help = "Of the device; 0: every core."},
    {ECH__ROW_ISA(args, isa)},
    {.name = "tune",
     ECH_OPTION(CHOICE, args, tune),
     .choices = "off|on",
     .initial = "on",
     .help = "Time candidate kernels of the f32 network, so that int8 is compared with the "
             "fastest."},
    {.name = "sensitivity",
     ECH_OPTION(INT, args, sensitivity),
     .arg = "N",
     .initial = "1000",
     .min = 0,
     .max = HUGE_VAL,
     .help = "Test images on which each layer alone is tried in int8; 0 leaves it out."},
    {.name = "timed",
     ECH_OPTION(INT, args, timed),
     .arg = "N",
     .initial = "0",
     .min = 0,
     .max = 100000,
     .help = "Batches of f32 and of int8 to time by themselves, one behind the other on the same "
             "images; their times stand in the record."},
    {.name = "turns",
     ECH_OPTION(CHOICE, args, turns),
     .choices = "int8|f32",
     .initial = "int8",
     .help = "As an arm of echelon compare: the network whose batches are timed. Nothing is "
             "evaluated then."},
    {.name = "out",
     ECH_OPTION(STRING, args, out),
     .arg = "DIR",
     .initial = "quantized",
     .group = "Output",
     .help = "Where int8.safetensors, int8.onnx, f32.onnx, quantize.json, predictions.csv, the "
             "histograms and their pictures go. '' writes nothing."},
    {.name = "json", ECH_OPTION(FLAG, args, json), .help = "Print one JSON object."},
};

static const ech__option_example examples[] = {
    {"echelon quantize --model lenet --init saved --data cifar10 --data-dir cifar",
     "the ladder of a trained lenet"},
    {"echelon quantize --init w.safetensors --weights max --per tensor --activations max",
     "the plainest scales there are"},
    {"echelon quantize --model lenet --load quantized/int8.safetensors --data cifar10 --data-dir "
     "cifar",
     "the accuracy of a file that was written before"},
};

const ech__command ech__cli_quantize = {
    .name = "quantize",
    .brief = "take a trained network to int8 and show what each step costs",
    .about =
        "Takes a trained network to 8-bit integers step by step. Histograms of weights and "
        "activations show what there is to represent; calibration on training images finds the "
        "scales; weights become s8, activations u8 behind a ReLU and s8 elsewhere, biases s32 in "
        "units of input times weight. Batch norms are folded into the convolutions before them. "
        "The "
        "result computes in integers: products are summed exactly in 32 bits, and one "
        "multiplication takes a sum to the unit of the next layer.\n\n"
        "The ladder shows accuracy with its 95 % interval, how often the prediction is that of "
        "f32, size and time of each step, beside fake quantization (the same in float arithmetic) "
        "and two mistakes that are often made: biases added to integer sums without a scale, and "
        "activations scaled to 255 steps but clamped at 127.",
    .options = options,
    .count = sizeof options / sizeof *options,
    .examples = examples,
    .example_count = sizeof examples / sizeof *examples,
};

/* A line that each step overwrites on a terminal; nothing elsewhere. */
static void progress(void *user, const char *what)
{
    (void)user;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K%s", what);
}

static ech__quantization_config config_of(const args *a)
{
    return (ech__quantization_config){
        .model = {.kind = (ech__model_kind)a->model},
        .init = a->init,
        .load = a->load,
        .data = strcmp(a->data, "synthetic") != 0 ? a->data : NULL,
        .data_dir = a->data_dir,
        .limit = a->limit,
        .samples = a->samples,
        .sensitivity = a->sensitivity,
        .seed = (uint64_t)a->seed,
        .scales = {.weights = (ech_clip)a->weights,
                   .per_channel = a->per == 1,
                   .weight_percentile = a->weight_percentile,
                   .activations = (ech_observe)a->activations,
                   .percentile = a->percentile},
        .batch = a->batch,
        .threads = (int)a->threads,
        .tune = a->tune == 1,
        .timed = a->timed,
        .turns_f32 = a->turns == 1,
        .out = *a->out ? a->out : NULL,
        .progress = progress,
    };
}

static ech_status report(ech_ctx *ctx, const args *a, const ech__quantization *study)
{
    if (a->json) {
        ech_json *json = ech__quantize_json(study);
        const ech_status status = ech__json_print(ctx, json, ECH_JSON_INDENT, stdout);
        ech__json_destroy(json);
        ECH_TRY(status);
    } else {
        ech__quantize_show(study);
    }
    return study->config.out ? ech__quantize_record(study) : ECH_OK;
}

int ech__command_quantize(ech_ctx *ctx, const ech__command *command, char **argv)
{
    args a = {0};
    ech__option_result result;
    int code;
    if (!ech__cli_parse(ctx, command, argv, &a, &result, &code))
        return code;
    const ech__quantization_config config = config_of(&a);
    ech__quantization study;
    const ech_status status = ech__quantization_run(ctx, &config, &study);
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
    if (status < 0)
        return ech__cli_fail(ctx, command,
                             status == ECH_E_INVALID ? ECH__EXIT_USAGE : ECH__EXIT_FAILED);
    code = report(ctx, &a, &study) < 0 ? ech__cli_fail(ctx, command, ECH__EXIT_FAILED)
                                       : ECH__EXIT_GOOD;
    ech__quantization_fini(&study);
    return code;
}
