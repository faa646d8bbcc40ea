/* A device by description: figures of a data sheet, and how much of them operators reach. Nothing is
 * measured (predict/roofline.h prices operators by it).
 *
 *     ech__device_spec spec;
 *     ECH_TRY(ech__device_spec_load(ctx, "examples/devices/a40.json", &spec));
 *
 * A file is a JSON object; docs/devices.md lists its members. A figure is a number, a pair [low, high],
 * or an object with such a "value" and its "source". Units are flops, bytes and seconds.
 */
#pragma once

#include "price/cluster.h"

/* What products are computed in. */
#define ECH__MATH_LIST(X)                                                                          \
    X(F32, "f32")                                                                                  \
    X(TF32, "tf32") /* f32 operands, rounded on the way into matrix units */                       \
    X(BF16, "bf16")                                                                                \
    X(FP16, "fp16")                                                                                \
    X(INT8, "int8")

typedef enum ech__math {
#define ECH__MATH_ENUM(id, text) ECH__MATH_##id,
    ECH__MATH_LIST(ECH__MATH_ENUM)
#undef ECH__MATH_ENUM
        ECH__MATH_COUNT
} ech__math;

/* Kinds of operators, by what limits them. Products come first. */
#define ECH__WORK_LIST(X)                                                                          \
    X(MATRIX, "matrix")         /* linear layers, all directions */                                \
    X(CONV, "conv")             /* convolutions with windows */                                    \
    X(CONV_1X1, "conv_1x1")     /* without */                                                      \
    X(CONV_FIRST, "conv_first") /* of few input channels */                                        \
    X(BATCH_NORM, "batch_norm")                                                                    \
    X(POOL, "pool")                                                                                \
    X(ELEMENTWISE, "elementwise") /* sums, ReLU, losses, casts */                                  \
    X(OPTIMIZER, "optimizer")

typedef enum ech__work_kind {
#define ECH__WORK_ENUM(id, text) ECH__WORK_##id,
    ECH__WORK_LIST(ECH__WORK_ENUM)
#undef ECH__WORK_ENUM
        ECH__WORK_COUNT
} ech__work_kind;
enum { ECH__WORK_PRODUCTS = ECH__WORK_BATCH_NORM };

const char *ech__math_name(ech__math math);
const char *ech__work_name(ech__work_kind kind);

/* Where a figure is not known exactly; equal where it is. 0 in both: it is not given. */
typedef struct ech__bounds {
    double low, high;
} ech__bounds;

typedef struct ech__device_spec {
    char name[64];
    double peak[ECH__MATH_COUNT];       /* flops/s; 0: the device has none */
    ech__math f32[ECH__WORK_PRODUCTS];  /* what products of f32 operands are computed in */
    double bytes_per_s, memory;         /* of its own memory */
    double multiprocessors, tile_flops; /* that work at once, each on a tile of so many */
    ech__bounds launch,
        host;       /* seconds for each operator: added on the device, at least on the host */
    ech__link link; /* to others: bandwidth times efficiency */
    ech__bounds compute[ECH__WORK_PRODUCTS][ECH__MATH_COUNT]; /* share of the peak */
    ech__bounds streaming[ECH__WORK_COUNT];                   /* share of bytes_per_s */
    bool calibrated;
    double error;          /* of a calibrated time, as a fraction */
    char calibration[160]; /* the run that it was calibrated on */
} ech__device_spec;

/* An error message names the file, the member, the value and the limit. */
ech_status ech__device_spec_load(ech_ctx *ctx, const char *path, ech__device_spec *out);
/* what: names the text in error messages. */
ech_status ech__device_spec_parse(ech_ctx *ctx, const char *what, const char *text, size_t bytes,
                                  ech__device_spec *out);
