/* What a strategy does for a trainer: a table of functions, one row each
 * (parallel/strategy.h has the list). The trainer knows no strategy by name; it
 * calls trainer->ops. What a strategy keeps for a trainer is trainer->state,
 * which only its own file knows. Members that are NULL do nothing, or as the
 * comment says.
 *
 *     rank.c     one device, alone or as one of several ranks
 *     dp.c       DataParallel
 *     pipe.c     layers on several devices, plain and as a pipeline
 */
#pragma once

#include "train/step/trainer.h"

/* One input of the program, row-major. */
typedef struct ech__input {
    const char *name;
    void *data; /* of a write, it is only read */
    size_t bytes;
} ech__input;

struct ech__strategy_ops {
    /* ---- creation, in this order ---- */
    /* Fills in trainer->comm and trainer->ranks where other ranks have samples of their own. NULL:
     * there are no other ranks. */
    ech_status (*join)(ech_trainer *trainer, const ech_train_options *options);
    /* Ranks that hold parts of one model together. NULL, or gives NULL: this process holds all. */
    ech__comm *(*model_group)(const ech_trainer *trainer);
    /* Fills in the graphs; checks numbers that only this strategy has. */
    ech_status (*graphs)(ech_trainer *trainer, ech_value loss, const ech__graphs_options *options);
    bool plans_graphs; /* they are complete only when they are planned */
    /* Fills in trainer->device, and opens the others. */
    ech_status (*open)(ech_trainer *trainer, ech_value loss, const ech_train_options *options);
    /* Fills in trainer->plan, by choices where that is possible (NULL: choose). */
    ech_status (*plan)(ech_trainer *trainer, ech_value loss, const ech_train_options *options,
                       const ech__choices *choices);
    /* Allocates: fills in trainer->exec and the first variant. */
    ech_status (*ready)(ech_trainer *trainer, const ech_train_options *options);
    /* Every rank starts from rank 0's parameters and buffers. */
    ech_status (*share_weights)(ech_trainer *trainer);
    /* Frees trainer->state, and clears what it has filled in that is not the trainer's own; at any
     * time. */
    void (*destroy)(ech_trainer *trainer);
    /* The choices of all plans; NULL: of trainer->plan. */
    ech_json *(*choices)(const ech_trainer *trainer);

    /* ---- steps ---- */
    /* Plan and exec of a batch size, and whether the trainer owns them. */
    ech_status (*variant)(ech_trainer *trainer, ech__variant *variant);
    /* How many micro-batches a micro-step has; share: of this rank in its samples. NULL: none. */
    int (*micro_batches)(const ech_trainer *trainer, int64_t batch, double share);
    /* Phases of a micro-step, or all of a step at once; NULL: of the variant's exec. */
    bool whole_steps;
    ech_status (*run)(ech_trainer *trainer, const ech__variant *variant, unsigned phases,
                      const ech__scalars *scalars, ech__phase_times *times);
    /* Figures of all gradients, after a run with checks. NULL: the variant's plan has them. */
    ech_status (*grad_stats)(ech_trainer *trainer, double out[ECH__GRAD_STATS]);
    /* NULL: the forward pass of the variant's exec. */
    ech_status (*evaluate)(ech_trainer *trainer, const ech__variant *variant);
    /* Copies of parameters that were written from outside; NULL: those of trainer->exec. */
    ech_status (*refresh)(ech_trainer *trainer);
    /* A kept scalar after a step; NULL: of the variant's exec. */
    ech_status (*scalar)(const ech_trainer *trainer, const ech__variant *variant, ech_value value,
                         double *out);
    /* How often parameters began to change, over all steps. */
    int64_t (*updates)(const ech_trainer *trainer);
    /* What first was not finite, and its device; -1: there is one. */
    ech__nonfinite (*nonfinite)(const ech_trainer *trainer, const ech__variant *variant,
                                int *device);
    /* Seconds in kernels of the last micro-step, and of them in adding gradients up. */
    double (*kernels)(const ech_trainer *trainer, const ech__variant *variant, double *sums_s);

    /* ---- inputs of several devices; NULL: they are those of the variant's plan ---- */
    ech_status (*write)(ech_trainer *trainer, const ech__variant *variant, const ech__input *input);
    ech_status (*read)(ech_trainer *trainer, const ech__variant *variant, const ech__input *input);
    ech_status (*take_inputs)(ech_trainer *trainer, const ech__variant *from,
                              const ech__variant *to);

    /* ---- devices; NULL: trainer->device, with trainer->plan and trainer->exec ---- */
    int (*devices)(const ech_trainer *trainer); /* that one model or batch is spread over */
    /* That have operators of their own, of which records keep times. */
    int (*planned_devices)(const ech_trainer *trainer);
    /* The layers and their devices. NULL: those of the model, on every device alike. */
    const ech__layers *(*layers)(const ech_trainer *trainer);
    /* NULL for a device that is in another process. */
    const ech__plan *(*plan_of)(const ech_trainer *trainer, int device);
    const ech__exec *(*exec_of)(const ech_trainer *trainer, int device);
    /* As ech__trainer_home. */
    bool (*home)(const ech_trainer *trainer, ech_value value, const ech__plan **plan,
                 const ech__exec **exec, ech_value *there);
    /* Bytes by kind, as planned, and bytes that were taken at most. */
    void (*memory)(const ech_trainer *trainer, int device, int64_t out[ECH__MEMORY_COUNT]);
    int64_t (*peak)(const ech_trainer *trainer, int device);
    /* Bytes that this process will allocate. */
    int64_t (*need)(const ech_trainer *trainer);
    /* Samples, bytes in and out, and busy seconds of the last step. */
    void (*work)(const ech_trainer *trainer, int device, ech_device_stats *out);
};

extern const ech__strategy_ops ech__ops_rank, ech__ops_dp, ech__ops_pipe;

const ech__strategy_ops *ech__strategy_ops_of(ech__strategy strategy);

/* ---- of one device, for strategies that have it too (rank.c) ---- */

/* Ranks with samples of their own. */
ech_status ech__rank_join(ech_trainer *trainer, const ech_train_options *options);
/* Whether planning by choices failed because they are not possible here. Then it says so in the log
 * and sets trainer->chosen_anew: the caller plans without them. */
bool ech__rank_must_choose(ech_trainer *trainer, ech_status status);
/* By the choices where that is possible, or else by measurement. */
ech_status ech__rank_choose(ech_trainer *trainer, int64_t batch, const ech__choices *choices);
/* The exec of trainer->plan, and the first variant. */
ech_status ech__rank_ready(ech_trainer *trainer, const ech_train_options *options);
ech_status ech__rank_variant(ech_trainer *trainer, ech__variant *variant);
/* Of one plan since the step began. */
double ech__rank_kernels(const ech_trainer *trainer, const ech__plan *plan, const ech__exec *exec,
                         double *sums_s);
