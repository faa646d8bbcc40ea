/* The reference device: plain loops that are right by inspection, which tests compare the others with.
 *
 * Each operator is one function in body.inc or body_image.inc, compiled for f32 and for f64. Sums run in
 * double in both, and tensors are row-major; only operators that change their inputs take other layouts,
 * as flat arrays. Tensors of 16 bits are widened to f32 before an operator and rounded after it.
 */
#pragma once

#include "device/device.h"

typedef struct ech__ref_kernel ech__ref_kernel;

/* Runs an operator on the kernel's operands. */
typedef void (*ech__ref_fn)(const ech__ref_kernel *kernel);

struct ech__ref_kernel {
    ech__kernel base; /* first, so that an ech__kernel is an ech__ref_kernel */
    ech__ref_fn fn;
    ech__kernel_desc desc;
    const ech__scalars *scalars;       /* of the run in hand */
    int64_t extent[ECH__MAX_OPERANDS]; /* elements of each operand, padding included */
    void *at[ECH__MAX_OPERANDS];       /* in the type that is computed in */
    void *low[ECH__MAX_OPERANDS];      /* what is of 16 bits, as it lies in memory */
    void *copy;                        /* of the first operand, see ech__binding */
    ech_dtype copy_type;
};

extern const ech__ref_fn ech__ref_f32[ECH__OP_COUNT], ech__ref_f64[ECH__OP_COUNT];
/* Operators on integers, whose types are their own (quant.c). */
extern const ech__ref_fn ech__ref_quant[ECH__OP_COUNT];

const char *ech__ref_fingerprint(ech__device *device);
ech__layout ech__ref_activation_layout(ech__device *device, const ech__shape *shape);
