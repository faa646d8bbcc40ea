/* Measures what training steps cost on this machine, and puts it into a store (price/costs.h).
 *
 *     ech__costs_key key = ech__costs_key_of(&config);
 *     if (!ech__costs_find(costs, key.s, batch, 1))
 *         ECH_TRY(ech__costs_measure(ctx, costs, &config, comm, 1.5));       runs the steps
 */
#pragma once

#include "comm/comm.h"
#include "price/costs.h"
#include "train/run.h"

/* What a step's costs depend on besides batch and machine: model, threads, optimizer, way of going parallel. */
typedef struct ech__costs_key {
    char s[160];
} ech__costs_key;
ech__costs_key ech__costs_key_of(const ech__run_config *config);

/* Runs training steps of config.train.batch samples on one device for about so many seconds and
 * puts their costs. As several ranks, each runs its own copy, which start every step together; all
 * put the same. config.train.dp_devices 1 measures DataParallel on one device. */
ech_status ech__costs_measure(ech_ctx *ctx, ech__costs *costs, const ech__run_config *config,
                              ech__comm *comm, double seconds);
/* Seconds that measuring takes where a step takes so long, besides choosing kernels. */
double ech__costs_measuring(double seconds, double step_s);

typedef struct ech__costs_budget {
    double seconds, most_s; /* for a measurement: as wanted, and as it may take at most */
    double guess_fixed_s,
        guess_s; /* of a step, and of a sample in it, where no batch below is known */
    bool (*fits)(void *user, int64_t batch); /* into memory */
    void *user;
} ech__costs_budget;

/* Fills in the guess: the time on a slow machine, from what there is to compute and to move. */
ech_status ech__costs_guess(ech_ctx *ctx, const ech__run_config *config, ech__costs_budget *out);

/* The batch to measure next so that the costs of `batch` are known, or near: that batch, one on the
 * way to it if measuring it could take longer than the budget has, or 0 where nothing more is to be
 * measured. A step takes no more time per sample than the one of the largest batch below that was
 * measured. */
int64_t ech__costs_next_batch(const ech__costs *costs, const char *key, int64_t batch,
                              const ech__costs_budget *budget);

/* The exchange between two ranks. */
ech_status ech__costs_measure_link(ech__costs *costs, ech__comm *comm);
/* What device 0 does for another one in DataParallel: copies memory that the other one has used, and adds it up. */
ech_status ech__costs_measure_copies(ech_ctx *ctx, ech__costs *costs);
