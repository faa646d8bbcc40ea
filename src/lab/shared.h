/* What several studies have in common: the training of a linear stack, and time, speedup and
 * efficiency over numbers of devices.
 *
 *     static const ech__lab_param params[] = {ECH__LAB_STACK_PARAMS, {0}};
 *
 *     static void runs(ech__lab_runs *lab)
 *     {
 *         ech__lab_scaling(lab, "", ech__lab_stack_of(lab), NULL);     runs n1, n2, n4
 *     }
 *
 *     static void tell(ech__sheet *s)
 *     {
 *         ech__tell_scaling(s, "");                                     figures t1, s1, e1, t2, s2, e2, ...
 *         ech__tell_table(s, "Time per step", NULL);
 *         ech__tell_scaling_columns(s);
 *         for (size_t i = 0; i < ech__tell_devices(s); i++) {
 *             ech__tell_row(s);
 *             ech__tell_scaling_cells(s, "", ech__tell_device(s, i));
 *         }
 *     }
 *
 * A prefix keeps the runs and figures of several cases of a study apart: with "small_", run small_n2 has the figures
 * small_t2, small_s2 and small_e2.
 */
#pragma once

#include "lab/sheet.h"

/* printf into words, a title or a part of an expression; ech__lab_name is for ids and names of figures. */
typedef struct ech__lab_phrase {
    char s[ECH__LAB_EXPR_MAX];
} ech__lab_phrase;
ECH__TELLS(1, 2) ech__lab_phrase ech__lab_print(const char *format, ...);

/* ---- running ---- */

enum {
    ECH__LAB_WARMUP = 5,       /* steps of every run that are trained but not timed */
    ECH__LAB_SHARED_MOST = 64, /* categories of a plot */
};

/* The sizes of the stack as rows of a card's params. Studies that keep them share their runs. */
/* clang-format off */
#define ECH__LAB_STACK_PARAMS                                          \
    {"dim", 1024, 2048, 1, 65536, "width of every layer"},             \
    {"depth", 4, 4, 1, 1000, "layers of the stack"},                   \
    {"batch", 64, 64, 1, 65536, "samples of a step over all devices"}, \
    {"steps", 35, 65, 6, 100000, "steps of a run, 5 of them warm-up"}
/* clang-format on */

/* Linear + ReLU layers, mean-squared error, SGD. */
typedef struct ech__lab_stack {
    int64_t dim, depth;
    int64_t batch; /* over all devices */
    int64_t steps; /* with the warm-up */
} ech__lab_stack;

/* As those params have it. */
ech__lab_stack ech__lab_stack_of(ech__lab_runs *lab);
/* The same words for the same training, so that studies share it. `more` are options behind them, or NULL. */
void ech__lab_train(ech__lab_runs *lab, const char *id, ech__lab_stack stack, int64_t devices,
                    const char *more);
/* A run PREFIXnN for each number of devices. */
void ech__lab_scaling(ech__lab_runs *lab, const char *prefix, ech__lab_stack stack,
                      const char *more);
/* The prediction for all numbers of devices: [ID rows.devices=2.step_time_s]. Ask for it before
 * trainings that are emulated: it measures the exchange that they price. */
void ech__lab_plan(ech__lab_runs *lab, const char *id, ech__lab_stack stack, const char *more);
/* Writes "1,2,4", as plan takes it. */
void ech__lab_list_devices(const ech__lab_runs *lab, char *out, size_t bytes);

/* ---- telling ---- */

/* Whether a named figure is known: what is said of one that is not would be said of nothing. */
bool ech__tell_knows(ech__sheet *sheet, const char *name);
/* ech__tell_say with names of figures printed into the sentence. */
ECH__TELLS(2, 3) void ech__tell_sayf(ech__sheet *sheet, const char *sentence, ...);

/* Names the figures of runs PREFIXnN: PREFIXtN, the time of a step; PREFIXsN, the speedup against one device;
 * PREFIXeN, the efficiency. */
void ech__tell_scaling(ech__sheet *sheet, const char *prefix);
/* And what that time was spent on, on rank 0: PREFIXcN computing, PREFIXwN waiting for the rank
 * that was ready last, PREFIXxN exchanging, PREFIXoN everything else. */
void ech__tell_parts(ech__sheet *sheet, const char *prefix, int64_t devices);
/* Series of a stacked plot, one for each part; the categories must be there. Cells come from
 * `prefixes` and `devices`, `count` each. */
void ech__tell_parts_series(ech__sheet *sheet, const char *const *prefixes, const int64_t *devices,
                            size_t count);
/* Columns devices, time/step, speedup, efficiency, and their cells. */
void ech__tell_scaling_columns(ech__sheet *sheet);
void ech__tell_scaling_cells(ech__sheet *sheet, const char *prefix, int64_t devices);
/* A series of speedups in a plot of kind "speedup", which must have been begun. */
void ech__tell_scaling_series(ech__sheet *sheet, const char *prefix, const char *name);
/* Axes of such a plot. */
void ech__tell_scaling_axes(ech__sheet *sheet);

/* "1, PREFIXt1, 2, PREFIXt2, ...": what amdahl, slope and the like take, of figures that are called
 * WHAT and the number of devices. */
ech__lab_phrase ech__tell_pairs(ech__sheet *sheet, const char *prefix, const char *what);

/* The largest number of devices, and the largest that has a core for each: 1 where there is no larger one. */
int64_t ech__tell_most(const ech__sheet *sheet);
int64_t ech__tell_most_real(const ech__sheet *sheet);
/* Whether only one device was asked for. Then it says in the answer that has been begun that
 * nothing can be compared. */
bool ech__tell_alone(ech__sheet *sheet);
/* Says how figures of more devices than cores came about; nothing where there are none. */
void ech__tell_say_emulated(ech__sheet *sheet);
