/* Devices: a set of cores with memory of its own, a worker thread, a fixed thread count, a busy-time counter
 * and a memory limit.
 *
 *     ech__device *dev;
 *     ECH_TRY(ech__device_create(ctx, &(ech__device_options){.kind = ECH__DEVICE_CPU, .threads = 1}, &dev));
 *     ... plan on it, run on it ...
 *     ech__device_destroy(dev);                       after everything that was made on it
 *
 * A kind of device is a table of kernels and of memory (device/cpu, device/ref); the worker and the limits here are
 * the same for all.
 */
#pragma once

#include "plan/kernel.h"

/* The text is the value of ECHELON_DEVICE. */
#define ECH__DEVICE_LIST(X)                                                                        \
    X(CPU, "cpu")           /* oneDNN, OpenBLAS and vector code */                                 \
    X(REFERENCE, "ref")     /* plain loops in f32 and f64, for tests */                            \
    X(HIDDEN, "ref-hidden") /* the same in memory that faults when the host touches it */

typedef enum ech__device_kind {
#define ECH__DEVICE_ENUM(id, text) ECH__DEVICE_##id,
    ECH__DEVICE_LIST(ECH__DEVICE_ENUM)
#undef ECH__DEVICE_ENUM
} ech__device_kind;

/* A testing aid: the kind of device that this process trains and quantizes on. Not set: the cpu. */
#define ECH__DEVICE_VARIABLE "ECHELON_DEVICE"
/* Refuses a value that names no kind. */
ech_status ech__device_asked(ech_ctx *ctx, ech__device_kind *out);
const char *ech__device_name(ech__device_kind kind);

/* Whether ranks can update parameters of each other on such devices: the host sees their memory, and
 * their kernels of optimizers can do a part. */
bool ech__device_shards_updates(ech__device_kind kind);

typedef struct ech__device_options {
    ech__device_kind kind;
    int threads;          /* 0: every core this process may use */
    int64_t memory_limit; /* 0: what the machine has, divided by sharers */
    int sharers;          /* processes that share the machine's memory, this one included; 0: 1 */
    const int *cores;     /* where the worker and its threads may run; NULL: anywhere */
    int ncores;
} ech__device_options;

ech_status ech__device_create(ech_ctx *ctx, const ech__device_options *options, ech__device **out);
void ech__device_destroy(ech__device *device);

/* Cores this process may use. */
int ech__device_cores(void);

/* ---- for the kinds ---- */

/* What a kind brings. The functions run on the worker thread. */
typedef struct ech__kernel_table {
    const char *kind;
    const ech__memory_ops *memory;
    bool updates_parts; /* its kernels of optimizers have run_part */
    /* Makes what the kind needs beside the device (library handles). Both NULL: it needs nothing. */
    ech_status (*open)(ech__device *device, void **out);
    void (*close)(ech__device *device, void *state);
    const char *(*fingerprint)(ech__device *device);
    ech__layout (*activation_layout)(ech__device *device, const ech__shape *shape);
    ech_status (*candidates)(ech__device *device, const ech__kernel_desc *desc, ech__candidate *out,
                             int *count);
} ech__kernel_table;

extern const ech__kernel_table ech__cpu_table, ech__reference_table, ech__hidden_table;

/* The host's own memory, for kinds that compute in it. */
extern const ech__memory_ops ech__host_memory;

/* What open gave. */
void *ech__device_state(ech__device *device);

/* Moves a kernel that was filled in, which begins with an ech__kernel, to memory of its own.
 * Unless it names a destroy function, destroying it is ech__kernel_free. On failure *out is NULL. */
ech_status ech__kernel_make(ech__device *device, const void *kernel, size_t bytes,
                            ech__kernel **out);
/* Whether the second operand is labels[N] of logits[N,C], and whether each of them is a class. */
bool ech__has_labels(const ech__kernel_desc *desc);
ech_status ech__check_labels(ech__device *device, const int32_t *labels, int64_t N, int64_t C);
/* For the end of a destroy function. */
void ech__kernel_free(ech__kernel *kernel);
/* Returns status; on failure destroys the kernel first. */
ech_status ech__kernel_made(ech_status status, ech__kernel **kernel);
