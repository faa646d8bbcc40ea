/* The choices of a plan, apart from it: the kernel of every operator, the layout of every
 * parameter. They are saved, because equal bits are promised for one set of choices: a checkpoint
 * holds them, and a plan that is made from them is the one they were taken from, whatever the
 * tuning file says by then.
 *
 *     ech_json *json = ech__choices_json(plan);
 *     ...
 *     ech__choices choices;
 *     ECH_TRY(ech__choices_parse(ctx, json, &arena, &choices));
 *     ech__plan_create(graph, device, &(ech__plan_options){.batch = 64, .choices = &choices}, &plan);
 */
#pragma once

#include "base/arena.h"
#include "base/file/json.h"

typedef struct ech__plan ech__plan;

/* One operator, in the order of the plan. Delays are left out: they change no bits and may come and
 * go. */
typedef struct ech__kernel_choice {
    const char *op, *name; /* name: of the layer; may be empty */
    const char *kernel;
    double seconds; /* its time when it was tuned; 0: not timed */
} ech__kernel_choice;

/* Of a parameter, or of a copy of one. */
typedef struct ech__layout_choice {
    const char *value, *tag;
} ech__layout_choice;

typedef struct ech__choices {
    ech__kernel_choice *kernels;
    size_t nkernels;
    ech__layout_choice *layouts;
    size_t nlayouts;
} ech__choices;

ech_json *ech__choices_json(const ech__plan *plan);
/* The choices of several plans that a training step is split into, one after the other. */
ech_json *ech__choices_json_of(const ech__plan *const *plans, int count);
/* Copies all it needs into the arena. */
ech_status ech__choices_parse(ech_ctx *ctx, const ech_json *json, ech__arena *arena,
                              ech__choices *out);

/* The tag of the layout that was chosen for a value, or NULL. */
const char *ech__choices_layout(const ech__choices *choices, const char *value);
