/* What the studies of the linear stack have in common that put micro-steps or layers on devices:
 * the words of their runs, and where their memory goes.
 *
 *     const ech__lab_spread mp = {.dim = 2048, .depth = 6, .batch = 64, .steps = 35, .devices = 2};
 *     ech__lab_spread_layers(lab, "mp2", &mp);
 *
 * Studies that ask for the same stack share the run, so nothing but these functions writes its words.
 */
#pragma once

#include "lab/shared.h"

typedef struct ech__lab_spread {
    int64_t dim, depth;
    int64_t batch;    /* of a device and micro-step; of layers on devices, of all of them */
    int64_t steps;    /* with the warm-up */
    int64_t devices;  /* 0: one */
    int64_t accum;    /* micro-steps; 0: one */
    int64_t micros;   /* micro-batches of a pipeline; 0: none, one device works at a time */
    const char *more; /* further words, or NULL */
} ech__lab_spread;

/* Data-parallel: a copy of the stack on every device. With momentum, so that the optimizer has something to keep. */
void ech__lab_spread_ranks(ech__lab_runs *lab, const char *id, const ech__lab_spread *stack);
/* The layers spread over the devices, by halves or evenly. */
void ech__lab_spread_layers(ech__lab_runs *lab, const char *id, const ech__lab_spread *stack);

/* Numbers of devices that layers are spread over, ascending: one, two, five, and all that the
 * machine has, as far as there are layers for them. Gives how many. */
enum { ECH__LAB_SPREAD_COUNTS = 4 };
size_t ech__lab_spread_counts(int64_t cores, int64_t depth, int64_t out[ECH__LAB_SPREAD_COUNTS]);

/* ---- lists ---- */

/* The text once for each number, with the number wherever it has '#': for 1 and 2 with ", " between,
 * "#, steps[n# time_s]" becomes "1, steps[n1 time_s], 2, steps[n2 time_s]". numbers NULL: 0, 1, 2... */
ech__lab_phrase ech__lab_each(const int64_t *numbers, size_t count, const char *between,
                              const char *text);

/* ---- memory ---- */

/* A device of a run. */
typedef struct ech__tell_place {
    ech__lab_id run;
    int64_t device;
    char label[64];
} ech__tell_place;

/* A table with a row for each place and a column for each kind of memory that any of them has, and all of it. */
void ech__tell_memory_table(ech__sheet *sheet, const char *title, const ech__tell_place *places,
                            size_t count);
/* The same as stacked bars. */
void ech__tell_memory_plot(ech__sheet *sheet, const char *title, const char *caption,
                           const ech__tell_place *places, size_t count);

/* ---- sentences ---- */

/* One of three by ech__tell_side of the figure: below the bound, no difference to be told, above it. Nothing where
 * it is not known. */
void ech__tell_by_side(ech__sheet *sheet, const char *figure, double bound, const char *below,
                       const char *neither, const char *above);

/* The sentence with n wherever it has '#', in names of figures: "{speedup#}". */
void ech__tell_say_for(ech__sheet *sheet, int64_t n, const char *sentence);
/* What it means that the busy shares of all devices of a step, added up, are this figure: turns, or
 * work side by side. */
void ech__tell_say_turns(ech__sheet *sheet, const char *figure);
