/* oneDNN's v2 C interface, as far as its primitives have things in common. Only this folder may
 * see it. */
#pragma once

#include "device/cpu/cpu.h"

#include <dnnl.h>

struct ech__onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

/* A layout as oneDNN describes it, and back; false where our layouts cannot say what oneDNN
 * means. */
void ech__onednn_md(const ech__layout *layout, ech_dtype dtype, dnnl_memory_desc_t *md);
bool ech__onednn_layout(const dnnl_memory_desc_t *md, ech__layout *layout);

/* Whether oneDNN can be asked about a tensor: it has at most ECH__LIBRARY_ELEMENTS. On its way
 * to a kernel oneDNN dies of a division by zero where a product of sizes wraps around. */
bool ech__onednn_addresses(const dnnl_memory_desc_t *md);

/* Scratch from us. NULL when it cannot be made. */
dnnl_primitive_attr_t ech__onednn_attributes(void);

/* What oneDNN calls the kernel: "brgemm:avx512_core", "x64:gemm:jit". */
const char *ech__onednn_kernel_name(const_dnnl_primitive_desc_t pd);
/* Kernels on its matrix multiplication take their packing buffers by themselves, in every call;
 * those on its batch-reduce one ("brgemm") take them from the scratch that they are given. */
bool ech__onednn_allocates(const char *kernel_name);

/* A candidate from a primitive description, with this layout for its free operand; none from NULL.
 * Destroys pd. oneDNN's reference code is none for bf16, where our own way through f32 is faster. */
void ech__onednn_offer(dnnl_primitive_desc_t pd, ech__create_kernel *create,
                       const ech__kernel_desc *desc, int free_operand, const ech__layout *layout,
                       ech__offer *offer);

/* The tensors of an operator with a weight, whatever the direction: a linear layer or a
 * convolution. */
typedef struct ech__onednn_tensors {
    dnnl_memory_desc_t src, wei, bia, dst;
    bool has_bias;
} ech__onednn_tensors;

/* Whether oneDNN can be asked about the operator: it addresses each of its tensors. */
bool ech__onednn_can_ask(const ech__onednn_tensors *tensors);

enum { ECH__ONEDNN_MAX_ARGS = 4 };

/* What a primitive is executed on. */
typedef struct ech__onednn_args {
    int count;
    int arg[ECH__ONEDNN_MAX_ARGS];
    const dnnl_memory_desc_t *md[ECH__ONEDNN_MAX_ARGS];
    void *memory[ECH__ONEDNN_MAX_ARGS];
    bool relu; /* of the last argument, after the primitive */
} ech__onednn_args;

void ech__onednn_arg(ech__onednn_args *args, int arg, const dnnl_memory_desc_t *md, void *memory);
/* A kernel that executes the primitive on these arguments. Destroys pd; where it is NULL it fails. */
ech_status ech__onednn_create(ech__device *device, dnnl_primitive_desc_t pd,
                              const ech__onednn_args *args, void *scratch, ech__kernel **out);
