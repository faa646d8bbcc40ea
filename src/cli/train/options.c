#include "cli/train/options.h"

typedef ech__train_args args;

/* Rows that both commands have. */
#define MODEL_ROWS                                                                                 \
    {ECH__ROW_MODEL(args), .group = "Model",                                                       \
     .help = "linear: a stack of Linear + ReLU with the mean-squared error. lenet, resnet18 (for " \
             "32x32 images) and resnet8 (the same blocks, narrower): cross-entropy on images."},   \
        {ECH__ROW_DIM(args)}, {ECH__ROW_DEPTH(args)},                                              \
        {ECH__ROW_BATCH_SIZE(args), .max = 1 << 30, .group = "Batch and steps",                    \
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
        {ECH__ROW_PARALLEL(args),                                                                  \
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
        {ECH__ROW_PLACEMENT(args),                                                                 \
         .help =                                                                                   \
             "Which layer is on which device: layer i of L on device i*D/L; the first half on "    \
             "device 0; so that the slowest device has least to do (or the fullest least to "      \
             "hold: balanced-memory); or a device for each layer, such as 0,0,1. Default: "        \
             "even."},                                                                             \
        {ECH__ROW_MICRO_BATCHES(args),                                                             \
         .help = "Of a pipeline: the batch is cut into M. Default: as many as divide it, up to "   \
                 "four for each device."},                                                         \
        {ECH__ROW_PIPELINE_SCHEDULE(args),                                                         \
         .help = "gpipe: all forward passes, then all backward ones. 1f1b: in turns, which holds " \
                 "the activations of fewer micro-batches."},                                       \
        {.name = "backend",                                                                        \
         ECH_OPTION(CHOICE, args, backend),                                                        \
         .choices = ECH__BACKEND_LIST(ECH_OPTION_WORD),                                            \
         .initial = "auto",                                                                        \
         .help =                                                                                   \
             "How ranks exchange: shared memory, MPI, or by default shared memory inside of a "    \
             "machine and MPI between machines. With --parallel mp or pipeline, shm or mpi puts "  \
             "each device into a rank of its own, and so does mpirun."},                           \
        {ECH__ROW_BUCKET_MB(args),                                                                 \
         .help = "Gradients are exchanged in buckets of about this size (MiB), each as soon as "   \
                 "the backward pass has completed it."},                                           \
        {ECH__ROW_SHARED_UPDATE(args),                                                             \
         .help = "on: the rank that has added up a stretch of gradients updates the parameters "   \
                 "for all ranks of the machine. off: every rank updates for itself. The bits are " \
                 "the same."},                                                                     \
        {ECH__ROW_ACCUM(args),                                                                     \
         .help = "Micro-steps whose gradients are added up before they are exchanged and used."},  \
        {.name = "clock",                                                                          \
         ECH_OPTION(CHOICE, args, clock),                                                          \
         .choices = ECH__CLOCK_LIST(ECH_OPTION_WORD),                                              \
         .initial = "auto",                                                                        \
         .help = "virtual: compute everything, but count the time that each device's thread had "  \
                 "a core, and the exchange at its price: what the step would take if every "       \
                 "device had a core of its own. auto: virtual where devices outnumber cores."},    \
        {ECH__ROW_LINK(args),                                                                      \
         .help = "Of the virtual clock: the links between devices, such as 12GB/s,5us. Default: "  \
                 "the shared memory of this machine, as measured."},                               \
        {ECH__ROW_CLUSTER(args),                                                                   \
         .help = "Of the virtual clock: nodes, devices per node and their links, as JSON."},       \
        {ECH__ROW_ALGORITHM(args),                                                                 \
         .help = "Of the virtual clock: how an all-reduce is done over given links."},             \
        {.name = "straggle",                                                                       \
         ECH_OPTION(STRING, args, straggle),                                                       \
         .arg = "RANK:MS",                                                                         \
         .help =                                                                                   \
             "One rank idles so long before each backward pass, to see what imbalance costs."},    \
        {ECH__ROW_THREADS(args),                                                                   \
         .help = "Threads of a device. Default: the cores divided by the devices."},               \
        {ECH__ROW_DEVICE_MEMORY(args),                                                             \
         .help = "Most memory a device may take; what does not fit is refused before anything is " \
                 "allocated. Default: the memory of the machine."},                                \
        {ECH__ROW_ISA(args, training.isa)},                                                        \
        {ECH__ROW_TUNE(args),                                                                      \
         .help = "Time the candidate kernels once and keep the fastest, or take a fixed choice."}, \
        {ECH__ROW_RECOMPUTE(args),                                                                 \
         .help = "Compute the outputs of batch norms again in the backward pass instead of "       \
                 "keeping them: less memory, the same bits, a little more time."},                 \
        {ECH__ROW_TUNING_FILE(args),                                                               \
         .help = "Where kernel timings are kept. Default: echelon/tuning.json in the cache "       \
                 "directory."},                                                                    \
    {                                                                                              \
        .name = "seed", ECH_OPTION(INT, args, seed), .arg = "N", .initial = "0", .min = 0,         \
        .max = 9007199254740992.0, .help = "Of the initial parameters and of synthetic data."      \
    }

#define PRECISION_ROWS                                                                             \
    {ECH__ROW_AMP(args), .group = "Precision",                                                     \
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
        ECH__ROW_GRAD_DTYPE(args),                                                                 \
            .help = "Type of gradients on their way between devices; bf16 halves the bytes."       \
    }

#define RECORD_ROWS                                                                                \
    {.name = "run-dir",                                                                            \
     ECH_OPTION(STRING, args, run_dir),                                                            \
     .arg = "DIR",                                                                                 \
     .group = "Output",                                                                            \
     .help = "Write run.json and steps.jsonl there; refused while another run writes there."},     \
        {.name = "trace",                                                                          \
         ECH_OPTION(FLAG, args, trace),                                                            \
         .help = "Write trace.json too: every kernel of the first 1000 steps, for Perfetto."},     \
    {                                                                                              \
        .name = "json", ECH_OPTION(FLAG, args, json),                                              \
        .help = "Print what run.json holds instead of tables."                                     \
    }

static const ech__option train_options[] = {
    MODEL_ROWS,
    {ECH__ROW_GLOBAL_BATCH(args),
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
    {ECH__ROW_OPTIMIZER(args), .group = "Optimizer", .help = "Update rule, as PyTorch's."},
    {.name = "lr",
     ECH_OPTION(REAL, args, lr),
     .arg = "RATE",
     .initial = "0.01",
     .min = 0,
     .max = 1e6,
     .help = "Learning rate."},
    {ECH__ROW_MOMENTUM(args)},
    {.name = "nesterov", ECH_OPTION(FLAG, args, nesterov), .help = "Nesterov momentum, with sgd."},
    {ECH__ROW_WEIGHT_DECAY(args), .help = "Decay of the parameters; decoupled with adamw."},
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
     .choices = ECH__SCHEDULE_LIST(ECH_OPTION_WORD),
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
     .help =
         "Let every rank keep running statistics of its own instead of rank 0's. Checkpoints then "
         "hold those of all ranks."},
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
         "checkpoint of --save. Ranks that fail before their first step are not started again."},
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
         "are kept. Refused while another run writes there."},
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
    {.name = "keep-going",
     ECH_OPTION(FLAG, args, keep_going),
     .help = "Do all steps even if the loss or the parameters stop being finite. Without it such a "
             "run stops with exit code 1 and writes no parameters. Checkpoints are only saved of "
             "finite parameters in either case."},
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
