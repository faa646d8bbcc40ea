/* What a training step costs on one device of this machine, measured once (predict/measure.h) and
 * kept in a file, so that prices for other numbers of devices can be computed from it
 * (predict/pricing.h).
 *
 *     ech__costs *costs;
 *     ECH_TRY(ech__costs_open(ctx, path, machine, &costs));        a file that is not there is an empty store
 *     if (!ech__costs_find(costs, key, batch, 1))
 *         ECH_TRY(ech__costs_put(costs, key, &cost));
 *     ECH_TRY(ech__costs_save(costs));                             with what others wrote meanwhile
 *     ech__costs_close(costs);
 *
 * An exported file has the costs of the machine that wrote it: a store that is opened on it is that
 * machine's, and nothing is put or saved there.
 *
 * A file that cannot be read, of another program or of a newer version, is not an error: it is
 * logged, the store starts empty, and saving fails instead of replacing that file.
 *
 * Operators are timed inside the step, so caches are as in training; the time of the same kernel in
 * a separate loop with warm caches is stored too. A machine is identified by its processor, cores
 * and libraries.
 */
#pragma once

#include "price/cluster.h"

#include <stddef.h>

/* The phases of a DataParallel step, in order. */
#define ECH__DP_PART_LIST(X)                                                                       \
    X(SCATTER, "scatter")                   /* 0: rows of the inputs to the devices */             \
    X(REPLICATE, "replicate")               /* 0: parameters and buffers to the others */          \
    X(FORWARD, "forward")                   /* all */                                              \
    X(GATHER, "gather")                     /* 0: rows of the prediction from the devices */       \
    X(LOSS, "loss")                         /* 0: of the whole batch, and its gradient */          \
    X(SCATTER_GRADIENT, "scatter_gradient") /* 0: rows of it to the devices */                     \
    X(BACKWARD, "backward")                 /* all */                                              \
    X(REDUCE, "reduce")                     /* 0: adds up the gradients of all */                  \
    X(OPTIMIZER, "optimizer")               /* 0 */

typedef enum ech__dp_phase {
#define ECH__DP_PART_ENUM(id, text) ECH__DP_##id,
    ECH__DP_PART_LIST(ECH__DP_PART_ENUM)
#undef ECH__DP_PART_ENUM
        ECH__DP_PHASES
} ech__dp_phase;

const char *ech__dp_phase_name(ech__dp_phase phase);

/* Medians over the timed steps, with the borders of their middle half. */
typedef struct ech__op_cost {
    const char *op, *name, *phase;
    double median_s, low_s, high_s;
    double tuned_s; /* in a separate loop; 0: it was not timed */
} ech__op_cost;

typedef struct ech__step_cost {
    int64_t batch;
    int beside;    /* copies that ran at the same time, this one included */
    int64_t steps; /* that were timed */
    double step_s, low_s, high_s;
    double
        overhead_s; /* of step_s: besides the medians of operators and, in DataParallel, the work of device 0 for the others */
    double wait_s;  /* of overhead_s: for the slowest of the copies */
    double loading_s; /* waiting for samples and handing them over; not in step_s */
    double
        phase_s[ECH__DP_PHASES]; /* the device's own work in DataParallel on one device, else 0 */
    double hand_over_s; /* in DataParallel, between the threads of a step; not in overhead_s */
    double loader_s;    /* CPU time of the thread that loads samples, for a step; mean */
    ech__op_cost *ops;  /* in the order of execution */
    size_t nops;
} ech__step_cost;

/* Bytes and the time that something takes for so many, from few to many. */
enum { ECH__COSTS_SIZES = 6 };
typedef struct ech__size_costs {
    int count; /* 0: not measured */
    int64_t bytes[ECH__COSTS_SIZES];
    double seconds[ECH__COSTS_SIZES];
} ech__size_costs;

/* Between the sizes on a line; above the last in proportion. */
double ech__size_seconds(const ech__size_costs *costs, int64_t bytes);

typedef struct ech__machine_costs {
    /* Between two ranks, in place, of memory that each has just written. allreduce: until the sum is there. exchange: with what
     * it adds to writing and reading the same memory before and after it. */
    ech__size_costs allreduce, exchange;
    /* One device copies to another one's memory, or adds that to its own; and how much longer the other one then takes to read
     * what was copied, or to write again what was added. */
    ech__size_costs copy, add, fetch, rewrite;
    /* What handing a step over to device 0's thread and back takes, and a part of it to the second device's. */
    double step_job_s, part_job_s;
} ech__machine_costs;

typedef struct ech__costs ech__costs;

/* machine may be NULL: this one. path NULL: in memory only. Fails only where there is no memory. */
ech_status ech__costs_open(ech_ctx *ctx, const char *path, const char *machine, ech__costs **out);
void ech__costs_close(ech__costs *costs);
/* Puts what is new, if anything is, into the file, under a lock; waits a few seconds for another process that does so, and then fails. */
ech_status ech__costs_save(ech__costs *costs);
/* Writes the costs of the store's machine for use on others, in place of what was in the file. */
ech_status ech__costs_export(const ech__costs *costs, const char *path);
/* The machine whose costs an exported file holds; NULL: the store is this machine's own. */
const char *ech__costs_exported(const ech__costs *costs);
/* Makes devices this many times as fast: all times of steps and copies; links stay as they are. In
 * memory only: nothing may be saved afterwards. */
void ech__costs_speed_up(ech__costs *costs, double factor);
/* Puts all that a file holds, such as one that other processes have measured into. */
ech_status ech__costs_add_file(ech__costs *costs, const char *path);
/* $ECHELON_COSTS, or echelon/costs.json in the user's cache directory. Empty when there is no such directory. */
ech_status ech__costs_default_path(ech_ctx *ctx, char *out, size_t bytes);

/* NULL where it is not known. Valid until something is put. */
const ech__step_cost *ech__costs_find(const ech__costs *costs, const char *key, int64_t batch,
                                      int beside);
/* Measured batches of a key from small to large, at most max; returns how many. */
int ech__costs_batches(const ech__costs *costs, const char *key, int beside, int64_t *out, int max);
/* Most copies side by side that a key was measured with; 1: none. */
int ech__costs_beside(const ech__costs *costs, const char *key);
/* Copies it, in place of what was known. Refuses a step that takes no time, and times that are not finite. */
ech_status ech__costs_put(ech__costs *costs, const char *key, const ech__step_cost *cost);
/* Leaves out all of a key, of this machine; a file keeps them. */
void ech__costs_forget(ech__costs *costs, const char *key);
/* Processor, cores and libraries. */
const char *ech__costs_machine_name(const ech__costs *costs);
/* Of this machine; can be changed. */
ech__machine_costs *ech__costs_machine(ech__costs *costs);
/* The link whose price for the direct exchange is as measured, for this many bytes and for few: of the all-reduce alone, or with
 * its aftermath. False where it is not known. */
bool ech__costs_link(const ech__costs *costs, int64_t bytes, bool aftermath, ech__link *out);
