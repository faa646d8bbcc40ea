/* The training that echelon plan prices, and that echelon train and echelon bench step run: its arguments and the rows of its
 * options. A command has them in its own struct, under the name training:
 *
 *     typedef struct args { ech__training_args training; bool json; } args;
 *     static const ech__option options[] = {
 *         {ECH__ROW_MODEL(args), .group = "Model", .help = "What to train."},
 *         {ECH__ROW_DIM(args)},
 *     };
 *     args a = {0};
 *     ...parsed...
 *     ech__run_config config = ech__training_config(&a.training);
 *
 * A row here is what is the same in all of them. Headings are the command's own, and so are sentences, limits and
 * initial values that differ.
 */
#ifndef ECH_CLI_TRAIN_TRAINING_H
#define ECH_CLI_TRAIN_TRAINING_H

#include "base/option/option.h"
#include "parallel/pipe/pipe.h"
#include "predict/pricing.h"
#include "train/run.h"

#include <math.h>

typedef struct ech__training_args {
    ech__model_kind model;
    int64_t dim, depth;
    int64_t batch, global_batch; /* 0: not given */
    int64_t accum;
    ech_amp amp;
    int grad_dtype; /* 0: f32, 1: bf16 */
    ech_optimizer optimizer;
    double momentum, weight_decay;
    ech__strategy parallel;
    const char *placement;
    int64_t micro_batches; /* 0: not given */
    ech_pipeline pipeline;
    const char *link, *cluster;
    ech__algorithm algorithm;
    double bucket_mb;
    int separate_update;            /* 0: a rank updates for others too, 1: each for itself */
    int64_t threads, device_memory; /* 0: not given */
    int recompute, tune;            /* 0: on, 1: off */
    const char *tuning_file, *isa;
} ech__training_args;

/* A run of it. Batch, devices, their memory and their links are left to the command. */
ech__run_config ech__training_config(const ech__training_args *training);

/* Refuse --batch-size beside --global-batch, --link beside --cluster, and --momentum with an optimizer that has none. */
ech_status ech__training_check_batch(ech_ctx *ctx, const ech__training_args *training);
ech_status ech__training_check_links(ech_ctx *ctx, const ech__training_args *training);
ech_status ech__training_check_optimizer(ech_ctx *ctx, const ech__training_args *training);

/* ---- rows ---- */

#define ECH__ROW_MODEL(args)                                                                       \
    .name = "model", ECH_OPTION(CHOICE, args, training.model),                                     \
    .choices = ECH__MODEL_LIST(ECH_OPTION_WORD), .initial = "linear"
#define ECH__ROW_DIM(args)                                                                         \
    .name = "dim", ECH_OPTION(INT, args, training.dim), .arg = "D", .initial = "1024", .min = 1,   \
    .max = 1 << 20, .help = "Width of every layer of the linear stack."
#define ECH__ROW_DEPTH(args)                                                                       \
    .name = "depth", ECH_OPTION(INT, args, training.depth), .arg = "L", .initial = "2", .min = 1,  \
    .max = 1000, .help = "Layers of the linear stack."
#define ECH__ROW_BATCH_SIZE(args)                                                                  \
    .name = "batch-size", ECH_OPTION(INT, args, training.batch), .arg = "N", .min = 1
#define ECH__ROW_GLOBAL_BATCH(args)                                                                \
    .name = "global-batch", ECH_OPTION(INT, args, training.global_batch), .arg = "N", .min = 1,    \
    .max = 1 << 30
#define ECH__ROW_ACCUM(args)                                                                       \
    .name = "accum", ECH_OPTION(INT, args, training.accum), .arg = "N", .initial = "1", .min = 1,  \
    .max = 1e6
#define ECH__ROW_AMP(args)                                                                         \
    .name = "amp", ECH_OPTION(CHOICE, args, training.amp),                                         \
    .choices = ECH_AMP_LIST(ECH_OPTION_WORD), .initial = "off"
#define ECH__ROW_GRAD_DTYPE(args)                                                                  \
    .name = "grad-dtype", ECH_OPTION(CHOICE, args, training.grad_dtype), .choices = "f32|bf16",    \
    .initial = "f32"
#define ECH__ROW_OPTIMIZER(args)                                                                   \
    .name = "optimizer", ECH_OPTION(CHOICE, args, training.optimizer),                             \
    .choices = ECH_OPTIMIZER_LIST(ECH_OPTION_WORD), .initial = "sgd"
#define ECH__ROW_MOMENTUM(args)                                                                    \
    .name = "momentum", ECH_OPTION(REAL, args, training.momentum), .arg = "M", .initial = "0",     \
    .min = 0, .max = 0.999999, .help = "Momentum (SGD)."
#define ECH__ROW_WEIGHT_DECAY(args)                                                                \
    .name = "weight-decay", ECH_OPTION(REAL, args, training.weight_decay), .arg = "W",             \
    .initial = "0", .min = 0, .max = 1e6
#define ECH__ROW_PARALLEL(args)                                                                    \
    .name = "parallel", ECH_OPTION(CHOICE, args, training.parallel),                               \
    .choices = ECH__STRATEGY_LIST(ECH_OPTION_WORD), .initial = "ddp"
#define ECH__ROW_PLACEMENT(args)                                                                   \
    .name = "placement", ECH_OPTION(STRING, args, training.placement),                             \
    .arg = "even|half|balanced|LIST", .choices = "even|half|balanced|balanced-memory"
#define ECH__ROW_MICRO_BATCHES(args)                                                               \
    .name = "micro-batches", ECH_OPTION(INT, args, training.micro_batches), .arg = "M", .min = 1,  \
    .max = ECH__PIPE_MOST_MICROS
#define ECH__ROW_PIPELINE_SCHEDULE(args)                                                           \
    .name = "pipeline-schedule", ECH_OPTION(CHOICE, args, training.pipeline),                      \
    .choices = ECH_PIPELINE_LIST(ECH_OPTION_WORD), .initial = "1f1b"
#define ECH__ROW_LINK(args)                                                                        \
    .name = "link", ECH_OPTION(STRING, args, training.link), .arg = "BANDWIDTH,LATENCY"
#define ECH__ROW_CLUSTER(args)                                                                     \
    .name = "cluster", ECH_OPTION(STRING, args, training.cluster), .arg = "FILE"
#define ECH__ROW_ALGORITHM(args)                                                                   \
    .name = "algorithm", ECH_OPTION(CHOICE, args, training.algorithm),                             \
    .choices = ECH__ALGORITHM_LIST(ECH_OPTION_WORD), .initial = "best"
#define ECH__ROW_BUCKET_MB(args)                                                                   \
    .name = "bucket-mb", ECH_OPTION(REAL, args, training.bucket_mb), .arg = "MB", .initial = "25", \
    .min = 1e-6, .max = 1e6
#define ECH__ROW_SHARED_UPDATE(args)                                                               \
    .name = "shared-update", ECH_OPTION(CHOICE, args, training.separate_update),                   \
    .choices = "on|off", .initial = "on"
#define ECH__ROW_THREADS(args)                                                                     \
    .name = "threads", ECH_OPTION(INT, args, training.threads), .arg = "T", .min = 1, .max = 1024
#define ECH__ROW_DEVICE_MEMORY(args)                                                               \
    .name = "device-memory", ECH_OPTION(BYTES, args, training.device_memory), .arg = "BYTES",      \
    .min = 1, .max = HUGE_VAL
#define ECH__ROW_RECOMPUTE(args)                                                                   \
    .name = "recompute", ECH_OPTION(CHOICE, args, training.recompute), .choices = "bn|off",        \
    .initial = "bn"
#define ECH__ROW_TUNE(args)                                                                        \
    .name = "tune", ECH_OPTION(CHOICE, args, training.tune), .choices = "on|off", .initial = "on"
#define ECH__ROW_TUNING_FILE(args)                                                                 \
    .name = "tuning-file", ECH_OPTION(STRING, args, training.tuning_file), .arg = "FILE"

#endif
