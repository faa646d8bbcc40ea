#include "cli/train/options.h"

_Static_assert(offsetof(ech__train_args, run) == 0, "rows store into the configuration");

static const ech__option train_options[] = {
#define OPTION(train, bench, plan, graph, ...) ECH__IN_##train(ECH__OPTION_ROW(__VA_ARGS__))
#include "train/options.inc"
};

static const ech__option bench_options[] = {
#define OPTION(train, bench, plan, graph, ...) ECH__IN_##bench(ECH__OPTION_ROW(__VA_ARGS__))
#include "train/options.inc"
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
    {"echelon train --dim 8192 --depth 8 --device-memory 4GB --memory",
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
    ECH_OPTION_ROWS(train_options),
    ECH_OPTION_EXAMPLES(train_examples),
    ECH__CLI_RUN(ech__train_args, ech__train_run),
    .check = ech__train_settle,
    .defaults = ech__training_defaults,
};

static const ech__option_example bench_examples[] = {
    {"echelon bench step --dim 8192 --depth 8 --batch-size 64 --threads 1 --steps 12 --warmup 2",
     "Which kernels a step spends its time in."},
};

const ech__command ech__cli_bench_step = {
    .name = "bench step",
    .brief = "time training steps and every kernel in them",
    .about = "Plain sgd on synthetic data: the same work as a PyTorch step of zero_grad, forward, "
             "backward and optimizer.step, to be run beside it.",
    ECH_OPTION_ROWS(bench_options),
    ECH_OPTION_EXAMPLES(bench_examples),
    ECH__CLI_RUN(ech__train_args, ech__bench_step_run),
    .check = ech__train_settle,
    .defaults = ech__training_defaults,
};
