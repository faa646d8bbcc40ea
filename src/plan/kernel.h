/* The kernel interface: what a plan asks of a device. The plan owns it, devices implement it.
 *
 *     describe   ech__kernel_desc: an operator with types and layouts, bound to a batch size
 *     offer      device->ops->candidates: the ways this device can do it, without any memory
 *     create     device->ops->create: one way made ready for fixed addresses (slow, once)
 *     prepare    kernel->prepare: makes what follows from weights alone, once they are written
 *     run        kernel->run: does it (fast, every step, allocates nothing)
 *
 * A device is a set of cores with a worker thread of its own. candidates, create, run and destroy
 * are called on that thread (device->ops->call), because kernel libraries tie prepared kernels to a
 * thread count.
 */
#pragma once

#include "graph/op.h"
#include "tensor/layout.h"

/* Numbers that change from step to step. */
typedef struct ech__scalars {
    double lr;
    double loss_scale; /* factor on the gradient of the loss */
    int64_t step;      /* 1 for the first optimizer step */
    /* On every gradient that the optimizer takes: 1, or to undo the loss's scale and to clip. */
    double grad_factor;
    double share; /* this rank's share of the samples of all ranks, in this micro-step */
} ech__scalars;

/* An operand is an input, or else an output: operands[0..nin) are the inputs. */
typedef struct ech__operand {
    ech_dtype dtype;
    ech__layout layout; /* of a free operand: only the shape counts */
    bool free;          /* the device may choose the layout (parameters and their gradients) */
} ech__operand;

typedef struct ech__kernel_desc {
    ech__op op;
    ech__attrs attrs;
    int nin, nout;
    ech__operand operands[ECH__MAX_OPERANDS];
} ech__kernel_desc;

typedef struct ech__kernel ech__kernel;
typedef struct ech__device ech__device;
typedef struct ech__candidate ech__candidate;
typedef struct ech__binding ech__binding;

typedef struct ech__kernel_args {
    ech__device *device;
    const ech__kernel_desc *desc;
    const ech__candidate *candidate;
    const ech__binding *binding;
} ech__kernel_args;

/* Makes a kernel of a candidate, on the device's worker thread. */
typedef ech_status ech__create_kernel(const ech__kernel_args *args, ech__kernel **out);

/* One way to do it. The layouts of the free operands are filled in. */
struct ech__candidate {
    char name[40]; /* "onednn:brgemm", "openblas", "plain": stable, used in the tuning file */
    int64_t scratch_bytes; /* of workspace while it runs */
    int64_t kept_bytes;    /* of what prepare makes; the same for every batch */
    bool is_fallback;      /* a library's own reference code: a plan should never need it */
    bool stands_in;  /* allocates in every call, or is slow at this size: for want of others */
    bool only_timed; /* rounds otherwise than the plain way: taken when timing says so */
    ech__create_kernel *create;
    ech__create_kernel *inner; /* of the kernel that this one is made around; NULL: of none */
    ech__layout layouts[ECH__MAX_OPERANDS];
};

enum { ECH__MAX_CANDIDATES = 24 };

/* Elements of a tensor, padding included, that kernel libraries can address: they multiply sizes as
 * 32-bit integers. A device asks no library about a larger one; kernels of its own count in 64
 * bits. */
#define ECH__LIBRARY_ELEMENTS INT32_MAX

struct ech__kernel {
    ech_status (*run)(ech__kernel *kernel, const ech__scalars *scalars);
    void (*destroy)(ech__kernel *kernel);
    /* Writes what it keeps: for kernels of weights that stay as they are, and only for those. NULL:
     * it keeps nothing. */
    ech_status (*prepare)(ech__kernel *kernel);
    /* Of an optimizer's kernel: elements first to first + count only, by a gradient at another
     * address, on the calling thread alone. NULL: not supported. */
    ech_status (*run_part)(ech__kernel *kernel, const ech__scalars *scalars, int64_t first,
                           int64_t count, const void *gradient);
    /* Of the device's own kernels: */
    ech__device *device;
    size_t bytes; /* of the struct that begins with this one */
};

/* Addresses a kernel is tied to, operands first to last, and its scratch. */
struct ech__binding {
    void *operands[ECH__MAX_OPERANDS];
    void *scratch;
    void *kept; /* from one run to the next */
    /* Of an optimizer: a copy of its parameter in a 16-bit type, which lies alike and is written
     * with it. NULL: none. */
    void *copy;
    ech_dtype copy_type;
    /* Of an all-reduce on a device whose memory the host cannot touch: where the ranks add up, in
     * memory that they share. NULL: in the first operand. */
    void *staging;
};

/* Memory of a kind of device. An address is a name that may be added to; the host touches what lies
 * there only where it is host_visible. All but alloc and free may be called on any thread. Each
 * comes after all that the device was given before, and write, read, copy and fill return when the
 * host's memory, or the other device's, may be used again. */
typedef struct ech__memory_ops {
    bool host_visible;
    /* Zeroed and aligned to 64 bytes at least. ech__device_ops.alloc and free count it against the
     * limit as well. */
    ech_status (*alloc)(ech__device *device, int64_t bytes, void **out);
    void (*free)(ech__device *device, void *ptr, int64_t bytes);
    ech_status (*write)(ech__device *device, void *dst, const void *host, int64_t bytes);
    ech_status (*read)(ech__device *device, void *host, const void *src, int64_t bytes);
    /* From another device of the same kind, by the threads of the caller's; ech__device_copy takes
     * any two. */
    ech_status (*copy)(ech__device *device, void *dst, ech__device *from, const void *src,
                       int64_t bytes);
    ech_status (*fill)(ech__device *device, void *dst, int byte, int64_t bytes);
    /* Waits for all that the device was given. */
    ech_status (*sync)(ech__device *device);
    /* Stores the time, in ns of ech__clock_wall, at which all that the device was given is done: at
     * the latest when sync returns. */
    void (*stamp)(ech__device *device, int64_t *ns);
    /* Stores, as late as stamp does, how long the device has worked so far: what the virtual clock
     * counts. Time in which others had its cores is no work. On the device's thread only. */
    void (*worked)(ech__device *device, int64_t *ns);
} ech__memory_ops;

#define ECH__MEMORY_LIST(X)                                                                        \
    X(WEIGHTS, "weights")                                                                          \
    X(COPIES, "copies")                                                                            \
    X(GRADIENTS, "gradients")                                                                      \
    X(SUMS, "sums")                                                                                \
    X(OPTIMIZER, "optimizer")                                                                      \
    X(INPUTS, "inputs")                                                                            \
    X(ACTIVATIONS, "activations")                                                                  \
    X(WORKSPACE, "workspace")

typedef enum ech__memory_kind {
#define ECH__MEMORY_ENUM(id, text) ECH__MEMORY_##id,
    ECH__MEMORY_LIST(ECH__MEMORY_ENUM)
#undef ECH__MEMORY_ENUM
        ECH__MEMORY_COUNT
} ech__memory_kind;

const char *ech__memory_name(ech__memory_kind kind);

typedef struct ech__device_ops {
    /* Processor, libraries and their versions: timings hold for one such text. */
    const char *(*fingerprint)(ech__device *device);
    /* The layout this device wants for an activation: images blocked by channels, all else
     * row-major. */
    ech__layout (*activation_layout)(ech__device *device, const ech__shape *shape);
    /* Fills out with at most ECH__MAX_CANDIDATES, the preferred one first. */
    ech_status (*candidates)(ech__device *device, const ech__kernel_desc *desc, ech__candidate *out,
                             int *count);
    /* By the candidate's own function, on the worker thread. */
    ech__create_kernel *create;
    /* By the memory's own functions. Over the limit it is refused with both figures. */
    ech_status (*alloc)(ech__device *device, int64_t bytes, void **out);
    void (*free)(ech__device *device, void *ptr, int64_t bytes);
    /* What alloc could allocate now without the device's own limit: what the machine, the control
     * group and the limits of the process leave. */
    int64_t (*available)(ech__device *device);
    /* Counts memory that comes from elsewhere (shared with other ranks) against the limit;
     * negative: gives it back. */
    ech_status (*charge)(ech__device *device, int64_t bytes);
    /* Runs job on the worker thread, waits for it, and gives its result. */
    ech_status (*call)(ech__device *device, ech_status (*job)(void *arg), void *arg);
    /* The same in two, so that several devices can work at a time: start hands the job over, finish
     * waits for it. Each start has one finish, and nothing else is asked of the device's worker in
     * between. */
    void (*start)(ech__device *device, ech_status (*job)(void *arg), void *arg);
    ech_status (*finish)(ech__device *device);
} ech__device_ops;

/* The part of a device that others may read. */
struct ech__device {
    const ech__device_ops *ops;
    const ech__memory_ops *memory;
    ech_ctx *ctx;
    const char *kind; /* "cpu", "reference" */
    int threads;
    int64_t memory_limit; /* bytes; 0: none */
    int64_t memory_used, memory_peak;
    int64_t busy_ns; /* time the worker spent in jobs */
};
