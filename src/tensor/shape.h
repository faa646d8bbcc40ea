/* Types and shapes. A dimension is 0 or more, or ECH_BATCH until a plan binds it. */
#pragma once

#include "base/status.h"

typedef struct ech__shape {
    int ndims; /* 0: a scalar */
    int64_t dims[ECH_MAX_DIMS];
} ech__shape;

int64_t ech__dtype_bytes(ech_dtype dtype);
const char *ech__dtype_name(ech_dtype dtype);
/* bf16 or f16: 16-bit floating-point types that replace f32. */
bool ech__dtype_is_low(ech_dtype dtype);

bool ech__shape_equal(const ech__shape *a, const ech__shape *b);
/* The shape with ECH_BATCH replaced. */
ech__shape ech__shape_bind(const ech__shape *shape, int64_t batch);
/* Number of elements; false on overflow or an unbound dimension. */
bool ech__shape_elems(const ech__shape *shape, int64_t *out);

typedef struct ech__shape_text {
    char s[96];
} ech__shape_text;

/* "[N, 1024]", for messages. */
ech__shape_text ech__shape_format(const ech__shape *shape);
