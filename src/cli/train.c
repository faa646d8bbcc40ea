/* echelon train and echelon bench step: one run each, through train/run.h. */
#include "cli/cli.h"
#include "cli/show.h"
#include "train/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct args {
    int model, optimizer, schedule, tune, recompute;
    int64_t dim, depth, batch, global_batch, steps, warmup, devices, threads, seed, interval;
    int64_t device_memory;
    double lr, momentum, weight_decay, beta1, beta2, epsilon, gamma, delay_ms;
    bool nesterov, fit, trace, json, no_shuffle, no_augment;
    int64_t epochs, limit, save_every;
    const char *data_dir, *save, *resume;
    const char *data, *init, *save_params, *run_dir, *tuning_file;
} args;

#define CHOICE(id, text) "|" text

/* Rows that both commands have. */
#define MODEL_ROWS                                                                                 \
    {.name = "model",                                                                              \
     ECH_OPTION(CHOICE, args, model),                                                              \
     .choices = ECH__MODEL_LIST(CHOICE),                                                           \
     .initial = "linear",                                                                          \
     .group = "Model",                                                                             \
     .help = "linear: a stack of Linear + ReLU with the mean-squared error. lenet, resnet18 (for " \
             "32x32 images) and resnet8 (the same blocks, narrower): cross-entropy on images."},   \
        {.name = "dim",                                                                            \
         ECH_OPTION(INT, args, dim),                                                               \
         .arg = "D",                                                                               \
         .initial = "1024",                                                                        \
         .min = 1,                                                                                 \
         .max = 1 << 20,                                                                           \
         .help = "Width of every layer of the linear stack."},                                     \
        {.name = "depth",                                                                          \
         ECH_OPTION(INT, args, depth),                                                             \
         .arg = "L",                                                                               \
         .initial = "2",                                                                           \
         .min = 1,                                                                                 \
         .max = 1000,                                                                              \
         .help = "Layers of the linear stack."},                                                   \
        {.name = "batch-size",                                                                     \
         ECH_OPTION(INT, args, batch),                                                             \
         .arg = "N",                                                                               \
         .min = 1,                                                                                 \
         .max = 1 << 30,                                                                           \
         .group = "Batch and steps",                                                               \
         .help = "Samples per device and step. Default: the rows of the data file, or 64."},       \
        {.name = "steps",                                                                          \
         ECH_OPTION(INT, args, steps),                                                             \
         .arg = "S",                                                                               \
         .initial = "35",                                                                          \
         .min = 1,                                                                                 \
         .max = 1e8,                                                                               \
         .help = "All steps, warm-up included."},                                                  \
    {                                                                                              \
        .name = "warmup", ECH_OPTION(INT, args, warmup), .arg = "W", .min = 0, .max = 1e8,         \
        .help = "First steps that train but are left out of the summary. Default: 5, or fewer "    \
                "where there are not more than 5 steps."                                           \
    }

#define DEVICE_ROWS                                                                                \
    {.name = "devices",                                                                            \
     ECH_OPTION(INT, args, devices),                                                               \
     .arg = "N",                                                                                   \
     .initial = "1",                                                                               \
     .min = 1,                                                                                     \
     .max = 1,                                                                                     \
     .group = "Device",                                                                            \
     .help = "Devices to train on."},                                                              \
        {.name = "threads",                                                                        \
         ECH_OPTION(INT, args, threads),                                                           \
         .arg = "T",                                                                               \
         .min = 1,                                                                                 \
         .max = 1024,                                                                              \
         .help = "Threads of a device. Default: the cores divided by the devices."},               \
        {.name = "device-memory",                                                                  \
         ECH_OPTION(BYTES, args, device_memory),                                                   \
         .arg = "BYTES",                                                                           \
         .min = 1,                                                                                 \
         .max = HUGE_VAL,                                                                          \
         .help = "Most memory a device may take; what does not fit is refused before anything is " \
                 "allocated. Default: the memory of the machine."},                                \
        {.name = "tune",                                                                           \
         ECH_OPTION(CHOICE, args, tune),                                                           \
         .choices = "on|off",                                                                      \
         .initial = "on",                                                                          \
         .help = "Time the candidate kernels once and keep the fastest, or take a fixed choice."}, \
        {.name = "recompute",                                                                      \
         ECH_OPTION(CHOICE, args, recompute),                                                      \
         .choices = "bn|off",                                                                      \
         .initial = "bn",                                                                          \
         .help = "Compute the outputs of batch norms again in the backward pass instead of "       \
                 "keeping them: less memory, the same bits, a little more time."},                 \
        {.name = "tuning-file",                                                                    \
         ECH_OPTION(STRING, args, tuning_file),                                                    \
         .arg = "FILE",                                                                            \
         .help = "Where kernel timings are kept. Default: echelon/tuning.json in the cache "       \
                 "directory."},                                                                    \
    {                                                                                              \
        .name = "seed", ECH_OPTION(INT, args, seed), .arg = "N", .initial = "0", .min = 0,         \
        .max = 9007199254740992.0, .help = "Of the initial parameters and of synthetic data."      \
    }

#define RECORD_ROWS                                                                                \
    {.name = "run-dir",                                                                            \
     ECH_OPTION(STRING, args, run_dir),                                                            \
     .arg = "DIR",                                                                                 \
     .group = "Output",                                                                            \
     .help = "Write run.json and steps.jsonl there."},                                             \
        {.name = "trace",                                                                          \
         ECH_OPTION(FLAG, args, trace),                                                            \
         .help = "Write trace.json too: every kernel of every step, for Perfetto."},               \
    {                                                                                              \
        .name = "json", ECH_OPTION(FLAG, args, json),                                              \
        .help = "Print what run.json holds instead of tables."                                     \
    }

static const ech__option train_options[] = {
    MODEL_ROWS,
    {.name = "global-batch",
     ECH_OPTION(INT, args, global_batch),
     .arg = "N",
     .min = 1,
     .max = 1 << 30,
     .help = "Samples per optimizer step over all devices; give this or --batch-size."},
    {.name = "epochs",
     ECH_OPTION(INT, args, epochs),
     .arg = "E",
     .min = 1,
     .max = 100000,
     .help = "Passes over the training images, each followed by an evaluation on the test images; "
             "instead of --steps."},
    {.name = "data",
     ECH_OPTION(STRING, args, data),
     .arg = "synthetic|cifar10|FILE",
     .initial = "synthetic",
     .choices = "synthetic|cifar10",
     .group = "Data",
     .help =
         "Made-up vectors or images; CIFAR-10; or, for the linear stack, a safetensors file whose "
         "x and y are the one batch."},
    {.name = "data-dir",
     ECH_OPTION(STRING, args, data_dir),
     .arg = "DIR",
     .help = "Where CIFAR-10 is; echelon data cifar10 --dir DIR puts it there."},
    {.name = "limit",
     ECH_OPTION(INT, args, limit),
     .arg = "N",
     .min = 1,
     .max = 1 << 30,
     .help = "Use only N training images, balanced over the classes."},
    {.name = "no-shuffle",
     ECH_OPTION(FLAG, args, no_shuffle),
     .help = "Take the images in the order of the files."},
    {.name = "no-augment",
     ECH_OPTION(FLAG, args, no_augment),
     .help = "No random crops and flips."},
    {.name = "init",
     ECH_OPTION(STRING, args, init),
     .arg = "FILE",
     .help = "Start from these parameters (safetensors) instead of the seed."},
    {.name = "optimizer",
     ECH_OPTION(CHOICE, args, optimizer),
     .choices = ECH_OPTIMIZER_LIST(CHOICE),
     .initial = "sgd",
     .group = "Optimizer",
     .help = "Update rule, as PyTorch's."},
    {.name = "lr",
     ECH_OPTION(REAL, args, lr),
     .arg = "RATE",
     .initial = "0.01",
     .min = 0,
     .max = 1e6,
     .help = "Learning rate."},
    {.name = "momentum",
     ECH_OPTION(REAL, args, momentum),
     .arg = "M",
     .initial = "0",
     .min = 0,
     .max = 0.999999,
     .help = "Of sgd."},
    {.name = "nesterov", ECH_OPTION(FLAG, args, nesterov), .help = "Nesterov momentum, with sgd."},
    {.name = "weight-decay",
     ECH_OPTION(REAL, args, weight_decay),
     .arg = "W",
     .initial = "0",
     .min = 0,
     .max = 1e6,
     .help = "Decay of the parameters; decoupled with adamw."},
    {.name = "beta1",
     ECH_OPTION(REAL, args, beta1),
     .arg = "B",
     .initial = "0.9",
     .min = 0,
     .max = 0.999999,
     .help = "Of adam and adamw."},
    {.name = "beta2",
     ECH_OPTION(REAL, args, beta2),
     .arg = "B",
     .initial = "0.999",
     .min = 0,
     .max = 0.99999999,
     .help = "Of adam and adamw."},
    {.name = "epsilon",
     ECH_OPTION(REAL, args, epsilon),
     .arg = "E",
     .initial = "1e-8",
     .min = 0,
     .max = 1,
     .help = "Of adam and adamw."},
    {.name = "lr-schedule",
     ECH_OPTION(CHOICE, args, schedule),
     .choices = ECH__SCHEDULE_LIST(CHOICE),
     .initial = "constant",
     .help = "How the learning rate changes with the steps."},
    {.name = "lr-step",
     ECH_OPTION(INT, args, interval),
     .arg = "N",
     .min = 1,
     .max = 1e8,
     .help = "Steps between two drops of the step schedule. Default: a third of the steps."},
    {.name = "lr-gamma",
     ECH_OPTION(REAL, args, gamma),
     .arg = "G",
     .initial = "0.1",
     .min = 0,
     .max = 1,
     .help = "Factor of each drop of the step schedule."},
    {.name = "delay-ms",
     ECH_OPTION(REAL, args, delay_ms),
     .arg = "MS",
     .initial = "0",
     .min = 0,
     .max = 60000,
     .help = "Idle time before every backward pass, to see what a serial part costs."},
    DEVICE_ROWS,
    {.name = "fit",
     ECH_OPTION(FLAG, args, fit),
     .help = "Print the memory that the run would need, by kind, and run nothing."},
    {.name = "save",
     ECH_OPTION(STRING, args, save),
     .arg = "DIR",
     .group = "Checkpoints",
     .help =
         "Write a checkpoint there at the end, and with --epochs at the end of each; the last two "
         "are kept."},
    {.name = "save-every",
     ECH_OPTION(INT, args, save_every),
     .arg = "N",
     .min = 1,
     .max = 1e8,
     .help = "And after every N steps."},
    {.name = "resume",
     ECH_OPTION(STRING, args, resume),
     .arg = "DIR",
     .help =
         "Go on from the newest checkpoint in DIR, or from the one that DIR is, to the same bits "
         "as "
         "without a break. The other options must be those it was made with; --steps or --epochs "
         "may be more. --init is not read then."},
    RECORD_ROWS,
    {.name = "save-params",
     ECH_OPTION(STRING, args, save_params),
     .arg = "FILE",
     .help = "Write the final parameters as safetensors."},
};

static const ech__option_example train_examples[] = {
    {"echelon train --dim 1024 --depth 2 --batch-size 64 --threads 1",
     "Time 30 steps of a small linear stack after 5 warm-up steps."},
    {"echelon train --dim 512 --depth 3 --optimizer adam --lr 0.001 --run-dir runs/a --trace",
     "Keep the records and a trace to open in Perfetto."},
    {"echelon train --model lenet --epochs 10 --save ckpt --save-every 500",
     "Keep checkpoints; the same line with --resume ckpt goes on from the last."},
    {"echelon train --dim 8192 --depth 8 --device-memory 4GB --fit",
     "Ask whether it fits before running it."},
};

const ech__command ech__cli_train = {
    .name = "train",
    .brief = "train a model, or time its training steps",
    .about =
        "Plans the training, runs the steps and sums up the timed ones. A step's time runs from "
        "before the forward pass to after the optimizer step. The same seed and the same number "
        "of threads give the same bits, for one set of kernel timings.",
    .options = train_options,
    .count = sizeof train_options / sizeof *train_options,
    .examples = train_examples,
    .example_count = sizeof train_examples / sizeof *train_examples,
};

static const ech__option bench_options[] = {MODEL_ROWS, DEVICE_ROWS, RECORD_ROWS};

static const ech__option_example bench_examples[] = {
    {"echelon bench step --dim 8192 --depth 8 --batch-size 64 --threads 1 --steps 12 --warmup 2",
     "Which kernels a step spends its time in."},
};

const ech__command ech__cli_bench_step = {
    .name = "bench step",
    .brief = "time training steps and every kernel in them",
    .about = "Plain sgd on synthetic data: the same work as a PyTorch step of zero_grad, forward, "
             "backward and optimizer.step, to be run beside it.",
    .options = bench_options,
    .count = sizeof bench_options / sizeof *bench_options,
    .examples = bench_examples,
    .example_count = sizeof bench_examples / sizeof *bench_examples,
};

/* ---- arguments -> configuration ---- */

static ech_status check_combinations(ech_ctx *ctx, const ech__command *command,
                                     const ech__option_result *r, const args *a)
{
    if (a->batch && a->global_batch)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--batch-size and --global-batch are both given; give one of them");
    if (a->trace && !a->run_dir)
        return ech__fail(ctx, ECH_E_INVALID, "--trace needs --run-dir: the trace is written there");
    if (a->epochs && ech__option_given(command, r, "steps"))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--steps and --epochs are both given; give one of them");
    if (a->data_dir && strcmp(a->data, "cifar10"))
        return ech__fail(ctx, ECH_E_INVALID, "--data-dir needs --data cifar10");
    if (!a->epochs && a->warmup >= a->steps)
        return ech__fail(
            ctx, ECH_E_INVALID,
            "--warmup %lld with --steps %lld: at least one step must be left to be timed",
            (long long)a->warmup, (long long)a->steps);
    if (strcmp(command->name, "train"))
        return ECH_OK;
    if (a->nesterov && (a->optimizer != ECH_SGD || a->momentum == 0))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--nesterov needs --optimizer sgd and --momentum above 0");
    if (a->optimizer != ECH_SGD && a->momentum != 0)
        return ech__fail(ctx, ECH_E_INVALID, "--momentum is of sgd; adam and adamw have --beta1");
    if (a->save_every && !a->save)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--save-every needs --save: where to write checkpoints");
    if (a->fit && (a->save || a->resume))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--fit runs nothing; --save and --resume have nothing to do");
    if (a->fit && (a->json || a->run_dir || a->save_params))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--fit runs nothing; --json, --run-dir and --save-params have nothing to "
                         "write");
    if (a->interval && a->schedule != ECH__SCHEDULE_STEP)
        return ech__fail(ctx, ECH_E_INVALID, "--lr-step needs --lr-schedule step");
    if (ech__option_given(command, r, "lr-gamma") && a->schedule != ECH__SCHEDULE_STEP)
        return ech__fail(ctx, ECH_E_INVALID, "--lr-gamma needs --lr-schedule step");
    return ECH_OK;
}

static ech__run_config config_of(const args *a)
{
    ech__run_config c = ech__run_defaults();
    c.model.kind = (ech__model_kind)a->model;
    c.model.dim = a->dim;
    c.model.depth = a->depth;
    c.data_dir = a->data_dir;
    c.limit = a->limit;
    c.shuffle = !a->no_shuffle;
    c.augment = !a->no_augment;
    c.epochs = a->epochs;
    c.data = a->data && strcmp(a->data, "synthetic") ? a->data : NULL;
    c.steps = a->steps;
    c.warmup = a->warmup;
    c.train.batch = a->batch ? a->batch : a->global_batch;
    c.train.threads = (int)a->threads;
    c.train.device_memory = a->device_memory;
    c.train.seed = (uint64_t)a->seed;
    c.train.init = a->init;
    c.train.tune = a->tune == 0;
    c.train.recompute = a->recompute == 0;
    c.train.tuning_file = a->tuning_file;
    c.run_dir = a->run_dir;
    c.trace = a->trace;
    c.command = ech__cli_command_line();
    c.save_params = a->save_params;
    c.save = a->save;
    c.save_every = a->save_every;
    c.resume = a->resume;
    c.train.delay_ms = a->delay_ms;
    c.train.optimizer = (ech_optimizer)a->optimizer;
    c.train.lr = a->lr;
    c.train.momentum = a->momentum;
    c.train.nesterov = a->nesterov;
    c.train.weight_decay = a->weight_decay;
    c.train.beta1 = a->beta1;
    c.train.beta2 = a->beta2;
    c.train.epsilon = a->epsilon;
    c.schedule.kind = (ech__schedule_kind)a->schedule;
    c.schedule.interval = a->interval;
    c.schedule.gamma = a->gamma;
    return c;
}

/* What bench step does not ask about. */
static args initial_args(void)
{
    const ech_train_options o = ech_train_defaults();
    return (args){
        .lr = o.lr, .beta1 = o.beta1, .beta2 = o.beta2, .epsilon = o.epsilon, .gamma = 0.1};
}

static bool parse(ech_ctx *ctx, const ech__command *command, char **argv, args *a, int *code)
{
    ech__option_result result;
    *a = initial_args();
    if (!ech__cli_parse(ctx, command, argv, a, &result, code))
        return false;
    if (!ech__option_given(command, &result, "warmup"))
        a->warmup = a->steps > 5 ? 5 : a->steps - 1;
    if (check_combinations(ctx, command, &result, a) < 0) {
        *code = ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
        return false;
    }
    return true;
}

/* ---- the commands ---- */

static int fit(ech_ctx *ctx, const ech__command *command, const ech__run_config *config)
{
    ech_trainer *trainer;
    if (ech__run_fit(ctx, config, &trainer) < 0)
        return ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
    ech__show_memory(trainer->plan);
    ech_trainer_destroy(trainer);
    return ECH__EXIT_GOOD;
}

typedef void (*show_fn)(const ech__run *run);

static int run_it(ech_ctx *ctx, const ech__command *command, const args *a, show_fn show)
{
    const ech__run_config config = config_of(a);
    ech__run *run;
    if (ech__run_create(ctx, &config, &run) < 0)
        return ech__cli_fail(ctx, command, ECH__EXIT_FAILED);
    ech__progress progress = {0};
    if (!a->json)
        ech__show_head(run);
    ech_status status =
        ech__run_steps(run, &(ech__run_events){.on_step = ech__show_progress,
                                               .on_epoch = a->json ? NULL : ech__show_epoch,
                                               .user = &progress});
    ech__show_progress_end(&progress);
    if (status == ECH_OK && a->json) {
        ech_json *json = ech__run_json(run, "done");
        status = ech__json_print(ctx, json, ECH_JSON_INDENT, stdout);
        ech__json_destroy(json);
    } else if (status == ECH_OK) {
        show(run);
    }
    const int code = status < 0 ? ech__cli_fail(ctx, command, ECH__EXIT_FAILED) : ECH__EXIT_GOOD;
    ech__run_destroy(run);
    return code;
}

int ech__run_train(ech_ctx *ctx, const ech__command *command, char **argv)
{
    args a;
    int code;
    if (!parse(ctx, command, argv, &a, &code))
        return code;
    if (a.fit) {
        const ech__run_config config = config_of(&a);
        return fit(ctx, command, &config);
    }
    return run_it(ctx, command, &a, ech__show_run);
}

int ech__run_bench_step(ech_ctx *ctx, const ech__command *command, char **argv)
{
    args a;
    int code;
    if (!parse(ctx, command, argv, &a, &code))
        return code;
    return run_it(ctx, command, &a, ech__show_kernels);
}
