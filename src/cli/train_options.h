/* The options of echelon train and echelon bench step. */
#ifndef ECH_CLI_TRAIN_OPTIONS_H
#define ECH_CLI_TRAIN_OPTIONS_H

#include "cli/cli.h"
#include "comm/comm.h"
#include "train/run.h"

#define ECH__PARALLEL_LIST(X)                                                                      \
    X(DDP, "ddp") /* a rank for each device; gradients are added up */                             \
    X(DP, "dp")   /* one process; the first device has the model and does what is left */          \
    X(MP, "mp")   /* one process; layers are spread over the devices */                            \
    X(PIPELINE, "pipeline") /* the same, with micro-batches that keep them busy */

typedef enum ech__parallel {
#define ECH__PARALLEL_ENUM(id, text) ECH__PARALLEL_##id,
    ECH__PARALLEL_LIST(ECH__PARALLEL_ENUM)
#undef ECH__PARALLEL_ENUM
} ech__parallel;

typedef struct ech__train_args {
    int model, optimizer, schedule, tune, recompute, parallel, backend, clock, algorithm,
        separate_update, amp, grad_dtype, pipeline;
    int64_t mp, micro_batches;
    const char *placement;
    int64_t dim, depth, batch, global_batch, steps, warmup, threads, seed, interval;
    int64_t device_memory, accum, slots, max_restarts;
    int64_t lr_scale_base;
    double lr_warmup_epochs, lr_warmup_from;
    double lr, momentum, weight_decay, beta1, beta2, epsilon, gamma, delay_ms, bucket_mb, clip_norm;
    bool nesterov, fit, trace, json, no_shuffle, no_augment, sync_bn, no_broadcast, reproducible,
        undivided;
    int64_t epochs, limit, save_every;
    const char *data_dir, *save, *resume, *devices, *straggle, *link, *cluster;
    const char *data, *init, *save_params, *run_dir, *tuning_file, *loss_scale_text, *against,
        *params_against;
    /* What follows from them. */
    int device_count; /* 0: not given */
    int ranks;        /* of a launcher: devices, or groups of --mp; 0: not given */
    bool stage_ranks; /* the layers of one model are in several ranks */
    int straggler;
    double straggle_ms;
    double loss_scale; /* as in ech_train_options */
    ech__emulation emulation;
} ech__train_args;

/* Parses argv, and checks what can be checked without reading anything. False when the command is over: *code is then its
 * exit code. */
bool ech__train_parse(ech_ctx *ctx, const ech__command *command, char **argv, ech__train_args *out,
                      int *code);

/* ---- train_groups.c ---- */

/* How many devices have the layers of one model, how many such groups there are, and their micro-batches: fills in mp, ranks,
 * stage_ranks and micro_batches. */
ech_status ech__train_find_groups(ech_ctx *ctx, const ech__command *command,
                                  const ech__option_result *result, ech__train_args *args);
/* Refuses options that layers on several devices go without. */
ech_status ech__train_check_groups(ech_ctx *ctx, const ech__train_args *args);

#endif
