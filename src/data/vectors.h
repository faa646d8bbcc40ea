/* One batch of vectors to learn a mapping from: inputs x[N, D] and targets y[N, D], in f32.
 *
 *     ech__vectors v;
 *     ECH_TRY(ech__vectors_synthetic(ctx, &v, 64, 1024, seed));     or ech__vectors_load from a file
 *     ... v.x, v.y, v.count ...
 *     ech__vectors_fini(ctx, &v);
 */
#pragma once

#include "base/status.h"

typedef struct ech__vectors {
    int64_t count, dim; /* N, D */
    float *x, *y;       /* owned */
} ech__vectors;

/* Standard normal numbers: sample i depends on the seed and i alone. */
ech_status ech__vectors_synthetic(ech_ctx *ctx, ech__vectors *out, int64_t count, int64_t dim,
                                  uint64_t seed);
/* Tensors "x" and "y" of a safetensors file. */
ech_status ech__vectors_load(ech_ctx *ctx, ech__vectors *out, const char *path);
void ech__vectors_fini(ech_ctx *ctx, ech__vectors *vectors);
