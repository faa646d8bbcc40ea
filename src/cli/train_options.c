#include "cli/precision.h"
#include "device/device.h"
#include "parallel/pipe.h"
#include "train/costs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef ech__train_args args;

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
         .help = "Samples per device and step; of layers on several devices, per group of them. "  \
                 "Default: the rows of the data file, or 64."},                                    \
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
     ECH_OPTION(STRING, args, devices),                                                            \
     .arg = "N|all",                                                                               \
     .choices = "all",                                                                             \
     .group = "Devices",                                                                           \
     .help = "Devices to train on: that many ranks are started on this machine, each on cores of " \
             "its own; all: one for each core. Under mpirun or srun the ranks are theirs. "        \
             "Default: 1."},                                                                       \
        {.name = "parallel",                                                                       \
         ECH_OPTION(CHOICE, args, parallel),                                                       \
         .choices = ECH__PARALLEL_LIST(CHOICE),                                                    \
         .initial = "ddp",                                                                         \
         .help = "ddp: a process for each device, gradients added up over all. dp: one process, "  \
                 "whose first device shares out inputs and parameters, takes in outputs and "      \
                 "gradients, and updates. mp: one process, layers spread over the devices, of "    \
                 "which one works at a time. pipeline: the same with micro-batches, so that all "  \
                 "work."},                                                                         \
        {.name = "mp",                                                                             \
         ECH_OPTION(INT, args, mp),                                                                \
         .arg = "N",                                                                               \
         .min = 1,                                                                                 \
         .max = ECH__MAX_STAGES,                                                                   \
         .help = "Devices that the layers are spread over; there are --devices / N such groups, "  \
                 "each with samples of its own. Default: 1, or with mp and pipeline all."},        \
        {.name = "placement",                                                                      \
         ECH_OPTION(STRING, args, placement),                                                      \
         .arg = "even|half|balanced|LIST",                                                         \
         .choices = "even|half|balanced|balanced-memory",                                          \
         .help =                                                                                   \
             "Which layer is on which device: layer i of L on device i*D/L; the first half on "    \
             "device 0; so that the slowest device has least to do (or the fullest least to "      \
             "hold: balanced-memory); or a device for each layer, such as 0,0,1. Default: "        \
             "even."},                                                                             \
        {.name = "micro-batches",                                                                  \
         ECH_OPTION(INT, args, micro_batches),                                                     \
         .arg = "M",                                                                               \
         .min = 1,                                                                                 \
         .max = ECH__PIPE_MOST_MICROS,                                                             \
         .help = "Of a pipeline: the batch is cut into M. Default: as many as divide it, up to "   \
                 "four for each device."},                                                         \
        {.name = "pipeline-schedule",                                                              \
         ECH_OPTION(CHOICE, args, pipeline),                                                       \
         .choices = ECH_PIPELINE_LIST(CHOICE),                                                     \
         .initial = "1f1b",                                                                        \
         .help = "gpipe: all forward passes, then all backward ones. 1f1b: in turns, which holds " \
                 "the activations of fewer micro-batches."},                                       \
        {.name = "backend",                                                                        \
         ECH_OPTION(CHOICE, args, backend),                                                        \
         .choices = ECH__BACKEND_LIST(CHOICE),                                                     \
         .initial = "auto",                                                                        \
         .help =                                                                                   \
             "How ranks exchange: shared memory, MPI, or by default shared memory inside of a "    \
             "machine and MPI between machines. With --parallel mp or pipeline, shm or mpi puts "  \
             "each device into a rank of its own, and so does mpirun."},                           \
        {.name = "bucket-mb",                                                                      \
         ECH_OPTION(REAL, args, bucket_mb),                                                        \
         .arg = "MB",                                                                              \
         .initial = "25",                                                                          \
         .min = 1e-6,                                                                              \
         .max = 1e6,                                                                               \
         .help = "Gradients are exchanged in buckets of about this size (MiB), each as soon as "   \
                 "the backward pass has completed it."},                                           \
        {.name = "shared-update",                                                                  \
         ECH_OPTION(CHOICE, args, separate_update),                                                \
         .choices = "on|off",                                                                      \
         .initial = "on",                                                                          \
         .help = "on: the rank that has added up a stretch of gradients updates the parameters "   \
                 "for all ranks of the machine. off: every rank updates for itself. The bits are " \
                 "the same."},                                                                     \
        {.name = "accum",                                                                          \
         ECH_OPTION(INT, args, accum),                                                             \
         .arg = "N",                                                                               \
         .initial = "1",                                                                           \
         .min = 1,                                                                                 \
         .max = 1e6,                                                                               \
         .help = "Micro-steps whose gradients are added up before they are exchanged and used."},  \
        {.name = "clock",                                                                          \
         ECH_OPTION(CHOICE, args, clock),                                                          \
         .choices = ECH__CLOCK_LIST(CHOICE),                                                       \
         .initial = "auto",                                                                        \
         .help = "virtual: compute everything, but count the time that each device's thread had "  \
                 "a core, and the exchange at its price: what the step would take if every "       \
                 "device had a core of its own. auto: virtual where devices outnumber cores."},    \
        {.name = "link",                                                                           \
         ECH_OPTION(STRING, args, link),                                                           \
         .arg = "BANDWIDTH,LATENCY",                                                               \
         .help = "Of the virtual clock: the links between devices, such as 12GB/s,5us. Default: "  \
                 "the shared memory of this machine, as measured."},                               \
        {.name = "cluster",                                                                        \
         ECH_OPTION(STRING, args, cluster),                                                        \
         .arg = "FILE",                                                                            \
         .help = "Of the virtual clock: nodes, devices per node and their links, as JSON."},       \
        {.name = "algorithm",                                                                      \
         ECH_OPTION(CHOICE, args, algorithm),                                                      \
         .choices = ECH__ALGORITHM_LIST(CHOICE),                                                   \
         .initial = "best",                                                                        \
         .help = "Of the virtual clock: how an all-reduce is done over given links."},             \
        {.name = "straggle",                                                                       \
         ECH_OPTION(STRING, args, straggle),                                                       \
         .arg = "RANK:MS",                                                                         \
         .help =                                                                                   \
             "One rank idles so long before each backward pass, to see what imbalance costs."},    \
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

#define PRECISION_ROWS                                                                             \
    {.name = "amp",                                                                                \
     ECH_OPTION(CHOICE, args, amp),                                                                \
     .choices = ECH_AMP_LIST(CHOICE),                                                              \
     .initial = "off",                                                                             \
     .group = "Precision",                                                                         \
     .help = "Mixed precision: linear layers, convolutions and what flows between them in this "   \
             "type; parameters, gradients, statistics, losses and the optimizer in f32."},         \
        {.name = "loss-scale",                                                                     \
         ECH_OPTION(STRING, args, loss_scale_text),                                                \
         .arg = "X|off",                                                                           \
         .choices = "off",                                                                         \
         .help = "Of the loss in the first step: it is halved, and the step skipped, when a "      \
                 "gradient is not finite, and doubled after 2000 good steps in a row. Default: "   \
                 "65536 with --amp fp16, else off."},                                              \
        {.name = "clip-norm",                                                                      \
         ECH_OPTION(REAL, args, clip_norm),                                                        \
         .arg = "X",                                                                               \
         .initial = "0",                                                                           \
         .min = 0,                                                                                 \
         .max = 1e30,                                                                              \
         .help =                                                                                   \
             "Shorten gradients, all together, to this norm where they are longer. 0: never."},    \
    {                                                                                              \
        .name = "grad-dtype", ECH_OPTION(CHOICE, args, grad_dtype), .choices = "f32|bf16",         \
        .initial = "f32",                                                                          \
        .help = "Type of gradients on their way between devices; bf16 halves the bytes."           \
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
     .help = "How the learning rate changes with the steps: not at all, in drops, or down to 0 at "
             "the last step on half a cosine or on a line."},
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
    {.name = "lr-scale-base",
     ECH_OPTION(INT, args, lr_scale_base),
     .arg = "B",
     .min = 1,
     .max = 1 << 30,
     .help = "The linear scaling rule: --lr is of steps of B samples, and a step of N samples over "
             "all devices gets N/B times as much."},
    {.name = "lr-warmup-epochs",
     ECH_OPTION(REAL, args, lr_warmup_epochs),
     .arg = "E",
     .initial = "0",
     .min = 0,
     .max = 100000,
     .help = "Raise the learning rate on a line, step by step, over the first E epochs, which may "
             "be a fraction: from --lr where --lr-scale-base makes it larger, else from 0. The "
             "schedule begins after them."},
    {.name = "lr-warmup-from",
     ECH_OPTION(REAL, args, lr_warmup_from),
     .arg = "RATE",
     .min = 0,
     .max = 1e6,
     .help = "Start that line here instead."},
    {.name = "delay-ms",
     ECH_OPTION(REAL, args, delay_ms),
     .arg = "MS",
     .initial = "0",
     .min = 0,
     .max = 60000,
     .help = "Idle time before every backward pass, to see what a serial part costs."},
    PRECISION_ROWS,
    DEVICE_ROWS,
    {.name = "undivided",
     ECH_OPTION(FLAG, args, undivided),
     .help = "Add up the losses of the micro-steps of --accum without dividing them by their "
             "number, to see what the division is for: the gradient is that many times as long."},
    {.name = "sync-bn",
     ECH_OPTION(FLAG, args, sync_bn),
     .help = "Batch norms take their statistics over the samples of all devices."},
    {.name = "no-broadcast-buffers",
     ECH_OPTION(FLAG, args, no_broadcast),
     .help = "Let every rank keep running statistics of its own instead of rank 0's."},
    {.name = "reproducible",
     ECH_OPTION(FLAG, args, reproducible),
     .help = "Compute every step in a fixed number of slots and add their gradients up in a fixed "
             "tree: 1, 2, 4... devices, any --accum and any --bucket-mb give the same bits at the "
             "same --global-batch. Implies --threads 1 and --tune off; the samples that do not "
             "fill a step at the end of an epoch are left out."},
    {.name = "slots",
     ECH_OPTION(INT, args, slots),
     .arg = "N",
     .initial = "8",
     .min = 1,
     .max = 64,
     .help = "Of --reproducible; a power of two."},
    {.name = "max-restarts",
     ECH_OPTION(INT, args, max_restarts),
     .arg = "R",
     .initial = "0",
     .min = 0,
     .max = 1e6,
     .help =
         "When a rank fails, start all of them again, at most so often; they go on from the last "
         "checkpoint of --save."},
    {.name = "fit",
     ECH_OPTION(FLAG, args, fit),
     .help = "Print the memory that the run would need on a device, by kind, and the largest batch "
             "that fits --device-memory, which may be more than this machine has. Runs nothing."},
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
    {.name = "against",
     ECH_OPTION(STRING, args, against),
     .arg = "DIR",
     .help = "The run directory of an f32 run of the same training: how far the losses are from "
             "its losses is recorded."},
    {.name = "params-against",
     ECH_OPTION(STRING, args, params_against),
     .arg = "FILE",
     .help = "Parameters as --save-params writes them: how far the final ones are from these is "
             "recorded."},
};

static const ech__option_example train_examples[] = {
    {"echelon train --dim 1024 --depth 2 --batch-size 64 --threads 1",
     "Time 30 steps of a small linear stack after 5 warm-up steps."},
    {"echelon train --dim 512 --depth 3 --optimizer adam --lr 0.001 --run-dir runs/a --trace",
     "Keep the records and a trace to open in Perfetto."},
    {"echelon train --model lenet --epochs 10 --save ckpt --save-every 500",
     "Keep checkpoints; the same line with --resume ckpt goes on from the last."},
    {"echelon train --model resnet18 --devices 2 --batch-size 32 --run-dir runs/b --trace",
     "Two ranks of 32 samples each; the trace shows the exchange of gradients."},
    {"echelon train --dim 2048 --depth 20 --parallel pipeline --devices 2 --batch-size 1024 "
     "--micro-batches 8",
     "Layers on two devices, kept busy by eight micro-batches; mp instead of pipeline shows one at "
     "work at a time."},
    {"mpirun -np 4 --host a:2,b:2 echelon train --model resnet18 --batch-size 32",
     "The same on two machines."},
    {"echelon train --dim 8192 --depth 8 --device-memory 4GB --fit",
     "Ask whether it fits before running it."},
    {"echelon train --model resnet18 --data cifar10 --data-dir cifar --devices 2 --batch-size 128 "
     "--epochs 5 --lr 0.1 --momentum 0.9 --lr-scale-base 128 --lr-warmup-epochs 0.5 --lr-schedule "
     "cosine",
     "A large batch with the learning rate that goes with it."},
};

const ech__command ech__cli_train = {
    .name = "train",
    .brief = "train a model, or time its training steps",
    .about =
        "Plans the training, runs the steps and sums up the timed ones. A step's time runs from "
        "before the forward pass to after the optimizer step. The same seed, number of devices and "
        "number of threads give the same bits, for one set of kernel timings.",
    .options = train_options,
    .count = sizeof train_options / sizeof *train_options,
    .examples = train_examples,
    .example_count = sizeof train_examples / sizeof *train_examples,
};

static const ech__option bench_options[] = {MODEL_ROWS, PRECISION_ROWS, DEVICE_ROWS, RECORD_ROWS};

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

/* ---- what follows from them ---- */

static ech_status find_devices(ech_ctx *ctx, args *a)
{
    char *end;
    if (!a->devices)
        return ECH_OK;
    if (!strcmp(a->devices, "all")) {
        a->device_count = ech__device_cores();
        return ECH_OK;
    }
    const long count = strtol(a->devices, &end, 10);
    if (end == a->devices || *end)
        return ech__fail(ctx, ECH_E_INVALID, "--devices '%s': is neither a whole number nor all",
                         a->devices);
    if (count < 1 || count > 256)
        return ech__fail(ctx, ECH_E_INVALID, "--devices %s: must be from 1 to 256", a->devices);
    a->device_count = (int)count;
    return ECH_OK;
}

/* About as much as is exchanged at a time, which says how fast the memory is: all gradients, or a full bucket. 0: unknown. */
static int64_t bucket_bytes(ech_ctx *ctx, const args *a)
{
    const ech__model_options options = {(ech__model_kind)a->model, a->dim, a->depth};
    ech_graph *graph;
    ech__model model;
    int64_t all = 0, largest = 0, elements;
    if (ech_graph_create(ctx, &graph) < 0)
        return 0;
    if (ech__model_build(graph, &options, &model) == ECH_OK) {
        for (size_t v = 0; v < graph->nvalues; v++) {
            if (graph->values[v].kind != ECH__VALUE_PARAM ||
                !ech__shape_elems(&graph->values[v].type.shape, &elements))
                continue;
            all += elements * (int64_t)sizeof(float);
            largest = elements * (int64_t)sizeof(float) > largest
                          ? elements * (int64_t)sizeof(float)
                          : largest;
        }
    }
    ech_graph_destroy(graph);
    const double bucket = a->bucket_mb * (1 << 20);
    const double one = bucket > (double)largest ? bucket : (double)largest;
    return one < (double)all ? (int64_t)one : all;
}

/* The exchange through this machine's memory, where echelon plan has measured it. Anything else leaves the default. */
static void find_own_link(ech_ctx *ctx, const args *a, ech__cluster *cluster)
{
    char path[4096];
    ech__costs *costs;
    if (ech__costs_default_path(ctx, path, sizeof path) == ECH_OK && *path &&
        ech__costs_open(ctx, path, NULL, &costs) == ECH_OK) {
        if (ech__costs_link(costs, bucket_bytes(ctx, a), false, &cluster->inside))
            cluster->between = cluster->inside;
        ech__costs_close(costs);
    }
    ctx->error[0] = 0;
}

/* The links of the virtual clock. */
static ech_status find_links(ech_ctx *ctx, args *a)
{
    if (a->link && a->cluster)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--link and --cluster are both given; give one of them");
    if ((a->link || a->cluster) && a->clock == ECH__CLOCK_REAL)
        return ech__fail(ctx, ECH_E_INVALID, "--link and --cluster are of --clock virtual");
    a->emulation.cluster = ech__cluster_defaults();
    a->emulation.algorithm = (ech__algorithm)a->algorithm;
    if (a->cluster)
        return ech__cluster_load(ctx, a->cluster, &a->emulation.cluster);
    if (a->link)
        return ech__link_parse(ctx, a->link, &a->emulation.cluster.inside);
    if (a->emulation.algorithm == ECH__ALGORITHM_BEST)
        a->emulation.algorithm = ECH__ALGORITHM_DIRECT;
    if (a->clock != ECH__CLOCK_REAL)
        find_own_link(ctx, a, &a->emulation.cluster);
    return ECH_OK;
}

static ech_status find_straggler(ech_ctx *ctx, args *a)
{
    char *end = NULL;
    a->straggler = -1;
    if (!a->straggle)
        return ECH_OK;
    const long rank = strtol(a->straggle, &end, 10);
    const bool named = end != a->straggle && *end == ':' && rank >= 0 && rank < 100000;
    const char *ms = named ? end + 1 : "";
    a->straggle_ms = strtod(ms, &end);
    if (!named || end == ms || *end || !(a->straggle_ms >= 0 && a->straggle_ms <= 60000))
        return ech__fail(
            ctx, ECH_E_INVALID,
            "--straggle '%s': must be a rank and 0 to 60000 milliseconds, such as 1:10",
            a->straggle);
    a->straggler = (int)rank;
    return ECH_OK;
}

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
    if (a->parallel == ECH__PARALLEL_DP && (a->accum > 1 || a->straggle || a->backend))
        return ech__fail(
            ctx, ECH_E_INVALID,
            "--parallel dp has one process: --accum, --straggle and --backend are of ddp");
    ECH_TRY(ech__train_check_groups(ctx, a));
    if (strcmp(command->name, "train"))
        return ECH_OK;
    if (a->parallel == ECH__PARALLEL_DP && (a->sync_bn || a->reproducible || a->max_restarts))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--parallel dp has one process: --sync-bn, --reproducible and "
                         "--max-restarts are of ddp");
    if (a->reproducible && ech__option_given(command, r, "threads") && a->threads != 1)
        return ech__fail(ctx, ECH_E_INVALID, "--threads %lld: --reproducible needs 1",
                         (long long)a->threads);
    if (a->reproducible && a->slots & (a->slots - 1))
        return ech__fail(ctx, ECH_E_INVALID, "--slots %lld: must be a power of two",
                         (long long)a->slots);
    if (a->reproducible && a->sync_bn)
        return ech__fail(ctx, ECH_E_INVALID,
                         "--sync-bn: --reproducible has the batch statistics of a slot");
    if (!a->reproducible && ech__option_given(command, r, "slots"))
        return ech__fail(ctx, ECH_E_INVALID, "--slots is of --reproducible");
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
    if (a->fit && (a->run_dir || a->save_params))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--fit runs nothing; --run-dir and --save-params have nothing to write");
    if (a->interval && a->schedule != ECH__SCHEDULE_STEP)
        return ech__fail(ctx, ECH_E_INVALID, "--lr-step needs --lr-schedule step");
    if (a->lr_warmup_from >= 0 && !(a->lr_warmup_epochs > 0))
        return ech__fail(ctx, ECH_E_INVALID,
                         "--lr-warmup-from needs --lr-warmup-epochs: how long to warm up");
    if (ech__option_given(command, r, "lr-gamma") && a->schedule != ECH__SCHEDULE_STEP)
        return ech__fail(ctx, ECH_E_INVALID, "--lr-gamma needs --lr-schedule step");
    return ECH_OK;
}

/* What bench step does not ask about. */
static args initial_args(void)
{
    const ech_train_options o = ech_train_defaults();
    return (args){.lr = o.lr,
                  .beta1 = o.beta1,
                  .beta2 = o.beta2,
                  .epsilon = o.epsilon,
                  .gamma = 0.1,
                  .lr_warmup_from = -1,
                  .slots = o.slots};
}

bool ech__train_parse(ech_ctx *ctx, const ech__command *command, char **argv, args *a, int *code)
{
    ech__option_result result;
    *a = initial_args();
    if (!ech__cli_parse(ctx, command, argv, a, &result, code))
        return false;
    if (!ech__option_given(command, &result, "warmup"))
        a->warmup = a->steps > 5 ? 5 : a->steps - 1;
    if (find_devices(ctx, a) < 0 || ech__train_find_groups(ctx, command, &result, a) < 0 ||
        find_straggler(ctx, a) < 0 || find_links(ctx, a) < 0 || ech__precision_find(ctx, a) < 0 ||
        check_combinations(ctx, command, &result, a) < 0) {
        *code = ech__cli_fail(ctx, command, ECH__EXIT_USAGE);
        return false;
    }
    if (a->reproducible) {
        a->threads = 1;
        if (!ech__option_given(command, &result, "tune"))
            a->tune = 1;
    }
    return true;
}
