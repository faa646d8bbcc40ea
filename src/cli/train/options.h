/* The options of echelon train and echelon bench step. */
#ifndef ECH_CLI_TRAIN_OPTIONS_H
#define ECH_CLI_TRAIN_OPTIONS_H

#include "cli/cli.h"
#include "cli/train/training.h"
#include "comm/comm.h"

typedef struct ech__train_args {
    ech__training_args training;
    int64_t steps, warmup, epochs;
    const char *data, *data_dir, *init;
    int64_t limit;
    bool no_shuffle, no_augment;
    double lr, beta1, beta2, epsilon;
    bool nesterov;
    int schedule;
    int64_t interval;
    double gamma;
    int64_t lr_scale_base;
    double lr_warmup_epochs, lr_warmup_from, delay_ms;
    const char *loss_scale_text;
    double clip_norm;
    const char *devices, *straggle;
    int64_t mp, seed, slots, max_restarts;
    int backend, clock;
    bool undivided, sync_bn, no_broadcast, reproducible, fit;
    const char *save, *resume;
    int64_t save_every;
    const char *run_dir, *save_params, *against, *params_against;
    bool trace, json, keep_going;
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

/* Fills in the loss scale from --amp, --loss-scale, --clip-norm and --grad-dtype, and refuses what does not go together. */
ech_status ech__precision_find(ech_ctx *ctx, ech__train_args *args);

#endif
