/* Named tensors in memory, row-major: the weights of a network while it is rewritten.
 *
 *     ech__tensors t;
 *     ech__tensors_init(ctx, &t);
 *     ECH_TRY(ech__tensors_take(&t, trainer));                parameters and buffers, by name
 *     ech__tensor *w = ech__tensors_find(&t, "fc1.weight");   NULL where there is none
 *     float *values = w->data;
 *     ech__tensors_fini(&t);
 *
 * A tensor stays where it is until fini.
 */
#pragma once

#include "base/arena.h"
#include "tensor/shape.h"

typedef struct ech__tensor {
    const char *name;
    ech_dtype dtype;
    ech__shape shape;
    int64_t elems;
    void *data;
} ech__tensor;

typedef struct ech__tensors {
    ech_ctx *ctx;
    ech__arena arena;
    ech__tensor **items;
    size_t count, cap;
} ech__tensors;

void ech__tensors_init(ech_ctx *ctx, ech__tensors *tensors);
void ech__tensors_fini(ech__tensors *tensors);

/* A new one, zeroed. The name must not be there yet. */
ech_status ech__tensors_add(ech__tensors *tensors, const char *name, ech_dtype dtype,
                            const ech__shape *shape, ech__tensor **out);
ech__tensor *ech__tensors_find(const ech__tensors *tensors, const char *name);
/* A copy of one of another list. */
ech_status ech__tensors_copy(ech__tensors *tensors, const ech__tensor *from, ech__tensor **out);
/* Copies of everything. */
ech_status ech__tensors_copy_all(ech__tensors *tensors, const ech__tensors *from);
/* Parameters and buffers of a trainer (trained.c). */
ech_status ech__tensors_take(ech__tensors *tensors, ech_trainer *trainer);

/* Says which tensor holds a number that is not finite, where one does. Only f32 is looked at. */
ech_status ech__tensors_check_finite(const ech__tensors *tensors);
